//! `rdma_cm_id`: a listener, a connection, or what becomes one.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uroce::Psn;
use uroce::cm::Agreed;
use uroce::cm::raw::{CmId, ConnectRequest, Manager, PortSpace, ResolvedPath, random_psn};

use super::address;
use super::attr::LINUX_RNR_TIMER;
use super::channel::{Channel, Mailbox, Post};
use super::endpoint::Passive;
use super::event;
use super::mcast::Groups;
use super::{listen, shared};
use crate::abi::{
    IBV_QPT_RC, IBV_QPT_UD, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, ibv_qp,
    ibv_qp_type, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel, rdma_ib_addr, rdma_port_space,
};
use crate::acks::Acks;
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::room;
use crate::runtime::{self, Device};

/// What a program's id points to, with the record that `route.path_rec` does.
#[repr(C)]
pub(crate) struct PublicId {
    pub(crate) id: rdma_cm_id,
    pub(crate) path: ibv_sa_path_rec,
}

/// An id.
pub(crate) struct Id {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Its events that are not acknowledged.
    pub(crate) acks: Arc<Acks>,
    pub(crate) space: PortSpace,
    /// The PSN of the peer's first packet, where the queue pair's states are the program's
    /// business.
    pub(crate) psn: Psn,
    state: Mutex<State>,
}

object!(Id as PublicId);

/// Where it stands, as the program knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Idle,
    Bound,
    Listening,
    /// The way to an address is being looked up.
    Resolving,
    AddressResolved,
    RouteResolved,
    /// The peer has been asked.
    Connecting,
    /// The peer asks.
    Requested,
    /// The peer has accepted; the program's queue pair is not ready.
    Answered,
    /// We have accepted.
    Accepted,
    Connected,
    Ended,
}

/// What the program has asked for before.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) tos: Option<u8>,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) reuse: bool,
    /// Its wildcard is of one IP version only.
    pub(crate) one_version: Option<bool>,
}

/// What is known of an id.
pub(crate) struct State {
    /// Nobody destroys it while it is used. An id that is destroyed has none.
    pub(crate) channel: Option<Held<Channel>>,
    /// Nobody else uses the channel: calls wait for their result.
    pub(crate) is_sync: bool,
    pub(crate) stage: Stage,
    pub(crate) options: Options,
    pub(crate) device: Option<&'static Device>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Its addresses: one a device where it is bound to all of them.
    pub(crate) bound: Vec<(&'static Device, Manager, CmId)>,
    pub(crate) look_up: Option<(Manager, CmId)>,
    pub(crate) path: Option<ResolvedPath>,
    pub(crate) connection: Option<(Manager, CmId)>,
    /// What Modify QP takes.
    pub(crate) agreed: Option<Agreed>,
    /// The same, and until the program lets the peer retry for ever Linux's.
    pub(crate) min_rnr_timer: u8,
    /// It is of a peer's request.
    pub(crate) is_passive: bool,
    pub(crate) was_connected: bool,
    pub(crate) groups: Groups,
    /// It is a passive endpoint with attributes of queue pairs.
    pub(crate) passive: Option<Passive>,
}

impl State {
    fn new(channel: Held<Channel>, is_sync: bool) -> State {
        State {
            channel: Some(channel),
            is_sync,
            stage: Stage::Idle,
            options: Options::default(),
            device: None,
            local: None,
            peer: None,
            bound: Vec::new(),
            look_up: None,
            path: None,
            connection: None,
            agreed: None,
            min_rnr_timer: LINUX_RNR_TIMER,
            is_passive: false,
            was_connected: false,
            groups: Groups::default(),
            passive: None,
        }
    }

    /// Where its events are.
    ///
    /// # Errors
    ///
    /// EINVAL: it is destroyed.
    pub(crate) fn channel(&self) -> Result<&Held<Channel>, Errno> {
        self.channel.as_ref().ok_or(Errno::EINVAL)
    }

    /// Its connection.
    ///
    /// # Errors
    ///
    /// EINVAL if it has none; EOPNOTSUPP in a child whose parent's it is.
    pub(crate) fn connection(&self) -> Result<(Manager, CmId), Errno> {
        runtime::usable()?;
        self.connection.clone().ok_or(Errno::EINVAL)
    }
}

impl Id {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a device's connection manager puts its events.
    pub(crate) fn post(&self, device: &'static Device) -> Arc<Post> {
        Arc::new(Post { mailbox: Arc::clone(&self.mailbox), device })
    }
}

impl Entry<Id> {
    /// The program's structure.
    pub(crate) fn c(&self) -> *mut rdma_cm_id {
        self.public().cast()
    }

    /// What the program's structure says; the program may have written any pointers.
    pub(crate) fn view(&self) -> rdma_cm_id {
        // SAFETY: a slot is never freed.
        unsafe { self.c().read() }
    }

    /// Changes the program's structure.
    pub(crate) fn update(&self, change: impl FnOnce(&mut rdma_cm_id)) {
        // SAFETY: a slot is never freed. Programs read it when a call has returned or an event was
        // taken; what they do meanwhile they would do with any librdmacm.
        change(unsafe { &mut *self.c() });
    }

