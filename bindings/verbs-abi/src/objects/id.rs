//! Ids, each for a listener or a connection.
//!
//! An [`Id`] is the object behind a program's `rdma_cm_id`. Its events go through its
//! [`Mailbox`] to an event [`Channel`].

pub(crate) mod channel;
pub(crate) mod draft;
pub(crate) mod groups;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uroce::Psn;
use uroce::cm::Agreed;
use uroce::cm::raw::{CmId, Manager, PortSpace, ResolvedPath};

use super::cm_event;
use crate::abi::{ibv_qp, ibv_qp_init_attr, ibv_sa_path_rec, rdma_cm_id};
use crate::acks::Acks;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime::ports::Notice;
use crate::runtime::{self, Device};
use channel::{Channel, Mailbox, Post};
use groups::Groups;

/// Minimum RNR NAK timer code of Linux's connection manager: 655 ms. A program that limits its
/// peer's retries depends on this long time, because it may post its receives late.
pub(crate) const LINUX_RNR_TIMER: u8 = 0;

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
    /// The notices by which other processes see the bound addresses.
    pub(crate) notices: Vec<Notice>,
    /// The resolution of an address that is under way.
    pub(crate) look_up: Option<(Manager, CmId)>,
    pub(crate) path: Option<ResolvedPath>,
    /// The connection, or the peer's request for one.
    pub(crate) connection: Option<(Manager, CmId)>,
    /// The attributes for Modify QP, once they are known.
    pub(crate) agreed: Option<Agreed>,
    /// The minimum RNR NAK timer for Modify QP: Linux's, until the program lets the peer retry
    /// without limit.
    pub(crate) min_rnr_timer: u8,
    /// The id was made for a peer's request.
    pub(crate) is_passive: bool,
    /// The connection was established, and has ended.
    pub(crate) was_connected: bool,
    pub(crate) groups: Groups,
    /// The attributes for queue pairs of a passive endpoint.
    pub(crate) passive: Option<Passive>,
}

impl State {
    /// An id that was just created, with its channel.
    pub(crate) fn new(channel: Held<Channel>, is_sync: bool) -> State {
        State {
            channel: Some(channel),
            is_sync,
            stage: Stage::Idle,
            options: Options::default(),
            device: None,
            local: None,
            peer: None,
            bound: Vec::new(),
            notices: Vec::new(),
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
    pub(crate) fn new(mailbox: Arc<Mailbox>, space: PortSpace, psn: Psn, state: State) -> Id {
        Id { mailbox, acks: Arc::default(), space, psn, state: Mutex::new(state) }
    }

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

/// The id that a program's pointer refers to, for calls that destroy something. A forked child may
/// make those too.
///
/// # Errors
///
/// EINVAL if it is not a live id of this library.
pub(crate) fn find(id: *const rdma_cm_id) -> Result<Arc<Entry<Id>>, Errno> {
    Id::registry().get(id.cast())
}

/// The attributes for queue pairs of a passive endpoint's requests.
#[derive(Clone, Copy)]
pub(crate) struct Passive(pub(crate) ibv_qp_init_attr);

// SAFETY: the pointers are only passed on to the call that checks them.
unsafe impl Send for Passive {}

/// Acknowledges the event that the last call on a synchronous id has left in `id->event`.
pub(crate) fn release_event(id: &Entry<Id>) {
    let event = id.view().event;
    id.update(|c| c.event = std::ptr::null_mut());
    // Fails if the program has acknowledged the event itself.
    let _ = cm_event::acknowledge(event);
}
