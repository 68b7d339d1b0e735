//! Two engines back to back: every RC operation end to end, bytes compared. One process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, QpWish, eventually, pattern};
use std::sync::Arc;
use uroce_engine::{CqError, EngineCounter, IdlePolicy, LossConfig};
use uroce_transport::{
    AccessFlags, Congestion, Counter, DcqcnParams, DropReason, PostError, QpChange, QpState,
    SendOp, WcOpcode, WcStatus,
};
use uroce_wire::{ImmDt, PathMtu, Rkey, Va};

const ALL: AccessFlags = AccessFlags::all();

#[test]
fn write_read_send_and_atomics_move_the_right_bytes() {
    const LEN: u32 = 100_003;
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, mut b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, LEN as usize, ALL);
    let remote = lab.b.register(b.pd, LEN as usize, ALL);

    local.fill(1);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, LEN)]);
    let cqe = a.completion();
    assert_eq!((cqe.wr_id, cqe.status, cqe.opcode), (1, WcStatus::Success, WcOpcode::RdmaWrite));
    assert_eq!(remote.bytes(), pattern(1, LEN as usize));

    remote.fill(2);
    let op = SendOp::Read { va: remote.va(), rkey: remote.keys.rkey };
    a.send(2, op, &[local.sge(0, 7), local.sge(7, LEN - 7)]);
    let cqe = a.completion();
    assert_eq!((cqe.wr_id, cqe.status, cqe.byte_len), (2, WcStatus::Success, LEN));
    assert_eq!(local.bytes(), pattern(2, LEN as usize));

    local.fill(3);
    b.recv(3, &[remote.sge(0, 50_000), remote.sge(50_000, LEN - 50_000)]);
    a.send(4, SendOp::Send { imm: Some(ImmDt(0xdead_beef)) }, &[local.sge(0, LEN)]);
    assert_eq!(a.completion().status, WcStatus::Success);
    let cqe = b.completion();
    assert_eq!((cqe.wr_id, cqe.opcode, cqe.byte_len), (3, WcOpcode::Recv, LEN));
    assert_eq!(cqe.imm, Some(ImmDt(0xdead_beef)));
    assert_eq!(remote.bytes(), pattern(3, LEN as usize));

    remote.set_word(4, 40);
    let (va, rkey) = (remote.at(32), remote.keys.rkey);
    a.send(5, SendOp::FetchAdd { va, rkey, add: 2 }, &[local.sge(0, 8)]);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!((local.word(0), remote.word(4)), (40, 42));
    let op = SendOp::CompareSwap { va, rkey, compare: 42, swap: 7 };
    a.send(6, op, &[local.sge(8, 8)]);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!((local.word(1), remote.word(4)), (42, 7));
    drop((local, remote));
    lab.finish();
}

#[test]
fn every_path_mtu_carries_every_kind_of_length() {
    let mut lab = Lab::new(&LabConfig::default());
    for mtu in [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096] {
        let (mut a, b) = lab.connect(&QpWish { mtu, ..QpWish::default() });
        let local = lab.a.register(a.pd, 9000, ALL);
        let remote = lab.b.register(b.pd, 9000, ALL);
        let whole = mtu.bytes();
        for len in [0, 1, 2, 3, 4, whole - 1, whole, whole + 1, 2 * whole, 8999] {
            local.fill(u64::from(len) + 1);
            remote.fill(0);
            let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
            a.send(1, op, &[local.sge(0, len)]);
            assert_eq!(a.completion().status, WcStatus::Success);
            let (got, len) = (remote.bytes(), len as usize);
            assert_eq!(got[..len], local.bytes()[..len], "{mtu:?}, {len} bytes");
            assert_eq!(got[len..], pattern(0, 9000)[len..], "not a byte more");
        }
        drop((local, remote));
        lab.a.control.destroy_qp(a.qpn).expect("destroys");
        lab.b.control.destroy_qp(b.qpn).expect("destroys");
    }
    lab.finish();
}

