//! Reliable datagrams: RD queue pairs of two devices behind EE contexts.

use std::time::{Duration, Instant};

use crate::common::{SOON, Setup, Side, eventually, pattern};
use uroce::config::LossConfig;
use uroce::rd::{Address, Eec, RdQp, Rdd};
use uroce::{
    AccessFlags, AddressVector, AlternateVector, ConnectOptions, Context, ControlError, EventKind,
    EventSource, ImmDt, MemoryRegion, PathMigState, Pkey, PostError, Qkey, QpCaps, QpInit, QpState,
    QpType, RecvWr, RequestError, SendWr, WcOpcode, WcStatus, WorkCompletion,
};

const KEY: Qkey = Qkey(0x1234);
const SLOT: usize = 4096;

/// Two devices with a domain each and a connection between them.
struct Lab {
    left: Side,
    right: Side,
    domains: [Rdd; 2],
    eecs: [Eec; 2],
}

impl Lab {
    fn new(setup: &Setup) -> Lab {
        let (left, right) = setup.contexts();
        let (left, right) = (Side::new(&left), Side::new(&right));
        let domains = [&left, &right].map(|side| side.context.open_rd_domain().unwrap());
        let eecs = domains.each_ref().map(|domain| domain.create_eec().unwrap());
        let lab = Lab { left, right, domains, eecs };
        lab.connect([&lab.eecs[0], &lab.eecs[1]], &setup.options);
        lab
    }

    fn connect(&self, [near, far]: [&Eec; 2], options: &ConnectOptions) {
        let ends = [near, far].map(|eec| eec.endpoint(1, 0).unwrap());
        far.connect(&ends[0], options).unwrap();
        near.connect(&ends[1], options).unwrap();
    }

    /// An RD QP at the left.
    fn sender(&self) -> RdQp {
        qp(&self.left, &self.domains[0])
    }

    /// An RD QP at the right.
    fn receiver(&self) -> RdQp {
        qp(&self.right, &self.domains[1])
    }

    fn to(&self, qp: &RdQp) -> Address {
        Address { eecn: self.eecs[0].eecn(), dest_qpn: qp.qpn(), qkey: KEY }
    }

    /// Sends a message that must arrive.
    fn tell(&self, from: &mut RdQp, to: &mut RdQp, seed: u8, len: usize) {
        receive(&self.right, to, 5);
        self.left.memory.write_at(0, &pattern(seed, len)).unwrap();
        let message = [self.left.memory.slice(..len).unwrap()];
        from.post_send(&SendWr::send(&message).id(7).signaled(), &self.to(to)).unwrap();
        let received = self.right.completion();
        assert_eq!((received.status, received.wr_id), (WcStatus::Success, 5), "{received:?}");
        assert_eq!((received.qpn, received.src_qpn), (to.qpn(), from.qpn()));
        assert_eq!(received.eecn, Some(self.eecs[1].eecn()));
        assert_eq!(self.right.bytes(5 * SLOT, len), pattern(seed, len));
        assert_eq!(self.left.done(), 7);
    }

    /// Sends an empty message that must fail, and returns the status.
    fn failure(&self, from: &mut RdQp, to: &Address) -> WcStatus {
        from.post_send(&SendWr::send(&[]).id(9), to).unwrap();
        let failed = self.left.completion();
        assert_eq!((failed.wr_id, failed.qpn), (9, from.qpn()));
        failed.status
    }
}

fn qp(side: &Side, domain: &Rdd) -> RdQp {
    let init = QpInit::new(&side.cq).max_inline(64);
    let mut qp = side.pd.create_rd_qp(domain, &init).unwrap();
    qp.start(KEY, &ConnectOptions::default()).unwrap();
    qp
}

fn receive(side: &Side, qp: &mut RdQp, id: u64) {
    let at = id as usize * SLOT;
    let room = [side.memory.slice(at..at + 2 * SLOT).unwrap()];
    qp.post_recv(&RecvWr::new(&room).id(id)).unwrap();
}

fn state(eec: &Eec) -> QpState {
    eec.query().unwrap().attr.state
}

