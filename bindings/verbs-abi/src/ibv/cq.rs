//! `ibv_cq`: completion queues. Each is allocated as an `ibv_cq_ex`, which begins with the fields
//! of `ibv_cq`.
//!
//! Not here: taking completions ([`super::poll`], [`super::cq_ex`]).

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uroce::raw::Cqe;
use uroce::{CompletionQueue, CqError, Qpn};

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};
use crate::acks::Acks;
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::ibv::channel::Channel;
use crate::ibv::context::{self, Context};
use crate::ibv::lock::Locked;
use crate::ibv::{event, qp, query};
use crate::quota::Place;
use crate::{room, runtime};

/// Most entries of a completion queue. Their memory is allocated when it is created.
pub(crate) const MAX_CQE: u32 = (1 << 20) - 1;

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

/// Parameters for creating a completion queue.
pub(crate) struct Spec {
    pub(crate) context: *mut ibv_context,
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
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

/// Creates a queue. `extend` fills in the fields that only `ibv_cq_ex` has.
pub(crate) fn create(
    spec: &Spec,
    extend: impl FnOnce(&mut ibv_cq_ex),
) -> Result<Arc<Entry<Cq>>, Errno> {
    let Spec { context, cqe, cq_context, channel, comp_vector } = *spec;
    let held = context::hold(context)?;
    let its_channel =
        (!channel.is_null()).then(|| Channel::registry().hold(channel)).transpose()?;
    // There is only completion vector 0.
    if cqe == 0 || cqe > MAX_CQE || comp_vector != 0 {
        return Err(Errno::EINVAL);
    }
    let place = query::admit_cq(held.device)?;
    let engine = held.device.context()?;
    let cqe = room::rounded_completions(cqe);
    room::check(room::of_completions(cqe))?;
    let cq = match &its_channel {
        Some(channel) => engine.create_cq_on(cqe, &channel.channel),
        None => engine.create_cq(cqe),
    }?;
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut public: ibv_cq_ex = unsafe { std::mem::zeroed() };
    public.context = context;
    public.channel = channel;
    public.cq_context = cq_context;
    // At most `MAX_CQE`, so it fits.
    public.cqe = cqe as c_int;
    extend(&mut public);
    let value = Cq {
        cq,
        kept: Kept::default(),
        cursor: Locked::new(None),
        context: held,
        channel: its_channel,
        events: Acks::default(),
        async_events: Acks::default(),
        place,
    };
    let entry = Cq::registry().insert(public, value);
    if let Some(channel) = &entry.channel {
        channel.add(&entry);
    }
    Ok(entry)
}

impl Cq {
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
                // An overrun is reported again to the next poll.
                Ok(None) | Err(_) => break,
            }
        }
        self.kept.any.store(!list.is_empty(), Ordering::Release);
    }
}

fn resize(cq: &Entry<Cq>, cqe: u32) -> Result<(), Errno> {
    runtime::usable()?;
    let kept = cq.kept.lock().len();
    let asked = cqe;
    let cqe = room::rounded_completions(asked);
    if asked == 0 || asked > MAX_CQE || kept > cqe as usize {
        return Err(Errno::EINVAL);
    }
    if cqe < cq.cq.capacity() {
        qp::catch_up(cq);
    }
    room::check(room::of_completions(cqe))?;
    cq.cq.resize(cqe)?;
    // SAFETY: a slot is never freed, and programs only read this field.
    unsafe { (*cq.public()).cqe = cqe as c_int };
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    entry::object(|| {
        let number = |value: c_int| u32::try_from(value).map_err(|_| Errno::EINVAL);
        let (cqe, comp_vector) = (number(cqe)?, number(comp_vector)?);
        let spec = Spec { context, cqe, cq_context, channel, comp_vector };
        Ok(create(&spec, |_| {})?.public().cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    entry::code(|| resize(&*get(cq)?, u32::try_from(cqe).map_err(|_| Errno::EINVAL)?))
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    entry::code(|| {
        let found = get(cq)?;
        if found.is_busy() {
            return Err(Errno::EBUSY);
        }
        found.events.close()?;
        // Only the thread that has closed `events` gets here.
        found.async_events.close()?;
        found.events.wait();
        found.async_events.wait();
        let removed = Cq::registry().remove(cq.cast());
        match removed {
            Ok(_) => {
                found.channel.iter().for_each(|channel| channel.remove(&found));
                event::forget::<Cq>(&found.context, cq.cast());
            }
            // A queue pair was made from it in the meantime.
            Err(_) => [&found.events, &found.async_events].iter().for_each(|acks| acks.reopen()),
        }
        removed.map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use uroce::{WcOpcode, WcStatus};

    use super::*;

    #[test]
    fn what_a_thread_takes_away_to_look_at_is_found_by_who_finds_the_queue_empty() {
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
