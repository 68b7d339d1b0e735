//! Every place where a received packet moves a QP to ERR or SQE, and the facts that its sender must
//! have.
//!
//! Each row of [`places`] is run with a packet that has all facts right, and then once for each
//! fact that a sender may have wrong: then the QP stays in RTS and no work request fails.
//!
//! No row ends in SQE, because only the send queue's own work leads there. No row ends a QP of UD
//! or GSI, which takes datagrams from any sender. (On the engine's ports, packets to QP 1 go to the
//! control plane and to no QP.) Two cases are the owner's to prevent and are not rows: a CQ with
//! less room than there are receives, and a `retry_cnt` of 0, with which the first loss ends a
//! connection. The effects of connection management messages on a QP are in the rows of `uroce-cm`.

use uroce_sim::{Crafted, Pair, Terms};
use uroce_transport::{AccessFlags, Counter, DropReason, QpState, QpType, Sge, Side, WcStatus};
use uroce_wire::{Encap, Lkey, NakCode, OpCode, Pkey, Psn, Qkey, Qpn, Rkey, Syndrome};

use crate::frames::{bth, seal};
use crate::scene::*;

/// A fact that a sender must have right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fact {
    /// Address that the connection's packets come from.
    Address,
    Pkey,
    Qpn,
    Qkey,
    /// The expected PSN, or one of those that wait for an acknowledgement.
    Psn,
    /// A request is waiting for its acknowledgement.
    Outstanding,
}

const REQUEST: &[Fact] = &[Fact::Address, Fact::Pkey, Fact::Qpn, Fact::Psn];
const RESPONSE: &[Fact] = &[Fact::Address, Fact::Pkey, Fact::Qpn, Fact::Psn, Fact::Outstanding];
const UNRELIABLE: &[Fact] = &[Fact::Address, Fact::Pkey, Fact::Qpn];
const DATAGRAM: &[Fact] = &[Fact::Pkey, Fact::Qpn, Fact::Qkey];

/// A place in the code, named by the packet that leads to it.
struct Place {
    packet: &'static str,
    qp_type: QpType,
    needs: &'static [Fact],
    terms: fn(&mut Terms),
    /// Brings end B into the state in which the packet has its effect.
    arrange: fn(&mut Pair),
    craft: fn(&Pair) -> Crafted,
    /// Called before end B answers.
    meanwhile: fn(&mut Pair),
    /// Status of the oldest work request: a receive, or for RC's responses a send.
    status: Option<WcStatus>,
}

impl Place {
    /// A place in RC's responder.
    fn request(packet: &'static str, craft: fn(&Pair) -> Crafted) -> Place {
        Place {
            packet,
            qp_type: QpType::Rc,
            needs: REQUEST,
            terms: |_| (),
            arrange: |_| (),
            craft,
            meanwhile: |_| (),
            status: None,
        }
    }

    /// A place in RC's completer, reached after `arrange` has posted a request.
    fn response(
        packet: &'static str,
        arrange: fn(&mut Pair),
        status: WcStatus,
        craft: fn(&Pair) -> Crafted,
    ) -> Place {
        let (needs, status) = (RESPONSE, Some(status));
        Place { needs, arrange, status, ..Place::request(packet, craft) }
    }

    fn after(self, arrange: fn(&mut Pair)) -> Place {
        Place { arrange, ..self }
    }

    fn with(self, terms: fn(&mut Terms)) -> Place {
        Place { terms, ..self }
    }

    fn meanwhile(self, meanwhile: fn(&mut Pair)) -> Place {
        Place { meanwhile, ..self }
    }

    fn fails(self, status: WcStatus) -> Place {
        Place { status: Some(status), ..self }
    }

    fn of(self, qp_type: QpType, needs: &'static [Fact]) -> Place {
        Place { qp_type, needs, ..self }
    }

    /// State of the QP after the packet.
    fn state(&self) -> QpState {
        if self.qp_type.is_datagram() { QpState::Rts } else { QpState::Err }
    }

    fn side(&self) -> Side {
        if self.needs == RESPONSE { Side::Send } else { Side::Recv }
    }

    /// A pair with the row's packet delivered to end B in RTS; end A is in RESET and does not
    /// answer.
    fn drive(&self, lacks: Option<(Fact, i32)>) -> Pair {
        let mut pair = Pair::reset(|terms| {
            terms.qp_type = self.qp_type;
            (terms.half[B].retry_cnt, terms.half[B].rnr_retry) = (0, 0);
            (self.terms)(terms);
        });
        pair.bring_to(B, QpState::Rts);
        if lacks.is_none_or(|(fact, _)| fact != Fact::Outstanding) {
            (self.arrange)(&mut pair);
        }
        let frame = self.frame(&pair, lacks);
        pair.deliver_frame(A, frame);
        (self.meanwhile)(&mut pair);
        pair.run_for(SHORTLY);
        pair
    }

