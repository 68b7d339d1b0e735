//! Connections by IP address and port: requests to the connection manager.
//!
//! Each call returns as soon as the control plane has begun; what comes of it is an event on the
//! channel that was given.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uroce_wire::cm::RejectReason;

use super::Device;
use crate::connect::{
    BindOptions, CmId, CmRequest, CmSink, ConnParam, ConnQp, ConnectSpec, PathSpec, PortSpace,
};
use crate::request::{Reply, Request, RequestError};

impl Device {
    /// Has an address of the device and a port, or all addresses with an unspecified or a loopback
    /// one; port 0 is one that nobody has. Nobody is heard there before [`cm_begin_listening`](Self::cm_begin_listening).
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
        self.cm(|reply| CmRequest::Bind { channel, space, address, options, reply })
    }

    /// Listens where an id is bound, as [`cm_listen`](Self::cm_listen) does; or, where it listens,
    /// changes the backlog.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_begin_listening(&self, id: CmId, backlog: u32) -> Result<(), RequestError> {
        self.cm(|reply| CmRequest::BeginListening { id, backlog, reply })
    }

    /// Whether something listens on this device for requests to that address and port.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn cm_is_heard(&self, space: PortSpace, to: SocketAddr) -> Result<bool, RequestError> {
        self.cm(|reply| CmRequest::IsHeard { space, to, reply })
    }

    /// Looks the way to an address up: our port and address, the next hop's Ethernet address. Ends
    /// in [`AddressResolved`](crate::connect::CmEventKind::AddressResolved), or, at the latest when
    /// the time is over, in [`AddressError`](crate::connect::CmEventKind::AddressError); the id is
    /// gone then.
    ///
    /// # Errors
    ///
    /// No port leads there.
    pub fn cm_resolve(
        &self,
        channel: &Arc<impl CmSink + 'static>,
        path: PathSpec,
        timeout: Duration,
    ) -> Result<CmId, RequestError> {
        let channel: Arc<dyn CmSink> = channel.clone();
        let path = Box::new(path);
        self.cm(|reply| CmRequest::Resolve { channel, path, timeout, reply })
    }

    /// Listens at an address of the device, or at all with an unspecified or loopback one; IPv6's unspecified
    /// address hears IPv4, too. Port 0 is one that is free. Up to `backlog` requests wait to be
    /// accepted; further ones are rejected.
    ///
    /// Gives the listener's id and where it listens. Its events are
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
        self.cm(|reply| CmRequest::Listen { channel, space, address, backlog, reply })
    }

    /// Connects a QP, or asks for a UD QP. Ends in
    /// [`Established`](crate::connect::CmEventKind::Established) or
    /// [`Resolved`](crate::connect::CmEventKind::Resolved), or in an event that says why not.
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
        let spec = Box::new(spec);
        self.cm(|reply| CmRequest::Connect { channel, spec, reply })
    }

    /// Accepts a request with a QP. Ends in
    /// [`Established`](crate::connect::CmEventKind::Established), or in an event that says why not;
    /// a question for a UD QP is answered at once and has no event.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError); the request still waits.
    pub fn cm_accept(&self, id: CmId, qp: ConnQp, param: ConnParam) -> Result<(), RequestError> {
        let param = Box::new(param);
        self.cm(|reply| CmRequest::Accept { id, qp, param, reply })
    }

    /// Rejects a request, with up to 148 bytes (of a question for a UD QP 136) for the peer's
    /// application. The id is gone then.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_reject(&self, id: CmId, private_data: &[u8]) -> Result<(), RequestError> {
        self.cm_reject_for(id, RejectReason::CONSUMER, private_data)
    }

    /// The same for another reason than that the application does not want to. A question for a UD
    /// QP has no reasons.
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
        self.cm(|reply| CmRequest::Reject { id, reason, private_data, reply })?;
        self.see_off();
        Ok(())
    }

    /// Says that the [foreign](ConnQp::Foreign) QP of a connection is in RTS, after
    /// [`ConnectResponse`](crate::connect::CmEventKind::ConnectResponse); or, on the side that
    /// accepted, that a packet of the peer's has come.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_establish(&self, id: CmId) -> Result<(), RequestError> {
        self.cm(|reply| CmRequest::Establish { id, reply })
    }

    /// Ends a connection, with up to 220 bytes for the peer's application. The QP is in ERR when
    /// this returns; [`Disconnected`](crate::connect::CmEventKind::Disconnected) follows when the
    /// peer has answered or will not. One that is over, or ending, is left as it is.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_disconnect(&self, id: CmId, private_data: &[u8]) -> Result<(), RequestError> {
        let private_data = private_data.to_vec();
        self.cm(|reply| CmRequest::Disconnect { id, private_data, reply })?;
        self.see_off();
        Ok(())
    }

    /// Has both ends load another alternate path, and arms the QP with it once the peer agrees.
    /// Ends in [`AlternateLoaded`](crate::connect::CmEventKind::AlternateLoaded).
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_load_alternate(&self, id: CmId, path: PathSpec) -> Result<(), RequestError> {
        let path = Box::new(path);
        self.cm(|reply| CmRequest::LoadAlternate { id, path, reply })
    }

    /// Answers [`AlternateRequest`](crate::connect::CmEventKind::AlternateRequest).
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_answer_alternate(&self, id: CmId, accept: bool) -> Result<(), RequestError> {
        self.cm(|reply| CmRequest::AnswerAlternate { id, accept, reply })
    }

    /// Has an id's events, those that wait among them, go to another channel.
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
        self.cm(|reply| CmRequest::SetChannel { id, channel, reply })
    }

    /// Gives an id up: no event of it is given any more. A listener's requests that wait are
    /// rejected, a connection is disconnected; its QP's number stays taken until that is over.
    ///
    /// # Errors
    ///
    /// See [`CmError`](crate::connect::CmError).
    pub fn cm_destroy(&self, id: CmId) -> Result<(), RequestError> {
        self.cm(|reply| CmRequest::Destroy { id, reply })
    }

    /// Returns when a last word has left, or late enough: it has been said.
    fn see_off(&self) {
        let _ = self.ask(|reply| Request::SeeOff { reply });
    }

    fn cm<T>(&self, request: impl FnOnce(Reply<T>) -> CmRequest) -> Result<T, RequestError> {
        self.ask(|reply| Request::Connection(request(reply)))
    }
}
