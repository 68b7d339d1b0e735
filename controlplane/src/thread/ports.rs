//! Changes of ports that are in use: links, addresses, and the NICs behind them.

use std::io::Write;

use uroce_engine::port::EndedPeer;
use uroce_engine::{DeviceError, EventKind, Forward, Migrated, SendFrameError};
use uroce_wire::Mac;

use super::addresses::{self, AddressError};
use super::frames::send;
use super::{About, Thread};
use crate::call::RequestError;
use crate::netdev::NetdevState;
use crate::path::neighbour::Neighbours;
use crate::path::prefix::IpPrefix;
use crate::port_watch::{LinkChange, PortWatch, port_addresses};

/// EtherType for local experiments (IEEE 802).
const EXPERIMENT: u16 = 0x88b5;
/// Length in bytes, without FCS, of a frame of [`Thread::send_burst`]: testpmd's.
const FRAME: usize = 64;

impl Thread {
    /// Sets what becomes of the frames that a port, counted from 1, receives.
    pub(crate) fn set_forward(
        &mut self,
        port: u8,
        forward: Option<Forward>,
    ) -> Result<(), RequestError> {
        Ok(self.control.set_forward(port, forward)?)
    }

    /// Returns how many frames each port should have forwarded and has dropped since the start.
    pub(crate) fn unforwarded(&mut self) -> Result<Vec<u64>, RequestError> {
        let numbers = self.ports.numbers();
        numbers.map(|port| Ok(self.control.unforwarded(port)?)).collect()
    }

    /// Returns whether the ports have taken all frames of the control plane.
    pub(crate) fn frames_have_left(&self) -> bool {
        self.control.frames_have_left()
    }

    /// Sends `count` frames of 64 bytes through each port, with an EtherType for experiments.
    ///
    /// # Errors
    ///
    /// [`SendFrameError`]; some frames may have been sent.
    pub(crate) fn send_burst(&mut self, count: u32) -> Result<(), SendFrameError> {
        for (port, number) in self.ports.neighbours.iter().zip(1u8..) {
            let dst = Mac([2, 0, 0, 0, 0, number - 1]);
            let header = [&dst.0[..], &port.mac().0, &EXPERIMENT.to_be_bytes()].concat();
            let mut frame = [0; FRAME];
            frame[..header.len()].copy_from_slice(&header);
            for _ in 0..count {
                self.control.send_frame(number, &frame)?;
                self.counts.frames_out += 1;
            }
        }
        Ok(())
    }

    /// Records the initial state of the links.
    pub(super) fn begin_links(&mut self) {
        for port in self.ports.numbers() {
            if let Some(up) = self.ports.watch(port).netdev_up() {
                let _ = self.control.set_link(port, up);
            }
        }
        self.watch_links();
        for watch in &mut self.ports.watches {
            watch.settle();
        }
    }

    /// Handles links that went up or down, and peers' processes that ended.
    pub(super) fn watch_links(&mut self) {
        // All are known before any has an effect: no QP leaves a link for one that is down too.
        let mut changes = Vec::new();
        while let Some((port, is_up)) = self.control.next_link_change() {
            changes.extend(self.ports.watch(port).set_link(is_up).map(|change| (port, change)));
        }
        for (port, change) in changes {
            self.link_changed(port, change);
        }
        while let Some((port, peer)) = self.control.next_ended_peer() {
            // Where the port's state is that of the link, the loss of the link says it all.
            if peer != EndedPeer::Only || self.ports.watch(port).is_always_active() {
                self.end_connections_of_peer(port, peer);
            }
        }
    }

    /// Resets the device of a port, counted from 1. Its link is down meanwhile, as for an
    /// administrator.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]. If the device has failed or an lcore does not answer, the port stays down,
    /// and may be reset again. Otherwise nothing has changed.
    pub(crate) fn reset_port(&mut self, port: u8) -> Result<(), DeviceError> {
        self.control.detach_port(port)?;
        self.watch_links();
        let done = self.control.reset_port(port);
        self.watch_links();
        done
    }

