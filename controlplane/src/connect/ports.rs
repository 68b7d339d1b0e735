//! Port numbers: who has which, and who hears a request.
//!
//! Invariants
//! - Two ids of a port space have the same address and port only if both allow it, and at most one
//!   of them listens.
//! - A port that is handed out to who asks for none is one that nobody has.
//!
//! Not here: service ids (`uroce-wire`), backlogs (the driver's and the CM's).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::{BindOptions, CmId, PortSpace};

/// Ports for those who ask for none, the range that Linux takes them from.
pub(super) const EPHEMERAL: RangeInclusive<u16> = 32768..=60999;

/// Who has which port.
#[derive(Debug)]
pub(super) struct Ports {
    bound: BTreeMap<(PortSpace, u16), Vec<Bound>>,
    /// Where the search for a free port begins.
    next: u16,
}

/// An address of a port that somebody has.
#[derive(Clone, Copy, Debug)]
struct Bound {
    ip: IpAddr,
    options: BindOptions,
    id: CmId,
    listens: bool,
}

impl Ports {
    /// Nobody has any; the first port handed out follows from `seed`.
    pub(super) fn new(seed: u32) -> Ports {
        let count = u32::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        Ports { bound: BTreeMap::new(), next: EPHEMERAL.start() + (seed % count) as u16 }
    }

    /// Gives `id` the address; port 0 is one that nobody has. Gives the port, or `None` where it, or
    /// every one, is taken.
    pub(super) fn bind(
        &mut self,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        id: CmId,
    ) -> Option<u16> {
        let port = match address.port() {
            0 => self.free(space)?,
            port => port,
        };
        let new = Bound { ip: address.ip(), options, id, listens: false };
        let bound = self.bound.entry((space, port)).or_default();
        let may_share = |other: &Bound| other.options.reuse && options.reuse && !other.listens;
        if bound.iter().any(|other| other.overlaps(&new) && !may_share(other)) {
            return None;
        }
        bound.push(new);
        Some(port)
    }

    /// Has `id` hear requests at its port, unless another id does at the same address. Gives
    /// whether it is the first there.
    pub(super) fn listen(&mut self, space: PortSpace, port: u16, id: CmId) -> Option<bool> {
        let bound = self.bound.get_mut(&(space, port))?;
        let own = *bound.iter().find(|bound| bound.id == id)?;
        if bound.iter().any(|other| other.listens && other.overlaps(&own)) {
            return None;
        }
        let is_first = !bound.iter().any(|other| other.listens);
        bound.iter_mut().filter(|bound| bound.id == id).for_each(|bound| bound.listens = true);
        Some(is_first)
    }

    /// Takes an id's address away. Says whether others listen at its port space and port.
    pub(super) fn release(&mut self, space: PortSpace, port: u16, id: CmId) -> bool {
        let Some(bound) = self.bound.get_mut(&(space, port)) else { return false };
        bound.retain(|bound| bound.id != id);
        let is_heard = bound.iter().any(|bound| bound.listens);
        if bound.is_empty() {
            self.bound.remove(&(space, port));
        }
        is_heard
    }

    /// Who hears requests to that address: its own listener before a wildcard's.
    pub(super) fn listener(&self, space: PortSpace, to: SocketAddr) -> Option<CmId> {
        let bound = self.bound.get(&(space, to.port()))?;
        let mut heard = bound.iter().filter(|bound| bound.listens && bound.covers(to.ip()));
        let first = heard.clone().find(|bound| bound.ip == to.ip());
        first.or_else(|| heard.next()).map(|bound| bound.id)
    }

    /// A port that nobody has; not the same twice in a row.
    pub(super) fn free(&mut self, space: PortSpace) -> Option<u16> {
        for _ in EPHEMERAL {
            let port = self.next;
            self.next = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            if !self.bound.contains_key(&(space, port)) {
                return Some(port);
            }
        }
        None
    }
}

impl Bound {
    /// Is the other's address one of these? IPv6's wildcard is IPv4's, too, as on Linux, unless it
    /// is to be IPv6's only.
    fn covers(&self, ip: IpAddr) -> bool {
        let is_wide = self.ip.is_unspecified()
            && (self.ip.is_ipv4() == ip.is_ipv4() || (self.ip.is_ipv6() && !self.options.v6_only));
        self.ip == ip || is_wide
    }

