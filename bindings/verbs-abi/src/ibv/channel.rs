//! `ibv_comp_channel`: events of armed completion queues.
//!
//! The descriptor that programs poll belongs to the engine's channel. It is blocking until the
//! program sets `O_NONBLOCK`. Taking an event reads from it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uroce::{CompletionChannel, CqId};

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::ibv::context::{self, Context};
use crate::ibv::cq::{self, Cq};
use crate::runtime;

/// A completion channel.
pub(crate) struct Channel {
    pub(crate) channel: CompletionChannel,
    /// The channel's completion queues by the identity that events carry.
    cqs: Mutex<HashMap<CqId, Weak<Entry<Cq>>>>,
    _context: Held<Context>,
}

object!(Channel as ibv_comp_channel);

impl Channel {
    /// Registers a completion queue, so that its events are delivered.
    pub(crate) fn add(&self, cq: &Arc<Entry<Cq>>) {
        self.lock().insert(cq.cq.id(), Arc::downgrade(cq));
    }

    /// Unregisters a completion queue; its events are no longer delivered.
    pub(crate) fn remove(&self, cq: &Cq) {
        self.lock().remove(&cq.cq.id());
    }

    /// The descriptor on which the program waits.
    fn fd(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    /// The completion queue of the event that the descriptor was read for. `None` if the queue is
    /// destroyed.
    fn taken(&self) -> Option<Arc<Entry<Cq>>> {
        let id = self.channel.event_read()?;
        let cq = self.lock().get(&id).and_then(Weak::upgrade);
        cq.filter(|cq| cq.events.deliver())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CqId, Weak<Entry<Cq>>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    entry::object(|| {
        let held = context::hold(context)?;
        let channel = CompletionChannel::new()?;
        let value = Channel { channel, cqs: Mutex::default(), _context: held };
        let public = ibv_comp_channel { context, fd: value.fd(), refcnt: 0 };
        Ok(Channel::registry().insert(public, value).public())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    entry::code(|| Channel::registry().remove(channel).map(|_| ()))
}

pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let found = || Channel::registry().get(channel).inspect_err(|_| runtime::hold_up());
    let find = || match cq.is_null() || cq_context.is_null() {
        true => Err(Errno::EINVAL),
        false => {
            let channel = found()?;
            if channel.channel.is_open() { Ok(channel.fd()) } else { Err(Errno::EBADF) }
        }
    };
    let take = || {
        let Some(ready) = found()?.taken() else { return Ok(false) };
        let public = ready.public();
        // SAFETY: a slot is never freed, and this field is not written after creation.
        let its_context = unsafe { (*public).cq_context };
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(cq, public.cast()) }?;
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(cq_context, its_context) }?;
        Ok(true)
    };
    entry::waiting(find, take)
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32) {
    entry::nothing(|| {
        cq::get(cq)?.events.acknowledge(events);
        Ok(())
    });
}
