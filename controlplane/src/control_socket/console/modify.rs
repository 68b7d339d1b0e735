//! `modify qp`.

use std::sync::Arc;

use rustix::io::Errno;
use uroce_command::request::{self, ModifyQp as Arguments};
use uroce_command::{Answer, Switch};
use uroce_transport::{PathMigState, QpChange, QpState};
use uroce_wire::{Gid, PathMtu, Pkey, Psn, Qkey, Qpn};

use super::objects::rights;
use super::{Begun, Console, Failure, FoundQp, Served, when_done};
use crate::path::{AddressVector, AlternateVector};
use crate::thread::ModifyQp;

impl Console {
    pub(super) fn modify(
        &mut self,
        arguments: &Arguments,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        let found = self.find_qp(arguments.qp, devices)?;
        let change = change(arguments)?;
        // The program cannot know that a command has changed its QP's state, peer or rights.
        let is_harmful = change.state.is_some()
            || change.access.is_some()
            || change.qkey.is_some()
            || change.dest_qpn.is_some();
        if is_harmful && !found.is_ours && !arguments.force {
            return Err(Failure::harmful(&format!("QP {:#08x}", arguments.qp)));
        }
        begin_modify(&found, change, vector(arguments), None)
    }
}

/// Begins a Modify QP, which may wait for a neighbour.
pub(super) fn begin_modify(
    found: &FoundQp,
    change: QpChange,
    vector: Option<AddressVector>,
    alternate: Option<AlternateVector>,
) -> Result<Begun, Failure> {
    let modify = Box::new(ModifyQp { qpn: found.qpn, change, vector, alternate });
    let pending = found.served.calls.start(move |thread, reply| thread.modify(modify, reply))?;
    Ok(when_done(pending, Answer::Done))
}

/// Returns the path in the arguments, if they have one.
fn vector(arguments: &Arguments) -> Option<AddressVector> {
    Some(AddressVector {
        sgid_index: arguments.sgid_index.unwrap_or(0),
        traffic_class: arguments.tclass.unwrap_or(0),
        flow_label: arguments.flow_label.unwrap_or(0),
        udp_source_port: arguments.udp_sport.unwrap_or(0),
        hop_limit: arguments.hop_limit.unwrap_or(64),
        service_level: arguments.sl.unwrap_or(0),
        ..AddressVector::to(Gid::from(arguments.dest_gid?))
    })
}

fn change(arguments: &Arguments) -> Result<QpChange, Failure> {
    let path_mtu = arguments.path_mtu.map(|bytes| {
        PathMtu::from_bytes(bytes.into()).ok_or_else(|| {
            let cause = format!("{bytes} is no path MTU");
            Failure::new(Errno::INVAL, cause, "choose 256, 512, 1024, 2048 or 4096")
        })
    });
    let given = |value: Option<u32>, name| value.map(|value| number(value, name)).transpose();
    Ok(QpChange {
        state: arguments.state.map(state_of),
        cur_state: arguments.cur_state.map(state_of),
        pkey: arguments.pkey.map(Pkey),
        port: arguments.port,
        access: arguments.access.as_deref().map(rights),
        path_mig_state: arguments.path_mig_state.map(|state| match state {
            request::PathMigState::Migrated => PathMigState::Migrated,
            request::PathMigState::Rearm => PathMigState::Rearm,
            request::PathMigState::Armed => PathMigState::Armed,
        }),
        rate_limit: arguments.rate_limit,
        path_mtu: path_mtu.transpose()?,
        dest_qpn: given(arguments.dest_qpn, "dest_qpn")?.map(Qpn::new),
        rq_psn: given(arguments.rq_psn, "rq_psn")?.map(Psn::new),
        max_dest_rd_atomic: arguments.max_dest_rd_atomic,
        min_rnr_timer: arguments.min_rnr_timer,
        sq_psn: given(arguments.sq_psn, "sq_psn")?.map(Psn::new),
        timeout: arguments.timeout,
        retry_cnt: arguments.retry_cnt,
        rnr_retry: arguments.rnr_retry,
        max_rd_atomic: arguments.max_rd_atomic,
        qkey: arguments.qkey.map(Qkey),
        en_sqd_async_notify: arguments.sqd_notify.map(Switch::is_on),
        selective_repeat: arguments.selective_repeat.map(Switch::is_on),
        udp_source_ports: arguments.udp_source_ports,
        keepalive_ms: arguments.keepalive,
        path: None,
        alt_path: None,
    })
}

/// Checks that a number has at most 24 bits.
pub(super) fn number(number: u32, name: &str) -> Result<u32, Failure> {
    if number >> 24 != 0 {
        let cause = format!("{name} {number:#x} has more than 24 bits");
        return Err(Failure::new(Errno::INVAL, cause, "choose at most 0xffffff"));
    }
    Ok(number)
}

/// Returns the state with this name.
pub(super) fn state_of(state: request::QpState) -> QpState {
    match state {
        request::QpState::Reset => QpState::Reset,
        request::QpState::Init => QpState::Init,
        request::QpState::Rtr => QpState::Rtr,
        request::QpState::Rts => QpState::Rts,
        request::QpState::Sqd => QpState::Sqd,
        request::QpState::Sqe => QpState::Sqe,
        request::QpState::Err => QpState::Err,
    }
}
