//! EE contexts of RD: the connections of an end, over which its queue pairs go in turn.
//!
//! Queue pair i goes over EE context i modulo their number, at both ends. So the EE contexts of
//! both ends meet in their order, and a queue pair's peer answers over the same connection.

use super::Connected;
use super::end::End;
use super::qp::Qp;
use super::request::QKEY;
use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use crate::perf::plan::{Fields, Plan, Service};
use uroce::rd::{Address, Eec, Rdd};
use uroce::{ConnectOptions, ProtectionDomain, Qkey, QpInit, Qpn, RemoteBuffer};

/// An RD domain with its EE contexts.
pub(super) struct EeContexts {
    domain: Rdd,
    eecs: Vec<Eec>,
}

impl EeContexts {
    /// Creates the EE contexts of an end; `None` for services that have none.
    pub(super) fn create(node: &Node, plan: &Plan) -> Result<Option<Self>, BenchError> {
        if plan.service != Service::Rd {
            return Ok(None);
        }
        if node.has_congestion_control {
            return Err(BenchError::usage(
                "EE contexts have no congestion control: leave `congestion` out of the \
                 configuration, or -c RD",
            ));
        }
        let domain = node.context.open_rd_domain().step("opening an RD domain")?;
        let eec = |_| domain.create_eec().step("creating an EE context");
        let eecs = (0..plan.ee_contexts()).map(eec).collect::<Result<_, _>>()?;
        Ok(Some(Self { domain, eecs }))
    }

    /// Returns the EE context of a queue pair.
    fn of(&self, index: usize) -> &Eec {
        &self.eecs[index % self.eecs.len()]
    }

    /// Creates a queue pair. It has its own Q_Key, so that it serves no other one's requests.
    pub(super) fn create_qp(
        &self,
        node: &Node,
        index: usize,
        pd: &ProtectionDomain,
        init: &QpInit<'_>,
        memory: RemoteBuffer,
    ) -> Result<(Qp, End), BenchError> {
        let qp = pd.create_rd_qp(&self.domain, init).step("creating a QP")?;
        let eec = self.of(index).endpoint(PORT, node.gid_index).step("our address")?;
        let (qpn, eecn) = (qp.qpn().value(), eec.qpn.value());
        let qkey = QKEY.0 + index as u32;
        let end = End { qpn, eecn, qkey, ..End::new(&eec, memory) };
        Ok((Qp::Rd(qp, Address::default()), end))
    }

    /// Starts the queue pairs, and connects the EE contexts with the other end's.
    pub(super) fn connect(
        &self,
        qps: &mut [Qp],
        connected: &Connected,
        fields: &Fields,
        options: &ConnectOptions,
    ) -> Result<(), BenchError> {
        let ends = connected.local.iter().zip(&connected.remote);
        for (index, (qp, (ours, theirs))) in qps.iter_mut().zip(ends).enumerate() {
            if let Qp::Rd(qp, to) = qp {
                qp.start(Qkey(ours.qkey), options).step("starting")?;
                *to = Address {
                    eecn: self.of(index).eecn(),
                    dest_qpn: Qpn::new(theirs.qpn),
                    qkey: Qkey(theirs.qkey),
                };
            }
        }
        for (index, (eec, end)) in self.eecs.iter().zip(&connected.remote).enumerate() {
            let options = ConnectOptions { flow_label: fields.flow_label(index), ..*options };
            eec.connect(&end.ee_context(), &options).step("connecting")?;
        }
        Ok(())
    }
}
