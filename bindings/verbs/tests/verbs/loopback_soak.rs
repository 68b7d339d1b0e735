//! Many queue pairs of one device communicate while others are created and destroyed, at random
//! from a seed. All data that are reported as received must be right.

use crate::common::{SOON, Setup, Side, join, pattern, post};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use uroce::cm::{ConnEvent, ConnectParam, Connection, Listener};
use uroce::config::LossConfig;
use uroce::{
    AddressVector, ConnectOptions, Context, GRH_LEN, Gid, Qkey, QpInit, QpType, Qpn, QueuePair,
    RecvWr, SendWr, WcStatus,
};

const TIME: Duration = Duration::from_secs(3);
const QKEY: Qkey = Qkey(0x77);

/// The random number generator SplitMix64 (Steele, Lea and Flood, 2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

fn renew(side: &mut Side, chance: &mut Chance) {
    let lcore = Some(chance.below(2));
    side.qp = side.pd.create_qp(&QpInit { lcore, ..QpInit::new(&side.cq) }).expect("QPs are left");
}

/// Connects two queue pairs on random lcores.
fn couple(pair: &mut [Side; 2], chance: &mut Chance) {
    let [left, right] = pair;
    renew(left, chance);
    renew(right, chance);
    join(left, right, &ConnectOptions::default());
}

/// Sends a WRITE, a READ or a SEND from either end.
fn talk(pair: &mut [Side; 2], chance: &mut Chance) {
    let [left, right] = pair;
    let (from, to) = if chance.below(2) == 0 { (left, right) } else { (right, left) };
    let len = chance.below(30_000);
    let message = pattern(len as u8, len);
    let (source, sink) = (0..len, 500_000..500_000 + len);
    match chance.below(3) {
        0 => {
            from.memory.write_at(0, &message).unwrap();
            let target = to.memory.remote().slice(500_000, len as u64).unwrap();
            post(&mut from.qp, SendWr::write(&[from.memory.slice(source).unwrap()], target));
            from.done();
            assert_eq!(to.bytes(500_000, len), message);
        }
        1 => {
            to.memory.write_at(0, &message).unwrap();
            let target = to.memory.remote().slice(0, len as u64).unwrap();
            post(&mut from.qp, SendWr::read(&[from.memory.slice(sink).unwrap()], target));
            from.done();
            assert_eq!(from.bytes(500_000, len), message);
        }
        _ => {
            from.memory.write_at(0, &message).unwrap();
            to.qp.post_recv(&RecvWr::new(&[to.memory.slice(sink).unwrap()])).unwrap();
            post(&mut from.qp, SendWr::send(&[from.memory.slice(source).unwrap()]));
            from.done();
            to.done();
            assert_eq!(to.bytes(500_000, len), message);
        }
    }
}

/// Destroys one end during traffic in both directions. The other end is destroyed soon, or after it
/// has failed, which takes half a second.
fn part(pair: &mut [Side; 2], chance: &mut Chance) {
    let [left, right] = pair;
    let targets = [right.memory.remote(), left.memory.remote()];
    for (from, target) in [&mut *left, &mut *right].into_iter().zip(targets) {
        for _ in 0..8 {
            let source = [from.memory.slice(..40_000).unwrap()];
            post(&mut from.qp, SendWr::write(&source, target));
        }
    }
    std::thread::sleep(Duration::from_micros(chance.below(400) as u64));
    let (gone, stays) = if chance.below(2) == 0 { (left, right) } else { (right, left) };
    renew(gone, chance);
    if chance.below(8) == 0 {
        (0..8).take_while(|_| stays.completion().status == WcStatus::Success).for_each(drop);
    }
    renew(stays, chance);
    // Takes the completions that the destroyed QPs have left in the queues.
    for side in [gone, stays] {
        while side.cq.poll_one().unwrap().is_some() {}
    }
}

/// Makes a connection with the connection manager. Either side ends it.
fn connection(pair: &mut [Side; 2], listener: &Listener, chance: &mut Chance) {
    renew(&mut pair[0], chance);
    renew(&mut pair[1], chance);
    let param = ConnectParam::default();
    let active = Connection::begin(&pair[0].qp, listener.local_addr(), &param).unwrap();
    let request = listener.next(SOON).expect("a request in time");
    let passive = request.accept(&pair[1].qp, &param).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    talk(pair, chance);
    let ends = if chance.below(2) == 0 { [active, passive] } else { [passive, active] };
    ends[0].disconnect().unwrap();
    let told = ends[1].next_event(SOON).expect("an event in time");
    assert!(matches!(told, ConnEvent::Disconnected { .. }), "{told:?}");
}

