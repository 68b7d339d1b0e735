//! Parsing of one frame from its bytes: Ethernet, VLAN, IP, UDP, BTH, extended headers, pad, ICRC.
//!
//! Read first: IBA 5, 7.8.1, 9.2 and 9.3; Annex A17.

use crate::crc;
use crate::flaw::{Flaw, Rule, ensure};

/// The fields of a packet. Fields of headers that it does not carry are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Source address; IPv4 as the mapped IPv6 address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// BTH: opcode.
    pub opcode: u8,
    /// BTH: solicited event.
    pub solicited: bool,
    /// BTH: migration request.
    pub mig_req: bool,
    /// BTH: partition key.
    pub pkey: u16,
    /// BTH: destination QP.
    pub dest_qpn: u32,
    /// BTH: an acknowledgement is requested.
    pub ack_req: bool,
    /// BTH: packet sequence number.
    pub psn: u32,
    /// RETH or AtomicETH: address.
    pub va: u64,
    /// RETH or AtomicETH: key. IETH: the key to invalidate.
    pub rkey: u32,
    /// RETH: length.
    pub dma_len: u32,
    /// AtomicETH: swap or add operand.
    pub swap_add: u64,
    /// AtomicETH: compare operand. AtomicAckETH: original value.
    pub compare: u64,
    /// FETH: placement type in the low four bits, selectivity level above them.
    pub flush: u8,
    /// AETH: syndrome.
    pub syndrome: u8,
    /// AETH: message sequence number.
    pub msn: u32,
    /// Immediate data.
    pub imm: u32,
    /// XRCETH: number of the shared receive queue.
    pub srqn: u32,
    /// RDETH: number of the end-to-end context.
    pub eecn: u32,
    /// DETH: Q_Key.
    pub qkey: u32,
    /// DETH: source QP.
    pub src_qpn: u32,
    /// Length of the payload without pad, in bytes.
    pub payload_len: u32,
    /// Fingerprint of the payload: equal payloads have equal fingerprints.
    pub payload_mark: u64,
}

/// Opcode of a congestion notification packet.
pub(crate) const CNP: u8 = 0x81;

/// Opcode of uroce's selective acknowledgement.
pub(crate) const SELECTIVE_ACK: u8 = 0xd1;

/// Meaning of the five low bits of an opcode, equal for every service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    SelectiveAck,
    AtomicAck,
    Atomic,
    AtomicWrite,
    Flush,
    /// RD only.
    Resync,
}

impl Kind {
    /// Returns whether a request has a response of its own, which no acknowledgement replaces.
    pub(crate) fn has_response(self) -> bool {
        self.is_placed() || matches!(self, Kind::ReadRequest | Kind::Atomic)
    }

    /// Returns whether a request is answered by a READ response without data.
    pub(crate) fn is_placed(self) -> bool {
        matches!(self, Kind::AtomicWrite | Kind::Flush)
    }
}

/// Position of a packet in its message, and its headers, from the opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
    pub(crate) has_imm: bool,
    pub(crate) has_ieth: bool,
}

impl Shape {
    /// The shape of packets with this opcode; `None` if no service defines it.
    pub(crate) fn of(opcode: u8) -> Option<Shape> {
        let low = opcode & 0x1f;
        let (kind, is_first, is_last) = match low {
            0x00 => (Kind::Send, true, false),
            0x01 => (Kind::Send, false, false),
            0x02 | 0x03 | 0x16 => (Kind::Send, false, true),
            0x04 | 0x05 | 0x17 => (Kind::Send, true, true),
            0x06 => (Kind::Write, true, false),
            0x07 => (Kind::Write, false, false),
            0x08 | 0x09 => (Kind::Write, false, true),
            0x0a | 0x0b => (Kind::Write, true, true),
            0x0c => (Kind::ReadRequest, true, true),
            0x0d => (Kind::ReadResponse, true, false),
            0x0e => (Kind::ReadResponse, false, false),
            0x0f => (Kind::ReadResponse, false, true),
            0x10 => (Kind::ReadResponse, true, true),
            0x11 if opcode == SELECTIVE_ACK => (Kind::SelectiveAck, true, true),
            0x11 => (Kind::Acknowledge, true, true),
            0x12 => (Kind::AtomicAck, true, true),
            0x13 | 0x14 => (Kind::Atomic, true, true),
            0x15 if opcode >> 5 == 2 => (Kind::Resync, true, true),
            0x1c => (Kind::Flush, true, true),
            0x1d => (Kind::AtomicWrite, true, true),
            _ => return None,
        };
        let has_imm = matches!(low, 0x03 | 0x05 | 0x09 | 0x0b);
        let has_ieth = matches!(low, 0x16 | 0x17);
        let service = opcode >> 5;
        let is_defined = match service {
            0 => true,
            1 => low <= 0x0b,
            2 => low <= 0x15,
            3 => matches!(low, 0x04 | 0x05),
            5 => low <= 0x17,
            _ => opcode == SELECTIVE_ACK,
        };
        is_defined.then_some(Shape { kind, is_first, is_last, has_imm, has_ieth })
    }

