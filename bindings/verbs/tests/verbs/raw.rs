//! Raw queue pairs: frames and packets that are not RoCE, and the flows that choose among them.

use crate::common::{SOON, Setup};
use uroce::{
    AccessFlags, CompletionQueue, Context, ControlError, EtherType, Flow, FlowError, FlowKind,
    FlowMatch, FlowSpec, Mac, MemoryRegion, QpInit, QpType, QueuePair, RecvWr, RequestError,
    SendWr, StaticRate, WcStatus, WorkCompletion,
};

/// A type for experiments.
const KIND: EtherType = EtherType(0x88b5);
const ROOM: usize = 4096;

/// A raw queue pair in RTS, with memory for one receive and one send.
struct Station {
    context: Context,
    cq: CompletionQueue,
    memory: MemoryRegion,
    qp: QueuePair,
}

impl Station {
    fn new(context: &Context, qp_type: QpType) -> Station {
        let cq = context.create_cq(64).unwrap();
        let pd = context.allocate_pd();
        let memory = pd.allocate(2 * ROOM, AccessFlags::LOCAL_WRITE).unwrap();
        let qp = pd.create_qp(&QpInit::new(&cq).qp_type(qp_type)).unwrap();
        qp.control().start_raw(1).unwrap();
        Station { context: context.clone(), cq, memory, qp }
    }

    fn mac(&self) -> Mac {
        self.context.ports()[0].mac
    }

    fn receive(&mut self) {
        let room = [self.memory.slice(..ROOM).unwrap()];
        self.qp.post_recv(&RecvWr::new(&room).id(1)).unwrap();
    }

    fn completion(&self) -> WorkCompletion {
        self.cq.wait(SOON).unwrap().expect("a completion")
    }

    fn received(&self) -> Vec<u8> {
        let completion = self.completion();
        assert_eq!((completion.status, completion.wr_id), (WcStatus::Success, 1));
        assert!(!completion.has_grh);
        let mut bytes = vec![0; completion.byte_len as usize];
        self.memory.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Sends one message, made by `wr` of its slice, and waits until it has left.
    fn send(&mut self, bytes: &[u8], wr: impl for<'a> FnOnce(SendWr<'a>) -> SendWr<'a>, to: Mac) {
        self.memory.write_at(ROOM, bytes).unwrap();
        let slice = [self.memory.slice(ROOM..ROOM + bytes.len()).unwrap()];
        let request = match self.qp.control().qp_type() {
            QpType::RawIpv6 => SendWr::ipv6(&slice, to),
            _ => SendWr::frame(&slice),
        };
        self.qp.post_send(&wr(request).id(2).signaled()).unwrap();
        let completion = self.completion();
        assert_eq!((completion.status, completion.wr_id), (WcStatus::Success, 2));
    }
}

fn frame(to: Mac, from: Mac, kind: EtherType, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.0.to_be_bytes(), payload].concat()
}

fn all_to(station: &Station) -> Flow {
    let all = FlowMatch::new(&[]).unwrap();
    station.qp.create_flow(1, FlowKind::Rule(all, 0)).unwrap()
}

#[test] //= check W5 test
fn an_ether_type_comes_to_its_queue_pair_by_unicast_and_broadcast() {
    let (left, right) = Setup::default().contexts();
    let mut sender = Station::new(&left, QpType::RawEtherType);
    let mut taker = Station::new(&right, QpType::RawEtherType);
    let flow = taker.qp.receive_ether_type(1, KIND).unwrap();
    for to in [taker.mac(), Mac::BROADCAST] {
        taker.receive();
        let sent = frame(to, sender.mac(), KIND, &[5; 80]);
        // Neither another station's frame nor another type is taken.
        let strange = frame(Mac([2, 9, 9, 9, 9, 9]), sender.mac(), KIND, &[6; 80]);
        let other = frame(to, sender.mac(), EtherType(0x88b6), &[7; 80]);
        for bytes in [&strange, &other, &sent] {
            sender.send(bytes, |wr| wr, to);
        }
        assert_eq!(taker.received(), sent);
    }
    drop(flow);
}

