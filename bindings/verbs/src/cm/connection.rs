//! A connection of a queue pair or an EE context, made by the connection manager.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use uroce_controlplane::RequestError;
use uroce_controlplane::rdma_cm::{
    Agreed, CmChannel, CmId, ConnEvent, ConnParam, ConnQp, ConnectSpec, PathSpec, PortSpace,
};

use super::{CmError, Destination};
use crate::qp::QpControl;
use crate::rd::Address;

/// A connection of a queue pair or an EE context, established or not. Dropping it disconnects: the
/// queue pair or EE context goes to ERR, and its number stays reserved until no old packet can
/// arrive any more.
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

impl Connection {
    pub(super) fn new(id: CmId, channel: Arc<CmChannel>, qp: QpControl) -> Connection {
        Connection { id, channel, qp, made: OnceLock::new() }
    }

    /// Connects a queue pair (RC, UC or XRC's initiator) or an EE context in RESET or INIT. Blocks
    /// until both sides may send or `timeout` has passed.
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

    /// Begins to connect a queue pair or an EE context in RESET or INIT, and returns at once.
    /// [`ConnEvent::Established`] follows, or an event with an [error](CmError::of).
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
                Some(ConnEvent::Disconnected { .. }) => return Err(CmError::Disconnected),
                Some(event) => CmError::of(event).map_or(Ok(()), Err)?,
                None => return Err(CmError::TimedOut),
            }
        }
        Ok(())
    }

    /// Takes the oldest event. Blocks until there is one or `timeout` has passed (`None`).
    pub fn next_event(&self, timeout: Duration) -> Option<ConnEvent> {
        let (_, event) = self.channel.next(timeout)?;
        if let ConnEvent::Established { agreed, private_data } = &event {
            let (agreed, private_data) = (*agreed, private_data.clone());
            self.made.get_or_init(|| Made { agreed, private_data });
        }
        Some(event)
    }

    /// The queue pair of this connection, or its EE context.
    pub fn qp(&self) -> &QpControl {
        &self.qp
    }

    /// Parameters that both sides have agreed on. `None` until the connection is established.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.made.get().map(|made| &made.agreed)
    }

    /// Between EE contexts: the destination of requests to the RD queue pair that the peer has
    /// named ([`ConnParam::rd_qp`]). `None` if it has named none, or until the connection is
    /// established.
    pub fn rd_peer(&self) -> Option<Address> {
        let peer = self.agreed()?.peer_rd_qp?;
        Some(Address { eecn: self.qp.qpn(), dest_qpn: peer.qpn, qkey: peer.qkey })
    }

    /// Private data that the peer's application sent when it accepted: 196 bytes, padded with
    /// zeros. Empty before the connection is established, and on the accepting side.
    pub fn private_data(&self) -> &[u8] {
        self.made.get().map_or(&[], |made| &made.private_data)
    }

    /// Ends the connection, unless the peer has done so already. The queue pair is in ERR when this
    /// returns. [`ConnEvent::Disconnected`] follows when the peer has answered or all retries
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
    /// migration before there can be another. Returns at once; [`ConnEvent::AlternateLoaded`]
    /// gives the result.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the connection is unchanged.
    pub fn load_alternate_path(&self, path: &PathSpec) -> Result<(), CmError> {
        Ok(self.qp.device().cm_load_alternate(self.id, *path)?)
    }

    /// Accepts or refuses the path of a [`ConnEvent::AlternateRequest`].
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