    pub(crate) fn is_request(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::Write | Kind::Resync) || self.kind.has_response()
    }

    fn has_aeth(&self) -> bool {
        match self.kind {
            Kind::ReadResponse => self.is_first || self.is_last,
            Kind::Acknowledge | Kind::SelectiveAck | Kind::AtomicAck => true,
            _ => false,
        }
    }
}

/// The bitmap of the frame of a selective acknowledgement.
pub(crate) fn bitmap_of<'a>(frame: &'a [u8], seen: &Seen) -> &'a [u8] {
    let end = frame.len().saturating_sub(4);
    &frame[end.saturating_sub(seen.payload_len as usize)..end]
}

/// A reader of consecutive bytes.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Flaw::new(
            Rule::Truncated,
            self.0.len() as u64,
            N as u64,
        ))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Flaw> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, Flaw> {
        Ok(u64::from_be_bytes(self.take()?))
    }
}

/// Parses a frame of one of the services RC, UC, RD, UD and XRC, or a CNP, from its Ethernet header
/// to its end.
///
/// # Errors
/// The first [`Flaw`] found. Trailing bytes after the IP packet are a flaw, because no frame of
/// these services is short enough to need Ethernet padding.
pub fn read(frame: &[u8]) -> Result<Seen, Flaw> {
    let mut bytes = Bytes(frame);
    let _macs: [u8; 12] = bytes.take()?;
    let mut ether_type = u16::from_be_bytes(bytes.take()?);
    if ether_type == 0x8100 {
        let _tag: [u8; 2] = bytes.take()?;
        ether_type = u16::from_be_bytes(bytes.take()?);
    }
    let l3 = bytes.0;
    let mut seen = Seen::default();
    let ip_len = match ether_type {
        0x0800 => read_ipv4(l3, &mut seen)?,
        0x86dd => read_ipv6(l3, &mut seen)?,
        other => return Err(Flaw::new(Rule::NotRoce, other, 0x0800_u16)),
    };
    read_udp(&l3[ip_len..])?;
    verify_icrc(l3, ip_len)?;
    read_transport(&l3[ip_len + 8..l3.len() - 4], &mut seen)?;
    Ok(seen)
}

fn read_ipv4(l3: &[u8], seen: &mut Seen) -> Result<usize, Flaw> {
    let header: [u8; 20] = Bytes(l3).take()?;
    ensure(header[0] == 0x45, Rule::IpHeader, header[0], 0x45_u8)?;
    let total = u16::from_be_bytes([header[2], header[3]]);
    ensure(usize::from(total) == l3.len(), Rule::IpLength, total, l3.len() as u64)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    ensure(fragment & !0x4000 == 0, Rule::IpHeader, fragment, 0x4000_u16)?;
    ensure(header[9] == 17, Rule::NotRoce, header[9], 17_u8)?;
    let sum: u32 =
        header.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    ensure(sum == 0xffff, Rule::IpChecksum, sum, 0xffff_u32)?;
    for (address, at) in [(&mut seen.src, 12), (&mut seen.dst, 16)] {
        address[10] = 0xff;
        address[11] = 0xff;
        address[12..].copy_from_slice(&header[at..at + 4]);
    }
    Ok(20)
}

