//! QP 1 and connections: what comes for them, and their turn.

use std::time::Duration;

use uroce_transport::Instant;
use uroce_wire::Qpn;

use super::Thread;
use crate::connect::{Around, CmRequest, Driver};
use crate::gsi::Verdict;
use crate::request::RequestError;

/// Packets to QP 1 taken before anything else is looked at.
const MADS: usize = 64;
/// How often so many are taken of a process that has ended: more than wait at once.
const LAST_WORDS: usize = 64;
/// How long a device that closes waits for its peers to have heard of it.
const FAREWELL: Duration = Duration::from_millis(50);

impl Thread {
    /// Takes what has come to QP 1.
    pub(super) fn take_mads(&mut self, now: Instant) -> bool {
        for taken in 0..MADS {
            let Some(frame) = self.control.recv_mad() else { return taken > 0 };
            let verdict = self.gsi.receive(now, frame.port, frame.mbuf.as_slice());
            // The frame's buffer goes back before its answer takes one.
            drop(frame);
            let (driver, mut around) = self.split(now);
            match verdict {
                Some(Verdict::Connection(arrived)) => driver.handle_mad(&arrived, &mut around),
                Some(Verdict::Answer(arrived)) => driver.answer_mad(&arrived, &mut around),
                None => {}
            }
        }
        true
    }

    /// Tells connections what has happened to their QPs.
    pub(super) fn take_notices(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((qpn, kind)) = self.control.next_notice() {
            let (driver, mut around) = self.split(now);
            driver.notice(qpn, kind, &mut around);
            any = true;
        }
        any
    }

    /// What follows for connections from all that has come: to be called after it.
    pub(super) fn run_connections(&mut self, now: Instant) {
        let (driver, mut around) = self.split(now);
        driver.turn(&mut around);
    }

    pub(super) fn serve_connection(&mut self, request: CmRequest) {
        let now = self.now();
        let (driver, mut around) = self.split(now);
        driver.serve(request, &mut around);
    }

    /// The process at the other end of a port's link has ended: what it has said still counts, its
    /// connections end.
    pub(super) fn end_connections_of_peer(&mut self, port: u8) {
        let now = self.now();
        for _ in 0..LAST_WORDS {
            if !self.take_mads(now) {
                break;
            }
        }
        self.take_notices(now);
        let (driver, mut around) = self.split(now);
        driver.peer_ended(port, &mut around);
    }

    /// Destroy QP. A connection that has it ends.
    pub(super) fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), RequestError> {
        let now = self.now();
        self.control.destroy_qp(qpn)?;
        self.leave_groups(qpn);
        let (driver, mut around) = self.split(now);
        driver.qp_destroyed(qpn, &mut around);
        Ok(())
    }

    /// Asks all peers to disconnect, and waits shortly for their answers.
    pub(super) fn close_connections(&mut self) {
        let now = self.now();
        let end = now + FAREWELL;
        let (driver, mut around) = self.split(now);
        driver.close(&mut around);
        loop {
            let now = self.now();
            self.turn(now);
            if now >= end || !self.driver.is_disconnecting() {
                return;
            }
            self.control.serve_adopted();
            self.control.sleep(Duration::from_millis(1), || false);
        }
    }

    /// The driver, and what it touches of the rest.
    fn split(&mut self, now: Instant) -> (&mut Driver, Around<'_>) {
        let Self { control, ports, gsi, driver, .. } = self;
        (driver, Around { now, control, ports, gsi })
    }
}
