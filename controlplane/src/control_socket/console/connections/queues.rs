//! Queue pairs of connections, and the objects that they need.

use std::sync::Arc;

use uroce_command::Answer;
use uroce_command::request::{Create, CreateQp, QpType, Queues};
use uroce_wire::Qpn;

use super::ConnQueues;
use crate::call::RequestError;
use crate::control_socket::Served;
use crate::control_socket::console::objects::{
    device_named, device_of, find, of_different_devices,
};
use crate::control_socket::console::{Console, Failure};

/// Depth of a completion queue that is made for a connection.
const CQ_DEPTH: u32 = 1024;

impl Console {
    /// Returns the device and the objects for the QPs of a listener or connection. A domain or
    /// queue that is not given is the first one of the device, or a new one if there is none.
    pub(super) fn queues(
        &mut self,
        given: &Queues,
        devices: &[Arc<Served>],
    ) -> Result<(Arc<Served>, ConnQueues), Failure> {
        let named = given.device.as_deref().map(|name| device_named(Some(name), devices));
        let named = named.transpose()?.map(|served| served.key);
        let pd = given.pd.map(|pd| find(&self.pds, "PD", pd)).transpose()?.map(|pd| pd.device);
        let cq = given.cq.map(|cq| find(&self.cqs, "CQ", cq)).transpose()?.map(|cq| cq.device);
        let served = match named.or(pd).or(cq) {
            Some(key) => device_of(key, devices)?,
            None => device_named(None, devices)?,
        };
        let (key, device) = (served.key, Some(served.config.name.clone()));
        if [pd, cq].into_iter().flatten().any(|device| device != key) {
            return Err(of_different_devices());
        }
        let first_pd = || self.pds.iter().find(|(_, pd)| pd.device == key).map(|(pd, _)| *pd);
        let pd = match given.pd.or_else(first_pd) {
            Some(pd) => pd,
            None => self.made(&Create::Pd { device: device.clone() }, devices)?,
        };
        let first_cq = || self.cqs.iter().find(|(_, cq)| cq.device == key).map(|(cq, _)| *cq);
        let cq = match given.cq.or_else(first_cq) {
            Some(cq) => cq,
            None => self.made(&Create::Cq { depth: CQ_DEPTH, device }, devices)?,
        };
        Ok((Arc::clone(served), ConnQueues { pd, cq, depth: given.depth }))
    }

    /// Creates an object, and returns its number.
    fn made(&mut self, create: &Create, devices: &[Arc<Served>]) -> Result<u32, Failure> {
        match self.create(create, devices)? {
            Answer::Made(made) => Ok(made.number),
            _ => Err(RequestError::Gone.into()),
        }
    }

    /// Creates the RC QP of a connection.
    pub(super) fn create_rc(
        &mut self,
        queues: ConnQueues,
        served: &Arc<Served>,
    ) -> Result<Qpn, Failure> {
        let create = CreateQp {
            r#type: QpType::Rc,
            pd: queues.pd,
            scq: queues.cq,
            rcq: queues.cq,
            srq: None,
            depth: queues.depth,
            sge: 1,
            rdd: None,
            lcore: None,
        };
        match self.create_qp(&create, std::slice::from_ref(served))? {
            Answer::Made(made) => Ok(Qpn::new(made.number)),
            _ => Err(RequestError::Gone.into()),
        }
    }

    /// Destroys a QP that a command has made, if it still exists.
    pub(super) fn drop_qp(&mut self, qpn: Qpn, served: &Served) {
        if self.qps.remove(&(qpn.value(), served.key)).is_some() {
            // This fails only if the QP's lcore is lost, and then nothing uses the QP.
            let _ = served.calls.call(move |thread| thread.destroy_qp(qpn));
        }
    }
}