fn read_ipv6(l3: &[u8], seen: &mut Seen) -> Result<usize, Flaw> {
    let header: [u8; 40] = Bytes(l3).take()?;
    ensure(header[0] >> 4 == 6, Rule::IpHeader, header[0], 0x60_u8)?;
    let len = u16::from_be_bytes([header[4], header[5]]);
    ensure(usize::from(len) + 40 == l3.len(), Rule::IpLength, len, l3.len() as u64 - 40)?;
    ensure(header[6] == 17, Rule::NotRoce, header[6], 17_u8)?;
    seen.src.copy_from_slice(&header[8..24]);
    seen.dst.copy_from_slice(&header[24..40]);
    Ok(40)
}

fn read_udp(l4: &[u8]) -> Result<(), Flaw> {
    let header: [u8; 8] = Bytes(l4).take()?;
    let [src, dst, len] = [0, 2, 4].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    ensure(dst == 4791, Rule::NotRoce, dst, 4791_u16)?;
    ensure(src >= 0xc000, Rule::SourcePort, src, 0xc000_u16)?;
    ensure(usize::from(len) == l4.len(), Rule::UdpLength, len, l4.len() as u64)
}

/// Checks the ICRC: sums eight bytes of ones, the headers with ones where a router may write, and
/// the rest.
fn verify_icrc(l3: &[u8], ip_len: usize) -> Result<(), Flaw> {
    let headers = ip_len + 8 + 12;
    ensure(l3.len() >= headers + 4, Rule::Truncated, l3.len() as u64, headers as u64 + 4)?;
    let mut masked = [0xff; 8 + 40 + 8 + 12];
    let masked = &mut masked[..8 + headers];
    masked[8..].copy_from_slice(&l3[..headers]);
    let changeable: &[usize] = if ip_len == 20 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    changeable.iter().for_each(|at| masked[8 + at] = 0xff);
    if ip_len == 40 {
        masked[8] |= 0x0f;
    }
    // The UDP checksum, and the BTH byte with FECN and BECN.
    [6, 7, 12].iter().for_each(|at| masked[8 + ip_len + at] = 0xff);
    let (covered, stated) = l3.split_at(l3.len() - 4);
    let sum = !crc::update(crc::update(!0, masked), &covered[headers..]);
    let stated = u32::from_le_bytes([stated[0], stated[1], stated[2], stated[3]]);
    ensure(sum == stated, Rule::Icrc, stated, sum)
}

/// Parses the bytes from BTH to the end of the pad.
fn read_transport(transport: &[u8], seen: &mut Seen) -> Result<(), Flaw> {
    let mut bytes = Bytes(transport);
    let bth: [u8; 12] = bytes.take()?;
    seen.opcode = bth[0];
    seen.solicited = bth[1] & 0x80 != 0;
    seen.mig_req = bth[1] & 0x40 != 0;
    let pad = usize::from(bth[1] >> 4 & 3);
    ensure(bth[1] & 0x0f == 0, Rule::Version, bth[1] & 0x0f, 0_u8)?;
    seen.pkey = u16::from_be_bytes([bth[2], bth[3]]);
    ensure(bth[4] & 0x3f == 0, Rule::ReservedBits, bth[4], 0_u8)?;
    seen.dest_qpn = u32::from_be_bytes([0, bth[5], bth[6], bth[7]]);
    seen.ack_req = bth[8] & 0x80 != 0;
    ensure(bth[8] & 0x7f == 0, Rule::ReservedBits, bth[8], 0x80_u8)?;
    seen.psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
    if bth[0] == CNP {
        return read_cnp(bytes.0, &bth);
    }
    let shape = Shape::of(bth[0]).ok_or(Flaw::new(Rule::UnknownOpcode, bth[0], 0_u8))?;
    read_extended(&mut bytes, &shape, bth[0] >> 5, seen)?;
    read_payload(bytes.0, pad, &shape, seen)
}

