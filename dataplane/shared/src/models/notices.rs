//! Notices from lcores to the control plane, and the control plane's sleep until there is one.
//!
//! Two lcores, one kind of notice each. Not modelled: a timeout, which only wakes needlessly.

use crate::sync::{AtomicBool, Ordering};
use crate::wake::events::EventKind;
use crate::wake::notices::Notices;
use crate::wake::waker::Waker;
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

const FOR_EVER: Duration = Duration::MAX;

/// A flag is set while a thread checks it and goes to sleep.
pub(crate) fn put_and_sleep() {
    let (waker, put) = (Waker::new().expect("a waker"), Arc::new(AtomicBool::new(false)));
    let putter = thread::spawn({
        let (waker, put) = (Arc::clone(&waker), Arc::clone(&put));
        move || {
            put.store(true, Ordering::Release);
            // One wake-up is enough; only one of the three enters the kernel.
            (0..3).for_each(|_| waker.wake());
        }
    });
    while !put.load(Ordering::Acquire) {
        waker.sleep(FOR_EVER, || put.load(Ordering::Acquire));
    }
    putter.join().expect("no panic");
}

/// Two QPs raise a notice each; the control plane takes notices and sleeps until it has both.
pub(crate) fn raise_and_take() {
    let waker = Waker::new().expect("a waker");
    let notices = Arc::new(Notices::new(2, Arc::clone(&waker)));
    let raisers = [(0, EventKind::CommEst), (1, EventKind::PathMig)].map(|(index, kind)| {
        let notices = Arc::clone(&notices);
        thread::spawn(move || notices.raise(index, kind))
    });
    let mut taken = Vec::new();
    loop {
        notices.take(|index, kind| taken.push((index, kind)));
        if taken.len() >= 2 {
            break;
        }
        waker.sleep(FOR_EVER, || !notices.is_empty());
    }
    raisers.into_iter().for_each(|raiser| raiser.join().expect("no panic"));
    taken.sort_unstable_by_key(|&(index, _)| index);
    assert_eq!(taken, [(0, EventKind::CommEst), (1, EventKind::PathMig)]);
    notices.take(|index, kind| panic!("twice: {kind} of {index}"));
    notices.raise(0, EventKind::QpFatal);
    let marked = notices.take(|index, kind| assert_eq!((index, kind), (0, EventKind::QpFatal)));
    assert_eq!(marked, 1, "what was taken is not marked any more");
}
