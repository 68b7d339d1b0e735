//! The seven states of a QP and Modify QP's transitions, as tables.
//!
//! ```text
//!           RESET --> INIT --> RTR --> RTS <--> SQD          any --> RESET
//!                                       ^                    any --> ERR
//!                                      SQE  (UC, UD)
//! ```
//!
//! What holds: a transition that is not in [`rule`]'s table, lacks a required attribute or names
//! one that is not allowed is refused, and nothing changes.
//!
//! Not here: the automatic transitions to the Error state; they belong to the roles that find
//! the error. The rows of other services than RC come with those services.

use crate::attr::{AttrMask, QpChange};

/// A QP's state. `Display` spells it as the verbs do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Created, not configured: nothing is posted or processed.
    Reset,
    /// Receives may be posted; inbound packets are dropped.
    Init,
    /// Ready to receive: inbound requests are served.
    Rtr,
    /// Ready to send: fully operational.
    Rts,
    /// Send queue drain: messages in progress finish, none is started.
    Sqd,
    /// Send queue error (UC, UD): the send queue flushes, the receive queue works.
    Sqe,
    /// Everything posted completes flushed; inbound packets are dropped.
    Err,
}

impl QpState {
    /// All states, in the order of their number.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];

    /// The state of a number that `as u8` gave.
    pub fn from_number(number: u8) -> Option<QpState> {
        QpState::ALL.get(usize::from(number)).copied()
    }

    /// May a send be posted? In ERR it may, and completes flushed at once.
    //= check G2 — post_send in Reset, Init and RTR is an immediate error
    pub fn may_post_send(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err)
    }

    /// May a receive be posted? From Init on.
    //= check G2 — post_recv in Reset is an immediate error, from Init on it is taken
    pub fn may_post_recv(self) -> bool {
        self != QpState::Reset
    }

    /// Are inbound requests served?
    //= check E11 — packets to a Reset or Init QP are dropped, in RTR they are served
    pub fn serves_requests(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Does the requester work on messages, at least on those already begun?
    pub fn sends(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd)
    }
}

impl core::fmt::Display for QpState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        })
    }
}

/// Which attributes a transition takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// All of these must be given.
    pub required: AttrMask,
    /// Any of these may be given as well.
    pub optional: AttrMask,
}

/// The rule of an RC QP's transition, or `None` where Modify QP has no such transition.
//= check H1 — exactly the legal set of state pairs
pub const fn rule(from: QpState, to: QpState) -> Option<Rule> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    const NONE: AttrMask = AttrMask::empty();
    const INIT: AttrMask = AttrMask::PKEY.union(AttrMask::PORT).union(AttrMask::ACCESS);
    const RTR: AttrMask = AttrMask::AV
        .union(AttrMask::PATH_MTU)
        .union(AttrMask::DEST_QPN)
        .union(AttrMask::RQ_PSN)
        .union(AttrMask::MAX_DEST_RD_ATOMIC)
        .union(AttrMask::MIN_RNR_TIMER);
    const TIMERS: AttrMask =
        AttrMask::TIMEOUT.union(AttrMask::RETRY_CNT).union(AttrMask::RNR_RETRY);
    const RTS: AttrMask = TIMERS.union(AttrMask::SQ_PSN).union(AttrMask::MAX_QP_RD_ATOMIC);
    const LIVE: AttrMask =
        AttrMask::CUR_STATE.union(AttrMask::ACCESS).union(AttrMask::MIN_RNR_TIMER);
    const DRAINED: AttrMask = INIT
        .union(AttrMask::AV)
        .union(TIMERS)
        .union(AttrMask::MAX_QP_RD_ATOMIC)
        .union(AttrMask::MAX_DEST_RD_ATOMIC)
        .union(AttrMask::MIN_RNR_TIMER);

    let (required, optional) = match (from, to) {
        (_, Reset | Err) => (NONE, AttrMask::CUR_STATE),
        (Reset, Init) => (INIT, NONE),
        (Init, Init) => (NONE, INIT),
        (Init, Rtr) => (RTR, AttrMask::ACCESS.union(AttrMask::PKEY)),
        (Rtr, Rts) => (RTS, LIVE),
        (Rts, Rts) | (Sqd, Rts) => (NONE, LIVE),
        (Rts, Sqd) => (NONE, NONE),
        (Sqd, Sqd) => (NONE, DRAINED),
        _ => return None,
    };
    Some(Rule { required, optional })
}

/// Why a Modify QP was refused. A refused change changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// `cur_state` names another state than the QP is in.
    #[error("QP is in state {0}, not in the given current state")]
    CurrentState(QpState),
    /// There is no such transition.
    #[error("no transition from {from} to {to}")]
    Transition {
        /// Where the QP is.
        from: QpState,
        /// Where it was to go.
        to: QpState,
    },
    /// Attributes the transition needs were not given.
    #[error("missing attributes: {0:?}")]
    Missing(AttrMask),
    /// Attributes were given that the transition does not take.
    #[error("attributes not allowed here: {0:?}")]
    NotAllowed(AttrMask),
    /// An attribute's value is out of range.
    #[error("value out of range: {0:?}")]
    OutOfRange(AttrMask),
    /// Attributes of an SQD QP change only once it is drained.
    #[error("send queue is still draining")]
    Draining,
}