#[test] //= check R1 test
fn every_operation_goes_by_an_ee_context() {
    let lab = Lab::new(&Setup::default());
    let (mut near, mut far) = (lab.sender(), lab.receiver());
    let to = lab.to(&far);
    let target = lab.right.memory.remote();
    for (round, len) in [0, 1, 4096, 8000].into_iter().enumerate() {
        lab.tell(&mut near, &mut far, round as u8, len);
    }
    lab.left.memory.write_at(0, &pattern(3, 90_000)).unwrap();
    let message = [lab.left.memory.slice(..90_000).unwrap()];
    let sink = [lab.left.memory.slice(500_000..590_000).unwrap()];
    let word = [lab.left.memory.slice(600_000..600_008).unwrap()];
    let small = [lab.left.memory.slice(..40).unwrap()];
    let far_word = target.slice(800_000, 8).unwrap();
    receive(&lab.right, &mut far, 6);
    receive(&lab.right, &mut far, 7);
    let wrs = [
        SendWr::write(&message, target.slice(100_000, 90_000).unwrap()),
        SendWr::read(&sink, target.slice(100_000, 90_000).unwrap()),
        SendWr::fetch_add(&word, far_word, 5),
        SendWr::compare_swap(&word, far_word, 5, 9),
        SendWr::write_with_imm(&message, target.slice(100_000, 90_000).unwrap(), ImmDt(17)),
        SendWr::send_with_imm(&small, ImmDt(18)).inline(),
    ];
    for (id, wr) in wrs.into_iter().enumerate() {
        near.post_send(&wr.id(id as u64).signaled(), &to).unwrap();
    }
    for id in 0..wrs.len() as u64 {
        assert_eq!(lab.left.done(), id, "in the order of posting");
    }
    assert_eq!(lab.right.bytes(100_000, 90_000), pattern(3, 90_000));
    assert_eq!(lab.left.bytes(500_000, 90_000), pattern(3, 90_000));
    assert_eq!(lab.left.bytes(600_000, 8), 5_u64.to_ne_bytes());
    assert_eq!(lab.right.bytes(800_000, 8), 9_u64.to_ne_bytes());
    let [first, second] = [(); 2].map(|()| lab.right.completion());
    assert_eq!((first.opcode, first.imm), (WcOpcode::RecvRdmaWithImm, Some(ImmDt(17))));
    assert_eq!((second.opcode, second.imm, second.byte_len), (WcOpcode::Recv, Some(ImmDt(18)), 40));
    let traffic = lab.eecs[0].query().unwrap().traffic;
    assert!(traffic.tx_packets > 40 && traffic.rx_packets > 20, "{traffic:?}");
}

#[test]
fn a_list_is_posted_at_once_and_each_request_has_its_destination() {
    let lab = Lab::new(&Setup::default());
    let mut near = lab.sender();
    let mut receivers = [lab.receiver(), lab.receiver()];
    let room = [lab.right.memory.slice(..SLOT).unwrap()];
    for far in &mut receivers {
        far.post_recvs(&[0, 1].map(|id| RecvWr::new(&room).id(id))).unwrap();
    }
    let parts = [1, 2, 3, 4].map(|len| [lab.left.memory.slice(..len).unwrap()]);
    let list = parts.iter().enumerate().map(|(at, part)| {
        let wr = SendWr::send(part).id(at as u64);
        let wr = if at == 3 { wr.signaled() } else { wr };
        (wr, lab.to(&receivers[at % 2]))
    });
    near.post_sends(list).unwrap();
    assert_eq!(lab.left.done(), 3);
    assert_eq!(lab.left.cq.poll_one(), Ok(None), "unsignaled successes are silent");
    for at in 0..4 {
        let received = lab.right.completion();
        assert_eq!((received.status, received.wr_id), (WcStatus::Success, at / 2));
        let far = &receivers[at as usize % 2];
        assert_eq!((received.qpn, received.byte_len), (far.qpn(), at as u32 + 1));
    }
}

