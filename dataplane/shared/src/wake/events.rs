//! Asynchronous events: they concern a QP, CQ, SRQ, a port or the device, and no work request.
//!
//! Read first: IBA 11.6.3 (asynchronous events).
//!
//! ```text
//!   lcore ── raise ──▶ bits of the source ──▶ ready queue + token ──▶ try_next ──▶ Event
//! ```
//!
//! A source has one bit per kind of event, so an event that comes again before it was taken is the
//! same event: nothing is lost and nothing grows. Of a port's two events the later one is given
//! last. A source with a bit set is in the ready queue once. An eventfd in semaphore mode has a
//! token for each entry, as with completion channels.
//!
//! The ready queue consists of stretches (`ready`). A stretch is allocated when the sources fill
//! the others, so a device that may have many objects uses no memory for objects that do not exist.
//! Sources of one stretch are served in the order in which they became ready; stretches take turns.
//!
//! Invariants
//! - The ready queue has a place for each source, including closed ones that are still in it. So
//!   raising an event neither allocates, nor locks, nor fails. It enters the kernel once for each
//!   entry.
//! - An event of a closed source is never given, and [`EventGuard::close`] waits until the events
//!   that were given have been acknowledged.
//!
//! Not here: which conditions are events (the core decides).

mod ready;

use crate::sync::tokens::Tokens;
use crate::sync::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering};
use ready::Ready;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};
use uroce_wire::Qpn;

/// The object that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// The QP of this number.
    Qp(Qpn),
    /// The completion queue of this number.
    Cq(u32),
    /// The shared receive queue of this number.
    Srq(u32),
    /// The port of this number, counted from 1.
    Port(u8),
    /// The whole device.
    Device,
}

macro_rules! event_kinds {
    ($($kind:ident $text:literal)*) => {
        /// The kind of an event. The names are those of the verbs' `IBV_EVENT_*`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum EventKind {
            $(#[doc = $text] $kind,)*
        }

        impl EventKind {
            /// All kinds, in the order of their numbers. Of two events of a source, neither of them
            /// taken yet, the lower kind is given first.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$kind,)*];
        }

        impl std::fmt::Display for EventKind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(EventKind::$kind => $text,)* })
            }
        }
    };
}

event_kinds! {
    CommEst "The first packet has come to a QP in RTR."
    SqDrained "The send queue of a QP in SQD is drained."
    QpFatal "A QP failed for a reason of its own."
    QpReqErr "A QP failed: the peer's request broke a rule."
    QpAccessErr "A QP failed: the peer's request named memory that is not granted."
    LastWqeReached "A QP in ERR takes no more receives from its SRQ."
    PathMig "A QP has migrated to its alternate path."
    PathMigErr "The peer asked a QP to migrate to another path than its alternate one."
    CqErr "A completion queue has overrun."
    SrqLimitReached "Fewer receives wait in an SRQ than its limit says."
    PortErr "A port's link has gone down."
    PortActive "A port's link has come up."
    GidChange "A port's addresses have changed."
    SrqErr "Receives of an SRQ are lost with the lcore that had taken them."
    PeerLost "A QP failed: its peer is gone. For the control plane; applications do not get it."
    DeviceFatal "An lcore has ended in the middle of its work; its QPs are lost. Or all ports are gone."
}

impl EventKind {
    /// Returns the kind's bit in a word of kinds.
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }

    pub(crate) fn lowest_of(bits: u32) -> Option<EventKind> {
        EventKind::ALL.get(bits.trailing_zeros() as usize).copied()
    }
}

impl From<uroce_transport::AsyncEvent> for EventKind {
    fn from(event: uroce_transport::AsyncEvent) -> EventKind {
        use uroce_transport::AsyncEvent;
        match event {
            AsyncEvent::CommEst => EventKind::CommEst,
            AsyncEvent::SqDrained => EventKind::SqDrained,
            AsyncEvent::QpFatal => EventKind::QpFatal,
            AsyncEvent::QpReqErr => EventKind::QpReqErr,
            AsyncEvent::QpAccessErr => EventKind::QpAccessErr,
            AsyncEvent::LastWqeReached => EventKind::LastWqeReached,
            AsyncEvent::PathMig => EventKind::PathMig,
            AsyncEvent::PathMigErr => EventKind::PathMigErr,
            AsyncEvent::PeerLost => EventKind::PeerLost,
        }
    }
}

/// An event. It is acknowledged when it is dropped.
#[derive(Debug)]
pub struct Event {
    /// The object that it is about.
    pub subject: Subject,
    /// The kind of the event.
    pub kind: EventKind,
    source: Arc<Source>,
    channel: Arc<EventChannel>,
}

