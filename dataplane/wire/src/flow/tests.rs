//! Rules against frames, by table, and against any bytes.

use super::*;
use proptest::prelude::*;

const DST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SRC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn ethernet(tags: &[u8], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&DST[..], &SRC, tags, &ether_type.to_be_bytes(), payload].concat()
}

/// An IPv4 packet from 10.0.0.2 to 10.0.0.1 with `options`, a multiple of four bytes.
fn ipv4(flags: u16, options: &[u8], protocol: u8, rest: &[u8]) -> Vec<u8> {
    let len = (20 + options.len() + rest.len()) as u16;
    let mut header = vec![0x45 + (options.len() / 4) as u8, 0x2e];
    header.extend(len.to_be_bytes());
    header.extend([0, 0]);
    header.extend(flags.to_be_bytes());
    header.extend([64, protocol, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    [&header[..], options, rest].concat()
}

/// An IPv6 packet from 2001:db8::2 to 2001:db8::1.
fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x62, 0xe1, 0x23, 0x45];
    packet.extend((rest.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for host in [2, 1] {
        packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).octets());
    }
    [&packet[..], rest].concat()
}

/// From port 1000 to port 7000.
const UDP: [u8; 12] = [0x03, 0xe8, 0x1b, 0x58, 0, 12, 0, 0, 1, 2, 3, 4];
const TCP: [u8; 20] = [0x03, 0xe8, 0x1b, 0x58, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0];

fn udp4() -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(0, &[], 17, &UDP))
}

fn udp6() -> Vec<u8> {
    ethernet(&[], 0x86dd, &ipv6(17, &UDP))
}

fn accepts(specs: &[FlowSpec], frame: &[u8]) -> bool {
    let rule = FlowMatch::new(specs).expect("a possible rule");
    FlowFields::parse(frame).is_some_and(|fields| rule.accepts(&fields))
}

fn eth(change: impl Fn(&mut EthSpec, &mut EthSpec)) -> FlowSpec {
    let (mut value, mut mask) = Default::default();
    change(&mut value, &mut mask);
    FlowSpec::Eth(value, mask)
}

fn v4(change: impl Fn(&mut Ipv4Spec, &mut Ipv4Spec)) -> FlowSpec {
    let (mut value, mut mask) = Default::default();
    change(&mut value, &mut mask);
    FlowSpec::Ipv4(value, mask)
}

fn v6(change: impl Fn(&mut Ipv6Spec, &mut Ipv6Spec)) -> FlowSpec {
    let (mut value, mut mask) = Default::default();
    change(&mut value, &mut mask);
    FlowSpec::Ipv6(value, mask)
}

fn udp(src: u16, dst: u16, mask: PortsSpec) -> FlowSpec {
    FlowSpec::Udp(PortsSpec { src, dst }, mask)
}

const BOTH: PortsSpec = PortsSpec { src: u16::MAX, dst: u16::MAX };
const ANY: PortsSpec = PortsSpec { src: 0, dst: 0 };

type Row<'a> = (&'a str, FlowSpec, &'a [u8], bool);

