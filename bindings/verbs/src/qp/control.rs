//! What is done to a queue pair that is not posting: modify, query, groups.

use std::sync::Arc;

use uroce_controlplane::{AlternateVector, Device, RequestError};
use uroce_engine::QpInfo;
use uroce_transport::{QpChange, QpState, QpType};
use uroce_wire::{Gid, Qpn};

use super::QpShared;
use crate::AddressVector;

/// The part of a queue pair that is not a queue. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct QpControl {
    pub(super) shared: Arc<QpShared>,
}

impl QpControl {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.shared.pd.device
    }

    /// The QP's number.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }

    /// Its transport service.
    pub fn qp_type(&self) -> QpType {
        self.shared.qp_type
    }

    /// The lcore that serves it.
    pub fn lcore(&self) -> usize {
        self.shared.lcore
    }

    /// Has a UD QP get a copy of each datagram to the group that its port receives; without effect
    /// if it does already. Routers and switches are not told: groups reach where the network
    /// floods them, which is the port's own link most often.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    pub fn attach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.shared.pd.device.attach_multicast(self.shared.qpn, group)
    }

    /// Takes the QP out of a group. It gets nothing to that address any more when this returns.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.shared.pd.device.detach_multicast(self.shared.qpn, group)
    }

    /// Modify QP: another state, other attributes, or both. A path is given as an address vector
    /// beside the change, whose own `path` stays empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn modify(
        &self,
        change: &QpChange,
        path: Option<&AddressVector>,
    ) -> Result<(), RequestError> {
        self.modify_paths(change, path, None)
    }

    /// Modify QP with an alternate path too; the change's own `alt_path` stays empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn modify_paths(
        &self,
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>,
    ) -> Result<(), RequestError> {
        self.shared.pd.device.modify_qp(self.shared.qpn, change, path, alternate)
    }

    /// RTS to SQD: no message begins any more, those that are under way are finished. If `notify`
    /// is set, [`EventKind::SqDrained`](crate::EventKind::SqDrained) tells when they are; until then
    /// Query QP says `sq_draining`. Receiving goes on.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn drain(&self, notify: bool) -> Result<(), RequestError> {
        let en_sqd_async_notify = Some(notify);
        self.modify(&QpChange { en_sqd_async_notify, ..QpChange::to(QpState::Sqd) }, None)
    }

    /// SQD to RTS, also where the queue is not drained yet: messages that were posted meanwhile
    /// begin, in order.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn resume(&self) -> Result<(), RequestError> {
        self.modify(&QpChange { cur_state: Some(QpState::Sqd), ..QpChange::to(QpState::Rts) }, None)
    }

    /// Query QP.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn query(&self) -> Result<QpInfo, RequestError> {
        self.shared.pd.device.query_qp(self.shared.qpn)
    }
}

impl AsRef<QpControl> for QpControl {
    fn as_ref(&self) -> &QpControl {
        self
    }
}
