use super::*;
use crate::layout::{Layout, RING_MAX};
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};
use uroce_shared::sync::Meetings;

/// The two ends of a ring, of a link between members with `queues` queues each.
fn ring(queues: u16) -> (Producer, Consumer, Arc<Memory>, Place) {
    let layout = Layout::new(queues, queues);
    let place = layout.ring(true, queues - 1);
    let (_, memory) = Memory::create(layout.len()).unwrap();
    let memory = Arc::new(memory);
    let producer = Producer::new(Arc::clone(&memory), place);
    (producer, Consumer::new(Arc::clone(&memory), place), memory, place)
}

/// A frame with bytes that tell its number.
fn frame(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number.wrapping_mul(31).wrapping_add(at as u32)) as u8).collect()
}

fn take(consumer: &mut Consumer) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(slot) = consumer.next(FRAME_MAX)? else { return Ok(None) };
    let mut bytes = vec![0; slot.len];
    consumer.memory().read(slot.at, &mut bytes);
    consumer.pass(slot);
    consumer.release();
    Ok(Some(bytes))
}

#[test]
fn frames_are_seen_when_they_are_published() {
    let (mut producer, mut consumer, ..) = ring(1);
    assert!(!producer.publish() && !consumer.has_more());
    producer.push(&frame(1, 60)).unwrap();
    assert_eq!(take(&mut consumer), Ok(None));
    assert!(producer.publish() && consumer.has_more());
    assert_eq!(take(&mut consumer), Ok(Some(frame(1, 60))));
    assert!(!consumer.has_more());
}

#[test]
fn a_full_ring_takes_nothing_until_the_receiver_has_moved() {
    let (mut producer, mut consumer, ..) = ring(1);
    let mut count = 0;
    while producer.push(&frame(count, 4000)).is_ok() {
        count += 1;
    }
    assert!(count as usize >= RING_MAX / 4032 - 1);
    producer.publish();
    assert_eq!(producer.push(&frame(0, 4000)), Err(NotPushed::Full { has_moved: false }));
    let slot = consumer.next(FRAME_MAX).unwrap().unwrap();
    consumer.pass(slot);
    assert_eq!(producer.push(&frame(0, 4000)), Err(NotPushed::Full { has_moved: false }));
    consumer.release();
    // The record that does not fit before the end needs the room of two.
    let second = producer.push(&frame(count, 4000));
    if second.is_err() {
        assert_eq!(second, Err(NotPushed::Full { has_moved: true }));
        take(&mut consumer).unwrap().unwrap();
        producer.push(&frame(count, 4000)).unwrap();
    }
}

/// Frames of random lengths in bursts of random lengths, through many rounds of the ring, from one
/// thread to another.
#[test]
fn every_frame_arrives_once_whole_and_in_order() {
    const COUNT: u32 = 60_000;
    let (mut producer, mut consumer, ..) = ring(16);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rng = Rng::with_seed(seed);
            for number in 0..COUNT {
                let frame = frame(number, rng.usize(FRAME_MIN..=4200));
                while producer.push(&frame).is_err() {
                    producer.publish();
                    std::thread::yield_now();
                }
                if rng.u8(..8) == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let mut rng = Rng::with_seed(seed);
        for number in 0..COUNT {
            let expected = frame(number, rng.usize(FRAME_MIN..=4200));
            let _burst = rng.u8(..8);
            loop {
                if let Some(bytes) = take(&mut consumer).expect("nothing is malformed") {
                    assert_eq!(bytes, expected, "frame {number}");
                    break;
                }
                std::thread::yield_now();
            }
        }
        assert_eq!(take(&mut consumer), Ok(None));
    });
}

#[test]
fn positions_that_the_other_end_cannot_have_are_malformed() {
    for tail in [64 + 1, 4, RING_MAX as u32 + 64, 0u32.wrapping_sub(64), u32::MAX, 1 << 31] {
        let (_producer, mut consumer, memory, place) = ring(1);
        memory.word(place.tail_at).store(tail, Ordering::Release);
        assert_eq!(consumer.next(FRAME_MAX).unwrap_err(), Malformed, "{tail}");
        assert_eq!(consumer.close(), Err(Malformed));
    }
    for head in [64 + 1, 128 + 64, 0u32.wrapping_sub(64), u32::MAX, 1 << 31] {
        let (mut producer, _consumer, memory, place) = ring(1);
        producer.push(&frame(0, 100)).unwrap();
        producer.publish();
        memory.word(place.head_at).store(head, Ordering::Release);
        while producer.push(&frame(0, 4000)) == Ok(()) {}
        assert_eq!(producer.push(&frame(0, 4000)), Err(NotPushed::Malformed), "{head}");
    }
    // Back is out of range too.
    let (mut producer, mut consumer, memory, place) = ring(1);
    (0..3).for_each(|number| producer.push(&frame(number, 100)).unwrap());
    producer.publish();
    assert!(consumer.has_more());
    take(&mut consumer).unwrap().unwrap();
    memory.word(place.tail_at).store(128, Ordering::Release);
    take(&mut consumer).unwrap().unwrap();
    take(&mut consumer).unwrap().unwrap();
    assert_eq!(take(&mut consumer), Err(Malformed));
}

