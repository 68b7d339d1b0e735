//! Z1: any bytes as a frame.
//!
//! Invariants
//! - No panic; slices lie within the frame.
//! - Written again, a packet has the bytes that were read, except for reserved bits and pad.
//! - Flow rules read the same addresses and ports of a RoCEv2 packet.
//! - The independent checker reads the same values. A frame that it refuses and the parser accepts
//!   breaks one of the rules in which it is known to be stricter.

use crate::Input;
use std::path::PathBuf;
use uroce_wire::flow::{FlowFields, FlowMatch, FlowSpec, NetFields};
use uroce_wire::{
    Bth, Datagram, Frame, Gid, Header, OpCode, Packet, ParseError, PayloadRule, emit_headers, seal,
};
use uroce_wirecheck::{Rule, Seen, crc32, read};

/// First byte of an input: the rest is a frame that is not mended.
const AS_IT_IS: u8 = 0;

/// All stored frames of other implementations.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/vectors");
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the golden vectors") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_some_and(|extension| extension == "pcap") {
            let frames = frames_of(&std::fs::read(&path).expect("a capture"));
            // A lossy capture repeats the same packets many times.
            seeds.extend(
                frames.into_iter().take(60).map(|frame| [&[AS_IT_IS], &frame[..]].concat()),
            );
        }
    }
    seeds.sort();
    seeds
}

/// The records of a capture in the classic format, of either byte order.
fn frames_of(pcap: &[u8]) -> Vec<Vec<u8>> {
    const MAGIC_LITTLE: [[u8; 4]; 2] = [[0xd4, 0xc3, 0xb2, 0xa1], [0x4d, 0x3c, 0xb2, 0xa1]];
    let is_little = MAGIC_LITTLE.iter().any(|magic| pcap.starts_with(magic));
    let mut rest = pcap.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<16>() {
        let len = [header[8], header[9], header[10], header[11]];
        let len = if is_little { u32::from_le_bytes(len) } else { u32::from_be_bytes(len) };
        let Some(frame) = tail.get(..len as usize) else { break };
        frames.push(frame.to_vec());
        rest = &tail[len as usize..];
    }
    frames
}

pub(super) fn run(input: &mut Input<'_>) {
    let is_mended = input.u8() & 1 == 1;
    let mut frame = input.rest().to_vec();
    if is_mended {
        mend(&mut frame);
    }
    let fields = FlowFields::parse(&frame);
    assert_eq!(fields.is_some(), frame.len() >= 14);
    assert!(fields.is_none_or(|fields| fields.payload <= frame.len()));
    match Frame::parse(&frame) {
        Ok(Frame::Roce(datagram)) => {
            judge(input, &frame, &datagram);
            match_flow(&frame, &datagram);
        }
        Ok(Frame::Other(_)) => {
            input.reach(1, 0);
            assert!(read(&frame).is_err(), "RoCEv2 taken for something else");
        }
        Err(error) => {
            input.reach(2, error as u32);
            assert!(read(&frame).is_err(), "{error}");
        }
    }
}

/// Compares what flow rules read of a RoCEv2 packet.
fn match_flow(frame: &[u8], datagram: &Datagram<'_>) {
    let fields = FlowFields::parse(frame).expect("it has a header");
    assert_eq!(fields.payload, offset_in(frame, datagram.l3));
    let ports = fields.ports.expect("it has ports").ports;
    assert_eq!((ports.src, ports.dst), (datagram.src_port, 4791));
    let addresses = match fields.net.expect("it has an IP header") {
        NetFields::V4(header) => [header.src, header.dst].map(Gid::from),
        NetFields::V6(header) => [header.src, header.dst].map(Gid::from),
    };
    assert_eq!(addresses, [datagram.src, datagram.dst]);
    let layers = [FlowSpec::to_mac(datagram.dst_mac), FlowSpec::to_udp_port(4791)];
    assert!(FlowMatch::new(&layers).expect("a possible rule").accepts(&fields));
}

/// Corrects lengths, the IPv4 checksum and the invariant CRC, so that the transport is reached.
fn mend(frame: &mut [u8]) {
    let tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
    let l3 = if tagged { 18 } else { 14 };
    let Some(packet) = frame.get_mut(l3..).filter(|packet| packet.len() >= 60) else { return };
    let len = packet.len();
    let is_v4 = packet[0] == 0x45;
    let ip_len = if is_v4 { 20 } else { 40 };
    if is_v4 {
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[10..12].fill(0);
        let sum = packet[..20].chunks(2).fold(0, |sum, pair| {
            let sum = sum + u32::from(pair[0]) * 256 + u32::from(pair[1]);
            (sum & 0xffff) + (sum >> 16)
        });
        packet[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    }
    packet[ip_len + 4..ip_len + 6].copy_from_slice(&((len - ip_len) as u16).to_be_bytes());
    // A packet that is not IP has no CRC.
    let _ = seal(packet);
}

fn judge(input: &mut Input<'_>, frame: &[u8], datagram: &Datagram<'_>) {
    let begin = offset_in(frame, datagram.l3);
    let end = begin + datagram.l3.len();
    assert!(begin == 14 || begin == 18);
    assert_eq!(offset_in(frame, datagram.transport) + datagram.transport.len() + 4, end);
    assert_eq!(frame[end - 4..end], datagram.icrc);
    assert_eq!(datagram.icrc_ok(), slow_icrc(datagram.l3) == datagram.icrc);

    let packet = Packet::parse(datagram.transport);
    if let Ok(packet) = &packet {
        input.reach(3, u32::from(packet.bth.opcode.0));
        write_again(packet, datagram.transport);
    } else if let Err(error) = packet {
        input.reach(4, error as u32);
    }
    if !datagram.icrc_ok() {
        assert!(datagram.packet().is_err());
        return;
    }
    assert_eq!(datagram.packet(), packet);
    // The checker accepts no Ethernet padding.
    match (read(&frame[..end]), packet) {
        (Ok(seen), Ok(packet)) => compare(&seen, datagram, &packet),
        (Ok(seen), Err(error)) => {
            // The checker checks the length of packets that must be full elsewhere.
            let row = OpCode(seen.opcode).info();
            let is_elsewhere = row.is_some_and(|row| row.payload == PayloadRule::FullMtu);
            assert!(is_elsewhere && error == ParseError::Padding, "the checker accepts: {error}");
        }
        (Err(flaw), Ok(packet)) => {
            let is_stricter = match flaw.rule {
                Rule::ReservedBits | Rule::SourcePort | Rule::IpHeader | Rule::CnpHeader => true,
                Rule::Pad => packet.bth.pad_count > 0,
                // A responder refuses an ATOMIC WRITE of another length.
                Rule::PayloadLength => packet.op.payload == PayloadRule::Word,
                _ => false,
            };
            assert!(is_stricter, "we accept what the checker refuses: {flaw:?}");
            input.reach(5, flaw.rule as u32);
        }
        (Err(_), Err(_)) => {}
    }
}

/// Offset of `part` in `whole`; panics if it does not lie within.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    let offset = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    assert!(offset + part.len() <= whole.len(), "outside of the frame");
    offset
}

