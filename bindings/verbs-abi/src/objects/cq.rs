//! Completion queues, and channels for their events. Each queue is allocated as an `ibv_cq_ex`,
//! which begins with the fields of `ibv_cq`.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uroce::raw::Cqe;
use uroce::{CompletionChannel, CompletionQueue, CqError, CqId, Qpn};

use super::context::Context;
use super::event::Subject;
use super::lock::Locked;
use crate::abi::{ibv_comp_channel, ibv_cq, ibv_cq_ex, verbs_context};
use crate::acks::Acks;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::quota::Place;
use crate::runtime;

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) cq: CompletionQueue,
    kept: Kept,
    /// The completion that `ibv_cq_ex` reads, locked between `start_poll` and `end_poll`.
    pub(crate) cursor: Locked<Option<Cqe>>,
    pub(crate) context: Held<Context>,
    pub(crate) channel: Option<Held<Channel>>,
    /// Counts its completion events.
    pub(crate) events: Acks,
    /// Counts its asynchronous events.
    pub(crate) async_events: Acks,
    place: Place,
}

object!(Cq as ibv_cq_ex, of channel, place);

/// Completions that [`Cq::purge`] has taken out of the queue and kept. They are older than those in
/// the queue.
#[derive(Default)]
struct Kept {
    /// Set if the list may have a completion, so that a poll locks it only then.
    any: AtomicBool,
    list: Mutex<VecDeque<Cqe>>,
}

impl Kept {
    /// The oldest kept completion, or else one from `poll`. If `poll` gives none, the list is
    /// checked again: another thread may just have moved completions from the queue to the list,
    /// and the caller may sleep if it gets none.
    #[inline]
    fn first_or(
        &self,
        poll: impl FnOnce() -> Result<Option<Cqe>, CqError>,
    ) -> Result<Option<Cqe>, CqError> {
        if let Some(cqe) = self.first() {
            return Ok(Some(cqe));
        }
        match poll() {
            Ok(Some(cqe)) => Ok(Some(cqe)),
            nothing => self.first().map_or(nothing, |cqe| Ok(Some(cqe))),
        }
    }

    #[inline]
    fn first(&self) -> Option<Cqe> {
        if self.any.load(Ordering::Acquire) { self.pop() } else { None }
    }

    #[cold]
    fn pop(&self) -> Option<Cqe> {
        let mut list = self.lock();
        let cqe = list.pop_front();
        self.any.store(!list.is_empty(), Ordering::Release);
        cqe
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Cqe>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The completion queue that a program's pointer refers to.
///
/// # Errors
///
/// EINVAL if it is not a live completion queue of this library.
pub(crate) fn get(cq: *const ibv_cq) -> Result<Arc<Entry<Cq>>, Errno> {
    Cq::registry().get(cq.cast())
}

/// The completion queue that a program's pointer refers to, kept busy while the result exists.
///
/// # Errors
///
/// EINVAL if it is not a live completion queue of this library, or is being destroyed.
pub(crate) fn hold(cq: *const ibv_cq) -> Result<Held<Cq>, Errno> {
    let held = Cq::registry().hold(cq.cast())?;
    if held.events.is_closed() { Err(Errno::EINVAL) } else { Ok(held) }
}

impl Cq {
    /// An empty queue.
    pub(crate) fn new(
        cq: CompletionQueue,
        context: Held<Context>,
        channel: Option<Held<Channel>>,
        place: Place,
    ) -> Cq {
        Cq {
            cq,
            kept: Kept::default(),
            cursor: Locked::new(None),
            context,
            channel,
            events: Acks::default(),
            async_events: Acks::default(),
            place,
        }
    }

    /// The number of completions that [`purge`](Cq::purge) has kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.lock().len()
    }

    /// Takes the oldest completion.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP in a child that was forked after the engine had started; EIO after an overrun.
    #[inline]
    pub(crate) fn take(&self) -> Result<Option<Cqe>, Errno> {
        runtime::usable()?;
        Ok(self.kept.first_or(|| self.cq.poll_raw())?)
    }

    /// Removes the completions of a queue pair that was reset or destroyed, because its number may
    /// soon belong to another one. The engine adds no more completions for it.
    ///
    /// All other completions stay in order, even for a thread that polls meanwhile, unless that
    /// thread has tested `any` just before.
    pub(crate) fn purge(&self, qpn: Qpn) {
        let mut list = self.kept.lock();
        self.kept.any.store(true, Ordering::Release);
        list.retain(|cqe| cqe.qpn != qpn);
        // At most as many as the queue can hold now.
        for _ in 0..self.cq.capacity() {
            match self.cq.poll_raw() {
                Ok(Some(cqe)) if cqe.qpn == qpn => {}
                Ok(Some(cqe)) => list.push_back(cqe),
                // The next poll reports an overrun again.
                Ok(None) | Err(_) => break,
            }
        }
        self.kept.any.store(!list.is_empty(), Ordering::Release);
    }
}

impl Subject for Entry<Cq> {
    fn deliver(&self) -> bool {
        self.async_events.deliver()
    }

    fn pointer(&self) -> *mut c_void {
        self.public().cast()
    }

    fn context(&self) -> *const verbs_context {
        self.context.public()
    }
}

/// A completion channel.
pub(crate) struct Channel {
    pub(crate) channel: CompletionChannel,
    /// The channel's completion queues by the identity that events carry.
    cqs: Mutex<HashMap<CqId, Weak<Entry<Cq>>>>,
    _context: Held<Context>,
}

object!(Channel as ibv_comp_channel);

impl Channel {
    /// A channel without completion queues.
    pub(crate) fn new(channel: CompletionChannel, context: Held<Context>) -> Channel {
        Channel { channel, cqs: Mutex::default(), _context: context }
    }

    /// Registers a completion queue, so that its events are delivered.
    pub(crate) fn add(&self, cq: &Arc<Entry<Cq>>) {
        self.lock().insert(cq.cq.id(), Arc::downgrade(cq));
    }

    /// Unregisters a completion queue; its events are no longer delivered.
    pub(crate) fn remove(&self, cq: &Cq) {
        self.lock().remove(&cq.cq.id());
    }

    /// The descriptor on which the program waits.
    pub(crate) fn fd(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    /// The completion queue of the event that the descriptor was read for. `None` if the queue is
    /// destroyed.
    pub(crate) fn taken(&self) -> Option<Arc<Entry<Cq>>> {
        let id = self.channel.event_read()?;
        let cq = self.lock().get(&id).and_then(Weak::upgrade);
        cq.filter(|cq| cq.events.deliver())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CqId, Weak<Entry<Cq>>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uroce::{WcOpcode, WcStatus};

    use super::*;

    #[test]
    fn a_poll_of_an_empty_queue_finds_completions_that_a_purge_has_kept() {
        let kept = Kept::default();
        let cqe = Cqe::new(7, WcStatus::Success, WcOpcode::Send, Qpn::new(1));
        for found in [Ok(None), Err(CqError::Overrun)] {
            let taken = kept.first_or(|| {
                // Does what a purging thread does meanwhile.
                kept.lock().push_back(cqe);
                kept.any.store(true, Ordering::Release);
                found
            });
            assert_eq!(taken.unwrap().map(|cqe| cqe.wr_id), Some(7));
        }
        assert!(matches!(kept.first_or(|| Ok(None)), Ok(None)));
    }
}
