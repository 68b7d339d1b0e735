//! UD queue pairs: datagrams, their network headers and keys, and multicast groups.

use crate::common::{SOON, Setup, eventually, pattern};
use std::time::Duration;
use uroce::{
    AccessFlags, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Context,
    ControlError, GRH_LEN, Gid, GroupError, ImmDt, MemoryRegion, PostError, ProtectionDomain, Qkey,
    QpChange, QpInit, QpState, QpType, Qpn, QueuePair, RecvWr, RequestError, SendWr, WcOpcode,
    WcStatus,
};

const QKEY: Qkey = Qkey(0x1122_3344);
const SLOT: usize = 8192;

/// A UD QP in RTS, with memory for 16 datagrams and a completion queue.
struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl End {
    fn new(context: &Context, lcore: usize, qkey: Qkey) -> End {
        let pd = context.allocate_pd();
        let cq = context.create_cq(64).expect("a depth in range");
        let init = QpInit { lcore: Some(lcore), ..QpInit::new(&cq) }.qp_type(QpType::Ud);
        let mut qp = pd.create_qp(&init).expect("QPs are left");
        qp.start_datagrams(qkey, &ConnectOptions::default()).expect("RTS");
        let memory = pd.allocate(16 * SLOT, AccessFlags::LOCAL_WRITE).expect("memory");
        End { pd, cq, qp, memory }
    }

    fn post(&mut self, slot: usize, len: usize) {
        let room = [self.memory.slice(slot * SLOT..slot * SLOT + len).expect("inside")];
        self.qp.post_recv(&RecvWr::new(&room).id(slot as u64)).expect("room");
    }

    fn way(&self, to: Gid) -> AddressHandle {
        self.pd.create_ah(1, &AddressVector::to(to)).expect("a way")
    }

    /// Sends `bytes` and returns the completion's status.
    fn send(&mut self, way: &AddressHandle, to: Qpn, qkey: Qkey, bytes: &[u8]) -> WcStatus {
        self.memory.write_at(15 * SLOT, bytes).expect("fits");
        let message = [self.memory.slice(15 * SLOT..15 * SLOT + bytes.len()).expect("inside")];
        self.qp.post_send(&SendWr::send_to(&message, way, to, qkey).signaled()).expect("room");
        self.cq.wait(SOON).expect("no overrun").expect("a completion").status
    }

    fn bytes(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_at(slot * SLOT, &mut bytes).expect("in range");
        bytes
    }
}

fn gid(context: &Context) -> Gid {
    context.ports()[0].gids[0]
}

fn count(context: &Context, name: &str) -> u64 {
    let counters = context.counters().expect("the control plane runs");
    counters.iter().find(|count| count.name == name).expect("a counter of that name").value
}

