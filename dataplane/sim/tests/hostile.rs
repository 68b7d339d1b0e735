//! Hostile input: a QP in each state, and packets that no correct peer would send.
//!
//! For any packet: no panic; no byte changes except where access is granted to the sender; work
//! requests complete at most once and in order. These are Z1 to Z3 of the fuzz targets, as seeded
//! loops.

use core::time::Duration;

use fastrand::Rng;
use uroce_sim::{Crafted, Mr, Pair};
use uroce_transport::{AccessFlags, Pd, QpChange, QpState, SendOp, Side};
use uroce_wire::{NakCode, OpCode, PayloadRule, Pkey, Psn, Rkey, Syndrome, Va};

/// The hostile end.
const A: usize = 0;

/// The end under attack.
const B: usize = 1;

/// State of the QP under attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    State(QpState),
    /// In RTS, in the middle of receiving a SEND.
    MidSend,
    MidWrite,
    /// In RTS, with requests of all kinds outstanding.
    Asking,
    /// In RTS, waiting for the sink.
    Blocked,
}

const STANDS: [Stand; 10] = [
    Stand::State(QpState::Reset),
    Stand::State(QpState::Init),
    Stand::State(QpState::Rtr),
    Stand::State(QpState::Rts),
    Stand::State(QpState::Sqd),
    Stand::State(QpState::Err),
    Stand::MidSend,
    Stand::MidWrite,
    Stand::Asking,
    Stand::Blocked,
];

/// A pair under attack, and its state that must not change.
struct Siege {
    pair: Pair,
    /// A region that grants peers no access; `holds` is its content.
    closed: Mr,
    holds: Vec<u8>,
    /// Offsets of the local region at which answers and messages may be written.
    landing: std::ops::Range<usize>,
    local: Vec<u8>,
    /// Numbers of the work requests posted at B, in order.
    sends: Vec<u64>,
    recvs: Vec<u64>,
}

impl Siege {
    /// A siege; if `is_selective`, of a QP with selective repeat.
    fn new(stand: Stand, is_selective: bool) -> Siege {
        let mut pair = Pair::reset(|terms| {
            terms.selective_repeat = is_selective;
            terms.half[B].max_dest_rd_atomic = 4;
            terms.half[B].rnr_retry = 1;
            terms.half[B].retry_cnt = 1;
        });
        let holds: Vec<u8> = (0..=255).collect();
        let memory = &mut pair.world.node_mut(1).memory;
        let rights = AccessFlags::LOCAL_WRITE;
        // Right after the accessible region, and with the next key.
        let closed = memory.register(Pd(1), rights, 0x7000_0004_0000, 78, holds.clone());
        let local = pair.bytes(B, pair.local(B)).to_vec();
        let landing = local.len() / 2..local.len();
        let mut siege =
            Siege { pair, closed, holds, landing, local, sends: Vec::new(), recvs: Vec::new() };
        siege.take_stand(stand);
        siege
    }

    fn take_stand(&mut self, stand: Stand) {
        let pair = &mut self.pair;
        match stand {
            Stand::State(state @ (QpState::Reset | QpState::Init | QpState::Rtr)) => {
                pair.bring_to(B, state);
            }
            Stand::State(QpState::Err) => {
                pair.bring_to(B, QpState::Rts);
                pair.world.fail(pair.at(B));
            }
            Stand::State(state) => {
                pair.bring_to(B, QpState::Rts);
                if state != QpState::Rts {
                    pair.world.modify(pair.at(B), &QpChange::to(state)).unwrap();
                }
            }
            _ => pair.bring_to(B, QpState::Rts),
        }
        if stand != Stand::State(QpState::Reset) {
            self.recvs.extend((0..20).map(|_| self.pair.recv(B, 700)));
        }
        match stand {
            Stand::MidSend => self.deliver_first(OpCode::RC_SEND_FIRST),
            Stand::MidWrite => self.deliver_first(OpCode::RC_RDMA_WRITE_FIRST),
            Stand::Asking => self.ask(),
            Stand::Blocked => self.pair.world.set_full_rate(0.9),
            Stand::State(_) => {}
        }
    }

