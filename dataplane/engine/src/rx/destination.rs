//! Destination: where a received frame goes. A frame for a QP of this lcore is delivered while its
//! destination is decided. [`Receiver`](super::Receiver) then acts on the result.

use crate::lane::binding::PortAddresses;
use crate::limits::MAX_LCORES;
use uroce_shared::table::qp_table::QpFinder;
use uroce_transport::{DropReason, Handled};
use uroce_wire::{Datagram, Packet, Qpn, Service};

/// The destination of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// A QP of this lcore, which has handled it.
    Done,
    /// A QP of this lcore, which holds it: the frame's mbuf goes to the lcore's held packets.
    Held,
    /// No destination: the frame is dropped for this reason.
    Drop(DropReason),
    /// All QPs of a multicast group.
    Group,
    /// The raw QPs that flows name.
    Raw,
    /// The raw QPs that flows name, and the control plane.
    RawAndHost,
    /// The lcore of this number, which owns the QP.
    Lcore(u8),
    /// The control plane, as a management datagram to QP 1.
    Gsi,
    /// The control plane, as a frame that is not RoCEv2.
    SlowPath,
}

const _: () = assert!(MAX_LCORES <= u8::MAX as usize);

impl From<Result<(), DropReason>> for Destination {
    /// Converts the result of delivering a packet that cannot be held.
    fn from(delivered: Result<(), DropReason>) -> Destination {
        delivered.map(|()| Handled::Done).into()
    }
}

impl From<Result<Handled, DropReason>> for Destination {
    /// Converts the result of a delivery.
    #[inline]
    fn from(delivered: Result<Handled, DropReason>) -> Destination {
        match delivered {
            Ok(Handled::Done) => Destination::Done,
            Ok(Handled::Held) => Destination::Held,
            Err(reason) => Destination::Drop(reason),
        }
    }
}

/// The port that received a frame, and the lcore that handles it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    /// The port, counted from 0.
    pub(super) port: usize,
    pub(super) lcore: usize,
    pub(super) finder: &'a QpFinder,
}

impl Arrival<'_> {
    /// Returns the port's number, counted from 1.
    pub(super) fn number(&self) -> u8 {
        const { assert!(crate::limits::MAX_PORTS <= u8::MAX as usize) };
        self.port as u8 + 1
    }

    /// Returns the slot of the QP with number `qpn` if this lcore owns that QP.
    pub(super) fn find_own(&self, qpn: Qpn) -> Option<u32> {
        let place = self.finder.find(qpn).filter(|place| place.owner == self.lcore)?;
        Some(place.index)
    }
}

/// Returns the destination of a packet to a QPN that no QP of the engine has. QP 1 is the control
/// plane's.
#[cold]
pub(super) fn of_unknown_qpn(packet: &Packet<'_>) -> Destination {
    if packet.bth.dest_qpn != Qpn::GSI {
        return Destination::Drop(DropReason::UnknownQpn);
    }
    match packet.op.service {
        Service::Ud => Destination::Gsi,
        _ => Destination::Drop(DropReason::WrongService),
    }
}

/// Returns whether a RoCEv2 datagram is addressed to this port. The port is promiscuous, so it may
/// also receive frames for other hosts.
#[inline]
pub(super) fn is_ours(datagram: &Datagram<'_>, addresses: &PortAddresses) -> bool {
    datagram.dst_mac == addresses.mac
        && is_in_vlan(datagram, addresses)
        && addresses.gids.contains(&datagram.dst)
}

/// Returns whether a datagram is in this port's VLAN, or in none if the port has none.
#[inline]
pub(super) fn is_in_vlan(datagram: &Datagram<'_>, addresses: &PortAddresses) -> bool {
    // A tag with VLAN 0 carries a priority only.
    let vlan = datagram.vlan.map(|vlan| vlan.vid).filter(|&vid| vid != 0);
    vlan == addresses.vlan
}

/// Returns whether a non-RoCEv2 frame is for this host: sent to its Ethernet address or to a
/// multicast or broadcast address.
pub(super) fn is_for_host(frame: &[u8], addresses: &PortAddresses) -> bool {
    let is_multicast = frame.first().is_some_and(|byte| byte & 1 == 1);
    is_multicast || frame.starts_with(&addresses.mac.0)
}
