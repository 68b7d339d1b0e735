//! `rdma_event_channel`: events of connection ids, waiting for the program.
//!
//! ```text
//!   control plane ──> Post (id, device) ──> Mailbox (id) ──> Channel
//! ```
//!
//! Invariant: an id's mailbox puts into one channel at a time. Once it is closed nothing more is put
//! in, and nothing of the id is left there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use uroce::cm::raw::{CmEvent, CmEventKind, CmId, CmSink};

use super::event::Draft;
use super::id::Id;
use crate::abi::rdma_event_channel;
use crate::entry;
use crate::errno::Errno;
use crate::event_queue::EventQueue;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime::Device;

/// An event channel.
pub(crate) type Channel = EventQueue<Waiting>;

object!(Channel as rdma_event_channel);

/// An event that the program has not taken.
pub(crate) struct Waiting {
    pub(crate) id: Weak<Entry<Id>>,
    pub(crate) what: Happening,
}

/// What has happened to an id.
pub(crate) enum Happening {
    /// As the control plane tells it.
    Cm(&'static Device, CmEvent),
    /// An event that was made here.
    Made(Draft),
    /// The id is in a multicast group, by this number of its.
    Joined(u64),
}

impl Channel {
    /// A channel that nobody uses yet.
    pub(crate) fn create() -> Result<Held<Channel>, Errno> {
        let channel = Channel::new()?;
        crate::runtime::opened();
        let entry = Channel::registry().insert(rdma_event_channel { fd: channel.fd() }, channel);
        Channel::registry().hold(entry.public())
    }
}

/// Where the events of an id go.
pub(crate) struct Mailbox {
    owner: OnceLock<Weak<Entry<Id>>>,
    /// `None` when it is closed.
    place: Mutex<Option<Arc<Entry<Channel>>>>,
}

impl Mailbox {
    /// Puts into this channel; belongs to nobody yet.
    pub(crate) fn new(channel: &Held<Channel>) -> Result<Arc<Mailbox>, Errno> {
        let channel = Channel::registry().get(channel.public())?;
        Ok(Arc::new(Mailbox { owner: OnceLock::new(), place: Mutex::new(Some(channel)) }))
    }

    /// Belongs to this id from now on.
    pub(crate) fn belong_to(&self, id: &Arc<Entry<Id>>) {
        let _ = self.owner.set(Arc::downgrade(id));
    }

    /// Puts an event in.
    pub(crate) fn send(&self, what: Happening) {
        if let (Some(channel), Some(owner)) = (&*self.lock(), self.owner.get()) {
            channel.push(Waiting { id: Weak::clone(owner), what });
        }
    }

    /// Takes events back that wait.
    pub(crate) fn take_back(&self, is_one: impl Fn(&Happening) -> bool) -> Vec<Happening> {
        let (Some(channel), Some(owner)) = (&*self.lock(), self.owner.get()) else {
            return Vec::new();
        };
        let taken = channel.take_back(|it| it.id.ptr_eq(owner) && is_one(&it.what));
        taken.into_iter().map(|waiting| waiting.what).collect()
    }

    /// Nothing is put in any more, and what waits is gone.
    pub(crate) fn close(&self) {
        let former = self.lock().take();
        if let (Some(channel), Some(owner)) = (former, self.owner.get()) {
            channel.take_back(|it| it.id.ptr_eq(owner));
        }
    }

    /// Puts into another channel from now on, also what waits.
    pub(crate) fn move_to(&self, channel: &Held<Channel>) -> Result<(), Errno> {
        let new = Channel::registry().get(channel.public())?;
        let mut place = self.lock();
        let (Some(former), Some(owner)) = (&*place, self.owner.get()) else {
            return Err(Errno::EINVAL);
        };
        for waiting in former.take_back(|it| it.id.ptr_eq(owner)) {
            new.push(waiting);
        }
        *place = Some(new);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Entry<Channel>>>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a device's connection manager puts the events of an id.
pub(crate) struct Post {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) device: &'static Device,
}

impl Post {
    fn is_of(&self, what: &Happening, id: CmId) -> bool {
        matches!(what, Happening::Cm(device, event)
            if std::ptr::eq(*device, self.device) && event.id == id)
    }
}

impl CmSink for Post {
    fn give(&self, event: CmEvent) {
        // These have no counterpart in C.
        if !matches!(
            event.kind,
            CmEventKind::AlternateRequest(_)
                | CmEventKind::AlternateChanged(_)
                | CmEventKind::AlternateLoaded(_)
        ) {
            self.mailbox.send(Happening::Cm(self.device, event));
        }
    }

    fn forget(&self, id: CmId) -> bool {
        !self.mailbox.take_back(|what| self.is_of(what, id)).is_empty()
    }

    fn take_of(&self, id: CmId) -> Vec<CmEvent> {
        let taken = self.mailbox.take_back(|what| self.is_of(what, id));
        let event = |what| match what {
            Happening::Cm(_, event) => Some(event),
            Happening::Made(_) | Happening::Joined(_) => None,
        };
        taken.into_iter().filter_map(event).collect()
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    entry::object(|| Ok(Channel::create()?.public()))
}

/// Leaves it as it is, with EBUSY, while ids use it.
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    entry::nothing(|| Channel::registry().remove(channel).map(|_| ()));
}