#[test] //= check L3 test
fn a_datagram_follows_its_network_header_and_names_its_sender() {
    let v6 = ["2001:db8::1/64", "2001:db8::2/64"];
    for addresses in [Setup::default().addresses, v6] {
        let (left, right) = Setup { addresses, ..Setup::default() }.contexts();
        let (mut sender, mut receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
        let way = sender.way(gid(&right));
        for (slot, len) in [0, 1, 3, 256, 4095, 4096].into_iter().enumerate() {
            receiver.post(slot, SLOT);
            let message = pattern(slot as u8, len);
            let status = sender.send(&way, receiver.qp.qpn(), QKEY, &message);
            assert_eq!(status, WcStatus::Success);
            let completion = receiver.cq.wait(SOON).unwrap().expect("a datagram");
            assert_eq!((completion.status, completion.wr_id), (WcStatus::Success, slot as u64));
            assert_eq!((completion.opcode, completion.imm), (WcOpcode::Recv, None));
            assert_eq!(completion.byte_len as usize, GRH_LEN + len);
            assert!(completion.has_grh);
            assert_eq!(completion.src_qpn, sender.qp.qpn());
            let bytes = receiver.bytes(slot, GRH_LEN + len);
            assert_eq!(bytes[GRH_LEN..], message[..]);
            // The IP version, and the addresses of sender and receiver.
            let (version, src, dst) = match gid(&left).to_ipv4() {
                Some(_) => (bytes[20] >> 4, &bytes[32..36], &bytes[36..40]),
                None => (bytes[0] >> 4, &bytes[8..24], &bytes[24..40]),
            };
            let tail = |gid: Gid| gid.0[16 - src.len()..].to_vec();
            assert_eq!(version, if src.len() == 4 { 4 } else { 6 });
            assert_eq!((src.to_vec(), dst.to_vec()), (tail(gid(&left)), tail(gid(&right))));
        }
    }
}

#[test] //= check L6 test
fn immediate_data_comes_with_a_datagram() {
    let (left, right) = Setup::default().contexts();
    let (mut sender, mut receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
    let way = sender.way(gid(&right));
    receiver.post(0, SLOT);
    let wr = SendWr::send_to_with_imm(&[], &way, receiver.qp.qpn(), QKEY, ImmDt(0x0102_0304));
    sender.qp.post_send(&wr).unwrap();
    let completion = receiver.cq.wait(SOON).unwrap().expect("a datagram");
    assert_eq!(completion.imm, Some(ImmDt(0x0102_0304)));
    assert_eq!(completion.byte_len as usize, GRH_LEN);
}

#[test] //= check E13 test
fn a_wrong_q_key_is_dropped_and_counted_and_the_next_datagram_comes() {
    let (left, right) = Setup::default().contexts();
    let (mut sender, mut receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
    let way = sender.way(gid(&right));
    receiver.post(0, SLOT);
    let to = receiver.qp.qpn();
    assert_eq!(sender.send(&way, to, Qkey(QKEY.0 ^ 1), b"wrong"), WcStatus::Success);
    eventually("the count", || count(&right, "qkey_viol") == 1);
    // If the highest bit is set, the sender's own Q_Key is sent, which is the right one.
    assert_eq!(sender.send(&way, to, Qkey(1 << 31), b"right"), WcStatus::Success);
    let completion = receiver.cq.wait(SOON).unwrap().expect("a datagram");
    assert_eq!(completion.byte_len as usize, GRH_LEN + 5);
    assert_eq!(receiver.bytes(0, GRH_LEN + 5)[GRH_LEN..], *b"right");
}

#[test] //= check L4 test
fn too_long_datagrams_fail_here_and_those_that_find_no_receive_are_dropped() {
    let (left, right) = Setup::default().contexts();
    let (mut sender, mut receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
    let way = sender.way(gid(&right));
    let to = receiver.qp.qpn();
    assert_eq!(sender.send(&way, to, QKEY, b"nobody listens"), WcStatus::Success);
    eventually("the count", || count(&right, "out_of_buffer") == 1);
    receiver.post(0, SLOT);
    assert_eq!(sender.send(&way, to, QKEY, &[7; 4096]), WcStatus::Success);
    assert_eq!(receiver.cq.wait(SOON).unwrap().expect("it comes").status, WcStatus::Success);

    // One byte more than fits into a packet.
    assert_eq!(sender.send(&way, to, QKEY, &[7; 4097]), WcStatus::LocLenErr);
    eventually("SQE", || sender.qp.state() == QpState::Sqe);
}

#[test]
fn a_datagram_by_a_foreign_handle_is_not_sent() {
    let (left, right) = Setup::default().contexts();
    let (owner, receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
    let mut stranger = End::new(&left, 0, QKEY);
    let way = owner.way(gid(&right));
    let status = stranger.send(&way, receiver.qp.qpn(), QKEY, b"foreign");
    assert_eq!(status, WcStatus::LocQpOpErr);
}

#[test]
fn a_datagram_that_was_posted_is_sent_though_its_handle_and_its_qp_are_destroyed() {
    let (left, right) = Setup::default().contexts();
    let (mut sender, mut receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
    receiver.post(0, SLOT);
    // The handle is destroyed before the datagram is sent.
    sender.qp.modify(&QpChange::to(QpState::Sqd), None).unwrap();
    let way = sender.way(gid(&right));
    sender.qp.post_send(&SendWr::send_to(&[], &way, receiver.qp.qpn(), QKEY)).unwrap();
    drop(way);
    sender.qp.modify(&QpChange::to(QpState::Rts), None).unwrap();
    drop(sender.qp);
    let arrived = receiver.cq.wait(SOON).unwrap().expect("a datagram");
    assert_eq!((arrived.status, arrived.byte_len as usize), (WcStatus::Success, GRH_LEN));
}

#[test]
fn operations_other_than_send_are_refused_on_ud() {
    let (left, right) = Setup::default().contexts();
    let mut sender = End::new(&left, 0, QKEY);
    let way = sender.way(gid(&right));
    assert_eq!(sender.qp.post_send(&SendWr::send(&[])), Err(PostError::WrongOperation));
    let write = SendWr::write(&[], sender.memory.remote());
    assert_eq!(sender.qp.post_send(&write), Err(PostError::WrongOperation));
    let mut connected = sender.pd.create_qp(&QpInit::new(&sender.cq)).unwrap();
    let peer = End::new(&right, 0, QKEY).pd;
    let peer_cq = right.create_cq(8).unwrap();
    let mut other = peer.create_qp(&QpInit::new(&peer_cq)).unwrap();
    let options = ConnectOptions::default();
    connected.connect(&other.endpoint(1, 0).unwrap(), &options).unwrap();
    other.connect(&connected.endpoint(1, 0).unwrap(), &options).unwrap();
    let wr = SendWr::send_to(&[], &way, other.qpn(), QKEY);
    assert_eq!(connected.post_send(&wr), Err(PostError::WrongOperation));
}

#[test] //= check L5 test
fn every_qp_of_a_group_gets_its_copy_whatever_the_others_do() {
    let setup = Setup { lcores: 2, ..Setup::default() };
    let group: std::net::IpAddr = "239.1.2.3".parse().unwrap();
    let group = Gid::from(group);
    let (left, right) = setup.contexts();
    let mut sender = End::new(&left, 0, QKEY);
    let way = sender.way(group);
    // The receivers are on both lcores. The third one has another Q_Key, the fourth one has no
    // receive, the last one is not in the group.
    let keys = [QKEY, QKEY, Qkey(5), QKEY, QKEY];
    let mut ends: Vec<End> =
        keys.into_iter().enumerate().map(|(at, key)| End::new(&right, at % 2, key)).collect();
    for (at, end) in ends.iter_mut().enumerate() {
        if at != 3 {
            (0..8).for_each(|slot| end.post(slot, SLOT));
        }
        if at != 4 {
            end.qp.attach_multicast(group).unwrap();
        }
    }
    for round in 0..8u8 {
        let message = pattern(round, 1000);
        assert_eq!(sender.send(&way, Qpn::MULTICAST, QKEY, &message), WcStatus::Success);
        for end in &ends[..2] {
            let completion = end.cq.wait(SOON).unwrap().expect("a copy for each");
            assert_eq!(completion.status, WcStatus::Success);
            assert_eq!(completion.src_qpn, sender.qp.qpn());
            let bytes = end.bytes(usize::from(round), GRH_LEN + 1000);
            assert_eq!(bytes[GRH_LEN..], message[..]);
        }
    }
    eventually("the counts", || count(&right, "qkey_viol") == 8);
    eventually("the counts", || count(&right, "out_of_buffer") == 8);
    for end in &ends {
        assert_eq!(end.cq.poll_one().unwrap(), None, "one copy each, and none for the others");
    }
    // A QP that leaves the group or is destroyed gets no more datagrams.
    ends[0].qp.detach_multicast(group).unwrap();
    let gone = ends[0].qp.detach_multicast(group);
    assert!(matches!(
        gone,
        Err(RequestError::Control(ControlError::Group(GroupError::NotAttached)))
    ));
    let last = ends.swap_remove(1);
    drop(last);
    assert_eq!(sender.send(&way, Qpn::MULTICAST, QKEY, b"nobody"), WcStatus::Success);
    eventually("the counts", || count(&right, "qkey_viol") == 9);
    assert_eq!(ends[0].cq.wait(Duration::from_millis(20)).unwrap(), None);
}

#[test]
fn only_ud_qps_join_and_only_groups() {
    let (left, _right) = Setup::default().contexts();
    let end = End::new(&left, 0, QKEY);
    let unicast = gid(&left);
    let refused = |result: Result<(), RequestError>| match result {
        Err(RequestError::Control(ControlError::Group(error))) => error,
        other => panic!("{other:?}"),
    };
    let error = refused(end.qp.attach_multicast(unicast));
    assert_eq!(error, GroupError::NotMulticast(unicast));
    let connected = end.pd.create_qp(&QpInit::new(&end.cq)).unwrap();
    let group: std::net::IpAddr = "ff0e::1".parse().unwrap();
    assert_eq!(refused(connected.attach_multicast(group.into())), GroupError::NotDatagram);
}

#[test]
fn groups_of_ipv6_work_as_those_of_ipv4_do() {
    let addresses = ["2001:db8::1/64", "2001:db8::2/64"];
    let (left, right) = Setup { addresses, ..Setup::default() }.contexts();
    let group: std::net::IpAddr = "ff0e::1:2".parse().unwrap();
    let (mut sender, mut receiver) = (End::new(&left, 0, QKEY), End::new(&right, 0, QKEY));
    receiver.post(0, SLOT);
    receiver.qp.attach_multicast(group.into()).unwrap();
    let way = sender.way(group.into());
    assert_eq!(sender.send(&way, Qpn::MULTICAST, QKEY, b"all of you"), WcStatus::Success);
    let completion = receiver.cq.wait(SOON).unwrap().expect("a datagram");
    assert_eq!(completion.byte_len as usize, GRH_LEN + 10);
}
