//! Connections by IP address and port: the device's calls for listeners and connections.
//!
//! No call waits for a peer: events on the given channel report the outcome. A rejection and a
//! disconnect wait a short time until their message has been sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uroce_wire::cm::RejectReason;

use super::Device;
use crate::call::RequestError;
use crate::rdma_cm::{
    BindOptions, CmId, CmSink, Common, ConnParam, ConnQp, ConnectSpec, Connection, PathSpec,
    PortSpace, Service, ServiceContext,
};

impl Device {
    /// Binds an id to a port at an address of the device, or at all its addresses if `address` is
    /// unspecified or a loopback one. Port 0 chooses a free port. Requests are received only after
    /// [`cm_begin_listening`](Self::cm_begin_listening). Returns the id and the bound address.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_bind(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, context| cm.bind(channel, space, address, options, context))
    }

    /// Lets a bound id listen, as [`cm_listen`](Self::cm_listen) does, or changes the backlog of a
    /// listener.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
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
    /// address. The outcome is [`AddressResolved`](crate::rdma_cm::ConnEvent::AddressResolved), or
    /// [`AddressError`](crate::rdma_cm::ConnEvent::AddressError), which comes after `timeout` at
    /// the latest. The id ends with this event.
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
        self.cm(move |cm, context| cm.resolve(channel, &path, timeout, context))
    }

    /// Listens at an address of the device, or at all its addresses if `address` is unspecified or
    /// a loopback one; IPv6's unspecified address includes IPv4. Port 0 chooses a free port. Up to
    /// `backlog` requests wait for the application; further ones are rejected.
    ///
    /// Returns the listener's id and address. Its events are
    /// [`ConnectRequest`](crate::rdma_cm::ConnEvent::ConnectRequest)s, each with the id of a new
    /// connection.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_listen(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        backlog: u32,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, context| cm.listen(channel, space, address, options, backlog, context))
    }

    /// Connects a QP or an EEC, or looks up a UD QP. The outcome is
    /// [`Established`](crate::rdma_cm::ConnEvent::Established) or
    /// [`Resolved`](crate::rdma_cm::ConnEvent::Resolved), or an event with the reason of the
    /// failure.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_connect(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        spec: ConnectSpec,
    ) -> Result<CmId, RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, context| cm.connect(channel, spec, context))
    }

    /// Accepts a request with a QP or an EEC. The outcome is
    /// [`Established`](crate::rdma_cm::ConnEvent::Established), or an event with the reason of
    /// the failure. The look-up of a UD QP is answered at once and has no further event.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError). The request still waits.
    pub fn cm_accept(&self, id: CmId, qp: ConnQp, param: ConnParam) -> Result<(), RequestError> {
        self.on(id, move |it, common, context| it.accept(qp, param, common, context))
    }

    /// Rejects a request, or the peer's reply that
    /// [`ConnectResponse`](crate::rdma_cm::ConnEvent::ConnectResponse) has reported. The peer's
    /// application gets up to 148 bytes (136 for the look-up of a UD QP). The id ends.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_reject(&self, id: CmId, private_data: &[u8]) -> Result<(), RequestError> {
        self.cm_reject_for(id, RejectReason::CONSUMER, private_data)
    }

    /// Rejects a request or a reply as [`cm_reject`](Self::cm_reject) does, with a given reason.
    /// For the look-up of a UD QP the reason is ignored.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_reject_for(
        &self,
        id: CmId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), RequestError> {
        let private_data = private_data.to_vec();
        self.on(id, move |it, common, context| it.reject(reason, &private_data, common, context))?;
        self.see_off();
        Ok(())
    }

    /// Reports that the [foreign](ConnQp::Foreign) QP of a connection is in RTS. To be called after
    /// [`ConnectResponse`](crate::rdma_cm::ConnEvent::ConnectResponse), or on the accepting side
    /// when a packet of the peer has arrived.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_establish(&self, id: CmId) -> Result<(), RequestError> {
        self.on(id, move |it, common, _| it.establish(common))
    }

    /// Ends a connection, with up to 220 bytes for the peer's application. When this returns, the
    /// QP is in ERR if the control plane modifies it.
    /// [`Disconnected`](crate::rdma_cm::ConnEvent::Disconnected) follows when the peer has answered
    /// or all retries are used up. Has no effect on a connection that is ending or over.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_disconnect(&self, id: CmId, private_data: &[u8]) -> Result<(), RequestError> {
        let private_data = private_data.to_vec();
        self.on(id, move |it, common, context| it.disconnect(&private_data, common, context))?;
        self.see_off();
        Ok(())
    }

    /// Proposes another alternate path to the peer, and arms the QP with it once the peer agrees.
    /// The outcome is [`AlternateLoaded`](crate::rdma_cm::ConnEvent::AlternateLoaded).
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_load_alternate(&self, id: CmId, path: PathSpec) -> Result<(), RequestError> {
        self.on(id, move |it, common, context| it.load_alternate(&path, common, context))
    }

    /// Answers an [`AlternateRequest`](crate::rdma_cm::ConnEvent::AlternateRequest). An accepted
    /// path is loaded into the QP once it is resolved.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_answer_alternate(&self, id: CmId, accept: bool) -> Result<(), RequestError> {
        self.on(id, move |it, common, context| it.answer_alternate(accept, common, context))
    }

    /// Moves an id's events, including those that wait, to another channel.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_set_channel(
        &self,
        id: CmId,
        channel: &Arc<impl CmSink + 'static>,
    ) -> Result<(), RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        self.cm(move |cm, _| cm.set_channel(id, channel))
    }

    /// Destroys an id; no event of it follows. Requests that wait for a listener are rejected. A
    /// connection is disconnected, and its QPN stays held until TimeWait is over.
    ///
    /// # Errors
    ///
    /// See [`ConnError`](crate::rdma_cm::ConnError).
    pub fn cm_destroy(&self, id: CmId) -> Result<(), RequestError> {
        self.cm(move |cm, context| cm.destroy(id, context))
    }

    /// Waits until the messages of all connections have been sent, normally for at most 200 ms.
    fn see_off(&self) {
        let _ = self.calls.begin(|thread, reply| thread.see_off(reply));
    }

    /// Runs a call on one connection.
    fn on<R: Send + 'static>(
        &self,
        id: CmId,
        call: impl FnOnce(
            &mut Connection,
            &mut Common,
            &mut ServiceContext<'_>,
        ) -> Result<R, RequestError>
        + Send
        + 'static,
    ) -> Result<R, RequestError> {
        self.cm(move |cm, context| {
            cm.call(id, |connection, common| call(connection, common, context))
        })
    }

    /// Runs a call on the device's listeners and connections.
    fn cm<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Service, &mut ServiceContext<'_>) -> Result<R, RequestError>
        + Send
        + 'static,
    ) -> Result<R, RequestError> {
        self.calls.call(|thread| thread.with_connections(call))
    }
}