#[test]
fn lcores_without_a_queue_pair_send_and_receive_by_another_lcores() {
    const LEN: u32 = 1 << 20;
    let config = LabConfig { lcores: 4, queue_pairs: Some(2), ..LabConfig::default() };
    let mut lab = Lab::new(&config);
    for lcores in [[3, 2], [0, 3], [2, 1]] {
        let wish = QpWish { lcores: lcores.map(Some), ..QpWish::default() };
        let (mut a, b) = lab.connect(&wish);
        let local = lab.a.register(a.pd, LEN as usize, ALL);
        let remote = lab.b.register(b.pd, LEN as usize, ALL);
        local.fill(7);
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(1, op, &[local.sge(0, LEN)]);
        assert_eq!(a.completion().status, WcStatus::Success, "{lcores:?}");
        assert_eq!(remote.bytes(), pattern(7, LEN as usize));
        local.fill(8);
        let op = SendOp::Read { va: remote.va(), rkey: remote.keys.rkey };
        a.send(2, op, &[local.sge(0, LEN)]);
        assert_eq!(a.completion().status, WcStatus::Success, "{lcores:?}");
        assert_eq!(local.bytes(), pattern(7, LEN as usize));
    }
    lab.finish();
}

#[test]
fn packets_of_another_lcores_qp_are_handed_over() {
    let mut lab = Lab::new(&LabConfig { lcores: 2, ..LabConfig::default() });
    // Rings have no RSS: packets from queue 0 arrive at queue 0. So QPs on lcore 0 of one side and
    // lcore 1 of the other need a hand-over in both directions.
    let wish = QpWish { lcores: [Some(0), Some(1)], ..QpWish::default() };
    let (mut a, b) = lab.connect(&wish);
    assert_eq!((a.lcore, b.lcore), (0, 1));
    let local = lab.a.register(a.pd, 1 << 16, ALL);
    let remote = lab.b.register(b.pd, 1 << 16, ALL);
    for round in 1..=50 {
        local.fill(round);
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(round, op, &[local.sge(0, 1 << 16)]);
        assert_eq!(a.completion().status, WcStatus::Success);
        assert_eq!(remote.bytes(), pattern(round, 1 << 16));
    }
    let handed = |node: &lab::Node| node.engine.counters().engine(EngineCounter::HandedOver);
    assert!(handed(&lab.a) >= 50, "{} answers", handed(&lab.a));
    assert!(handed(&lab.b) >= 50 * 16, "{} requests", handed(&lab.b));
    drop((local, remote));
    lab.finish();
}

#[test]
fn a_place_is_free_when_its_completion_or_a_later_one_has_been_polled() {
    const DEPTH: u64 = 64;
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish { cq_depth: DEPTH as u32, ..QpWish::default() });
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    for every in [1, 2, DEPTH] {
        for round in 0..5 {
            for id in 0..DEPTH {
                let signaled = (id + 1) % every == 0;
                let wr = uroce_transport::SendWr { signaled, ..lab::signaled(id, op) };
                a.sq.post_send(&wr, &[local.sge(0, 64)]).expect("a place for each");
            }
            eventually("all of them complete", || {
                lab.a.control.query_qp(a.qpn).expect("a QP").sends == 0
            });
            assert_eq!(a.sq.room(), 0, "round {round}: completed, but not polled");
            for polled in 1..=DEPTH / every {
                assert_eq!(a.completion().wr_id, polled * every - 1);
                assert_eq!(u64::from(a.sq.room()), polled * every);
            }
        }
    }
    drop((local, remote));
    lab.finish();
}

