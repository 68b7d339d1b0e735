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

/// Offset of the IP header of a frame.
fn ip_offset(frame: &[u8]) -> usize {
    if frame[12..14] == [0x81, 0x00] { 18 } else { 14 }
}

/// Returns whether a switch may mark the frame: its sender has set ECT(0) or ECT(1).
pub(crate) fn is_ecn_capable(frame: &[u8]) -> bool {
    let l3 = &frame[ip_offset(frame)..];
    let class = if l3[0] >> 4 == 4 { l3[1] } else { l3[1] >> 4 };
    class & 3 != 0
}

/// Marks a frame with Congestion Experienced, as a switch does.
pub(crate) fn mark(frame: &mut [u8]) {
    let l3 = ip_offset(frame);
    let header = &mut frame[l3..];
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