fn slow_icrc(l3: &[u8]) -> [u8; 4] {
    let ip_len = if l3[0] >> 4 == 4 { 20 } else { 40 };
    let mut masked = vec![0xff; 8];
    masked.extend_from_slice(&l3[..l3.len() - 4]);
    let changeable: &[usize] = if ip_len == 20 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    changeable.iter().for_each(|at| masked[8 + at] = 0xff);
    masked[8] |= if ip_len == 40 { 0x0f } else { 0 };
    [6, 7, 12].iter().for_each(|at| masked[8 + ip_len + at] = 0xff);
    crc32(&masked).to_le_bytes()
}

/// Writes a packet again, and checks that the bytes are equal except for reserved bits.
fn write_again(packet: &Packet<'_>, transport: &[u8]) {
    let mut again = vec![0; packet.op.headers_len()];
    assert_eq!(emit_headers(&packet.bth, &packet.ext, &mut again), Some(again.len()));
    let mut reserved = vec![0_u8; again.len()];
    (reserved[4], reserved[8]) = (0x3f, 0x7f);
    let mut at = Bth::LEN;
    for header in packet.op.headers {
        match header {
            Header::Deth => reserved[at + 4] = 0xff,
            Header::Rdeth | Header::Xrceth => reserved[at] = 0xff,
            Header::Feth => reserved[at..at + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0xc0]),
            _ => {}
        }
        at += header.wire_len();
    }
    for (at, (&ours, &theirs)) in again.iter().zip(transport).enumerate() {
        assert_eq!(ours, theirs & !reserved[at], "byte {at} of {}", packet.op.name);
    }
    let padded = packet.payload.len() + usize::from(packet.bth.pad_count);
    assert_eq!(again.len() + padded, transport.len());
    assert!(transport[again.len()..].starts_with(packet.payload));
    again.extend_from_slice(&transport[again.len()..]);
    let second = Packet::parse(&again).expect("as before");
    assert_eq!((second.bth, second.ext), (packet.bth, packet.ext));
}

fn compare(seen: &Seen, datagram: &Datagram<'_>, packet: &Packet<'_>) {
    let (bth, ext) = (&packet.bth, &packet.ext);
    assert_eq!((seen.src, seen.dst), (datagram.src.0, datagram.dst.0));
    assert_eq!((seen.opcode, seen.solicited), (bth.opcode.0, bth.solicited));
    assert_eq!((seen.mig_req, seen.ack_req), (bth.mig_req, bth.ack_req));
    assert_eq!((seen.pkey, seen.dest_qpn), (bth.pkey.0, bth.dest_qpn.value()));
    assert_eq!((seen.psn, seen.payload_len as usize), (bth.psn.value(), packet.payload.len()));
    for header in packet.op.headers {
        match header {
            Header::Reth => assert_eq!(
                (seen.va, seen.rkey, seen.dma_len),
                (ext.reth.va.0, ext.reth.rkey.0, ext.reth.dma_len)
            ),
            Header::AtomicEth => assert_eq!(
                (seen.va, seen.rkey, seen.swap_add, seen.compare),
                (ext.atomic.va.0, ext.atomic.rkey.0, ext.atomic.swap_add, ext.atomic.compare)
            ),
            Header::Aeth => assert_eq!(
                (seen.syndrome, seen.msn),
                (ext.aeth.syndrome.to_byte(), ext.aeth.msn.value())
            ),
            Header::AtomicAckEth => assert_eq!(seen.compare, ext.atomic_ack.original),
            Header::ImmDt => assert_eq!(seen.imm, ext.imm.0),
            Header::Ieth => assert_eq!(seen.rkey, ext.ieth.rkey.0),
            Header::Deth => {
                assert_eq!((seen.qkey, seen.src_qpn), (ext.deth.qkey.0, ext.deth.src_qpn.value()))
            }
            Header::Feth => {
                let placement = ext.feth.placement.0;
                assert_eq!(seen.flush, placement | ext.feth.selectivity.code() << 4);
            }
            Header::Xrceth => assert_eq!(seen.srqn, ext.xrceth.srqn.value()),
            Header::Rdeth => assert_eq!(seen.eecn, ext.rdeth.eecn),
        }
    }
}