#[test]
fn places_are_back_whatever_became_of_what_had_them() {
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish::default();
    let (mut a, mut b) = lab.connect(&wish);
    let unsignaled = |id| {
        let wr = lab::signaled(id, SendOp::Send { imm: None });
        uroce_transport::SendWr { signaled: false, ..wr }
    };
    // Nothing is received, so nothing is sent. Half of it stays in the queue, and nothing is
    // polled.
    for round in 0..3 {
        (0..64).for_each(|id| a.sq.post_send(&unsignaled(id), &[]).expect("room"));
        (0..64).for_each(|id| a.recv(id, &[]));
        assert_eq!((a.sq.room(), a.rq.room()), (0, 0), "round {round}");
        lab.a.control.modify_qp(a.qpn, &QpChange::to(QpState::Reset)).expect("RESET");
        lab.b.control.modify_qp(b.qpn, &QpChange::to(QpState::Reset)).expect("RESET");
        assert_eq!((a.sq.room(), a.rq.room()), (64, 64), "round {round}");
        let (qpn_a, qpn_b) = (a.qpn, b.qpn);
        lab.a.bring_up(&mut a, &lab.b.addresses, qpn_b, &wish);
        lab.b.bring_up(&mut b, &lab.a.addresses, qpn_a, &wish);
    }
    // Each flushed request gives a completion, unsignaled or not.
    (0..64).for_each(|id| a.sq.post_send(&unsignaled(id), &[]).expect("room"));
    lab.a.control.modify_qp(a.qpn, &QpChange::to(QpState::Err)).expect("ERR");
    for polled in 1..=64 {
        assert_eq!(a.completion().status, WcStatus::WrFlushErr);
        assert_eq!(a.sq.room(), polled);
    }
    lab.finish();
}

#[test]
fn completions_of_a_former_queue_pair_free_nothing_of_the_next_in_its_place() {
    /// The number of the engine's slots.
    const LIVES: u32 = 64;
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, mut b) = lab.connect(&QpWish::default());
    let cq = a.cq.clone();
    a.recv(7, &[]);
    lab.a.control.modify_qp(a.qpn, &QpChange::to(QpState::Err)).expect("ERR");
    lab.a.control.destroy_qp(a.qpn).expect("a QP");
    lab.b.control.destroy_qp(b.qpn).expect("a QP");
    // Slots are used again in turn, so one of these QPs has the first one's slot.
    for life in 0..LIVES {
        (a, b) = lab.connect(&QpWish::default());
        (0..64).for_each(|id| a.recv(id, &[]));
        if life + 1 < LIVES {
            lab.a.control.destroy_qp(a.qpn).expect("a QP");
            lab.b.control.destroy_qp(b.qpn).expect("a QP");
        }
    }
    let stale = cq.poll().expect("no overrun").expect("what was flushed");
    assert_eq!((stale.wr_id, stale.status), (7, WcStatus::WrFlushErr));
    assert_eq!(a.rq.room(), 0);
    lab.finish();
}

#[test] //= check G2 test
fn a_post_is_refused_at_once_and_changes_nothing() {
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish::default();
    let mut fresh = lab.a.create_qp(&wish);
    let op = SendOp::Send { imm: None };
    let wr = lab::signaled(1, op);
    let recv = uroce_transport::RecvWr { wr_id: 1 };
    assert_eq!(fresh.sq.post_send(&wr, &[]), Err(PostError::InvalidState));
    assert_eq!(fresh.rq.post_recv(&recv, &[]), Err(PostError::InvalidState));
    let addresses = lab.a.addresses.clone();
    let [init, ..] = lab::changes(&addresses, &lab.b.addresses, fresh.qpn, &wish);
    lab.a.control.modify_qp(fresh.qpn, &init).expect("INIT");
    assert_eq!(fresh.sq.post_send(&wr, &[]), Err(PostError::InvalidState));
    assert_eq!(fresh.rq.post_recv(&recv, &[]), Ok(()));

    let (mut a, _b) = lab.connect(&wish);
    let sge = uroce_transport::Sge { va: Va(0), len: 1 << 30, lkey: uroce_wire::Lkey(0) };
    assert_eq!(a.sq.post_send(&wr, &[sge; 5]), Err(PostError::TooManySges));
    assert_eq!(a.sq.post_send(&wr, &[sge; 3]), Err(PostError::TooLong));
    let atomic = SendOp::FetchAdd { va: Va(0), rkey: Rkey(0), add: 1 };
    let short = uroce_transport::Sge { len: 7, ..sge };
    let wr = lab::signaled(1, atomic);
    assert_eq!(a.sq.post_send(&wr, &[short]), Err(PostError::AtomicLength));
    // A list is posted up to the first that is refused.
    let good = (&recv, &[][..]);
    let bad = (&recv, &[sge; 5][..]);
    let result = a.rq.post_recv_list([good, good, bad, good]);
    assert_eq!(result, Err((2, PostError::TooManySges)));
    assert_eq!(a.rq.room(), 62);
    for _ in 0..62 {
        a.rq.post_recv(&recv, &[]).expect("room");
    }
    assert_eq!(a.rq.post_recv(&recv, &[]), Err(PostError::QueueFull));
    lab.finish();
}

