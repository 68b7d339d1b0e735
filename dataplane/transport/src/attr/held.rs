//! The attributes as a QP keeps them: the path as the headers that it makes, each value once.
//!
//! What holds: the path that packets leave by and the one that Query QP gives back are the same
//! bytes.

use uroce_wire::{Encap, HeaderTemplate, PathMtu, Pkey, Psn, Qkey, Qpn};

use super::{AccessFlags, AltPath, PathAttr, PathMigState, QpAttr, QpChange};
use crate::qp::state::QpState;
use crate::rate::StaticRate;

/// A QP's attributes; see [`QpAttr`] for their meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// Everything in front of BTH.
    pub(crate) template: HeaderTemplate,
    pub(crate) port: u8,
    pub(crate) path_mig_state: PathMigState,
    pub(crate) pkey: Pkey,
    /// Of IPv4 it stands nowhere in the headers.
    flow_label: u32,
    pub(crate) rate: StaticRate,
    pub(crate) state: QpState,
    pub(crate) path_mtu: PathMtu,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) dest_qpn: Qpn,
    pub(crate) access: AccessFlags,
    pub(crate) rq_psn: Psn,
    pub(crate) sq_psn: Psn,
    pub(crate) qkey: Qkey,
    pub(crate) rate_limit: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) en_sqd_async_notify: bool,
    pub(crate) alt_path: Option<AltPath>,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            template: Encap::default().template(),
            port: 1,
            path_mig_state: PathMigState::Migrated,
            pkey: Pkey::DEFAULT,
            flow_label: 0,
            rate: StaticRate::MAX,
            state: QpState::Reset,
            path_mtu: PathMtu::B1024,
            max_dest_rd_atomic: 0,
            dest_qpn: Qpn::default(),
            access: AccessFlags::empty(),
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            qkey: Qkey(0),
            rate_limit: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            max_rd_atomic: 0,
            en_sqd_async_notify: false,
            alt_path: None,
        }
    }
}

impl Attributes {
    /// The path that packets are sent on.
    pub(crate) fn path(&self) -> PathAttr {
        let encap = Encap { flow_label: self.flow_label, ..self.template.encap() };
        PathAttr { encap, rate: self.rate }
    }

    pub(crate) fn set_path(&mut self, path: &PathAttr) {
        self.template = path.encap.template();
        self.flow_label = path.encap.flow_label;
        self.rate = path.rate;
    }

    /// All of them, as Query QP gives them back.
    pub(crate) fn query(&self) -> QpAttr {
        QpAttr {
            state: self.state,
            pkey: self.pkey,
            port: self.port,
            access: self.access,
            path: self.path(),
            alt_path: self.alt_path,
            path_mig_state: self.path_mig_state,
            rate_limit: self.rate_limit,
            path_mtu: self.path_mtu,
            dest_qpn: self.dest_qpn,
            rq_psn: self.rq_psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            sq_psn: self.sq_psn,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
            qkey: self.qkey,
            en_sqd_async_notify: self.en_sqd_async_notify,
        }
    }

    /// Writes the given attributes over the old ones. States are not touched.
    pub(crate) fn apply(&mut self, change: &QpChange) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        if let Some(path) = &change.path {
            self.set_path(path);
        }
        if change.alt_path.is_some() {
            self.alt_path = change.alt_path;
        }
        set(&mut self.pkey, change.pkey);
        set(&mut self.port, change.port);
        set(&mut self.access, change.access);
        set(&mut self.rate_limit, change.rate_limit);
        set(&mut self.path_mtu, change.path_mtu);
        set(&mut self.dest_qpn, change.dest_qpn);
        set(&mut self.rq_psn, change.rq_psn);
        set(&mut self.max_dest_rd_atomic, change.max_dest_rd_atomic);
        set(&mut self.min_rnr_timer, change.min_rnr_timer);
        set(&mut self.sq_psn, change.sq_psn);
        set(&mut self.timeout, change.timeout);
        set(&mut self.retry_cnt, change.retry_cnt);
        set(&mut self.rnr_retry, change.rnr_retry);
        set(&mut self.max_rd_atomic, change.max_rd_atomic);
        set(&mut self.qkey, change.qkey);
        set(&mut self.en_sqd_async_notify, change.en_sqd_async_notify);
    }
}
