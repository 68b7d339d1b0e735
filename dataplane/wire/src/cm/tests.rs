//! The layout of every message: known bytes, and each field reads back as it was written.

use std::net::IpAddr;

use super::*;
use crate::mad::MadHeader;
use crate::{Gid, Pkey, Psn, Qkey, Qpn};

/// A body of zeros except for the given bytes.
fn body(parts: &[(usize, &[u8])]) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    for (at, bytes) in parts {
        body[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    body
}

/// A mask of reserved bits: ones in the given runs of bytes.
fn reserved(parts: &[(usize, &[u8])]) -> [u8; BODY_LEN] {
    body(parts)
}

fn private<const MAX: usize>() -> (PrivateData<MAX>, [u8; MAX]) {
    let bytes = std::array::from_fn(|i| (i as u8).wrapping_mul(7) | 1);
    (PrivateData(bytes), bytes)
}

const IDS: [u8; 8] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
const LOCAL: CommId = CommId(0x1122_3344);
const REMOTE: CommId = CommId(0x5566_7788);

fn path() -> CmPath {
    CmPath {
        local_lid: 0x0102,
        remote_lid: 0x0304,
        local_gid: Gid([0xa1; 16]),
        remote_gid: Gid([0xb2; 16]),
        flow_label: 0xabcde,
        packet_rate: 0x15,
        traffic_class: 0x66,
        hop_limit: 0x77,
        sl: 9,
        subnet_local: true,
        local_ack_timeout: CmTimeout::from_code(0x13),
    }
}

const LIDS: [u8; 4] = [1, 2, 3, 4];
const REQ_TAIL: [u8; 8] = [0xab, 0xcd, 0xe0, 0x15, 0x66, 0x77, 0x98, 0x98];
const LAP_TAIL: [u8; 8] = [0xab, 0xcd, 0xe0, 0x66, 0x77, 0x15, 0x98, 0x98];

macro_rules! message_tests {
    ($module:ident: $message:ident, $value:expr, bytes: $bytes:expr, reserved: $reserved:expr) => {
        mod $module {
            use super::*;

            const LEN: usize = BODY_LEN;

            fn parse(b: &[u8; LEN]) -> $message {
                $message::parse(b)
            }

            crate::testing::header_tests! { $value, bytes: $bytes, reserved: $reserved }

            #[test]
            fn a_whole_mad_names_its_message() {
                let message = Message::$message($value);
                let mad = message.emit(0x0807_0605_0403_0201);
                let (header, read) = Message::parse(&mad).unwrap();
                assert_eq!(read, message);
                assert_eq!(header.attribute_id, Attribute::$message as u16);
                assert_eq!(header.transaction_id, 0x0807_0605_0403_0201);
                assert_eq!(mad[MadHeader::LEN..], $bytes);
                assert_eq!(read.attribute(), Attribute::$message);
            }
        }
    };
}

message_tests! {
    req: Req,
    Req {
        local_comm_id: LOCAL,
        service_id: ServiceId(0x0102_0304_0506_0708),
        local_ca_guid: CaGuid(0x1112_1314_1516_1718),
        local_qkey: Qkey(0x2122_2324),
        local_qpn: Qpn::new(0x31_3233),
        responder_resources: 0x34,
        local_eecn: 0x41_4243,
        initiator_depth: 0x44,
        remote_eecn: 0x51_5253,
        remote_cm_response_timeout: CmTimeout::from_code(0x11),
        transport_service: TransportService::Uc,
        end_to_end_flow_control: true,
        starting_psn: Psn::new(0x61_6263),
        local_cm_response_timeout: CmTimeout::from_code(0x12),
        retry_count: 5,
        pkey: Pkey(0x7172),
        path_mtu_code: 3,
        rdc_exists: true,
        rnr_retry_count: 6,
        max_cm_retries: 0xd,
        srq: true,
        extended_transport_type: 1,
        primary: path(),
        alternate: CmPath { packet_rate: 0x3f, ..path() },
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS[..4]),
        (8, &[1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]),
        (28, &[0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44]),
        (40, &[0x51, 0x52, 0x53, 0x8b, 0x61, 0x62, 0x63, 0x95, 0x71, 0x72, 0x3e, 0xd9]),
        (52, &LIDS), (56, &[0xa1; 16]), (72, &[0xb2; 16]), (88, &REQ_TAIL),
        (96, &LIDS), (100, &[0xa1; 16]), (116, &[0xb2; 16]), (132, &REQ_TAIL), (135, &[0x3f]),
        (140, &private::<92>().1),
    ]),
    reserved: reserved(&[
        (4, &[0xff; 4]), (24, &[0xff; 4]),
        (90, &[0x0f, 0xc0]), (94, &[7, 7]), (134, &[0x0f, 0xc0]), (138, &[7, 7]),
    ])
}