#[test] //= check G3 test
fn what_is_posted_in_err_is_flushed_and_nothing_is_lost() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, _b) = lab.connect(&QpWish::default());
    // More receives than the core holds at a time.
    (0..20).for_each(|id| a.recv(id, &[]));
    let to_err = QpChange::to(QpState::Err);
    lab.a.control.modify_qp(a.qpn, &to_err).expect("ERR");
    assert_eq!(a.sq.state(), QpState::Err);
    for id in 0..20 {
        let cqe = a.completion();
        assert_eq!((cqe.wr_id, cqe.status), (id, WcStatus::WrFlushErr));
    }
    for id in 20..25 {
        a.recv(id, &[]);
        assert_eq!(a.completion().wr_id, id);
        a.send(100 + id, SendOp::Send { imm: None }, &[]);
        let cqe = a.completion();
        assert_eq!((cqe.wr_id, cqe.status), (100 + id, WcStatus::WrFlushErr));
    }
    assert_eq!((a.sq.room(), a.rq.room()), (64, 64));
    lab.finish();
}

#[test] //= check G3 test
fn posts_that_race_with_the_way_to_err_complete_each_once() {
    let mut lab = Lab::new(&LabConfig::default());
    for _ in 0..30 {
        let (mut a, b) = lab.connect(&QpWish::default());
        let qpn = a.qpn;
        let poster = std::thread::spawn(move || {
            let (mut posted, mut seen) = (0u64, 0u64);
            let wr = |wr_id| uroce_transport::RecvWr { wr_id };
            // Until 200 completions have come after ERR.
            while seen < 200 {
                if posted < 200 && a.rq.post_recv(&wr(posted), &[]).is_ok() {
                    posted += 1;
                }
                if let Some(cqe) = a.cq.poll().expect("deep enough") {
                    assert_eq!((cqe.wr_id, cqe.status), (seen, WcStatus::WrFlushErr));
                    seen += 1;
                }
            }
            a
        });
        std::thread::sleep(std::time::Duration::from_micros(200));
        lab.a.control.modify_qp(qpn, &QpChange::to(QpState::Err)).expect("ERR");
        eventually("all flushed", || poster.is_finished());
        poster.join().expect("each completes once, in order");
        lab.a.control.destroy_qp(qpn).expect("destroys");
        lab.b.control.destroy_qp(b.qpn).expect("destroys");
    }
    lab.finish();
}

#[test] //= check G6 test
fn an_overrun_takes_the_qp_to_err_and_tears_no_entry() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish { cq_depth: 8, ..QpWish::default() });
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    (0..20).for_each(|id| a.send(id, op, &[local.sge(0, 8)]));
    eventually("the overrun", || a.cq.is_overrun());
    eventually("ERR", || a.sq.state() == QpState::Err);
    for id in 0..8 {
        let cqe = a.cq.poll().expect("good").expect("there");
        assert_eq!((cqe.wr_id, cqe.status), (id, WcStatus::Success));
    }
    assert_eq!(a.cq.poll(), Err(CqError::Overrun));
    assert!(lab.a.engine.counters().engine(EngineCounter::CqOverrun) > 0);
    // The engine and its other QPs still work.
    let (mut c, d) = lab.connect(&QpWish::default());
    let (local, remote) = (lab.a.register(c.pd, 64, ALL), lab.b.register(d.pd, 64, ALL));
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    c.send(1, op, &[local.sge(0, 64)]);
    assert_eq!(c.completion().status, WcStatus::Success);
    drop((local, remote));
    lab.finish();
}