    fn deliver_first(&mut self, opcode: OpCode) {
        let packet = self.pair.craft(A, opcode).payload(&[1; 256]);
        self.pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = 2000));
    }

    fn ask(&mut self) {
        // End A is in RESET, so it answers nothing by itself.
        for _ in 0..3 {
            let more = [
                self.pair.send(B, 600),
                self.pair.read(B, 700),
                self.pair.write(B, 600),
                self.pair.fetch_add(B, 1),
                self.pair.compare_swap(B, 1, 2),
            ];
            self.sends.extend(more);
        }
        self.pair.post_wr(B, SendOp::Send { imm: None }, &[], false);
    }

    /// The PSN that the end under attack expects next, according to its last answer.
    fn expected(&self) -> Option<Psn> {
        let answer = self.pair.responses(B).pop()?;
        Some(match answer.ext.aeth.syndrome {
            Syndrome::Ack { .. } => answer.bth.psn.next(),
            _ => answer.bth.psn,
        })
    }

    #[track_caller]
    fn check(&mut self, packet: &dyn std::fmt::Debug) {
        let pair = &self.pair;
        assert_eq!(pair.bytes(B, self.closed), self.holds, "{packet:?}");
        let local = pair.bytes(B, pair.local(B));
        assert_eq!(local[..self.landing.start], self.local[..self.landing.start], "{packet:?}");
        let mut done = [self.pair.take(B, Side::Send), self.pair.take(B, Side::Recv)];
        // The last send is not signalled; it may complete flushed.
        for (cqes, posted) in done.iter_mut().zip([&mut self.sends, &mut self.recvs]) {
            for cqe in cqes.drain(..) {
                let known = posted.first() == Some(&cqe.wr_id);
                let is_unsignaled =
                    posted.is_empty() && cqe.opcode == uroce_transport::WcOpcode::Send;
                assert!(known || is_unsignaled, "{cqe:?} after {packet:?}");
                if known {
                    posted.remove(0);
                }
            }
        }
    }
}

/// A valid packet, to make progress between the others.
fn honest_packet(siege: &Siege, rng: &mut Rng, stand: Stand, expected: Psn) -> Crafted {
    use OpCode as O;
    let only = [
        O::RC_SEND_ONLY,
        O::RC_SEND_ONLY_WITH_IMMEDIATE,
        O::RC_RDMA_WRITE_ONLY,
        O::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        O::RC_RDMA_READ_REQUEST,
        O::RC_COMPARE_SWAP,
        O::RC_FETCH_ADD,
    ];
    let opcode = match stand {
        Stand::MidSend if rng.bool() => O::RC_SEND_LAST,
        Stand::MidWrite if rng.bool() => O::RC_RDMA_WRITE_MIDDLE,
        _ => *rng.choice(&only).unwrap(),
    };
    let packet = siege.pair.craft(A, opcode).psn(expected);
    let is_data = opcode.info().unwrap().payload != PayloadRule::Empty;
    let is_middle = opcode == O::RC_RDMA_WRITE_MIDDLE;
    let len = if is_middle { 256 } else { usize::from(is_data) * rng.usize(1..200) };
    packet.payload(&vec![3; len]).ext(|ext| ext.reth.dma_len = len as u32)
}