message_tests! {
    mra: Mra,
    Mra {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        message: MessageMraed::Lap,
        service_timeout: CmTimeout::from_code(0x15),
        private_data: private().0,
    },
    bytes: body(&[(0, &IDS), (8, &[0x80, 0xa8]), (10, &private::<222>().1)]),
    reserved: reserved(&[(8, &[0x3f, 7])])
}

message_tests! {
    rej: Rej,
    Rej {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        message: MessageRejected::Other,
        ari_len: 0x2a,
        reason: RejectReason(0x0102),
        ari: private::<72>().1,
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS), (8, &[0x80, 0x54, 1, 2]), (12, &private::<72>().1), (84, &private::<148>().1),
    ]),
    reserved: reserved(&[(8, &[0x3f, 1])])
}

message_tests! {
    rep: Rep,
    Rep {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        local_qkey: Qkey(0x0102_0304),
        local_qpn: Qpn::new(0x11_1213),
        local_eecn: 0x21_2223,
        starting_psn: Psn::new(0x31_3233),
        responder_resources: 0x41,
        initiator_depth: 0x42,
        target_ack_delay: CmTimeout::from_code(0x1a),
        failover: Failover::Rejected,
        end_to_end_flow_control: true,
        rnr_retry_count: 5,
        srq: true,
        local_ca_guid: CaGuid(0x5152_5354_5556_5758),
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS), (8, &[1, 2, 3, 4, 0x11, 0x12, 0x13, 0, 0x21, 0x22, 0x23, 0]),
        (20, &[0x31, 0x32, 0x33, 0, 0x41, 0x42, 0xd5, 0xb0]),
        (28, &[0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58]), (36, &private::<196>().1),
    ]),
    reserved: reserved(&[(15, &[0xff]), (19, &[0xff]), (23, &[0xff]), (27, &[0x0f])])
}

message_tests! {
    rtu: Rtu,
    Rtu { local_comm_id: LOCAL, remote_comm_id: REMOTE, private_data: private().0 },
    bytes: body(&[(0, &IDS), (8, &private::<224>().1)]),
    reserved: [0; BODY_LEN]
}

message_tests! {
    dreq: Dreq,
    Dreq {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        remote_qpn: Qpn::new(0x01_0203),
        private_data: private().0,
    },
    bytes: body(&[(0, &IDS), (8, &[1, 2, 3]), (12, &private::<220>().1)]),
    reserved: reserved(&[(11, &[0xff])])
}

message_tests! {
    drep: Drep,
    Drep { local_comm_id: LOCAL, remote_comm_id: REMOTE, private_data: private().0 },
    bytes: body(&[(0, &IDS), (8, &private::<224>().1)]),
    reserved: [0; BODY_LEN]
}

message_tests! {
    lap: Lap,
    Lap {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        remote_qpn: Qpn::new(0x01_0203),
        remote_cm_response_timeout: CmTimeout::from_code(0x16),
        alternate: path(),
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS), (12, &[1, 2, 3, 0xb0]), (20, &LIDS), (24, &[0xa1; 16]), (40, &[0xb2; 16]),
        (56, &LAP_TAIL), (64, &private::<168>().1),
    ]),
    reserved: reserved(&[
        (8, &[0xff; 4]), (15, &[7]), (16, &[0xff; 4]), (58, &[0x0f]), (61, &[0xc0]), (62, &[7, 7]),
    ])
}

message_tests! {
    apr: Apr,
    Apr {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        info_len: 0x1f,
        status: AprStatus(0x0d),
        info: private::<72>().1,
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS), (8, &[0x1f, 0x0d]), (12, &private::<72>().1), (84, &private::<148>().1),
    ]),
    reserved: reserved(&[(10, &[0xff; 2])])
}