#[test]
fn a_list_is_posted_up_to_the_first_request_that_is_refused() {
    let lab = Lab::new(&Setup::default());
    let mut init = QpInit::new(&lab.left.cq);
    (init.caps.max_send_wr, init.caps.max_recv_wr) = (4, 2);
    let mut near = lab.left.pd.create_rd_qp(&lab.domains[0], &init).unwrap();
    let mut far = lab.receiver();
    let to = lab.to(&far);
    let send = SendWr::send(&[]).signaled();
    let error = near.post_sends([(send, to)]).unwrap_err();
    assert_eq!((error.posted, error.error), (0, PostError::InvalidState));
    near.start(KEY, &ConnectOptions::default()).unwrap();
    let bad = SendWr::send_with_invalidate(&[], uroce::Rkey(1));
    let error = near.post_sends([(send, to), (bad, to), (send, to)]).unwrap_err();
    assert_eq!((error.posted, error.error), (1, PostError::WrongOperation));
    // The peer has posted no receive, so the queue stays full.
    let error = near.post_sends([(send, to); 6]).unwrap_err();
    assert_eq!((error.posted, error.error), (3, PostError::QueueFull));
    let error = near.post_recvs(&[RecvWr::new(&[]); 3]).unwrap_err();
    assert_eq!((error.posted, error.error), (2, PostError::QueueFull));
    far.post_recvs(&[RecvWr::new(&[]); 4]).unwrap();
    for _ in 0..4 {
        lab.left.done();
        lab.right.done();
    }
    assert_eq!(lab.left.cq.poll_one(), Ok(None), "what was refused never completes");
}

#[test] //= check R3 test
fn three_queue_pairs_share_one_ee_context() {
    const EACH: u64 = 150;
    // Programs beside the test may keep an lcore from its turns for long.
    let options = ConnectOptions { timeout: 15, ..ConnectOptions::default() };
    let loss = LossConfig { rx: 0.01, ..LossConfig::default() };
    let setup = Setup { loss, options, ..Setup::default() };
    let lab = Lab::new(&setup);
    let mut pairs: Vec<_> = (0..3).map(|_| (lab.sender(), lab.receiver())).collect();
    let message = [lab.left.memory.slice(..5000).unwrap()];
    let (mut posted, mut sent, mut received) = ([0; 3], [0; 3], [0; 3]);
    let begin = Instant::now();
    while received != [EACH; 3] || sent != [EACH; 3] {
        assert!(begin.elapsed() < 2 * SOON, "{sent:?} {received:?}");
        for (at, (near, far)) in pairs.iter_mut().enumerate() {
            // More than the core keeps: the rest waits in the rings.
            while posted[at] < EACH && posted[at] < sent[at] + 100 {
                receive(&lab.right, far, 1);
                let wr = SendWr::send(&message).id(posted[at]).signaled();
                near.post_send(&wr, &lab.to(far)).unwrap();
                posted[at] += 1;
            }
        }
        while let Some(done) = lab.left.cq.poll_one().unwrap() {
            done.ok().unwrap();
            let at = pairs.iter().position(|(near, _)| near.qpn() == done.qpn).unwrap();
            assert_eq!(done.wr_id, sent[at]);
            sent[at] += 1;
        }
        while let Some(got) = lab.right.cq.poll_one().unwrap() {
            got.ok().unwrap();
            let at = pairs.iter().position(|(_, far)| far.qpn() == got.qpn).unwrap();
            assert_eq!((got.byte_len, got.src_qpn), (5000, pairs[at].0.qpn()));
            received[at] += 1;
        }
    }
}

