//! What happens without being asked for: management datagrams, notices, events of ports, and how
//! the control plane sleeps until one of them.

use super::{Control, ControlError, Record};
use crate::engine::Shared;
use crate::events::EventKind;
use crate::mr_table::GoneRegion;
use crate::rx::GsiFrame;
use crate::waker::Waker;
use std::sync::Arc;
use std::time::Duration;
use uroce_wire::Qpn;

impl Control {
    /// A received packet to QP 1, if there is one. To be polled: up to 256 wait, further ones are
    /// dropped and counted.
    pub fn recv_mad(&mut self) -> Option<GsiFrame> {
        self.exits.gsi.pop()
    }

    /// Something that has happened to a QP created with [`QpSpec::notices`](super::QpSpec), if
    /// there is any. None is lost; a kind that happens again before it was taken is one notice.
    /// None of a QP is given after it was destroyed.
    pub fn next_notice(&mut self) -> Option<(Qpn, EventKind)> {
        if self.noticed.is_empty() {
            self.take_notices();
        }
        self.noticed.pop_front()
    }

    /// A region whose memory was found to be gone, if there is another. Each is given once.
    pub fn next_gone(&mut self) -> Option<GoneRegion> {
        self.shared.regions.gone().pop()
    }

    /// Raises an event of a port, counted from 1, for the application:
    /// [`PortActive`](EventKind::PortActive), [`PortErr`](EventKind::PortErr),
    /// [`GidChange`](EventKind::GidChange).
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`].
    pub fn raise_port(&mut self, port: u8, kind: EventKind) -> Result<(), ControlError> {
        let at = usize::from(port).checked_sub(1);
        let guard = at.and_then(|at| self.port_events.get(at));
        guard.ok_or(ControlError::NoSuchPort(port))?.raise(kind);
        Ok(())
    }

    /// What wakes this thread from [`sleep`](Control::sleep), for others that have something for
    /// it. Lcores and links do by themselves.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.exits.waker
    }

    /// Sleeps for at most `timeout`, and no longer once there is a frame, a packet to QP 1, a
    /// notice, an adoption of an lcore or a change of a link, or somebody calls the [`waker`](Control::waker). Does not
    /// sleep if `is_ready` says that there is something else already. May wake for nothing.
    pub fn sleep(&self, timeout: Duration, is_ready: impl FnOnce() -> bool) {
        let waits = || !self.exits.slow_path.is_empty() || !self.exits.gsi.is_empty();
        let tells = || {
            let Shared { regions, tables, .. } = &*self.shared;
            !self.noticed.is_empty() || !tables.notices.is_empty() || !regions.gone().is_empty()
        };
        let moved = || self.ports.iter().any(|port| port.port.has_link_moved());
        self.waker().sleep(timeout, || is_ready() || waits() || tells() || moved());
    }

    pub(super) fn take_notices(&mut self) {
        let Control { shared, noticed, qps, .. } = self;
        shared.tables.notices.take(|index, kind| {
            let Some(record) = qps.at(index).copied() else { return };
            noticed.push_back((record.qpn, kind));
            if kind == EventKind::PathMig {
                qps.put(Record { migrates: false, ..record });
            }
        });
    }

    /// Forgets what a QP that is gone had to tell. Its slot is still nobody else's.
    pub(super) fn drop_notices(&mut self, gone: Qpn) {
        self.take_notices();
        self.noticed.retain(|&(qpn, _)| qpn != gone);
    }
}
