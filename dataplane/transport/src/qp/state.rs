//! The seven states of a QP and the transitions of Modify QP, as tables.
//!
//! Read first: IBA 10 (queue pair states) and 11 (Modify QP).
//!
//! ```text
//!           RESET --> INIT --> RTR --> RTS <--> SQD          any --> RESET
//!                                       ^                    any --> ERR
//!                                      SQE  (UC, UD, RD, raw)
//! ```
//!
//! Invariants
//! - A change is refused, and changes nothing, if its transition is not in [`rule`]'s table, if a
//!   required attribute is missing, or if an attribute is not allowed.
//!
//! Not here: the automatic transitions to ERR and SQE, which the roles make when they find an
//! error.

use crate::attr::{AttrMask, PathMigState, QpChange, QpType};

/// State of a QP. `Display` prints the name that the verbs use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Created and not configured: no requests can be posted, packets are dropped.
    Reset,
    /// Initialized: receives may be posted; inbound packets are dropped.
    Init,
    /// Ready to receive: inbound requests are served.
    Rtr,
    /// Ready to send: fully operational.
    Rts,
    /// Send queue drain: messages in progress are finished, no message is started.
    Sqd,
    /// Send queue error (UC, UD, RD, raw): send requests complete flushed, the receive queue works.
    Sqe,
    /// Error: all work requests complete flushed; inbound packets are dropped.
    Err,
}

impl QpState {
    /// All states, in the order of their numbers.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];

    /// The state with this number, as `as u8` gives it; `None` if there is none.
    pub fn from_number(number: u8) -> Option<QpState> {
        QpState::ALL.get(usize::from(number)).copied()
    }

    /// Returns whether a send may be posted. In ERR and SQE it may, and completes flushed at once.
    //= check H5 — in SQD it waits for RTS
    //= check G2 — post_send in Reset, Init and RTR is an immediate error
    pub fn may_post_send(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err)
    }

    /// Returns whether a receive may be posted: in every state but RESET.
    //= check G2 — post_recv in Reset is an immediate error, from Init on it is accepted
    pub fn may_post_recv(self) -> bool {
        self != QpState::Reset
    }

    /// Returns whether inbound requests are served.
    //= check E11 — packets to a Reset or Init QP are dropped, in RTR they are served
    pub fn serves_requests(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Returns whether requests in the send queue complete flushed.
    pub(crate) fn flushes_sends(self) -> bool {
        matches!(self, QpState::Sqe | QpState::Err)
    }

    /// Returns whether the requester works on messages, at least on those already begun.
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

/// The attributes that a transition takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Attributes that must be given.
    pub required: AttrMask,
    /// Those required attributes that may instead have been given on an earlier transition.
    pub earlier: AttrMask,
    /// Attributes that may be given as well.
    pub optional: AttrMask,
}

/// The rule of a transition for a QP type; `None` if Modify QP has no such transition.
//= check H1 — exactly the legal set of state pairs
pub const fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    const NONE: AttrMask = AttrMask::empty();
    let rows = match qp_type {
        QpType::Rc => &RC,
        QpType::Uc => &UC,
        QpType::Ud => &UD,
        QpType::Gsi => &GSI,
        QpType::XrcSend => &XRC_SEND,
        QpType::XrcRecv => &XRC_RECV,
        QpType::Rd => &RD,
        QpType::Eec => &EEC,
        QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => &RAW,
    };
    let (required, optional) = match (from, to) {
        (_, Reset | Err) => (NONE, AttrMask::CUR_STATE),
        (Reset, Init) => (rows.init, NONE),
        (Init, Init) => (NONE, rows.init),
        (Init, Rtr) => (rows.rtr, rows.rtr_optional),
        (Rtr, Rts) => (rows.rts, rows.live),
        (Rts | Sqd, Rts) => (NONE, rows.live),
        //= check H8 — SQE returns to RTS; RC and XRC have no SQE
        //= check R6 — an EEC has no SQE either, an RD QP has
        (Sqe, Rts) if !qp_type.is_reliable() => (NONE, rows.recovered),
        (Rts, Sqd) => (NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (NONE, rows.drained),
        _ => return None,
    };
    //= check H2 — a timer or retry count may have been given earlier, with the path
    let earlier = required.intersection(PATIENCE);
    Some(Rule { required, earlier, optional })
}

