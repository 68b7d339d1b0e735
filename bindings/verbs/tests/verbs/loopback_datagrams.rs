//! UD queue pairs of one device that use its own addresses, and groups with members at the sender's
//! device.

use crate::common::{SOON, Setup, pattern};
use std::time::Duration;
use uroce::{
    AccessFlags, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Context, GRH_LEN,
    Gid, MemoryRegion, ProtectionDomain, Qkey, QpInit, QpType, Qpn, QueuePair, RecvWr, SendWr,
    WcStatus, WorkCompletion,
};

const QKEY: Qkey = Qkey(0x1122_3344);
const SLOT: usize = 8192;
const SLOTS: usize = 64;

/// A UD QP in RTS with posted receives of one slot each.
struct End {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl End {
    fn new(context: &Context, lcore: usize, port: u8) -> End {
        let pd = context.allocate_pd();
        let [send_cq, recv_cq] = [(); 2].map(|()| context.create_cq(256).expect("in range"));
        let init = QpInit { lcore: Some(lcore), recv_cq: &recv_cq, ..QpInit::new(&send_cq) };
        let mut qp = pd.create_qp(&init.qp_type(QpType::Ud)).expect("QPs are left");
        let options = ConnectOptions { port, ..ConnectOptions::default() };
        qp.start_datagrams(QKEY, &options).expect("RTS");
        let memory = pd.allocate((SLOTS + 1) * SLOT, AccessFlags::LOCAL_WRITE).expect("memory");
        let mut end = End { pd, send_cq, recv_cq, qp, memory };
        (0..SLOTS as u64).for_each(|slot| end.post(slot));
        end
    }

    fn post(&mut self, slot: u64) {
        let start = slot as usize * SLOT;
        let room = [self.memory.slice(start..start + SLOT).expect("inside")];
        self.qp.post_recv(&RecvWr::new(&room).id(slot)).expect("room");
    }

    fn way(&self, port: u8, to: Gid) -> AddressHandle {
        self.pd.create_ah(port, &AddressVector::to(to)).expect("a way")
    }

    fn begin(&mut self, way: &AddressHandle, to: Qpn, bytes: &[u8]) {
        let start = SLOTS * SLOT;
        self.memory.write_at(start, bytes).expect("fits");
        let message = [self.memory.slice(start..start + bytes.len()).expect("inside")];
        self.qp.post_send(&SendWr::send_to(&message, way, to, QKEY).signaled()).expect("room");
    }

    fn send(&mut self, way: &AddressHandle, to: Qpn, bytes: &[u8]) {
        self.begin(way, to, bytes);
        let sent = self.send_cq.wait(SOON).expect("no overrun").expect("a completion");
        assert_eq!(sent.status, WcStatus::Success);
    }

    fn received(&self) -> (WorkCompletion, Vec<u8>) {
        let completion = self.recv_cq.wait(SOON).expect("no overrun").expect("a datagram");
        assert_eq!(completion.status, WcStatus::Success);
        let mut bytes = vec![0; completion.byte_len as usize];
        self.memory.read_at(completion.wr_id as usize * SLOT, &mut bytes).expect("inside");
        (completion, bytes)
    }

    fn hears(&self, from: Qpn, message: &[u8]) {
        let (completion, bytes) = self.received();
        assert_eq!(completion.src_qpn, from);
        assert_eq!(bytes[GRH_LEN..], *message);
    }

