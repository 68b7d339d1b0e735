//! Lcores that the application's thread has adopted. One process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, QpWish, eventually, pattern};
use std::time::{Duration, Instant};
use uroce_engine::{AdoptError, EngineCounter, IdlePolicy, LcoreGuard, Turn};
use uroce_transport::{AccessFlags, Cqe, QpCaps, QpChange, QpState, QpType, SendOp, WcStatus};

const ALL: AccessFlags = AccessFlags::all();

/// Turns both lcores until the QP has a completion.
fn turn_until_done(guards: &mut [LcoreGuard], qp: &lab::TestQp) -> Cqe {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "no completion");
        for guard in guards.iter_mut() {
            guard.turn();
        }
        if let Some(cqe) = qp.cq.poll().expect("no overrun") {
            return cqe;
        }
    }
}

#[test]
fn one_thread_drives_two_engines_to_completion() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, 1 << 20, ALL);
    let remote = lab.b.register(b.pd, 1 << 20, ALL);
    let mut guards = [lab.a.engine.adopt(0).expect("free"), lab.b.engine.adopt(0).expect("free")];
    for round in 1..=5 {
        local.fill(round);
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(round, op, &[local.sge(0, 1 << 20)]);
        assert_eq!(turn_until_done(&mut guards, &a).status, WcStatus::Success);
        assert_eq!(remote.bytes(), pattern(round, 1 << 20));
    }
    drop((guards, local, remote));
    lab.finish();
}

#[test]
fn qps_take_turns_of_so_many_packets_or_of_more_if_they_are_small() {
    const MESSAGES: u64 = 200;
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish { qp_type: QpType::Uc, ..QpWish::default() };
    let caps = QpCaps { max_send_wr: MESSAGES as u32, ..wish.caps };
    let wish = QpWish { caps, ..wish };
    let [(mut first, far), (mut second, other)] = [(); 2].map(|()| lab.connect(&wish));
    let locals = [&first, &second].map(|qp| lab.a.register(qp.pd, 4096, ALL));
    let remotes = [&far, &other].map(|qp| lab.b.register(qp.pd, 4096, ALL));
    // Only this thread turns the lcore, so nothing is sent before both QPs have posted.
    let mut guard = lab.a.engine.adopt(0).expect("free");
    let completed =
        |qp: &lab::TestQp| std::iter::from_fn(|| qp.cq.poll().expect("no overrun")).count() as u64;
    // Frames of 82, 174 and 4170 bytes; a turn sends up to 8 KiB of them.
    for (len, turn) in [(8, 128), (100, 64), (4096, 32)] {
        for (qp, (local, remote)) in
            [&mut first, &mut second].into_iter().zip(locals.iter().zip(&remotes))
        {
            let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
            (0..MESSAGES).for_each(|id| qp.send(id, op, &[local.sge(0, len)]));
        }
        guard.turn();
        assert_eq!([completed(&first), completed(&second)], [turn; 2], "{len} bytes");
        let mut left = 2 * (MESSAGES - turn);
        eventually("the others", || {
            guard.turn();
            left -= completed(&first) + completed(&second);
            left == 0
        });
    }
    drop((guard, locals, remotes));
    lab.finish();
}

const WAITING: u64 = 256;

/// Makes two UC connections from `a` to `b`, both lcores adopted, and [`WAITING`] packets of each
/// that `b` has not taken from its port yet: bursts of one QP, then of the other.
fn with_packets_waiting(lab: &mut Lab) -> ([lab::TestQp; 2], LcoreGuard) {
    let wish = QpWish { qp_type: QpType::Uc, cq_depth: WAITING as u32, ..QpWish::default() };
    let caps = QpCaps { max_send_wr: WAITING as u32, max_recv_wr: WAITING as u32, ..wish.caps };
    let wish = QpWish { caps, ..wish };
    let pairs = [(); 2].map(|()| lab.connect(&wish));
    let receiving = lab.b.engine.adopt(0).expect("free");
    let mut sending = lab.a.engine.adopt(0).expect("free");
    let receivers = pairs.map(|(mut sender, mut receiver)| {
        (0..WAITING).for_each(|id| receiver.recv(id, &[]));
        (0..WAITING).for_each(|id| sender.send(id, SendOp::Send { imm: None }, &[]));
        receiver
    });
    eventually("all is sent", || sending.turn() == Turn::Idle);
    (receivers, receiving)
}

