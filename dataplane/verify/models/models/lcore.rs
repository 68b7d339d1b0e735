//! Q7: the control plane, a peer lcore and a timer against an lcore's QP; who drives an lcore.
//!
//! The lcore obeys a command, takes over what another lcore has handed to it, and looks at a timer,
//! in the order of a turn; the slot with its lock, adoption and parking is the engine's own. Not
//! seen: the rest of a turn; more than one command.

use crate::idle::{Driver, IdlePolicy};
use crate::key::{Numbers, Slots};
use crate::lcore::Lcore;
use crate::qp_table::{Place, QpFinder, QpTable};
use crate::slot::{AdoptError, LcoreGuard, Slot, Turn};
use crate::sync::{
    ArrayQueue, AtomicU32, Consumer, Ordering, Producer, RingBuffer, set_time_stands,
};
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
        move || slot.run(IdlePolicy, Driver::Lcore)
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

/// An lcore that says which turns its own thread has made, and a slot for it.
struct Driven {
    slot: Arc<Slot>,
    own: Arc<AtomicU32>,
    others: Arc<AtomicU32>,
}

impl Driven {
    /// With something to do in each turn or in every other.
    fn new(is_busy: bool) -> Driven {
        let (own, others) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let turns = [Arc::clone(&own), Arc::clone(&others)];
        let (main, inside) = (thread::current().id(), UnsafeCell::new(()));
        let slot = Arc::new(Slot::new(Lcore::new(move || {
            // One thread drives at a time; loom says if not.
            inside.with_mut(|_| ());
            let is_other = thread::current().id() == main;
            let before = turns[usize::from(is_other)].fetch_add(1, Ordering::Relaxed);
            is_busy || before % 2 == 0
        })));
        Driven { slot, own, others }
    }

    /// Its own thread, which pollers drive instead of.
    fn start(&self) -> thread::JoinHandle<()> {
        let slot = Arc::clone(&self.slot);
        let own = thread::spawn(move || slot.run(IdlePolicy, Driver::Poller));
        self.slot.set_thread(own.thread());
        own
    }

    fn stop(self, own: thread::JoinHandle<()>) {
        self.slot.stop();
        own.join().expect("no panic");
        assert_eq!(self.slot.turn_for_poller(true), Some(Turn::Idle), "not after its thread's end");
        assert!(self.slot.take().is_some());
    }
}

/// Its thread never lacks work, and makes room all the same. No preemptions: loom has a thread that
/// is about to try a lock wait for it.
pub(crate) fn poll_busy() {
    poll(Driven::new(true));
}

pub(crate) fn poll_idle() {
    poll(Driven::new(false));
}

fn poll(driven: Driven) {
    set_time_stands(false);
    let own = driven.start();
    while driven.own.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    while driven.others.load(Ordering::Relaxed) == 0 {
        driven.slot.turn_for_poller(true);
        thread::yield_now();
    }
    let before = driven.own.load(Ordering::Relaxed);
    while driven.own.load(Ordering::Relaxed) == before {
        // Who stops polling is replaced.
        thread::yield_now();
    }
    driven.stop(own);
}

/// At two preemptions: with more, a thread of loom's that is woken while it yields forgets it.
pub(crate) fn leave() {
    set_time_stands(true);
    let driven = Driven::new(false);
    let own = driven.start();
    driven.slot.turn_for_poller(true);
    let before = driven.own.load(Ordering::Relaxed);
    while driven.own.load(Ordering::Relaxed) == before {
        // However often it has polled, and though no nap ever ends.
        driven.slot.turn_for_poller(true);
        driven.slot.leave_to_thread();
        thread::yield_now();
    }
    driven.stop(own);
}
