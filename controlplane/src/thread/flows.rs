//! Flows of raw QPs.

use uroce_engine::{FlowId, FlowKind};
use uroce_transport::Pd;
use uroce_wire::Qpn;

use super::Thread;
use crate::call::RequestError;

impl Thread {
    /// Makes a flow of a raw QP at a port, counted from 1.
    pub(crate) fn create_flow(
        &mut self,
        qpn: Qpn,
        pd: Pd,
        port: u8,
        kind: FlowKind,
    ) -> Result<FlowId, RequestError> {
        Ok(self.control.create_flow(qpn, pd, port, kind)?)
    }

    /// Destroys a flow.
    pub(crate) fn destroy_flow(&mut self, flow: FlowId) -> Result<(), RequestError> {
        Ok(self.control.destroy_flow(flow)?)
    }
}