/// A source of events, shared by its users.
#[derive(Debug)]
struct Source {
    subject: Subject,
    /// The stretch of the ready queue in which it has its place.
    stretch: usize,
    /// Bits of the kinds that happened and were not taken yet.
    happened: AtomicU32,
    /// Whether it is in the ready queue.
    is_ready: AtomicBool,
    /// Written under the channel's lock: whether it is closed, and how many of its events were
    /// given and not acknowledged.
    closed: AtomicBool,
    out: AtomicU32,
}

impl Source {
    /// Takes the lowest kind that has happened. Returns it with the bits of the others. All in one
    /// step, since a port that goes down takes its PORT_ACTIVE back meanwhile.
    fn take_lowest(&self) -> Option<(EventKind, u32)> {
        let without = |bits: u32| bits & bits.wrapping_sub(1);
        let taken = self.happened.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            (bits != 0).then(|| without(bits))
        });
        let bits = taken.ok()?;
        Some((EventKind::lowest_of(bits)?, without(bits)))
    }
}

/// The events of an engine. Its file descriptor is readable while one waits.
#[derive(Debug)]
pub struct EventChannel {
    tokens: Tokens,
    ready: Ready<Arc<Source>>,
    book: Mutex<Book>,
    acknowledged: Condvar,
}

/// Counts the places of the ready queue.
#[derive(Debug, Default)]
struct Book {
    /// One entry for each allocated stretch.
    stretches: Vec<Places>,
    /// The stretch to be looked at first.
    next: usize,
    /// Open sources that are completion queues, and those that are shared receive queues.
    queues: (u32, u32),
}

impl Book {
    /// Returns the count of sources with such a subject, if these are counted.
    fn count_of(&mut self, subject: Subject) -> Option<&mut u32> {
        match subject {
            Subject::Cq(_) => Some(&mut self.queues.0),
            Subject::Srq(_) => Some(&mut self.queues.1),
            Subject::Qp(_) | Subject::Port(_) | Subject::Device => None,
        }
    }
}

/// The places of a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    sources: usize,
    /// Closed sources that are still in it.
    ghosts: usize,
}

/// The owner's handle of a source. Dropping it closes the source.
#[derive(Debug)]
pub struct EventGuard {
    source: Arc<Source>,
    channel: Arc<EventChannel>,
}

/// Lets an lcore raise events of a source that another object owns.
#[derive(Clone, Debug)]
pub struct EventRaiser {
    source: Arc<Source>,
    channel: Arc<EventChannel>,
}