#[test] //= check F1 test
fn a_wrong_key_ends_both_qps_and_changes_no_byte() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, 4096, ALL);
    let remote = lab.b.register(b.pd, 4096, ALL);
    remote.fill(9);
    let rkey = Rkey(remote.keys.rkey.0 ^ 4);
    a.send(1, SendOp::Write { va: remote.va(), rkey, imm: None }, &[local.sge(0, 4096)]);
    a.send(2, SendOp::Send { imm: None }, &[]);
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(a.completion().status, WcStatus::WrFlushErr);
    eventually("ERR at the responder", || b.sq.state() == QpState::Err);
    assert_eq!(remote.bytes(), pattern(9, 4096));
    assert_eq!(lab.b.engine.counters().transport(Counter::RespRemoteAccessErrors), 1);
    drop((local, remote));
    lab.finish();
}

#[test]
fn a_destroyed_qp_is_gone_for_its_peer_and_for_its_poster() {
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish { retry_cnt: 1, timeout: 10, ..QpWish::default() };
    let (mut a, mut b) = lab.connect(&wish);
    lab.b.control.destroy_qp(b.qpn).expect("destroys");
    let wr = lab::signaled(1, SendOp::Send { imm: None });
    assert_eq!(b.sq.post_send(&wr, &[]), Err(PostError::InvalidState));
    assert_eq!(
        b.rq.post_recv(&uroce_transport::RecvWr { wr_id: 1 }, &[]),
        Err(PostError::InvalidState)
    );
    assert!(lab.b.control.query_qp(b.qpn).is_err());
    assert!(lab.b.control.destroy_qp(b.qpn).is_err());

    // A killed peer looks the same from here: no answer, an error, no hang.
    a.send(1, SendOp::Send { imm: None }, &[]);
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    assert!(lab.b.engine.counters().dropped(DropReason::UnknownQpn) >= 2);
    lab.finish();
}

#[test]
fn a_reset_qp_keeps_nothing_of_its_former_life() {
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish::default();
    let (mut a, mut b) = lab.connect(&wish);
    (0..10).for_each(|id| b.recv(id, &[]));
    let reset = QpChange::to(QpState::Reset);
    lab.a.control.modify_qp(a.qpn, &reset).expect("RESET");
    lab.b.control.modify_qp(b.qpn, &reset).expect("RESET");
    assert_eq!(b.rq.room(), 64, "the queue is empty");
    let (qpn_a, qpn_b) = (a.qpn, b.qpn);
    lab.a.bring_up(&mut a, &lab.b.addresses, qpn_b, &wish);
    lab.b.bring_up(&mut b, &lab.a.addresses, qpn_a, &wish);
    b.recv(77, &[]);
    a.send(1, SendOp::Send { imm: None }, &[]);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(b.completion().wr_id, 77);
    assert_eq!(b.cq.poll(), Ok(None));
    lab.finish();
}

#[test]
fn lost_frames_are_sent_again_until_everything_is_right() {
    let loss = LossConfig { rx: 0.02, tx: 0.02, seed: 11 };
    let mut lab = Lab::new(&LabConfig { loss, ..LabConfig::default() });
    let (mut a, b) = lab.connect(&QpWish { mtu: PathMtu::B1024, timeout: 14, ..QpWish::default() });
    let local = lab.a.register(a.pd, 1 << 18, ALL);
    let remote = lab.b.register(b.pd, 1 << 18, ALL);
    for round in 1..=8 {
        local.fill(round);
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(round, op, &[local.sge(0, 1 << 18)]);
        assert_eq!(a.completion().status, WcStatus::Success);
        assert_eq!(remote.bytes(), pattern(round, 1 << 18));
    }
    let counters = lab.b.engine.counters();
    assert!(counters.engine(EngineCounter::RxLost) > 0);
    assert!(lab.a.engine.counters().engine(EngineCounter::TxLost) > 0);
    assert!(lab.a.engine.counters().transport(Counter::RetransmittedPackets) > 0);
    drop((local, remote));
    lab.finish();
}