    /// Can one address be both?
    fn overlaps(&self, other: &Bound) -> bool {
        self.covers(other.ip) || other.covers(self.ip)
    }
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

    const NONE: BindOptions = BindOptions { reuse: false, v6_only: false };

    /// Binds and listens.
    fn take(ports: &mut Ports, space: PortSpace, address: &str, number: u64) -> Option<u16> {
        let port = ports.bind(space, at(address), NONE, id(number))?;
        ports.listen(space, port, id(number)).map(|_| port)
    }

    #[test]
    fn an_address_in_use_is_refused_and_free_again_when_released() {
        let mut ports = Ports::new(0);
        assert_eq!(take(&mut ports, Tcp, "192.0.2.1:7471", 1), Some(7471));
        for taken in ["192.0.2.1:7471", "0.0.0.0:7471", "[::]:7471"] {
            assert_eq!(take(&mut ports, Tcp, taken, 2), None, "{taken}");
        }
        assert_eq!(take(&mut ports, Tcp, "192.0.2.2:7471", 3), Some(7471));
        assert_eq!(take(&mut ports, Udp, "192.0.2.1:7471", 4), Some(7471));
        assert!(ports.release(Tcp, 7471, id(1)), "192.0.2.2 is left");
        assert_eq!(take(&mut ports, Tcp, "192.0.2.1:7471", 5), Some(7471));
    }

    #[test]
    fn a_wildcard_hears_its_version_and_that_of_ipv6_both() {
        let mut ports = Ports::new(0);
        take(&mut ports, Tcp, "0.0.0.0:1", 1);
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), Some(id(1)));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:1")), None);
        take(&mut ports, Tcp, "[::]:2", 2);
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:2")), Some(id(2)));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:2")), Some(id(2)));
        assert_eq!(ports.listener(Udp, at("192.0.2.1:2")), None);
        // IPv6 without its wildcard leaves IPv4's alone.
        assert_eq!(take(&mut ports, Tcp, "[2001:db8::1]:1", 3), Some(1));
    }

    #[test]
    fn ports_for_who_asks_for_none_are_free_ones_until_all_are_taken() {
        let mut ports = Ports::new(u32::MAX);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..28232 {
            let port = take(&mut ports, Tcp, "0.0.0.0:0", number).unwrap();
            assert!(EPHEMERAL.contains(&port) && seen.insert(port));
        }
        assert_eq!(take(&mut ports, Tcp, "0.0.0.0:0", 0), None);
        assert!(take(&mut ports, Udp, "0.0.0.0:0", 0).is_some());
    }

    #[test]
    fn an_address_is_shared_by_those_who_say_so_and_heard_by_one() {
        let mut ports = Ports::new(0);
        let reuse = BindOptions { reuse: true, v6_only: false };
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:1"), reuse, id(1)), Some(1));
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:1"), NONE, id(2)), None);
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:1"), reuse, id(3)), Some(1));
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), None, "nobody listens yet");
        assert_eq!(ports.listen(Tcp, 1, id(3)), Some(true));
        assert_eq!(ports.listen(Tcp, 1, id(1)), None);
        assert_eq!(ports.bind(Tcp, at("192.0.2.1:1"), reuse, id(4)), None);
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), Some(id(3)));
        assert!(!ports.release(Tcp, 1, id(3)), "who is left does not listen");
        assert_eq!(ports.listen(Tcp, 1, id(1)), Some(true));
    }

    #[test]
    fn a_wildcard_of_ipv6_only_leaves_ipv4_alone() {
        let mut ports = Ports::new(0);
        let v6_only = BindOptions { reuse: false, v6_only: true };
        assert_eq!(ports.bind(Tcp, at("[::]:1"), v6_only, id(1)), Some(1));
        assert_eq!(ports.listen(Tcp, 1, id(1)), Some(true));
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), None);
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:1"), NONE, id(2)), Some(1));
        assert_eq!(ports.listen(Tcp, 1, id(2)), Some(false));
    }
}
