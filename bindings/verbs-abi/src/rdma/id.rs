//! `rdma_cm_id`: creating and destroying ids.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use uroce::cm::raw::{CmId, ConnectRequest, PortSpace, random_psn};

use super::{host, listen};
use crate::abi::{
    IBV_QPT_RC, IBV_QPT_UD, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, ibv_qp_type,
    rdma_cm_id, rdma_event_channel, rdma_port_space,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::objects::id::channel::{Channel, Mailbox};
use crate::objects::id::{Id, PublicId, Stage, State, get, release_event};
use crate::room;
use crate::runtime::{self, Device};

/// The port space for C's number, and the type of its queue pairs.
fn space_of(number: rdma_port_space) -> Result<(PortSpace, ibv_qp_type), Errno> {
    match number {
        RDMA_PS_TCP => Ok((PortSpace::Tcp, IBV_QPT_RC)),
        RDMA_PS_UDP => Ok((PortSpace::Udp, IBV_QPT_UD)),
        RDMA_PS_IB => Ok((PortSpace::Ib, IBV_QPT_RC)),
        RDMA_PS_IPOIB => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// Makes an id. If `channel` is NULL, the id gets a channel of its own.
pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: rdma_port_space,
) -> Result<Arc<Entry<Id>>, Errno> {
    let (space, qp_type) = space_of(ps)?;
    if runtime::devices()?.is_empty() {
        return Err(Errno::ENODEV);
    }
    let is_sync = channel.is_null();
    let channel = if is_sync { Channel::create() } else { Channel::registry().hold(channel) }?;
    room::check(0)?;
    let psn = random_psn().map_err(|_| Errno::EIO)?;
    let mailbox = Mailbox::new(&channel)?;
    // SAFETY: C structures of numbers and nullable pointers, for which zeros are valid.
    let mut public: PublicId = unsafe { std::mem::zeroed() };
    public.id.channel = channel.public();
    public.id.context = context;
    public.id.ps = ps;
    public.id.qp_type = qp_type;
    let id = Id::new(Arc::clone(&mailbox), space, psn, State::new(channel, is_sync));
    let id = Id::registry().insert(public, id);
    mailbox.belong_to(&id);
    Ok(id)
}

/// Makes the id of a peer's request: on its listener's channel, or on one of its own if the
/// listener has one.
///
/// # Errors
///
/// The request is gone, or a resource is exhausted.
pub(crate) fn incoming(
    listener: &Entry<Id>,
    device: &'static Device,
    cm: CmId,
    request: &ConnectRequest,
) -> Result<Arc<Entry<Id>>, Errno> {
    let (channel, options, listens_at) = {
        let state = listener.state();
        let channel = match state.is_sync {
            true => std::ptr::null_mut(),
            false => state.channel()?.public(),
        };
        (channel, state.options, state.local.map(|local| local.ip()))
    };
    let like = listener.view();
    let id = create(channel, like.context, like.ps)?;
    id.update(|c| c.qp_type = like.qp_type);
    let manager = device.context()?.connection_manager();
    let set_up = || {
        manager.set_sink(cm, &id.post(device))?;
        let mut state = id.state();
        state.stage = Stage::Requested;
        state.is_passive = true;
        state.options = options;
        state.device = Some(device);
        (state.local, state.peer) = (Some(request.local), Some(request.peer));
        // A listener at an address of the machine gets connections from the machine. The peer's
        // address is the one to which the peer is bound, perhaps at another interface.
        let host = listens_at.filter(|ip| matches!(host::behind(*ip), Ok(Some(_))));
        let at = |ip: IpAddr, at: SocketAddr| SocketAddr::new(ip, at.port());
        if let Some(ip) = host {
            state.local = Some(at(ip, request.local));
        }
        if let Some(ip) = device.bound_at(request.space, request.peer).or(host) {
            state.peer = Some(at(ip, request.peer));
        }
        state.connection = Some((manager.clone(), cm));
        state.agreed = request.agreed;
        id.show_addresses(&state);
        listen::show_request(&id, device, request)
    };
    set_up().inspect_err(|_| {
        let _ = destroy(id.c());
    })?;
    Ok(id)
}

/// Destroys an id: ends what is in progress, and waits until the program has acknowledged all its
/// events. In a forked child the id's connection and events are the parent's, and continue there.
pub(crate) fn destroy(id: *const rdma_cm_id) -> Result<(), Errno> {
    let id = Id::registry().remove(id.cast())?;
    if runtime::is_orphaned() {
        runtime::dispose(id);
        return Ok(());
    }
    id.mailbox.close();
    let (bound, look_up, connection) = {
        let mut state = id.state();
        state.notices.clear();
        let bound = std::mem::take(&mut state.bound);
        (bound, state.look_up.take(), state.connection.take())
    };
    let bound = bound.into_iter().map(|(_, manager, id)| (manager, id));
    for (manager, cm) in bound.chain(look_up).chain(connection) {
        // This fails if the connection has ended by itself.
        let _ = manager.destroy(cm);
    }
    release_event(&id);
    id.acks.close()?;
    id.acks.wait();
    let (channel, is_sync) = {
        let mut state = id.state();
        (state.channel.take(), state.is_sync)
    };
    if let Some(channel) = channel.filter(|_| is_sync) {
        let own = channel.public();
        drop(channel);
        Channel::registry().remove(own)?;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    entry::minus_one(|| {
        if id.is_null() {
            return Err(Errno::EINVAL);
        }
        let made = create(channel, context, ps)?;
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(id, made.c()) }
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    entry::minus_one(|| destroy(id))
}

/// The port number of an id's address in network byte order. 0 if it has no address.
fn port(id: *mut rdma_cm_id, address: impl FnOnce(&State) -> Option<SocketAddr>) -> u16 {
    let mut port = 0;
    entry::nothing(|| {
        let id = get(id)?;
        port = address(&id.state()).map_or(0, |address| address.port().to_be());
        Ok(())
    });
    port
}

pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    port(id, |state| state.local)
}

pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    port(id, |state| state.peer)
}
