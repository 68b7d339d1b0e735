//! What changes about ports while they are used: links and addresses.

use super::Thread;
use super::frames::send;
use crate::netdev::NetdevState;
use crate::port_watch::{LinkChange, port_addresses};
use crate::request::PortStatus;

impl Thread {
    /// Looks at the links of all ports.
    pub(super) fn watch_links(&mut self) {
        for port in 1..=self.ports.watches.len() as u8 {
            let is_up = self.control.port(port).is_some_and(|port| port.link().up);
            if let Some(change) = self.ports.watches[usize::from(port) - 1].set_link(is_up) {
                self.link_changed(port, change);
            }
        }
    }

    /// The netdev behind a port is like this now: the port follows.
    pub(super) fn follow_netdev(&mut self, port: u8, state: NetdevState) {
        let at = usize::from(port) - 1;
        let neighbours = &mut self.ports.neighbours[at];
        let (gids_changed, link) = self.ports.watches[at].set_netdev(state, neighbours);
        if gids_changed {
            // An lcore that does not run any more has no addresses to lose.
            let _ = self.control.set_addresses(port, port_addresses(neighbours));
        }
        self.ports.publish(port);
        if gids_changed && self.ports.watches[at].is_up() {
            self.announce(port);
        }
        if let Some(change) = link {
            self.link_changed(port, change);
        }
    }

    fn link_changed(&mut self, port: u8, change: LinkChange) {
        match change {
            LinkChange::Found | LinkChange::Up => self.announce(port),
            LinkChange::Down => {}
        }
    }

    fn announce(&mut self, port: u8) {
        let Self { control, counts, ports, .. } = self;
        let neighbours = &ports.neighbours[usize::from(port) - 1];
        neighbours.announce(&mut |bytes| send(control, counts, port, bytes));
    }

    /// A port is up when its netdev is as well.
    pub(super) fn port_status(&self, number: u8) -> Option<PortStatus> {
        let port = self.control.port(number)?;
        let watch = self.ports.watches.get(usize::from(number).checked_sub(1)?)?;
        let mut link = port.link();
        link.up &= watch.is_netdev_up();
        Some(PortStatus { link, stats: port.stats() })
    }
}
