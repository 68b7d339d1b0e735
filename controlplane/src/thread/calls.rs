//! Calls that are answered at once: each is a method that runs on the thread.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use uroce_engine::{
    BottleneckConfig, LossConfig, QpHandle, QpInfo, QpSpec, RecvQueueEnd, SendQueueEnd,
};
use uroce_transport::QpCaps;
use uroce_wire::Qpn;

use super::Thread;
use crate::call::{Job, PortStatus, Reply, RequestError};
use crate::path::PathError;

/// Largest number of jobs that are run before frames are handled again.
const JOBS: usize = 16;

impl Thread {
    /// Runs jobs that wait. Returns whether there were any.
    pub(super) fn take_jobs(&mut self, jobs: &Receiver<Job>) -> bool {
        for taken in 0..JOBS {
            match jobs.try_recv() {
                Ok(job) => self.run_job(job),
                Err(TryRecvError::Empty) => return taken > 0,
                Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    return true;
                }
            }
        }
        true
    }

    /// Runs one job. Never inlined, because `deploy/cost` finds the function by its name.
    #[inline(never)]
    pub(super) fn run_job(&mut self, job: Job) {
        job(self);
    }

    /// Creates a QP. If the caller has given up, the QP is destroyed again, because nothing else
    /// refers to it.
    pub(crate) fn create_qp(&mut self, mut spec: QpSpec, reply: Reply<QpHandle>) {
        // A connection needs the QP's events.
        spec.notices = true;
        let result = self.control.create_qp(&spec).map_err(RequestError::from);
        if let Err(Ok(handle)) = reply.try_give(result) {
            let _ = self.control.destroy_qp(handle.qpn);
        }
    }

    /// Returns the attributes of a QP as its program has set them.
    pub(crate) fn query_qp(&mut self, qpn: Qpn) -> Result<QpInfo, RequestError> {
        self.tell_failover();
        let mut info = self.control.query_qp(qpn)?;
        self.failover.iter().for_each(|failover| failover.show(qpn, &mut info.attr));
        Ok(info)
    }

    pub(crate) fn resize_qp(
        &mut self,
        qpn: Qpn,
        caps: QpCaps,
    ) -> Result<(SendQueueEnd, RecvQueueEnd), RequestError> {
        Ok(self.control.resize_qp(qpn, caps)?)
    }

    pub(crate) fn port_status(&mut self, port: u8) -> Result<PortStatus, RequestError> {
        let port = self.control.port(port).ok_or(PathError::NoPort(port))?;
        Ok(PortStatus { link: port.link(), stats: port.stats() })
    }

    pub(crate) fn set_loss(&mut self, port: u8, loss: LossConfig) -> Result<(), RequestError> {
        Ok(self.control.set_loss(port, loss)?)
    }

    pub(crate) fn set_bottleneck(
        &mut self,
        port: u8,
        bottleneck: Option<BottleneckConfig>,
    ) -> Result<(), RequestError> {
        Ok(self.control.set_bottleneck(port, bottleneck)?)
    }

    /// Sets the rate, in Mbit/s, at which frames leave a port; `None` for that of its link. Frames
    /// that wait leave at the new rate.
    pub(crate) fn set_rate(&mut self, port: u8, mbits: Option<u32>) -> Result<(), RequestError> {
        Ok(self.control.set_rate(port, mbits)?)
    }

    pub(crate) fn set_link(&mut self, port: u8, up: bool) -> Result<(), RequestError> {
        Ok(self.control.set_link(port, up)?)
    }

    /// Migrates all armed QPs that send through a port, whether the other ports are up or not.
    /// Returns their number.
    pub(crate) fn migrate_port(&mut self, port: u8) -> Result<u32, RequestError> {
        Ok(self.control.migrate_port(port, |_| true)?.migrated)
    }

    /// Makes the thread end. It may take up to `patience` to send posted work.
    pub(crate) fn shut_down(&mut self, patience: Duration) {
        self.patience = patience;
        self.ended = true;
    }
}
