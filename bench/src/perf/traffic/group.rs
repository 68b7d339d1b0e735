//! Multicast groups of `-g`: the receiver's queue pair is attached to one, and it tells the sender
//! the group's GID in place of its own address.

use super::end::End;
use crate::error::{BenchError, Step};
use crate::perf::plan::{Measure, Plan};
use crate::pin::Side;
use std::net::{IpAddr, Ipv4Addr};
use uroce::{Gid, QueuePair};

/// Queue pair number of datagrams to a group.
const QPN: u32 = 0xff_ffff;
/// First byte of default IPv4 groups: those of one organization.
const IPV4_PREFIX: u8 = 239;
/// First bytes of default IPv6 groups, as perftest's, but for the link instead of one interface.
const IPV6_PREFIX: [u8; 8] = [0xff, 0x02, 0, 0, 0, 2, 201, 133];

/// Tells whether an end receives, and therefore has a group.
pub(super) fn is_receiver(plan: &Plan, side: Side) -> bool {
    side == Side::Server || plan.measure == Measure::Latency
}

/// Attaches the queue pair, and replaces GID and number of its end by those of the group.
pub(super) fn join(qp: &QueuePair, plan: &Plan, end: &mut End) -> Result<(), BenchError> {
    let group = plan.local.group.unwrap_or_else(|| default_of(Gid(end.gid), end.qpn));
    qp.control().attach_multicast(group).step("attaching to the multicast group")?;
    end.gid = group.0;
    end.qpn = QPN;
    Ok(())
}

/// Returns the group of a queue pair, of the IP version of its port.
fn default_of(gid: Gid, qpn: u32) -> Gid {
    let [_, a, b, c] = qpn.to_be_bytes();
    match gid.to_ip() {
        IpAddr::V4(_) => Gid::from(Ipv4Addr::new(IPV4_PREFIX, a, b, c)),
        IpAddr::V6(_) => {
            let mut bytes = [0; 16];
            bytes[..IPV6_PREFIX.len()].copy_from_slice(&IPV6_PREFIX);
            bytes[13..].copy_from_slice(&[a, b, c]);
            Gid(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_of_the_ports_ip_version_and_of_the_queue_pair() {
        let group = |gid: &str, qpn| {
            let address: IpAddr = gid.parse().expect("an address");
            default_of(Gid::from(address), qpn).to_ip().to_string()
        };
        assert_eq!(group("192.0.2.1", 0x12_3456), "239.18.52.86");
        assert_eq!(group("2001:db8::1", 0x12_3456), "ff02:0:2:c985::12:3456");
    }
}
