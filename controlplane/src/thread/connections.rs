//! QP 1 and connections: their packets, events and turns.

use std::time::Duration;

use uroce_engine::EventKind;
use uroce_engine::port::EndedPeer;
use uroce_transport::Instant;
use uroce_wire::Qpn;

use super::{About, Thread};
use crate::call::RequestError;
use crate::failover::Failover;
use crate::gsi::Verdict;
use crate::rdma_cm::{Service, ServiceContext};

/// Largest number of MADs that are handled before other inputs are.
const MADS: usize = 64;
/// Largest number of rounds of [`MADS`] for the last messages of a process that has ended. Fewer
/// MADs can wait.
const LAST_WORDS: usize = 64;
/// Longest wait of a closing device for its peers' DREPs.
const FAREWELL: Duration = Duration::from_millis(50);

impl Thread {
    /// Handles the packets that have arrived at QP 1. Returns whether there were any.
    ///
    /// Never inlined, because `deploy/cost` finds the function by its name.
    #[inline(never)]
    pub(super) fn take_mads(&mut self, now: Instant) -> bool {
        for taken in 0..MADS {
            let Some(frame) = self.control.recv_mad() else { return taken > 0 };
            let verdict = self.gsi.receive(now, frame.port, frame.mbuf.as_slice());
            // The frame's buffer is freed before the answer allocates one.
            drop(frame);
            if let Some(Verdict::Failover(arrived)) = verdict {
                self.with_failover(now, |of, service, context| {
                    of.receive(&arrived, service, context);
                });
                continue;
            }
            let (service, mut context) = self.split(now);
            match verdict {
                Some(Verdict::Connection(arrived)) => service.handle_mad(&arrived, &mut context),
                Some(Verdict::Answer(arrived)) => service.answer_mad(&arrived, &mut context),
                Some(Verdict::Failover(_)) | None => {}
            }
        }
        true
    }

    /// Passes events of QPs to their connections. Returns whether there were any.
    ///
    /// Never inlined, because `deploy/cost` finds the function by its name.
    #[inline(never)]
    pub(super) fn take_notices(&mut self) -> bool {
        let mut any = false;
        while let Some((qpn, kind)) = self.control.next_notice() {
            self.recent.add(About::Qp(qpn), kind);
            let now = self.now();
            let (service, mut context) = self.split(now);
            service.notice(qpn, kind, &mut context);
            if kind == EventKind::PathMig {
                self.with_failover(now, |of, service, context| of.moved(qpn, service, context));
            }
            any = true;
        }
        any
    }

    /// Runs the connections' turn. Called after all inputs have been handled.
    pub(super) fn run_connections(&mut self, now: Instant) {
        let (service, mut context) = self.split(now);
        service.turn(&mut context);
    }

    /// Tells failover of changes of QPs, if there are any of which it has not been told.
    pub(super) fn tell_failover(&mut self) {
        if self.told.as_ref().is_some_and(|told| !told.is_empty()) {
            let now = self.now();
            self.with_failover(now, Failover::hear);
        }
    }

    /// Runs the turn of failover, if the device has it. Called after that of the connections.
    pub(super) fn run_failover(&mut self, now: Instant) {
        self.with_failover(now, Failover::turn);
    }

    /// Runs a call on failover, if the device has it.
    fn with_failover(
        &mut self,
        now: Instant,
        call: impl FnOnce(&mut Failover, &mut Service, &mut ServiceContext<'_>),
    ) {
        let Some(mut failover) = self.failover.take() else { return };
        let (service, mut context) = self.split(now);
        call(&mut failover, service, &mut context);
        self.failover = Some(failover);
    }

    /// Runs a call on listeners and connections.
    pub(crate) fn with_connections<R>(
        &mut self,
        call: impl FnOnce(&mut Service, &mut ServiceContext<'_>) -> R,
    ) -> R {
        let now = self.now();
        let (service, mut context) = self.split(now);
        call(service, &mut context)
    }

    /// Ends the connections of a port to a peer's process that has ended. The messages that it has
    /// sent are handled first.
    pub(super) fn end_connections_of_peer(&mut self, port: u8, peer: EndedPeer) {
        let now = self.now();
        for _ in 0..LAST_WORDS {
            if !self.take_mads(now) {
                break;
            }
        }
        self.take_notices();
        let (service, mut context) = self.split(now);
        service.peer_ended(port, peer, &mut context);
        if let EndedPeer::At(mac) = peer {
            self.ports.neighbours[usize::from(port) - 1].station_gone(mac);
        }
    }

    /// Destroys a QP and ends its connection.
    pub(crate) fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), RequestError> {
        let now = self.now();
        self.control.destroy_qp(qpn)?;
        self.leave_groups(qpn);
        self.failover.iter_mut().for_each(|failover| failover.destroyed(qpn));
        self.told.iter_mut().for_each(|told| told.retain(|(of, _)| *of != qpn));
        let (service, mut context) = self.split(now);
        service.qp_destroyed(qpn, &mut context);
        Ok(())
    }

    /// Destroys a QP that a command names. The number of a QP that is the program's is given to no
    /// other QP until the program destroys it: it still refers to it.
    pub(crate) fn destroy_qp_for(&mut self, qpn: Qpn, is_ours: bool) -> Result<(), RequestError> {
        self.destroy_qp(qpn)?;
        if !is_ours {
            self.control.abandon_qpn(qpn);
        }
        Ok(())
    }

    /// Ends all connections, and waits up to [`FAREWELL`] for the peers' DREPs.
    pub(super) fn close_connections(&mut self) {
        let now = self.now();
        let end = now + FAREWELL;
        let (service, mut context) = self.split(now);
        service.close(&mut context);
        loop {
            let now = self.now();
            self.turn(now);
            if now >= end || !self.service.is_disconnecting() {
                return;
            }
            self.control.serve_adopted();
            self.control.sleep(Duration::from_millis(1), || false);
        }
    }

    /// Borrows the service, and the parts of the thread that it uses.
    pub(super) fn split(&mut self, now: Instant) -> (&mut Service, ServiceContext<'_>) {
        let Self { control, ports, gsi, service, selective_repeat, keepalive_ms, told, .. } = self;
        let (selective_repeat, keepalive_ms) = (*selective_repeat, *keepalive_ms);
        (service, ServiceContext { now, control, ports, gsi, selective_repeat, keepalive_ms, told })
    }
}