#[test]
fn what_a_turn_takes_in_beyond_its_bursts_is_dealt_with_in_the_next() {
    let mut lab = Lab::new(&LabConfig::default());
    // From the second burst on, the next burst is taken before its turn.
    let (receivers, mut guard) = with_packets_waiting(&mut lab);
    let mut received = [Vec::new(), Vec::new()];
    for turn in 1..=4 {
        assert_eq!(guard.turn(), Turn::Busy);
        for (receiver, received) in receivers.iter().zip(&mut received) {
            let polled = std::iter::from_fn(|| receiver.cq.poll().expect("no overrun"));
            received.extend(polled.map(|cqe| cqe.wr_id));
        }
        let count: usize = received.iter().map(Vec::len).sum();
        assert_eq!(count, turn * 128, "as many packets a turn as ever");
    }
    assert!(received.iter().all(|ids| ids.iter().copied().eq(0..WAITING)), "{received:?}");
    assert_eq!(guard.turn(), Turn::Idle);
    drop((receivers, guard));
    lab.finish();
}

#[test]
fn what_a_turn_took_in_is_lost_if_the_link_goes_down_before_the_next() {
    let mut lab = Lab::new(&LabConfig::default());
    assert_eq!(lab.b.control.next_link_change(), Some((1, true)), "up from the start");
    let (receivers, mut guard) = with_packets_waiting(&mut lab);
    guard.turn();
    let control = &mut lab.b.control;
    control.set_link(1, false).expect("a port");
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| control.next_link_change());
        // If the change came later than this, the lcore would have nothing left to lose.
        std::thread::sleep(Duration::from_millis(50));
        eventually("the lcore knows", || {
            guard.turn();
            cut.is_finished()
        });
        assert_eq!(cut.join().expect("no panic"), Some((1, false)));
    });
    eventually("nothing comes any more", || guard.turn() == Turn::Idle);
    let polled =
        |qp: &lab::TestQp| std::iter::from_fn(|| qp.cq.poll().expect("no overrun")).count();
    let received = receivers.iter().map(polled).sum::<usize>() as u64;
    let lost = lab.b.engine.counters().engine(EngineCounter::RxLinkDown);
    assert_eq!((received % 128, received + lost), (0, 2 * WAITING), "{received}");
    drop((receivers, guard));
    lab.finish();
}

#[test]
fn an_adopted_lcore_does_nothing_by_itself_and_works_again_when_given_back() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    let guard = lab.a.engine.adopt(0).expect("free");
    let before = lab.a.engine.heartbeat(0);
    local.fill(1);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 64)]);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(a.cq.poll(), Ok(None));
    assert_eq!(lab.a.engine.heartbeat(0), before, "its thread sleeps");
    drop(guard);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_ne!(lab.a.engine.heartbeat(0), before);
    drop((local, remote));
    lab.finish();
}

#[test]
fn control_calls_of_the_adopting_thread_do_not_wait_for_its_turns() {
    let mut lab = Lab::new(&LabConfig::default());
    let guards = [lab.a.engine.adopt(0).expect("free"), lab.b.engine.adopt(0).expect("free")];
    let begin = Instant::now();
    // Create, modify, query and destroy, registering and deregistering: no thread turns the lcores
    // meanwhile.
    let (a, b) = lab.connect(&QpWish::default());
    let mut region = lab.a.register(a.pd, 64, ALL);
    region.deregister();
    let info = lab.a.control.query_qp(a.qpn).expect("there");
    assert_eq!((info.attr.state, info.lcore), (QpState::Rts, 0));
    lab.a.control.modify_qp(a.qpn, &QpChange::to(QpState::Err)).expect("ERR");
    lab.a.control.destroy_qp(a.qpn).expect("destroys");
    lab.b.control.destroy_qp(b.qpn).expect("destroys");
    assert!(begin.elapsed() < Duration::from_secs(5));
    drop((guards, region));
    lab.finish();
}

#[test]
fn the_control_plane_serves_an_adopted_lcore_while_its_adopter_is_busy() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, 1 << 16, ALL);
    let remote = lab.b.register(b.pd, 1 << 16, ALL);
    remote.fill(5);
    // B's adopter is busy with other work; A still reads from B.
    let guard = lab.b.engine.adopt(0).expect("free");
    let op = SendOp::Read { va: remote.va(), rkey: remote.keys.rkey };
    a.send(1, op, &[local.sge(0, 1 << 16)]);
    // With `set_exclusive` the control plane leaves the lcore alone.
    guard.set_exclusive(true);
    for _ in 0..100 {
        assert!(!lab.b.control.serve_adopted());
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(a.cq.poll().expect("good").is_none());
    guard.set_exclusive(false);
    let mut found = None;
    eventually("the answer", || {
        lab.b.control.serve_adopted();
        found = a.cq.poll().expect("good");
        found.is_some()
    });
    assert_eq!(local.bytes(), pattern(5, 1 << 16));
    drop((guard, local, remote));
    lab.finish();
}

