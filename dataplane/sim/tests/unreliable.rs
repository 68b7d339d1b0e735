//! UC, UD and shared receive queues under random faults: messages arrive whole, and a missing
//! message is explained.
//!
//! Each message has its number in its first bytes, and its other bytes follow from the number. A
//! message may be received only if it was sent, and only as a whole. It may be received twice only
//! if frames were duplicated, which these services cannot detect. It may be missing only if frames
//! were lost, damaged or out of order, or a receive was missing.

use core::time::Duration;
use std::collections::BTreeMap;

use fastrand::Rng;
use uroce_sim::{At, FaultCounts, Pair, Rates, Terms};
use uroce_transport::{Cqe, Pd, QpType, SendOp, Side, WcStatus};
use uroce_wire::{ImmDt, Psn};

const A: usize = 0;
const B: usize = 1;
const MTU: u32 = 256;

/// Number of messages of a run; each has a place of its own at both ends.
const MESSAGES: u32 = 150;

/// Length of a place, in bytes.
const STRIDE: u32 = 1400;

/// Length of the GRH area before a datagram's payload, in bytes.
const GRH: u32 = 40;

fn content(message: u32, len: u32) -> Vec<u8> {
    let rest = (4..len).map(|at| (message.wrapping_mul(31).wrapping_add(at * 7) >> 2) as u8);
    message.to_le_bytes().into_iter().chain(rest).collect()
}

/// Writes the content of a message to its place at the sending end.
fn place(pair: &mut Pair, message: u32, len: u32) {
    let (mr, start) = (pair.local(A), (message * STRIDE) as usize);
    pair.bytes_mut(A, mr)[start..start + len as usize].copy_from_slice(&content(message, len));
}

/// Result of a run: the length of each message, and how often each was received.
struct Run {
    lens: Vec<u32>,
    received: BTreeMap<u32, u32>,
    faults: FaultCounts,
}

/// Sends messages from A to B on a lossy link and checks all that is received.
fn run(qp_type: QpType, seed: u64, rates: Rates, receives: u32) -> Run {
    let mut rng = Rng::with_seed(seed);
    let mut pair = Pair::with(|terms: &mut Terms| {
        terms.qp_type = qp_type;
        terms.is_tapped = true;
        terms.is_recorded = false;
        terms.settings.seed = seed;
        terms.half[A].sq_psn = Psn::new(0).minus(rng.u32(..60));
    });
    pair.world.set_rates(A as u16, B as u16, rates);
    let to = pair.local(B);
    let wr_ids: Vec<u64> =
        (0..receives).map(|at| pair.post_recv(B, &[to.sge(at * STRIDE, STRIDE - 8)])).collect();
    let longest = if qp_type == QpType::Ud { MTU } else { 5 * MTU };
    let lens: Vec<u32> = (0..MESSAGES).map(|_| rng.u32(8..=longest)).collect();
    for (message, len) in (0..).zip(&lens) {
        place(&mut pair, message, *len);
        let op = match qp_type {
            QpType::Ud => pair.send_to_op(A, Some(message)),
            _ => SendOp::Send { imm: Some(ImmDt(message)) },
        };
        pair.post(A, op, &[pair.local(A).sge(message * STRIDE, *len)]);
        pair.run_for(Duration::from_nanos(rng.u64(..3_000)));
    }
    pair.run();
    assert_eq!(pair.world.take_flaw(), None, "seed {seed}");
    let sent = pair.take(A, Side::Send);
    assert_eq!(sent.len() as u32, MESSAGES, "seed {seed}");
    assert!(sent.iter().all(|cqe| cqe.status == WcStatus::Success), "seed {seed}");

    let mut received = BTreeMap::new();
    let cqes = pair.take(B, Side::Recv);
    for (at, (cqe, wr_id)) in (0..).zip(cqes.iter().zip(&wr_ids)) {
        assert_eq!((cqe.wr_id, cqe.status), (*wr_id, WcStatus::Success), "seed {seed}");
        let message = check(&pair, cqe, at * STRIDE, &lens, seed);
        *received.entry(message).or_insert(0) += 1;
    }
    Run { lens, received, faults: pair.world.faults() }
}

