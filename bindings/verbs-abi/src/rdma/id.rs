//! `rdma_cm_id`: an id for a listener or a connection.

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

/// The memory that a program's id points to, with the record for `route.path_rec`.
#[repr(C)]
pub(crate) struct PublicId {
    pub(crate) id: rdma_cm_id,
    pub(crate) path: ibv_sa_path_rec,
}

/// A connection id.
pub(crate) struct Id {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Counts the id's events that are not acknowledged.
    pub(crate) acks: Arc<Acks>,
    pub(crate) space: PortSpace,
    /// The PSN of the peer's first packet, for a queue pair that the program modifies itself.
    pub(crate) psn: Psn,
    state: Mutex<State>,
}

object!(Id as PublicId);

/// The stage of an id, as far as the program has taken its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Idle,
    Bound,
    Listening,
    /// The path to an address is being resolved.
    Resolving,
    AddressResolved,
    RouteResolved,
    /// The connection request was sent.
    Connecting,
    /// A peer's request for a connection waits for an answer.
    Requested,
    /// The peer has accepted; the program's own queue pair is not ready yet.
    Answered,
    /// The program has accepted the peer's request.
    Accepted,
    Connected,
    Ended,
}

/// Options that the program has set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) tos: Option<u8>,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) reuse: bool,
    /// Whether a wildcard address stands for its own IP version only. `None` if the program has not
    /// set it.
    pub(crate) one_version: Option<bool>,
}

/// The changeable part of an id.
pub(crate) struct State {
    /// The channel, kept busy by the id. `None` after the id is destroyed.
    pub(crate) channel: Option<Held<Channel>>,
    /// The id has a channel of its own, and its calls wait for their results.
    pub(crate) is_sync: bool,
    pub(crate) stage: Stage,
    pub(crate) options: Options,
    pub(crate) device: Option<&'static Device>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The bound addresses at connection managers: one per device for a wildcard address.
    pub(crate) bound: Vec<(&'static Device, Manager, CmId)>,
    pub(crate) look_up: Option<(Manager, CmId)>,
    pub(crate) path: Option<ResolvedPath>,
    pub(crate) connection: Option<(Manager, CmId)>,
    /// The attributes for Modify QP, once they are known.
    pub(crate) agreed: Option<Agreed>,
    /// The minimum RNR NAK timer for Modify QP: Linux's, until the program lets the peer retry
    /// without limit.
    pub(crate) min_rnr_timer: u8,
    /// The id was made for a peer's request.
    pub(crate) is_passive: bool,
    pub(crate) was_connected: bool,
    pub(crate) groups: Groups,
    /// The attributes for queue pairs of a passive endpoint.
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

    /// The id's event channel.
    ///
    /// # Errors
    ///
    /// EINVAL if the id is destroyed.
    pub(crate) fn channel(&self) -> Result<&Held<Channel>, Errno> {
        self.channel.as_ref().ok_or(Errno::EINVAL)
    }

    /// The id's connection.
    ///
    /// # Errors
    ///
    /// EINVAL if it has none; EOPNOTSUPP in a child that was forked after the engine had started.
    pub(crate) fn connection(&self) -> Result<(Manager, CmId), Errno> {
        runtime::usable()?;
        self.connection.clone().ok_or(Errno::EINVAL)
    }
}

impl Id {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sink for the id's events at a device's connection manager.
    pub(crate) fn post(&self, device: &'static Device) -> Arc<Post> {
        Arc::new(Post { mailbox: Arc::clone(&self.mailbox), device })
    }
}

impl Entry<Id> {
    /// The program's pointer to the id.
    pub(crate) fn c(&self) -> *mut rdma_cm_id {
        self.public().cast()
    }

    /// A copy of the public structure. The program may have changed its pointers.
    pub(crate) fn view(&self) -> rdma_cm_id {
        // SAFETY: a slot is never freed.
        unsafe { self.c().read() }
    }

    /// Changes the public structure.
    pub(crate) fn update(&self, change: impl FnOnce(&mut rdma_cm_id)) {
        // SAFETY: a slot is never freed. Programs read it after a call has returned or an event was
        // taken, and must not access it during the call.
        change(unsafe { &mut *self.c() });
    }

    /// The queue pair in the public structure.
    pub(crate) fn qp(&self) -> *mut ibv_qp {
        self.view().qp
    }

    /// Writes the addresses to the public structure.
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

    /// Writes the device that the id is bound to to the public structure.
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

    /// Writes the path to the peer to the public structure.
    pub(crate) fn show_path(&self, record: ibv_sa_path_rec) {
        self.update(|c| {
            let ibv_sa_path_rec { sgid, dgid, pkey, .. } = record;
            c.route.addr.addr.ibaddr = rdma_ib_addr { sgid, dgid, pkey };
        });
        // SAFETY: a slot is never freed, and programs only read this field.
        unsafe { (*self.public()).path = record };
    }

    /// Marks the route as resolved in the public structure.
    pub(crate) fn show_route(&self) {
        let path_rec = self.public().wrapping_byte_add(offset_of!(PublicId, path)).cast();
        self.update(|c| {
            c.route.path_rec = path_rec;
            c.route.num_paths = 1;
        });
    }
}

/// The id that a program's pointer refers to.
///
/// # Errors
///
/// EINVAL if it is not a live id of this library; EOPNOTSUPP in a child that was forked after the
/// engine had started.
pub(crate) fn get(id: *const rdma_cm_id) -> Result<Arc<Entry<Id>>, Errno> {
    runtime::usable()?;
    find(id)
}

/// The state behind an id, for calls that destroy something, which a forked child may make.
///
/// # Errors
///
/// EINVAL if it is not a live id of this library.
pub(crate) fn find(id: *const rdma_cm_id) -> Result<Arc<Entry<Id>>, Errno> {
    Id::registry().get(id.cast())
}

/// The port space for C's number, and the type of its queue pairs.
fn space_of(number: rdma_port_space) -> Result<(PortSpace, ibv_qp_type), Errno> {
    match number {
        RDMA_PS_TCP => Ok((PortSpace::Tcp, IBV_QPT_RC)),
        RDMA_PS_UDP => Ok((PortSpace::Udp, IBV_QPT_UD)),
        RDMA_PS_IPOIB | RDMA_PS_IB => Err(Errno::EOPNOTSUPP),
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

/// Acknowledges the event of the id's last call.
pub(crate) fn release_event(id: &Entry<Id>) {
    let event = id.view().event;
    id.update(|c| c.event = std::ptr::null_mut());
    // Fails if the program has acknowledged the event itself.
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
