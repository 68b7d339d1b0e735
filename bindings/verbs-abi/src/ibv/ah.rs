//! `ibv_ah`: address handles, for the destinations of datagrams.

use std::ffi::c_int;

use uroce::{GRH_LEN, Gid};

use super::path::{HOP_LIMIT, raw, same_version, vector};
use super::port;
use crate::abi::{self, ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_wc};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Object, number};
use crate::objects::ah::Ah;
use crate::objects::{context, pd};
use crate::runtime::{self, Device};

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    let held = pd::hold(pd)?;
    let vector = vector(held.context.device, attr)?;
    let way = held.domain()?.create_ah(attr.port_num, &vector)?;
    let context = context::context_of(held.context.public());
    let public = ibv_ah { context, pd, handle: number() };
    Ok(Ah::registry().insert(public, Ah { way, pd: held }).public())
}

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: the program passes NULL or valid attributes.
    entry::object(|| create(pd, &unsafe { entry::read(attr) }?))
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    entry::code(|| Ah::registry().remove(ah).map(runtime::dispose))
}

/// The fields of a datagram's network header, which precedes the datagram in the receive buffer.
struct Header {
    from: Gid,
    to: Gid,
    traffic_class: u8,
    flow_label: u32,
}

impl Header {
    /// Parses the 40 bytes before a datagram. An IPv6 header fills them; an IPv4 header fills the
    /// last 20, and the first 20 are undefined.
    fn parse(bytes: [u8; GRH_LEN]) -> Option<Header> {
        Header::ipv4(&bytes[20..]).or_else(|| Header::ipv6(&bytes))
    }

    fn ipv4(bytes: &[u8]) -> Option<Header> {
        const VERSION_AND_LENGTH: u8 = 0x45;
        if bytes.first() != Some(&VERSION_AND_LENGTH) || checksum(bytes) != 0xffff {
            return None;
        }
        let gid = |at: usize| {
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12..].copy_from_slice(bytes.get(at..at + 4)?);
            Some(Gid(gid))
        };
        let (from, to) = (gid(12)?, gid(16)?);
        Some(Header { from, to, traffic_class: *bytes.get(1)?, flow_label: 0 })
    }

    fn ipv6(bytes: &[u8; GRH_LEN]) -> Option<Header> {
        let [a, b, c, d, ..] = *bytes;
        let first = u32::from_be_bytes([a, b, c, d]);
        if first >> 28 != 6 {
            return None;
        }
        let gid = |at: usize| Some(Gid(bytes.get(at..at + 16)?.try_into().ok()?));
        let (from, to) = (gid(8)?, gid(24)?);
        let traffic_class = (first >> 20 & 0xff) as u8;
        Some(Header { from, to, traffic_class, flow_label: first & 0xf_ffff })
    }
}

/// The ones' complement sum of a header's 16-bit words. 0xffff if the header's checksum is correct.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        _ => 0,
    });
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded + (folded >> 16)) as u16
}

/// Attributes of the path to the sender of a datagram.
fn way_back(
    device: &'static Device,
    number: u8,
    wc: &ibv_wc,
    header: [u8; GRH_LEN],
) -> Result<ibv_ah_attr, Errno> {
    let port = port::find(device, number.into())?;
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    attr.dlid = wc.slid;
    // The completion's `sl` holds the kind of the header, not a service level.
    attr.sl = 0;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.port_num = number;
    if wc.wc_flags & abi::IBV_WC_GRH != 0 {
        let header = Header::parse(header).ok_or(Errno::EINVAL)?;
        let at = port.gids.iter().position(|gid| *gid == header.to);
        attr.is_global = 1;
        attr.grh.dgid = raw(header.from);
        // If the destination is no address of the port (it may be a group), the answer is sent from
        // the port's first address of the sender's IP version.
        attr.grh.sgid_index = match at {
            Some(at) => u8::try_from(at).map_err(|_| Errno::EINVAL)?,
            None => same_version(&port.gids, header.from).ok_or(Errno::EINVAL)?,
        };
        attr.grh.hop_limit = HOP_LIMIT;
        attr.grh.traffic_class = header.traffic_class;
        attr.grh.flow_label = header.flow_label;
    }
    Ok(attr)
}

/// Reads the arguments of `ibv_init_ah_from_wc` and `ibv_create_ah_from_wc`, and computes the path
/// with [`way_back`].
///
/// # Safety
///
/// `wc` is NULL or points to a completion. If that completion has a GRH, `grh` is NULL or points to
/// the 40 bytes before the datagram.
unsafe fn read_way_back(
    device: &'static Device,
    number: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
) -> Result<ibv_ah_attr, Errno> {
    // SAFETY: `wc` is NULL or points to a completion.
    let wc = unsafe { entry::read(wc) }?;
    let header = if wc.wc_flags & abi::IBV_WC_GRH == 0 {
        [0; GRH_LEN]
    } else {
        // SAFETY: the completion has a GRH, so `grh` is NULL or points to 40 bytes.
        unsafe { entry::read(grh.cast()) }?
    };
    way_back(device, number, &wc, header)
}

pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    number: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    place: *mut ibv_ah_attr,
) -> c_int {
    entry::minus_one(|| {
        let device = context::get(context)?.device;
        // SAFETY: the program passes NULL or valid structures, as the interface requires.
        let attr = unsafe { read_way_back(device, number, wc, grh) }?;
        // SAFETY: the program passes NULL or room for attributes.
        unsafe { entry::write(place, attr) }
    })
}

pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    number: u8,
) -> *mut ibv_ah {
    entry::object(|| {
        let device = pd::get(pd)?.context.device;
        // SAFETY: the program passes NULL or valid structures, as the interface requires.
        let attr = unsafe { read_way_back(device, number, wc, grh) }?;
        create(pd, &attr)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header (RFC 791) from 192.0.2.2 to 192.0.2.1, after 20 bytes without meaning.
    fn ipv4() -> [u8; GRH_LEN] {
        let mut bytes = [0x66; GRH_LEN];
        bytes[20..].copy_from_slice(&[
            0x45, 0x12, 0, 60, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1,
        ]);
        let sum = !checksum(&bytes[20..]);
        bytes[30..32].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn the_header_of_ipv4_is_in_the_last_20_bytes() {
        let header = Header::parse(ipv4()).unwrap();
        assert_eq!(header.from.to_ipv4(), Some([192, 0, 2, 2].into()));
        assert_eq!(header.to.to_ipv4(), Some([192, 0, 2, 1].into()));
        assert_eq!((header.traffic_class, header.flow_label), (0x12, 0));
    }

    #[test]
    fn the_header_of_ipv6_takes_them_all() {
        let mut bytes = [0; GRH_LEN];
        bytes[..4].copy_from_slice(&[0x6a, 0xbc, 0xde, 0xf1]);
        bytes[8..24].fill(2);
        bytes[24..].fill(3);
        let header = Header::parse(bytes).unwrap();
        assert_eq!((header.from, header.to), (Gid([2; 16]), Gid([3; 16])));
        assert_eq!((header.traffic_class, header.flow_label), (0xab, 0xc_def1));
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        assert!(Header::parse([0; GRH_LEN]).is_none());
        assert!(Header::parse([0xff; GRH_LEN]).is_none());
        let mut broken = ipv4();
        broken[33] ^= 1;
        broken[0] = 0;
        assert!(Header::parse(broken).is_none(), "a wrong checksum");
    }
}
