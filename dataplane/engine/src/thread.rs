//! The thread of an lcore: pinned, deaf to signals, known to EAL.
//!
//! Not here: what it runs ([`crate::slot`]).

#![allow(unsafe_code)]

use crate::eal::{Eal, EalError, ThreadGuard};
use crate::idle::IdlePolicy;
use crate::slot::Slot;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

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
    /// Signals could not be blocked.
    #[error("cannot block signals: {0}")]
    Signals(io::Error),
    /// EAL does not take the thread.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// It ended before it said anything.
    #[error("the thread ended at once")]
    Ended,
}

/// Starts the thread of lcore `number` and returns once it runs.
///
/// # Errors
/// See [`ThreadError`]; then there is no thread.
pub(crate) fn start(
    number: usize,
    cpu: Option<usize>,
    eal: &'static Eal,
    slot: Arc<Slot>,
    idle: IdlePolicy,
) -> Result<JoinHandle<()>, ThreadError> {
    let (sender, receiver) = mpsc::channel();
    let body = move || match settle(cpu, eal) {
        Ok(_registered) => {
            // Nobody listens only if nobody started us.
            let _ = sender.send(Ok(()));
            drop(sender);
            slot.run(idle);
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    let name = format!("uroce-lcore-{number}");
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(ThreadError::Spawn)?;
    match receiver.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ThreadError::Ended),
    }
}

/// Makes the calling thread an lcore's.
fn settle(cpu: Option<usize>, eal: &'static Eal) -> Result<ThreadGuard, ThreadError> {
    if let Some(id) = cpu {
        if !core_affinity::set_for_current(core_affinity::CoreId { id }) {
            return Err(ThreadError::Cpu(id));
        }
    }
    // SAFETY: it changes the signal mask of the calling thread, which is ours.
    let code = unsafe { dpdk_sys::uroce_block_signals() };
    if code != 0 {
        return Err(ThreadError::Signals(io::Error::from_raw_os_error(-code)));
    }
    Ok(eal.register_thread()?)
}