#[test] //= check R5 test
fn a_queue_pair_reaches_several_peers_and_domains_are_on_several_lcores() {
    let lab = Lab::new(&Setup { lcores: 2, ..Setup::default() });
    let [here, there] =
        [0, 1].map(|at| [&lab.left, &lab.right][at].context.open_rd_domain().unwrap());
    // A second connection of the same domains, and one of other domains.
    let [near, far] = [0, 1].map(|at| lab.domains[at].create_eec().unwrap());
    lab.connect([&near, &far], &ConnectOptions::default());
    let [other_near, other_far] = [&here, &there].map(|domain| domain.create_eec().unwrap());
    lab.connect([&other_near, &other_far], &ConnectOptions::default());
    let (mut first, mut second) = (lab.sender(), lab.receiver());
    for round in 0..20 {
        lab.tell(&mut first, &mut second, round, 100);
        receive(&lab.right, &mut second, 1);
        let to = Address { eecn: near.eecn(), ..lab.to(&second) };
        first.post_send(&SendWr::send(&[]).id(1).signaled(), &to).unwrap();
        assert_eq!(lab.right.completion().eecn, Some(far.eecn()));
        assert_eq!(lab.left.done(), 1);
    }
    let (mut first, mut second) = (qp(&lab.left, &here), qp(&lab.right, &there));
    receive(&lab.right, &mut second, 1);
    let to = Address { eecn: other_near.eecn(), ..lab.to(&second) };
    first.post_send(&SendWr::send(&[]).id(2).signaled(), &to).unwrap();
    assert_eq!(lab.right.completion().eecn, Some(other_far.eecn()));
    assert_eq!(lab.left.done(), 2);
}

#[test] //= check R20 test
fn packets_reach_ee_contexts_of_other_lcores_than_the_one_that_receives_them() {
    let lab = Lab::new(&Setup { lcores: 2, ..Setup::default() });
    let mut homes = [0; 4];
    let domains = [&lab.left, &lab.right]
        .map(|side| [(); 2].map(|()| side.context.open_rd_domain().unwrap()));
    for near in &domains[0] {
        for far in &domains[1] {
            let eecs = [near, far].map(|domain| domain.create_eec().unwrap());
            lab.connect([&eecs[0], &eecs[1]], &ConnectOptions::default());
            let (mut from, mut to) = (qp(&lab.left, near), qp(&lab.right, far));
            for _ in 0..20 {
                receive(&lab.right, &mut to, 1);
                let address = Address { eecn: eecs[0].eecn(), ..lab.to(&to) };
                from.post_send(&SendWr::send(&[]).id(2).signaled(), &address).unwrap();
                assert_eq!(lab.right.completion().eecn, Some(eecs[1].eecn()));
                assert_eq!(lab.left.done(), 2);
            }
            // Numbers that are no RD QP's, that of multicast among them: refused on any lcore.
            for number in [0, 1, 0xff_ffff] {
                let dest_qpn = uroce::Qpn::new(number);
                let address = Address { eecn: eecs[0].eecn(), dest_qpn, qkey: KEY };
                assert_eq!(lab.failure(&mut from, &address), WcStatus::RemInvRdReqErr, "{number}");
                from.recover().unwrap();
            }
            let [near, far] = eecs.map(|eec| eec.query().unwrap().lcore);
            assert_eq!(from.query().unwrap().lcore, near, "that of the domain");
            homes[2 * near + far] += 1;
        }
    }
    assert_eq!(homes, [1; 4], "all pairs of lcores");
}

#[test]
fn a_domain_is_on_the_lcore_that_was_chosen_or_the_next_in_turn() {
    let lab = Lab::new(&Setup { lcores: 2, ..Setup::default() });
    let context = &lab.left.context;
    for lcore in [1, 1, 0] {
        let domain = context.open_rd_domain_on(lcore).unwrap();
        assert_eq!(domain.lcore(), lcore);
        let (eec, qp) = (domain.create_eec().unwrap(), qp(&lab.left, &domain));
        assert_eq!([eec.query().unwrap().lcore, qp.query().unwrap().lcore], [lcore; 2]);
    }
    let refused = context.open_rd_domain_on(2).map(|domain| domain.lcore());
    let no_such =
        |error: &RequestError| matches!(error, RequestError::Control(ControlError::NoSuchLcore(2)));
    assert!(refused.as_ref().is_err_and(no_such), "{refused:?}");
    // The lab has opened one domain of this device.
    let homes = [(); 4].map(|()| context.open_rd_domain().unwrap().lcore());
    assert_eq!(homes, [1, 0, 1, 0]);
}

#[test]
fn a_domain_of_another_device_is_refused() {
    let lab = Lab::new(&Setup::default());
    let elsewhere = lab.right.context.open_rd_domain().unwrap();
    let refused = lab.left.pd.create_rd_qp(&elsewhere, &QpInit::new(&lab.left.cq));
    assert!(matches!(refused, Err(uroce::RequestError::OtherDevice)), "{refused:?}");
}

