//! Port numbers of listeners: who may listen where, and who hears a request.
//!
//! Invariants
//! - No two listeners of a port space hear the same address and port.
//! - A port above [`EPHEMERAL`]'s start that is handed out is one that nobody listens on.
//!
//! Not here: service ids (`uroce-wire`), backlogs (the driver's and the CM's).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::{CmId, PortSpace};

/// Ports for those who ask for none, the range that Linux takes them from.
pub(super) const EPHEMERAL: RangeInclusive<u16> = 32768..=60999;

/// The listeners.
#[derive(Debug)]
pub(super) struct Ports {
    bound: BTreeMap<(PortSpace, u16), Vec<(IpAddr, CmId)>>,
    /// Where the search for a free port begins.
    next: u16,
}

impl Ports {
    /// Nobody listens; the first port handed out follows from `seed`.
    pub(super) fn new(seed: u32) -> Ports {
        let count = u32::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        Ports { bound: BTreeMap::new(), next: EPHEMERAL.start() + (seed % count) as u16 }
    }

    /// Has `id` hear `address`; port 0 is one that nobody has. Gives the port, or `None` where it,
    /// or every one, is taken.
    pub(super) fn bind(&mut self, space: PortSpace, address: SocketAddr, id: CmId) -> Option<u16> {
        let port = match address.port() {
            0 => self.free(space)?,
            port => port,
        };
        let bound = self.bound.entry((space, port)).or_default();
        if bound.iter().any(|(other, _)| overlap(*other, address.ip())) {
            return None;
        }
        bound.push((address.ip(), id));
        Some(port)
    }

    /// Takes a listener away. Says whether others of its port space and port are left.
    pub(super) fn release(&mut self, space: PortSpace, port: u16, id: CmId) -> bool {
        let Some(bound) = self.bound.get_mut(&(space, port)) else { return false };
        bound.retain(|(_, other)| *other != id);
        let is_left = !bound.is_empty();
        if !is_left {
            self.bound.remove(&(space, port));
        }
        is_left
    }

    /// Does anybody listen there?
    pub(super) fn is_bound(&self, space: PortSpace, port: u16) -> bool {
        self.bound.contains_key(&(space, port))
    }

    /// Who hears requests to that address: its own listener before a wildcard's.
    pub(super) fn listener(&self, space: PortSpace, to: SocketAddr) -> Option<CmId> {
        let bound = self.bound.get(&(space, to.port()))?;
        let exact = bound.iter().find(|(ip, _)| *ip == to.ip());
        exact.or_else(|| bound.iter().find(|(ip, _)| overlap(*ip, to.ip()))).map(|(_, id)| *id)
    }

    /// A port that nobody listens on; not the same twice in a row.
    pub(super) fn free(&mut self, space: PortSpace) -> Option<u16> {
        for _ in EPHEMERAL {
            let port = self.next;
            self.next = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            if !self.is_bound(space, port) {
                return Some(port);
            }
        }
        None
    }
}

/// Can one address be both? IPv6's wildcard is IPv4's, too, as on Linux.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let covers = |wide: IpAddr, ip: IpAddr| {
        wide.is_unspecified() && (wide.is_ipv6() || ip.is_ipv4() || ip.is_unspecified())
    };
    one == other || covers(one, other) || covers(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use PortSpace::{Tcp, Udp};

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn id(number: u64) -> CmId {
        CmId(number)
    }

    #[test]
    fn an_address_in_use_is_refused_and_free_again_when_released() {
        let mut ports = Ports::new(0);
        assert_eq!(ports.bind(Tcp, at("192.0.2.1:7471"), id(1)), Some(7471));
        for taken in ["192.0.2.1:7471", "0.0.0.0:7471", "[::]:7471"] {
            assert_eq!(ports.bind(Tcp, at(taken), id(2)), None, "{taken}");
        }
        assert_eq!(ports.bind(Tcp, at("192.0.2.2:7471"), id(3)), Some(7471));
        assert_eq!(ports.bind(Udp, at("192.0.2.1:7471"), id(4)), Some(7471));
        assert!(ports.release(Tcp, 7471, id(1)), "192.0.2.2 is left");
        assert_eq!(ports.bind(Tcp, at("192.0.2.1:7471"), id(5)), Some(7471));
    }

    #[test]
    fn a_wildcard_hears_its_version_and_that_of_ipv6_both() {
        let mut ports = Ports::new(0);
        ports.bind(Tcp, at("0.0.0.0:1"), id(1));
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), Some(id(1)));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:1")), None);
        ports.bind(Tcp, at("[::]:2"), id(2));
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:2")), Some(id(2)));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:2")), Some(id(2)));
        assert_eq!(ports.listener(Udp, at("192.0.2.1:2")), None);
        // IPv6 without its wildcard leaves IPv4's alone.
        assert_eq!(ports.bind(Tcp, at("[2001:db8::1]:1"), id(3)), Some(1));
    }

    #[test]
    fn ports_for_who_asks_for_none_are_free_ones_until_all_are_taken() {
        let mut ports = Ports::new(u32::MAX);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..28232 {
            let port = ports.bind(Tcp, at("0.0.0.0:0"), id(number)).unwrap();
            assert!(EPHEMERAL.contains(&port) && seen.insert(port));
        }
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:0"), id(0)), None);
        assert!(ports.bind(Udp, at("0.0.0.0:0"), id(0)).is_some());
    }
}
