//! Q7: an lcore's QP accessed by the control plane, a peer lcore and a timer; the driver of an
//! lcore.
//!
//! The lcore executes a command, handles packets that another lcore has handed over, and handles a
//! timer, in the order of a turn. The seat with its lock, adoption and parking is the real one.
//! Not modelled: the rest of a turn; more than one command.

use crate::seat::idle::{Driver, IdlePolicy};
use crate::seat::{Drive, Seat, SeatGuard, Turn, Work};
use crate::sync::tokens::Tokens;
use crate::sync::{
    ArrayQueue, AtomicU32, Consumer, Ordering, Producer, RingBuffer, set_time_stands,
};
use crate::table::key::{Numbers, Slots};
use crate::table::qp_table::{Place, QpFinder, QpTable};
use crate::wake::bed::Bed;
use crate::wake::bell::Bell;
use loom::cell::UnsafeCell;
use loom::thread;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use uroce_wire::Qpn;

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(1).expect("randomness"));

/// An lcore with a closure of the model as its turn, and without a deadline.
struct Lcore(Box<dyn FnMut() -> bool>);

impl Lcore {
    fn new(turn: impl FnMut() -> bool + 'static) -> Lcore {
        Lcore(Box::new(turn))
    }
}

impl fmt::Debug for Lcore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lcore")
    }
}

impl Drive for Lcore {
    type Number = ();

    fn turn(&mut self) -> Work {
        Work::from((self.0)())
    }

    fn turn_as(&mut self, (): &mut ()) -> Work {
        self.turn()
    }

    fn is_at_rest(&self) -> bool {
        true
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn time_left(&self) -> Duration {
        Duration::MAX
    }
}

/// A QP: only the thread that owns it may write it, and no other may read it.
#[derive(Debug)]
struct Context(UnsafeCell<u64>);

impl Context {
    fn input(&self) {
        // SAFETY: only the owner of the QP calls this; loom reports a concurrent access.
        self.0.with_mut(|inputs| unsafe { *inputs += 1 });
    }
}

/// The parts of an lcore through which its QP can be reached.
struct Parts {
    commands: Consumer<()>,
    replies: Producer<Arc<Context>>,
    hand_over: Arc<ArrayQueue<Qpn>>,
    table: Arc<QpTable>,
    finder: QpFinder,
    shard: Option<(Qpn, Arc<Context>)>,
}

impl Parts {
    /// One turn: commands, packets, timers. Returns whether there was anything to do.
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
    let seat = Arc::new(Seat::new(Lcore::new(move || parts.turn()), Arc::default(), None));
    let lcore = thread::spawn({
        let seat = Arc::clone(&seat);
        // As an adopter does: a turn besides those of the control plane.
        move || seat.try_turn()
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
        seat.try_turn();
        thread::yield_now();
    };
    // The destruction is acknowledged: only this thread accesses the QP now.
    context.input();
    lcore.join().expect("no panic");
    peer.join().expect("no panic");
    // A late packet finds no QP.
    seat.try_turn();
    drop(seat.take());
}

pub(crate) fn adopt() {
    let turns = Arc::new((UnsafeCell::new(()), AtomicU32::new(0)));
    let lcore = Lcore::new({
        let turns = Arc::clone(&turns);
        move || {
            // One thread drives at a time; loom reports a concurrent access.
            turns.0.with_mut(|_| ());
            turns.1.fetch_add(1, Ordering::Relaxed);
            true
        }
    });
    let seat = Arc::new(Seat::new(lcore, Arc::default(), None));
    let own = thread::spawn({
        let seat = Arc::clone(&seat);
        move || seat.run(IdlePolicy::Yield, Driver::Lcore)
    });
    seat.set_thread(own.thread());
    let mut guard = SeatGuard::claim(&seat).expect("not adopted");
    assert!(guard.park(), "not stopped");
    assert!(SeatGuard::claim(&seat).is_none(), "adopted");
    assert_eq!(guard.turn(), Turn::Busy);
    guard.set_exclusive(true);
    assert!(!seat.is_served(), "an exclusive guard alone turns the lcore");
    let before = turns.1.load(Ordering::Relaxed);
    drop(guard);
    assert!(!seat.is_adopted());
    while turns.1.load(Ordering::Relaxed) == before {
        // The lcore's own thread continues.
        thread::yield_now();
    }
    seat.stop();
    own.join().expect("no panic");
    assert!(seat.take().is_some());
    assert_eq!(seat.try_turn(), Turn::Stopped);
    turns.0.with_mut(|_| ());
}

/// A seat with an lcore that counts the turns of its own thread and those of other threads.
struct Driven {
    seat: Arc<Seat<Lcore>>,
    own: Arc<AtomicU32>,
    others: Arc<AtomicU32>,
}

impl Driven {
    /// An lcore with something to do in every turn, or in every second one.
    fn new(is_busy: bool) -> Driven {
        let (own, others) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let turns = [Arc::clone(&own), Arc::clone(&others)];
        let (main, inside) = (thread::current().id(), UnsafeCell::new(()));
        let lcore = Lcore::new(move || {
            // One thread drives at a time; loom reports a concurrent access.
            inside.with_mut(|_| ());
            let is_other = thread::current().id() == main;
            let before = turns[usize::from(is_other)].fetch_add(1, Ordering::Relaxed);
            is_busy || before % 2 == 0
        });
        let seat = Arc::new(Seat::new(lcore, Arc::default(), None));
        Driven { seat, own, others }
    }