#[test]
fn both_ends_may_be_of_one_device() {
    let lab = Lab::new(&Setup::default());
    let here = lab.left.context.open_rd_domain().unwrap();
    let there = lab.left.context.open_rd_domain().unwrap();
    // Of two domains, and of one.
    for far in [&there, &here] {
        let eecs = [&here, far].map(|domain| domain.create_eec().unwrap());
        lab.connect([&eecs[0], &eecs[1]], &ConnectOptions::default());
        let (mut from, mut to) = (qp(&lab.left, &here), qp(&lab.left, far));
        let address = Address { eecn: eecs[0].eecn(), ..lab.to(&to) };
        let big = [lab.left.memory.slice(..400_000).unwrap()];
        let remote = lab.left.memory.remote().slice(500_000, 400_000).unwrap();
        for id in 0..20 {
            receive(&lab.left, &mut to, 1);
            from.post_send(&SendWr::write(&big, remote).id(id), &address).unwrap();
            from.post_send(&SendWr::send(&[]).id(id).signaled(), &address).unwrap();
            let mut done = [(); 2].map(|()| lab.left.completion());
            done.sort_by_key(|completion| completion.qpn == to.qpn());
            assert_eq!((done[0].ok(), done[0].wr_id, done[0].qpn), (Ok(()), id, from.qpn()));
            assert_eq!((done[1].ok(), done[1].eecn), (Ok(()), Some(eecs[1].eecn())));
        }
        // To itself.
        receive(&lab.left, &mut from, 1);
        let address = Address { dest_qpn: from.qpn(), ..address };
        from.post_send(&SendWr::send(&[]).id(50).signaled(), &address).unwrap();
        let done = lab.left.completion();
        match std::ptr::eq(far, &here) {
            true => assert_eq!((done.ok(), lab.left.completion().ok()), (Ok(()), Ok(()))),
            false => assert_eq!(done.status, WcStatus::RemInvRdReqErr, "of another domain"),
        }
    }
}

#[test] //= check R17 test
fn a_request_by_an_ee_context_that_cannot_be_used_fails_alone() {
    let lab = Lab::new(&Setup::default());
    let (mut near, mut far) = (lab.sender(), lab.receiver());
    let (mut other, mut other_far) = (lab.sender(), lab.receiver());
    let to = lab.to(&far);
    // In RESET and INIT.
    let unready = lab.domains[0].create_eec().unwrap();
    let by = |eecn| Address { eecn, ..to };
    assert_eq!(lab.failure(&mut near, &by(unready.eecn())), WcStatus::InvEecStateErr);
    eventually("SQE", || near.state() == QpState::Sqe);
    assert_eq!(lab.failure(&mut near, &to), WcStatus::WrFlushErr, "in SQE");
    near.recover().unwrap();
    unready.init(&ConnectOptions::default()).unwrap();
    assert_eq!(lab.failure(&mut near, &by(unready.eecn())), WcStatus::InvEecStateErr);
    near.recover().unwrap();
    // A queue pair, and a number that nothing has.
    for number in [other.qpn(), lab.left.qp.qpn(), uroce::Qpn::new(7)] {
        assert_eq!(lab.failure(&mut near, &by(number)), WcStatus::InvEecnErr);
        near.recover().unwrap();
    }
    // An EE context of another domain.
    let elsewhere = lab.left.context.open_rd_domain().unwrap().create_eec().unwrap();
    assert_eq!(lab.failure(&mut near, &by(elsewhere.eecn())), WcStatus::LocRddViolErr);
    near.recover().unwrap();
    lab.tell(&mut near, &mut far, 1, 3000);
    lab.tell(&mut other, &mut other_far, 2, 3000);
}