    fn frame(&self, pair: &Pair, lacks: Option<(Fact, i32)>) -> Vec<u8> {
        let mut packet = (self.craft)(pair);
        let mut path = pair.path(A);
        match lacks {
            Some((Fact::Address, _)) => {
                path = Encap {
                    src: "10.9.9.9".parse::<core::net::Ipv4Addr>().unwrap().into(),
                    ..path
                };
            }
            Some((Fact::Pkey, _)) => packet.bth.pkey = Pkey(0x8123),
            Some((Fact::Qpn, _)) => packet.bth.dest_qpn = Qpn::new(pair.qpn(B).value() ^ 0x100),
            Some((Fact::Qkey, _)) => packet.ext.deth.qkey = Qkey(packet.ext.deth.qkey.0 ^ 1),
            Some((Fact::Psn, off)) => {
                packet.bth.psn = Psn::new(packet.bth.psn.value().wrapping_add_signed(off));
            }
            Some((Fact::Outstanding, _)) | None => {}
        }
        let mut frame = pair.frame_by(&path, &packet);
        if self.packet == RESERVED {
            frame[bth(false)] = 0x1f;
            seal(&mut frame);
        }
        frame
    }
}

const RESERVED: &str = "a reserved opcode";

/// Posts two receives of 300 bytes at end B.
fn receives(pair: &mut Pair) {
    for _ in 0..2 {
        pair.recv(B, 300);
    }
}

/// Posts a receive with an invalid L_Key at end B.
fn bad_receive(pair: &mut Pair) {
    let sge = Sge { lkey: Lkey(0xbad), ..pair.local(B).sge(0, 300) };
    pair.post_recv(B, &[sge]);
}

/// Posts a receive with a valid key for memory that is gone.
fn receive_into_nothing(pair: &mut Pair) {
    let landing = pair.local(B);
    pair.world.node_mut(B as u16).memory.take_away(landing, 0);
    pair.recv(B, 300);
}

/// Begins a WRITE, and then takes its memory away.
fn half_a_write(pair: &mut Pair) {
    let first = pair.craft(A, OpCode::RC_RDMA_WRITE_FIRST).payload(&[1; 256]);
    pair.deliver(A, &first.ext(|ext| ext.reth.dma_len = 264));
    lose_target(pair);
}

fn lose_target(pair: &mut Pair) {
    let target = pair.remote(B);
    pair.world.node_mut(B as u16).memory.deregister(target);
}

/// Posts a request at end B, and sends it.
fn ask(pair: &mut Pair, post: impl FnOnce(&mut Pair) -> u64) {
    post(pair);
    pair.run_for(SHORTLY);
}

fn ask_send(pair: &mut Pair) {
    ask(pair, |pair| pair.send(B, 8));
}

fn ask_read(pair: &mut Pair) {
    ask(pair, |pair| pair.read(B, 8));
}

fn lose_landing(pair: &mut Pair) {
    let landing = pair.local(B);
    pair.world.node_mut(B as u16).memory.deregister(landing);
}

fn send(pair: &Pair, len: usize) -> Crafted {
    pair.craft(A, OpCode::RC_SEND_ONLY).payload(&vec![1; len])
}

fn write(pair: &Pair, len: usize, announced: u32) -> Crafted {
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&vec![1; len]);
    packet.ext(|ext| ext.reth.dma_len = announced)
}

fn read(pair: &Pair, len: u32) -> Crafted {
    pair.craft(A, OpCode::RC_RDMA_READ_REQUEST).ext(|ext| ext.reth.dma_len = len)
}

/// A response to the first request of end B.
fn answer(pair: &Pair, opcode: OpCode) -> Crafted {
    pair.craft(A, opcode).psn(pair.psn(B, 0))
}

fn acknowledge(pair: &Pair, syndrome: Syndrome) -> Crafted {
    answer(pair, OpCode::RC_ACKNOWLEDGE).ext(|ext| ext.aeth.syndrome = syndrome)
}

