//! Packets of a connection arrive at the lcore that owns its QP: the NIC's table is set for it.

use crate::lab;
use crate::lab::{Node, QpWish, TestQp};
use uroce_engine::mbuf::{Mempool, PoolConfig};
use uroce_engine::port::{Port, PortConfig};
use uroce_engine::{Engine, EngineConfig, IdlePolicy, LossConfig, PortAddresses, PortBinding};
use uroce_transport::{QpChange, QpState};
use uroce_wire::{Gid, Mac, Qpn};

fn addresses(host: u8) -> PortAddresses {
    let gid = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host));
    PortAddresses { mac: Mac([2, 0, 0, 0, 0, host]), vlan: None, gids: vec![gid] }
}

/// Starts an engine with two lcores over a device without another end, which has a table and the
/// key of Microsoft's examples.
fn node() -> Node {
    let eal = lab::eal();
    let geometry = PoolConfig { count: 4095, cache: 64, room: 2048, ..PoolConfig::default() };
    let pool = Mempool::create(eal, &geometry).expect("mempool");
    let config = PortConfig { queue_pairs: 2, ..PortConfig::new("net_null0,no-rx=1") };
    let port = Port::open(eal, &config, &pool).expect("net_null");
    assert!(port.capabilities().steering);
    let loss = LossConfig::default();
    let binding = PortBinding { port, pool, addresses: addresses(1), loss, bottleneck: None };
    let config = EngineConfig {
        lcores: vec![None; 2],
        max_qps: 16,
        max_mrs: 16,
        idle: IdlePolicy::Yield,
        ..EngineConfig::default()
    };
    let (engine, control) = Engine::start(config, vec![binding]).expect("starts");
    Node { engine, control, addresses: addresses(1) }
}

/// Makes a QP of an lcore, connected to another host from a UDP port.
fn connect(node: &mut Node, lcore: usize, src_port: u16) -> TestQp {
    let wish = QpWish { lcores: [Some(lcore); 2], mtu: MTU, ..QpWish::default() };
    let qp = node.create_qp(&wish);
    let mut changes = lab::changes(&node.addresses, &addresses(2), Qpn::new(0x17), &wish);
    if let Some(path) = &mut changes[1].path {
        path.encap.src_port = src_port;
    }
    for change in &changes {
        node.control.modify_qp(qp.qpn, change).expect("Modify QP");
    }
    qp
}

const MTU: uroce_wire::PathMtu = uroce_wire::PathMtu::B1024;

fn table(node: &Node) -> Vec<u16> {
    node.control.port(1).expect("a port").rss_table().expect("a table")
}

/// Returns the entries in which the tables differ.
fn moved(before: &[u16], after: &[u16]) -> Vec<usize> {
    (0..before.len()).filter(|&at| before[at] != after[at]).collect()
}

#[test]
fn the_entry_of_a_connection_leads_to_the_lcore_of_its_qp() {
    let mut node = node();
    let first = table(&node);
    let on_one = connect(&mut node, 1, 0xc123);
    let set = table(&node);
    let entries = moved(&first, &set);
    let &[entry] = &entries[..] else { panic!("one entry is set: {entries:?}") };
    assert_eq!((first[entry], set[entry]), (0, 1));
    // The entry is taken: a QP of the other lcore with the same flow does not move it.
    let on_zero = connect(&mut node, 0, 0xc123);
    assert_eq!(table(&node), set);
    // Once it is free, it is the other lcore's: of the QP that waits for it.
    node.control.modify_qp(on_one.qpn, &QpChange::to(QpState::Reset)).expect("Modify QP");
    assert_eq!(table(&node)[entry], 0);
    // And of a new one.
    node.control.destroy_qp(on_zero.qpn).expect("destroys");
    connect(&mut node, 1, 0xc123);
    assert_eq!(table(&node)[entry], 1);
}

#[test]
fn a_device_in_place_of_the_ports_own_is_steered_for_its_qps() {
    let mut node = node();
    let first = table(&node);
    connect(&mut node, 1, 0xc123);
    let steered = table(&node);
    assert_eq!(moved(&first, &steered).len(), 1);
    node.control.detach_port(1).expect("detached");
    node.control.remove_port(1).expect("removed");
    node.control.attach_port(1, "net_null1,no-rx=1").expect("attached");
    assert_eq!(table(&node), steered);
}

#[test]
fn qps_that_come_while_the_port_is_away_are_steered_after_a_reset() {
    let mut node = node();
    let first = table(&node);
    connect(&mut node, 1, 0xc123);
    let steered = table(&node);
    assert_eq!(moved(&first, &steered).len(), 1);
    node.control.detach_port(1).expect("detached");
    assert!(node.control.port(1).expect("a port").rss_table().is_none());
    // While the port is away, nothing is set, but not forgotten either.
    let ports = [0xc200, 0xc201, 0xc202, 0xc203, 0xc204];
    let others = ports.map(|src_port| connect(&mut node, 1, src_port));
    node.control.reset_port(1).expect("reset");
    let after = table(&node);
    assert_eq!(moved(&steered, &after).len(), ports.len(), "those that came meanwhile");
    for other in others {
        node.control.destroy_qp(other.qpn).expect("destroys");
    }
}