#[test] //= check R12 test
fn what_the_peer_refuses_stops_one_queue_pair_alone() {
    let lab = Lab::new(&Setup::default());
    let (mut near, mut far) = (lab.sender(), lab.receiver());
    let (mut other, mut other_far) = (lab.sender(), lab.receiver());
    let to = lab.to(&far);
    let refused = [
        Address { qkey: Qkey(0x4321), ..to },
        // Not an RD queue pair, and none at all.
        Address { dest_qpn: lab.right.qp.qpn(), ..to },
        Address { dest_qpn: lab.eecs[1].eecn(), ..to },
        Address { dest_qpn: uroce::Qpn::new(7), ..to },
    ];
    for to in refused {
        assert_eq!(lab.failure(&mut near, &to), WcStatus::RemInvRdReqErr, "{to:?}");
        eventually("SQE", || near.state() == QpState::Sqe);
        near.recover().unwrap();
        lab.tell(&mut other, &mut other_far, 2, 3000);
    }
    // A domain of its own at the peer.
    let elsewhere = qp(&lab.right, &lab.right.context.open_rd_domain().unwrap());
    assert_eq!(lab.failure(&mut near, &lab.to(&elsewhere)), WcStatus::RemInvRdReqErr);
    near.recover().unwrap();
    // A key that is none: the queue pair that was named goes to ERR.
    let bad = uroce::RemoteBuffer { rkey: uroce::Rkey(3), ..lab.right.memory.remote() };
    let message = [lab.left.memory.slice(..100).unwrap()];
    near.post_send(&SendWr::write(&message, bad).id(9), &to).unwrap();
    assert_eq!(lab.left.completion().status, WcStatus::RemAccessErr);
    eventually("ERR", || far.state() == QpState::Err);
    receive(&lab.right, &mut far, 4);
    assert_eq!(lab.right.completion().status, WcStatus::WrFlushErr);
    lab.tell(&mut other, &mut other_far, 2, 3000);
    assert_eq!(lab.eecs.each_ref().map(state), [QpState::Rts; 2]);
}

#[test] //= check R11 test
fn queue_pairs_that_are_destroyed_in_the_middle_do_not_stop_the_others() {
    let lab = Lab::new(&Setup::default());
    let (mut near, mut far) = (lab.sender(), lab.receiver());
    let big = [lab.left.memory.slice(..900_000).unwrap()];
    let target = lab.right.memory.remote();
    for round in 0..40 {
        let (mut gone, gone_far) = (lab.sender(), lab.receiver());
        let to = lab.to(&gone_far);
        for _ in 0..3 {
            gone.post_send(&SendWr::write(&big, target), &to).unwrap();
            gone.post_send(&SendWr::read(&big, target), &to).unwrap();
        }
        std::thread::sleep(Duration::from_micros(50 * round));
        match round % 3 {
            0 => drop(gone),
            1 => drop(gone_far),
            _ => gone.modify(&uroce::QpChange::to(QpState::Err)).unwrap(),
        }
        // What is still in the queue of completions is of the one that is gone.
        lab.right.memory.write_at(0, &[0]).unwrap();
        tell_between(&lab, &mut near, &mut far);
    }
    assert_eq!(lab.eecs.each_ref().map(state), [QpState::Rts; 2]);
}

/// Sends a message that must arrive, whatever completions of others there are.
fn tell_between(lab: &Lab, near: &mut RdQp, far: &mut RdQp) {
    let next = |side: &Side, qpn| -> WorkCompletion {
        loop {
            let completion = side.completion();
            if completion.qpn == qpn {
                return completion;
            }
        }
    };
    receive(&lab.right, far, 5);
    near.post_send(&SendWr::send(&[]).signaled(), &lab.to(far)).unwrap();
    next(&lab.right, far.qpn()).ok().unwrap();
    next(&lab.left, near.qpn()).ok().unwrap();
}

