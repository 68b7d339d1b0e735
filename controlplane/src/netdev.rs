//! The kernel's network interface (netdev) of a port; the port follows its addresses and state.
//!
//! ```text
//!   kernel ── rtnetlink ──> Watch (thread) ──> Netdev (mirror) ── changed ──> control-plane thread
//! ```
//!
//! Invariants
//! - Each report contains the whole state, so that it replaces all earlier ones.
//! - Only messages from the kernel are used, never those of another process.
//!
//! Not here: effects of a change on the port ([`crate::port_watch`]); the kernel's routes and
//! neighbours, which are not followed.

mod message;
mod watch;

use std::net::IpAddr;

use uroce_wire::Mac;

use crate::path::prefix::IpPrefix;
use message::{Link, Message};

pub(crate) use watch::{Watch, Watcher};

/// State of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetdevState {
    /// The interface exists, is switched on and has a carrier.
    pub(crate) up: bool,
    /// Ethernet address; `None` if it has none.
    pub(crate) mac: Option<Mac>,
    /// Largest payload (MTU) in bytes.
    pub(crate) mtu: Option<u32>,
    /// IP addresses in the order in which they were added. Addresses still being checked for
    /// duplicates, and those that no port can have, for example 127.0.0.1, are left out.
    pub(crate) addresses: Vec<IpPrefix>,
}

/// Copy of the state of one interface, found by its name.
#[derive(Debug)]
struct Netdev {
    name: String,
    /// Interface index while it exists. The name may change meanwhile.
    index: Option<u32>,
    state: NetdevState,
}

impl Netdev {
    fn new(name: String) -> Self {
        Self { name, index: None, state: NetdevState::default() }
    }

    fn apply(&mut self, message: &Message) {
        match message {
            Message::Link(link) => self.link(link),
            Message::LinkGone(index) if self.is(*index) => {
                *self = Self::new(std::mem::take(&mut self.name));
            }
            Message::Address(index, own) if self.is(*index) => self.address(*own),
            Message::AddressGone(index, gone) if self.is(*index) => self.forget(*gone),
            _ => {}
        }
    }

    fn is(&self, index: u32) -> bool {
        self.index == Some(index)
    }

    fn link(&mut self, link: &Link) {
        if self.index.is_none() && link.name.as_ref() == Some(&self.name) {
            self.index = Some(link.index);
        }
        if !self.is(link.index) {
            return;
        }
        self.state.up = link.up;
        // A message about another attribute may leave these out.
        self.state.mac = link.mac.or(self.state.mac);
        self.state.mtu = link.mtu.or(self.state.mtu);
    }

    fn address(&mut self, own: IpPrefix) {
        let known = self.state.addresses.iter_mut().find(|one| one.address() == own.address());
        match known {
            Some(known) => *known = own,
            None => self.state.addresses.push(own),
        }
    }

    fn forget(&mut self, gone: IpAddr) {
        self.state.addresses.retain(|own| own.address() != gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, up: bool) -> Message {
        let mac = Some(Mac([2, 0, 0, 0, 0, index as u8]));
        Message::Link(Link { index, up, name: Some(name.into()), mac, mtu: Some(1500) })
    }

    fn own(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn an_interface_is_found_by_name_and_followed_by_number() {
        let mut netdev = Netdev::new("eth0".into());
        netdev.apply(&Message::Address(3, own("192.0.2.1/24")));
        netdev.apply(&link(2, "lo", true));
        assert_eq!(netdev.state, NetdevState::default());
        netdev.apply(&link(3, "eth0", true));
        netdev.apply(&Message::Address(3, own("192.0.2.1/24")));
        netdev.apply(&Message::Address(2, own("192.0.2.2/24")));
        netdev.apply(&link(3, "renamed", false));
        netdev.apply(&link(4, "eth0", true));
        let expected = NetdevState {
            up: false,
            mac: Some(Mac([2, 0, 0, 0, 0, 3])),
            mtu: Some(1500),
            addresses: vec![own("192.0.2.1/24")],
        };
        assert_eq!(netdev.state, expected);
    }

    #[test]
    fn one_that_is_gone_is_down_and_may_come_back_with_another_number() {
        let mut netdev = Netdev::new("eth0".into());
        netdev.apply(&link(3, "eth0", true));
        netdev.apply(&Message::Address(3, own("192.0.2.1/24")));
        netdev.apply(&Message::LinkGone(2));
        assert!(netdev.state.up);
        netdev.apply(&Message::LinkGone(3));
        assert_eq!(netdev.state, NetdevState::default());
        netdev.apply(&link(9, "eth0", true));
        assert!(netdev.state.up && netdev.state.addresses.is_empty());
    }

    #[test]
    fn addresses_come_change_and_go_in_order() {
        let mut netdev = Netdev::new("eth0".into());
        netdev.apply(&link(3, "eth0", true));
        for text in ["192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24", "192.0.2.2/25"] {
            netdev.apply(&Message::Address(3, own(text)));
        }
        netdev.apply(&Message::AddressGone(3, own("192.0.2.1/24").address()));
        assert_eq!(netdev.state.addresses, [own("192.0.2.2/25"), own("192.0.2.3/24")]);
    }
}
