//! Hostile input to UC and UD.
//!
//! For any packet: no panic; no answer; no byte changes except where access is granted; receives
//! complete at most once and in order, and on UC only with whole messages.

use fastrand::Rng;
use uroce_sim::{Crafted, Mr, Pair};
use uroce_transport::{AccessFlags, Pd, QpState, QpType, Side, WcOpcode, WcStatus};
use uroce_wire::{OpCode, Qkey, Rkey, Va};

/// The hostile end, and the end under attack.
const A: usize = 0;
const B: usize = 1;

/// Number of attacks of each kind, and of packets of each attack.
const SIEGES: u64 = if cfg!(debug_assertions) { 40 } else { 400 };
const PACKETS: u32 = 150;

/// A QP of this type under attack, and memory without access next to its accessible region.
fn siege(qp_type: QpType, uses_srq: bool) -> (Pair, Mr, Vec<u64>) {
    let mut pair = Pair::with(|terms| {
        terms.qp_type = qp_type;
        terms.half[B].srq = uses_srq.then_some(Pd(1));
    });
    let memory = &mut pair.world.node_mut(B as u16).memory;
    let rights = AccessFlags::LOCAL_WRITE;
    let closed = memory.register(Pd(1), rights, 0x7000_0004_0000, 78, vec![0x33; 256]);
    // Every third receive is shorter than many packets.
    let recvs = (0..30).map(|at| match (if at % 3 == 2 { 150 } else { 700 }, uses_srq) {
        (len, true) => pair.shared_recv(B, len),
        (len, false) => pair.recv(B, len),
    });
    let recvs = recvs.collect();
    (pair, closed, recvs)
}

/// A packet of the service, about half of them valid; `psn` counts from the first packet.
fn packet(pair: &Pair, rng: &mut Rng, qp_type: QpType, psn: u32) -> Crafted {
    let opcode = match qp_type {
        QpType::Ud => rng.u8(0x64..=0x65),
        _ => rng.u8(0x20..=0x2b),
    };
    let len = match opcode & 0x1f {
        // First and Middle are full, most often.
        0x00 | 0x01 | 0x06 | 0x07 if rng.u8(..8) > 0 => 256,
        _ => *rng.choice(&[0, 1, 8, 100, 255, 256, 257, 900]).expect("one of them"),
    };
    let psn = if rng.u8(..6) > 0 { psn } else { rng.u32(..) };
    let packet = pair.craft(A, OpCode(opcode)).psn(pair.psn(A, psn)).payload(&vec![9; len]);
    packet.ext(|ext| {
        ext.reth.dma_len = *rng.choice(&[0, len as u32, 256 + 8, 512, 700, u32::MAX]).expect("one");
        match rng.u8(..12) {
            0 => ext.reth.rkey = Rkey(rng.u32(..)),
            1 => ext.reth.va = Va(ext.reth.va.0.wrapping_add(rng.u64(..))),
            2 => ext.reth.va = Va(0x7000_0004_0000 - rng.u64(..600)),
            3 => ext.deth.qkey = Qkey(rng.u32(..)),
            _ => {}
        }
    })
}

#[test] //= check L1 test
fn packets_of_any_kind_are_dropped_or_taken_whole() {
    let mut taken = [0, 0];
    for (kind, qp_type) in [QpType::Uc, QpType::Ud].into_iter().enumerate() {
        for seed in 0..SIEGES {
            let mut rng = Rng::with_seed(seed);
            let (mut pair, closed, recvs) = siege(qp_type, seed % 2 == 0);
            let before = pair.bytes(B, pair.local(B))[..pair.inbox() as usize].to_vec();
            for number in 0..PACKETS {
                let packet = packet(&pair, &mut rng, qp_type, number);
                pair.deliver(A, &packet);
            }
            pair.run();
            assert_eq!(pair.seen(B), [], "nothing is answered");
            assert_eq!(pair.qp(B).state(), QpState::Rts, "seed {seed}");
            assert!(pair.bytes(B, closed).iter().all(|byte| *byte == 0x33), "seed {seed}");
            assert_eq!(pair.bytes(B, pair.local(B))[..before.len()], before, "seed {seed}");
            taken[kind] += check_completions(&mut pair, &recvs, qp_type);
        }
    }
    assert!(taken.iter().all(|taken| *taken > 100), "the attack gets somewhere: {taken:?}");
}

/// Asserts that receives completed in the order of posting, without an error, and with lengths that
/// messages can have. Returns how many completed.
fn check_completions(pair: &mut Pair, recvs: &[u64], qp_type: QpType) -> usize {
    let cqes = pair.take(B, Side::Recv);
    let done: Vec<u64> = cqes.iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(done, recvs[..done.len()]);
    for (at, cqe) in cqes.iter().enumerate() {
        let room = if at % 3 == 2 { 150 } else { 700 };
        let fits = match qp_type {
            QpType::Ud => (40..=296.min(room)).contains(&cqe.byte_len) && cqe.grh.is_some(),
            // A WRITE with immediate data does not write to the memory of its receive.
            _ => (cqe.byte_len <= room || cqe.opcode != WcOpcode::Recv) && cqe.grh.is_none(),
        };
        assert!(fits && cqe.status == WcStatus::Success, "{cqe:?}");
    }
    cqes.len()
}