#[test] //= check R18 test
fn when_an_ee_context_is_gone_what_names_it_fails() {
    let mut lab = Lab::new(&Setup::default());
    let mut pairs: Vec<_> = (0..3).map(|_| (lab.sender(), lab.receiver())).collect();
    // No receives at the peer: the messages wait.
    for (near, far) in &mut pairs {
        near.post_send(&SendWr::send(&[]).id(1), &lab.to(far)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(5));
    let other = lab.domains[0].create_eec().unwrap();
    let gone = std::mem::replace(&mut lab.eecs[0], other);
    drop(gone);
    for _ in 0..3 {
        let status = lab.left.completion().status;
        assert!(matches!(status, WcStatus::LocEecOpErr | WcStatus::InvEecStateErr), "{status:?}");
    }
    // Reset, and connected anew by another EE context.
    lab.eecs[1] = lab.domains[1].create_eec().unwrap();
    lab.connect([&lab.eecs[0], &lab.eecs[1]], &ConnectOptions::default());
    for (near, far) in &mut pairs {
        eventually("SQE", || near.state() == QpState::Sqe);
        near.recover().unwrap();
        lab.tell(near, far, 9, 3000);
    }
}

#[test] //= check R27 test
fn when_the_peer_is_gone_the_ee_context_ends_with_what_is_in_its_line() {
    let options = ConnectOptions { timeout: 8, retry_cnt: 1, ..ConnectOptions::default() };
    let lab = Lab::new(&Setup { options, ..Setup::default() });
    let mut pairs: Vec<_> = (0..3).map(|_| (lab.sender(), lab.receiver())).collect();
    lab.right.context.set_loss(1, LossConfig { rx: 1.0, ..LossConfig::default() }).unwrap();
    for (near, far) in &mut pairs {
        near.post_send(&SendWr::send(&[]).id(1), &lab.to(far)).unwrap();
    }
    let mut statuses = [(); 3].map(|()| lab.left.completion().status);
    statuses.sort_by_key(|status| *status != WcStatus::RetryExcErr);
    assert_eq!(statuses[0], WcStatus::RetryExcErr);
    assert_eq!(statuses[1..], [WcStatus::InvEecStateErr; 2]);
    assert_eq!(state(&lab.eecs[0]), QpState::Err);
}

#[test] //= check R26 test
fn a_queue_pair_drains_with_its_event_and_so_does_an_ee_context() {
    let lab = Lab::new(&Setup::default());
    let (mut near, mut far) = (lab.sender(), lab.receiver());
    lab.tell(&mut near, &mut far, 1, 3000);
    let next = || lab.left.context.next_async_event(Some(SOON)).unwrap();
    near.drain(true).unwrap();
    let event = next();
    assert_eq!(event.kind, EventKind::SqDrained);
    assert_eq!(event.source, EventSource::QueuePair(near.qpn()));
    lab.eecs[0].drain(true).unwrap();
    let event = next();
    assert_eq!(event.source, EventSource::QueuePair(lab.eecs[0].eecn()));
    receive(&lab.right, &mut far, 5);
    near.post_send(&SendWr::send(&[]).id(3).signaled(), &lab.to(&far)).unwrap();
    near.resume().unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(lab.left.cq.poll_one().unwrap(), None, "the EE context begins nothing");
    lab.eecs[0].resume().unwrap();
    assert_eq!(lab.left.done(), 3);
}

#[test] //= check R28 test
fn all_queue_pairs_migrate_with_their_ee_context() {
    let lab = Lab::new(&Setup::two_links());
    let mut pairs: Vec<_> = (0..3).map(|_| (lab.sender(), lab.receiver())).collect();
    let gid = |context: &Context| context.ports()[1].gids[0];
    for (eec, peer) in [(&lab.eecs[0], &lab.right), (&lab.eecs[1], &lab.left)] {
        let vector = AddressVector::to(gid(&peer.context));
        let way = AlternateVector { vector, port: 2, pkey: Pkey::DEFAULT, timeout: 14 };
        eec.load_alternate_path(&way).unwrap();
        eec.rearm().unwrap();
    }
    let armed = |eec: &Eec| eec.query().unwrap().attr.path_mig_state == PathMigState::Armed;
    let begin = Instant::now();
    while !lab.eecs.iter().all(armed) {
        assert!(begin.elapsed() < SOON);
        for (near, far) in &mut pairs {
            lab.tell(near, far, 4, 3000);
        }
    }
    lab.left.context.set_link(1, false).unwrap();
    for (near, far) in &mut pairs {
        lab.tell(near, far, 5, 3000);
    }
    for (eec, side) in lab.eecs.iter().zip([&lab.left, &lab.right]) {
        let info = eec.query().unwrap();
        assert_eq!((info.attr.port, info.attr.path_mig_state), (2, PathMigState::Migrated));
        let event = loop {
            let event = side.context.next_async_event(Some(SOON)).unwrap();
            if !matches!(event.source, EventSource::Port(_)) && event.kind != EventKind::CommEst {
                break event;
            }
        };
        assert_eq!(event.kind, EventKind::PathMig);
        assert_eq!(event.source, EventSource::QueuePair(eec.eecn()));
    }
}

#[test]
fn a_full_completion_queue_stops_its_queue_pairs_and_no_ee_context() {
    let lab = Lab::new(&Setup::default());
    let (mut near, mut far) = (lab.sender(), lab.receiver());
    let tiny = lab.left.context.create_cq(1).unwrap();
    let mut victim = lab.left.pd.create_rd_qp(&lab.domains[0], &QpInit::new(&tiny)).unwrap();
    victim.start(KEY, &ConnectOptions::default()).unwrap();
    let to = lab.to(&far);
    let target = lab.right.memory.remote();
    let message = [lab.left.memory.slice(..100).unwrap()];
    for _ in 0..100 {
        victim.post_send(&SendWr::write(&message, target).signaled(), &to).unwrap();
    }
    eventually("ERR", || victim.state() == QpState::Err);
    lab.tell(&mut near, &mut far, 3, 3000);
    assert_eq!(lab.eecs.each_ref().map(state), [QpState::Rts; 2]);
}

#[test] //= check R29 test
fn receives_come_from_a_shared_queue_too() {
    let lab = Lab::new(&Setup::default());
    let srq = lab.right.pd.create_srq(64, 1).unwrap();
    let init = QpInit::new(&lab.right.cq).srq(&srq);
    let mut shared: Vec<_> =
        (0..2).map(|_| lab.right.pd.create_rd_qp(&lab.domains[1], &init).unwrap()).collect();
    let mut near = lab.sender();
    for far in &mut shared {
        far.start(KEY, &ConnectOptions::default()).unwrap();
        let room = [lab.right.memory.slice(..SLOT).unwrap()];
        srq.post_recv(&RecvWr::new(&room).id(5)).unwrap();
        near.post_send(&SendWr::send(&[]).id(1).signaled(), &lab.to(far)).unwrap();
        let received = lab.right.completion();
        assert_eq!(
            (received.status, received.wr_id, received.qpn),
            (WcStatus::Success, 5, far.qpn())
        );
        assert_eq!(lab.left.done(), 1);
    }
    assert!(srq.is_empty());
}

#[test] //= check R8 test
fn misuse_is_refused() {
    let lab = Lab::new(&Setup::default());
    let (mut near, far) = (lab.sender(), lab.receiver());
    let to = lab.to(&far);
    let word = lab.right.memory.remote().slice(0, 8).unwrap();
    let own: &MemoryRegion = &lab.left.memory;
    let eight = [own.slice(..8).unwrap()];
    for wr in [
        SendWr::atomic_write(&eight, word),
        SendWr::local_invalidate(uroce::Rkey(1)),
        SendWr::send_with_invalidate(&[], uroce::Rkey(1)),
        SendWr::flush(word, uroce::Placement::GLOBAL),
    ] {
        assert_eq!(near.post_send(&wr, &to), Err(PostError::WrongOperation));
    }
    let long = [own.slice(..65).unwrap()];
    let wr = SendWr::send(&long).inline();
    assert_eq!(near.post_send(&wr, &to), Err(PostError::InlineTooLong));
    let plain = lab.left.pd.create_qp(&QpInit::new(&lab.left.cq).qp_type(QpType::Rd));
    let is_domain =
        |error: &RequestError| matches!(error, RequestError::Control(ControlError::RdDomain));
    assert!(plain.is_err_and(|error| is_domain(&error)), "without a domain");
    let caps = QpCaps { max_send_wr: 0, ..QpInit::new(&lab.left.cq).caps };
    let init = QpInit { caps, ..QpInit::new(&lab.left.cq) };
    assert!(lab.left.pd.create_rd_qp(&lab.domains[0], &init).is_err());
    let access = uroce::QpChange { access: Some(AccessFlags::all()), ..Default::default() };
    assert!(lab.eecs[0].modify(&access, None, None).is_err(), "those of the RD QPs");
}