message_tests! {
    sidr_req: SidrReq,
    SidrReq {
        request_id: LOCAL,
        pkey: Pkey(0x0102),
        service_id: ServiceId(0x1112_1314_1516_1718),
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS[..4]), (4, &[1, 2]), (8, &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]),
        (16, &private::<216>().1),
    ]),
    reserved: reserved(&[(6, &[0xff; 2])])
}

message_tests! {
    sidr_rep: SidrRep,
    SidrRep {
        request_id: LOCAL,
        status: SidrStatus(3),
        info_len: 0x21,
        qpn: Qpn::new(0x01_0203),
        service_id: ServiceId(0x1112_1314_1516_1718),
        qkey: Qkey(0x2122_2324),
        info: private::<72>().1,
        private_data: private().0,
    },
    bytes: body(&[
        (0, &IDS[..4]), (4, &[3, 0x21]), (8, &[1, 2, 3]),
        (12, &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24]),
        (24, &private::<72>().1), (96, &private::<136>().1),
    ]),
    reserved: reserved(&[(6, &[0xff; 2]), (11, &[0xff])])
}

//= check J6 test
#[test]
fn private_data_is_taken_at_zero_and_at_its_limit_and_not_beyond() {
    fn limit<const MAX: usize>(data: PrivateData<MAX>) -> usize {
        let bytes = vec![0xee; MAX + 1];
        for len in [0, 1, MAX - 1, MAX] {
            let data = PrivateData::<MAX>::new(&bytes[..len]).unwrap();
            assert!(data.0[..len].iter().all(|&byte| byte == 0xee));
            assert!(data.0[len..].iter().all(|&byte| byte == 0));
        }
        assert_eq!(PrivateData::<MAX>::new(&bytes), Err(TooLong { len: MAX + 1, max: MAX }));
        assert_eq!(data, PrivateData::new(&[]).unwrap());
        MAX
    }
    assert_eq!(limit(Req::default().private_data), 92);
    assert_eq!(limit(Mra::default().private_data), 222);
    assert_eq!(limit(Rej::default().private_data), 148);
    assert_eq!(limit(Rep::default().private_data), 196);
    assert_eq!(limit(Rtu::default().private_data), 224);
    assert_eq!(limit(Dreq::default().private_data), 220);
    assert_eq!(limit(Drep::default().private_data), 224);
    assert_eq!(limit(Lap::default().private_data), 168);
    assert_eq!(limit(Apr::default().private_data), 148);
    assert_eq!(limit(SidrReq::default().private_data), 216);
    assert_eq!(limit(SidrRep::default().private_data), 136);
}

//= check J11 test
#[test]
fn a_mad_of_another_length_version_class_method_or_attribute_is_no_message() {
    let mad = Message::Req(Req::default()).emit(1);
    for len in [0, 1, 23, 24, 255] {
        assert_eq!(Message::parse(&mad[..len]).unwrap_err(), CmParseError::Length);
    }
    assert_eq!(Message::parse(&[&mad[..], &[0]].concat()).unwrap_err(), CmParseError::Length);
    let with = |at: usize, byte| {
        let mut mad = mad;
        mad[at] = byte;
        Message::parse(&mad).map(|(_, message)| message.attribute())
    };
    for byte in (0..=255).filter(|&byte| byte != 1) {
        assert_eq!(with(0, byte), Err(CmParseError::BaseVersion));
    }
    for byte in (0..=255).filter(|&byte| byte != MGMT_CLASS) {
        assert_eq!(with(1, byte), Err(CmParseError::Class));
    }
    for byte in (0..=255).filter(|&byte| byte != CLASS_VERSION) {
        assert_eq!(with(2, byte), Err(CmParseError::ClassVersion));
    }
    for byte in (0..=255).filter(|&byte| byte != MadHeader::SEND) {
        assert_eq!(with(3, byte), Err(CmParseError::Method));
    }
    for byte in 0..=255 {
        let expected = Attribute::from_id(byte.into()).ok_or(CmParseError::Attribute);
        assert_eq!(with(17, byte), expected);
        assert_eq!(expected.is_ok(), (0x10..=0x1a).contains(&byte));
    }
    assert_eq!(with(16, 1), Err(CmParseError::Attribute));
}