/// A packet with headers that are each right, nearly right or random.
fn packet(siege: &Siege, rng: &mut Rng, expected: Psn) -> Crafted {
    let opcode = loop {
        // Mostly RC's.
        let opcode = OpCode(if rng.u8(..8) > 0 { rng.u8(..0x18) } else { rng.u8(..) });
        if opcode.info().is_some() {
            break opcode;
        }
    };
    let mut packet = siege.pair.craft(A, opcode);
    packet.bth.psn = match rng.u8(..8) {
        0 => Psn::new(rng.u32(..)),
        1 => expected.plus(rng.u32(..20)),
        2 => expected.minus(rng.u32(..20)),
        _ => expected,
    };
    packet.bth.ack_req = rng.bool();
    packet.bth.solicited = rng.bool();
    packet.bth.mig_req = rng.bool();
    if rng.u8(..16) == 0 {
        packet.bth.pkey = Pkey(rng.u16(..));
    }
    let len = match rng.u8(..8) {
        0 => 0,
        1 => rng.usize(..1500),
        2 => rng.usize(..300),
        _ => 256,
    };
    packet.payload = vec![rng.u8(..); len];
    if opcode.info().is_some_and(|op| op.payload == PayloadRule::Empty) && rng.u8(..16) > 0 {
        packet.payload.clear();
    }
    packet.keeps_pad = rng.u8(..16) == 0;
    packet.bth.pad_count = rng.u8(..4);
    fill_ext(&mut packet, siege, rng);
    packet
}

fn fill_ext(packet: &mut Crafted, siege: &Siege, rng: &mut Rng) {
    let open = siege.pair.remote(B);
    let edge = u64::from(open.len());
    let offset = match rng.u8(..8) {
        0 => edge.wrapping_sub(rng.u64(..600)),
        1 => 0_u64.wrapping_sub(rng.u64(..600)),
        2 => rng.u64(..),
        3 => edge,
        _ => rng.u64(..edge) & !7,
    };
    let va = if rng.u8(..16) == 0 { Va(u64::MAX - rng.u64(..300)) } else { open.va(offset) };
    let rkey = match rng.u8(..8) {
        0 => siege.closed.rkey(),
        1 => Rkey(rng.u32(..)),
        _ => open.rkey(),
    };
    packet.ext.reth.va = va;
    packet.ext.reth.rkey = rkey;
    packet.ext.reth.dma_len = match rng.u8(..8) {
        0 => rng.u32(..),
        1 => 0,
        2 => rng.u32(..5000),
        3 => u32::MAX,
        _ => packet.payload.len() as u32,
    };
    packet.ext.atomic.va = va;
    packet.ext.atomic.rkey = rkey;
    packet.ext.atomic.swap_add = rng.u64(..);
    packet.ext.atomic.compare = rng.u64(..);
    packet.ext.atomic_ack.original = rng.u64(..);
    packet.ext.imm.0 = rng.u32(..);
    packet.ext.ieth.rkey = rkey;
    packet.ext.aeth.syndrome = match rng.u8(..8) {
        0 => Syndrome::from_byte(rng.u8(..)),
        1 => Syndrome::RnrNak { timer: rng.u8(..32) },
        2 => Syndrome::Nak(NakCode::PsnSequenceError),
        _ => Syndrome::UNLIMITED,
    };
}

/// The bitmap of a selective acknowledgement: dense, sparse, or with a few PSNs from the start.
fn bitmap(rng: &mut Rng) -> Vec<u8> {
    let mut bitmap = vec![0; 8 * rng.usize(1..=32)];
    match rng.u8(..4) {
        0 => rng.fill(&mut bitmap),
        1 => bitmap.fill(0xff),
        2 => {
            let at = rng.usize(..bitmap.len());
            bitmap[at] = 1 << rng.u8(..8);
        }
        _ => bitmap[..2].copy_from_slice(&(rng.u16(..) & 0xfffe).to_le_bytes()),
    }
    bitmap
}

/// Number of sieges of each kind; together each opcode comes often in each state.
const SIEGES: u64 = 60;

/// Number of packets of each siege.
const PACKETS: usize = 60;

/// Number of requests that the QP under attack has served; without any an attack proves little.
fn served(siege: &Siege) -> u64 {
    use uroce_transport::Counter as C;
    [C::RecvMessages, C::WriteRequests, C::ReadRequests, C::AtomicRequests]
        .map(|counter| siege.pair.count(B, counter))
        .iter()
        .sum()
}

