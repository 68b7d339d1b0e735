//! Port numbers: the ids bound to each, and the listener of each.
//!
//! Invariants
//! - Two ids of a port space are bound to the same address and port only if both allow it and
//!   neither listens.
//! - A loopback address is a wildcard, like the unspecified address: no device's port has either.
//! - An id that asks for any port gets one to which no id of the port space is bound.
//!
//! Not here: service IDs (`uroce-wire`), backlogs (the service and `uroce-cm`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::{BindOptions, CmId, ConnError, PortSpace};

/// Range of ports for ids that ask for any port, as on Linux.
pub(super) const EPHEMERAL: RangeInclusive<u16> = 32768..=60999;

/// Addresses to which ids are bound, by port space and port.
#[derive(Debug)]
pub(super) struct PortSpaces {
    bound: BTreeMap<(PortSpace, u16), Vec<Bound>>,
    /// Port at which the search for a free one begins.
    next: u16,
}

/// Address to which an id is bound at a port.
#[derive(Clone, Copy, Debug)]
struct Bound {
    ip: IpAddr,
    /// The id may share its address with others that allow it. Cleared once it listens.
    reuse: bool,
    /// A wildcard covers addresses of its own IP version only.
    one_version: bool,
    id: CmId,
    listens: bool,
}

impl PortSpaces {
    /// Creates an empty table. `seed` chooses the first free port that is handed out.
    pub(super) fn new(seed: u32) -> PortSpaces {
        let count = u32::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        PortSpaces { bound: BTreeMap::new(), next: EPHEMERAL.start() + (seed % count) as u16 }
    }

    /// Binds `id` to an address; port 0 chooses a free port. Returns the port.
    ///
    /// # Errors
    ///
    /// The errors of [`Bound::check`], and [`ConnError::NoPortLeft`].
    pub(super) fn bind(
        &mut self,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        id: CmId,
    ) -> Result<u16, ConnError> {
        let port = match address.port() {
            0 => self.free(space).ok_or(ConnError::NoPortLeft)?,
            port => port,
        };
        let (ip, reuse) = (address.ip(), options.reuse);
        let one_version = options.one_version.unwrap_or(ip.is_ipv4());
        let new = Bound { ip, reuse, one_version, id, listens: false };
        if let Some(others) = self.bound.get(&(space, port)) {
            others.iter().try_for_each(|other| new.check(other, port))?;
        }
        self.bound.entry((space, port)).or_default().push(new);
        Ok(port)
    }

    /// Lets `id` receive requests at its port. From then on no other id can share its address.
    /// Returns whether `id` is the first listener of the port.
    ///
    /// # Errors
    ///
    /// [`ConnError::UnknownId`], and the errors of [`Bound::check`] if the id shares its address.
    pub(super) fn listen(
        &mut self,
        space: PortSpace,
        port: u16,
        id: CmId,
    ) -> Result<bool, ConnError> {
        let bound = self.bound.get_mut(&(space, port)).ok_or(ConnError::UnknownId(id))?;
        let at = bound.iter().position(|bound| bound.id == id).ok_or(ConnError::UnknownId(id))?;
        let alone = Bound { reuse: false, ..bound[at] };
        let mut others = bound.iter().filter(|other| other.id != id);
        others.try_for_each(|other| alone.check(other, port))?;
        let is_first = !bound.iter().any(|other| other.listens);
        bound[at] = Bound { listens: true, ..alone };
        Ok(is_first)
    }

    /// Unbinds `id` from the port. Returns whether another id listens at the port.
    pub(super) fn release(&mut self, space: PortSpace, port: u16, id: CmId) -> bool {
        let Some(bound) = self.bound.get_mut(&(space, port)) else { return false };
        bound.retain(|bound| bound.id != id);
        let is_heard = bound.iter().any(|bound| bound.listens);
        if bound.is_empty() {
            self.bound.remove(&(space, port));
        }
        is_heard
    }

    /// Returns the listener for requests to an address: one bound to the address itself, else one
    /// bound to a wildcard.
    pub(super) fn listener(&self, space: PortSpace, to: SocketAddr) -> Option<CmId> {
        let bound = self.bound.get(&(space, to.port()))?;
        let mut heard = bound.iter().filter(|bound| bound.listens && bound.covers(to.ip()));
        let first = heard.clone().find(|bound| bound.ip == to.ip());
        first.or_else(|| heard.next()).map(|bound| bound.id)
    }

