//! Checks that take millions of packets, or every order of a few.

use std::collections::VecDeque;

use uroce_transport::{Cqe, DropReason, PostError, SendOp, Sge, Side, WcStatus};
use uroce_wire::{Lkey, OpCode, PathMtu, Psn, Rkey, Va};

use crate::bare::{Bare, PSN, Sent, request};

#[test] //= check A18 test
fn the_message_number_wraps_at_2_to_the_24() {
    let mut bare = Bare::rts(PathMtu::B256, 1);
    for index in 0..(1 << 24) + 3 {
        bare.receive(&request(OpCode::RC_RDMA_WRITE_ONLY, PSN.plus(index))).unwrap();
    }
    let mut last = request(OpCode::RC_RDMA_WRITE_ONLY, PSN.plus((1 << 24) + 3));
    last.bth.ack_req = true;
    bare.take(&last).unwrap();
    assert_eq!(bare.env.sent.len(), 1, "not requested before");
    assert_eq!(bare.env.sent[0].ext.aeth.msn.value(), 4);
    assert_eq!(bare.env.sent[0].bth.psn, PSN.plus(3));
}

/// Posts `op` of `len` bytes to one QP and passes packets between both until it has completed.
fn carry_out(op: SendOp, len: u32) -> (Cqe, [Bare; 2], u32) {
    let mut ends = [Bare::rts(PathMtu::B4096, 1), Bare::rts(PathMtu::B4096, 1)];
    ends[0].post(op, &[Sge { va: Va(0), len, lkey: Lkey(1) }]).unwrap();
    let mut packets = 0;
    while ends[0].env.completed.is_empty() {
        ends.iter_mut().for_each(Bare::send);
        assert!(ends.iter().any(|end| !end.env.sent.is_empty()), "it stands still");
        for from in [0, 1] {
            while let Some(sent) = ends[from].env.sent.pop_front() {
                packets += u32::from(sent.len > 0);
                ends[1 - from].take(&sent).unwrap();
            }
        }
    }
    let (side, cqe) = ends[0].env.completed[0];
    assert_eq!(side, Side::Send);
    (cqe, ends, packets)
}

#[test] //= check C17 test
fn a_read_of_2_to_the_31_bytes_is_carried_out() {
    let (cqe, [asker, _], packets) = carry_out(SendOp::Read { va: Va(0), rkey: Rkey(1) }, 1 << 31);
    assert_eq!((cqe.status, cqe.byte_len), (WcStatus::Success, 1 << 31));
    assert_eq!(asker.env.written, 1 << 31);
    assert_eq!(packets, (1 << 31) / 4096);
}

#[test]
fn a_write_of_2_to_the_31_bytes_is_carried_out() {
    let op = SendOp::Write { va: Va(0), rkey: Rkey(1), imm: None };
    let (cqe, [_, answerer], packets) = carry_out(op, 1 << 31);
    assert_eq!(cqe.status, WcStatus::Success);
    assert_eq!(answerer.env.written, 1 << 31);
    assert_eq!(packets, (1 << 31) / 4096);
}

#[test] //= check C17 test
fn a_read_of_one_byte_more_is_not_taken() {
    let mut bare = Bare::rts(PathMtu::B4096, 1);
    let sge = |len| Sge { va: Va(0), len, lkey: Lkey(1) };
    let lists = [vec![sge(1 << 31), sge(1)], vec![sge((1 << 31) + 1)], vec![sge(u32::MAX); 2]];
    for list in lists {
        let posted = bare.post(SendOp::Read { va: Va(0), rkey: Rkey(1) }, &list);
        assert_eq!(posted, Err(PostError::TooLong));
    }
    bare.send();
    assert!(bare.env.sent.is_empty() && bare.env.completed.is_empty());
}

/// An input of the model: the next action of the peer or of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    Atomic,
    Read,
    /// A copy of an earlier request; 0 is the newest.
    Copy(usize),
    /// The sink becomes full, or has room again.
    Turn,
}

/// A request that the responder has accepted, as the model keeps it.
struct Taken {
    sent: Sent,
    psns: u32,
    /// ATOMIC: the word before it.
    original: Option<u64>,
    /// The whole first answer was sent.
    is_answered: bool,
    /// A copy arrived and has not been answered yet.
    owes_copy: bool,
}

/// A responder with this depth, and the state of a correct peer.
struct Scene {
    bare: Bare,
    depth: usize,
    taken: VecDeque<Taken>,
    next_psn: Psn,
    adds: u64,
}

