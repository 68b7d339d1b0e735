//! Channels, which queue events of ids for the program.
//!
//! ```text
//!   control plane ──> Post (id, device) ──> Mailbox (id) ──> Channel
//! ```
//!
//! Invariant: an id's mailbox adds events to one channel at a time. After the mailbox is closed it
//! adds none, and the channel has none of the id.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use uroce::cm::raw::{CmId, CmSink, ConnEvent};

use super::Id;
use super::draft::Draft;
use crate::abi::rdma_event_channel;
use crate::errno::Errno;
use crate::event_queue::EventQueue;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime::{self, Device};

/// An event channel.
pub(crate) type Channel = EventQueue<Waiting>;

object!(Channel as rdma_event_channel);

/// An event that the program has not taken yet.
pub(crate) struct Waiting {
    pub(crate) id: Weak<Entry<Id>>,
    pub(crate) what: Happening,
}

/// Something that happened to an id.
pub(crate) enum Happening {
    /// An event of the control plane.
    Cm(&'static Device, CmId, ConnEvent),
    /// An event that was made here.
    Made(Draft),
    /// The id has joined a multicast group; the number identifies the membership.
    Joined(u64),
}

impl Channel {
    /// Makes a channel that no id uses yet.
    pub(crate) fn create() -> Result<Held<Channel>, Errno> {
        let channel = Channel::new()?;
        runtime::opened();
        let entry = Channel::registry().insert(rdma_event_channel { fd: channel.fd() }, channel);
        Channel::registry().hold(entry.public())
    }
}

/// Adds the events of one id to its channel.
pub(crate) struct Mailbox {
    owner: OnceLock<Weak<Entry<Id>>>,
    /// `None` after the mailbox is closed.
    place: Mutex<Option<Arc<Entry<Channel>>>>,
}

impl Mailbox {
    /// Makes a mailbox for this channel. It has no id yet, see [`belong_to`](Mailbox::belong_to).
    pub(crate) fn new(channel: &Held<Channel>) -> Result<Arc<Mailbox>, Errno> {
        let channel = Channel::registry().get(channel.public())?;
        Ok(Arc::new(Mailbox { owner: OnceLock::new(), place: Mutex::new(Some(channel)) }))
    }

    /// Sets the mailbox's id, once.
    pub(crate) fn belong_to(&self, id: &Arc<Entry<Id>>) {
        let _ = self.owner.set(Arc::downgrade(id));
    }

    /// Adds an event to the channel.
    pub(crate) fn send(&self, what: Happening) {
        if let (Some(channel), Some(owner)) = (&*self.lock(), self.owner.get()) {
            channel.push(Waiting { id: Weak::clone(owner), what });
        }
    }

    /// Withdraws and returns the id's pending events for which `is_one` is true.
    pub(crate) fn take_back(&self, is_one: impl Fn(&Happening) -> bool) -> Vec<Happening> {
        let (Some(channel), Some(owner)) = (&*self.lock(), self.owner.get()) else {
            return Vec::new();
        };
        let taken = channel.take_back(|it| it.id.ptr_eq(owner) && is_one(&it.what));
        taken.into_iter().map(|waiting| waiting.what).collect()
    }

    /// Closes the mailbox: withdraws the id's pending events and adds no more.
    pub(crate) fn close(&self) {
        let former = self.lock().take();
        if let (Some(channel), Some(owner)) = (former, self.owner.get()) {
            channel.take_back(|it| it.id.ptr_eq(owner));
        }
    }

    /// Moves the id's pending events to another channel, and adds later ones there.
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

/// The sink for events of an id at one device's connection manager.
pub(crate) struct Post {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) device: &'static Device,
}

impl Post {
    fn is_of(&self, what: &Happening, id: CmId) -> bool {
        matches!(what, Happening::Cm(device, of, _)
            if std::ptr::eq(*device, self.device) && *of == id)
    }
}

impl CmSink for Post {
    fn give(&self, id: CmId, event: ConnEvent) {
        // These events have no counterpart in C.
        if !matches!(
            event,
            ConnEvent::AlternateRequest(_)
                | ConnEvent::AlternateChanged(_)
                | ConnEvent::AlternateLoaded(_)
        ) {
            self.mailbox.send(Happening::Cm(self.device, id, event));
        }
    }

    fn forget(&self, id: CmId) -> bool {
        !self.mailbox.take_back(|what| self.is_of(what, id)).is_empty()
    }

    fn take_of(&self, id: CmId) -> Vec<ConnEvent> {
        let taken = self.mailbox.take_back(|what| self.is_of(what, id));
        let event = |what| match what {
            Happening::Cm(_, _, event) => Some(event),
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