    /// Returns a port to which no id is bound; `None` if there is none. Successive calls return
    /// different ports while several are free.
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
    /// Tells whether the address is a wildcard, which covers other addresses, too.
    fn is_wide(&self) -> bool {
        is_own_node(self.ip)
    }

    /// Tells whether requests to `ip` are for this address.
    fn covers(&self, ip: IpAddr) -> bool {
        let is_of_version = self.ip.is_ipv4() == ip.is_ipv4() || !self.one_version;
        self.ip == ip || (self.is_wide() && is_of_version)
    }

    /// Checks that this address and `other` may be bound at the same port, by the rules of Linux's
    /// `rdma_cm`. There is no conflict if both ids allow sharing, or if the IP versions differ and
    /// both ids cover their own version only. Otherwise an address conflicts with an equal one, and
    /// a wildcard with every address.
    ///
    /// # Errors
    ///
    /// [`ConnError::PortInUse`] if either address is a wildcard, else [`ConnError::AddressInUse`].
    fn check(&self, other: &Bound, port: u16) -> Result<(), ConnError> {
        let shares = self.reuse && other.reuse;
        let is_apart = self.ip.is_ipv4() != other.ip.is_ipv4();
        if shares || (is_apart && self.one_version && other.one_version) {
            return Ok(());
        }
        let address = SocketAddr::new(self.ip, port);
        if self.is_wide() || other.is_wide() {
            return Err(ConnError::PortInUse(address));
        }
        if self.ip == other.ip { Err(ConnError::AddressInUse(address)) } else { Ok(()) }
    }
}