#[test]
fn lengths_that_no_frame_has_are_malformed() {
    for len in [0, 1, FRAME_MIN as u32 - 1, FRAME_MAX as u32 + 1, WRAP, WRAP - 1, 1 << 31, 300] {
        let (mut producer, mut consumer, memory, place) = ring(1);
        producer.push(&frame(0, 100)).unwrap();
        producer.publish();
        memory.word(place.ring_at).store(len, Ordering::Release);
        assert_eq!(take(&mut consumer), Err(Malformed), "{len}");
    }
    let (mut producer, mut consumer, ..) = ring(1);
    producer.push(&frame(0, 1501)).unwrap();
    producer.publish();
    assert_eq!(consumer.next(1500).unwrap_err(), Malformed, "longer than the receiver takes");
}

#[test]
fn what_a_sender_publishes_after_its_end_is_not_read() {
    let (mut producer, mut consumer, ..) = ring(1);
    producer.push(&frame(0, 100)).unwrap();
    producer.publish();
    consumer.close().unwrap();
    producer.push(&frame(1, 100)).unwrap();
    producer.publish();
    assert_eq!(take(&mut consumer), Ok(Some(frame(0, 100))));
    assert_eq!(take(&mut consumer), Ok(None));
    assert!(!consumer.has_more());
}

/// Another process writes whatever it likes to the memory, all the time. Both ends go on without a
/// panic or an endless loop, and each frame that is given is inside of the ring.
#[test]
fn any_contents_cost_the_link_and_nothing_else() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut malformed = 0;
    let mut rng = Rng::with_seed(seed);
    for _ in 0..60 {
        let (mut producer, mut consumer, memory, place) = ring(16);
        let (is_done, written) = (AtomicBool::new(false), Meetings::default());
        let mutation = rng.u64(..);
        std::thread::scope(|scope| {
            scope.spawn(|| scribble(&memory, place, mutation, &is_done, &written));
            for number in 0..3000 {
                let len = rng.usize(FRAME_MIN..=2000);
                let pushed = producer.push(&frame(number, len));
                producer.publish();
                // On a busy machine the other thread may run only while this one waits.
                if number % 100 == 0 {
                    written.wait();
                }
                let taken = consumer.next(2000);
                if let Ok(Some(slot)) = taken {
                    assert!(slot.at >= place.ring_at && slot.len <= 2000);
                    assert!(slot.at + slot.len <= place.ring_at + place.ring_len);
                    consumer.memory().read(slot.at, &mut vec![0; slot.len]);
                    consumer.pass(slot);
                    consumer.release();
                }
                if pushed == Err(NotPushed::Malformed) || taken.is_err() {
                    malformed += 1;
                    break;
                }
            }
            is_done.store(true, StdOrdering::Release);
        });
    }
    assert!(malformed > 0, "seed {seed}: no mutation was noticed");
}

/// Notes in `written` each word that it has written.
fn scribble(memory: &Memory, place: Place, seed: u64, is_done: &AtomicBool, written: &Meetings) {
    let mut rng = Rng::with_seed(seed);
    while !is_done.load(StdOrdering::Acquire) {
        let value = match rng.u8(..6) {
            0 => WRAP,
            1 => rng.u32(..32) * 64,
            2 => rng.u32(..2100),
            3 => 1 << rng.u32(..32),
            4 => memory.word(place.tail_at).load(Ordering::Relaxed).wrapping_add(64),
            _ => rng.u32(..),
        };
        let at = match rng.u16(..512) {
            0 => place.tail_at,
            1 => place.head_at,
            _ => place.ring_at + rng.usize(..place.ring_len / 64) * 64,
        };
        memory.word(at).store(value, Ordering::Relaxed);
        written.note();
    }
}
