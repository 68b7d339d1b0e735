//! `ibv_comp_channel`: events of armed completion queues.
//!
//! The descriptor that programs poll belongs to the engine's channel. It is blocking until the
//! program sets `O_NONBLOCK`. Taking an event reads from it.

use std::ffi::{c_int, c_void};

use uroce::CompletionChannel;

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::context;
use crate::objects::cq::{self, Channel};
use crate::runtime;

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    entry::object(|| {
        let held = context::hold(context)?;
        let channel = CompletionChannel::new()?;
        let value = Channel::new(channel, held);
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