#[test] //= check M2 test
fn an_empty_mempool_and_a_full_ring_hold_packets_back_and_lose_none() {
    // 64 KiB in flight are 16 frames of MTU 4096 per message; 63 mbufs and rings of 15 frames do
    // not hold the frames of ten QPs.
    let config = LabConfig { mbufs: 127, ring: 16, ..LabConfig::default() };
    let mut lab = Lab::new(&config);
    let mut pairs: Vec<_> = (0..10).map(|_| lab.connect(&QpWish::default())).collect();
    let buffers: Vec<_> = pairs
        .iter()
        .map(|(a, b)| (lab.a.register(a.pd, 1 << 16, ALL), lab.b.register(b.pd, 1 << 16, ALL)))
        .collect();
    for round in 1..=20u64 {
        for (at, ((a, _), (local, remote))) in pairs.iter_mut().zip(&buffers).enumerate() {
            local.fill(round + 100 * at as u64);
            let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
            a.send(round, op, &[local.sge(0, 1 << 16)]);
        }
        for (at, ((a, _), (_, remote))) in pairs.iter().zip(&buffers).enumerate() {
            assert_eq!(a.completion().status, WcStatus::Success);
            assert_eq!(remote.bytes(), pattern(round + 100 * at as u64, 1 << 16));
        }
    }
    let counters = lab.a.engine.counters();
    assert!(counters.engine(EngineCounter::TxFull) > 0, "the ring was never full");
    drop((buffers, pairs));
    lab.finish();
}

#[test] //= check M2 test
fn with_no_mbuf_at_all_an_engine_waits_and_goes_on() {
    let mut lab = Lab::new(&LabConfig { mbufs: 511, ..LabConfig::default() });
    let (mut a, mut b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, 1 << 16, ALL);
    let remote = lab.b.register(b.pd, 1 << 16, ALL);
    local.fill(1);
    // Takes all mbufs that the lcores do not hold, and posts work until those are used up, too.
    let mut hoard: Vec<_> = std::iter::from_fn(|| lab.pool.alloc().ok()).collect();
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    (0..60).for_each(|id| a.send(id, op, &[local.sge(0, 1 << 16)]));
    let starved = |lab: &Lab| {
        let nodes = [&lab.a, &lab.b];
        nodes.iter().any(|node| node.engine.counters().engine(EngineCounter::NoMbuf) > 0)
    };
    eventually("an empty mempool", || {
        hoard.extend(lab.pool.alloc());
        starved(&lab)
    });
    drop(hoard);
    for id in 0..60 {
        let cqe = a.completion();
        assert_eq!((cqe.wr_id, cqe.status), (id, WcStatus::Success));
    }
    assert_eq!(remote.bytes(), pattern(1, 1 << 16));
    b.recv(1, &[]);
    drop((local, remote));
    lab.finish();
}

#[test]
fn qps_of_one_lcore_get_equal_turns() {
    const QPS: usize = 8;
    const POSTS: u64 = 60;
    // The ring is always full: each QP that sends takes another's room.
    let mut lab = Lab::new(&LabConfig { ring: 64, ..LabConfig::default() });
    let wish = QpWish { mtu: PathMtu::B1024, ..QpWish::default() };
    let mut pairs: Vec<_> = (0..QPS).map(|_| lab.connect(&wish)).collect();
    let buffers: Vec<_> = pairs
        .iter()
        .map(|(a, b)| (lab.a.register(a.pd, 1 << 16, ALL), lab.b.register(b.pd, 1 << 16, ALL)))
        .collect();
    let guard = lab.a.engine.adopt(0).expect("free");
    for ((a, _), (local, remote)) in pairs.iter_mut().zip(&buffers) {
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        (0..POSTS).for_each(|id| a.send(id, op, &[local.sge(0, 1 << 16)]));
    }
    // All QPs begin at the same moment.
    drop(guard);
    let mut done = [0; QPS];
    eventually("the first to end", || {
        for (done, (a, _)) in done.iter_mut().zip(&pairs) {
            while let Some(cqe) = a.cq.poll().expect("deep enough") {
                assert_eq!(cqe.status, WcStatus::Success);
                *done += 1;
            }
        }
        done.contains(&POSTS)
    });
    assert!(done.iter().all(|&done| done >= POSTS / 2), "{done:?}");
    drop((buffers, pairs));
    lab.finish();
}

