//! The invariant CRC: covers all that no switch or router may change.
//!
//! CRC-32 (the polynomial and bit order of Ethernet and zlib) over eight bytes of ones, which
//! stand for the InfiniBand local header that RoCEv2 has not, then the packet from the IP header
//! to the end of the pad. Fields that change on the way are read as ones: TOS, TTL and checksum of
//! IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; the BTH byte with FECN
//! and BECN. The result goes behind the pad, low byte first.
//!
//! Speed: the masked headers (at most 60 bytes) are copied to the stack and summed; the rest is
//! summed where it lies.

use crc32fast::Hasher;

use crate::Bth;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::udp::Udp;

/// CRC-32 of eight bytes of ones.
const CRC_OF_LOCAL_HEADER: u32 = 0x2144_df1c;

/// Bytes of the invariant CRC.
pub const ICRC_LEN: usize = 4;

/// The invariant CRC of `l3`, IP header to end of pad, in wire order.
///
/// `None` if `l3` is not IPv4 without options or IPv6, or ends before BTH does.
#[inline]
pub fn icrc(l3: &[u8]) -> Option<[u8; ICRC_LEN]> {
    const V4: usize = Ipv4::LEN + Udp::LEN + Bth::LEN;
    const V6: usize = Ipv6::LEN + Udp::LEN + Bth::LEN;
    let mut crc = Hasher::new_with_initial(CRC_OF_LOCAL_HEADER);
    //= check E15 — what a router may rewrite does not count.
    let rest = match l3.first()? {
        0x45 => {
            let (headers, rest) = l3.split_first_chunk::<V4>()?;
            let mut masked = *headers;
            masked[1] = 0xff; // TOS
            masked[8] = 0xff; // TTL
            masked[10..12].fill(0xff); // header checksum
            crc.update(mask_udp_and_bth(&mut masked, Ipv4::LEN));
            rest
        }
        0x60..=0x6f => {
            let (headers, rest) = l3.split_first_chunk::<V6>()?;
            let mut masked = *headers;
            masked[0] |= 0x0f; // traffic class, high half
            masked[1..4].fill(0xff); // traffic class, low half, and flow label
            masked[7] = 0xff; // hop limit
            crc.update(mask_udp_and_bth(&mut masked, Ipv6::LEN));
            rest
        }
        _ => return None,
    };
    crc.update(rest);
    Some(crc.finalize().to_le_bytes())
}

/// Masks the UDP checksum and the BTH congestion byte behind an IP header of `ip_len` bytes.
#[inline(always)]
fn mask_udp_and_bth(headers: &mut [u8], ip_len: usize) -> &[u8] {
    headers[ip_len + 6..ip_len + 8].fill(0xff);
    headers[ip_len + Udp::LEN + 4] = 0xff;
    headers
}

/// Computes the invariant CRC of `l3`, IP header to end of CRC, into its last four bytes.
///
/// `None`, with nothing written, where [`icrc`] has no answer.
#[inline]
#[must_use = "a packet without its invariant CRC is lost"]
pub fn seal(l3: &mut [u8]) -> Option<()> {
    let (covered, tail) = l3.split_last_chunk_mut::<ICRC_LEN>()?;
    *tail = icrc(covered)?;
    Some(())
}
