//! An RC or UC connection of a queue pair, made by the connection manager.

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

/// A connection of a queue pair, established or not. Dropping it disconnects: the queue pair goes
/// to ERR, and its number stays reserved until no old packet can arrive any more.
#[derive(Debug)]
pub struct Connection {
    id: CmId,
    channel: Arc<CmChannel>,
    qp: QpControl,
    made: OnceLock<Made>,
}

/// Results of the connection establishment.
#[derive(Debug)]
struct Made {
    agreed: Agreed,
    private_data: Vec<u8>,
}

/// An event of a connection. See [`Connection::next_event`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The connection is established: both sides may send.
    Established,
    /// The connection could not be established.
    Failed(CmError),
    /// The connection has ended. The queue pair is in ERR.
    Disconnected {
        /// Private data of the peer's application if it ended the connection, else empty.
        private_data: Vec<u8>,
    },
    /// The ended connection has left TIMEWAIT: no packet of it can arrive any more.
    TimewaitExit,
    /// The peer asks for a new alternate path and waits for
    /// [`answer_alternate_path`](Connection::answer_alternate_path).
    AlternateRequest(AlternateRequest),
    /// The peer asked for a new alternate path, which was loaded and armed automatically.
    AlternateChanged(AlternateRequest),
    /// The result of [`load_alternate_path`](Connection::load_alternate_path).
    AlternateLoaded(Result<(), AlternateFailure>),
}

impl Connection {
    pub(super) fn new(id: CmId, channel: Arc<CmChannel>, qp: QpControl) -> Connection {
        Connection { id, channel, qp, made: OnceLock::new() }
    }

    /// Connects an RC or UC queue pair in RESET or INIT. Blocks until both sides may send or
    /// `timeout` has passed.
    ///
    /// # Errors
    ///
    /// See [`CmError`]. If the attempt had begun, the queue pair is in ERR and can be used again
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

    /// Begins to connect an RC or UC queue pair in RESET or INIT, and returns at once.
    /// [`ConnectionEvent::Established`] or [`ConnectionEvent::Failed`] follows.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the queue pair is unchanged.
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

    /// Blocks until both sides may send or `timeout` has passed. Returns at once if the connection
    /// is established.
    ///
    /// # Errors
    ///
    /// [`CmError::TimedOut`] leaves the attempt running. After any other error the attempt has
    /// ended.
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

    /// Takes the oldest event. Blocks until there is one or `timeout` has passed (`None`).
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

    /// The queue pair of this connection.
    pub fn qp(&self) -> &QpControl {
        &self.qp
    }

    /// Parameters that both sides have agreed on. `None` until the connection is established.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.made.get().map(|made| &made.agreed)
    }

    /// Private data that the peer's application sent when it accepted: 196 bytes, padded with
    /// zeros. Empty before the connection is established, and on the accepting side.
    pub fn private_data(&self) -> &[u8] {
        self.made.get().map_or(&[], |made| &made.private_data)
    }

    /// Ends the connection, unless the peer has done so already. The queue pair is in ERR when this
    /// returns. [`ConnectionEvent::Disconnected`] follows when the peer has answered or all retries
    /// are used up.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn disconnect(&self) -> Result<(), CmError> {
        self.disconnect_with(&[])
    }

    /// Ends the connection like [`disconnect`](Connection::disconnect), with up to 220 bytes of
    /// private data for the peer's application.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn disconnect_with(&self, private_data: &[u8]) -> Result<(), CmError> {
        Ok(self.qp.device().cm_disconnect(self.id, private_data)?)
    }

    /// Loads a new alternate path at both ends and arms them, if the peer agrees. Needed after a
    /// migration before there can be another. Returns at once; [`ConnectionEvent::AlternateLoaded`]
    /// gives the result.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the connection is unchanged.
    pub fn load_alternate_path(&self, path: &PathSpec) -> Result<(), CmError> {
        Ok(self.qp.device().cm_load_alternate(self.id, *path)?)
    }

    /// Accepts or refuses the path of a [`ConnectionEvent::AlternateRequest`].
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn answer_alternate_path(&self, accept: bool) -> Result<(), CmError> {
        Ok(self.qp.device().cm_answer_alternate(self.id, accept)?)
    }

    /// Rearms path migration of the queue pair. See [`QpControl::rearm`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::rearm`].
    pub fn rearm(&self) -> Result<(), RequestError> {
        self.qp.rearm()
    }

    /// Migrates the queue pair to the alternate path. See [`QpControl::migrate`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::migrate`].
    pub fn migrate(&self) -> Result<(), RequestError> {
        self.qp.migrate()
    }
}

impl AsFd for Connection {
    /// The descriptor is readable while an event is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // This fails only if the control plane has ended, and the connection with it.
        let _ = self.qp.device().cm_destroy(self.id);
    }
}
