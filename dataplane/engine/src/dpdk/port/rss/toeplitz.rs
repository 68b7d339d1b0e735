//! The hash by which NICs choose a packet's receive queue.
//!
//! Read first: Microsoft, "Introduction to Receive Side Scaling", RSS hashing functions and types;
//! the same hash is in the specification of virtio, section 5.1.6.4.3.

use std::net::IpAddr;

/// Bytes of a packet that the hash covers: two IPv6 addresses and two ports at most.
const COVERED_MAX: usize = 16 + 16 + 2 + 2;

/// The addresses and ports of received UDP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The peer's address.
    pub(crate) src: IpAddr,
    /// Our address.
    pub(crate) dst: IpAddr,
    /// The peer's port.
    pub(crate) src_port: u16,
    /// Our port.
    pub(crate) dst_port: u16,
}

/// What the hash covers of a UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    /// Both addresses.
    Addresses,
    /// Both addresses and both ports.
    Ports,
}

/// A device's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) key: Vec<u8>,
    /// What it covers of UDP over IPv4; `None` if such packets are not hashed.
    pub(crate) ipv4: Option<Covered>,
    /// What it covers of UDP over IPv6.
    pub(crate) ipv6: Option<Covered>,
}

impl Hash {
    /// Returns the hash of a flow's packets. `None` if the device does not hash them, or its key is
    /// too short.
    pub(crate) fn of(&self, flow: &Flow) -> Option<u32> {
        let mut bytes = Vec::with_capacity(COVERED_MAX);
        let covered = match (flow.src, flow.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes.extend([src, dst].map(|ip| ip.octets()).concat());
                self.ipv4?
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                bytes.extend([src, dst].map(|ip| ip.octets()).concat());
                self.ipv6?
            }
            _ => return None,
        };
        if covered == Covered::Ports {
            bytes.extend([flow.src_port, flow.dst_port].map(u16::to_be_bytes).concat());
        }
        toeplitz(&self.key, &bytes)
    }
}

/// Returns the hash of these bytes: the sum (exclusive or), over each bit that is set, of the 32
/// bits of the key that begin at the bit's place. `None` if the key ends before.
fn toeplitz(key: &[u8], bytes: &[u8]) -> Option<u32> {
    let (first, mut rest) = key.split_first_chunk::<4>()?;
    let (mut window, mut hash) = (u32::from_be_bytes(*first), 0);
    for byte in bytes {
        let (&next, after) = rest.split_first()?;
        rest = after;
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of Microsoft's examples.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hash(covered: Option<Covered>) -> Hash {
        Hash { key: KEY.to_vec(), ipv4: covered, ipv6: covered }
    }

    /// Microsoft's examples: destination, source, and the hashes without and with the ports.
    #[test]
    fn the_examples_of_the_specification_are_hashed_as_it_says() {
        let examples: [(&str, u16, &str, u16, u32, u32); 8] = [
            ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (dst, dst_port, src, src_port, of_addresses, of_ports) in examples {
            let [src, dst] = [src, dst].map(|text| text.parse().expect("an address"));
            let flow = Flow { src, dst, src_port, dst_port };
            assert_eq!(hash(Some(Covered::Addresses)).of(&flow), Some(of_addresses), "{flow:?}");
            assert_eq!(hash(Some(Covered::Ports)).of(&flow), Some(of_ports), "{flow:?}");
        }
    }

    #[test]
    fn what_is_not_hashed_has_no_hash() {
        let v4 = IpAddr::from([10, 0, 0, 1]);
        let flow = Flow { src: v4, dst: v4, src_port: 0xc000, dst_port: 4791 };
        assert_eq!(hash(None).of(&flow), None);
        let mixed = Flow { src: "::1".parse().expect("an address"), ..flow };
        assert_eq!(hash(Some(Covered::Ports)).of(&mixed), None);
        // A hash of 12 bytes takes 16 of the key.
        let with_key = |len: usize| Hash { key: KEY[..len].to_vec(), ..hash(Some(Covered::Ports)) };
        assert_eq!(with_key(15).of(&flow), None);
        assert_eq!(with_key(16).of(&flow), hash(Some(Covered::Ports)).of(&flow));
        assert_eq!(with_key(0).of(&flow), None);
    }
}