/// Returns the number of the received message, and asserts that it is whole.
fn check(pair: &Pair, cqe: &Cqe, start: u32, lens: &[u32], seed: u64) -> u32 {
    let header = if pair.qp(B).qp_type() == QpType::Ud { GRH } else { 0 };
    let message = cqe.imm.expect("every message has immediate data").0;
    let len = lens[message as usize];
    assert_eq!((cqe.byte_len, cqe.grh.is_some()), (header + len, header > 0), "seed {seed}");
    if header > 0 {
        assert_eq!(cqe.src_qpn, pair.qpn(A), "seed {seed}");
        let area = pair.slice(B, pair.local(B), start, header);
        assert_eq!((&area[..20], area[20]), (&[0; 20][..], 0x45), "seed {seed}");
        assert_eq!(area[32..36], [10, 0, 0, 1], "seed {seed}");
    }
    let bytes = pair.slice(B, pair.local(B), start + header, len);
    assert_eq!(bytes, content(message, len), "seed {seed}, message {message}");
    message
}

/// Runs a service on links of all kinds.
fn sweep(qp_type: QpType, seeds: core::ops::Range<u64>) {
    let (mut lost, mut doubled) = (0, 0);
    for seed in seeds {
        let mut rng = Rng::with_seed(!seed);
        let rates = if seed % 8 == 0 { Rates::NONE } else { Rates::swarm(&mut rng) };
        let receives = if seed % 5 == 1 { MESSAGES / 2 } else { MESSAGES };
        let Run { lens, received, faults } = run(qp_type, seed, rates, receives);
        let count = received.values().sum::<u32>();
        let is_explained = faults.total() > 0 || count == receives;
        assert!(received.len() == lens.len() || is_explained, "seed {seed}: {received:?}");
        let most = received.values().max().copied().unwrap_or(0);
        assert!(most <= 1 + u32::from(faults.duplicated > 0), "seed {seed}: {received:?}");
        lost += lens.len() - received.len();
        doubled += u32::from(most > 1);
    }
    assert!(lost > 100 && doubled > 0, "{lost} {doubled}: the links are too good");
}

#[test]
fn uc_messages_arrive_whole_or_not_at_all() {
    sweep(QpType::Uc, 0..200);
}

#[test]
fn datagrams_arrive_whole_or_not_at_all() {
    sweep(QpType::Ud, 0..200);
}

#[test]
fn on_perfect_links_everything_arrives_once_and_in_order() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let run = run(qp_type, 7, Rates::NONE, MESSAGES);
        assert!(run.received.values().all(|times| *times == 1));
        assert_eq!(run.received.len() as u32, MESSAGES);
    }
}

#[test]
fn each_receive_of_a_shared_queue_is_taken_once() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut pair = Pair::with(|terms: &mut Terms| {
            terms.half[B].srq = Some(Pd(1));
            terms.is_tapped = true;
            terms.is_recorded = false;
            terms.settings.seed = seed;
        });
        let more = pair.another();
        let senders: [At; 2] = [pair.at(A), more[A]];
        pair.world.set_rates(A as u16, B as u16, Rates::swarm(&mut rng));
        pair.world.set_rates(B as u16, A as u16, Rates::swarm(&mut rng));
        let mut wr_ids = Vec::new();
        for message in 0..MESSAGES {
            let len = rng.u32(8..=3 * MTU);
            place(&mut pair, message, len);
            let wr = pair.send_wr(SendOp::Send { imm: Some(ImmDt(message)) });
            let sge = pair.local(A).sge(message * STRIDE, len);
            let from = senders[message as usize % 2];
            pair.world.post_send(from, &wr, &[sge]).expect("room");
            // Some receives are posted late: the responder sends RNR NAKs, and the requester waits.
            wr_ids.push(pair.shared_recv(B, STRIDE));
            pair.run_for(Duration::from_nanos(rng.u64(..3_000)));
        }
        pair.run();
        assert_eq!(pair.world.take_flaw(), None, "seed {seed}");
        let mut cqes = pair.take(B, Side::Recv);
        cqes.extend(pair.take_at(more[B], Side::Recv));
        let mut taken: Vec<u64> = cqes.iter().map(|cqe| cqe.wr_id).collect();
        let mut messages: Vec<u32> = cqes.iter().filter_map(|cqe| Some(cqe.imm?.0)).collect();
        taken.sort_unstable();
        messages.sort_unstable();
        assert_eq!(taken, wr_ids, "seed {seed}");
        assert!(messages.into_iter().eq(0..MESSAGES), "seed {seed}");
    }
}
