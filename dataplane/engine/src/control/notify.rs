//! Notifications: management datagrams, notices of QPs, events of ports, and the sleep of the
//! control plane until one of them comes.

use super::{Control, ControlError, Record};
use crate::control::engine::Shared;
use crate::rx::GsiFrame;
use std::sync::Arc;
use std::time::Duration;
use uroce_shared::memory::mr_table::GoneRegion;
use uroce_shared::wake::events::EventKind;
use uroce_shared::wake::waker::Waker;
use uroce_wire::Qpn;

impl Control {
    /// Returns a received packet to QP 1, if there is one. To be polled: up to 256 wait; further
    /// ones are dropped and counted.
    pub fn recv_mad(&mut self) -> Option<GsiFrame> {
        self.exits.gsi.pop()
    }

    /// Returns an event of a QP that was created with [`QpSpec::notices`](super::QpSpec), if there
    /// is one. None is lost; an event of the same kind before the first was taken gives one notice.
    /// A destroyed QP gives none.
    pub fn next_notice(&mut self) -> Option<(Qpn, EventKind)> {
        if self.noticed.is_empty() {
            self.take_notices();
        }
        self.noticed.pop_front()
    }

    /// Returns a region that was found to have lost memory, if there is another. Each is returned
    /// once.
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

    /// Returns the waker that ends a [`sleep`](Control::sleep), for other threads that have work
    /// for this thread. Lcores and links use it by themselves.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.exits.waker
    }

    /// Sleeps for at most `timeout`. Wakes when there is a frame, a packet to QP 1, a notice, an
    /// adoption of an lcore or a change of a link, or when another thread uses the
    /// [`waker`](Control::waker). Does not sleep if `is_ready` returns true. May wake without a
    /// reason.
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

    /// Discards the notices of a QP that is gone. Its slot is not given to another QP yet.
    pub(super) fn drop_notices(&mut self, gone: Qpn) {
        self.take_notices();
        self.noticed.retain(|&(qpn, _)| qpn != gone);
    }
}