#[test]
fn structured_packets_in_any_state_touch_nothing_that_is_not_granted() {
    let mut total = 0;
    for stand in STANDS {
        for seed in 0..SIEGES {
            let mut rng = Rng::with_seed(seed);
            let mut siege = Siege::new(stand, seed % 2 == 1);
            let mut expected = siege.pair.psn(A, 0);
            for _ in 0..PACKETS {
                // Requests follow the PSN that the QP expects, responses the PSNs that it has sent.
                let is_answer = stand == Stand::Asking && rng.bool();
                let base = if is_answer { siege.pair.psn(B, rng.u32(..40)) } else { expected };
                let packet = if rng.u8(..4) > 0 && !is_answer {
                    honest_packet(&siege, &mut rng, stand, base)
                } else {
                    packet(&siege, &mut rng, base)
                };
                siege.pair.deliver(A, &packet);
                if rng.u8(..8) == 0 {
                    siege.pair.run_for(Duration::from_micros(rng.u64(..1500)));
                }
                siege.check(&packet);
                expected = siege.expected().unwrap_or(expected);
                siege.pair.world.record_mut().unwrap().clear();
            }
            total += served(&siege);
        }
    }
    assert!(total > 1000, "the attack gets somewhere: {total}");
}

#[test]
fn answers_to_everything_outstanding_complete_each_request_at_most_once() {
    let mut completed = 0;
    for seed in 0..20 * SIEGES {
        let mut rng = Rng::with_seed(seed);
        let is_selective = seed % 2 == 1;
        let mut siege = Siege::new(Stand::Asking, is_selective);
        let posted = siege.sends.len();
        let mut next = 0;
        for _ in 0..PACKETS {
            let base = siege.pair.psn(B, next);
            let mut answer = packet(&siege, &mut rng, base);
            // Mostly the right kind of answer, so that there is progress.
            if rng.u8(..8) > 0 {
                answer.bth.opcode = OpCode(rng.u8(0x0d..=0x12));
                answer.payload.clear();
            }
            if is_selective && rng.u8(..4) == 0 {
                answer.bth.opcode = OpCode::RC_SELECTIVE_ACKNOWLEDGE;
                answer.payload = bitmap(&mut rng);
            }
            siege.pair.deliver(A, &answer);
            siege.check(&answer);
            next += u32::from(rng.u8(..3) == 0);
        }
        completed += posted - siege.sends.len();
    }
    assert!(completed > 1000, "the attack gets somewhere: {completed}");
}

#[test]
fn bytes_of_any_kind_are_dropped_or_served() {
    for stand in STANDS {
        for seed in 0..SIEGES {
            let mut rng = Rng::with_seed(seed);
            let mut siege = Siege::new(stand, seed % 2 == 1);
            let expected = siege.pair.psn(A, 0);
            for _ in 0..PACKETS {
                let packet = packet(&siege, &mut rng, expected);
                let mut frame = siege.pair.frame(A, &packet);
                match rng.u8(..4) {
                    0 => frame.truncate(rng.usize(..frame.len())),
                    1 => frame.extend((0..rng.usize(..100)).map(|_| rng.u8(..))),
                    2 => rng.fill(&mut frame[14..]),
                    _ => {
                        // Replaces one byte anywhere, and corrects the ICRC.
                        let at = rng.usize(..frame.len());
                        frame[at] = rng.u8(..);
                        let l3 = &mut frame[14..];
                        let _ = uroce_wire::seal(l3);
                    }
                }
                siege.pair.deliver_frame(A, frame);
                siege.check(&packet);
                siege.pair.world.record_mut().unwrap().clear();
            }
        }
    }
}

#[test] //= check E20 test
fn every_opcode_has_an_answer_in_every_state() {
    for stand in STANDS {
        for opcode in (0..=255).map(OpCode).filter(|opcode| opcode.info().is_some()) {
            for case in 0..10 {
                let len = [0, 4, 16, 256, 260][case / 2];
                let mut siege = Siege::new(stand, case % 2 == 1);
                let next = u32::from(matches!(stand, Stand::MidSend | Stand::MidWrite));
                let packet = siege.pair.craft(A, opcode).psn(siege.pair.psn(A, next));
                let packet = packet.payload(&vec![7; len]);
                siege.pair.deliver(A, &packet);
                siege.check(&packet);
            }
        }
    }
}