    /// The queue pair that the program says it has.
    pub(crate) fn qp(&self) -> *mut ibv_qp {
        self.view().qp
    }

    /// Shows the addresses.
    pub(crate) fn show_addresses(&self, state: &State) {
        self.update(|c| {
            if let Some(local) = state.local {
                c.route.addr.__bindgen_anon_1.src_storage = address::storage(local);
            }
            if let Some(peer) = state.peer {
                c.route.addr.__bindgen_anon_2.dst_storage = address::storage(peer);
            }
        });
    }

    /// Shows the device that it is bound to.
    pub(crate) fn show_device(&self, device: &'static Device, port: u8) -> Result<(), Errno> {
        let shared = shared::of(device)?;
        self.update(|c| {
            c.verbs = shared.verbs();
            c.port_num = port;
            if c.pd.is_null() {
                c.pd = shared.pd();
            }
        });
        Ok(())
    }

    /// Shows the way to the peer.
    pub(crate) fn show_path(&self, record: ibv_sa_path_rec) {
        self.update(|c| {
            let ibv_sa_path_rec { sgid, dgid, pkey, .. } = record;
            c.route.addr.addr.ibaddr = rdma_ib_addr { sgid, dgid, pkey };
        });
        // SAFETY: a slot is never freed; programs only read it.
        unsafe { (*self.public()).path = record };
    }

    /// Shows that the route is resolved.
    pub(crate) fn show_route(&self) {
        let path_rec = self.public().wrapping_byte_add(offset_of!(PublicId, path)).cast();
        self.update(|c| {
            c.route.path_rec = path_rec;
            c.route.num_paths = 1;
        });
    }
}

/// The id of a program's pointer.
///
/// # Errors
///
/// EINVAL if it is none, or destroyed.
pub(crate) fn get(id: *const rdma_cm_id) -> Result<Arc<Entry<Id>>, Errno> {
    Id::registry().get(id.cast())
}

/// The port space of C's number, and the service of its queue pairs.
fn space_of(number: rdma_port_space) -> Result<(PortSpace, ibv_qp_type), Errno> {
    match number {
        RDMA_PS_TCP => Ok((PortSpace::Tcp, IBV_QPT_RC)),
        RDMA_PS_UDP => Ok((PortSpace::Udp, IBV_QPT_UD)),
        RDMA_PS_IPOIB | RDMA_PS_IB => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// Makes an id. Without a channel it gets one of its own.
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
    // SAFETY: C structures of numbers and of pointers that may be NULL.
    let mut public: PublicId = unsafe { std::mem::zeroed() };
    public.id.channel = channel.public();
    public.id.context = context;
    public.id.ps = ps;
    public.id.qp_type = qp_type;
    let id = Id {
        mailbox: Arc::clone(&mailbox),
        acks: Arc::default(),
        space,
        psn,
        state: Mutex::new(State::new(channel, is_sync)),
    };
    let id = Id::registry().insert(public, id);
    mailbox.belong_to(&id);
    Ok(id)
}

/// Makes the id of a peer's request: on its listener's channel, or on one of its own if that waits
/// for its results.
///
/// # Errors
///
/// The request is gone, or nothing is left to make it of.
pub(crate) fn incoming(
    listener: &Entry<Id>,
    device: &'static Device,
    cm: CmId,
    request: &ConnectRequest,
) -> Result<Arc<Entry<Id>>, Errno> {
    let (channel, options) = {
        let state = listener.state();
        match state.is_sync {
            true => (std::ptr::null_mut(), state.options),
            false => (state.channel()?.public(), state.options),
        }
    };
    let like = listener.view();
    let id = create(channel, like.context, like.ps)?;
    let manager = device.context()?.connection_manager();
    let set_up = || {
        manager.set_sink(cm, &id.post(device))?;
        let mut state = id.state();
        state.stage = Stage::Requested;
        state.is_passive = true;
        state.options = options;
        state.device = Some(device);
        state.local = Some(request.local);
        state.peer = Some(request.peer);
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

/// Ends an id: nothing of it is under way, and the program has acknowledged all its events.
pub(crate) fn destroy(id: *const rdma_cm_id) -> Result<(), Errno> {
    let id = Id::registry().remove(id.cast())?;
    id.mailbox.close();
    let (bound, look_up, connection) = {
        let mut state = id.state();
        let bound = std::mem::take(&mut state.bound);
        (bound, state.look_up.take(), state.connection.take())
    };
    let bound = bound.into_iter().map(|(_, manager, id)| (manager, id));
    for (manager, cm) in bound.chain(look_up).chain(connection) {
        if runtime::is_orphaned() {
            // It is the parent's, and goes on there.
            std::mem::forget(manager);
            continue;
        }
        // What has ended by itself is not there any more.
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

/// Acknowledges the event that an id shows, which is the result of its last call.
pub(crate) fn release_event(id: &Entry<Id>) {
    let event = id.view().event;
    id.update(|c| c.event = std::ptr::null_mut());
    // One that the program has acknowledged itself is none any more.
    let _ = event::acknowledge(event);
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
        // SAFETY: not NULL, so the caller's place for a pointer.
        unsafe { entry::write(id, made.c()) }
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    entry::minus_one(|| destroy(id))
}

/// The port of an address in network order; 0 where there is none.
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
