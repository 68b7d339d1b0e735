//! Connections by IP address and port: calls of the connection manager.
//!
//! Each call returns as soon as the control plane has started; events on the given channel report
//! the outcome.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uroce_wire::cm::RejectReason;

use super::Device;
use crate::call::RequestError;
use crate::connect::{
    Around, BindOptions, CmId, CmSink, ConnParam, ConnQp, ConnectSpec, Driver, PathSpec, PortSpace,
};

impl Device {
    /// Binds an id to a port at an address of the device, or at all addresses if it is unspecified
    /// or a loopback one. Port 0 chooses a free port. Requests are received only after
    /// [`cm_begin_listening`](Self::cm_begin_listening). Returns the id and the bound address.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_bind(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, around| cm.bind(channel, space, address, options, around))
    }

    /// Lets a bound id listen, as [`cm_listen`](Self::cm_listen) does, or changes the backlog of a
    /// listener.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_begin_listening(&self, id: CmId, backlog: u32) -> Result<(), RequestError> {
        self.cm(move |cm, _| cm.begin_listening(id, backlog))
    }

    /// Tells whether the device has a listener for requests to an address and port.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn cm_is_heard(&self, space: PortSpace, to: SocketAddr) -> Result<bool, RequestError> {
        self.cm(move |cm, _| Ok(cm.is_heard(space, to)))
    }

    /// Looks up the path to an address: local port and address, and the next hop's Ethernet
    /// address. The outcome is [`AddressResolved`](crate::connect::CmEventKind::AddressResolved),
    /// or at the latest after `timeout`
    /// [`AddressError`](crate::connect::CmEventKind::AddressError); the id ends with it.
    ///
    /// # Errors
    ///
    /// If no port leads to the address. See [`RequestError`].
    pub fn cm_resolve(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        path: PathSpec,
        timeout: Duration,
    ) -> Result<CmId, RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, around| cm.resolve(channel, &path, timeout, around))
    }

    /// Listens at an address of the device, or at all addresses if it is unspecified or a loopback
    /// one; IPv6's unspecified address includes IPv4. Port 0 chooses a free port. Up to `backlog`
    /// requests wait for the application; further ones are rejected.
    ///
    /// Returns the listener's id and address. Its events are
    /// [`ConnectRequest`](crate::connect::CmEventKind::ConnectRequest)s, each with the id of a new
    /// connection.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_listen(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        space: PortSpace,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, around| cm.listen(channel, space, address, backlog, around))
    }

    /// Connects a QP, or looks up a UD QP. The outcome is
    /// [`Established`](crate::connect::CmEventKind::Established) or
    /// [`Resolved`](crate::connect::CmEventKind::Resolved), or an event with the reason of the
    /// failure.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_connect(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        spec: ConnectSpec,
    ) -> Result<CmId, RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, around| cm.connect(channel, spec, around))
    }

    /// Accepts a request with a QP. The outcome is
    /// [`Established`](crate::connect::CmEventKind::Established), or an event with the reason of
    /// the failure. The look-up of a UD QP is answered at once and has no further event.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError); the request still waits.
    pub fn cm_accept(&self, id: CmId, qp: ConnQp, param: ConnParam) -> Result<(), RequestError> {
        self.cm(move |cm, around| cm.accept(id, qp, param, around))
    }

    /// Rejects a request, with up to 148 bytes (for the look-up of a UD QP 136) for the peer's
    /// application. The id ends.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_reject(&self, id: CmId, private_data: &[u8]) -> Result<(), RequestError> {
        self.cm_reject_for(id, RejectReason::CONSUMER, private_data)
    }

    /// Rejects a request with a given reason. For the look-up of a UD QP the reason is ignored.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_reject_for(
        &self,
        id: CmId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), RequestError> {
        let private_data = private_data.to_vec();
        self.cm(move |cm, around| cm.reject(id, reason, &private_data, around))?;
        self.see_off();
        Ok(())
    }

    /// Reports that the [foreign](ConnQp::Foreign) QP of a connection is in RTS. Called after
    /// [`ConnectResponse`](crate::connect::CmEventKind::ConnectResponse), or on the accepting side
    /// when a packet of the peer has arrived.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_establish(&self, id: CmId) -> Result<(), RequestError> {
        self.cm(move |cm, around| cm.establish(id, around))
    }

    /// Ends a connection, with up to 220 bytes for the peer's application. When this returns, the
    /// QP is in ERR if the driver modifies it.
    /// [`Disconnected`](crate::connect::CmEventKind::Disconnected) follows when the peer has
    /// answered or all retries are used up. Has no effect on a connection that is ending or over.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_disconnect(&self, id: CmId, private_data: &[u8]) -> Result<(), RequestError> {
        let private_data = private_data.to_vec();
        self.cm(move |cm, around| cm.disconnect(id, &private_data, around))?;
        self.see_off();
        Ok(())
    }

    /// Proposes another alternate path to the peer, and arms the QP with it once the peer agrees.
    /// The outcome is [`AlternateLoaded`](crate::connect::CmEventKind::AlternateLoaded).
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_load_alternate(&self, id: CmId, path: PathSpec) -> Result<(), RequestError> {
        self.cm(move |cm, around| cm.load_alternate(id, &path, around))
    }

    /// Answers an [`AlternateRequest`](crate::connect::CmEventKind::AlternateRequest).
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_answer_alternate(&self, id: CmId, accept: bool) -> Result<(), RequestError> {
        self.cm(move |cm, around| cm.answer_alternate(id, accept, around))
    }

    /// Moves an id's events, including those that wait, to another channel.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_set_channel(
        &self,
        id: CmId,
        channel: &Arc<impl CmSink + 'static>,
    ) -> Result<(), RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, _| cm.set_channel(id, channel))
    }

    /// Destroys an id; no event of it follows. The waiting requests of a listener are rejected; a
    /// connection is disconnected, and its QPN stays held until TimeWait is over.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_destroy(&self, id: CmId) -> Result<(), RequestError> {
        self.cm(move |cm, around| cm.destroy(id, around))
    }

    /// Waits until the messages of connections have been sent, for at most a bounded time.
    fn see_off(&self) {
        let _ = self.calls.begin(|thread, reply| thread.see_off(reply));
    }

    /// Runs a call on the device's listeners and connections.
    fn cm<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, &mut Around<'_>) -> Result<R, RequestError> + Send + 'static,
    ) -> Result<R, RequestError> {
        self.calls.call(|thread| thread.with_connections(call))
    }
}
