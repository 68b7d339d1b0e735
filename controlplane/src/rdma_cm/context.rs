//! The parts of the control-plane thread that the service uses: QPs, neighbours, frames.

use uroce_cm::MadAddr;
use uroce_engine::{Control, ControlError, QpInfo};
use uroce_transport::{AltPath, Instant, PathAttr, QpChange, QpState, QpType};
use uroce_wire::{Encap, Mac, PathMtu, Pkey, Qpn};

use super::source::{Way, find_own};
use crate::config::SelectiveRepeat;
use crate::gsi::{GSI, Gsi};
use crate::log;
use crate::path::{AddressVector, PathError, Route};
use crate::port_watch::Ports;

/// The parts of the control-plane thread that the service uses, lent to it for one call.
pub(crate) struct ServiceContext<'a> {
    pub(crate) now: Instant,
    pub(crate) control: &'a mut Control,
    pub(crate) ports: &'a mut Ports,
    pub(crate) gsi: &'a mut Gsi,
    pub(crate) selective_repeat: SelectiveRepeat,
    /// Idle time of connections' keepalives in milliseconds, if it is configured.
    pub(crate) keepalive_ms: Option<u32>,
    /// Changes of QPs since [`Failover::turn`](crate::failover::Failover::turn); `None` without
    /// failover.
    pub(crate) told: &'a mut Option<Vec<(Qpn, QpChange)>>,
}

/// Idle time of connections' keepalives in milliseconds, if it is not configured.
const KEEPALIVE_MS: u32 = 10_000;

impl ServiceContext<'_> {
    /// Returns the packet headers of a connected QP's path; `None` while the next hop is being
    /// resolved.
    pub(super) fn path(
        &mut self,
        way: &Way,
        own: Qpn,
        dest: Qpn,
    ) -> Result<Option<PathAttr>, PathError> {
        let Some((route, mac)) = self.look_up(way.port, &way.vector)? else { return Ok(None) };
        let neighbours = &self.ports.neighbours[usize::from(way.port) - 1];
        Ok(Some(route.path(neighbours, mac, own, dest)))
    }

    /// Returns the headers and attributes of an alternate path; `None` while the next hop is being
    /// resolved.
    pub(super) fn alternate(
        &mut self,
        way: &Way,
        own: Qpn,
        dest: Qpn,
        timeout: u8,
    ) -> Result<Option<AltPath>, PathError> {
        let path = self.path(way, own, dest)?;
        Ok(path.map(|path| AltPath { path, port: way.port, pkey: Pkey::DEFAULT, timeout }))
    }

    /// Returns the port and the packet headers for MADs to an address; `None` while the next hop is
    /// being resolved.
    pub(super) fn mad_path(&mut self, to: &MadAddr) -> Result<Option<(u8, Encap)>, PathError> {
        let own = find_own(&self.ports.neighbours, to.src.to_ip(), to.port);
        let (port, sgid_index) = own.ok_or(PathError::NoPort(to.port))?;
        let vector = AddressVector {
            sgid_index,
            dgid: to.dst,
            traffic_class: to.traffic_class,
            flow_label: to.flow_label,
            hop_limit: to.hop_limit,
            service_level: to.sl,
            ..AddressVector::default()
        };
        let Some((route, mac)) = self.look_up(port, &vector)? else { return Ok(None) };
        let neighbours = &self.ports.neighbours[usize::from(port) - 1];
        Ok(Some((port, route.path(neighbours, mac, GSI, GSI).encap)))
    }

    /// Returns the Ethernet address of a path's next hop; `None` while it is being resolved.
    pub(super) fn next_hop(&mut self, way: &Way) -> Result<Option<Mac>, PathError> {
        Ok(self.look_up(way.port, &way.vector)?.map(|(_, mac)| mac))
    }

    /// Returns the route of a path and the Ethernet address of its next hop; `None` while that is
    /// being resolved.
    pub(crate) fn look_up(
        &mut self,
        port: u8,
        vector: &AddressVector,
    ) -> Result<Option<(Route, Mac)>, PathError> {
        let route = Route::find(vector, port, &self.ports.neighbours)?;
        let neighbours = &mut self.ports.neighbours[usize::from(port) - 1];
        Ok(route.resolve(self.now, neighbours)?.map(|mac| (route, mac)))
    }

    /// Returns the largest path MTU of a port; `None` if the port has none.
    pub(super) fn path_mtu(&self, port: u8) -> Option<PathMtu> {
        self.ports.table.port(port)?.max_path_mtu
    }

    pub(super) fn modify_qp(&mut self, qpn: Qpn, change: &QpChange) -> Result<(), ControlError> {
        let result = self.control.modify_qp(qpn, change);
        log::modify_qp(qpn, change, &result);
        if result.is_ok() {
            self.told.iter_mut().for_each(|told| told.push((qpn, *change)));
        }
        result
    }

    /// Loads an alternate path on which both control planes agree into a QP and arms it.
    pub(super) fn adopt(&mut self, qpn: Qpn, path: AltPath) -> Result<(), ControlError> {
        match self.control.adopt_alternate(qpn, path)? {
            true => Ok(()),
            false => Err(ControlError::UnknownQp(qpn)),
        }
    }

    pub(super) fn query_qp(&mut self, qpn: Qpn) -> Result<QpInfo, ControlError> {
        self.control.query_qp(qpn)
    }

    /// Tells whether connections may agree on selective repeat.
    pub(super) fn agrees_on_selective_repeat(&self) -> bool {
        self.selective_repeat != SelectiveRepeat::Never
    }

    /// Returns the keepalive's idle time, in milliseconds, for connections through a port; 0 means
    /// no keepalive.
    pub(super) fn keepalive_ms(&self, port: u8) -> u32 {
        let watch = self.ports.watches.get(usize::from(port).wrapping_sub(1));
        //= check J15 — a port that reports the end of the peer's process needs no keepalive
        let tells = watch.is_some_and(|watch| watch.tells_of_peers());
        self.keepalive_ms.unwrap_or(if tells { 0 } else { KEEPALIVE_MS })
    }

    /// Tells whether a QP that the application modifies is an RC QP of this device and not yet in
    /// RTR. Such a QP gets its attributes for RTR later, from
    /// [`Service::agreement`](super::Service::agreement).
    pub(super) fn awaits_rtr(&mut self, qpn: Qpn) -> bool {
        self.query_qp(qpn).is_ok_and(|info| is_before_rtr(&info))
    }

    /// Tells whether a QP that the application modifies uses selective repeat, or awaits RTR.
    pub(super) fn uses_selective_repeat(&mut self, qpn: Qpn) -> bool {
        self.query_qp(qpn).is_ok_and(|info| info.attr.selective_repeat || is_before_rtr(&info))
    }
}

fn is_before_rtr(info: &QpInfo) -> bool {
    info.qp_type == QpType::Rc && matches!(info.attr.state, QpState::Reset | QpState::Init)
}
