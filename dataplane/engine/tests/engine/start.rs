//! Impossible configurations are refused with a precise error, change nothing, and leave nothing
//! behind. One process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, QpWish};
use uroce_engine::mbuf::{Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::{Port, UdpConfig};
use uroce_engine::{
    BottleneckConfig, Control, ControlError, Engine, EngineConfig, EngineError, FlowError,
    FlowKind, LossConfig, PortAddresses, PortBinding, QpSpec, ThreadError,
};
use uroce_transport::{ModifyError, QpCaps, QpChange, QpState, QpType};
use uroce_wire::flow::FlowMatch;
use uroce_wire::{Gid, PathMtu, Qpn};

/// Makes a new port and its mempool.
fn binding(name: &str) -> (PortBinding, Mempool) {
    binding_of(name, 1500)
}

fn binding_of(name: &str, mtu: u16) -> (PortBinding, Mempool) {
    let eal = lab::eal();
    let geometry = PoolConfig { count: 511, cache: 0, room: 2048, ..PoolConfig::default() };
    let pool = Mempool::create(eal, &geometry).expect("mempool");
    let (port, _) = ring_pair(eal, name, 1, 64, mtu, &pool).expect("rings");
    let addresses = PortAddresses::default();
    let binding = PortBinding {
        port,
        pool: pool.clone(),
        addresses,
        loss: LossConfig::default(),
        bottleneck: None,
    };
    (binding, pool)
}

#[test]
fn a_configuration_out_of_its_limits_is_refused_by_name() {
    type Case = (fn(&mut EngineConfig, &mut PortBinding), fn(&EngineError) -> bool);
    let cases: [Case; 8] = [
        (|c, _| c.lcores.clear(), |e| matches!(e, EngineError::Lcores(0))),
        (|c, _| c.lcores = vec![None; 65], |e| matches!(e, EngineError::Lcores(65))),
        (|c, _| c.max_qps = 0, |e| matches!(e, EngineError::Qps(0))),
        (|c, _| c.max_mrs = u32::MAX, |e| matches!(e, EngineError::Mrs(u32::MAX))),
        (|_, p| p.loss.tx = 1.5, |e| matches!(e, EngineError::Loss(1))),
        (
            |_, p| p.bottleneck = Some(BottleneckConfig::new(0, 1)),
            |e| e.to_string() == "port 1: bottleneck.rate: 0 Mb/s is not from 1 Mb/s to 400 Gb/s",
        ),
        (|_, p| p.addresses.vlan = Some(4095), |e| matches!(e, EngineError::Addresses(1))),
        (
            |_, p| p.addresses.gids = vec![Gid::default(); 65],
            |e| matches!(e, EngineError::Addresses(1)),
        ),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        let (mut port, pool) = binding(&format!("case{number}"));
        let mut config = EngineConfig { max_qps: 16, max_mrs: 16, ..EngineConfig::default() };
        change(&mut config, &mut port);
        let error = Engine::start(config, vec![port]).expect_err("refused");
        assert!(expected(&error), "case {number}: {error}");
        assert_eq!(pool.available(), pool.count());
    }
    lab::eal();
    let error = Engine::start(EngineConfig::default(), Vec::new()).expect_err("refused");
    assert!(matches!(error, EngineError::Ports(0)));
}

#[test]
fn an_lcore_on_a_cpu_that_does_not_exist_is_an_error_and_the_others_stop() {
    let eal = lab::eal();
    let geometry = PoolConfig { count: 511, cache: 0, room: 2048, ..PoolConfig::default() };
    let pool = Mempool::create(eal, &geometry).expect("mempool");
    for cpu in [1023, 1024, usize::MAX] {
        let (port, _) =
            ring_pair(eal, &format!("cpu{}", cpu % 99), 2, 64, 1500, &pool).expect("rings");
        let (addresses, loss) = (PortAddresses::default(), LossConfig::default());
        let binding = PortBinding { port, pool: pool.clone(), addresses, loss, bottleneck: None };
        let lcores = vec![None, Some(cpu)];
        let config = EngineConfig { lcores, max_qps: 16, ..EngineConfig::default() };
        let error = Engine::start(config, vec![binding]).expect_err("refused");
        let named = |error: &ThreadError| matches!(error, ThreadError::Cpu(id) if *id == cpu);
        let right = matches!(&error, EngineError::Thread { lcore: 1, error } if named(error));
        assert!(right, "{error}");
        assert_eq!(pool.available(), pool.count());
    }
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let lcores = tasks.filter(|task| {
        let comm = task.as_ref().expect("an entry").path().join("comm");
        std::fs::read_to_string(comm).is_ok_and(|name| name.starts_with("uroce-lcore"))
    });
    assert_eq!(lcores.count(), 0, "its threads have ended");
}

#[test]
fn control_calls_are_refused_by_name_and_change_nothing() {
    let mut lab = Lab::new(&LabConfig { max_qps: 2, ..LabConfig::default() });
    let control = &mut lab.a.control;
    let unknown = Qpn::new(77);
    assert_eq!(control.query_qp(unknown), Err(ControlError::UnknownQp(unknown)));
    assert_eq!(control.destroy_qp(unknown), Err(ControlError::UnknownQp(unknown)));

    let cq = lab.a.engine.create_cq(4, None).expect("CQ");
    let caps = QpWish::default().caps;
    let spec = QpWish::default().spec(lab.a.engine.alloc_pd(), &cq);
    let bad = [
        QpCaps { max_send_wr: 0, ..caps },
        QpCaps { max_send_wr: (1 << 16) + 1, ..caps },
        QpCaps { max_recv_wr: (1 << 16) + 1, ..caps },
        QpCaps { max_send_sge: 0, ..caps },
        QpCaps { max_recv_sge: 33, ..caps },
        QpCaps { max_inline_data: 1025, ..caps },
    ];
    for caps in bad {
        let error = control.create_qp(&QpSpec { caps, ..spec.clone() }).expect_err("refused");
        assert_eq!(error, ControlError::Caps(caps));
    }
    let on = QpSpec { lcore: Some(1), ..spec.clone() };
    assert_eq!(control.create_qp(&on).err(), Some(ControlError::NoSuchLcore(1)));
    let qps = [(); 2].map(|()| control.create_qp(&spec).expect("two fit"));
    assert_eq!(control.create_qp(&spec).err(), Some(ControlError::NoQpLeft));
    assert_eq!(control.qps().count(), 2);
    control.destroy_qp(qps[0].qpn).expect("destroys");
    let again = control.create_qp(&spec).expect("there is room again");
    assert_ne!(again.qpn, qps[0].qpn);

    let init = QpChange { access: Some(Default::default()), ..QpChange::to_init(2) };
    assert_eq!(control.modify_qp(again.qpn, &init), Err(ControlError::NoSuchPort(2)));
    let init = QpChange { port: Some(0), ..init };
    assert_eq!(control.modify_qp(again.qpn, &init), Err(ControlError::NoSuchPort(0)));
    let rts = QpChange::to(QpState::Rts);
    let transition = ModifyError::Transition { from: QpState::Reset, to: QpState::Rts };
    assert_eq!(control.modify_qp(again.qpn, &rts), Err(transition.into()));
    assert_eq!(control.query_qp(again.qpn).expect("there").attr.state, QpState::Reset);
    let addresses = PortAddresses::default();
    assert_eq!(control.set_addresses(2, addresses), Err(ControlError::NoSuchPort(2)));
    lab.finish();
}

#[test]
fn a_path_mtu_that_the_port_cannot_carry_is_refused() {
    let (port, _pool) = binding("mtu");
    let config = EngineConfig { max_qps: 16, max_mrs: 16, ..EngineConfig::default() };
    let (engine, mut control) = Engine::start(config, vec![port]).expect("starts");
    let cq = engine.create_cq(4, None).expect("CQ");
    let spec = QpWish::default().spec(engine.alloc_pd(), &cq);
    let qpn = control.create_qp(&spec).expect("QP").qpn;
    let own = PortAddresses { gids: vec![Gid::default()], ..PortAddresses::default() };
    let [init, rtr, _] = lab::changes(&own, &own, Qpn::new(2), &QpWish::default());
    control.modify_qp(qpn, &init).expect("INIT");
    let refused = ControlError::PathMtu { path_mtu: PathMtu::B4096, mtu: 1500 };
    assert_eq!(control.modify_qp(qpn, &rtr), Err(refused));
    let rtr = QpChange { path_mtu: Some(PathMtu::B1024), ..rtr };
    assert_eq!(control.modify_qp(qpn, &rtr), Ok(()));
}

#[test] //= check W8 test
fn a_qp_gets_a_port_of_any_mtu_and_a_raw_qp_flows_of_its_port_only() {
    let (one, _pool) = binding_of("one", 576);
    let (two, _other_pool) = binding_of("two", 576);
    let config = EngineConfig { max_qps: 16, max_mrs: 16, ..EngineConfig::default() };
    let (engine, mut control) = Engine::start(config, vec![one, two]).expect("starts");
    let cq = engine.create_cq(4, None).expect("CQ");
    let pd = engine.alloc_pd();
    let own = PortAddresses { gids: vec![Gid::default()], ..PortAddresses::default() };
    let [init, rtr, _] = lab::changes(&own, &own, Qpn::new(2), &QpWish::default());
    let create = |control: &mut Control, qp_type| {
        let spec = QpWish { qp_type, ..QpWish::default() }.spec(pd, &cq);
        control.create_qp(&spec).expect("QP").qpn
    };
    // A connection has no path MTU before RTR.
    let qpn = create(&mut control, QpType::Rc);
    assert_eq!(control.modify_qp(qpn, &init), Ok(()));
    let rtr = QpChange { path_mtu: Some(PathMtu::B512), ..rtr };
    let refused = ControlError::PathMtu { path_mtu: PathMtu::B512, mtu: 576 };
    assert_eq!(control.modify_qp(qpn, &rtr), Err(refused));
    let rtr = QpChange { path_mtu: Some(PathMtu::B256), ..rtr };
    assert_eq!(control.modify_qp(qpn, &rtr), Ok(()));
    // Frames have none at all.
    let raw = create(&mut control, QpType::RawPacket);
    let all = FlowKind::Default(FlowMatch::new(&[]).expect("a rule"));
    let flow = control.create_flow(raw, pd, 2, all).expect("it has no port yet");
    let at = |port| QpChange { port: Some(port), ..QpChange::to(QpState::Init) };
    let other = |port| ControlError::Flow(FlowError::OtherPort(port));
    assert_eq!(control.modify_qp(raw, &at(1)), Err(other(2)));
    control.destroy_flow(flow).expect("destroys");
    assert_eq!(control.modify_qp(raw, &at(3)), Err(ControlError::NoSuchPort(3)));
    for change in [at(1), QpChange::to(QpState::Rtr), QpChange::to(QpState::Rts)] {
        assert_eq!(control.modify_qp(raw, &change), Ok(()));
    }
    assert_eq!(control.create_flow(raw, pd, 2, all), Err(other(1)));
    assert_eq!(control.create_flow(raw, pd, 2, FlowKind::Sniffer), Err(other(1)));
    control.create_flow(raw, pd, 1, all).expect("its own port");
}

#[test] //= check W8 test
fn ports_of_the_kernel_s_sockets_carry_no_frames_of_raw_qps() {
    let (ring, pool) = binding("udp");
    let config = UdpConfig {
        interface: "lo".into(),
        // One that no other test uses.
        addresses: vec![std::net::Ipv4Addr::new(127, 0, 78, 9).into()],
        mac: None,
        queue_pairs: 1,
        mtu: 1500,
    };
    let port = Port::over_udp(config, &pool).expect("sockets");
    let config = EngineConfig { max_qps: 16, max_mrs: 16, ..EngineConfig::default() };
    let (engine, mut control) =
        Engine::start(config, vec![PortBinding { port, ..ring }]).expect("starts");
    let cq = engine.create_cq(4, None).expect("CQ");
    let pd = engine.alloc_pd();
    for qp_type in [QpType::RawPacket, QpType::RawEtherType, QpType::RawIpv6, QpType::Ud] {
        let spec = QpWish { qp_type, ..QpWish::default() }.spec(pd, &cq);
        let refused = control.create_qp(&spec).err();
        assert_eq!(refused, qp_type.is_raw().then_some(ControlError::NoFrames), "{qp_type:?}");
    }
}
