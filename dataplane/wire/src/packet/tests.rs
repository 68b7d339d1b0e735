use super::*;
use crate::testing::{any_bth, any_ext, opcodes, payload_len};
use proptest::prelude::*;

/// Bytes from BTH to the pad as a sender builds them; the payload is all ones.
fn transport(bth: &Bth, ext: &ExtHeaders, payload_len: usize) -> Vec<u8> {
    let mut out = vec![0; 64];
    let len = emit_headers(bth, ext, &mut out).unwrap();
    out.resize(len, 0);
    out.resize(len + payload_len, 0xff);
    out.resize(len + payload_len + bth.pad_count as usize, 0);
    out
}

fn parse(opcode: OpCode, pad_count: u8, padded_len: usize) -> Result<usize, ParseError> {
    let bth = Bth { opcode, pad_count: 0, ..Bth::default() };
    let mut bytes = transport(&bth, &ExtHeaders::default(), padded_len);
    bytes[1] |= pad_count << 4;
    Packet::parse(&bytes).map(|packet| packet.payload.len())
}

proptest! {
    #[test]
    fn every_opcode_is_read_as_it_was_written(
        (bth, ext) in prop::sample::select(opcodes())
            .prop_flat_map(|opcode| (any_bth(opcode), any_ext())),
    ) {
        let bytes = transport(&bth, &ext, payload_len(bth.opcode));
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(packet.bth, bth);
        prop_assert!(packet.payload.iter().all(|byte| *byte == 0xff));
        prop_assert_eq!(packet.payload.len(), payload_len(bth.opcode));

        // Headers the opcode does not carry stay zero; the others are what was written.
        let (zero, has) = (ExtHeaders::default(), |header| packet.op.has(header));
        let expected = ExtHeaders {
            rdeth: if has(Header::Rdeth) { ext.rdeth } else { zero.rdeth },
            deth: if has(Header::Deth) { ext.deth } else { zero.deth },
            xrceth: if has(Header::Xrceth) { ext.xrceth } else { zero.xrceth },
            feth: if has(Header::Feth) { ext.feth } else { zero.feth },
            reth: if has(Header::Reth) { ext.reth } else { zero.reth },
            atomic: if has(Header::AtomicEth) { ext.atomic } else { zero.atomic },
            aeth: if has(Header::Aeth) { ext.aeth } else { zero.aeth },
            atomic_ack: if has(Header::AtomicAckEth) { ext.atomic_ack } else { zero.atomic_ack },
            imm: if has(Header::ImmDt) { ext.imm } else { zero.imm },
            ieth: if has(Header::Ieth) { ext.ieth } else { zero.ieth },
        };
        prop_assert_eq!(packet.ext, expected);
    }

    #[test] //= check E20 test
    fn no_bytes_make_the_parser_panic(
        opcode: u8, mut bytes in prop::collection::vec(any::<u8>(), 0..100), version: bool,
    ) {
        if let [first, second, ..] = &mut bytes[..] {
            *first = opcode;
            *second &= if version { 0xf0 } else { 0xff };
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let len = packet.op.headers_len() + packet.payload.len();
            prop_assert_eq!(len + packet.bth.pad_count as usize, bytes.len());
        }
    }
}

#[test] //= check E18 test
fn headers_cut_short_are_truncated() {
    for opcode in opcodes() {
        let bth = Bth { opcode, ..Bth::default() };
        let bytes = transport(&bth, &ExtHeaders::default(), 0);
        for len in 0..bytes.len() {
            assert_eq!(Packet::parse(&bytes[..len]), Err(ParseError::Truncated), "{opcode}");
        }
    }
}

#[test]
fn reserved_opcodes_are_named_so() {
    for opcode in (0..=255).filter(|code| OpCode(*code).info().is_none()) {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        assert_eq!(Packet::parse(&bytes), Err(ParseError::ReservedOpcode));
        let bth = Bth { opcode: OpCode(opcode), ..Bth::default() };
        assert_eq!(emit_headers(&bth, &ExtHeaders::default(), &mut bytes), None);
    }
}

#[test] //= check E6 test
fn a_pad_must_fit_the_payload_and_fill_a_word() {
    let only = OpCode::RC_SEND_ONLY;
    assert_eq!(parse(only, 0, 0), Ok(0));
    assert_eq!(parse(only, 3, 4), Ok(1));
    assert_eq!(parse(only, 0, 4), Ok(4));
    assert_eq!(parse(only, 1, 0), Err(ParseError::Padding), "no payload to pad");
    for odd in [1, 2, 3, 5, 4095] {
        assert_eq!(parse(only, 0, odd), Err(ParseError::Padding), "{odd} bytes");
    }
}

#[test] //= check E6 test
fn only_last_and_only_packets_with_payload_have_a_pad() {
    for opcode in opcodes() {
        let info = opcode.info().unwrap();
        let may = info.position.is_last()
            && matches!(
                info.payload,
                PayloadRule::OneToMtu | PayloadRule::UpToMtu | PayloadRule::Word
            );
        assert_eq!(parse(opcode, 2, 256).is_ok(), may, "{opcode}");
    }
}

#[test] //= check E4 test
fn lengths_that_depend_on_the_path_are_left_to_the_transport() {
    for (opcode, len) in [
        (OpCode::RC_SEND_FIRST, 4),
        (OpCode::RC_RDMA_WRITE_MIDDLE, 8192),
        (OpCode::RC_SEND_LAST, 0),
        (OpCode::RC_SEND_ONLY, 8192),
        (OpCode::RC_ATOMIC_WRITE, 0),
        (OpCode::RC_ATOMIC_WRITE, 12),
    ] {
        assert_eq!(parse(opcode, 0, len), Ok(len), "{opcode}");
    }
}

#[test]
fn requests_without_payload_and_congestion_notifications_have_one_length() {
    let empty = [
        OpCode::RC_RDMA_READ_REQUEST,
        OpCode::RC_ACKNOWLEDGE,
        OpCode::RC_ATOMIC_ACKNOWLEDGE,
        OpCode::RC_COMPARE_SWAP,
        OpCode::RC_FETCH_ADD,
        OpCode::RC_FLUSH,
    ];
    for opcode in empty {
        assert_eq!(parse(opcode, 0, 0), Ok(0));
        assert_eq!(parse(opcode, 0, 4), Err(ParseError::PayloadLength), "{opcode}");
    }
    assert_eq!(parse(OpCode::CNP, 0, 16), Ok(16));
    for len in [0, 12, 20] {
        assert_eq!(parse(OpCode::CNP, 0, len), Err(ParseError::PayloadLength));
    }
}

#[test]
fn headers_are_not_written_past_the_room_given() {
    for opcode in opcodes() {
        let (bth, ext) = (Bth { opcode, ..Bth::default() }, ExtHeaders::default());
        let len = headers_len(opcode).unwrap();
        let mut out = [0; 64];
        assert_eq!(emit_headers(&bth, &ext, &mut out[..len]), Some(len));
        assert_eq!(emit_headers(&bth, &ext, &mut out[..len - 1]), None);
    }
}
