//! Reliable datagrams: domains, their lcores, and the turns of EECs. One process per test.

use crate::lab::{Buffer, Lab, LabConfig, Node, QpWish, TestQp, eventually};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uroce_engine::{EngineCounter, IdlePolicy, LcoreGuard, PortAddresses, RdDomain, Turn};
use uroce_transport::{AccessFlags, QpChange, QpState, QpType, RdAddress, SendOp, WcStatus};
use uroce_wire::{Mac, Qkey, Qpn};

const QKEY: Qkey = Qkey(7);

fn two_lcores() -> LabConfig {
    LabConfig { lcores: 2, idle: IdlePolicy::Sleep, ..LabConfig::default() }
}

#[test]
fn domains_are_dealt_out_over_the_lcores_in_turn() {
    let lab = Lab::new(&two_lcores());
    // Whatever else is made in between.
    let homes = [0, 1, 2, 3, 4].map(|queues| {
        let of_queues = (0..queues).map(|_| lab.a.engine.create_cq(1, None).expect("CQ"));
        drop(of_queues.collect::<Vec<_>>());
        lab.a.engine.open_rd_domain().home()
    });
    assert_eq!(homes, [0, 1, 0, 1, 0]);
    lab.finish();
}

/// Domains with the homes 0, 1 and 0.
fn domains(node: &Node) -> [Arc<RdDomain>; 3] {
    let of = |home| {
        let mut all = std::iter::repeat_with(|| node.engine.open_rd_domain());
        Arc::new(all.find(|domain| domain.home() == home).expect("one of many"))
    };
    [of(0), of(1), of(0)]
}

/// Posts a request by that EEC, which fails, and returns the status. The RD QP recovers.
fn failure(node: &mut Node, qp: &mut TestQp, eecn: Qpn) -> WcStatus {
    send(qp, eecn, Qpn::new(2));
    let status = qp.completion().status;
    eventually("SQE", || qp.sq.state() == QpState::Sqe);
    let recovery = QpChange { cur_state: Some(QpState::Sqe), ..QpChange::to(QpState::Rts) };
    node.control.modify_qp(qp.qpn, &recovery).expect("recovers");
    status
}

#[test] //= check R17 test
fn an_eec_of_another_domain_is_refused_in_the_same_way_on_whatever_lcore() {
    let mut lab = Lab::new(&two_lcores());
    let node = &mut lab.a;
    let [own, elsewhere, beside] = domains(node);
    let mut qp = node.create_in(&own, QpType::Rd);
    node.start_rd(&qp, QKEY);
    for domain in [&beside, &elsewhere] {
        let eec = node.create_in(domain, QpType::Eec);
        assert_eq!(failure(node, &mut qp, eec.qpn), WcStatus::LocRddViolErr, "{domain:?}");
        // In any state.
        node.connect_eec(&eec, &lab.b.addresses, Qpn::new(2), &QpWish::default());
        assert_eq!(failure(node, &mut qp, eec.qpn), WcStatus::LocRddViolErr, "{domain:?}");
        node.control.destroy_qp(eec.qpn).expect("destroyed");
        assert_eq!(failure(node, &mut qp, eec.qpn), WcStatus::InvEecnErr, "{domain:?}");
        // The number of an RD QP, and of another queue pair.
        let other = node.create_in(domain, QpType::Rd);
        let wish = QpWish { lcores: [Some(domain.home()); 2], ..QpWish::default() };
        let rc = node.create_qp(&wish);
        for number in [other.qpn, rc.qpn] {
            assert_eq!(failure(node, &mut qp, number), WcStatus::InvEecnErr, "{domain:?}");
        }
    }
    lab.finish();
}

/// Two engines, of which the second stands still: the port of the first is full, as a UC QP has
/// more to send than it takes.
struct Jam {
    lab: Lab,
    turning: LcoreGuard,
    still: LcoreGuard,
    rest: (TestQp, TestQp, Buffer),
}

impl Jam {
    fn lab() -> Lab {
        let config = LabConfig { ring: 64, max_qps: 2048, ..LabConfig::default() };
        Lab::new(&LabConfig { idle: IdlePolicy::Sleep, ..config })
    }

