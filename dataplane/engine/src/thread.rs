//! The thread of an lcore: pinned, deaf to signals, known to EAL.
//!
//! Not here: what it runs ([`crate::slot`]).

use crate::eal::{Eal, EalError, ThreadGuard, block_signals};
use crate::idle::{Driver, IdlePolicy};
use crate::slot::Slot;
use rustix::thread::CpuSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Why an lcore has no thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// The process may not have another thread.
    #[error("no thread: {0}")]
    Spawn(io::Error),
    /// The CPU does not exist or is not the process's.
    #[error("cannot run on CPU {0}")]
    Cpu(usize),
    /// EAL does not take the thread.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// It ended before it said anything.
    #[error("the thread ended at once")]
    Ended,
}

/// An lcore's thread; it ends when the lcore is stopped.
pub(crate) type LcoreThread = JoinHandle<Result<(), ThreadError>>;

/// Starts the thread of lcore `number` and returns once it runs.
///
/// # Errors
/// See [`ThreadError`]; then there is no thread.
pub(crate) fn start(
    number: usize,
    cpu: Option<usize>,
    eal: &'static Eal,
    slot: &Arc<Slot>,
    (idle, driver): (IdlePolicy, Driver),
) -> Result<LcoreThread, ThreadError> {
    let own = Arc::clone(slot);
    let body = move || {
        let registered = settle(cpu, eal)?;
        // From here on the thread is an lcore: it allocates and frees nothing more.
        own.tell_settled(registered.number());
        own.run(idle, driver);
        Ok(())
    };
    let name = format!("uroce-lcore-{number}");
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(ThreadError::Spawn)?;
    slot.set_thread(thread.thread());
    while !slot.is_settled() {
        if thread.is_finished() {
            return Err(thread
                .join()
                .map_or(ThreadError::Ended, |result| result.err().unwrap_or(ThreadError::Ended)));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(thread)
}

/// Makes the calling thread an lcore's.
fn settle(cpu: Option<usize>, eal: &'static Eal) -> Result<ThreadGuard, ThreadError> {
    if let Some(id) = cpu {
        // A CPU beyond what the kernel's mask can name would be written beyond it.
        let is_set =
            id < CpuSet::MAX_CPU && core_affinity::set_for_current(core_affinity::CoreId { id });
        if !is_set {
            return Err(ThreadError::Cpu(id));
        }
    }
    block_signals();
    Ok(eal.register_thread()?)
}
