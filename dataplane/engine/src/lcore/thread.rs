//! The thread of an lcore: pinned to a CPU, with signals blocked, and registered with EAL.
//!
//! Not here: the turns that it runs ([`uroce_shared::seat`]).

use crate::dpdk::eal::{Eal, EalError, ThreadGuard, block_signals};
use crate::lcore::Lcore;
use rustix::thread::CpuSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use uroce_shared::seat::Seat;
use uroce_shared::seat::idle::{Driver, IdlePolicy};

/// The reason why an lcore has no thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// The process may not start another thread.
    #[error("no thread: {0}")]
    Spawn(io::Error),
    /// The CPU does not exist, or the process may not use it.
    #[error(
        "cannot run on CPU {0}, which does not exist or is not in this process's cpuset: list \
         others under lcores, give their number (lcores = 1), or give the container the CPU \
         (--cpuset-cpus; a Pod gets CPUs by whole numbers in resources.limits.cpu)"
    )]
    Cpu(usize),
    /// EAL does not accept the thread.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The thread ended without a result.
    #[error("the thread ended at once")]
    Ended,
}

/// An lcore's thread; it ends when the lcore is stopped.
pub(crate) type LcoreThread = JoinHandle<Result<(), ThreadError>>;

/// Starts the thread of lcore `number` and returns once it runs.
///
/// # Errors
/// [`ThreadError`]; no thread is left then.
pub(crate) fn start(
    number: usize,
    cpu: Option<usize>,
    eal: &'static Eal,
    seat: &Arc<Seat<Lcore>>,
    (idle, driver): (IdlePolicy, Driver),
) -> Result<LcoreThread, ThreadError> {
    let own = Arc::clone(seat);
    let body = move || {
        let registered = settle(cpu, eal)?;
        // From here on the thread is an lcore: it neither allocates nor frees.
        own.tell_settled(registered.number());
        own.run(idle, driver);
        Ok(())
    };
    let name = format!("uroce-lcore-{number}");
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(ThreadError::Spawn)?;
    seat.set_thread(thread.thread());
    while !seat.is_settled() {
        if thread.is_finished() {
            return Err(thread
                .join()
                .map_or(ThreadError::Ended, |result| result.err().unwrap_or(ThreadError::Ended)));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(thread)
}

/// Prepares the calling thread to be an lcore's.
fn settle(cpu: Option<usize>, eal: &'static Eal) -> Result<ThreadGuard, ThreadError> {
    if let Some(id) = cpu {
        // The kernel's mask has no bit for a CPU beyond `MAX_CPU`.
        let is_set =
            id < CpuSet::MAX_CPU && core_affinity::set_for_current(core_affinity::CoreId { id });
        if !is_set {
            return Err(ThreadError::Cpu(id));
        }
    }
    block_signals();
    Ok(eal.register_thread()?)
}