/// A service's table: the attributes of each kind of transition.
struct Rows {
    /// Required from RESET to INIT, optional in INIT.
    init: AttrMask,
    /// Required from INIT to RTR.
    rtr: AttrMask,
    rtr_optional: AttrMask,
    /// Required from RTR to RTS.
    rts: AttrMask,
    /// Optional on each transition to RTS except from SQE, and in RTS.
    live: AttrMask,
    /// Optional from SQE to RTS.
    recovered: AttrMask,
    /// Optional in SQD.
    drained: AttrMask,
}

/// Timeout and retry counts. The verbs require them for RTS; the specification counts them among
/// the attributes of the path, so they may be given for RTR already.
const PATIENCE: AttrMask = AttrMask::TIMEOUT.union(AttrMask::RETRY_CNT).union(AttrMask::RNR_RETRY);

/// Attributes of a reliable responder, and of a reliable requester.
const RESPONDER: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER);
const REQUESTER: AttrMask = PATIENCE.union(AttrMask::MAX_QP_RD_ATOMIC);

const RC: Rows = Rows {
    rtr: UC.rtr.union(RESPONDER),
    rtr_optional: UC.rtr_optional.union(PATIENCE).union(RECOVERY).union(KEEPALIVE),
    rts: UC.rts.union(REQUESTER),
    live: UC.live.union(AttrMask::MIN_RNR_TIMER).union(KEEPALIVE),
    drained: UC.drained.union(AttrMask::PORT).union(RESPONDER).union(REQUESTER).union(KEEPALIVE),
    ..UC
};

/// RC's table, as far as it is the requester's.
//= check X6 — an initiator has no attributes of a responder
const XRC_SEND: Rows = Rows {
    rtr_optional: UC.rtr_optional.union(PATIENCE),
    rts: UC.rts.union(REQUESTER),
    drained: UC.drained.union(AttrMask::PORT).union(REQUESTER),
    ..UC
};

/// RC's table, as far as it is the responder's. The timeout is that of the path, to which a
/// migration returns.
//= check X6 — a target has none of a requester
const XRC_RECV: Rows = Rows {
    rtr: UC.rtr.union(RESPONDER),
    rtr_optional: UC.rtr_optional.union(AttrMask::TIMEOUT),
    rts: UC.rts.union(AttrMask::TIMEOUT),
    live: UC.live.union(AttrMask::MIN_RNR_TIMER),
    drained: UC.drained.union(AttrMask::PORT).union(AttrMask::TIMEOUT).union(RESPONDER),
    ..UC
};

/// An EEC's table: RC's, without the attributes that the RD QPs have.
//= check R6 — depth of inbound READs and ATOMICs, path, PSNs, timeout and retries are the EEC's
const EEC: Rows = Rows {
    init: AttrMask::PKEY.union(AttrMask::PORT),
    rtr: UC.rtr.union(AttrMask::MAX_DEST_RD_ATOMIC),
    rtr_optional: AttrMask::ALT_PATH.union(AttrMask::PKEY).union(PATIENCE),
    rts: UC.rts.union(REQUESTER),
    live: AttrMask::CUR_STATE.union(MIGRATION).union(AttrMask::RATE_LIMIT),
    recovered: AttrMask::empty(),
    drained: AttrMask::AV
        .union(MIGRATION)
        .union(AttrMask::PKEY)
        .union(AttrMask::PORT)
        .union(AttrMask::MAX_DEST_RD_ATOMIC)
        .union(REQUESTER),
};

