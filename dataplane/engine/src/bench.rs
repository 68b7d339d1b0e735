//! Internals of the engine for micro-benchmarks; not part of its public interface.

use std::sync::Arc;
use uroce_shared::copy::sum;
use uroce_shared::table::key::{Numbers, Slots};
use uroce_shared::table::qp_table::{Place, QpFinder, QpTable};
use uroce_wire::{Icrc, Qpn};

/// Copies a large payload to `out`, as the engine does for a packet that it sends. Returns `sum`
/// continued over the payload.
///
/// # Panics
/// If `out` has another length than `payload`.
#[inline]
pub fn copy_summed(payload: &[u8], out: &mut [u8], sum: Icrc) -> Icrc {
    sum::copy_summed(payload, out, sum)
}

/// Returns `sum` continued over a payload, as for a received packet that no other follows.
#[inline]
pub fn summed(payload: &[u8], sum: Icrc) -> Icrc {
    sum::summed(payload, sum, &[])
}

/// A full QP table, and one lcore's finder for it.
#[derive(Debug)]
pub struct QpLookUp {
    finder: QpFinder,
    numbers: Vec<Qpn>,
}

impl QpLookUp {
    /// Makes a table with `qps` QPs of lcore 0.
    ///
    /// # Panics
    /// If `qps` is 0 or the system gives no randomness.
    pub fn new(qps: u32) -> QpLookUp {
        let numbers = Numbers::random(qps).expect("the system's randomness");
        let table = Arc::new(QpTable::new(qps, numbers.clone()));
        let mut slots = Slots::new(qps);
        let publish = |_| {
            let (index, number) =
                slots.take(|at, life| numbers.qpn(at, life), &[0]).expect("a free slot");
            table.publish(Qpn::new(number), Place { index, owner: 0 });
            Qpn::new(number)
        };
        let numbers = (0..qps).map(publish).collect();
        QpLookUp { finder: QpFinder::new(Arc::clone(&table)), numbers }
    }

    /// Looks up the QP that was added as number `nth`. Returns whether it is there.
    #[inline]
    pub fn find(&self, nth: u32) -> bool {
        self.numbers.get(nth as usize).is_some_and(|&qpn| self.finder.find(qpn).is_some())
    }
}