/// Checks what follows the BTH of a CNP, and the BTH's fields that are fixed in one.
fn read_cnp(rest: &[u8], bth: &[u8; 12]) -> Result<(), Flaw> {
    let is_plain = bth[1] == 0 && bth[4] == 0x40 && bth[8..] == [0; 4];
    ensure(is_plain, Rule::CnpHeader, bth[4], 0x40_u8)?;
    ensure(rest.len() == 16, Rule::PayloadLength, rest.len() as u64, 16_u64)?;
    let sum = rest.iter().fold(0, |sum, byte| sum | byte);
    ensure(sum == 0, Rule::CnpHeader, sum, 0_u8)
}

fn read_extended(
    bytes: &mut Bytes<'_>,
    shape: &Shape,
    service: u8,
    seen: &mut Seen,
) -> Result<(), Flaw> {
    if service == 5 && shape.is_request() {
        let word = bytes.u32()?;
        ensure(word >> 24 == 0, Rule::ReservedBits, word, 0_u8)?;
        seen.srqn = word;
    }
    if service == 2 {
        let word = bytes.u32()?;
        ensure(word >> 24 == 0, Rule::ReservedBits, word, 0_u8)?;
        seen.eecn = word;
    }
    if service == 3 || service == 2 && shape.is_request() {
        seen.qkey = bytes.u32()?;
        let word = bytes.u32()?;
        ensure(word >> 24 == 0, Rule::ReservedBits, word, 0_u8)?;
        seen.src_qpn = word;
    }
    if shape.kind == Kind::Flush {
        let word = bytes.u32()?;
        ensure(word & !0x3f == 0, Rule::ReservedBits, word, 0_u8)?;
        seen.flush = word as u8;
    }
    let has_reth = shape.kind == Kind::ReadRequest
        || shape.kind.is_placed()
        || shape.kind == Kind::Write && shape.is_first;
    if has_reth {
        seen.va = bytes.u64()?;
        seen.rkey = bytes.u32()?;
        seen.dma_len = bytes.u32()?;
    }
    if shape.kind == Kind::Atomic {
        seen.va = bytes.u64()?;
        seen.rkey = bytes.u32()?;
        seen.swap_add = bytes.u64()?;
        seen.compare = bytes.u64()?;
    }
    if shape.has_aeth() {
        let word = bytes.u32()?;
        seen.syndrome = (word >> 24) as u8;
        seen.msn = word & 0xff_ffff;
    }
    if shape.kind == Kind::AtomicAck {
        seen.compare = bytes.u64()?;
    }
    if shape.has_imm {
        seen.imm = bytes.u32()?;
    }
    if shape.has_ieth {
        seen.rkey = bytes.u32()?;
    }
    Ok(())
}

fn read_payload(padded: &[u8], pad: usize, shape: &Shape, seen: &mut Seen) -> Result<(), Flaw> {
    let is_whole = padded.len().is_multiple_of(4) && pad <= padded.len();
    ensure(is_whole, Rule::Pad, pad as u64, padded.len() as u64)?;
    let (payload, filling) = padded.split_at(padded.len() - pad);
    ensure(
        filling.iter().all(|byte| *byte == 0),
        Rule::Pad,
        filling[..1.min(pad)].len() as u64,
        0_u8,
    )?;
    let carries = matches!(shape.kind, Kind::Send | Kind::Write | Kind::ReadResponse);
    let is_bitmap = payload.len().is_multiple_of(8) && (8..=1024).contains(&payload.len());
    let may_be = match shape.kind {
        Kind::SelectiveAck => is_bitmap,
        Kind::AtomicWrite => padded.len() == 8 && pad == 0,
        _ => carries || padded.is_empty(),
    };
    ensure(may_be, Rule::PayloadLength, payload.len() as u64, 0_u8)?;
    seen.payload_len = payload.len() as u32;
    seen.payload_mark = fingerprint(payload);
    Ok(())
}

/// A fingerprint of the payload, 64 bits, computed eight bytes a step.
fn fingerprint(payload: &[u8]) -> u64 {
    let mix =
        |mark: u64, word: u64| (mark.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = payload.as_chunks::<8>();
    let mark =
        words.iter().fold(payload.len() as u64, |mark, word| mix(mark, u64::from_le_bytes(*word)));
    rest.iter().fold(mark, |mark, byte| mix(mark, u64::from(*byte)))
}
