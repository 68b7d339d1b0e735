//! Whole frames: built as the engine's transmit side builds them, parsed as its receive side does.

use uroce_wire::{
    Bth, Datagram, ExtHeaders, Frame, HeaderTemplate, ICRC_LEN, Packet, emit_headers, headers_len,
    seal,
};

use uroce_transport::DropReason;

/// Writes a frame to `out`: `template`, headers, the payload that `fill` writes, pad, ICRC.
///
/// # Errors
/// The error of `fill`; the content of `out` is then undefined.
///
/// # Panics
/// If the opcode is reserved, because then it has no headers.
pub fn build<E>(
    out: &mut Vec<u8>,
    template: &HeaderTemplate,
    bth: &Bth,
    ext: &ExtHeaders,
    payload_len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let start = usize::from(template.len);
    let headers = headers_len(bth.opcode).expect("an opcode of the table");
    let payload = start + headers;
    let pad = payload + payload_len;
    let icrc = pad + usize::from(bth.pad_count);
    out.resize(icrc + ICRC_LEN, 0);
    emit_headers(bth, ext, &mut out[start..]).expect("room for the headers");
    fill(&mut out[payload..pad])?;
    out[pad..icrc].fill(0);
    template.emit(out, icrc + ICRC_LEN - start);
    seal(&mut out[usize::from(template.l3_offset)..]).expect("IP and BTH are whole");
    Ok(())
}

/// Parses a received frame: lengths and ICRC first, then the packet.
///
/// # Errors
/// The reason for which the frame is dropped before a QP is looked up.
pub fn open(frame: &[u8]) -> Result<(Datagram<'_>, Packet<'_>), DropReason> {
    match Frame::parse(frame)? {
        Frame::Roce(datagram) => Ok((datagram, datagram.packet()?)),
        Frame::Other(_) => Err(DropReason::NotForUs),
    }
}

/// The IP header of a frame and what follows it. Empty if the frame was cut off before the end of
/// an IPv4 header.
fn ip(frame: &mut [u8]) -> &mut [u8] {
    const IPV4_LEN: usize = 20;
    let offset = if frame.get(12..14) == Some(&[0x81, 0x00]) { 18 } else { 14 };
    let header = frame.get_mut(offset..).unwrap_or_default();
    if header.len() < IPV4_LEN { &mut [] } else { header }
}

/// Returns whether a switch may mark the frame: its sender has set ECT(0) or ECT(1).
pub(crate) fn is_ecn_capable(frame: &mut [u8]) -> bool {
    let [first, second, ..] = *ip(frame) else { return false };
    let class = if first >> 4 == 4 { second } else { second >> 4 };
    class & 3 != 0
}

/// Marks a frame with Congestion Experienced, as a switch does.
pub(crate) fn mark(frame: &mut [u8]) {
    let header = ip(frame);
    if header.is_empty() {
        return;
    }
    if header[0] >> 4 == 6 {
        header[1] |= 3 << 4;
        return;
    }
    header[1] |= 3;
    header[10..12].fill(0);
    let sum: u32 = header[..20]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    let checksum = !((sum >> 16) + sum) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