#[test]
fn a_sleeping_lcore_wakes_up_for_work() {
    let mut lab = Lab::new(&LabConfig { idle: IdlePolicy::Sleep, ..LabConfig::default() });
    let (mut a, mut b) = lab.connect(&QpWish::default());
    for id in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        b.recv(id, &[]);
        a.send(id, SendOp::Send { imm: None }, &[]);
        assert_eq!(a.completion().status, WcStatus::Success);
        assert_eq!(b.completion().wr_id, id);
    }
    lab.finish();
}

#[test] //= check E21 test
fn a_completion_channel_wakes_a_sleeper() {
    use uroce_engine::{Arm, CompletionChannel};
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish::default();
    let (mut a, _) = lab.connect(&wish);
    let channel = CompletionChannel::new(4).expect("a descriptor");
    let cq = lab.b.engine.create_cq(16, Some(&channel)).expect("CQ");
    let spec = wish.spec(lab.b.engine.alloc_pd(), &cq);
    let mut handle = lab.b.control.create_qp(&spec).expect("QP");
    let qpn_a = a.qpn;
    let to_reset = QpChange::to(QpState::Reset);
    lab.a.control.modify_qp(qpn_a, &to_reset).expect("RESET");
    lab.a.bring_up(&mut a, &lab.b.addresses, handle.qpn, &wish);
    for change in lab::changes(&lab.b.addresses, &lab.a.addresses, qpn_a, &wish) {
        lab.b.control.modify_qp(handle.qpn, &change).expect("Modify QP");
    }
    for id in 0..10 {
        handle.rq.post_recv(&uroce_transport::RecvWr { wr_id: id }, &[]).expect("posts");
        cq.arm(Arm::Next);
        assert_eq!(cq.poll(), Ok(None));
        a.send(id, SendOp::Send { imm: None }, &[]);
        let woken = channel.wait().expect("an event");
        assert!(Arc::ptr_eq(&woken, &cq));
        assert_eq!(cq.poll().expect("good").expect("there").wr_id, id);
        assert_eq!(a.completion().status, WcStatus::Success);
    }
    lab.finish();
}

#[test] //= check K6 test
//= check K9 test
fn marked_packets_are_counted_and_answered() {
    const LEN: u32 = 100_000;
    let mut lab = Lab::new(&LabConfig::default());
    // Both ECN bits are the mark of a congested switch; with DCQCN the sender sets its own.
    for (congestion, is_marked) in
        [(Congestion::None, true), (Congestion::Dcqcn(DcqcnParams::default()), false)]
    {
        let congestion = Some(congestion);
        let (mut a, b) = lab.connect(&QpWish { traffic_class: 3, congestion, ..QpWish::default() });
        let local = lab.a.register(a.pd, LEN as usize, ALL);
        let remote = lab.b.register(b.pd, LEN as usize, ALL);
        let count = |engine: &uroce_engine::Engine, counter| engine.counters().transport(counter);
        let marks = |lab: &Lab| count(&lab.b.engine, Counter::NpEcnMarkedRocePackets);
        let before = marks(&lab);
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(1, op, &[local.sge(0, LEN)]);
        assert_eq!(a.completion().status, WcStatus::Success);
        let marked = marks(&lab) - before;
        assert_eq!(marked, if is_marked { u64::from(LEN.div_ceil(4096)) } else { 0 });
        let sent = count(&lab.b.engine, Counter::NpCnpSent);
        assert!((1..=25).contains(&sent));
        eventually("all CNPs are counted", || count(&lab.a.engine, Counter::RpCnpIgnored) >= sent);
        drop((local, remote));
    }
    lab.finish();
}
