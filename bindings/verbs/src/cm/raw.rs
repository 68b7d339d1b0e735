//! The connection manager without ownership: ids and events as values, for those who keep the
//! objects themselves, as a C interface does.
//!
//! An id lives until it is destroyed, whatever becomes of whoever has it. Each call returns as soon
//! as the control plane has begun; what comes of it is an event, given to the sink that was named.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uroce_controlplane::{Device, RequestError};
use uroce_wire::cm::RejectReason;

pub use uroce_controlplane::connect::{
    BindOptions, CmChannel, CmError, CmEvent, CmEventKind, CmId, CmSink, ConnParam, ConnQp,
    ConnectRequest, ConnectSpec, Datagrams, PathSpec, PortSpace, ResolvedPath, is_own_node,
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
    /// Its connection manager.
    pub fn connection_manager(&self) -> Manager {
        Manager { device: Arc::clone(&self.device) }
    }
}

/// Calls the device's function of the same meaning.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident => $call:ident($($argument:ident: $kind:ty),*) -> $gives:ty;)*) => {
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
    /// See [`Device::cm_bind`].
    bind => cm_bind(
        sink: &Arc<impl CmSink + 'static>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions
    ) -> (CmId, SocketAddr);
    /// See [`Device::cm_begin_listening`].
    listen => cm_begin_listening(id: CmId, backlog: u32) -> ();
    /// See [`Device::cm_is_heard`].
    is_heard => cm_is_heard(space: PortSpace, to: SocketAddr) -> bool;
    /// See [`Device::cm_resolve`].
    resolve => cm_resolve(
        sink: &Arc<impl CmSink + 'static>,
        path: PathSpec,
        timeout: Duration
    ) -> CmId;
    /// See [`Device::cm_connect`].
    connect => cm_connect(sink: &Arc<impl CmSink + 'static>, spec: ConnectSpec) -> CmId;
    /// See [`Device::cm_accept`].
    accept => cm_accept(id: CmId, qp: ConnQp, param: ConnParam) -> ();
    /// See [`Device::cm_reject_for`].
    reject => cm_reject_for(id: CmId, reason: RejectReason, private_data: &[u8]) -> ();
    /// See [`Device::cm_establish`].
    establish => cm_establish(id: CmId) -> ();
    /// See [`Device::cm_disconnect`].
    disconnect => cm_disconnect(id: CmId, private_data: &[u8]) -> ();
    /// See [`Device::cm_set_channel`].
    set_sink => cm_set_channel(id: CmId, sink: &Arc<impl CmSink + 'static>) -> ();
    /// See [`Device::cm_destroy`].
    destroy => cm_destroy(id: CmId) -> ();
}
