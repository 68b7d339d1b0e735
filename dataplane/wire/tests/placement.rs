//! Known frames of FLUSH and ATOMIC WRITE, which neither tshark 4.0 nor scapy read.
//!
//! The bytes were made by a script from the layout in the specification's Annex A19 (BTH, FETH,
//! RETH), with zlib's CRC-32 over the masked fields: nothing of this crate is in them.

use uroce_wire::{
    ExtHeaders, Feth, Frame, OpCode, Placement, Psn, Qpn, Reth, Rkey, Selectivity, Va, emit_headers,
};

/// Global visibility of 4 KiB.
const FLUSH_OF_A_RANGE: &[u8] = b"\
        \x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x40\x00\x00\
        \x40\x00\x40\x11\x26\xab\x0a\x00\x00\x01\x0a\x00\x00\x02\xc1\x23\x12\xb7\x00\x2c\
        \x00\x00\x1c\x40\xff\xff\x00\x00\x01\x23\x80\x00\x0a\xbc\x00\x00\x00\x01\x01\x02\
        \x03\x04\x05\x06\x07\x08\x11\x22\x33\x44\x00\x00\x10\x00\xe9\x37\x6c\xd2";

/// Visibility and persistence of a region; address and length are 0.
const FLUSH_OF_A_REGION: &[u8] = b"\
        \x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x40\x00\x00\
        \x40\x00\x40\x11\x26\xab\x0a\x00\x00\x01\x0a\x00\x00\x02\xc1\x23\x12\xb7\x00\x2c\
        \x00\x00\x1c\x40\xff\xff\x00\x00\x01\x23\x80\xff\xff\xfe\x00\x00\x00\x13\x00\x00\
        \x00\x00\x00\x00\x00\x00\x55\x66\x77\x88\x00\x00\x00\x00\x6a\xec\xf6\xe9";

/// Eight bytes.
const ATOMIC_WRITE: &[u8] = b"\
        \x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x44\x00\x00\
        \x40\x00\x40\x11\x26\xa7\x0a\x00\x00\x01\x0a\x00\x00\x02\xc1\x23\x12\xb7\x00\x30\
        \x00\x00\x1d\x40\xff\xff\x00\x00\x01\x23\x80\x12\x34\x56\x70\x00\x00\x00\x00\x00\
        \x00\x08\x99\xaa\xbb\xcc\x00\x00\x00\x08\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\x33\xad\
        \x0f\xcd";

/// The packet that is read from a frame with a correct invariant CRC, after a check that the same
/// bytes are built of it again.
fn read(bytes: &[u8]) -> (OpCode, u32, ExtHeaders, &[u8]) {
    let Ok(Frame::Roce(datagram)) = Frame::parse(bytes) else { panic!("{bytes:02x?}") };
    let packet = datagram.packet().expect("a correct packet");
    assert_eq!(packet.bth.dest_qpn, Qpn::new(0x123));
    assert!(packet.bth.ack_req && packet.bth.mig_req);
    let mut built = vec![0; datagram.transport.len()];
    let at = emit_headers(&packet.bth, &packet.ext, &mut built).expect("room");
    built[at..].copy_from_slice(packet.payload);
    assert_eq!(built, datagram.transport);
    (packet.bth.opcode, packet.bth.psn.value(), packet.ext, packet.payload)
}

#[test] //= check P1 test
fn a_flush_is_a_feth_and_a_reth_without_payload() {
    let reth = Reth { va: Va(0x0102_0304_0506_0708), rkey: Rkey(0x1122_3344), dma_len: 0x1000 };
    let feth = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Range };
    let ext = ExtHeaders { feth, reth, ..ExtHeaders::default() };
    assert_eq!(read(FLUSH_OF_A_RANGE), (OpCode::RC_FLUSH, 0xabc, ext, &[][..]));

    let reth = Reth { va: Va(0), rkey: Rkey(0x5566_7788), dma_len: 0 };
    let placement = Placement::GLOBAL.union(Placement::PERSISTENT);
    let feth = Feth { placement, selectivity: Selectivity::Region };
    let ext = ExtHeaders { feth, reth, ..ExtHeaders::default() };
    assert_eq!(read(FLUSH_OF_A_REGION), (OpCode::RC_FLUSH, 0xff_fffe, ext, &[][..]));
}

#[test] //= check P1 test
fn an_atomic_write_is_a_reth_and_eight_bytes() {
    let reth = Reth { va: Va(0x7000_0000_0000_0008), rkey: Rkey(0x99aa_bbcc), dma_len: 8 };
    let ext = ExtHeaders { reth, ..ExtHeaders::default() };
    let bytes: Vec<u8> = (0xa0..0xa8).collect();
    let written = (OpCode::RC_ATOMIC_WRITE, Psn::new(0x12_3456).value(), ext, &bytes[..]);
    assert_eq!(read(ATOMIC_WRITE), written);
}