fn check(rows: &[Row<'_>]) {
    for (name, spec, frame, expected) in rows {
        assert_eq!(accepts(&[*spec], frame), *expected, "{name}");
        assert!(accepts(&[], frame), "{name}: a rule without layers takes all");
    }
}

#[test] //= check W1 test
fn each_field_of_ethernet_counts_under_its_mask() {
    let tag = [0x81, 0, 0xa0, 5];
    let tagged = ethernet(&tag, 0x0800, &ipv4(0, &[], 17, &UDP));
    let arp = ethernet(&[], 0x0806, &[0; 28]);
    let oui = |value: &mut EthSpec, mask: &mut EthSpec| {
        (value.dst, mask.dst) = (Mac([2, 0, 0, 9, 9, 9]), Mac([0xff, 0xff, 0xff, 0, 0, 0]));
    };
    let vlan = |vid, bits| eth(move |value, mask| (value.vlan_tag, mask.vlan_tag) = (vid, bits));
    check(&[
        ("destination", FlowSpec::to_mac(Mac(DST)), &udp4(), true),
        ("another destination", FlowSpec::to_mac(Mac(SRC)), &udp4(), false),
        ("part of an address", eth(oui), &udp4(), true),
        ("source", eth(|v, m| (v.src, m.src) = (Mac(SRC), Mac::BROADCAST)), &udp4(), true),
        ("EtherType", FlowSpec::ether_type(EtherType::ARP), &arp, true),
        ("another EtherType", FlowSpec::ether_type(EtherType::ARP), &udp4(), false),
        ("EtherType behind a tag", FlowSpec::ether_type(EtherType::IPV4), &tagged, true),
        ("VLAN", vlan(5, 0xfff), &tagged, true),
        ("VLAN with its priority", vlan(0xa005, 0xffff), &tagged, true),
        ("another priority", vlan(0x2005, 0xffff), &tagged, false),
        ("VLAN 0 of a frame without a tag", vlan(0, 0xfff), &udp4(), false),
        ("no mask of a VLAN", vlan(5, 0), &udp4(), true),
    ]);
}

#[test] //= check W1 test
fn each_field_of_ip_and_its_ports_counts_under_its_mask() {
    let arp = ethernet(&[], 0x0806, &[0; 28]);
    let tcp4 = ethernet(&[], 0x0800, &ipv4(0, &[], 6, &TCP));
    let net = |value: &mut Ipv4Spec, mask: &mut Ipv4Spec| {
        value.src = Ipv4Addr::new(10, 0, 9, 9);
        mask.src = Ipv4Addr::new(255, 255, 0, 0);
    };
    check(&[
        ("IPv4 address", FlowSpec::to_ip(Ipv4Addr::new(10, 0, 0, 1).into()), &udp4(), true),
        ("another", FlowSpec::to_ip(Ipv4Addr::new(10, 0, 0, 3).into()), &udp4(), false),
        ("IPv4 network", v4(net), &udp4(), true),
        ("protocol", v4(|v, m| (v.protocol, m.protocol) = (17, 0xff)), &udp4(), true),
        ("another protocol", v4(|v, m| (v.protocol, m.protocol) = (6, 0xff)), &udp4(), false),
        ("DSCP", v4(|v, m| (v.traffic_class, m.traffic_class) = (0x2c, 0xfc)), &udp4(), true),
        ("TTL", v4(|v, m| (v.ttl, m.ttl) = (63, 0xff)), &udp4(), false),
        ("any IPv4", v4(|_, _| {}), &udp4(), true),
        ("any IPv4, of IPv6", v4(|_, _| {}), &udp6(), false),
        ("any IPv6", v6(|_, _| {}), &udp6(), true),
        ("any IPv6, of ARP", v6(|_, _| {}), &arp, false),
        (
            "IPv6 address",
            FlowSpec::to_ip("2001:db8::1".parse::<IpAddr>().unwrap().into()),
            &udp6(),
            true,
        ),
        (
            "flow label",
            v6(|v, m| (v.flow_label, m.flow_label) = (0x12345, 0xf_ffff)),
            &udp6(),
            true,
        ),
        ("another label", v6(|v, m| (v.flow_label, m.flow_label) = (1, 1 << 19)), &udp6(), true),
        (
            "traffic class",
            v6(|v, m| (v.traffic_class, m.traffic_class) = (0x2e, 0xff)),
            &udp6(),
            true,
        ),
        ("hop limit", v6(|v, m| (v.hop_limit, m.hop_limit) = (1, 0xff)), &udp6(), false),
        ("next header", v6(|v, m| (v.next_header, m.next_header) = (17, 0xff)), &udp6(), true),
        ("UDP port", FlowSpec::to_udp_port(7000), &udp4(), true),
        ("UDP port over IPv6", FlowSpec::to_udp_port(7000), &udp6(), true),
        ("another port", FlowSpec::to_udp_port(7001), &udp4(), false),
        ("both ports", udp(1000, 7000, BOTH), &udp4(), true),
        ("the ports exchanged", udp(7000, 1000, BOTH), &udp4(), false),
        ("any UDP, of TCP", udp(0, 0, ANY), &tcp4, false),
        ("any TCP", FlowSpec::Tcp(ANY, ANY), &tcp4, true),
        ("any TCP, of UDP", FlowSpec::Tcp(ANY, ANY), &udp4(), false),
    ]);
}

#[test] //= check W1 test
fn all_layers_of_a_rule_must_match() {
    let (mac, ip) =
        (FlowSpec::to_mac(Mac(DST)), FlowSpec::to_ip(Ipv4Addr::new(10, 0, 0, 1).into()));
    let port = FlowSpec::to_udp_port(7000);
    assert!(accepts(&[mac, ip, port], &udp4()));
    assert!(accepts(&[port, ip, mac], &udp4()), "in any order");
    assert!(!accepts(&[FlowSpec::to_mac(Mac(SRC)), ip, port], &udp4()));
    assert!(!accepts(&[mac, ip, FlowSpec::to_udp_port(1)], &udp4()));
    let other = FlowSpec::to_ip(Ipv4Addr::new(10, 0, 0, 9).into());
    assert!(!accepts(&[mac, other, port], &udp4()));
}

#[test] //= check W2 test
fn ports_are_found_behind_tags_options_and_extensions_but_not_in_fragments() {
    let port = FlowSpec::to_udp_port(7000);
    let (inner, outer) = ([0x81, 0, 0, 5], [0x88, 0xa8, 0, 9]);
    let stacked = [outer, inner].concat();
    let third = [&stacked[..], &inner].concat();
    let packet = ipv4(0, &[], 17, &UDP);
    let options = ipv4(0, &[1; 12], 17, &UDP);
    let hop = [17, 0, 0, 0, 0, 0, 0, 0];
    let long = [17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let auth = [17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let fragment = |offset: u16| {
        let mut header = vec![17, 0];
        header.extend(offset.to_be_bytes());
        header.extend([0, 0, 0, 1]);
        header
    };
    let behind = |kind, header: &[u8]| ethernet(&[], 0x86dd, &ipv6(kind, &[header, &UDP].concat()));
    let nested = [&[0, 0, 0, 0, 0, 0, 0, 0][..], &[60, 0, 0, 0, 0, 0, 0, 0], &hop, &UDP].concat();
    let rows: &[(&str, Vec<u8>, bool)] = &[
        ("one tag", ethernet(&inner, 0x0800, &packet), true),
        ("two tags", ethernet(&stacked, 0x0800, &packet), true),
        ("three tags", ethernet(&third, 0x0800, &packet), false),
        ("options", ethernet(&[], 0x0800, &options), true),
        ("not to be fragmented", ethernet(&[], 0x0800, &ipv4(0x4000, &[], 17, &UDP)), true),
        ("first fragment", ethernet(&[], 0x0800, &ipv4(0x2000, &[], 17, &UDP)), false),
        ("last fragment", ethernet(&[], 0x0800, &ipv4(0x0007, &[], 17, &UDP)), false),
        ("hop-by-hop options", behind(0, &hop), true),
        ("longer options", behind(60, &long), true),
        ("authentication", behind(51, &auth), true),
        ("three extension headers", ethernet(&[], 0x86dd, &ipv6(43, &nested)), true),
        ("a fragment that is whole", behind(44, &fragment(0)), true),
        ("IPv6's first fragment", behind(44, &fragment(1)), false),
        ("IPv6's last fragment", behind(44, &fragment(8 << 3)), false),
        ("an extension that is cut off", ethernet(&[], 0x86dd, &ipv6(0, &[17, 9, 0, 0])), false),
        ("encrypted", behind(50, &hop), false),
    ];
    for (name, frame, expected) in rows {
        assert_eq!(accepts(&[port], frame), *expected, "{name}");
        assert!(accepts(&[FlowSpec::to_mac(Mac(DST))], frame), "{name}: still Ethernet");
    }
    // The outer tag counts.
    let vlan = |vid| eth(move |value, mask| (value.vlan_tag, mask.vlan_tag) = (vid, 0xfff));
    assert!(accepts(&[vlan(9)], &ethernet(&stacked, 0x0800, &packet)));
    assert!(!accepts(&[vlan(5)], &ethernet(&stacked, 0x0800, &packet)));
}

#[test] //= check W2 test
fn a_layer_that_is_cut_off_matches_no_rule_about_it() {
    for whole in [udp4(), udp6()] {
        let (ip, header) = match whole[12] {
            8 => (v4(|_, _| {}), 20),
            _ => (v6(|_, _| {}), 40),
        };
        for len in 0..whole.len() {
            let cut = &whole[..len];
            assert_eq!(accepts(&[], cut), len >= 14, "{len}");
            assert_eq!(accepts(&[ip], cut), len >= 14 + header, "{len}");
            let has_ports = len >= 14 + header + 4;
            assert_eq!(accepts(&[FlowSpec::to_udp_port(7000)], cut), has_ports, "{len}");
        }
        // Padding of Ethernet changes nothing.
        let padded = [&whole[..], &[0; 20]].concat();
        assert!(accepts(&[ip, FlowSpec::to_udp_port(7000)], &padded));
    }
    let wrong: &[(&str, usize, u8)] = &[
        ("version 6 in an IPv4 frame", 14, 0x65),
        ("a header of 16 bytes", 14, 0x44),
        ("a header longer than the frame", 14, 0x4f),
    ];
    for (name, at, byte) in wrong {
        let mut frame = udp4();
        frame[*at] = *byte;
        assert!(!accepts(&[v4(|_, _| {})], &frame), "{name}");
    }
    // Ports beyond the IP length are not the packet's.
    let mut short = udp4();
    short[16..18].copy_from_slice(&22_u16.to_be_bytes());
    assert!(accepts(&[v4(|_, _| {})], &short));
    assert!(!accepts(&[FlowSpec::to_udp_port(7000)], &short));
}

#[test] //= check W3 test
fn layers_that_no_frame_can_have_are_refused() {
    let arp = FlowSpec::ether_type(EtherType::ARP);
    let (any4, any6) = (v4(|_, _| {}), v6(|_, _| {}));
    let port = FlowSpec::to_udp_port(1);
    let tcp = FlowSpec::Tcp(ANY, ANY);
    let of_tcp = v4(|v, m| (v.protocol, m.protocol) = (6, 0xff));
    let half = eth(|v, m| (v.ether_type, m.ether_type) = (0x0801, 0xff00));
    let label = v6(|v, m| (v.flow_label, m.flow_label) = (1 << 20, u32::MAX));
    let rows: &[(&[FlowSpec], Option<FlowError>)] = &[
        (&[arp, arp], Some(FlowError::TwiceOneLayer)),
        (&[any4, any6], Some(FlowError::TwiceOneLayer)),
        (&[port, tcp], Some(FlowError::TwiceOneLayer)),
        (&[arp, any4], Some(FlowError::Impossible)),
        (&[any6, FlowSpec::ether_type(EtherType::IPV4)], Some(FlowError::Impossible)),
        (&[arp, port], Some(FlowError::Impossible)),
        (&[of_tcp, port], Some(FlowError::Impossible)),
        (&[label], Some(FlowError::FlowLabel)),
        (&[of_tcp, tcp], None),
        (&[half, any4], None),
        (&[FlowSpec::ether_type(EtherType::IPV6), port], None),
        (&[], None),
    ];
    for (specs, expected) in rows {
        assert_eq!(FlowMatch::new(specs).err(), *expected, "{specs:?}");
    }
    let value = EthSpec { dst: Mac(DST), src: Mac(SRC), ether_type: 7, vlan_tag: 7 };
    let mask = EthSpec { dst: Mac::BROADCAST, ..EthSpec::default() };
    let same = FlowMatch::new(&[FlowSpec::Eth(value, mask)]);
    assert_eq!(same, FlowMatch::new(&[FlowSpec::to_mac(Mac(DST))]), "bits without a mask");
}

/// A frame that is likely to have layers: headers with random numbers in the places that count.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100_u16, 0x88a8]), 0..4);
    let types = prop::sample::select(vec![0x0800_u16, 0x86dd, 0x0806]);
    let protocols = prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 60, 58, 255]);
    (tags, types, protocols, any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 0..90)).prop_map(
        |(tags, kind, protocol, bits, rest)| {
            let mut frame = [&DST[..], &SRC].concat();
            for tag in tags {
                frame.extend(tag.to_be_bytes());
                frame.extend([bits[0], bits[1]]);
            }
            frame.extend(kind.to_be_bytes());
            let at = frame.len();
            frame.extend(rest);
            let mut set = |offset: usize, value: u8| {
                if let Some(byte) = frame.get_mut(at + offset) {
                    *byte = value;
                }
            };
            set(0, if kind == 0x0800 { 0x40 | bits[2] & 0xf } else { 0x60 });
            set(if kind == 0x0800 { 9 } else { 6 }, protocol);
            if bits[3] < 200 {
                set(if kind == 0x0800 { 2 } else { 4 }, 0);
                set(if kind == 0x0800 { 3 } else { 5 }, bits[3] & 0x3f);
            }
            frame
        },
    )
}

