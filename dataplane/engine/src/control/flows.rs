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
    /// sniffer that of an lcore that does not answer. A QP that has a port gets flows of that port
    /// only.
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
        if record.has_port && record.port != port {
            return Err(FlowError::OtherPort(record.port).into());
        }
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
            // An lcore that does not answer finds that there is no sniffer ([`crate::rx`]).
            let _ = self.set_sniffed(port, false);
        }
    }

    /// Tells all lcores. The error is that of the last one that does not answer.
    fn set_sniffed(&mut self, port: usize, is_sniffed: bool) -> Result<(), ControlError> {
        let mut result = Ok(());
        for lcore in 0..self.lcores.len() {
            let sniffed = is_sniffed.then(Box::<Sniffed>::default);
            match self.call(lcore, SetSniffed { port, sniffed }) {
                Ok(former) => drop(former),
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::QpSpec;
    use crate::control::config::EngineConfig;
    use crate::control::engine::Engine;
    use crate::dpdk::eal::{Eal, EalConfig};
    use crate::dpdk::mbuf::{Mempool, PoolConfig};
    use crate::lane::binding::{PortAddresses, PortBinding};
    use crate::lane::loss::LossConfig;
    use crate::port::ring::ring_pair;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use uroce_transport::{QpCaps, QpType};

    const CAPS: QpCaps = QpCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };

    #[test] //= check W12 test
    fn an_lcore_that_was_not_told_of_the_end_stops_copying() {
        let eal = Eal::init(&EalConfig::default()).expect("EAL starts");
        let geometry = PoolConfig { count: 511, cache: 0, room: 2048, ..PoolConfig::default() };
        let pool = Mempool::create(eal, &geometry).expect("mempool");
        let (port, _peer) = ring_pair(eal, "sniffed", 1, 64, 1500, &pool).expect("rings");
        let (addresses, loss) = (PortAddresses::default(), LossConfig::default());
        let binding = PortBinding { port, pool, addresses, loss, bottleneck: None };
        let config = EngineConfig { max_qps: 16, max_mrs: 16, ..EngineConfig::default() };
        let (engine, mut control) = Engine::start(config, vec![binding]).expect("starts");
        let cq = engine.create_cq(4, None).expect("CQ");
        let (pd, send_cq, recv_cq) = (engine.alloc_pd(), Arc::clone(&cq), cq);
        let spec = QpSpec {
            qp_type: QpType::RawPacket,
            pd,
            caps: CAPS,
            send_cq,
            recv_cq,
            srq: None,
            xrcd: None,
            rdd: None,
            lcore: None,
            notices: false,
            congestion: None,
        };
        let qpn = control.create_qp(&spec).expect("QP").qpn;
        let mut is_over = |is_told: bool| {
            let id = control.create_flow(qpn, pd, 1, FlowKind::Sniffer).expect("a flow");
            if !is_told {
                control.flows.remove(id).expect("there");
            }
            // The lcore takes turns meanwhile.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(50) {
                std::thread::yield_now();
            }
            let former = control.call(0, SetSniffed { port: 0, sniffed: None }).expect("alive");
            let is_over = former.flatten().map(|sniffed| sniffed.is_over);
            let _ = control.destroy_flow(id);
            is_over
        };
        assert_eq!((is_over(true), is_over(false)), (Some(false), Some(true)));
    }
}