/// Tells whether an address means the node itself without naming one of its addresses: a loopback
/// address, or the unspecified one.
pub fn is_own_node(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
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

    const NONE: BindOptions = BindOptions { reuse: false, one_version: None, eecs: false };
    const REUSE: BindOptions = BindOptions { reuse: true, one_version: None, eecs: false };

    fn in_use(address: &str) -> ConnError {
        ConnError::AddressInUse(at(address))
    }

    fn port_in_use(address: &str) -> ConnError {
        ConnError::PortInUse(at(address))
    }

    /// Binds and listens.
    fn take(
        ports: &mut PortSpaces,
        space: PortSpace,
        address: &str,
        number: u64,
    ) -> Result<u16, ConnError> {
        let port = ports.bind(space, at(address), NONE, id(number))?;
        ports.listen(space, port, id(number)).map(|_| port)
    }

    #[test]
    fn an_address_in_use_is_refused_and_free_again_when_released() {
        let mut ports = PortSpaces::new(0);
        assert_eq!(take(&mut ports, Tcp, "192.0.2.1:7471", 1), Ok(7471));
        let taken = "192.0.2.1:7471";
        assert_eq!(take(&mut ports, Tcp, taken, 2), Err(in_use(taken)));
        for taken in ["0.0.0.0:7471", "[::]:7471", "127.0.0.1:7471", "[::1]:7471"] {
            assert_eq!(take(&mut ports, Tcp, taken, 2), Err(port_in_use(taken)));
        }
        assert_eq!(take(&mut ports, Tcp, "192.0.2.2:7471", 3), Ok(7471));
        assert_eq!(take(&mut ports, Udp, "192.0.2.1:7471", 4), Ok(7471));
        assert!(ports.release(Tcp, 7471, id(1)), "192.0.2.2 is left");
        assert_eq!(take(&mut ports, Tcp, "192.0.2.1:7471", 5), Ok(7471));
    }

    #[test]
    fn a_wildcard_hears_its_version_and_that_of_ipv6_both() {
        let mut ports = PortSpaces::new(0);
        take(&mut ports, Tcp, "0.0.0.0:1", 1).unwrap();
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), Some(id(1)));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:1")), None);
        take(&mut ports, Tcp, "[::]:2", 2).unwrap();
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:2")), Some(id(2)));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:2")), Some(id(2)));
        assert_eq!(ports.listener(Udp, at("192.0.2.1:2")), None);
    }

    #[test]
    fn a_loopback_address_is_a_wildcard() {
        for (own, v6) in [("127.0.0.1:1", false), ("127.9.9.9:1", false), ("[::1]:1", true)] {
            let mut ports = PortSpaces::new(0);
            take(&mut ports, Tcp, own, 1).unwrap();
            assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), Some(id(1)), "{own}");
            assert_eq!(ports.listener(Tcp, at("127.0.0.1:1")), Some(id(1)), "{own}");
            assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:1")), v6.then_some(id(1)), "{own}");
            for taken in ["0.0.0.0:1", "127.0.0.1:1", "192.0.2.1:1"] {
                assert_eq!(take(&mut ports, Tcp, taken, 2), Err(port_in_use(taken)), "{own}");
            }
        }
    }

    #[test]
    fn addresses_of_both_versions_are_beside_each_other_where_each_is_of_one() {
        let mut ports = PortSpaces::new(0);
        let one = BindOptions { one_version: Some(true), ..NONE };
        take(&mut ports, Tcp, "0.0.0.0:1", 1).unwrap();
        let v6 = "[2001:db8::1]:1";
        assert_eq!(ports.bind(Tcp, at(v6), NONE, id(2)), Err(port_in_use(v6)));
        assert_eq!(ports.bind(Tcp, at(v6), one, id(2)), Ok(1));
        take(&mut ports, Tcp, "192.0.2.1:2", 3).unwrap();
        assert_eq!(take(&mut ports, Tcp, "[2001:db8::1]:2", 4), Ok(2));
        let both = BindOptions { one_version: Some(false), ..NONE };
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:3"), both, id(5)), Ok(3));
        assert_eq!(ports.listen(Tcp, 3, id(5)), Ok(true));
        assert_eq!(ports.listener(Tcp, at("[2001:db8::1]:3")), Some(id(5)));
    }

    #[test]
    fn port_0_chooses_free_ports_until_all_are_taken() {
        let mut ports = PortSpaces::new(u32::MAX);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..28232 {
            let port = take(&mut ports, Tcp, "0.0.0.0:0", number).unwrap();
            assert!(EPHEMERAL.contains(&port) && seen.insert(port));
        }
        assert_eq!(take(&mut ports, Tcp, "0.0.0.0:0", 0), Err(ConnError::NoPortLeft));
        assert!(take(&mut ports, Udp, "0.0.0.0:0", 0).is_ok());
    }

    #[test]
    fn an_address_is_shared_by_ids_that_allow_it_until_one_listens() {
        let mut ports = PortSpaces::new(0);
        let (any, own) = ("0.0.0.0:1", "192.0.2.1:1");
        assert_eq!(ports.bind(Tcp, at(any), REUSE, id(1)), Ok(1));
        assert_eq!(ports.bind(Tcp, at(any), NONE, id(2)), Err(port_in_use(any)));
        assert_eq!(ports.bind(Tcp, at(own), REUSE, id(3)), Ok(1));
        assert_eq!(ports.bind(Tcp, at(own), REUSE, id(4)), Ok(1));
        assert_eq!(ports.listener(Tcp, at(own)), None, "nothing listens yet");
        assert_eq!(ports.listen(Tcp, 1, id(1)), Err(port_in_use(any)));
        ports.release(Tcp, 1, id(1));
        assert_eq!(ports.listen(Tcp, 1, id(3)), Err(in_use(own)));
        ports.release(Tcp, 1, id(4));
        assert_eq!(ports.listen(Tcp, 1, id(3)), Ok(true));
        assert_eq!(ports.bind(Tcp, at(own), REUSE, id(5)), Err(in_use(own)));
        assert_eq!(ports.listener(Tcp, at(own)), Some(id(3)));
        assert!(!ports.release(Tcp, 1, id(3)), "nothing is left");
    }

    #[test]
    fn a_wildcard_of_ipv6_only_leaves_ipv4_alone() {
        let mut ports = PortSpaces::new(0);
        let v6_only = BindOptions { one_version: Some(true), ..NONE };
        assert_eq!(ports.bind(Tcp, at("[::]:1"), v6_only, id(1)), Ok(1));
        assert_eq!(ports.listen(Tcp, 1, id(1)), Ok(true));
        assert_eq!(ports.listener(Tcp, at("192.0.2.1:1")), None);
        assert_eq!(ports.bind(Tcp, at("0.0.0.0:1"), NONE, id(2)), Ok(1));
        assert_eq!(ports.listen(Tcp, 1, id(2)), Ok(false));
    }
}
