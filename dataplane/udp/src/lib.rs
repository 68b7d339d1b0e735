//! RoCEv2 over the kernel's UDP sockets: for processes without any privilege.
//!
//! ```text
//!   frames ─▶ send: run of one path and length ─▶ sendmsg, one UDP_SEGMENT ─▶ kernel
//!   frames ◀─ receive: headers are made again  ◀─ recvmsg, one UDP_GRO     ◀─ kernel
//! ```
//!
//! An [`Endpoint`] has a socket at UDP port 4791 of each of its addresses, for each of its
//! [`Queue`]s. To its user it looks like an Ethernet device: frames have the headers that the
//! kernel adds and removes. What a socket does not show is made up ([`mac_of`]) or not covered by
//! the invariant CRC, but for two fields: the kernel sends from port 4791 and gives packets of IPv4
//! an identification. The CRC is changed for what leaves, and the identification of what comes
//! follows from the CRC ([`uroce_wire::IcrcField`]).
//!
//! Invariants
//! - A frame with a wrong CRC is given on with a wrong CRC; one with a CRC that is right but for
//!   the identification is given on with the identification that it had.
//! - No call waits. No call of a queue allocates but for the control messages of the kernel.
//! - At most one endpoint of a network namespace has an address; the next is refused.
//!
//! Not here: neighbours and routes, which are the kernel's; multicast.

#![forbid(unsafe_code)]

mod counters;
mod endpoint;
mod fields;
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

/// Returns the Ethernet address that stands for a host's IP address in frames: locally
/// administered, and for IPv4 one of its own.
pub fn mac_of(ip: IpAddr) -> Mac {
    let (kind, [a, b, c, d]) = match ip {
        IpAddr::V4(ip) => (0x04, ip.octets()),
        IpAddr::V6(ip) => {
            // FNV-1a: hosts of a network differ in the last bytes.
            let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            (0x06, ip.octets().iter().fold(0x811c_9dc5, mix).to_be_bytes())
        }
    };
    Mac([0x02, kind, a, b, c, d])
}