/// The attributes of an RD QP that may be changed at any time.
const MEMBER: AttrMask = AttrMask::QKEY.union(AttrMask::ACCESS).union(AttrMask::MIN_RNR_TIMER);

/// An RD QP's table. It has neither path nor PSNs.
//= check R7 — Q_Key, access flags, RNR timer and depth of inbound READs and ATOMICs are the RD QP's
const RD: Rows = Rows {
    init: AttrMask::QKEY.union(AttrMask::ACCESS),
    rtr: AttrMask::MAX_DEST_RD_ATOMIC,
    rtr_optional: MEMBER,
    rts: AttrMask::empty(),
    live: AttrMask::CUR_STATE.union(MEMBER),
    recovered: AttrMask::CUR_STATE.union(MEMBER),
    drained: MEMBER.union(AttrMask::MAX_DEST_RD_ATOMIC),
};

/// Attributes that both ends of a connection have agreed on.
const RECOVERY: AttrMask = AttrMask::SELECTIVE_REPEAT.union(AttrMask::UDP_SOURCE_PORTS);

const KEEPALIVE: AttrMask = AttrMask::KEEPALIVE_MS;

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

/// GSI's table. Its port follows from its number, and it has no rate limit.
const GSI: Rows = Rows { init: AttrMask::PKEY.union(AttrMask::QKEY), live: UD.recovered, ..UD };

/// Table of the raw services: they have a port and no more.
//= check W8 — the attributes of a raw QP
const RAW: Rows = Rows {
    init: AttrMask::PORT,
    rtr: AttrMask::empty(),
    rtr_optional: AttrMask::empty(),
    rts: AttrMask::empty(),
    live: AttrMask::CUR_STATE.union(AttrMask::RATE_LIMIT),
    recovered: AttrMask::CUR_STATE,
    drained: AttrMask::empty(),
};

/// Reason for which a Modify QP was refused. A refused change changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// `cur_state` names a state other than the QP's.
    #[error("QP is in state {0}, not in the given current state")]
    CurrentState(QpState),
    /// Modify QP has no such transition.
    #[error("no transition from {from} to {to}")]
    Transition {
        /// State of the QP.
        from: QpState,
        /// State requested.
        to: QpState,
    },
    /// Attributes that the transition needs were given neither now nor before.
    #[error("missing attributes: {0:?}")]
    Missing(AttrMask),
    /// Attributes were given that the transition does not take.
    #[error("attributes not allowed here: {0:?}")]
    NotAllowed(AttrMask),
    /// An attribute's value is out of range.
    #[error("value out of range: {0:?}")]
    OutOfRange(AttrMask),
    /// REARM was requested, but no alternate path has been loaded.
    #[error("no alternate path is loaded")]
    NoAlternatePath,
    /// REARM was requested in a state other than MIGRATED.
    #[error("path migration state is {0}, not MIGRATED")]
    NotMigrated(PathMigState),
    /// A migration was requested in a state other than ARMED.
    #[error("path migration state is {0}, not ARMED")]
    NotArmed(PathMigState),
    /// A migration was requested for a QP that will not be in RTS.
    #[error("migration of a QP that is in state {0}, not in RTS")]
    MigrationState(QpState),
    /// ARMED was requested; only the protocol between both ends enters it.
    #[error("software does not set ARMED")]
    ArmedBySoftware,
    /// Attributes of a QP in SQD were given before it had drained.
    #[error("send queue is still draining")]
    Draining,
}

/// Checks a change against the QP's state and returns the state that it leads to. `given` has the
/// attributes given earlier, of those that may be.
pub(crate) fn check(
    qp_type: QpType,
    from: QpState,
    given: AttrMask,
    change: &QpChange,
) -> Result<QpState, ModifyError> {
    //= check H3 — a wrong `cur_state` is refused before anything else is checked
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

/// Checks that all required attributes are given and no other than allowed ones.
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
