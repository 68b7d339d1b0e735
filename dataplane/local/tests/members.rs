//! Members in one process: frames between them, links, groups, sleep.

mod common;

use common::*;
use std::time::{Duration, Instant};
use uroce_local::{Member, Queue, Sent, mac_of, number_of};

/// Sends `count` frames to each other member and receives as many of each, in order.
fn exchange(member: &Member, queue: &mut Queue, others: &[u8], count: u32) {
    let begin = Instant::now();
    let own = member.number();
    let mut rng = fastrand::Rng::with_seed(u64::from(own));
    let mut sent = vec![0; 65];
    let mut received = vec![0; 65];
    let mut bytes = 0;
    while others
        .iter()
        .any(|&at| sent[usize::from(at)] < count || received[usize::from(at)] < count)
    {
        assert!(begin.elapsed() < Duration::from_secs(60), "{own}: {sent:?} {received:?}");
        queue.begin(now(begin));
        let got = receive(queue, |told| {
            assert_eq!(told.to, own);
            assert_eq!(told.number, received[usize::from(told.from)], "from {}", told.from);
            received[usize::from(told.from)] += 1;
        });
        let mut has_sent = false;
        for &to in others {
            for _ in 0..8 {
                let number = sent[usize::from(to)];
                if number == count {
                    break;
                }
                let frame = frame(own, to, 0, number, rng.usize(SHORTEST..=4200));
                match queue.send(&frame) {
                    Sent::Taken => sent[usize::from(to)] += 1,
                    Sent::Full => break,
                    Sent::Lost => panic!("{own}: a frame to {to} is lost: {:?}", queue.counters()),
                }
                bytes += frame.len() as u64;
                has_sent = true;
            }
        }
        queue.flush();
        if got == 0 && !has_sent {
            std::thread::yield_now();
        }
    }
    let counters = queue.counters();
    let total = u64::from(count) * others.len() as u64;
    assert_eq!((counters.tx_frames, counters.rx_frames), (total, total));
    assert_eq!(counters.tx_bytes, bytes);
    assert_eq!((counters.tx_stuck, counters.tx_no_member, counters.malformed), (0, 0, 0));
}

fn exchange_among(count: u8, frames: u32) {
    let scratch = Scratch::new();
    let members: Vec<_> = (0..count).map(|_| join(scratch.path())).collect();
    let numbers: Vec<_> = members.iter().map(Member::number).collect();
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
    let barrier = std::sync::Barrier::new(usize::from(count));
    std::thread::scope(|scope| {
        for member in &members {
            let (barrier, numbers) = (&barrier, &numbers);
            scope.spawn(move || {
                let mut queue = member.queue(0).unwrap();
                let own = member.number();
                let others: Vec<_> = numbers.iter().copied().filter(|&at| at != own).collect();
                // All begin at once, so connections cross.
                barrier.wait();
                exchange(member, &mut queue, &others, frames);
            });
        }
    });
    for member in &members {
        assert_eq!(member.linked().count_ones(), u32::from(count) - 1);
        assert_eq!(member.take_ended(), 0);
    }
}

#[test]
fn two_members_exchange_frames() {
    exchange_among(2, 30_000);
}

#[test]
fn eight_members_exchange_frames() {
    exchange_among(8, 1500);
}

#[test]
fn addresses_tell_numbers() {
    assert_eq!(mac_of(7).to_string(), "02:75:72:6f:63:07");
    assert_eq!(number_of(mac_of(64)), Some(64));
    assert_eq!([mac_of(0), mac_of(65), mac_of(255)].map(number_of), [None; 3]);
}
