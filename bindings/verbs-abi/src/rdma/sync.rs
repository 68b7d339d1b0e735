//! Ids that have a channel of their own: their calls give the result.

use std::sync::Arc;

use super::channel::Channel;
use super::event;
use super::id::{Id, release_event};
use crate::abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event};
use crate::errno::Errno;
use crate::handle::{Entry, Object};

/// Waits for what a call leads to, if the id is such a one, and shows the event.
///
/// # Errors
///
/// What the event says; or EINTR, when the program has had a signal.
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
    // SAFETY: an event that was just made, which is never freed.
    let rdma_cm_event { event: number, status, .. } = unsafe { event.read() };
    match status {
        0 => Ok(()),
        _ if number == RDMA_CM_EVENT_REJECTED => Err(Errno::ECONNREFUSED),
        status => Err(Errno::of(status.abs())),
    }
}