    /// Opens a device in place of one that was closed, of a port counted from 1. The port's link
    /// comes up with that of the device.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]; nothing has changed then.
    pub(crate) fn attach_port(&mut self, port: u8, devargs: &str) -> Result<(), DeviceError> {
        self.control.attach_port(port, devargs)?;
        self.watch_links();
        Ok(())
    }

    /// Closes the device of a port, counted from 1. Its link is down until another device is
    /// attached.
    ///
    /// # Errors
    ///
    /// [`DeviceError`].
    pub(crate) fn remove_port(&mut self, port: u8) -> Result<(), DeviceError> {
        self.control.detach_port(port)?;
        self.watch_links();
        if self.control.remove_port(port)? {
            self.recent.add(About::Device, EventKind::DeviceFatal);
        }
        Ok(())
    }

    /// Handles NICs that the machine loses: their ports go down, and other ports go on.
    pub(super) fn watch_removals(&mut self) {
        while let Some(port) = self.control.next_removal() {
            let done = self.remove_port(port);
            let name = self.control.port(port).map(|port| port.capabilities().name.clone());
            let name = name.unwrap_or_default();
            let end = match done {
                Ok(()) => String::new(),
                Err(error) => format!(", and cannot be given back: {error}"),
            };
            // An error means that stderr is closed.
            let _ = writeln!(
                std::io::stderr(),
                "uroce: port {port} is down: {name} is being removed from the machine{end}"
            );
        }
    }

    /// Handles a change of a port's netdev: the port takes over link state, MTU and, if it follows
    /// them, addresses.
    pub(crate) fn follow_netdev(&mut self, port: u8, state: NetdevState) {
        let at = usize::from(port) - 1;
        tracing::info!(port, ?state, "netdev");
        let (is_up, neighbours) = (state.up, &mut self.ports.neighbours[at]);
        let gids_changed = self.ports.watches[at].set_netdev(state, neighbours);
        if gids_changed {
            self.accept_addresses(port);
        }
        self.ports.publish(port);
        let _ = self.control.set_link(port, is_up);
        if gids_changed {
            self.addresses_changed(port);
        }
        self.watch_links();
    }

    /// Adds an address to a port, or removes it.
    ///
    /// # Errors
    ///
    /// [`AddressError`]; nothing has changed then.
    pub(crate) fn change_address(
        &mut self,
        port: u8,
        prefix: IpPrefix,
        is_added: bool,
    ) -> Result<(), AddressError> {
        let at = usize::from(port) - 1;
        let mut ports = (1..).zip(&self.ports.neighbours);
        let has_it = |of: &Neighbours| of.routes().is_own(prefix.address());
        let holder = ports.find(|(number, of)| *number != port && has_it(of)).map(|(at, _)| at);
        let own = self.ports.neighbours[at].routes_mut().own_mut();
        addresses::change(own, &self.ports.watches[at], prefix, is_added, holder)?;
        self.accept_addresses(port);
        self.ports.publish(port);
        self.addresses_changed(port);
        Ok(())
    }

    /// Makes the lcores accept frames to a port's present addresses, and to no others. They stop
    /// accepting removed ones before the change is reported.
    fn accept_addresses(&mut self, port: u8) {
        let addresses = port_addresses(&self.ports.neighbours[usize::from(port) - 1]);
        // An error means that an lcore has died.
        let _ = self.control.set_addresses(port, addresses);
    }

    fn addresses_changed(&mut self, port: u8) {
        self.counts.gid_changes += 1;
        self.announce(port);
        self.raise(port, EventKind::GidChange);
    }

