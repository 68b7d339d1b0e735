//! The control-plane thread: one per device.
//!
//! ```text
//!   jobs (calls) ──> Thread ──┬─> Control (commands to lcores) ──> reply
//!                             └─> waiting for a neighbour ── resolve ──> Control ──> reply
//!   slow frames ──> Neighbours ──> frames out
//!   packets to QP 1 ──> Gsi ──> Service (connections) ──> Control, frames out
//!   notices of QPs ─────────────────┘
//! ```
//!
//! The thread sleeps until there is one of these inputs, a link changes, or a timer is due. It is a
//! state machine that never waits for a peer: a call that needs a neighbour's address is parked,
//! and all other work goes on.
//!
//! Invariants
//! - Every call is answered once, even if the thread ends.
//! - Only this thread calls [`Control`].
//!
//! Not here: effects of the calls on a QP (`uroce-engine` and `uroce-transport`).

mod addresses;
mod calls;
mod captures;
mod connections;
mod counts;
mod faults;
mod flows;
mod frames;
mod gone;
mod groups;
mod last_words;
mod ports;
mod recent;
mod seen;
mod traces;
mod waiting;
mod ways;

use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use uroce_engine::Control;
use uroce_engine::eal::block_signals;
use uroce_transport::{Instant, QpChange};
use uroce_wire::Qpn;

use crate::call::Job;
use crate::config::{Config, DeviceConfig, Lcores, SelectiveRepeat};
use crate::failover::Failover;
use crate::gsi::Gsi;
use crate::port_watch::Ports;
use crate::rdma_cm::Service;
use captures::Captures;
use counts::Counts;
use groups::Members;
use last_words::LastWord;
use recent::Recent;
use traces::Traces;
use waiting::Waiting;

pub(crate) use addresses::AddressError;
pub(crate) use captures::CaptureSeen;
pub(crate) use recent::{About, Happened};
pub(crate) use seen::{PortSeen, QpPage};
pub(crate) use waiting::ModifyQp;
pub(crate) use ways::WayError;

/// Longest sleep while lcores are adopted or MADs wait to be sent. Adopted lcores, which
/// application threads turn, are also served at this interval.
const QUIET: Duration = Duration::from_millis(1);
/// Time for peers to receive the last frames. A polling peer needs microseconds; on a machine with
/// few CPUs it may have to wait for a time slice or two.
const LINGER: Duration = Duration::from_millis(20);

/// Initial state of the thread.
pub(crate) struct Parts {
    pub(crate) control: Control,
    pub(crate) ports: Ports,
    pub(crate) gsi: Gsi,
    pub(crate) service: Service,
    pub(crate) selective_repeat: SelectiveRepeat,
    pub(crate) keepalive_ms: Option<u32>,
    pub(crate) failover: Option<Failover>,
}

/// Starts the thread, on the given CPU if there is one.
///
/// # Errors
///
/// If the process may not have another thread.
pub(crate) fn start(
    parts: Parts,
    jobs: Receiver<Job>,
    cpu: Option<usize>,
) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        block_signals();
        if let Some(id) = cpu {
            // If the CPU has become unavailable, the thread runs on another one.
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        let Parts { control, ports, gsi, service, selective_repeat, keepalive_ms, failover } =
            parts;
        let thread = Thread {
            control,
            ports,
            gsi,
            service,
            selective_repeat,
            keepalive_ms,
            told: failover.as_ref().map(|_| Vec::new()),
            failover,
            waiting: Vec::new(),
            last_words: Vec::new(),
            members: Members::new(),
            counts: Counts::default(),
            recent: Recent::default(),
            captures: Captures::default(),
            traces: Traces::default(),
            epoch: std::time::Instant::now(),
            guard_due: Instant::ZERO,
            ended: false,
            patience: Duration::ZERO,
        };
        thread.run(&jobs);
    };
    std::thread::Builder::new().name("uroce-control".into()).spawn(body)
}

/// Returns the CPU for the thread: the configured one, else the first CPU that no lcore of the
/// process uses. `None` if there is no such CPU, or if the configuration does not list the CPUs of
/// all lcores.
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

/// State of the control-plane thread. Its methods are the calls of application threads.
pub(crate) struct Thread {
    control: Control,
    ports: Ports,
    gsi: Gsi,
    service: Service,
    selective_repeat: SelectiveRepeat,
    /// Idle time of connections' keepalives, if it is configured.
    keepalive_ms: Option<u32>,
    /// Alternate paths that the control plane loads, if it does.
    failover: Option<Failover>,
    /// Changes of QPs of which `failover` has not been told.
    told: Option<Vec<(Qpn, QpChange)>>,
    waiting: Vec<Waiting>,
    last_words: Vec<LastWord>,
    members: Members,
    counts: Counts,
    recent: Recent,
    captures: Captures,
    traces: Traces,
    epoch: std::time::Instant,
    /// Time of the next check of the process's signal handlers.
    guard_due: Instant,
    ended: bool,
    /// Longest time that the ending thread may take to send posted work.
    patience: Duration,
}

impl Thread {
    fn run(mut self, jobs: &Receiver<Job>) {
        let mut serve_due = Instant::ZERO;
        self.begin_links();
        while !self.ended {
            let now = self.now();
            self.watch_links();
            self.watch_removals();
            // At most once per interval: while this thread turns an lcore, the lcore's adopter
            // cannot.
            if now >= serve_due {
                self.control.serve_adopted();
                serve_due = now + QUIET;
            }
            let mut busy = self.turn(now);
            busy |= self.take_jobs(jobs);
            if !busy {
                self.sleep(jobs);
            }
        }
        self.close_connections();
        self.leave_all_groups();
        self.refuse_waiting();
        self.send_what_is_left();
        self.end_captures();
        self.clear_trace();
        self.control.shutdown();
    }

    /// Sends work that is posted and due, and gives peers on this machine time to receive it: the
    /// memory of a memif link disappears with the link.
    fn send_what_is_left(&mut self) {
        if !self.patience.is_zero() {
            self.control.drain(self.patience);
            std::thread::sleep(LINGER.min(self.patience));
        }
    }

    /// Handles all inputs except calls. Returns whether there were any.
    fn turn(&mut self, now: Instant) -> bool {
        let mut busy = self.take_frames(now);
        busy |= self.take_mads(now);
        busy |= self.take_notices();
        busy |= self.tell_gone();
        self.guard_memory(now);
        self.run_connections(now);
        self.run_failover(now);
        self.ask_neighbours();
        self.resume();
        self.answer_last_words(now);
        busy
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until there is an input or a timer is due.
    fn sleep(&mut self, jobs: &Receiver<Job>) {
        let now = self.now();
        let timers = self.ports.neighbours.iter().filter_map(|port| port.next_timeout());
        let failover = self.failover.as_ref().and_then(Failover::next_timeout);
        let due = timers.chain(self.service.next_timeout()).chain(failover).min();
        let mut pause = self.control.link_poll_period();
        if self.control.has_adopted() || self.service.has_mail() {
            pause = pause.min(QUIET);
        }
        if let Some(due) = due {
            pause = pause.min(due.since(now));
        }
        if !self.last_words.is_empty() {
            pause = pause.min(last_words::LOOK);
        }
        let mut came = None;
        self.control.sleep(pause, || match jobs.try_recv() {
            Err(TryRecvError::Empty) => false,
            other => {
                came = Some(other);
                true
            }
        });
        match came {
            Some(Ok(job)) => self.run_job(job),
            Some(Err(_)) => self.ended = true,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
