//! A frame: headers, payload, padding and invariant CRC, written into one mbuf.
//!
//! ```text
//!   Outbound ─▶ mbuf: template │ BTH … │ payload, gathered │ pad │ ICRC
//! ```
//!
//! Read first: IBA 9.2 and 9.3 (headers); Annex A17 for the RoCEv2 packet.
//!
//! Invariants
//! - A frame longer than an mbuf is refused; Modify QP refuses a path MTU that could make one.

use crate::dpdk::mbuf::Mbuf;
use uroce_shared::copy::sum::{LEAST, copy_summed};
use uroce_shared::memory::mr_table::MrView;
use uroce_transport::{MemoryFault, Outbound, Piece, TransmitError};
use uroce_wire::{HeaderTemplate, ICRC_LEN, OuterSums, emit_headers, headers_len};

/// The error for a packet that no frame can carry: it does not fit into an mbuf, or its opcode has
/// no headers. The core makes no such packet.
const UNBUILDABLE: TransmitError = TransmitError::Memory(MemoryFault::OutOfRange);

/// Writes the whole frame into `mbuf`. Meanwhile the cache lines of `next`, the mbuf of a later
/// packet, are prefetched.
///
/// # Errors
/// [`TransmitError::Memory`]: the payload may not be read, or no frame can carry the packet.
#[inline]
pub(super) fn build(
    mbuf: &mut Mbuf,
    template: &HeaderTemplate,
    packet: &Outbound<'_>,
    memory: &MrView<'_>,
    sums: &mut OuterSums,
    next: Option<&Mbuf>,
) -> Result<(), TransmitError> {
    let payload_len = packet.payload.len() as usize;
    let pad_len = usize::from(packet.bth.pad_count);
    let headers = headers_len(packet.bth.opcode).ok_or(UNBUILDABLE)?;
    let transport_len = headers + payload_len + pad_len + ICRC_LEN;
    let (before, is_large) = (usize::from(template.len), payload_len >= LEAST);
    let fits = match is_large {
        true => mbuf.set_len_aligned(before + headers, before + transport_len),
        false => mbuf.set_len(before + transport_len),
    };
    fits.map_err(|_| UNBUILDABLE)?;

    let end = mbuf.headroom() + mbuf.len();
    let out = mbuf.as_mut_slice();
    let at = template.emit(out, transport_len);
    let at = at + emit_headers(&packet.bth, &packet.ext, &mut out[at..]).ok_or(UNBUILDABLE)?;
    let l3_offset = usize::from(template.l3_offset);
    let (l3, payload) = (&mut out[l3_offset..], at - l3_offset);
    if is_large {
        fill_summed(l3, payload, packet, memory, sums)?;
    } else {
        fill(&mut l3[payload..], packet, memory)?;
    }
    // Another core used the next mbuf last. As many bytes of it are prefetched as this frame has,
    // since most packets are as long as the one before.
    if let Some(next) = next {
        next.prefetch_rest(end);
    }
    if is_large { Ok(()) } else { sums.seal(l3).ok_or(UNBUILDABLE) }
}

/// Gathers a small payload into `out` and pads it.
#[inline]
fn fill(out: &mut [u8], packet: &Outbound<'_>, memory: &MrView<'_>) -> Result<(), TransmitError> {
    let mut at = 0;
    for piece in packet.payload.clone() {
        let place = &mut out[at..at + piece.len() as usize];
        at += place.len();
        match piece {
            Piece::Region(region) => {
                memory.read(packet.by, region, place).map_err(TransmitError::Memory)?;
            }
            Piece::Bytes(bytes) => place.copy_from_slice(bytes),
        }
    }
    // Most packets have no padding; filling nothing would still be a call.
    if packet.bth.pad_count > 0 {
        out[at..at + usize::from(packet.bth.pad_count)].fill(0);
    }
    Ok(())
}

/// Gathers and pads a large payload at offset `payload` in `l3`, and appends the invariant CRC, in
/// one pass.
fn fill_summed(
    l3: &mut [u8],
    payload: usize,
    packet: &Outbound<'_>,
    memory: &MrView<'_>,
    sums: &mut OuterSums,
) -> Result<(), TransmitError> {
    let (headers, out) = l3.split_at_mut(payload);
    let (mut sum, mut at) = (sums.of(headers).ok_or(UNBUILDABLE)?, 0);
    for piece in packet.payload.clone() {
        let place = &mut out[at..at + piece.len() as usize];
        at += place.len();
        sum = match piece {
            Piece::Region(region) => {
                let sum = memory.read_summed(packet.by, region, place, sum);
                sum.map_err(TransmitError::Memory)?
            }
            Piece::Bytes(bytes) => copy_summed(bytes, place, sum),
        };
    }
    let (pad, icrc) = out[at..].split_at_mut(usize::from(packet.bth.pad_count));
    pad.fill(0);
    icrc.copy_from_slice(&sum.and(pad).to_bytes());
    Ok(())
}
