//! A queue neither allocates nor frees, also while links begin and end.

mod common;

use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use uroce_local::Sent;

/// The system's allocator, which counts the calls of each thread.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: all calls are passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the contract of `dealloc`, and the memory came from the system
        // allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_queue_neither_allocates_nor_frees_while_members_come_and_go() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let begin = Instant::now();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each round a member is linked from both sides, sends, and ends.
            for round in 0..30 {
                let two = join(scratch.path());
                let mut other = two.queue(0).unwrap();
                let frame = frame(2, 1, 0, round, 500);
                assert_eq!(send_surely(&mut other, begin, &frame), Sent::Taken);
                until("a frame", || receive(&mut other, |_| {}) > 0);
            }
            is_done.store(true, Ordering::Release);
        });
        let outgoing = [frame(1, 2, 0, 0, 500), frame(1, 0, 0, 0, 100), frame(1, 9, 0, 0, 100)];
        let (mut received, mut taken) = (0, 0);
        let mut bytes = [0; 4200];
        let before = CALLS.get();
        assert!(before > 0, "joining allocates");
        // The last member may end before its frame is received.
        let is_over = |received| {
            let is_late = begin.elapsed().as_secs() >= 20;
            is_late || is_done.load(Ordering::Acquire) && received >= 30
        };
        while !is_over(received) {
            one.forget(one.take_ended());
            queue.begin(now(begin));
            received += queue.receive(32, |frame| frame.copy_to(&mut bytes) > 0);
            for frame in &outgoing {
                taken += u32::from(queue.send(frame) == Sent::Taken);
            }
            queue.flush();
            if queue.arm() {
                queue.disarm();
            }
            std::thread::yield_now();
        }
        let calls = CALLS.get() - before;
        assert_eq!(calls, 0, "{received} received, {taken} taken");
        assert!(received >= 30 && taken >= 30, "{received} received, {taken} taken");
    });
}
