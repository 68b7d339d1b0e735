//! Q8: asynchronous events between an lcore that raises them, an application that takes them, and
//! the end of their source.
//!
//! Not modelled: more than two kinds at once; the room of closed sources with unacknowledged
//! events.

use crate::wake::events::{Event, EventChannel, EventKind, Subject};
use loom::thread;
use std::sync::Arc;
use uroce_wire::Qpn;

const QP: Subject = Subject::Qp(Qpn::new(2));

fn next(events: &Arc<EventChannel>) -> Option<Event> {
    events.try_next().expect("the system does not fail")
}

/// Two kinds are raised while a thread takes events: none is lost, none comes twice.
pub(crate) fn raise_and_take() {
    let events = EventChannel::new(1).expect("a channel");
    let guard = events.admit(QP).expect("room for one");
    let raiser = guard.raiser();
    let lcore = thread::spawn(move || {
        raiser.raise(EventKind::CommEst);
        raiser.raise(EventKind::QpFatal);
    });
    let mut kinds = Vec::new();
    let take = |kinds: &mut Vec<_>| {
        while let Some(event) = next(&events) {
            assert_eq!(event.subject, QP);
            kinds.push(event.kind);
        }
    };
    take(&mut kinds);
    lcore.join().expect("no panic");
    take(&mut kinds);
    kinds.sort_unstable_by_key(|&kind| kind as u8);
    assert_eq!(kinds, [EventKind::CommEst, EventKind::QpFatal]);
}

/// A link comes up, goes down and comes up while a thread takes events: the last one that is taken
/// is the link's state.
pub(crate) fn up_and_down_and_up() {
    take_last(&[EventKind::PortActive, EventKind::PortErr, EventKind::PortActive]);
}

/// So it is if the link stays down.
pub(crate) fn up_and_down() {
    take_last(&[EventKind::PortActive, EventKind::PortErr]);
}

/// Takes events while these are raised. The last one that is taken must be the last of them.
fn take_last(kinds: &'static [EventKind]) {
    let events = EventChannel::new(1).expect("a channel");
    let guard = events.admit(Subject::Port(1)).expect("room for one");
    let raiser = guard.raiser();
    let watch = thread::spawn(move || kinds.iter().for_each(|&kind| raiser.raise(kind)));
    let mut last = next(&events).map(|event| event.kind);
    watch.join().expect("no panic");
    while let Some(event) = next(&events) {
        last = Some(event.kind);
    }
    assert_eq!(last.as_ref(), kinds.last());
}

/// The source closes while an event is raised and another is taken: none comes afterwards.
pub(crate) fn close() {
    let events = EventChannel::new(1).expect("a channel");
    let guard = events.admit(QP).expect("room for one");
    let raiser = guard.raiser();
    let lcore = thread::spawn(move || raiser.raise(EventKind::QpFatal));
    let taker = thread::spawn({
        let events = Arc::clone(&events);
        move || drop(next(&events))
    });
    guard.close();
    assert!(next(&events).is_none(), "delivered after its end");
    lcore.join().expect("no panic");
    taker.join().expect("no panic");
    assert!(next(&events).is_none(), "delivered after its end");
    let another = events.admit(QP).expect("the place is free again");
    another.raise(EventKind::CommEst);
    assert_eq!(next(&events).map(|event| event.kind), Some(EventKind::CommEst));
}