proptest! {
    #[test] //= check W4 test
    fn any_frame_matches_the_rule_of_its_own_fields(frame in hostile(), cut in 0usize..120) {
        let frame = &frame[..cut.min(frame.len())];
        let Some(fields) = FlowFields::parse(frame) else {
            prop_assert!(frame.len() < 14);
            return Ok(());
        };
        prop_assert!(fields.payload <= frame.len());
        let all = EthSpec {
            dst: Mac::BROADCAST,
            src: Mac::BROADCAST,
            ether_type: u16::MAX,
            vlan_tag: if fields.vlan_tag.is_some() { u16::MAX } else { 0 },
        };
        let FlowFields { dst, src, ether_type, vlan_tag, .. } = fields;
        let own = EthSpec { dst, src, ether_type: ether_type.0, vlan_tag: vlan_tag.unwrap_or(0) };
        let mut specs = vec![FlowSpec::Eth(own, all)];
        match fields.net {
            Some(NetFields::V4(spec)) => specs.push(FlowSpec::Ipv4(spec, Ipv4Spec {
                src: Ipv4Addr::BROADCAST,
                dst: Ipv4Addr::BROADCAST,
                protocol: 0xff,
                traffic_class: 0xff,
                ttl: 0xff,
            })),
            Some(NetFields::V6(spec)) => specs.push(FlowSpec::Ipv6(spec, spec)),
            None => {}
        }
        match fields.ports {
            Some(Ports { protocol: PortsProtocol::Udp, ports }) => {
                specs.push(FlowSpec::Udp(ports, BOTH));
            }
            Some(Ports { protocol: PortsProtocol::Tcp, ports }) => {
                specs.push(FlowSpec::Tcp(ports, BOTH));
            }
            None => {}
        }
        let rule = FlowMatch::new(&specs).expect("fields of one frame fit each other");
        prop_assert!(rule.accepts(&fields));
        // One bit of the destination more, and it does not match.
        let mut other = fields;
        other.dst.0[5] ^= 1;
        prop_assert!(!rule.accepts(&other));
    }

    #[test] //= check W4 test
    fn any_bytes_are_read_within_their_bounds(frame: Vec<u8>) {
        if let Some(fields) = FlowFields::parse(&frame) {
            prop_assert!(fields.ports.is_none() || fields.net.is_some());
        }
    }
}