/// Places in RC's responder: `rc/responder/validate.rs`, `execute.rs`, and answered READs.
fn requests() -> Vec<Place> {
    use WcStatus::{LocLenErr, LocProtErr, RemInvReqErr};
    let request = Place::request;
    vec![
        request("a Middle without a First", |pair| {
            pair.craft(A, OpCode::RC_SEND_MIDDLE).payload(&[1; 256])
        }),
        request(RESERVED, |pair| send(pair, 8)),
        request("an operation that is not allowed", |pair| write(pair, 8, 8)).with(|terms| {
            terms.half[B].access = AccessFlags::empty();
        }),
        request("more READs than agreed", |pair| read(pair, 8)).with(|terms| {
            terms.half[B].max_dest_rd_atomic = 0;
        }),
        request("a First that is not full", |pair| {
            pair.craft(A, OpCode::RC_SEND_FIRST).payload(&[1; 8])
        })
        .after(receives),
        request("a SEND longer than its receive", |pair| send(pair, 128))
            .after(|pair| {
                pair.recv(B, 127);
            })
            .fails(LocLenErr),
        request("a WRITE of another length than announced", |pair| write(pair, 8, 9)),
        request("a READ that is too long", |pair| read(pair, (1 << 31) + 1)),
        request("an ATOMIC of a crooked address", |pair| {
            pair.craft(A, OpCode::RC_FETCH_ADD).ext(|ext| ext.atomic.va.0 += 4)
        }),
        request("a WRITE with an unknown key", |pair| {
            write(pair, 8, 8).ext(|ext| ext.reth.rkey = Rkey(0xbad))
        }),
        request("a READ with an unknown key", |pair| {
            read(pair, 8).ext(|ext| ext.reth.rkey = Rkey(0xbad))
        }),
        request("an ATOMIC with an unknown key", |pair| {
            pair.craft(A, OpCode::RC_COMPARE_SWAP).ext(|ext| ext.atomic.rkey = Rkey(0xbad))
        }),
        request("a WRITE goes on in memory that is gone", |pair| {
            let last = pair.craft(A, OpCode::RC_RDMA_WRITE_LAST).payload(&[1; 8]);
            last.psn(pair.psn(A, 1))
        })
        .after(half_a_write),
        request("a READ of memory that is gone when it is answered", |pair| read(pair, 8))
            .after(|pair| pair.world.set_full_rate(1.0))
            .meanwhile(|pair| {
                lose_target(pair);
                pair.world.set_full_rate(0.0);
            }),
        request("a SEND to a receive without a right to its memory", |pair| send(pair, 8))
            .after(bad_receive)
            .fails(LocProtErr),
        request("a SEND that invalidates an unknown key", |pair| {
            let packet = pair.craft(A, OpCode::RC_SEND_ONLY_WITH_INVALIDATE).payload(&[1; 8]);
            packet.ext(|ext| ext.ieth.rkey = Rkey(0xbad))
        })
        .after(receives)
        .fails(RemInvReqErr),
    ]
}

/// Places in RC's completer: `rc/completer.rs`.
fn responses() -> Vec<Place> {
    let response = Place::response;
    vec![
        response("a NAK: invalid request", ask_send, WcStatus::RemInvReqErr, |pair| {
            acknowledge(pair, Syndrome::Nak(NakCode::InvalidRequest))
        }),
        response("a NAK: remote access error", ask_send, WcStatus::RemAccessErr, |pair| {
            acknowledge(pair, Syndrome::Nak(NakCode::RemoteAccessError))
        }),
        response("a NAK: remote operational error", ask_send, WcStatus::RemOpErr, |pair| {
            acknowledge(pair, Syndrome::Nak(NakCode::RemoteOperationalError))
        }),
        response("a NAK of a reserved code", ask_send, WcStatus::BadRespErr, |pair| {
            acknowledge(pair, Syndrome::from_byte(0x7f))
        }),
        response("the last sequence NAK", ask_send, WcStatus::RetryExcErr, |pair| {
            acknowledge(pair, Syndrome::Nak(NakCode::PsnSequenceError))
        }),
        response("the last RNR NAK", ask_send, WcStatus::RnrRetryExcErr, |pair| {
            acknowledge(pair, Syndrome::RnrNak { timer: 1 })
        }),
        response("the last implied NAK", ask_read, WcStatus::RetryExcErr, |pair| {
            acknowledge(pair, Syndrome::UNLIMITED)
        }),
        response("READ data for a SEND", ask_send, WcStatus::BadRespErr, |pair| {
            answer(pair, OpCode::RC_RDMA_READ_RESPONSE_ONLY).payload(&[1; 8])
        }),
        response("READ data of another length", ask_read, WcStatus::LocLenErr, |pair| {
            answer(pair, OpCode::RC_RDMA_READ_RESPONSE_ONLY).payload(&[1; 12])
        }),
        response(
            "READ data for memory that is gone",
            |pair| {
                ask_read(pair);
                lose_landing(pair);
            },
            WcStatus::LocProtErr,
            |pair| answer(pair, OpCode::RC_RDMA_READ_RESPONSE_ONLY).payload(&[1; 8]),
        ),
        response("an ATOMIC's result for a SEND", ask_send, WcStatus::BadRespErr, |pair| {
            answer(pair, OpCode::RC_ATOMIC_ACKNOWLEDGE)
        }),
        response(
            "an ATOMIC's result for memory that is gone",
            |pair| {
                ask(pair, |pair| pair.fetch_add(B, 1));
                lose_landing(pair);
            },
            WcStatus::LocProtErr,
            |pair| answer(pair, OpCode::RC_ATOMIC_ACKNOWLEDGE),
        ),
    ]
}

