use super::*;

fn rows() -> impl Iterator<Item = &'static OpInfo> {
    (0..=255).filter_map(|code| OpCode(code).info())
}

#[test] //= check E20 test
fn every_byte_is_its_own_row_or_reserved() {
    for code in 0..=255 {
        let info = OpCode(code).info();
        assert_eq!(info.map(|info| info.opcode), info.map(|_| OpCode(code)));
        let reserved = match code {
            0x00..=0x17 | 0xa0..=0xb7 => code & 0x1f == 0x15,
            0x1c..=0x1d | 0x5c => false,
            0x20..=0x2b | 0x40..=0x55 | 0x64..=0x65 | 0x81 | 0xd1 => false,
            _ => true,
        };
        assert_eq!(info.is_none(), reserved, "0x{code:02x}");
    }
}

#[test]
fn the_three_high_bits_choose_the_service() {
    for info in rows() {
        let service = match info.opcode.0 >> 5 {
            0 => Service::Rc,
            1 => Service::Uc,
            2 => Service::Rd,
            3 => Service::Ud,
            4 => Service::Cnp,
            5 => Service::Xrc,
            6 => Service::Rc,
            _ => panic!("{info:?}"),
        };
        assert_eq!(info.service, service);
    }
}

#[test]
fn the_five_low_bits_mean_the_same_in_every_service() {
    let is_alone =
        |info: &OpInfo| matches!(info.opcode, OpCode::CNP | OpCode::RC_SELECTIVE_ACKNOWLEDGE);
    for info in rows().filter(|info| !is_alone(info)) {
        let Some(rc) = OpCode(info.opcode.0 & 0x1f).info() else {
            assert_eq!(info.opcode, OpCode::RD_RESYNC);
            continue;
        };
        assert_eq!((info.operation, info.position), (rc.operation, rc.position));
        assert_eq!(info.payload, rc.payload);
        let name = |info: &OpInfo| info.name.split_once(' ').unwrap().1;
        assert_eq!(name(info), name(rc));
    }
}

#[test]
fn headers_follow_from_service_operation_and_position() {
    use {Header as H, Operation as O, Service as S};
    for info in rows() {
        let (op, starts) = (info.operation, info.position.is_first());
        let request = info.is_request();
        let aeth = match op {
            O::ReadResponse => info.position != Position::Middle,
            O::Acknowledge | O::AtomicAcknowledge | O::SelectiveAcknowledge => true,
            _ => false,
        };
        let expected = [
            (H::Rdeth, info.service == S::Rd),
            (H::Deth, info.service == S::Ud || info.service == S::Rd && request),
            (H::Xrceth, info.service == S::Xrc && request),
            (H::Feth, op == O::Flush),
            (
                H::Reth,
                matches!(op, O::ReadRequest | O::Flush | O::AtomicWrite)
                    || op == O::Write && starts,
            ),
            (H::AtomicEth, matches!(op, O::CompareSwap | O::FetchAdd)),
            (H::Aeth, aeth),
            (H::AtomicAckEth, op == O::AtomicAcknowledge),
            (H::ImmDt, info.name.ends_with("with Immediate")),
            (H::Ieth, info.name.ends_with("with Invalidate")),
        ];
        let headers = expected.iter().filter(|(_, present)| *present).map(|(header, _)| *header);
        assert!(headers.eq(info.headers.iter().copied()), "{}", info.name);
        for (header, present) in expected {
            assert_eq!(info.has(header), present, "{} {header:?}", info.name);
        }
        let len: usize = info.headers.iter().map(|header| header.wire_len()).sum();
        assert_eq!(info.headers_len(), 12 + len);
    }
}

#[test]
fn names_end_with_the_position_unless_the_packet_is_always_alone() {
    for info in rows().filter(|i| i.position != Position::Only || i.name.contains("Only")) {
        assert!(info.name.contains(&format!(" {:?}", info.position)), "{}", info.name);
    }
    assert_eq!(OpCode::RC_RDMA_READ_RESPONSE_FIRST.to_string(), "RC RDMA READ Response First");
    assert_eq!(OpCode(0x15).to_string(), "reserved opcode 0x15");
}

#[test]
fn requests_and_responses_are_apart() {
    let count = |which: fn(&OpInfo) -> bool| rows().filter(|info| which(info)).count();
    assert_eq!(count(OpInfo::is_response), 3 * 6 + 1);
    assert_eq!(count(OpInfo::is_request), 19 + 12 + 17 + 2 + 17);
    assert_eq!(rows().find(|i| !i.is_request() && !i.is_response()).unwrap().name, "CNP");
}

#[test]
fn rc_finds_every_rc_row_and_nothing_else() {
    use {Operation as O, Position as P};
    let operations = [
        O::Send,
        O::Write,
        O::ReadRequest,
        O::ReadResponse,
        O::Acknowledge,
        O::AtomicAcknowledge,
        O::CompareSwap,
        O::FetchAdd,
        O::Flush,
        O::AtomicWrite,
        O::Resync,
        O::Cnp,
        O::SelectiveAcknowledge,
    ];
    let extras = [None, Some(Header::ImmDt), Some(Header::Ieth), Some(Header::Reth)];
    let mut found = 0;
    for operation in operations {
        for position in [P::First, P::Middle, P::Last, P::Only] {
            for extra in extras {
                let Some(opcode) = OpCode::rc(operation, position, extra) else { continue };
                let info = opcode.info().unwrap();
                assert_eq!(info.service, Service::Rc);
                assert_eq!((info.operation, info.position), (operation, position));
                for header in [Header::ImmDt, Header::Ieth] {
                    assert_eq!(info.has(header), extra == Some(header));
                }
                found += 1;
            }
        }
    }
    let is_made = |info: &&OpInfo| info.service == Service::Rc && info.opcode.is_of_rc();
    assert_eq!(found, rows().filter(is_made).count());
}

#[test]
fn the_xrc_opcode_of_an_operation_is_its_rc_opcode_in_another_range() {
    for info in rows().filter(|info| info.service == Service::Xrc) {
        let rc = OpCode(info.opcode.0 & 0x1f);
        assert_eq!(rc.in_range(OpCodeRange::XRC), info.opcode);
        assert_eq!(rc.in_range(OpCodeRange::RC), rc);
        assert!(info.opcode.is_of_xrc() && !info.opcode.is_of_rc());
    }
}

#[test]
fn payload_rules_hold_at_their_edges() {
    let mtu = PathMtu::B1024;
    let allowed = |rule: PayloadRule| -> Vec<usize> {
        [0, 1, 8, 16, 17, 1023, 1024, 1025].into_iter().filter(|n| rule.allows(*n, mtu)).collect()
    };
    assert_eq!(allowed(PayloadRule::Empty), [0]);
    assert_eq!(allowed(PayloadRule::FullMtu), [1024]);
    assert_eq!(allowed(PayloadRule::OneToMtu), [1, 8, 16, 17, 1023, 1024]);
    assert_eq!(allowed(PayloadRule::UpToMtu), [0, 1, 8, 16, 17, 1023, 1024]);
    assert_eq!(allowed(PayloadRule::Reserved16), [16]);
    assert_eq!(allowed(PayloadRule::Bitmap), [8, 16, 1024]);
    assert_eq!(allowed(PayloadRule::Word), [8]);
    assert!(!PayloadRule::Bitmap.allows(1032, PathMtu::B4096));
}
