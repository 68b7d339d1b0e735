//! The connection manager with ids and events as plain values, for callers that keep the objects
//! themselves, such as a C interface.
//!
//! An id exists until it is destroyed; dropping the value has no effect. Each call returns as soon
//! as the control plane has begun its work. The result is an event, which is given to the sink
//! named in the call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uroce_controlplane::{Device, RequestError};
use uroce_wire::cm::RejectReason;

pub use uroce_controlplane::rdma_cm::{
    BindOptions, CmChannel, CmId, CmSink, ConnError, ConnEvent, ConnParam, ConnQp, ConnectRequest,
    ConnectSpec, Datagrams, PathSpec, PortSpace, ResolvedPath, is_own_node,
};

use crate::context::Context;
pub use uroce_controlplane::random_psn;
pub use uroce_transport::{MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC};

/// The connection manager of a device.
#[derive(Clone, Debug)]
pub struct Manager {
    device: Arc<Device>,
}

impl Context {
    /// The device's connection manager.
    pub fn connection_manager(&self) -> Manager {
        Manager { device: Arc::clone(&self.device) }
    }
}

/// Defines methods that forward to methods of `Device`.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident => $call:ident($($argument:ident: $kind:ty),*) -> $gives:ty;
    )*) => {
        impl Manager {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// See [`RequestError`].
                pub fn $name(&self, $($argument: $kind),*) -> Result<$gives, RequestError> {
                    self.device.$call($($argument),*)
                }
            )*
        }
    };
}

calls! {
    /// Binds a new id to an address and port. See [`Device::cm_bind`].
    bind => cm_bind(
        sink: &Arc<impl CmSink + 'static>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions
    ) -> (CmId, SocketAddr);
    /// Lets a bound id listen. See [`Device::cm_begin_listening`].
    listen => cm_begin_listening(id: CmId, backlog: u32) -> ();
    /// Whether a listener of this process is bound to an address. See [`Device::cm_is_heard`].
    is_heard => cm_is_heard(space: PortSpace, to: SocketAddr) -> bool;
    /// Resolves the path to a peer. See [`Device::cm_resolve`].
    resolve => cm_resolve(
        sink: &Arc<impl CmSink + 'static>,
        path: PathSpec,
        timeout: Duration
    ) -> CmId;
    /// Begins to connect. See [`Device::cm_connect`].
    connect => cm_connect(sink: &Arc<impl CmSink + 'static>, spec: ConnectSpec) -> CmId;
    /// Accepts a request. See [`Device::cm_accept`].
    accept => cm_accept(id: CmId, qp: ConnQp, param: ConnParam) -> ();
    /// Rejects a request. See [`Device::cm_reject_for`].
    reject => cm_reject_for(id: CmId, reason: RejectReason, private_data: &[u8]) -> ();
    /// Establishes a connection at the first packet of the peer. See [`Device::cm_establish`].
    establish => cm_establish(id: CmId) -> ();
    /// Ends a connection. See [`Device::cm_disconnect`].
    disconnect => cm_disconnect(id: CmId, private_data: &[u8]) -> ();
    /// Directs an id's events to another sink. See [`Device::cm_set_channel`].
    set_sink => cm_set_channel(id: CmId, sink: &Arc<impl CmSink + 'static>) -> ();
    /// Destroys an id. See [`Device::cm_destroy`].
    destroy => cm_destroy(id: CmId) -> ();
}