impl Scene {
    fn new(depth: usize) -> Scene {
        let bare = Bare::rts(PathMtu::B256, depth as u8);
        let mut scene = Scene { bare, depth, taken: VecDeque::new(), next_psn: PSN, adds: 0 };
        for index in 0..depth {
            scene.step(if index % 2 == 0 { Input::Atomic } else { Input::Read });
        }
        scene
    }

    fn step(&mut self, input: Input) {
        match input {
            Input::Atomic | Input::Read => self.ask(input == Input::Atomic),
            Input::Copy(back) => self.copy(back),
            Input::Turn => {
                self.bare.env.is_full = !self.bare.env.is_full;
                self.bare.send();
            }
        }
        self.judge();
    }

    /// Sends a new request, unless the agreed number of requests is unanswered.
    fn ask(&mut self, is_atomic: bool) {
        let unanswered = self.taken.iter().filter(|taken| !taken.is_answered).count();
        if unanswered == self.depth {
            return;
        }
        let opcode = if is_atomic { OpCode::RC_FETCH_ADD } else { OpCode::RC_RDMA_READ_REQUEST };
        let mut sent = request(opcode, self.next_psn);
        sent.ext.atomic.swap_add = 1;
        // Each READ reads memory of its own.
        sent.ext.reth.va = Va(u64::from(self.next_psn.value()) * 4096);
        sent.ext.reth.dma_len = 300;
        let psns = if is_atomic { 1 } else { 2 };
        let original = is_atomic.then_some(self.adds);
        self.adds += u64::from(is_atomic);
        self.next_psn = self.next_psn.plus(psns);
        self.taken.push_back(Taken { sent, psns, original, is_answered: false, owes_copy: false });
        self.bare.take(&sent).unwrap();
    }

    /// Repeats an old request: within the depth it is answered, beyond it is dropped.
    fn copy(&mut self, back: usize) {
        let Some(index) = self.taken.len().checked_sub(1 + back) else { return };
        let sent = self.taken[index].sent;
        let is_kept = back < self.depth;
        self.taken[index].owes_copy = is_kept;
        let result = self.bare.take(&sent);
        assert_eq!(result, if is_kept { Ok(()) } else { Err(DropReason::OldRead) });
    }

    /// Checks that every packet sent is the right answer to the request with its PSN.
    fn judge(&mut self) {
        while let Some(sent) = self.bare.env.sent.pop_front() {
            let psn = sent.bth.psn;
            let place = |taken: &Taken| psn.distance_from(taken.sent.bth.psn);
            let holds = |taken: &&mut Taken| (0..taken.psns as i32).contains(&place(taken));
            let taken = self.taken.iter_mut().find(holds).expect("an answer to some request");
            let index = place(taken) as u32;
            match taken.original {
                Some(original) => {
                    assert_eq!(sent.bth.opcode, OpCode::RC_ATOMIC_ACKNOWLEDGE);
                    assert_eq!(sent.ext.atomic_ack.original, original);
                }
                None => {
                    let va = taken.sent.ext.reth.va.0 + u64::from(index) * 256;
                    assert_eq!(sent.va, Some(Va(va)), "bytes of another READ");
                    assert_eq!(sent.len, if index == 0 { 256 } else { 44 });
                }
            }
            if index + 1 == taken.psns {
                (taken.is_answered, taken.owes_copy) = (true, false);
            }
        }
        assert_eq!(self.bare.env.word, self.adds, "each ATOMIC is executed once");
    }

    /// Checks that with room to send all requests are answered in the end.
    fn finish(mut self) {
        self.bare.env.is_full = false;
        self.bare.send();
        self.judge();
        for (back, taken) in self.taken.iter().rev().enumerate() {
            assert!(taken.is_answered);
            assert!(!taken.owes_copy || back >= self.depth, "a copy was not answered");
        }
    }
}

#[test] //= check D5 test
fn in_no_order_of_requests_and_copies_does_an_answer_come_from_another_slot() {
    for (depth, len) in [(1, 7), (2, 6), (4, 5)] {
        let mut inputs = vec![Input::Atomic, Input::Read, Input::Turn];
        inputs.extend((0..=depth).map(Input::Copy));
        let orders = inputs.len().pow(len);
        for order in 0..orders {
            let mut scene = Scene::new(depth);
            let mut rest = order;
            for _ in 0..len {
                scene.step(inputs[rest % inputs.len()]);
                rest /= inputs.len();
            }
            scene.finish();
        }
        println!("depth {depth}: {orders} orders");
    }
}
