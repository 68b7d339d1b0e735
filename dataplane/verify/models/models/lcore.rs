//! Q7: the control plane, a peer lcore and a timer against an lcore's QP; who drives an lcore.
//!
//! The lcore obeys a command, takes over what another lcore has handed to it, and looks at a timer,
//! in the order of a turn; the slot with its lock, adoption and parking is the engine's own. Not
//! seen: the rest of a turn; more than one command.

use crate::idle::IdlePolicy;
use crate::key::{Numbers, Slots};
use crate::lcore::Lcore;
use crate::qp_table::{Place, QpFinder, QpTable};
use crate::slot::{AdoptError, LcoreGuard, Slot, Turn};
use crate::sync::{ArrayQueue, AtomicU32, Consumer, Ordering, Producer, RingBuffer};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::{Arc, LazyLock};
use uroce_wire::Qpn;

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(1).expect("randomness"));

/// A QP: whoever has it may write it, and nobody else may look.
#[derive(Debug)]
struct Context(UnsafeCell<u64>);

impl Context {
    fn input(&self) {
        // SAFETY: the owner's alone; loom says if not.
        self.0.with_mut(|inputs| unsafe { *inputs += 1 });
    }
}

/// The parts of an lcore that its QP can be reached by.
struct Parts {
    commands: Consumer<()>,
    replies: Producer<Arc<Context>>,
    hand_over: Arc<ArrayQueue<Qpn>>,
    table: Arc<QpTable>,
    finder: QpFinder,
    shard: Option<(Qpn, Arc<Context>)>,
}

impl Parts {
    /// One turn: commands, packets, timers.
    fn turn(&mut self) -> bool {
        let mut any = false;
        if self.commands.pop().is_ok() {
            let (_, context) = self.shard.take().expect("destroyed once");
            self.table.withdraw(0);
            self.replies.push(context).expect("room");
            any = true;
        }
        while let Some(qpn) = self.hand_over.pop() {
            let found = self.finder.find(qpn).is_some();
            if let (true, Some((its, context))) = (found, &self.shard)
                && *its == qpn
            {
                context.input();
            }
            any = true;
        }
        if let Some((_, context)) = &self.shard {
            context.input();
        }
        any
    }
}

pub(crate) fn destroy() {
    let table = Arc::new(QpTable::new(1, NUMBERS.clone()));
    let name = |index, generation| NUMBERS.qpn(index, generation);
    let (index, number) = Slots::new(1).take(name, &[0]).expect("a free slot");
    let qpn = Qpn::new(number);
    table.publish(qpn, Place { index, owner: 0 });
    let hand_over = Arc::new(ArrayQueue::new(1));
    let (mut commands, command_feed) = RingBuffer::new(1);
    let (reply_feed, mut replies) = RingBuffer::new(1);
    let mut parts = Parts {
        commands: command_feed,
        replies: reply_feed,
        hand_over: Arc::clone(&hand_over),
        table: Arc::clone(&table),
        finder: QpFinder::new(Arc::clone(&table)),
        shard: Some((qpn, Arc::new(Context(UnsafeCell::new(0))))),
    };
    let slot = Arc::new(Slot::new(Lcore::new(move || parts.turn())));
    let lcore = thread::spawn({
        let slot = Arc::clone(&slot);
        // As an adopter: a turn of its own, beside those of the control plane.
        move || slot.try_turn()
    });
    let peer = thread::spawn(move || {
        let finder = QpFinder::new(table);
        if let Some(place) = finder.find(qpn) {
            assert_eq!(place, Place { index, owner: 0 });
            hand_over.push(qpn).expect("room");
        }
    });
    commands.push(()).expect("room");
    let context = loop {
        if let Ok(context) = replies.pop() {
            break context;
        }
        slot.try_turn();
        thread::yield_now();
    };
    // Acknowledged: it is ours alone now.
    context.input();
    lcore.join().expect("no panic");
    peer.join().expect("no panic");
    // A late packet meets nothing.
    slot.try_turn();
    drop(slot.take());
}

pub(crate) fn adopt() {
    let turns = Arc::new((UnsafeCell::new(()), AtomicU32::new(0)));
    let slot = Arc::new(Slot::new(Lcore::new({
        let turns = Arc::clone(&turns);
        move || {
            // One thread drives at a time; loom says if not.
            turns.0.with_mut(|_| ());
            turns.1.fetch_add(1, Ordering::Relaxed);
            true
        }
    })));
    let own = thread::spawn({
        let slot = Arc::clone(&slot);
        move || slot.run(IdlePolicy)
    });
    slot.set_thread(own.thread());
    let mut guard = LcoreGuard::adopt(&slot, 0).expect("not adopted, not stopped");
    assert!(matches!(LcoreGuard::adopt(&slot, 0), Err(AdoptError::Adopted(0))));
    assert_eq!(guard.turn(), Turn::Busy);
    let before = turns.1.load(Ordering::Relaxed);
    drop(guard);
    assert!(!slot.is_adopted());
    while turns.1.load(Ordering::Relaxed) == before {
        // Its own thread goes on.
        thread::yield_now();
    }
    slot.stop();
    own.join().expect("no panic");
    assert!(slot.take().is_some());
    assert_eq!(slot.try_turn(), Turn::Stopped);
    turns.0.with_mut(|_| ());
}