#[test]
fn what_needs_no_answer_leaves_before_its_queue_pair_goes() {
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish { qp_type: QpType::Uc, ..QpWish::default() };
    let (mut a, mut b) = lab.connect(&wish);
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64 * 64, ALL);
    for wr_id in 0..64 {
        b.recv(wr_id, &[remote.sge(64 * wr_id, 64)]);
    }
    let guard = lab.a.engine.adopt(0).expect("free");
    // No thread turns the lcore between the posts and the end.
    for wr_id in 0..64 {
        a.send(wr_id, SendOp::Send { imm: None }, &[local.sge(0, 64)]);
    }
    lab.a.control.destroy_qp(a.qpn).expect("destroys");
    drop(guard);
    for wr_id in 0..64 {
        assert_eq!(b.completion().wr_id, wr_id);
    }
    drop((local, remote));
    lab.finish();
}

#[test]
fn an_lcore_with_a_port_that_takes_nothing_rests_and_still_has_something_to_do() {
    // In this time a spinning lcore makes many more turns, but a port that takes nothing does not
    // drop frames yet.
    const TIME: Duration = Duration::from_millis(100);
    const SPINS: u64 = 5_000;
    let config = LabConfig { ring: 64, idle: IdlePolicy::Sleep, ..LabConfig::default() };
    let mut lab = Lab::new(&config);
    let (mut a, _b) = lab.connect(&QpWish { qp_type: QpType::Uc, ..QpWish::default() });
    let local = lab.a.register(a.pd, 16 << 20, ALL);
    // The peer takes nothing from its port, except for one turn now and then.
    let mut guard = lab.b.engine.adopt(0).expect("free");
    let op = SendOp::Write { va: local.va(), rkey: local.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 16 << 20)]);
    for _ in 0..4 {
        let before = lab.a.engine.heartbeat(0).expect("an lcore");
        std::thread::sleep(TIME);
        let spins = lab.a.engine.heartbeat(0).expect("an lcore") - before;
        assert!(spins < SPINS, "{spins} turns in {TIME:?}");
        guard.turn();
    }
    // Frames that cannot leave do not end the drain before its time.
    let begin = Instant::now();
    lab.a.control.drain(TIME);
    assert!(begin.elapsed() >= TIME);
    assert_eq!(a.cq.poll(), Ok(None));
    drop(guard);
    assert_eq!(a.completion().status, WcStatus::Success);
    drop(local);
    lab.finish();
}

#[test]
fn an_lcore_has_one_adopter() {
    let lab = Lab::new(&LabConfig::default());
    let guard = lab.a.engine.adopt(0).expect("free");
    assert!(matches!(lab.a.engine.adopt(0), Err(AdoptError::Adopted(0))));
    assert!(matches!(lab.a.engine.adopt(1), Err(AdoptError::NoSuchLcore(1))));
    drop(guard);
    for _ in 0..20 {
        drop(lab.a.engine.adopt(0).expect("given back"));
    }
    lab.finish();
}

#[test]
fn the_thread_of_an_lcore_that_was_asleep_takes_no_turn_from_its_adopter() {
    let lab = Lab::new(&LabConfig { idle: IdlePolicy::Sleep, ..LabConfig::default() });
    let turns = || lab.a.engine.heartbeat(0).expect("an lcore");
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(5));
        let mut guard = lab.a.engine.adopt(0).expect("free");
        let before = turns();
        // The first turn wakes the thread.
        (0..20_000).for_each(|_| _ = guard.turn());
        assert_eq!(turns() - before, 2 * 20_000, "two for each turn");
    }
    lab.finish();
}

#[test]
fn an_adopter_survives_the_shutdown() {
    let lab = Lab::new(&LabConfig::default());
    let engine = lab.a.engine.clone();
    let mut guard = engine.adopt(0).expect("free");
    guard.turn();
    lab.finish();
    assert_eq!(guard.turn(), Turn::Stopped);
    drop(guard);
    assert!(matches!(engine.adopt(0), Err(AdoptError::Stopped(0))));
}