#[test] //= check W5 test
fn ipv6_packets_get_an_ethernet_header_with_the_port_s_vlan() {
    let setup = Setup { vlan: Some(7), ..Setup::default() };
    let (left, right) = setup.contexts();
    let mut sender = Station::new(&left, QpType::RawIpv6);
    let mut whole = Station::new(&right, QpType::RawPacket);
    let mut packet = vec![0x60, 0, 0, 0, 0, 4, 59, 64];
    packet.extend([0x20; 32]);
    packet.extend([1, 2, 3, 4]);
    let to = whole.mac();
    whole.receive();
    let flow = all_to(&whole);
    sender.send(&packet, |wr| wr, to);
    let header = frame(to, sender.mac(), EtherType(0x8100), &[0, 7, 0x86, 0xdd]);
    assert_eq!(whole.received(), [header, packet.clone()].concat());
    drop(flow);
    // A Raw IPv6 QP gets the packet alone.
    let mut taker = Station::new(&right, QpType::RawIpv6);
    let flow = taker.qp.receive_ipv6(1).unwrap();
    taker.receive();
    sender.send(&packet, |wr| wr, to);
    assert_eq!(taker.received(), packet);
    drop(flow);
}

#[test]
fn checksums_are_filled_in_and_a_rate_delays_the_next_frame() {
    let (left, right) = Setup::default().contexts();
    let mut sender = Station::new(&left, QpType::RawPacket);
    let mut taker = Station::new(&right, QpType::RawPacket);
    let flow = all_to(&taker);
    let header = *b"\x45\0\0\x20\0\0\0\0\x40\x11\0\0\x0a\0\0\x01\x0a\0\0\x02";
    let udp = *b"\0\x07\0\x09\0\x0c\0\0abcd";
    let packet = [&header[..], &udp].concat();
    let sent = frame(taker.mac(), sender.mac(), EtherType::IPV4, &packet);
    taker.receive();
    let to = taker.mac();
    sender.send(&sent, |wr| wr.with_checksums(), to);
    let received = taker.received();
    let sum = |bytes: &[u8], more: u32| {
        let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = words.sum::<u32>() + more;
        (sum & 0xffff) + (sum >> 16)
    };
    assert_eq!(sum(&received[14..34], 0), 0xffff);
    assert_eq!(sum(&received[34..], sum(&received[26..34], 17 + 12)), 0xffff);
    // 4000 bytes at 2.5 Gb/s take 12.8 µs.
    let rate = StaticRate::from_mbps(2_500).unwrap();
    let long = frame(Mac([2, 9, 9, 9, 9, 9]), sender.mac(), KIND, &[1; 3986]);
    sender.memory.write_at(ROOM, &long).unwrap();
    let mut time_of_50 = |rate: StaticRate| {
        let slice = [sender.memory.slice(ROOM..ROOM + long.len()).unwrap()];
        let begin = std::time::Instant::now();
        for _ in 0..50 {
            sender.qp.post_send(&SendWr::frame(&slice).rate(rate).id(2).signaled()).unwrap();
        }
        for _ in 0..50 {
            sender.completion().ok().unwrap();
        }
        begin.elapsed()
    };
    let least = std::time::Duration::from_micros(620);
    let limited = time_of_50(rate);
    assert!(limited >= least, "{limited:?}");
    // Without the rate they can be faster, though not beside whatever else this machine does.
    assert!((0..50).any(|_| time_of_50(StaticRate::MAX) < least));
    drop(flow);
}

#[test] //= check W10 test
fn only_raw_queue_pairs_have_flows_and_each_type_its_own() {
    let (left, _right) = Setup::default().contexts();
    let cq = left.create_cq(16).unwrap();
    let pd = left.allocate_pd();
    let rc = pd.create_qp(&QpInit::new(&cq)).unwrap();
    let all = FlowMatch::new(&[]).unwrap();
    let refused = rc.create_flow(1, FlowKind::Sniffer).unwrap_err();
    let is_not_raw = |error: &RequestError| {
        matches!(error, RequestError::Control(ControlError::Flow(FlowError::NotRaw)))
    };
    assert!(is_not_raw(&refused), "{refused}");
    let raw = Station::new(&left, QpType::RawPacket);
    for refused in [raw.qp.receive_ether_type(1, KIND), raw.qp.receive_ipv6(1)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, RequestError::Control(ControlError::QpType(_))), "{error}");
    }
    let error = raw.qp.create_flow(2, FlowKind::Default(all)).unwrap_err();
    assert!(matches!(error, RequestError::Control(ControlError::NoSuchPort(2))), "{error}");
    let error = raw.qp.create_flow(1, FlowKind::Rule(all, 16)).unwrap_err();
    assert!(matches!(error, RequestError::Control(ControlError::Flow(_))), "{error}");
    assert!(FlowMatch::new(&[FlowSpec::to_udp_port(1), FlowSpec::to_udp_port(2)]).is_err());
    // A flow keeps its queue pair.
    let flow = raw.qp.create_flow(1, FlowKind::Default(all)).unwrap();
    drop(raw);
    drop(flow);
}