    //= check M1 — a change of the link is reported; its effect on a QP is left to the retries
    fn link_changed(&mut self, port: u8, change: LinkChange) {
        tracing::info!(port, ?change, "link");
        match change {
            LinkChange::Found => {
                self.announce(port);
                self.renew_failover();
            }
            LinkChange::PeerLeft => self.forget_neighbours(port),
            LinkChange::Up => {
                self.announce(port);
                self.leave_links_that_are_down();
                self.renew_failover();
                // Also if the program was not told that the port went down: it may have seen that
                // in the port's attributes, and wait for the port.
                self.ports.watch(port).set_untold(false);
                self.raise(port, EventKind::PortActive);
            }
            LinkChange::Down => {
                // Migration comes first: for a QP with another path it ends the interruption.
                let may_migrate = self.ports.watch(port).migrates_on_link_down();
                let stayed = self.leave_port(port, may_migrate);
                self.replace_paths_through(port);
                self.counts.link_downed += 1;
                self.forget_neighbours(port);
                self.tell_down(port, stayed > 0);
            }
        }
    }

    /// Reports that a port is down. If connections fail over by themselves, and none of the
    /// program's QPs is left on the port, the program is told when the last port goes down, and
    /// then of all that are down, as a bond of two links has it: to many a program PORT_ERR means
    /// that the device is lost.
    fn tell_down(&mut self, port: u8, is_in_use: bool) {
        let is_any_up = self.ports.watches.iter().any(PortWatch::is_up);
        if self.failover.is_some() && is_any_up && !is_in_use {
            tracing::info!(port, "the port is down; no event, because another one is up");
            self.ports.watch(port).set_untold(true);
            self.recent.add_withheld(About::Port(port), EventKind::PortErr);
            return;
        }
        for other in self.ports.numbers() {
            let is_due = !is_any_up && self.ports.watch(other).set_untold(false);
            if other == port || is_due {
                self.raise(other, EventKind::PortErr);
            }
        }
    }

    /// Migrates QPs that have stayed on a link that is down, because their other one was down too.
    fn leave_links_that_are_down(&mut self) {
        let ports = (1..).zip(&self.ports.watches);
        let left = ports.filter(|(_, watch)| !watch.is_up() && watch.migrates_on_link_down());
        let left: Vec<u8> = left.map(|(port, _)| port).collect();
        for port in left {
            self.leave_port(port, true);
        }
    }

    /// Has alternate paths through a port that is down replaced, if there can be others.
    fn replace_paths_through(&mut self, port: u8) {
        let now = self.now();
        let others = (1..).zip(&self.ports.watches).filter(|(other, _)| *other != port);
        if others.filter(|(_, watch)| watch.is_up()).count() > 1 {
            self.failover.iter_mut().for_each(|failover| failover.port_down(now, port));
        }
    }

    fn renew_failover(&mut self) {
        let now = self.now();
        self.failover.iter_mut().for_each(|failover| failover.port_up(now));
    }

    fn forget_neighbours(&mut self, port: u8) {
        let now = self.now();
        self.ports.neighbours[usize::from(port) - 1].link_down(now);
    }

    /// Migrates the QPs on a port that is down, if they shall. Returns how many are left there.
    fn leave_port(&mut self, port: u8, may_migrate: bool) -> u32 {
        let watches = &self.ports.watches;
        // A QP stays where its other port is down too: either may come up first.
        let is_up = |other: u8| may_migrate && watches[usize::from(other) - 1].is_up();
        // An lcore that has died has no QPs to migrate; the others may not have been asked.
        let unknown = Migrated { migrated: 0, stayed: 1 };
        let Migrated { migrated, stayed } =
            self.control.migrate_port(port, is_up).unwrap_or(unknown);
        tracing::info!(port, migrated, stayed, "QPs on a port that is down");
        self.counts.link_migrations += u64::from(migrated);
        stayed
    }

    fn raise(&mut self, port: u8, kind: EventKind) {
        tracing::info!(port, ?kind, "port event");
        self.recent.add(About::Port(port), kind);
        // An error cannot occur: every watched port has events.
        let _ = self.control.raise_port(port, kind);
    }

    fn announce(&mut self, port: u8) {
        let now = self.now();
        let Self { control, counts, ports, .. } = self;
        let neighbours = &mut ports.neighbours[usize::from(port) - 1];
        neighbours.renew_groups(now);
        neighbours.announce(&mut |bytes| send(control, counts, port, bytes));
    }
}
