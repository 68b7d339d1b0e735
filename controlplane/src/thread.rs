//! The control-plane thread: one per device.
//!
//! ```text
//!   requests ──> serve ──┬─> Control (commands to lcores) ──> reply
//!                        └─> waiting for a neighbour ── resolve ──> Control ──> reply
//!   slow frames ──> Neighbours ──> frames out
//! ```
//!
//! It is a state machine that never waits for a peer: a request that needs a neighbour's address
//! stands aside, and ARP, neighbour discovery and echo go on.
//!
//! Invariants
//! - Every request is answered once, also when the thread ends.
//! - It alone calls [`Control`].
//!
//! Not here: what the requests mean to a QP (the engine's and the transport's).

mod counts;
mod frames;
mod ports;
mod requests;
mod waiting;

use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use uroce_engine::Control;
use uroce_engine::eal::block_signals;
use uroce_transport::Instant;

use crate::config::{Config, DeviceConfig, Lcores};
use crate::port_watch::Ports;
use crate::request::Request;
use counts::Counts;
use waiting::Waiting;

/// Between two looks at adopted lcores when nothing happens.
const QUIET: Duration = Duration::from_millis(1);
/// Between two looks at neighbours that are being asked for.
const ASKING: Duration = Duration::from_micros(200);

/// Starts the thread.
///
/// # Errors
///
/// The process may not have another thread.
pub(crate) fn start(
    control: Control,
    ports: Ports,
    requests: Receiver<Request>,
    cpu: Option<usize>,
) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        block_signals();
        if let Some(id) = cpu {
            // A CPU that went away meanwhile is no reason not to run elsewhere.
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        let epoch = std::time::Instant::now();
        let counts = Counts::default();
        let thread = Thread { control, ports, waiting: Vec::new(), counts, epoch, ended: false };
        thread.run(&requests);
    };
    std::thread::Builder::new().name("uroce-control".into()).spawn(body)
}

/// The CPU for the thread: the configured one, or, where the lcores' CPUs are listed, the first
/// that none of the process's lcores has.
pub(crate) fn choose_cpu(config: &Config, device: &DeviceConfig) -> Option<usize> {
    if device.control_cpu.is_some() {
        return device.control_cpu;
    }
    let mut taken = Vec::new();
    for device in &config.devices {
        match &device.lcores {
            Lcores::Cpus(cpus) => taken.extend_from_slice(cpus),
            Lcores::Count(_) => return None,
        }
    }
    let ours = core_affinity::get_core_ids()?;
    ours.into_iter().map(|core| core.id).find(|cpu| !taken.contains(cpu))
}

struct Thread {
    control: Control,
    ports: Ports,
    waiting: Vec<Waiting>,
    counts: Counts,
    epoch: std::time::Instant,
    ended: bool,
}

impl Thread {
    fn run(mut self, requests: &Receiver<Request>) {
        let mut serve_due = Instant::ZERO;
        self.begin_links();
        while !self.ended {
            let now = self.now();
            self.watch_links();
            // Seldom, however much there is to do: each turn of ours is in an adopter's way.
            if now >= serve_due {
                self.control.serve_adopted();
                serve_due = now + QUIET;
            }
            let mut busy = self.take_frames(now);
            self.ask_neighbours();
            self.resume();
            busy |= self.take_requests(requests);
            if !busy {
                self.wait(requests);
            }
        }
        self.refuse_waiting();
        self.control.shutdown();
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until there is something to do, or it is time to look after adopted lcores, silent
    /// links and questions to neighbours.
    fn wait(&mut self, requests: &Receiver<Request>) {
        let pause = if self.waiting.is_empty() { QUIET } else { ASKING };
        let pause = pause.min(self.control.link_poll_period());
        let mut came = Err(TryRecvError::Empty);
        self.control.sleep(pause, || {
            came = requests.try_recv();
            !matches!(came, Err(TryRecvError::Empty))
        });
        match came {
            Ok(request) => self.serve(request),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.ended = true,
        }
    }
}

#[cfg(test)]
mod tests;