/// Places in UC's responder: `uc/responder.rs`.
fn unreliable() -> Vec<Place> {
    let send = Place::request("a UC SEND to a receive without a right to its memory", |pair| {
        pair.craft(A, OpCode::UC_SEND_ONLY).payload(&[1; 8])
    });
    let send = send.of(QpType::Uc, UNRELIABLE).after(bad_receive);
    vec![send.fails(WcStatus::LocProtErr)]
}

/// Places in UD's responder, which QP 1 has too: `ud/responder.rs`.
fn datagrams(qp_type: QpType) -> Vec<Place> {
    let place = |packet, craft| Place::request(packet, craft).of(qp_type, DATAGRAM);
    vec![
        place("a datagram longer than the receive", |pair| {
            pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 128])
        })
        .after(|pair| {
            pair.recv(B, 40 + 127);
        }),
        place("a datagram to a receive without a right to its memory", |pair| {
            pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 128])
        })
        .after(bad_receive)
        .fails(WcStatus::LocProtErr),
        place("a datagram to a receive whose memory is gone", |pair| {
            pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 128])
        })
        .after(receive_into_nothing)
        .fails(WcStatus::LocProtErr),
        place("a datagram longer than the path MTU", |pair| {
            pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 260])
        })
        .after(receives),
    ]
}

fn places() -> Vec<Place> {
    let datagrams = [QpType::Ud, QpType::Gsi].map(datagrams);
    let connected = [requests(), responses(), unreliable()];
    connected.into_iter().chain(datagrams).flatten().collect()
}

#[test] //= check L4 test
fn a_packet_ends_a_qp_where_the_table_says_and_completes_what_it_is_about() {
    for place in places() {
        let mut pair = place.drive(None);
        assert_eq!(pair.qp(B).state(), place.state(), "{}", place.packet);
        let failed = statuses(&mut pair, B, place.side()).first().map(|(_, status)| *status);
        let failed = failed.filter(|status| *status != WcStatus::WrFlushErr);
        assert_eq!(failed, place.status, "{}", place.packet);
    }
}

#[test] //= check E16 test
fn a_sender_that_lacks_a_part_of_what_it_takes_ends_nothing() {
    const AWAY: [i32; 6] = [1, -1, 1000, -1000, 1 << 22, -(1 << 22)];
    for place in places() {
        for fact in place.needs {
            let reason = match fact {
                Fact::Address => Some(DropReason::WrongSource),
                Fact::Pkey => Some(DropReason::BadPkey),
                Fact::Qpn => Some(DropReason::UnknownQpn),
                Fact::Qkey => Some(DropReason::BadQkey),
                Fact::Psn | Fact::Outstanding => None,
            };
            let tries = if *fact == Fact::Psn { AWAY.len() } else { 1 };
            for away in &AWAY[..tries] {
                let what = format!("{} without {fact:?} {away}", place.packet);
                let mut pair = place.drive(Some((*fact, *away)));
                assert_eq!(pair.qp(B).state(), QpState::Rts, "{what}");
                if let Some(reason) = reason {
                    assert_eq!(pair.drops(B, reason), 1, "{what}");
                }
                for side in [Side::Send, Side::Recv] {
                    assert_eq!(statuses(&mut pair, B, side), [], "{what}");
                }
            }
        }
    }
}

#[test]
fn a_sender_without_the_psn_uses_up_no_retries() {
    let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = 1);
    let recvs: Vec<u64> = (0..40).map(|_| pair.recv(B, 2000)).collect();
    let sends: Vec<u64> = (0..40).map(|_| pair.send(A, 2000)).collect();
    for number in 0..400 {
        // With the peer's address and ahead of its packets: each makes the responder NAK the gap.
        let stray = send(&pair, 8).psn(pair.psn(A, 4000 + number));
        pair.deliver(A, &stray);
        pair.run_for(core::time::Duration::from_micros(1));
    }
    pair.run();
    assert!(pair.count(A, Counter::PacketSeqErr) > 2, "the strays reach the requester");
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
}