#[test]
fn a_path_is_absent_where_both_its_lid_and_its_gid_are_zero() {
    assert!(!CmPath::default().is_present());
    assert!(CmPath { local_lid: CmPath::ROCE_LID, ..CmPath::default() }.is_present());
    assert!(CmPath { local_gid: Gid([1; 16]), ..CmPath::default() }.is_present());
}

#[test]
fn timeouts_are_powers_of_two_of_4096_ns() {
    assert_eq!(CmTimeout::from_code(0).duration().as_nanos(), 4096);
    assert_eq!(CmTimeout::from_code(31).duration().as_nanos(), 4096 << 31);
    for code in 0..32 {
        let timeout = CmTimeout::from_code(code);
        assert_eq!(CmTimeout::at_least(timeout.duration()), timeout);
        let more = timeout.duration() + core::time::Duration::from_nanos(1);
        assert_eq!(CmTimeout::at_least(more).code(), (code + 1).min(31));
    }
}

#[test]
fn service_ids_of_the_port_spaces_carry_the_port() {
    assert_eq!(ServiceId::tcp(7174).0, 0x0000_0000_0106_1c06);
    assert_eq!(ServiceId::udp(0xffff).0, 0x0000_0000_0111_ffff);
    assert_eq!(ServiceId::tcp(5).tcp_port(), Some(5));
    assert_eq!(ServiceId::udp(5).udp_port(), Some(5));
    assert_eq!((ServiceId::udp(5).tcp_port(), ServiceId::tcp(5).udp_port()), (None, None));
    assert_eq!(ServiceId::ib(7174).0, 0x0000_0000_013f_1c06);
    assert_eq!((ServiceId::ib(5).ib_port(), ServiceId::ib(5).tcp_port()), (Some(5), None));
    assert_eq!(ServiceId::tcp(5).ib_port(), None);
}

#[test] //= check X10 test
fn an_xrc_target_has_its_number_in_the_place_of_an_ee_context_s() {
    let rep = Rep { local_qpn: Qpn::new(1), local_eecn: 2, ..Rep::default() };
    assert_eq!((rep.qpn(false), rep.qpn(true)), (Qpn::new(1), Qpn::new(2)));
    let extended = |extended_transport_type| Req {
        transport_service: TransportService::Extended,
        extended_transport_type,
        ..Req::default()
    };
    assert!(extended(Req::EXTENDED_XRC).is_xrc());
    assert!(!extended(0).is_xrc() && !extended(2).is_xrc());
    let of_rc = Req { extended_transport_type: Req::EXTENDED_XRC, ..Req::default() };
    assert!(!of_rc.is_xrc(), "the type has a meaning in extended REQs only");
}

#[test]
fn the_address_header_holds_a_port_and_two_addresses_of_one_family() {
    let addresses = [("10.1.2.3", "10.4.5.6", 4), ("2001:db8::1", "2001:db8::2", 6)];
    for (src, dst, version) in addresses {
        let [src, dst]: [IpAddr; 2] = [src, dst].map(|text| text.parse().unwrap());
        let header = IpHeader { src_port: 0x1234, src, dst };
        let mut bytes = [0xff; IpHeader::LEN];
        header.emit(&mut bytes);
        assert_eq!(IpHeader::parse(&bytes), Ok(header));
        assert_eq!(bytes[..4], [0, version << 4, 0x12, 0x34]);
        assert_eq!(IpHeader::parse(&bytes[..35]), Err(IpHeaderError::Truncated));
        bytes[0] = 1;
        assert_eq!(IpHeader::parse(&bytes), Err(IpHeaderError::Version));
        bytes[..2].copy_from_slice(&[0, 0x50]);
        assert_eq!(IpHeader::parse(&bytes), Err(IpHeaderError::IpVersion));
    }
    let mut v4 = [0; IpHeader::LEN];
    let [src, dst] = ["10.1.2.3", "10.4.5.6"].map(|text| text.parse().unwrap());
    IpHeader { src_port: 1, src, dst }.emit(&mut v4);
    assert_eq!((&v4[4..16], &v4[16..20]), (&[0; 12][..], &[10, 1, 2, 3][..]));
    assert_eq!((&v4[20..32], &v4[32..36]), (&[0; 12][..], &[10, 4, 5, 6][..]));
}
