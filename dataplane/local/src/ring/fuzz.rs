//! Fuzz target: two ends of a ring that keep to the rules, and a third process that writes to it.
//!
//! Until the third one has written, each frame arrives once, whole and in order, and nothing is
//! malformed. Afterwards only what is true of any contents has to hold: no panic, no frame outside
//! of the ring, and nothing written outside of it.

use super::*;
use std::collections::VecDeque;
use uroce_fuzz::{Input, Target};

const PLACE: Place = Place { tail_at: 0, head_at: LINE, ring_at: 4096, ring_len: 4096 };
/// Longest frame: two fit into the ring, as in a link.
const LONGEST: usize = 1900;
const MEMORY: usize = 3 * 4096;

fn frame(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number.wrapping_mul(31).wrapping_add(at as u8)).collect()
}

/// A word's place and value that the third process writes.
fn written(input: &mut Input<'_>, memory: &Memory) -> (usize, u32) {
    let at = match input.below(4) {
        0 => PLACE.tail_at,
        1 => PLACE.head_at,
        _ => PLACE.ring_at + input.below(PLACE.ring_len / LINE) * LINE,
    };
    let value = match input.below(5) {
        0 => WRAP,
        1 => u32::from(input.u8()) * LINE as u32,
        2 => u32::from(input.u16()),
        3 => input.u32(),
        _ => memory.word(at).load(Ordering::Relaxed).wrapping_add(LINE as u32),
    };
    (at, value)
}

fn run(input: &mut Input<'_>) {
    let (_, memory) = Memory::create(MEMORY).expect("memory");
    let memory = Arc::new(memory);
    let mut producer = Producer::new(Arc::clone(&memory), PLACE);
    let mut consumer = Consumer::new(Arc::clone(&memory), PLACE);
    let (mut under_way, mut number, mut is_tampered) = (VecDeque::new(), 0u8, false);
    while !input.is_empty() {
        match input.below(8) {
            0..=2 => {
                let len = FRAME_MIN + usize::from(input.u16()) % (LONGEST - FRAME_MIN + 1);
                match producer.push(&frame(number, len)) {
                    Ok(()) => {
                        under_way.push_back((number, len));
                        number = number.wrapping_add(1);
                    }
                    Err(NotPushed::Full { .. }) => input.reach(1, 0),
                    Err(NotPushed::Malformed) => {
                        assert!(is_tampered, "a sound ring is malformed");
                        return input.reach(2, 0);
                    }
                }
            }
            3 => drop(producer.publish()),
            4 => consumer.release(),
            5 | 6 => match consumer.next(LONGEST) {
                Ok(None) => {}
                Ok(Some(slot)) => {
                    assert!(slot.at >= PLACE.ring_at + HEADER && slot.len <= LONGEST);
                    assert!(slot.at + slot.len <= PLACE.ring_at + PLACE.ring_len);
                    let mut bytes = vec![0; slot.len];
                    memory.read(slot.at, &mut bytes);
                    consumer.pass(slot);
                    if !is_tampered {
                        let (number, len) = under_way.pop_front().expect("it was sent");
                        assert_eq!(bytes, frame(number, len));
                        input.reach(3, (slot.at / LINE) as u32);
                    }
                }
                Err(Malformed) => {
                    assert!(is_tampered, "a sound ring is malformed");
                    return input.reach(4, 0);
                }
            },
            _ => {
                let (at, value) = written(input, &memory);
                memory.word(at).store(value, Ordering::Relaxed);
                is_tampered = true;
            }
        }
    }
    for guard in (2 * LINE..PLACE.ring_at).chain(PLACE.ring_at + PLACE.ring_len..MEMORY).step_by(4)
    {
        assert_eq!(memory.word(guard).load(Ordering::Relaxed), 0, "outside of the ring");
    }
}

/// Rounds of a ring, sound and with one word written.
fn seeds() -> Vec<Vec<u8>> {
    let round = [0, 7, 88, 3, 5, 4];
    let sound = round.repeat(12);
    let with = |write: &[u8]| {
        let parts: [&[u8]; 4] = [&round.repeat(3), &[0, 7, 88, 3], write, &round.repeat(2)];
        parts.concat()
    };
    vec![sound, with(&[7, 0, 1, 3]), with(&[7, 1, 3, 0, 0, 0, 64]), with(&[7, 2, 0, 0])]
}

#[test]
fn any_contents_are_frames_or_malformed() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    uroce_fuzz::fuzz(&Target { name: "ring", corpus, run, seeds });
}