    /// Starts the lcore's own thread, which lets pollers drive in its place.
    fn start(&self) -> thread::JoinHandle<()> {
        let seat = Arc::clone(&self.seat);
        let own = thread::spawn(move || seat.run(IdlePolicy::Yield, Driver::Poller));
        self.seat.set_thread(own.thread());
        own
    }

    fn stop(self, own: thread::JoinHandle<()>) {
        self.seat.stop();
        own.join().expect("no panic");
        assert_eq!(self.seat.turn_for_poller(true), Some(Turn::Idle), "not after its thread's end");
        assert!(self.seat.take().is_some());
    }
}

/// The lcore's thread always has work and still lets a poller drive. No preemptions: loom lets a
/// thread wait that is about to try a lock.
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
        driven.seat.turn_for_poller(true);
        thread::yield_now();
    }
    let before = driven.own.load(Ordering::Relaxed);
    while driven.own.load(Ordering::Relaxed) == before {
        // The lcore's thread takes over from a poller that stops polling.
        thread::yield_now();
    }
    driven.stop(own);
}

/// At two preemptions: with more, loom forgets a thread that is woken while it yields.
pub(crate) fn leave() {
    set_time_stands(true);
    let driven = Driven::new(false);
    let own = driven.start();
    driven.seat.turn_for_poller(true);
    let before = driven.own.load(Ordering::Relaxed);
    while driven.own.load(Ordering::Relaxed) == before {
        // It polls often, and no nap ends in this model.
        driven.seat.turn_for_poller(true);
        driven.seat.leave_to_thread();
        thread::yield_now();
    }
    driven.stop(own);
}

/// One thread puts work before an lcore that looks for it and then sleeps. A lost wake-up leaves
/// both threads waiting for ever.
pub(crate) fn sleep() {
    let bell = Arc::<Bell>::default();
    let tokens = bell.listen().expect("a descriptor");
    // Once for each arming, and only while it is armed.
    bell.ring();
    bell.arm();
    (0..2).for_each(|_| bell.ring());
    assert!(tokens.take().expect("readable") && !tokens.take().expect("readable"));
    bell.arm();
    bell.disarm();
    bell.ring();
    assert!(!tokens.take().expect("readable"));

    let put = Arc::new(AtomicU32::new(0));
    let done = Arc::new(Tokens::new().expect("a descriptor"));
    let lcore = Lcore::new({
        let (put, done) = (Arc::clone(&put), Arc::clone(&done));
        let mut taken = 0;
        move || {
            let is_new = put.load(Ordering::Acquire) > taken;
            if is_new {
                taken += 1;
                done.add();
            }
            is_new
        }
    });
    let seat = Arc::new(Seat::new(lcore, Arc::clone(&bell), Bed::new(&bell).ok()));
    let own = thread::spawn({
        let seat = Arc::clone(&seat);
        move || seat.run(IdlePolicy::Yield, Driver::Lcore)
    });
    seat.set_thread(own.thread());
    put.store(1, Ordering::Release);
    bell.ring();
    done.read().expect("done");
    seat.stop();
    own.join().expect("no panic");
}
