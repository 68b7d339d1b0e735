//! `rdma_migrate_id`: moves an id to another event channel.

use std::ffi::c_int;

use crate::abi::{rdma_cm_id, rdma_event_channel};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::id::channel::Channel;
use crate::objects::id::{self, release_event};

/// Moves an id with its pending events to another channel, or to a new one of its own if `to` is
/// NULL. Waits until the program has acknowledged the events that it has taken.
fn migrate(id: *const rdma_cm_id, to: *mut rdma_event_channel) -> Result<(), Errno> {
    let id = id::get(id)?;
    let becomes_sync = to.is_null();
    let own = {
        let mut state = id.state();
        if state.is_sync && becomes_sync {
            return Err(Errno::EINVAL);
        }
        let new = if becomes_sync { Channel::create() } else { Channel::registry().hold(to) }?;
        id.mailbox.move_to(&new)?;
        id.update(|c| c.channel = new.public());
        let was_sync = std::mem::replace(&mut state.is_sync, becomes_sync);
        let former = state.channel.replace(new);
        former.filter(|_| was_sync).map(|former| former.public())
    };
    if let Some(own) = own {
        release_event(&id);
        Channel::registry().remove(own)?;
    }
    id.acks.wait();
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    entry::minus_one(|| migrate(id, channel))
}