/// Checks a change against the QP's state and returns the state it leads to.
pub(crate) fn check(from: QpState, change: &QpChange) -> Result<QpState, ModifyError> {
    if change.cur_state.is_some_and(|state| state != from) {
        return Err(ModifyError::CurrentState(from));
    }
    let to = change.state.unwrap_or(from);
    let rule = rule(from, to).ok_or(ModifyError::Transition { from, to })?;
    let given = change.mask();
    let missing = rule.required - given;
    if !missing.is_empty() {
        return Err(ModifyError::Missing(missing));
    }
    let excess = given - rule.required - rule.optional;
    if !excess.is_empty() {
        return Err(ModifyError::NotAllowed(excess));
    }
    match change.out_of_range() {
        Some(bit) => Err(ModifyError::OutOfRange(bit)),
        None => Ok(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::{PathMtu, Pkey, Psn, Qpn};

    use crate::attr::AccessFlags;

    /// A change with every attribute given.
    fn everything() -> QpChange {
        QpChange {
            pkey: Some(Pkey::DEFAULT),
            port: Some(1),
            access: Some(AccessFlags::all()),
            path: Some(Default::default()),
            path_mtu: Some(PathMtu::B4096),
            dest_qpn: Some(Qpn::new(17)),
            rq_psn: Some(Psn::new(1)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(1),
            sq_psn: Some(Psn::new(1)),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..QpChange::default()
        }
    }

    /// A change to `to` that gives exactly the attributes of `mask`.
    fn exactly(from: QpState, to: QpState, mask: AttrMask) -> QpChange {
        let all = everything();
        let given = |bit| mask.contains(bit);
        QpChange {
            state: Some(to),
            cur_state: given(AttrMask::CUR_STATE).then_some(from),
            pkey: all.pkey.filter(|_| given(AttrMask::PKEY)),
            port: all.port.filter(|_| given(AttrMask::PORT)),
            access: all.access.filter(|_| given(AttrMask::ACCESS)),
            path: all.path.filter(|_| given(AttrMask::AV)),
            path_mtu: all.path_mtu.filter(|_| given(AttrMask::PATH_MTU)),
            dest_qpn: all.dest_qpn.filter(|_| given(AttrMask::DEST_QPN)),
            rq_psn: all.rq_psn.filter(|_| given(AttrMask::RQ_PSN)),
            max_dest_rd_atomic: all
                .max_dest_rd_atomic
                .filter(|_| given(AttrMask::MAX_DEST_RD_ATOMIC)),
            min_rnr_timer: all.min_rnr_timer.filter(|_| given(AttrMask::MIN_RNR_TIMER)),
            sq_psn: all.sq_psn.filter(|_| given(AttrMask::SQ_PSN)),
            timeout: all.timeout.filter(|_| given(AttrMask::TIMEOUT)),
            retry_cnt: all.retry_cnt.filter(|_| given(AttrMask::RETRY_CNT)),
            rnr_retry: all.rnr_retry.filter(|_| given(AttrMask::RNR_RETRY)),
            max_rd_atomic: all.max_rd_atomic.filter(|_| given(AttrMask::MAX_QP_RD_ATOMIC)),
        }
    }

    #[test] //= check H1 test
    fn all_pairs_of_states() {
        let mut drawn = String::new();
        for from in QpState::ALL {
            for to in QpState::ALL {
                drawn.push(if rule(from, to).is_some() { 'x' } else { '.' });
            }
            drawn.push('\n');
        }
        // Columns and rows: RESET INIT RTR RTS SQD SQE ERR. SQE->RTS is not an RC transition.
        let table = "xx....x\nxxx...x\nx..x..x\nx..xx.x\nx..xx.x\nx.....x\nx.....x\n";
        assert_eq!(drawn, table);
    }

    #[test] //= check H2 test
    fn each_required_attribute_is_missed_and_each_other_one_refused() {
        for from in QpState::ALL {
            for to in QpState::ALL {
                let Some(rule) = rule(from, to) else { continue };
                let allowed = rule.required | rule.optional;
                assert_eq!(check(from, &exactly(from, to, rule.required)), Ok(to));
                assert_eq!(check(from, &exactly(from, to, allowed)), Ok(to));
                for bit in AttrMask::all().iter() {
                    let without = check(from, &exactly(from, to, allowed - bit));
                    let with = check(from, &exactly(from, to, rule.required | bit));
                    if rule.required.contains(bit) {
                        assert_eq!(without, Err(ModifyError::Missing(bit)), "{from} {to}");
                    } else if !allowed.contains(bit) {
                        assert_eq!(with, Err(ModifyError::NotAllowed(bit)), "{from} {to}");
                    }
                }
            }
        }
    }

    #[test] //= check H3 test
    fn a_wrong_current_state_is_refused() {
        let change = QpChange { cur_state: Some(QpState::Sqd), ..QpChange::to(QpState::Err) };
        assert_eq!(check(QpState::Rts, &change), Err(ModifyError::CurrentState(QpState::Rts)));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let allowed = rule(QpState::Rtr, QpState::Rts).unwrap().required;
        let change = QpChange { timeout: Some(32), ..exactly(QpState::Rtr, QpState::Rts, allowed) };
        let refused = check(QpState::Rtr, &change);
        assert_eq!(refused, Err(ModifyError::OutOfRange(AttrMask::TIMEOUT)));
    }
}
