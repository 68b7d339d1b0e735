//! RDMA-CM's address header: the IP addresses and the port that a REQ or SIDR_REQ is about.
//!
//! Read first: IBA Annex A11.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{array, be16, put};

/// The first 36 bytes of the private data of a REQ or SIDR_REQ between users of RDMA-CM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// The sender's port, in the port space that the service ID names.
    pub src_port: u16,
    /// The sender's IP address.
    pub src: IpAddr,
    /// The receiver's IP address, of the same family as `src`.
    pub dst: IpAddr,
}

/// Why private data does not begin with an address header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpHeaderError {
    /// The private data has fewer than 36 bytes.
    Truncated,
    /// The header's version is not 0.
    Version,
    /// The IP version is neither 4 nor 6.
    IpVersion,
}

impl IpHeader {
    /// Length of the header within the private data, in bytes.
    pub const LEN: usize = 36;

    /// Reads the header; the consumer's own private data follows it.
    ///
    /// # Errors
    /// [`IpHeaderError`] if the private data does not begin with a valid header.
    pub fn parse(private_data: &[u8]) -> Result<IpHeader, IpHeaderError> {
        let b: &[u8; Self::LEN] = private_data.first_chunk().ok_or(IpHeaderError::Truncated)?;
        if b[0] != 0 {
            return Err(IpHeaderError::Version);
        }
        let address = |at| match b[1] >> 4 {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(array::<4>(b, at + 12)))),
            6 => Ok(IpAddr::V6(Ipv6Addr::from(array::<16>(b, at)))),
            _ => Err(IpHeaderError::IpVersion),
        };
        Ok(IpHeader { src_port: be16(b, 2), src: address(4)?, dst: address(20)? })
    }

    /// Writes the header. The address family is that of `src`; an IPv6 `dst` beside an IPv4 `src`
    /// is cut to its last four bytes.
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        *b = [0; Self::LEN];
        let v4 = self.src.is_ipv4();
        b[1] = if v4 { 0x40 } else { 0x60 };
        put(b, 2, self.src_port.to_be_bytes());
        for (at, address) in [(4, self.src), (20, self.dst)] {
            let bytes = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            if v4 {
                put(b, at + 12, array::<4>(&bytes, 12));
            } else {
                put(b, at, bytes);
            }
        }
    }
}

impl fmt::Display for IpHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpHeaderError::Truncated => "private data too short for an address header",
            IpHeaderError::Version => "unknown version of the address header",
            IpHeaderError::IpVersion => "address header of neither IPv4 nor IPv6",
        })
    }
}

impl core::error::Error for IpHeaderError {}