    fn new(mut lab: Lab) -> Jam {
        const LEN: u32 = 1 << 20;
        let wish = QpWish { qp_type: QpType::Uc, ..QpWish::default() };
        let (mut filler, peer) = lab.connect(&wish);
        let region = lab.a.register(filler.pd, LEN as usize, AccessFlags::all());
        let still = lab.b.engine.adopt(0).expect("free");
        let turning = lab.a.engine.adopt(0).expect("free");
        let write = SendOp::Write { va: region.va(), rkey: region.keys.rkey, imm: None };
        (0..4).for_each(|id| filler.send(id, write, &[region.sge(0, LEN)]));
        let mut jam = Jam { lab, turning, still, rest: (filler, peer, region) };
        jam.turn(4);
        jam
    }

    fn turn(&mut self, turns: usize) {
        (0..turns).for_each(|_| _ = self.turning.turn());
    }

    fn finish(self) {
        let Jam { lab, turning, still, rest } = self;
        drop((turning, still, rest));
        lab.finish();
    }
}

/// An EEC to the peer, and an RD QP of its domain.
fn sender(lab: &mut Lab, domain: &Arc<RdDomain>) -> (TestQp, TestQp) {
    let [eec, qp] = [QpType::Eec, QpType::Rd].map(|kind| lab.a.create_in(domain, kind));
    // No timer, so that nothing but the port is waited for.
    let wish = QpWish { timeout: 0, ..QpWish::default() };
    lab.a.connect_eec(&eec, &lab.b.addresses, Qpn::new(2), &wish);
    lab.a.start_rd(&qp, QKEY);
    (eec, qp)
}

/// Posts an empty message.
fn send(qp: &mut TestQp, eecn: Qpn, dest_qpn: Qpn) {
    let to = RdAddress { eecn, dest_qpn, qkey: QKEY };
    qp.send_to(&to, 1, SendOp::Send { imm: None }, &[]);
}

/// The time of a turn of an lcore in which this many EECs have something to send, and the port is
/// full.
fn jammed_turn(eecs: usize) -> Duration {
    let mut lab = Jam::lab();
    let domain = Arc::new(lab.a.engine.open_rd_domain());
    let mut senders: Vec<_> = (0..eecs).map(|_| sender(&mut lab, &domain)).collect();
    let mut jam = Jam::new(lab);
    senders.iter_mut().for_each(|(eec, qp)| send(qp, eec.qpn, Qpn::new(2)));
    // Doorbells are answered in several turns.
    jam.turn(10);
    let engine = jam.lab.a.engine.clone();
    let full_turns = || engine.counters().engine(EngineCounter::TxFull);
    let before = full_turns();
    // A busy machine leaves some of the rounds alone.
    let rounds = (0..1000).map(|_| {
        let begin = Instant::now();
        (0..10).for_each(|_| assert_eq!(jam.turning.turn(), Turn::Blocked));
        begin.elapsed() / 10
    });
    let shortest = rounds.min().expect("a round");
    assert_eq!(full_turns() - before, 10_000, "each turn counts once");
    assert_eq!(senders[0].1.cq.poll(), Ok(None), "nothing has left");
    drop(senders);
    jam.finish();
    shortest
}

#[test]
fn a_turn_at_a_full_port_takes_no_longer_with_many_eecs() {
    let (few, many) = (jammed_turn(4), jammed_turn(512));
    assert!(many < 8 * few, "{many:?} with 512 EECs, {few:?} with 4");
}

#[test]
fn an_eec_to_the_device_itself_goes_on_when_the_port_is_full() {
    let mut lab = Jam::lab();
    let domain = Arc::new(lab.a.engine.open_rd_domain());
    let (waiting, mut first) = sender(&mut lab, &domain);
    let ends = [QpType::Eec; 2].map(|kind| lab.a.create_in(&domain, kind));
    let mut qps = [QpType::Rd; 2].map(|kind| lab.a.create_in(&domain, kind));
    let own = PortAddresses { mac: Mac::LOOPBACK, ..lab.a.addresses.clone() };
    for (end, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        lab.a.connect_eec(end, &own, peer.qpn, &QpWish::default());
    }
    qps.iter().for_each(|qp| lab.a.start_rd(qp, QKEY));
    let mut jam = Jam::new(lab);
    let [near, far] = &mut qps;
    send(&mut first, waiting.qpn, Qpn::new(2));
    for _ in 0..10 {
        far.recv(2, &[]);
        send(near, ends[0].qpn, far.qpn);
        jam.turn(20);
        let done = [&*near, &*far].map(|qp| qp.cq.poll().expect("no overrun"));
        let status = done.map(|cqe| cqe.map(|cqe| cqe.status));
        assert_eq!(status, [Some(WcStatus::Success); 2]);
    }
    assert_eq!(first.cq.poll(), Ok(None), "the port is full");
    drop((ends, qps, waiting, first));
    jam.finish();
}
