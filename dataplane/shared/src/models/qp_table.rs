//! Q1: look-up of a QPN's owner, against insertion, removal and reuse of the slot by another lcore.
//!
//! Three threads: the first owner, which passes the slot on as the control plane would; the second
//! owner; a third lcore that looks both numbers up. Not modelled: a third use of a slot.

use crate::sync::RingBuffer;
use crate::table::key::{Numbers, Slots};
use crate::table::qp_table::{Place, QpFinder, QpTable};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::{Arc, LazyLock};
use uroce_wire::Qpn;

/// One permutation for all executions, which may differ only in the order of the threads.
static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(1).expect("randomness"));

/// A shard with one slot, accessed by its lcore only, which loom verifies.
struct Shard(UnsafeCell<Option<Qpn>>);

impl Shard {
    fn put(&self, qpn: Option<Qpn>) {
        // SAFETY: only the lcore's thread calls this; loom reports a race if another does.
        self.0.with_mut(|place| unsafe { *place = qpn });
    }

    fn qpn(&self) -> Option<Qpn> {
        // SAFETY: only the lcore's thread calls this; loom reports a race if another does.
        self.0.with(|place| unsafe { *place })
    }
}

pub(crate) fn reuse() {
    let table = Arc::new(QpTable::new(1, NUMBERS.clone()));
    let mut slots = Slots::new(1);
    let name = |index, generation| NUMBERS.qpn(index, generation);
    let (index, first) = slots.take(name, &[0]).expect("a free slot");
    slots.give_back(index);
    let (_, second) = slots.take(name, &[0]).expect("the same slot");
    let [first, second] = [first, second].map(Qpn::new);
    let (mut hand_on, mut take_on) = RingBuffer::new(1);

    let one = thread::spawn({
        let table = Arc::clone(&table);
        move || {
            let shard = Shard(UnsafeCell::new(None));
            let finder = QpFinder::new(Arc::clone(&table));
            shard.put(Some(first));
            table.publish(first, Place { index, owner: 1 });
            assert_eq!(finder.find(first), Some(Place { index, owner: 1 }));
            shard.put(None);
            table.withdraw(index);
            hand_on.push(()).expect("room");
            assert_eq!(finder.find(first), None);
            if let Some(place) = finder.find(second) {
                // A packet that arrives here for the new QP is handed on, or dropped.
                assert_eq!(place.owner, 2);
                assert_eq!(shard.qpn(), None);
            }
        }
    });
    let two = thread::spawn({
        let table = Arc::clone(&table);
        move || {
            while take_on.pop().is_err() {
                thread::yield_now();
            }
            let shard = Shard(UnsafeCell::new(None));
            let finder = QpFinder::new(Arc::clone(&table));
            shard.put(Some(second));
            table.publish(second, Place { index, owner: 2 });
            assert_eq!(finder.find(first), None, "its number has another life");
            // The owner's shard has the QP that the table names it as the owner of.
            assert_eq!(finder.find(second), Some(Place { index, owner: 2 }));
            assert_eq!(shard.qpn(), Some(second));
        }
    });
    let finder = QpFinder::new(Arc::clone(&table));
    let newer = finder.find(second);
    let older = finder.find(first);
    assert!(newer.is_none_or(|place| place == Place { index, owner: 2 }));
    assert!(older.is_none_or(|place| place == Place { index, owner: 1 }));
    assert!(newer.is_none() || older.is_none(), "the second life began after the first");
    one.join().expect("no panic");
    two.join().expect("no panic");
}
