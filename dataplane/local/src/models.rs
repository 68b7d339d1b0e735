//! Models of the memory that members share, explored by loom: `cargo run -p uroce-local --example
//! models` with `--cfg loom` in `RUSTFLAGS`, or `deploy/test models`.
//!
//! The code is that of the crate; its memory consists of loom's words. A model runs once for each
//! order of its threads' steps up to a number of preemptions, and for each value that a load may
//! see. What loom does not see is written in `uroce_shared`'s models; of that matters here that it
//! moves no load behind a later store, so no model needs the orders of `head`: Release and Acquire
//! there keep a record's bytes from being read after they were given back.
//!
//! The eventfd is the kernel's: a write to it is looked at when both threads have ended.

use crate::board::{Board, bit, board_len, publish_fence};
use crate::layout::{LINE, Place};
use crate::memory::Memory;
use crate::ring::{Consumer, Producer};
use loom::thread;
use rustix::event::EventfdFlags;
use std::sync::Arc;
use std::time::Instant;
use uroce_shared::sync::eventfd::EventFd;

/// Two of the shortest frames fill the ring.
const PLACE: Place = Place { tail_at: 0, head_at: LINE, ring_at: 2 * LINE, ring_len: 2 * LINE };
const MEMORY: usize = 4 * LINE;

/// A name, a property that holds in every execution, the number of preemptions, and an execution.
type Model = (&'static str, &'static str, usize, fn());

const MODELS: [Model; 4] = [
    ("ring", "frames arrive whole and in order, and room is reused when it was read", 3, ring),
    ("armed", "a receiver that arms sees a frame or is woken", 4, armed),
    ("cooled", "a receiver that takes a bit back sees a frame or the bit is set", 4, cooled),
    ("two-senders", "a sleeping receiver is woken, and both bits are set", 3, two_senders),
];

/// Runs all models; panics if one fails.
pub fn main() {
    for (name, about, preemptions, run) in MODELS {
        let begin = Instant::now();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 4_000;
        builder.check(run);
        println!("{name:<28} {:>6.1} s  {about}", begin.elapsed().as_secs_f64());
    }
}

fn ends() -> (Producer, Consumer) {
    let memory = Arc::new(Memory::new(MEMORY));
    (Producer::new(Arc::clone(&memory), PLACE), Consumer::new(memory, PLACE))
}

fn frame(number: u8) -> [u8; 14] {
    [number; 14]
}

/// Takes the next frame, if there is one, and tells the sender.
fn take(consumer: &mut Consumer) -> Option<u8> {
    let slot = consumer.next(64).expect("nothing is malformed")?;
    let mut bytes = [0; 14];
    consumer.memory().read(slot.at, &mut bytes);
    assert_eq!(bytes, frame(bytes[0]), "a frame is torn");
    consumer.pass(slot);
    consumer.release();
    Some(bytes[0])
}

fn ring() {
    let (mut producer, mut consumer) = ends();
    let sender = thread::spawn(move || {
        let mut sent = 0;
        for _ in 0..4 {
            if producer.push(&frame(sent + 1)).is_ok() {
                sent += 1;
                producer.publish();
            }
        }
        sent
    });
    let mut received = 0;
    let mut check = |number: Option<u8>| {
        if let Some(number) = number {
            received += 1;
            assert_eq!(number, received, "out of order");
        }
    };
    (0..3).for_each(|_| check(take(&mut consumer)));
    let sent = sender.join().expect("no panic");
    (0..2).for_each(|_| check(take(&mut consumer)));
    assert_eq!(received, sent, "all that was published is there");
}

fn board() -> Arc<Board> {
    let event = EventFd::new(EventfdFlags::NONBLOCK).expect("a descriptor");
    Arc::new(Board::new(Memory::new(board_len(1).min(2 * LINE)), Box::new([event])))
}

/// Sends one frame as member 1.
fn send(mut producer: Producer, board: &Board) {
    producer.push(&frame(1)).expect("room");
    producer.publish();
    publish_fence();
    board.notify(0, 1);
}

fn armed() {
    let (producer, consumer) = ends();
    let board = board();
    let sender = thread::spawn({
        let board = Arc::clone(&board);
        move || send(producer, &board)
    });
    board.arm(0);
    let has_seen = consumer.has_more();
    sender.join().expect("no panic");
    assert!(has_seen || board.event(0).drain(), "it sleeps for ever");
}

fn cooled() {
    let (producer, consumer) = ends();
    let board = board();
    // The bit is left from a frame before.
    publish_fence();
    board.notify(0, 1);
    let sender = thread::spawn({
        let board = Arc::clone(&board);
        move || send(producer, &board)
    });
    board.clear(0, bit(1));
    let has_seen = consumer.has_more();
    sender.join().expect("no panic");
    assert!(has_seen || board.active(0) == bit(1), "the frame is overlooked");
}

fn two_senders() {
    let board = board();
    let (rings, mut consumers): (Vec<_>, Vec<_>) = (0..2).map(|_| ends()).unzip();
    let senders: Vec<_> = rings
        .into_iter()
        .zip(1..)
        .map(|(mut producer, number)| {
            let board = Arc::clone(&board);
            thread::spawn(move || {
                producer.push(&frame(number)).expect("room");
                producer.publish();
                publish_fence();
                board.notify(0, number);
            })
        })
        .collect();
    board.arm(0);
    let has_seen = consumers.iter().filter(|consumer| consumer.has_more()).count();
    senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    assert!(has_seen == 2 || board.event(0).drain());
    assert_eq!(board.active(0), bit(1) | bit(2));
    assert_eq!(consumers.iter_mut().map(take).collect::<Vec<_>>(), [Some(1), Some(2)]);
}
