//! Frames as bytes, for faults that no header field can express.

use uroce_sim::Pair;
use uroce_wire::{OpCode, icrc};

use crate::scene::A;

/// Offset of the IP header in a frame without a VLAN tag.
pub(crate) const L3: usize = 14;

/// Offset of the UDP header.
pub(crate) fn udp(is_ipv6: bool) -> usize {
    L3 + if is_ipv6 { 40 } else { 20 }
}

/// Offset of the BTH.
pub(crate) fn bth(is_ipv6: bool) -> usize {
    udp(is_ipv6) + 8
}

/// A pair for each IP version: whether it is IPv6, and the pair.
pub(crate) fn families() -> [(bool, Pair); 2] {
    [false, true].map(|is_ipv6| (is_ipv6, Pair::with(|terms| terms.is_ipv6 = is_ipv6)))
}

/// End A's next packet, a WRITE of eight bytes, as a frame.
pub(crate) fn write_frame(pair: &Pair) -> Vec<u8> {
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&[1; 8]);
    pair.frame(A, &packet.ext(|ext| ext.reth.dma_len = 8))
}

/// Corrects the ICRC and an IPv4 header's checksum.
pub(crate) fn seal(frame: &mut [u8]) {
    fix_ipv4_checksum(frame);
    let end = frame.len() - 4;
    let crc = icrc(&frame[L3..end]).unwrap();
    frame[end..].copy_from_slice(&crc);
}

/// Corrects the checksum of an IPv4 header.
pub(crate) fn fix_ipv4_checksum(frame: &mut [u8]) {
    if frame[L3] >> 4 != 4 {
        return;
    }
    let header = &mut frame[L3..L3 + 20];
    header[10..12].fill(0);
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
}
