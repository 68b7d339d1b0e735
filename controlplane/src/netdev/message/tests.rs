use super::*;

/// Builds a message as the kernel does.
fn message(
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &[u8],
    attributes: &[(u16, &[u8])],
) -> Vec<u8> {
    let mut payload = body.to_vec();
    for (kind, value) in attributes {
        payload.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        payload.extend(kind.to_ne_bytes());
        payload.extend(*value);
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    let mut bytes = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

fn if_info(index: u32, flags: u32) -> Vec<u8> {
    [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), [0xff; 4]].concat()
}

fn if_addr(family: u8, len: u8, flags: u8, index: u32) -> Vec<u8> {
    [[family, len, flags, 0], index.to_ne_bytes()].concat()
}

fn read(bytes: &[u8]) -> Vec<Message> {
    messages(bytes).collect()
}

fn own(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

#[test]
fn a_link_is_up_when_it_is_switched_on_and_has_a_carrier() {
    let running = IFF_UP | IFF_LOWER_UP;
    for (flags, up) in
        [(running, true), (running | 0x1043, true), (IFF_UP, false), (IFF_LOWER_UP, false)]
    {
        let bytes = message(
            RTM_NEWLINK,
            0,
            0,
            &if_info(7, flags),
            &[
                (IFLA_IFNAME, b"eth0\0"),
                (0x1234, b"later"),
                (IFLA_MTU, &9000u32.to_ne_bytes()),
                (IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7]),
            ],
        );
        let (name, mac) = (Some("eth0".into()), Some(Mac([2, 0, 0, 0, 0, 7])));
        assert_eq!(
            read(&bytes),
            [Message::Link(Link { index: 7, up, name, mac, mtu: Some(9000) })]
        );
    }
}

#[test]
fn an_address_is_the_local_one_of_the_two_given() {
    let (near, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let head = if_addr(AF_INET, 24, 0x80, 7);
    let attributes: [(u16, &[u8]); 2] = [(IFA_ADDRESS, &far), (IFA_LOCAL, &near)];
    let point_to_point = message(RTM_NEWADDR, 0, 0, &head, &attributes);
    assert_eq!(read(&point_to_point), [Message::Address(7, own("192.0.2.1/24"))]);
    let six = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let head = if_addr(AF_INET6, 64, 0, 7);
    let gone = message(RTM_DELADDR, 0, 0, &head, &[(IFA_ADDRESS, &six)]);
    assert_eq!(read(&gone), [Message::AddressGone(7, "2001:db8::1".parse().unwrap())]);
}

#[test]
fn an_address_that_is_still_checked_for_duplicates_is_not_there() {
    let six = "fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let head = if_addr(AF_INET6, 64, IFA_F_TENTATIVE as u8, 7);
    let tentative = message(RTM_NEWADDR, 0, 0, &head, &[(IFA_ADDRESS, &six)]);
    let absent = Message::AddressGone(7, "fe80::1".parse().unwrap());
    assert_eq!(read(&tentative), std::slice::from_ref(&absent));
    // If both flags attributes are present, the longer one counts.
    for (flags, expected) in [(0x80, Message::Address(7, own("fe80::1/64"))), (0x88, absent)] {
        let flags = u32::to_ne_bytes(flags);
        let attributes: [(u16, &[u8]); 2] = [(IFA_ADDRESS, &six), (IFA_FLAGS, &flags)];
        assert_eq!(read(&message(RTM_NEWADDR, 0, 0, &head, &attributes)), [expected]);
    }
}

#[test]
fn addresses_that_no_port_can_have_are_skipped() {
    let head = if_addr(AF_INET, 8, 0, 1);
    assert_eq!(read(&message(RTM_NEWADDR, 0, 0, &head, &[(IFA_LOCAL, &[127, 0, 0, 1])])), []);
    assert_eq!(read(&message(RTM_NEWADDR, 0, 0, &head, &[])), []);
    assert_eq!(read(&message(RTM_NEWADDR, 0, 0, &if_addr(7, 8, 0, 1), &[(IFA_LOCAL, &[1])])), []);
}

#[test]
fn several_messages_of_a_datagram_are_read_and_unknown_ones_skipped() {
    let datagram = [
        message(RTM_DELLINK, 0, 0, &if_info(3, 0), &[]),
        message(0x7777, 0, 0, b"odd", &[]),
        vec![0],
        message(RTM_NEWLINK, NLM_F_DUMP_INTR, 5, &if_info(4, 0), &[]),
        message(NLMSG_DONE, 0, 5, &[0; 4], &[]),
        message(NLMSG_ERROR, 0, 6, &[0xff; 20], &[]),
    ]
    .concat();
    let link = Link { index: 4, ..Link::default() };
    let expected = [
        Message::LinkGone(3),
        Message::Broken(5),
        Message::Link(link),
        Message::Done(5),
        Message::Broken(6),
    ];
    assert_eq!(read(&datagram), expected);
}

#[test]
fn no_bytes_make_it_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    let good = message(
        RTM_NEWLINK,
        0,
        0,
        &if_info(7, IFF_UP),
        &[(IFLA_IFNAME, b"eth0\0"), (IFLA_MTU, &[0; 4]), (IFLA_ADDRESS, &[0; 6])],
    );
    for _ in 0..200_000 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes[4] = [16, 17, 20, 21][random.usize(..4)];
        bytes.truncate(random.usize(..=bytes.len()));
        assert!(messages(&bytes).count() <= bytes.len());
    }
    for kind in [RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR, NLMSG_DONE, NLMSG_ERROR] {
        for len in 0..40 {
            let whole = message(kind, 0, 0, &vec![0xff; len], &[]);
            assert!(messages(&whole).count() <= 1);
        }
    }
}

#[test]
fn a_request_has_the_lengths_that_the_kernel_expects() {
    assert_eq!(dump(Dump::Links, 1).len(), HEADER + IF_INFO);
    assert_eq!(dump(Dump::Addresses, 2)[..4], 24u32.to_ne_bytes());
}
