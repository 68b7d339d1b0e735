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
//! the error.

use crate::attr::{AttrMask, PathMigState, QpChange, QpType};

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

    /// May a send be posted? In ERR and SQE it may, and completes flushed at once.
    //= check H5 — in SQD it waits for RTS
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

    /// Does what is in the send queue complete flushed?
    pub(crate) fn flushes_sends(self) -> bool {
        matches!(self, QpState::Sqe | QpState::Err)
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
    /// Those of them that count if they were given on an earlier transition.
    pub earlier: AttrMask,
    /// Any of these may be given as well.
    pub optional: AttrMask,
}

/// The rule of a transition of a QP of this type, or `None` where Modify QP has no such transition.
//= check H1 — exactly the legal set of state pairs
pub const fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    const NONE: AttrMask = AttrMask::empty();
    let rows = match qp_type {
        QpType::Rc => &RC,
        QpType::Uc => &UC,
        QpType::Ud => &UD,
        QpType::Gsi => &GSI,
    };
    let (required, optional) = match (from, to) {
        (_, Reset | Err) => (NONE, AttrMask::CUR_STATE),
        (Reset, Init) => (rows.init, NONE),
        (Init, Init) => (NONE, rows.init),
        (Init, Rtr) => (rows.rtr, rows.rtr_optional),
        (Rtr, Rts) => (rows.rts, rows.live),
        (Rts | Sqd, Rts) => (NONE, rows.live),
        //= check H8 — SQE ends in RTS again; RC has no SQE
        (Sqe, Rts) if !matches!(qp_type, QpType::Rc) => (NONE, rows.recovered),
        (Rts, Sqd) => (NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (NONE, rows.drained),
        _ => return None,
    };
    //= check H2 — a timer or retry count may have been given with the path; once it must be
    let earlier = required.intersection(PATIENCE);
    Some(Rule { required, earlier, optional })
}

/// What distinguishes a service's table: the attributes of each kind of transition.
struct Rows {
    /// Required by RESET to INIT, optional in INIT.
    init: AttrMask,
    /// Required by INIT to RTR.
    rtr: AttrMask,
    rtr_optional: AttrMask,
    /// Required by RTR to RTS.
    rts: AttrMask,
    /// Optional on each way to RTS but that from SQE, and in RTS.
    live: AttrMask,
    /// Optional from SQE to RTS.
    recovered: AttrMask,
    /// Optional in SQD.
    drained: AttrMask,
}

/// Part of the path for who thinks as the specification does, of the requester for the verbs.
const PATIENCE: AttrMask = AttrMask::TIMEOUT.union(AttrMask::RETRY_CNT).union(AttrMask::RNR_RETRY);

const RC: Rows = {
    let responder = AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER);
    let requester = PATIENCE.union(AttrMask::MAX_QP_RD_ATOMIC);
    Rows {
        rtr: UC.rtr.union(responder),
        rtr_optional: UC.rtr_optional.union(PATIENCE),
        rts: UC.rts.union(requester),
        live: UC.live.union(AttrMask::MIN_RNR_TIMER),
        drained: UC.drained.union(AttrMask::PORT).union(responder).union(requester),
        ..UC
    }
};

const MIGRATION: AttrMask = AttrMask::ALT_PATH.union(AttrMask::PATH_MIG_STATE);

const UC: Rows = Rows {
    init: AttrMask::PKEY.union(AttrMask::PORT).union(AttrMask::ACCESS),
    rtr: AttrMask::AV.union(AttrMask::PATH_MTU).union(AttrMask::DEST_QPN).union(AttrMask::RQ_PSN),
    rtr_optional: AttrMask::ALT_PATH.union(AttrMask::ACCESS).union(AttrMask::PKEY),
    rts: AttrMask::SQ_PSN,
    live: AttrMask::CUR_STATE.union(AttrMask::ACCESS).union(MIGRATION).union(AttrMask::RATE_LIMIT),
    recovered: AttrMask::CUR_STATE.union(AttrMask::ACCESS),
    drained: AttrMask::AV.union(MIGRATION).union(AttrMask::ACCESS).union(AttrMask::PKEY),
};

const UD: Rows = Rows {
    init: AttrMask::PKEY.union(AttrMask::PORT).union(AttrMask::QKEY),
    rtr: AttrMask::empty(),
    rtr_optional: AttrMask::PKEY.union(AttrMask::QKEY),
    rts: AttrMask::SQ_PSN,
    live: AttrMask::CUR_STATE.union(AttrMask::QKEY).union(AttrMask::RATE_LIMIT),
    recovered: AttrMask::CUR_STATE.union(AttrMask::QKEY),
    drained: AttrMask::PKEY.union(AttrMask::QKEY),
};

/// The port is the QP's by its number, and no rate bounds management.
const GSI: Rows = Rows { init: AttrMask::PKEY.union(AttrMask::QKEY), live: UD.recovered, ..UD };

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
    /// Attributes the transition needs were not given, now or before.
    #[error("missing attributes: {0:?}")]
    Missing(AttrMask),
    /// Attributes were given that the transition does not take.
    #[error("attributes not allowed here: {0:?}")]
    NotAllowed(AttrMask),
    /// An attribute's value is out of range.
    #[error("value out of range: {0:?}")]
    OutOfRange(AttrMask),
    /// Path migration is to be prepared, and no alternate path has been loaded.
    #[error("no alternate path is loaded")]
    NoAlternatePath,
    /// Path migration is prepared in state MIGRATED only.
    #[error("path migration state is {0}, not MIGRATED")]
    NotMigrated(PathMigState),
    /// A migration is to be begun, and the QP is not ready for it.
    #[error("path migration state is {0}, not ARMED")]
    NotArmed(PathMigState),
    /// A migration is to be begun, and the QP will not be in RTS.
    #[error("migration of a QP that is in state {0}, not in RTS")]
    MigrationState(QpState),
    /// `path_mig_state` was to be ARMED, which both ends together bring about.
    #[error("software does not set ARMED")]
    ArmedBySoftware,
    /// Attributes of an SQD QP change only once it is drained.
    #[error("send queue is still draining")]
    Draining,
}

/// Checks a change against the QP's state and returns the state it leads to. `given` are those of
/// the attributes given before that may be.
pub(crate) fn check(
    qp_type: QpType,
    from: QpState,
    given: AttrMask,
    change: &QpChange,
) -> Result<QpState, ModifyError> {
    //= check H3 — a wrong belief about the current state is refused before anything else is looked at
    if change.cur_state.is_some_and(|state| state != from) {
        return Err(ModifyError::CurrentState(from));
    }
    let to = change.state.unwrap_or(from);
    let rule = rule(qp_type, from, to).ok_or(ModifyError::Transition { from, to })?;
    check_mask(rule, given, change.mask())?;
    match change.out_of_range() {
        Some(bit) => Err(ModifyError::OutOfRange(bit)),
        None => Ok(to),
    }
}

/// Are all attributes given that must be, and no other than may be?
//= check H2 — one missing or one too many, and nothing changes
fn check_mask(rule: Rule, before: AttrMask, given: AttrMask) -> Result<(), ModifyError> {
    let missing = rule.required - given - (rule.earlier & before);
    if !missing.is_empty() {
        return Err(ModifyError::Missing(missing));
    }
    let excess = given - rule.required - rule.optional;
    if !excess.is_empty() {
        return Err(ModifyError::NotAllowed(excess));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
