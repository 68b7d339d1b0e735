//! Control of a queue pair: Modify QP, Query QP, multicast groups.

use std::sync::Arc;

use uroce_controlplane::{AlternateVector, Device, RequestError};
use uroce_engine::QpInfo;
use uroce_transport::{QpChange, QpState, QpType};
use uroce_wire::{Gid, Qpn};

use crate::AddressVector;
use crate::core::QpShared;

/// The part of a queue pair for everything except posting. Clones are handles of the same queue
/// pair.
#[derive(Clone, Debug)]
pub struct QpControl {
    pub(super) shared: Arc<QpShared>,
}

impl QpControl {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.shared.pd.device
    }

    pub(crate) fn shared(&self) -> &Arc<QpShared> {
        &self.shared
    }

    /// The QP's number.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }

    /// The QP's transport service.
    pub fn qp_type(&self) -> QpType {
        self.shared.qp_type
    }

    /// The lcore that the QP runs on.
    pub fn lcore(&self) -> usize {
        self.shared.lcore
    }

    /// Attaches a UD QP to a multicast group: it gets a copy of each datagram to the group that its
    /// port receives. No effect if it is attached already. Routers and switches are not notified,
    /// so a group reaches only as far as the network floods it, usually the port's own link.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    pub fn attach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.shared.pd.device.attach_multicast(self.shared.qpn, group)
    }

    /// Detaches the QP from a multicast group. It gets no more datagrams of the group after this
    /// returns.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.shared.pd.device.detach_multicast(self.shared.qpn, group)
    }

    /// Modify QP: changes the state, other attributes, or both. The path is given as an address
    /// vector; `change.path` must be empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn modify(
        &self,
        change: &QpChange,
        path: Option<&AddressVector>,
    ) -> Result<(), RequestError> {
        self.modify_paths(change, path, None)
    }

    /// Modify QP with an alternate path too. `change.path` and `change.alt_path` must be empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn modify_paths(
        &self,
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>,
    ) -> Result<(), RequestError> {
        self.shared.pd.device.modify_qp(self.shared.qpn, change, path, alternate)
    }

    /// Modifies the QP from RTS to SQD: no new message is begun, and messages in progress are
    /// finished. Query QP reports `sq_draining` until then. If `notify` is set,
    /// [`EventKind::SqDrained`](crate::EventKind::SqDrained) follows. Receiving continues.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn drain(&self, notify: bool) -> Result<(), RequestError> {
        let en_sqd_async_notify = Some(notify);
        self.modify(&QpChange { en_sqd_async_notify, ..QpChange::to(QpState::Sqd) }, None)
    }

    /// Modifies the QP from SQD to RTS, even if the queue is not drained yet. Messages that were
    /// posted meanwhile begin, in order.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn resume(&self) -> Result<(), RequestError> {
        self.modify(&QpChange { cur_state: Some(QpState::Sqd), ..QpChange::to(QpState::Rts) }, None)
    }

    /// Query QP: the QP's present attributes and capabilities.
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
