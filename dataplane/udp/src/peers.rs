//! Peers to which a message of several datagrams may be sent.
//!
//! The kernel cuts a message into datagrams as late as it can. A virtual interface (veth, bridge)
//! passes it on whole, and the kernel at the other end cuts it when a UDP socket receives it. A
//! packet socket, on which net_af_packet stands, gets it whole instead and loses it: its slots hold
//! one frame. What receives at the other end shows in the UDP source port of what comes from there:
//! only ports over UDP sockets send from RoCEv2's own port.
//!
//! Limit: a host that ends its port over sockets, starts one over a packet socket on the same
//! address and then only listens is taken for the former until it has sent something. A connection
//! manager and an exchange of parameters make it send.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use uroce_wire::udp::Udp;

/// Number of places, a power of two. Each of two peers that share a place takes it from the other.
const PLACES: usize = 1024;

/// The peers of an endpoint that receive by UDP sockets, as far as they have sent something. A peer
/// that is missing is sent its datagrams one by one.
#[derive(Debug)]
pub(crate) struct Peers {
    /// At each place a peer's mark, or 0.
    places: Box<[AtomicU64]>,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Peers {
    /// Takes note of the sender of a datagram. The latest datagram of a peer decides.
    #[inline]
    pub(crate) fn note(&self, from: SocketAddr) {
        let (place, mark) = self.find(from.ip());
        let is_noted = place.load(Ordering::Relaxed) == mark;
        let is_socket = from.port() == Udp::ROCE_PORT;
        if is_noted != is_socket {
            place.store(if is_socket { mark } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Returns whether messages of several datagrams reach a peer.
    #[inline]
    pub(crate) fn takes_messages(&self, ip: IpAddr) -> bool {
        let (place, mark) = self.find(ip);
        place.load(Ordering::Relaxed) == mark
    }

    /// Returns a peer's place, and its mark, which is not 0.
    #[inline]
    fn find(&self, ip: IpAddr) -> (&AtomicU64, u64) {
        let mut hasher = DefaultHasher::new();
        ip.hash(&mut hasher);
        let mark = hasher.finish() | 1;
        (&self.places[(mark >> 32) as usize % PLACES], mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_latest_datagram_of_a_peer_decides() {
        let peers = Peers::default();
        let of = |host| IpAddr::from(Ipv4Addr::new(192, 0, 2, host));
        let [one, other] = [of(1), of(2)];
        for (port, takes) in [(0xc000, false), (4791, true), (4791, true), (0xffff, false)] {
            peers.note(SocketAddr::new(one, port));
            assert_eq!((peers.takes_messages(one), peers.takes_messages(other)), (takes, false));
        }
        peers.note(SocketAddr::new(one, 4791));
        peers.note(SocketAddr::new(other, 0xc000));
        assert!(peers.takes_messages(one), "a place that another peer has is not cleared");
    }
}
