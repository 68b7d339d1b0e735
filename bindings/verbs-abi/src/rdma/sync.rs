//! Synchronous ids, which have a channel of their own: their calls wait for the result.

use std::sync::Arc;

use super::event;
use crate::abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event};
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::objects::id::channel::Channel;
use crate::objects::id::{Id, release_event};

/// If the id is synchronous, waits for the event of a call and stores it in the id's public
/// structure.
///
/// # Errors
///
/// The error of the event, or EINTR if a signal interrupts the wait.
pub(crate) fn complete(id: &Arc<Entry<Id>>) -> Result<(), Errno> {
    let channel = {
        let state = id.state();
        if !state.is_sync {
            return Ok(());
        }
        Channel::registry().get(state.channel()?.public())?
    };
    release_event(id);
    let event = event::next(&channel)?;
    id.update(|c| c.event = event);
    // SAFETY: the event was just delivered, and its slot is never freed.
    let rdma_cm_event { event: number, status, .. } = unsafe { event.read() };
    match status {
        0 => Ok(()),
        _ if number == RDMA_CM_EVENT_REJECTED => Err(Errno::ECONNREFUSED),
        status => Err(Errno::of(status.abs())),
    }
}
