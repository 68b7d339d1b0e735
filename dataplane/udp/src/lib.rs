//! RoCEv2 over the kernel's UDP sockets: for processes without any privilege.
//!
//! ```text
//!   frames ─▶ send: run of one path and length ─▶ sendmsg, one UDP_SEGMENT ─▶ kernel
//!   frames ◀─ receive: headers are made again  ◀─ recvmsg, one UDP_GRO     ◀─ kernel
//! ```
//!
//! An [`Endpoint`] has, for each of its [`Queue`]s, a socket at UDP port 4791 of each of its
//! addresses. To its user, an endpoint looks like an Ethernet device: frames have the headers that
//! the kernel adds and removes. Header fields that a socket does not show are made up ([`mac_of`])
//! or not covered by the invariant CRC. There are two exceptions, which the CRC covers
//! ([`uroce_wire::IcrcField`]):
//! - The kernel sends each packet from UDP port 4791. The CRC of a frame that leaves is changed for
//!   this port.
//! - The kernel sets the identification of IPv4 packets. The CRC of a frame that leaves is changed
//!   for it; the identification of a received frame is computed from the CRC.
//!
//! Invariants
//! - A datagram with a wrong CRC becomes a frame with a wrong CRC. If the CRC is right for some
//!   identification, the frame has this identification.
//! - No call blocks. Calls of a queue allocate only for the kernel's control messages.
//! - Only a peer that receives by UDP sockets too is sent several datagrams as one message.
//! - At most one endpoint in a network namespace has an address; opening a second one fails.
//!
//! Not here: neighbours and routes, which are the kernel's; multicast.

#![forbid(unsafe_code)]

mod counters;
mod endpoint;
mod fields;
mod peers;
mod queue;
mod receive;
mod send;
mod socket;

pub use counters::{Counter, Counters};
pub use endpoint::{Endpoint, EndpointConfig, OpenError, QUEUES_MAX, QueueError};
pub use queue::Queue;
pub use receive::Received;

use std::net::IpAddr;
use uroce_wire::Mac;

/// Returns the Ethernet address that stands for a host's IP address in frames. It is locally
/// administered. Each IPv4 address has a different one; two IPv6 addresses may have the same.
pub fn mac_of(ip: IpAddr) -> Mac {
    let (kind, [a, b, c, d]) = match ip {
        IpAddr::V4(ip) => (0x04, ip.octets()),
        IpAddr::V6(ip) => {
            // FNV-1a, which mixes the last bytes well: hosts of one network differ in them.
            let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            (0x06, ip.octets().iter().fold(0x811c_9dc5, mix).to_be_bytes())
        }
    };
    Mac([0x02, kind, a, b, c, d])
}
