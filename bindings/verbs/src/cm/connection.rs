//! A connection of a queue pair.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use uroce_controlplane::RequestError;
use uroce_controlplane::connect::{
    Agreed, AlternateFailure, AlternateRequest, CmChannel, CmEventKind, CmId, ConnParam, ConnQp,
    ConnectSpec, PathSpec, PortSpace,
};

use super::{CmError, Destination};
use crate::qp::QpControl;

/// A connection of a queue pair, made or in the making. Dropping it disconnects: the queue pair is
/// in ERR then, and its number stays taken until the time in which old packets may arrive is over.
#[derive(Debug)]
pub struct Connection {
    id: CmId,
    channel: Arc<CmChannel>,
    qp: QpControl,
    made: OnceLock<Made>,
}

/// What is known once it is established.
#[derive(Debug)]
struct Made {
    agreed: Agreed,
    private_data: Vec<u8>,
}

/// Something happened to a connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// Both sides may send.
    Established,
    /// It did not come about.
    Failed(CmError),
    /// It has ended; the queue pair is in ERR.
    Disconnected {
        /// From the peer's application, where it has ended it.
        private_data: Vec<u8>,
    },
    /// The time is over in which packets of the ended connection may arrive.
    TimewaitExit,
    /// The peer wants another alternate path, and waits for
    /// [`answer_alternate_path`](Connection::answer_alternate_path).
    AlternateRequest(AlternateRequest),
    /// The peer wanted another alternate path, which was loaded and armed.
    AlternateChanged(AlternateRequest),
    /// What became of [`load_alternate_path`](Connection::load_alternate_path).
    AlternateLoaded(Result<(), AlternateFailure>),
}

impl Connection {
    pub(super) fn new(id: CmId, channel: Arc<CmChannel>, qp: QpControl) -> Connection {
        Connection { id, channel, qp, made: OnceLock::new() }
    }

    /// Connects a queue pair in RESET or INIT, and waits at most so long until both may send. A
    /// QP's service is RC or UC.
    ///
    /// # Errors
    ///
    /// See [`CmError`]. The queue pair is in ERR if the attempt had begun; it can be used again
    /// after a reset.
    pub fn connect(
        qp: &impl AsRef<QpControl>,
        to: impl Into<Destination>,
        param: &ConnParam,
        timeout: Duration,
    ) -> Result<Connection, CmError> {
        let connection = Connection::begin(qp, to, param)?;
        connection.wait_established(timeout)?;
        Ok(connection)
    }

    /// Begins to connect a queue pair, and does not wait: [`ConnectionEvent::Established`] or
    /// [`ConnectionEvent::Failed`] follows.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn begin(
        qp: &impl AsRef<QpControl>,
        to: impl Into<Destination>,
        param: &ConnParam,
    ) -> Result<Connection, CmError> {
        let (qp, to) = (qp.as_ref().clone(), to.into());
        let channel = CmChannel::new().map_err(CmError::Channel)?;
        let spec = ConnectSpec {
            space: PortSpace::Tcp,
            port: to.port,
            source_port: to.source_port,
            path: to.path,
            alternate: to.alternate,
            qp: Some(ConnQp::Driven(qp.qpn())),
            param: param.clone(),
        };
        let id = qp.device().cm_connect(&channel, spec)?;
        Ok(Connection::new(id, channel, qp))
    }

    /// Waits at most so long until both sides may send; returns at once if they may.
    ///
    /// # Errors
    ///
    /// [`CmError::TimedOut`] leaves the attempt as it is; all else ends it.
    pub fn wait_established(&self, timeout: Duration) -> Result<(), CmError> {
        let end = Instant::now().checked_add(timeout);
        while self.made.get().is_none() {
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            match self.next_event(left) {
                Some(ConnectionEvent::Failed(error)) => return Err(error),
                Some(ConnectionEvent::Disconnected { .. }) => return Err(CmError::Disconnected),
                Some(_) => {}
                None => return Err(CmError::TimedOut),
            }
        }
        Ok(())
    }

    /// The oldest event; waits for one at most so long.
    pub fn next_event(&self, timeout: Duration) -> Option<ConnectionEvent> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            let event = self.channel.next(left)?;
            if let Some(event) = self.translate(event.kind) {
                return Some(event);
            }
        }
    }

    fn translate(&self, kind: CmEventKind) -> Option<ConnectionEvent> {
        Some(match kind {
            CmEventKind::Established { agreed, private_data } => {
                self.made.get_or_init(|| Made { agreed, private_data });
                ConnectionEvent::Established
            }
            CmEventKind::Disconnected { private_data } => {
                ConnectionEvent::Disconnected { private_data }
            }
            CmEventKind::TimewaitExit => ConnectionEvent::TimewaitExit,
            CmEventKind::AlternateRequest(path) => ConnectionEvent::AlternateRequest(path),
            CmEventKind::AlternateChanged(path) => ConnectionEvent::AlternateChanged(path),
            CmEventKind::AlternateLoaded(result) => ConnectionEvent::AlternateLoaded(result),
            other => ConnectionEvent::Failed(CmError::of(other)?),
        })
    }

    /// Its queue pair.
    pub fn qp(&self) -> &QpControl {
        &self.qp
    }

    /// What both sides have agreed on, once it is established.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.made.get().map(|made| &made.agreed)
    }

    /// What the peer's application has sent when it accepted: 196 bytes, of which it may have given
    /// the first only; the rest is zero. Empty before that, and where the peer has connected.
    pub fn private_data(&self) -> &[u8] {
        self.made.get().map_or(&[], |made| &made.private_data)
    }

    /// Ends the connection, if the peer has not done so already. The queue pair is in ERR when this
    /// returns; [`ConnectionEvent::Disconnected`] follows when the peer has answered or will not.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn disconnect(&self) -> Result<(), CmError> {
        self.disconnect_with(&[])
    }

    /// The same with up to 220 bytes for the peer's application.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn disconnect_with(&self, private_data: &[u8]) -> Result<(), CmError> {
        Ok(self.qp.device().cm_disconnect(self.id, private_data)?)
    }

    /// Has both ends load another alternate path, and arms them with it once the peer agrees.
    /// [`ConnectionEvent::AlternateLoaded`] tells what came of it. To be done after a migration if
    /// there is to be another.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the connection is as it was.
    pub fn load_alternate_path(&self, path: &PathSpec) -> Result<(), CmError> {
        Ok(self.qp.device().cm_load_alternate(self.id, *path)?)
    }

    /// Answers [`ConnectionEvent::AlternateRequest`].
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn answer_alternate_path(&self, accept: bool) -> Result<(), CmError> {
        Ok(self.qp.device().cm_answer_alternate(self.id, accept)?)
    }

    /// See [`QpControl::rearm`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::rearm`].
    pub fn rearm(&self) -> Result<(), RequestError> {
        self.qp.rearm()
    }

    /// See [`QpControl::migrate`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::migrate`].
    pub fn migrate(&self) -> Result<(), RequestError> {
        self.qp.migrate()
    }
}

impl AsFd for Connection {
    /// Readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Where the control plane is gone, so is the connection.
        let _ = self.qp.device().cm_destroy(self.id);
    }
}
