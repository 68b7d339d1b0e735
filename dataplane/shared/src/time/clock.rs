//! Clock: the cycle counter as nanoseconds since an epoch, which is the first use in the process.
//!
//! An lcore reads the time once per turn, so a read is one `rdtsc` and one multiplication: no
//! system call, no division. The rate is measured once per process against the kernel's monotonic
//! clock (EAL rounds its own estimate to 10 MHz, which is 0.2 % off on common machines).
//!
//! Invariants
//! - All clocks of a process have one epoch, so times of different lcores and devices can be
//!   compared.
//! - The counter is assumed to run at one rate in all states and to be synchronous between cores
//!   (`constant_tsc nonstop_tsc`), as on every x86-64 machine that DPDK is used on. Other
//!   processors take the kernel's clock.
//!
//! Not here: wall-clock time, sleeping.

#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time for which the rate is measured, once per process.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Nanoseconds since the process's epoch, from the cycle counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch_cycles: u64,
    /// Nanoseconds per cycle, times 2^32.
    ns_per_cycle: u64,
}

impl Clock {
    /// Returns the process's clock. The first call measures the rate for 20 ms and sets the epoch.
    pub fn new() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            let ns_per_cycle = measure();
            Self { epoch_cycles: cycles(), ns_per_cycle }
        })
    }

    /// Returns the nanoseconds since the epoch; never less than an earlier reading on the same
    /// core.
    #[inline]
    pub fn now(&self) -> u64 {
        scale(cycles().saturating_sub(self.epoch_cycles), self.ns_per_cycle)
    }

    /// Returns the nanoseconds that a number of [`cycles`] takes.
    pub fn nanos_of(&self, cycles: u64) -> u64 {
        scale(cycles, self.ns_per_cycle)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Converts cycles to nanoseconds. The cast would wrap only after 584 years.
#[inline]
fn scale(cycles: u64, ns_per_cycle: u64) -> u64 {
    ((u128::from(cycles) * u128::from(ns_per_cycle)) >> 32) as u64
}

fn measure() -> u64 {
    let (from_cycles, from) = pair();
    std::thread::sleep(CALIBRATION);
    let (to_cycles, to) = pair();
    let ns = to.duration_since(from).as_nanos();
    let cycles = u128::from(to_cycles.saturating_sub(from_cycles)).max(1);
    // 20 ms in nanoseconds, times 2^32, has 57 bits.
    ((ns << 32) / cycles) as u64
}

/// Returns both clocks at one moment: the one of several tries that was interrupted least.
fn pair() -> (u64, Instant) {
    let mut best = (u64::MAX, 0, Instant::now());
    for _ in 0..16 {
        let before = cycles();
        let instant = Instant::now();
        let width = cycles().saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, instant);
        }
    }
    (best.1, best.2)
}

/// Returns the cycle counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: RDTSC is part of every x86-64 processor, reads no memory, and Linux leaves it enabled
    // for user space.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns nanoseconds of the kernel's monotonic clock, which other processors read without a
/// system call, in place of a cycle counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn cycles() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_kernel_to_a_tenth_of_a_percent() {
        let clock = Clock::new();
        let (from, instant) = (clock.now(), Instant::now());
        std::thread::sleep(Duration::from_millis(100));
        let elapsed = (clock.now() - from) as f64;
        let kernel = instant.elapsed().as_nanos() as f64;
        assert!((elapsed / kernel - 1.0).abs() < 1e-3, "{elapsed} ns against {kernel} ns");
    }

    #[test]
    fn all_clocks_share_the_epoch() {
        let clock = Clock::new();
        let copy = Clock::new();
        let first = clock.now();
        assert!(copy.now() >= first);
        assert!(copy.now() - first < 1_000_000_000);
    }

    #[test]
    fn a_century_of_cycles_does_not_overflow() {
        let century = 100 * 365 * 86_400 * 3_000_000_000u64;
        assert_eq!(scale(century, 1 << 31), century / 2);
    }
}
