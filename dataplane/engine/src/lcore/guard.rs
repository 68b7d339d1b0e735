//! Adoption: an application's thread runs the turns of an lcore.
//!
//! Not here: how the lcore's own thread steps aside ([`uroce_shared::seat`]).

use super::Lcore;
use crate::dpdk::eal::{Eal, EalError, ThreadGuard};
use std::sync::Arc;
use uroce_shared::seat::{Seat, SeatGuard, Turn};

/// The reason why an lcore could not be adopted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The engine has no lcore of this number.
    #[error("no lcore {0}")]
    NoSuchLcore(usize),
    /// Another [`LcoreGuard`] has the lcore.
    #[error("lcore {0} is adopted already")]
    Adopted(usize),
    /// The engine has been shut down, or the lcore has panicked.
    #[error("lcore {0} does not run any more")]
    Stopped(usize),
    /// EAL does not accept the thread.
    #[error(transparent)]
    Eal(#[from] EalError),
}

/// An adopted lcore: the thread that holds this guard runs its turns, by [`turn`](Self::turn).
///
/// The lcore's own thread sleeps meanwhile, and continues when the guard is dropped. Made by
/// [`Engine::adopt`](crate::Engine::adopt).
#[derive(Debug)]
pub struct LcoreGuard {
    seat: SeatGuard<Lcore>,
    /// Gives the thread a mempool cache while it drives, and keeps the guard on this thread.
    _thread: ThreadGuard,
}

impl LcoreGuard {
    /// Adopts lcore `number`, to which `seat` belongs.
    pub(crate) fn adopt(seat: &Arc<Seat<Lcore>>, number: usize) -> Result<LcoreGuard, AdoptError> {
        let seat = SeatGuard::claim(seat).ok_or(AdoptError::Adopted(number))?;
        // If EAL does not run, neither does the lcore: it has a port, which needs EAL.
        let eal = Eal::running().ok_or(AdoptError::Stopped(number))?;
        let thread = eal.register_thread()?;
        if !seat.park() {
            return Err(AdoptError::Stopped(number));
        }
        Ok(LcoreGuard { seat, _thread: thread })
    }

    /// Runs one turn of the lcore: it takes what was posted and received, sends, and completes.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.seat.turn()
    }

    /// Sets whether the control plane leaves the lcore alone between the guard's turns. If it does,
    /// peers are answered in those turns only, which makes runs of a program reproducible.
    pub fn set_exclusive(&self, exclusive: bool) {
        self.seat.set_exclusive(exclusive);
    }
}
