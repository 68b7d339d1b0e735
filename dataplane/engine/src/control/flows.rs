//! Flows: which frames raw QPs receive.

use super::{Control, ControlError};
use crate::lane::sniffed::Sniffed;
use crate::lcore::command::SetSniffed;
use uroce_shared::table::flows::{Flow, FlowError, FlowId, FlowKind};
use uroce_shared::table::qp_table::Place;
use uroce_transport::Pd;
use uroce_wire::Qpn;

impl Control {
    /// Makes a flow of a raw QP of this domain at a port, counted from 1. When this returns, lcores
    /// give the QP the frames that the flow takes. A destroyed QP has no flows.
    ///
    /// # Errors
    /// [`ControlError::UnknownQp`], [`ControlError::NoSuchPort`], [`ControlError::Flow`], or for a
    /// sniffer that of an lcore that does not answer.
    pub fn create_flow(
        &mut self,
        qpn: Qpn,
        pd: Pd,
        port: u8,
        kind: FlowKind,
    ) -> Result<FlowId, ControlError> {
        let record = self.record(qpn)?;
        if !record.qp_type.is_raw() {
            return Err(FlowError::NotRaw.into());
        }
        self.binding(port)?;
        let place = Place { index: record.index, owner: usize::from(record.lcore) };
        let port = usize::from(port) - 1;
        let was_sniffed = self.flows.is_sniffed(port);
        let id = self.flows.add(Flow { kind, port, qpn, pd, place })?;
        if kind == FlowKind::Sniffer
            && !was_sniffed
            && let Err(error) = self.set_sniffed(port, true)
        {
            let _ = self.destroy_flow(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Destroys a flow. When this returns, its QP gets no more frames of it.
    ///
    /// # Errors
    /// [`ControlError::Flow`].
    pub fn destroy_flow(&mut self, id: FlowId) -> Result<(), ControlError> {
        let flow = self.flows.remove(id)?;
        if flow.kind == FlowKind::Sniffer {
            self.end_sniffing(flow.port);
        }
        Ok(())
    }

    /// Destroys all flows of a QP.
    pub(super) fn forget_flows(&mut self, qpn: Qpn) {
        for port in self.flows.forget(qpn) {
            self.end_sniffing(port);
        }
    }

    /// Ends the copying of sent frames if the port, counted from 0, has no sniffer left.
    fn end_sniffing(&mut self, port: usize) {
        if !self.flows.is_sniffed(port) {
            // An lcore that does not answer goes on copying, and no QP gets the copies.
            let _ = self.set_sniffed(port, false);
        }
    }

    fn set_sniffed(&mut self, port: usize, is_sniffed: bool) -> Result<(), ControlError> {
        for lcore in 0..self.lcores.len() {
            let sniffed = is_sniffed.then(Box::<Sniffed>::default);
            drop(self.call(lcore, SetSniffed { port, sniffed })?);
        }
        Ok(())
    }
}