fn connected_ones(context: &Context, port: u16, seed: u64) {
    let mut chance = Chance(seed);
    let address = SocketAddr::new("192.0.2.1".parse().unwrap(), port);
    let listener = Listener::bind(context, address, 8).expect("the address is free");
    let mut pairs: Vec<[Side; 2]> =
        (0..4).map(|_| [Side::new(context), Side::new(context)]).collect();
    pairs.iter_mut().for_each(|pair| couple(pair, &mut chance));
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        let pair = &mut pairs[chance.below(4)];
        match chance.below(20) {
            0 => {
                part(pair, &mut chance);
                couple(pair, &mut chance);
            }
            1 => {
                connection(pair, &listener, &mut chance);
                couple(pair, &mut chance);
            }
            _ => talk(pair, &mut chance),
        }
    }
}

/// A UD QP with a full receive queue.
fn datagrams(side: &Side, chance: &mut Chance) -> QueuePair {
    let init = QpInit { lcore: Some(chance.below(2)), ..QpInit::new(&side.cq) };
    let mut qp = side.pd.create_qp(&init.qp_type(QpType::Ud)).expect("QPs are left");
    qp.start_datagrams(QKEY, &ConnectOptions::default()).expect("RTS");
    let room = [side.memory.slice(8192..16_384).unwrap()];
    (0..64).for_each(|_| qp.post_recv(&RecvWr::new(&room)).expect("room"));
    qp
}

fn datagram_ones(context: &Context, seed: u64) {
    let mut chance = Chance(seed);
    let group: Gid = "239.9.9.9".parse::<std::net::IpAddr>().unwrap().into();
    let sender = Side::new(context);
    let mut qp = datagrams(&sender, &mut chance);
    let own = context.ports()[0].gids[0];
    let ways =
        [own, group].map(|to| sender.pd.create_ah(1, &AddressVector::to(to)).expect("a way"));
    let receivers: Vec<Side> = (0..3).map(|_| Side::new(context)).collect();
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        let members: Vec<QueuePair> =
            receivers.iter().map(|side| datagrams(side, &mut chance)).collect();
        members.iter().for_each(|member| member.attach_multicast(group).unwrap());
        for _ in 0..chance.below(100) {
            let source = [sender.memory.slice(..chance.below(4096)).unwrap()];
            let at = chance.below(4);
            let (way, to) = match members.get(at) {
                Some(member) => (&ways[0], member.qpn()),
                None => (&ways[1], Qpn::MULTICAST),
            };
            post(&mut qp, SendWr::send_to(&source, way, to, QKEY));
            assert_eq!(sender.cq.wait(SOON).unwrap().unwrap().status, WcStatus::Success);
        }
        // Some datagrams are still on their way.
        drop(members);
        for side in &receivers {
            while side.cq.poll_one().unwrap().is_some() {}
        }
    }
    let last = datagrams(&receivers[0], &mut chance);
    sender.memory.write_at(0, b"still here").unwrap();
    let source = [sender.memory.slice(..10).unwrap()];
    // One or two datagrams may be lost if the device loses packets.
    let received = (0..10).find_map(|_| {
        post(&mut qp, SendWr::send_to(&source, &ways[0], last.qpn(), QKEY));
        receivers[0].cq.wait(Duration::from_secs(1)).unwrap()
    });
    assert_eq!(received.expect("a datagram").byte_len as usize, GRH_LEN + 10);
    assert_eq!(receivers[0].bytes(8192 + GRH_LEN, 10), b"still here");
}

fn soak(loss: LossConfig, seed: u64) {
    println!("seed {seed}");
    let setup = Setup { lcores: 2, loss, ..Setup::default() };
    // The other device consumes the frames that are sent to the group over the link.
    let (context, _other) = setup.contexts();
    std::thread::scope(|threads| {
        threads.spawn(|| connected_ones(&context, 7001, seed));
        threads.spawn(|| connected_ones(&context, 7002, seed + 1));
        threads.spawn(|| datagram_ones(&context, seed + 2));
    });
    // Nothing was left behind that prevents new connections.
    let mut pair = [Side::new(&context), Side::new(&context)];
    let mut chance = Chance(seed);
    couple(&mut pair, &mut chance);
    (0..50).for_each(|_| talk(&mut pair, &mut chance));
}

#[test]
fn completed_messages_have_arrived_while_queue_pairs_come_and_go() {
    soak(LossConfig::default(), seed());
}

#[test]
fn completed_messages_have_arrived_in_spite_of_losses() {
    soak(LossConfig { rx: 0.001, tx: 0.001, seed: 9 }, seed());
}

fn seed() -> u64 {
    let text = std::env::var("UROCE_TEST_SEED").unwrap_or_default();
    text.parse().unwrap_or(1)
}