    fn hears_nothing(&self) {
        assert_eq!(self.recv_cq.wait(Duration::from_millis(20)).unwrap(), None);
    }
}

fn alone(setup: &Setup) -> Context {
    Context::open(&setup.config(), "left").expect("a ring link needs no privilege")
}

fn gid(text: &str) -> Gid {
    text.parse::<std::net::IpAddr>().expect("an address").into()
}

fn count(context: &Context, name: &str) -> u64 {
    let counters = context.counters().expect("the control plane runs");
    counters.iter().find(|count| count.name == name).expect("a counter of that name").value
}

#[test] //= check L3 test
fn a_looped_datagram_follows_its_network_header() {
    let v6 = ["2001:db8::1/64", "2001:db8::2/64"];
    for (lcores, addresses) in [(1, Setup::default().addresses), (2, v6)] {
        let context = alone(&Setup { lcores, addresses, vlan: Some(9), ..Setup::default() });
        let own = context.ports()[0].gids[0];
        let mut left = End::new(&context, 0, 1);
        let right = End::new(&context, usize::from(lcores) - 1, 1);
        let way = left.way(1, own);
        for len in [0, 1, 4095, 4096] {
            let message = pattern(len as u8, len);
            left.send(&way, right.qp.qpn(), &message);
            let (completion, bytes) = right.received();
            assert_eq!((completion.src_qpn, completion.has_grh), (left.qp.qpn(), true));
            assert_eq!(bytes[GRH_LEN..], message[..]);
            let (src, dst) = match own.to_ipv4() {
                Some(_) => (&bytes[32..36], &bytes[36..40]),
                None => (&bytes[8..24], &bytes[24..40]),
            };
            assert_eq!((src, dst), (&own.0[16 - src.len()..], &own.0[16 - src.len()..]));
        }
        // The QP sends to itself.
        let qpn = left.qp.qpn();
        left.send(&way, qpn, b"me");
        left.hears(qpn, b"me");
        assert_eq!(count(&context, "rdma_tx_packets"), count(&context, "looped_packets"));
    }
}

#[test]
fn a_looped_datagram_with_a_mark_is_counted_and_sends_no_notification() {
    const CE: u8 = 3;
    let context = alone(&Setup::default());
    let mut left = End::new(&context, 0, 1);
    let own = context.ports()[0].gids[0];
    let marked = AddressVector { traffic_class: CE, ..AddressVector::to(own) };
    let way = left.pd.create_ah(1, &marked).expect("a way");
    let qpn = left.qp.qpn();
    left.send(&way, qpn, b"marked");
    left.hears(qpn, b"marked");
    assert_eq!(count(&context, "np_ecn_marked_roce_packets"), 1);
    assert_eq!(count(&context, "np_cnp_sent"), 0);
    assert_eq!(count(&context, "rdma_tx_packets"), 1);
}

#[test]
fn a_datagram_to_an_unused_qpn_of_the_device_is_counted() {
    let context = alone(&Setup::default());
    let mut end = End::new(&context, 0, 1);
    let way = end.way(1, context.ports()[0].gids[0]);
    end.send(&way, Qpn::new(0x00ab_cdef), b"nobody");
    let begin = std::time::Instant::now();
    while count(&context, "rx_unknown_qpn") == 0 {
        assert!(begin.elapsed() < SOON, "{:?}", context.counters());
    }
}

#[test]
fn more_datagrams_than_the_way_back_holds_wait_for_their_turn() {
    let context = alone(&Setup::default());
    let (mut left, mut right) = (End::new(&context, 0, 1), End::new(&context, 0, 1));
    let way = left.way(1, context.ports()[0].gids[0]);
    let to = right.qp.qpn();
    for round in 0..20u8 {
        for number in 0..SLOTS as u8 {
            left.begin(&way, to, &[round, number]);
        }
        for number in 0..SLOTS as u8 {
            // The payload is read when it is sent, so only the number of datagrams is certain.
            let (completion, bytes) = right.received();
            assert_eq!((completion.wr_id, bytes[GRH_LEN]), (u64::from(number), round));
            left.send_cq.wait(SOON).unwrap().expect("a completion");
        }
        (0..SLOTS as u64).for_each(|slot| right.post(slot));
    }
    assert_eq!(count(&context, "out_of_buffer"), 0);
}

#[test] //= check L5 test
fn a_group_is_heard_by_its_members_here_and_there_and_by_the_sender_among_them() {
    for group in ["239.1.2.3", "ff0e::77"] {
        let is_ipv4 = group.contains('.');
        let v6 = ["2001:db8::1/64", "2001:db8::2/64"];
        let addresses = if is_ipv4 { Setup::default().addresses } else { v6 };
        let (left, right) = Setup { lcores: 2, addresses, ..Setup::default() }.contexts();
        let group = gid(group);
        let mut sender = End::new(&left, 0, 1);
        let here = [0, 1, 1].map(|lcore| End::new(&left, lcore, 1));
        let there = [0, 1].map(|lcore| End::new(&right, lcore, 1));
        let way = sender.way(1, group);
        let from = sender.qp.qpn();

        // No QP of this device is in the group yet, so none gets the datagram.
        there.iter().for_each(|end| end.qp.attach_multicast(group).unwrap());
        sender.send(&way, Qpn::MULTICAST, b"far");
        there.iter().for_each(|end| end.hears(from, b"far"));
        assert_eq!(count(&left, "looped_packets"), 0);

        here[..2].iter().for_each(|end| end.qp.attach_multicast(group).unwrap());
        for len in [0, 1000, 4096] {
            let message = pattern(3, len);
            sender.send(&way, Qpn::MULTICAST, &message);
            here[..2].iter().chain(&there).for_each(|end| end.hears(from, &message));
        }
        here[2].hears_nothing();
        sender.hears_nothing();

        sender.qp.attach_multicast(group).unwrap();
        sender.send(&way, Qpn::MULTICAST, b"all");
        here[..2].iter().chain(&there).for_each(|end| end.hears(from, b"all"));
        sender.hears(from, b"all");

        // A QPN that is not the multicast QPN: the datagram is sent to the link, and no QP gets it.
        let unknown = count(&right, "rx_not_for_us");
        sender.send(&way, here[0].qp.qpn(), b"odd");
        here[0].hears_nothing();
        assert_eq!(count(&right, "rx_not_for_us"), unknown + 1);

        // Members of this device still get datagrams while the link is down.
        left.set_link(1, false).unwrap();
        let begin = std::time::Instant::now();
        while left.port_status(1).unwrap().link.up || count(&left, "link_downed") == 0 {
            assert!(begin.elapsed() < SOON);
        }
        sender.send(&way, Qpn::MULTICAST, b"near");
        here[..2].iter().for_each(|end| end.hears(from, b"near"));
        sender.hears(from, b"near");
        there.iter().for_each(End::hears_nothing);
        assert_eq!(count(&left, "tx_link_down"), 1);
    }
}

#[test]
fn a_group_is_heard_at_the_senders_port_only() {
    let context = alone(&Setup::two_links());
    let group = gid("239.1.2.4");
    let mut sender = End::new(&context, 0, 1);
    let [first, second] = [1, 2].map(|port| End::new(&context, 0, port));
    for end in [&first, &second] {
        end.qp.attach_multicast(group).unwrap();
    }
    let way = sender.way(1, group);
    sender.send(&way, Qpn::MULTICAST, b"one");
    first.hears(sender.qp.qpn(), b"one");
    second.hears_nothing();
}

#[test]
fn members_that_leave_during_traffic_to_the_group_do_not_disturb_it() {
    // The other device consumes the frames that are sent to the link.
    let (context, _other) = Setup { lcores: 2, ..Setup::default() }.contexts();
    let group = gid("239.1.2.5");
    let mut sender = End::new(&context, 0, 1);
    let way = sender.way(1, group);
    for round in 0..50 {
        let ends = [0, 1].map(|lcore| End::new(&context, lcore, 1));
        ends.iter().for_each(|end| end.qp.attach_multicast(group).unwrap());
        for _ in 0..32 {
            sender.begin(&way, Qpn::MULTICAST, &[round]);
        }
        drop(ends);
        for _ in 0..32 {
            let sent = sender.send_cq.wait(SOON).unwrap().expect("a completion");
            assert_eq!(sent.status, WcStatus::Success);
        }
    }
    let end = End::new(&context, 1, 1);
    end.qp.attach_multicast(group).unwrap();
    sender.send(&way, Qpn::MULTICAST, b"still");
    end.hears(sender.qp.qpn(), b"still");
}