impl EventChannel {
    /// Makes a channel for up to `sources` sources at a time.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new(sources: usize) -> io::Result<Arc<EventChannel>> {
        Ok(Arc::new(EventChannel {
            tokens: Tokens::new()?,
            ready: Ready::new(sources),
            book: Mutex::default(),
            acknowledged: Condvar::new(),
        }))
    }

    /// Makes a new source; `None` if there are as many as there may be.
    pub fn admit(self: &Arc<EventChannel>, subject: Subject) -> Option<EventGuard> {
        let mut book = self.lock();
        let stretch = self.find_place(&mut book)?;
        book.stretches[stretch].sources += 1;
        if let Some(count) = book.count_of(subject) {
            *count += 1;
        }
        let source = Arc::new(Source {
            subject,
            stretch,
            happened: AtomicU32::new(0),
            is_ready: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            out: AtomicU32::new(0),
        });
        Some(EventGuard { source, channel: Arc::clone(self) })
    }

    /// Returns the number of completion queues and that of shared receive queues among the open
    /// sources.
    pub fn queues(&self) -> (u32, u32) {
        self.lock().queues
    }

    /// Returns a stretch that has room for one more source; allocates one if there is none.
    fn find_place(&self, book: &mut Book) -> Option<usize> {
        let has_room = |book: &Book| {
            let mut all = book.stretches.iter().enumerate();
            let is_free = |at: usize, it: &Places| it.sources + it.ghosts < self.ready.len_of(at);
            all.find(|(at, it)| is_free(*at, it)).map(|(at, _)| at)
        };
        has_room(book)
            .or_else(|| {
                self.lay_ghosts(book);
                has_room(book)
            })
            .or_else(|| {
                let at = book.stretches.len();
                self.ready.make(at).then(|| {
                    book.stretches.push(Places::default());
                    at
                })
            })
    }

    /// Takes the oldest event, if there is one.
    ///
    /// # Errors
    /// The system fails.
    pub fn try_next(self: &Arc<EventChannel>) -> io::Result<Option<Event>> {
        while self.tokens.take()? {
            let mut book = self.lock();
            // A token without an entry only wakes a sleeper for nothing.
            let Some(source) = self.ready.pop(&mut book.next) else { continue };
            if source.closed.load(Ordering::Relaxed) {
                book.stretches[source.stretch].ghosts -= 1;
                continue;
            }
            // Acquires the bits of the thread that added the source, or found it in the queue.
            source.is_ready.swap(false, Ordering::AcqRel);
            let Some((kind, others)) = source.take_lowest() else { continue };
            source.out.fetch_add(1, Ordering::Relaxed);
            if others != 0 {
                self.make_ready(&source);
            }
            let subject = source.subject;
            return Ok(Some(Event { subject, kind, source, channel: Arc::clone(self) }));
        }
        Ok(None)
    }

    fn raise(&self, source: &Arc<Source>, kind: EventKind) {
        // A link that goes down again before the application knows that it came up stays down for
        // it: the last event of a port is the port's state.
        if kind == EventKind::PortErr {
            source.happened.fetch_and(!EventKind::PortActive.bit(), Ordering::AcqRel);
        }
        let before = source.happened.fetch_or(kind.bit(), Ordering::AcqRel);
        if before & kind.bit() == 0 {
            self.make_ready(source);
        }
    }

    fn make_ready(&self, source: &Arc<Source>) {
        if source.is_ready.swap(true, Ordering::AcqRel) {
            return;
        }
        self.put(Arc::clone(source));
        self.tokens.add();
    }

    fn put(&self, source: Arc<Source>) {
        let pushed = self.ready.push(source.stretch, source);
        debug_assert!(pushed, "each source stands there at most once");
    }

    /// Goes once through the stretches that have closed sources, and removes these. Their tokens
    /// stay and wake a sleeper for nothing.
    #[cold]
    fn lay_ghosts(&self, book: &mut Book) {
        for at in 0..book.stretches.len() {
            if book.stretches[at].ghosts == 0 {
                continue;
            }
            for _ in 0..self.ready.waiting(at) {
                match self.ready.pop_of(at) {
                    Some(source) if source.closed.load(Ordering::Relaxed) => {
                        book.stretches[at].ghosts -= 1;
                    }
                    Some(source) => self.put(source),
                    None => break,
                }
            }
        }
    }

    fn close(&self, source: &Source) {
        let mut book = self.lock();
        if source.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(count) = book.count_of(source.subject) {
            *count -= 1;
        }
        let places = &mut book.stretches[source.stretch];
        places.sources -= 1;
        // From now on the source looks as if it were in the queue, so no thread adds it. If it is
        // already in the queue, or is being added, it stays there as a ghost.
        if source.is_ready.swap(true, Ordering::AcqRel) {
            places.ghosts += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for EventChannel {
    /// The descriptor that is readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tokens.as_fd()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Under the lock, so that a thread that waits in `close` does not miss it.
        let _book = self.channel.lock();
        self.source.out.fetch_sub(1, Ordering::Relaxed);
        self.channel.acknowledged.notify_all();
    }
}

impl EventGuard {
    /// Returns the number in the source's [`Subject`]; 0 for the device.
    pub fn number(&self) -> u32 {
        match self.source.subject {
            Subject::Qp(qpn) => qpn.value(),
            Subject::Cq(number) | Subject::Srq(number) => number,
            Subject::Port(number) => u32::from(number),
            Subject::Device => 0,
        }
    }

    /// Returns the channel of the source's events.
    pub fn channel(&self) -> &Arc<EventChannel> {
        &self.channel
    }

    /// Closes the source: no event of it is given any more. Returns once the events that were given
    /// have been acknowledged.
    //= check G10 — destroying waits for acknowledgements, and nothing is delivered after it
    pub fn close(self) {
        self.channel.close(&self.source);
        let mut book = self.channel.lock();
        while self.source.out.load(Ordering::Relaxed) > 0 {
            let woken = self.channel.acknowledged.wait(book);
            book = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Raises an event of the source.
    pub fn raise(&self, kind: EventKind) {
        self.channel.raise(&self.source, kind);
    }

    /// Returns a handle that raises events of the source and does not keep it open.
    pub fn raiser(&self) -> EventRaiser {
        EventRaiser { source: Arc::clone(&self.source), channel: Arc::clone(&self.channel) }
    }
}

impl Drop for EventGuard {
    /// Closes the source without waiting for acknowledgements.
    fn drop(&mut self) {
        self.channel.close(&self.source);
    }
}

impl EventRaiser {
    /// Raises an event of the source, unless it is closed.
    #[cold]
    pub fn raise(&self, kind: EventKind) {
        self.channel.raise(&self.source, kind);
    }
}

#[cfg(test)]
mod tests;
