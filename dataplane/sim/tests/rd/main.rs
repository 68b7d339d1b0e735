//! Checks R: reliable datagrams. The ends of each pair are EECs; RD QPs are added to them.
//!
//! End A is the requester and end B the responder, unless a test states otherwise. The independent
//! checker sees every packet, except of tests that make packets.

mod ends;
mod lossy;
mod paths;
mod posts;
mod put_off;
mod refused;
mod repeated;
mod resync;
mod turns;
mod wire;

use core::time::Duration;

use uroce_sim::{At, Pair, Seen, Terms};
use uroce_transport::{QpState, QpType, Side, WcStatus};
use uroce_wire::{NakCode, OpCode, Syndrome};

/// The end that sends requests.
const A: usize = 0;
/// The end that answers.
const B: usize = 1;

/// Longer than a round trip, shorter than any ACK timeout of the scenes.
const SHORTLY: Duration = Duration::from_micros(50);

/// Two EECs and three RD QPs at each end.
struct Scene {
    pair: Pair,
    here: [At; 3],
    there: [At; 3],
}

impl Scene {
    fn new() -> Scene {
        Scene::with(|_| ())
    }

    /// With terms changed by `change`.
    fn with(change: impl FnOnce(&mut Terms)) -> Scene {
        Scene::of(Pair::with(|terms| {
            terms.qp_type = QpType::Eec;
            terms.is_tapped = true;
            change(terms);
        }))
    }

    /// A scene in which a QP sends a packet each 200 ns.
    fn slow() -> Scene {
        Scene::with(|terms| terms.settings.budget = 1)
    }

    /// A scene for packets that no peer would send.
    fn untapped() -> Scene {
        let mut scene = Scene::new();
        scene.pair.world.stop_tap();
        scene
    }

    fn of(mut pair: Pair) -> Scene {
        let here = [0; 3].map(|_| pair.add_rd(A));
        let there = [0; 3].map(|_| pair.add_rd(B));
        Scene { pair, here, there }
    }

    /// Runs until nothing more happens; the checker must have found nothing.
    #[track_caller]
    fn run(&mut self) {
        self.pair.run();
        self.assert_no_flaw();
    }

    #[track_caller]
    fn assert_no_flaw(&mut self) {
        let flaw = self.pair.world.take_flaw();
        assert_eq!(flaw, None, "{:#?}", self.pair.trace(60));
    }

    /// Numbers and statuses of the completions of an RD QP's queue.
    fn done(&mut self, at: At, side: Side) -> Vec<(u64, WcStatus)> {
        self.pair.take_at(at, side).iter().map(|cqe| (cqe.wr_id, cqe.status)).collect()
    }

    /// Asserts that exactly these requests have succeeded, in this order.
    #[track_caller]
    fn assert_succeeded(&mut self, at: At, side: Side, wr_ids: &[u64]) {
        let expected: Vec<_> = wr_ids.iter().map(|wr_id| (*wr_id, WcStatus::Success)).collect();
        assert_eq!(self.done(at, side), expected, "{:#?}", self.pair.trace(60));
    }

    /// Asserts that exactly these requests have ended so, in this order.
    #[track_caller]
    fn assert_ended(&mut self, at: At, side: Side, expected: &[(u64, WcStatus)]) {
        assert_eq!(self.done(at, side), expected, "{:#?}", self.pair.trace(60));
    }

    #[track_caller]
    fn assert_state(&self, at: At, state: QpState) {
        assert_eq!(self.pair.state_at(at), state, "{:#?}", self.pair.trace(60));
    }

    /// Both EECs are in RTS, and a message between two other RD QPs passes.
    #[track_caller]
    fn assert_eecs_live(&mut self) {
        let (from, to) = (self.here[2], self.there[2]);
        let recv = self.pair.rd_recv(to, 1000);
        let send = self.pair.rd_send(from, to, 600);
        self.run();
        for end in [A, B] {
            assert_eq!(self.pair.qp(end).state(), QpState::Rts);
        }
        self.assert_succeeded(from, Side::Send, &[send]);
        self.assert_succeeded(to, Side::Recv, &[recv]);
    }

    /// The NAKs that an end has sent, without RNR NAKs.
    fn naks(&self, from: usize) -> Vec<NakCode> {
        let nak = |seen: &Seen| match seen.ext.aeth.syndrome {
            Syndrome::Nak(code) if seen.bth.opcode == OpCode::RD_ACKNOWLEDGE => Some(code),
            _ => None,
        };
        self.pair.seen(from).iter().filter_map(nak).collect()
    }

    /// The RESYNCs that an end has sent.
    fn resyncs(&self, from: usize) -> Vec<Seen> {
        let mut seen = self.pair.seen(from);
        seen.retain(|seen| seen.bth.opcode == OpCode::RD_RESYNC);
        seen
    }
}
