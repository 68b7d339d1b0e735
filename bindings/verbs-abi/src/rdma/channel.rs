//! `rdma_event_channel`: creating and destroying channels.

use crate::abi::rdma_event_channel;
use crate::entry;
use crate::handle::Object;
use crate::objects::id::channel::Channel;

pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    entry::object(|| Ok(Channel::create()?.public()))
}

/// `rdma_destroy_event_channel`. Sets EBUSY and does nothing while ids use the channel.
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    entry::nothing(|| Channel::registry().remove(channel).map(|_| ()));
}