#[test] //= check W5 test
fn an_ipv6_packet_is_found_without_its_tags_and_padding() {
    let udp = ipv6(17, &UDP);
    let tag = [0x81, 0, 0, 7];
    let padded = |packet: &[u8], pad: usize| [packet, &vec![0; pad]].concat();
    // Next header 59 is that there is none; 0 is that of a jumbogram.
    let (bare, jumbo) = (ipv6(59, &[]), [&ipv6(0, &[])[..], &[9; 30]].concat());
    let cut = &udp[..udp.len() - 1];
    type Row<'a> = (&'a [u8], u16, Vec<u8>, Option<&'a [u8]>);
    let rows: &[Row<'_>] = &[
        (&[], 0x86dd, udp.clone(), Some(&udp)),
        (&tag, 0x86dd, padded(&udp, 6), Some(&udp)),
        (&[], 0x86dd, padded(&bare, 6), Some(&bare)),
        (&[], 0x86dd, jumbo.clone(), Some(&jumbo)),
        (&[], 0x86dd, cut.to_vec(), Some(cut)),
        (&[], 0x86dd, udp[..39].to_vec(), None),
        (&[], 0x86dd, ipv4(0, &[], 17, &[0; 40]), None),
        (&[], 0x0800, udp.clone(), None),
        (&[], 0x0806, udp.clone(), None),
    ];
    for (tags, ether_type, payload, expected) in rows {
        let frame = ethernet(tags, *ether_type, payload);
        let fields = FlowFields::parse(&frame).expect("a header");
        assert_eq!(fields.ipv6_packet(&frame), *expected, "{frame:x?}");
    }
}

#[test] //= check W10 test
fn a_rule_names_the_kind_of_a_frame_by_all_bits() {
    let arp = ethernet(&[], 0x0806, &[0; 28]);
    let (ping4, ping6) = (
        ethernet(&[], 0x0800, &ipv4(0, &[], 1, &[0; 8])),
        ethernet(&[], 0x86dd, &ipv6(58, &[0; 8])),
    );
    let kind = |value, mask| eth(move |v, m| (v.ether_type, m.ether_type) = (value, mask));
    let protocol = |mask| v4(move |v, m| (v.protocol, m.protocol) = (1 & mask, mask));
    let next = |mask| v6(move |v, m| (v.next_header, m.next_header) = (58 & mask, mask));
    let to_own = FlowSpec::to_mac(Mac(DST));
    let rows = [
        (vec![], &arp, false),
        (vec![to_own], &arp, false),
        (vec![kind(0x0806, 0xffff)], &arp, true),
        (vec![kind(0x0806, 0xff0f)], &arp, false),
        (vec![kind(0x0800, 0xffff)], &ping4, false),
        (vec![protocol(0xff)], &ping4, true),
        (vec![protocol(0x7f)], &ping4, false),
        (vec![kind(0x86dd, 0xffff)], &ping6, false),
        (vec![to_own, next(0xff)], &ping6, true),
        (vec![next(0)], &ping6, false),
    ];
    for (specs, frame, expected) in rows {
        let rule = FlowMatch::new(&specs).expect("a possible rule");
        let fields = FlowFields::parse(frame).expect("a header");
        assert!(rule.accepts(&fields), "{specs:?}");
        assert_eq!(rule.names_kind_of(&fields), expected, "{specs:?}");
    }
}
