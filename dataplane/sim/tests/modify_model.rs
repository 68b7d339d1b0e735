//! Modify QP compared with a model: random changes, legal and not, on QPs of every type. After each
//! change, all of Query QP must equal the model.
//!
//! The model has its own tables, written from those of the specification and the verbs; it uses
//! nothing of the core.

use core::time::Duration;

use fastrand::Rng;
use uroce_sim::{Pair, Rails};
use uroce_transport::AttrMask as M;
use uroce_transport::QpState::{self, Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use uroce_transport::{
    AccessFlags, AltPath, PathAttr, PathMigState, QpAttr, QpChange, QpType, SendOp, StaticRate,
};
use uroce_wire::{OpCode, PathMtu, Pkey, Psn, Qkey, Qpn};

const A: usize = 0;
const B: usize = 1;

/// Number of changes, over all types together.
const CHANGES: u32 = 1_000_000;

type Row = (QpState, QpState, M, M);

const CURRENT: M = M::CUR_STATE;
const APM: M = M::ALT_PATH.union(M::PATH_MIG_STATE);

/// Required and optional attributes of each transition that is not to RESET or ERR.
fn rows(qp_type: QpType) -> Vec<Row> {
    let none = M::empty();
    let notify = M::EN_SQD_ASYNC_NOTIFY;
    if matches!(qp_type, QpType::Ud | QpType::Gsi) {
        let is_ud = qp_type == QpType::Ud;
        let init = M::PKEY | M::QKEY | if is_ud { M::PORT } else { none };
        let live = CURRENT | M::QKEY | if is_ud { M::RATE_LIMIT } else { none };
        return vec![
            (Reset, Init, init, none),
            (Init, Init, none, init),
            (Init, Rtr, none, M::PKEY | M::QKEY),
            (Rtr, Rts, M::SQ_PSN, live),
            (Rts, Rts, none, live),
            (Rts, Sqd, none, notify),
            (Sqd, Sqd, none, M::PKEY | M::QKEY),
            (Sqd, Rts, none, live),
            (Sqe, Rts, none, CURRENT | M::QKEY),
        ];
    }
    if qp_type == QpType::Rd {
        return rows_of_rd();
    }
    if qp_type.is_raw() {
        return rows_of_raw();
    }
    let is_reliable = !matches!(qp_type, QpType::Uc);
    let serves =
        |mask: M| if matches!(qp_type, QpType::Rc | QpType::XrcRecv) { mask } else { none };
    let is_asking = matches!(qp_type, QpType::Rc | QpType::XrcSend | QpType::Eec);
    let asks = |mask: M| if is_asking { mask } else { none };
    let either = |mask: M| if is_reliable { mask } else { none };
    let init = M::PKEY | M::PORT | M::ACCESS;
    let patience = either(M::TIMEOUT) | asks(M::RETRY_CNT | M::RNR_RETRY);
    let responder = serves(M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER);
    let requester = patience | asks(M::MAX_QP_RD_ATOMIC);
    let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | responder;
    let rtr_optional = M::ALT_PATH | M::ACCESS | M::PKEY | patience;
    let live = CURRENT | M::ACCESS | APM | M::RATE_LIMIT | serves(M::MIN_RNR_TIMER);
    let drained = M::AV | M::ACCESS | M::PKEY | APM | either(M::PORT) | responder | requester;
    let mut rows = vec![
        (Reset, Init, init, none),
        (Init, Init, none, init),
        (Init, Rtr, rtr, rtr_optional),
        (Rtr, Rts, M::SQ_PSN | requester, live),
        (Rts, Rts, none, live),
        (Rts, Sqd, none, notify),
        (Sqd, Sqd, none, drained),
        (Sqd, Rts, none, live),
    ];
    if qp_type == QpType::Eec {
        // What a request may do, and the RNR timer, are the RD QP's.
        for row in &mut rows {
            (row.2, row.3) = (row.2 - M::ACCESS, row.3 - M::ACCESS);
        }
        rows[2].2 |= M::MAX_DEST_RD_ATOMIC;
        rows[6].3 |= M::MAX_DEST_RD_ATOMIC;
    }
    if !is_reliable {
        rows.push((Sqe, Rts, none, CURRENT | M::ACCESS));
    }
    rows
}

/// The table of the raw types.
fn rows_of_raw() -> Vec<Row> {
    let none = M::empty();
    let notify = M::EN_SQD_ASYNC_NOTIFY;
    let live = CURRENT | M::RATE_LIMIT;
    vec![
        (Reset, Init, M::PORT, none),
        (Init, Init, none, M::PORT),
        (Init, Rtr, none, none),
        (Rtr, Rts, none, live),
        (Rts, Rts, none, live),
        (Rts, Sqd, none, notify),
        (Sqd, Sqd, none, none),
        (Sqd, Rts, none, live),
        (Sqe, Rts, none, CURRENT),
    ]
}

/// The rows of an RD QP.
fn rows_of_rd() -> Vec<Row> {
    let none = M::empty();
    let own = M::QKEY | M::ACCESS | M::MIN_RNR_TIMER;
    let init = M::QKEY | M::ACCESS;
    vec![
        (Reset, Init, init, none),
        (Init, Init, none, init),
        (Init, Rtr, M::MAX_DEST_RD_ATOMIC, own),
        (Rtr, Rts, none, CURRENT | own),
        (Rts, Rts, none, CURRENT | own),
        (Rts, Sqd, none, M::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd, none, own | M::MAX_DEST_RD_ATOMIC),
        (Sqd, Rts, none, CURRENT | own),
        (Sqe, Rts, none, CURRENT | own),
    ]
}

struct Model {
    qp_type: QpType,
    rows: Vec<Row>,
    attr: QpAttr,
    /// Those of timeout, retry count and RNR retry count that were given with the path.
    given: M,
}

impl Model {
    fn row(&self, from: QpState, to: QpState) -> Option<(M, M)> {
        if matches!(to, Reset | Error) {
            return Some((M::empty(), CURRENT));
        }
        let row = self.rows.iter().find(|row| (row.0, row.1) == (from, to));
        row.map(|row| (row.2, row.3))
    }

    /// Returns whether the change must be granted.
    fn grants(&self, change: &QpChange) -> bool {
        let from = self.attr.state;
        let to = change.state.unwrap_or(from);
        let Some((required, optional)) = self.row(from, to) else { return false };
        let mask = change.mask();
        let patience = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY;
        let missing = required - mask - (self.given & patience);
        let is_right = change.cur_state.is_none_or(|state| state == from)
            && missing.is_empty()
            && (mask - required - optional).is_empty()
            && in_range(change);
        let stand = self.attr.path_mig_state;
        let may_migrate = match change.path_mig_state {
            None => true,
            Some(PathMigState::Armed) => false,
            Some(PathMigState::Rearm) => {
                let has_alternate = change.alt_path.or(self.attr.alt_path).is_some();
                stand == PathMigState::Migrated && has_alternate
            }
            Some(PathMigState::Migrated) => stand == PathMigState::Armed && to == Rts,
        };
        is_right && may_migrate
    }

    fn apply(&mut self, change: &QpChange) {
        let from = self.attr.state;
        let to = change.state.unwrap_or(from);
        match to {
            Reset => (self.attr, self.given) = (QpAttr::default(), M::empty()),
            Error => self.attr.state = to,
            _ => {
                self.given |= change.mask();
                write(&mut self.attr, change);
                self.attr.state = to;
                match change.path_mig_state {
                    Some(PathMigState::Migrated) => self.migrate(),
                    Some(state) => self.attr.path_mig_state = state,
                    None => {}
                }
            }
        }
    }

    fn migrate(&mut self) {
        let alternate = self.attr.alt_path.take().expect("armed with an alternate path");
        let AltPath { path, port, pkey, timeout } = alternate;
        let attr = &mut self.attr;
        (attr.path, attr.port, attr.pkey, attr.timeout) = (path, port, pkey, timeout);
        attr.path_mig_state = PathMigState::Migrated;
    }

    /// Applies a packet of the peer with MigReq 0 on the path in use.
    fn hear(&mut self) {
        if self.attr.path_mig_state == PathMigState::Rearm {
            self.attr.path_mig_state = PathMigState::Armed;
        }
    }

    /// Applies a local failure of a send.
    fn fail(&mut self) {
        self.attr.state = if self.qp_type == QpType::Rc { Error } else { Sqe };
    }
}

fn write(attr: &mut QpAttr, change: &QpChange) {
    macro_rules! set {
        ($($field:ident)*) => {
            $(if let Some(value) = change.$field {
                attr.$field = value;
            })*
        };
    }
    set!(pkey port access path rate_limit path_mtu dest_qpn rq_psn max_dest_rd_atomic min_rnr_timer
        sq_psn timeout retry_cnt rnr_retry max_rd_atomic qkey en_sqd_async_notify);
    attr.alt_path = change.alt_path.or(attr.alt_path);
}

fn in_range(change: &QpChange) -> bool {
    let most = |value: Option<u8>, max| value.is_none_or(|value| value <= max);
    most(change.max_dest_rd_atomic, 16)
        && most(change.max_rd_atomic, 128)
        && most(change.min_rnr_timer, 31)
        && most(change.timeout, 31)
        && most(change.retry_cnt, 7)
        && most(change.rnr_retry, 7)
        && change.dest_qpn != Some(Qpn::new(0))
        && change.port != Some(0)
        && change.alt_path.is_none_or(|alt| alt.port > 0 && alt.timeout <= 31)
}

/// A random value below `codes`, or rarely `codes` itself, the first value out of range.
fn code(rng: &mut Rng, codes: u8) -> u8 {
    if rng.u8(..200) == 0 { codes } else { rng.u8(..codes) }
}

fn any_path(rng: &mut Rng, pair: &Pair) -> PathAttr {
    let mut encap = pair.path_on(A, rng.usize(..2));
    (encap.hop_limit, encap.traffic_class) = (rng.u8(..), rng.u8(..));
    let rate = StaticRate::from_code(rng.u8(..=24)).unwrap_or_default();
    PathAttr { encap, rate }
}

fn any_port(rng: &mut Rng) -> u8 {
    if rng.u8(..200) == 0 { 0 } else { rng.u8(1..=2) }
}

/// A change with these attributes, all of random value.
fn change(rng: &mut Rng, pair: &Pair, to: Option<QpState>, from: QpState, mask: M) -> QpChange {
    let mut change = QpChange { state: to, ..QpChange::default() };
    macro_rules! give {
        ($($bit:ident $field:ident $value:expr;)*) => {
            $(if mask.contains(M::$bit) {
                change.$field = Some($value);
            })*
        };
    }
    give! {
        CUR_STATE cur_state if rng.u8(..10) == 0 { Init } else { from };
        PKEY pkey Pkey(rng.u16(..));
        PORT port any_port(rng);
        ACCESS access AccessFlags::from_bits_truncate(rng.u8(..));
        AV path any_path(rng, pair);
        ALT_PATH alt_path AltPath {
            path: any_path(rng, pair),
            port: any_port(rng),
            pkey: Pkey(rng.u16(..)),
            timeout: code(rng, 32),
        };
        PATH_MIG_STATE path_mig_state
            [PathMigState::Rearm, PathMigState::Migrated, PathMigState::Armed][rng.usize(..3)];
        RATE_LIMIT rate_limit rng.u32(..);
        PATH_MTU path_mtu PathMtu::from_code(rng.u8(1..=5)).expect("codes 1 to 5 are all");
        DEST_QPN dest_qpn Qpn::new(rng.u32(..200) * 7);
        RQ_PSN rq_psn Psn::new(rng.u32(..));
        MAX_DEST_RD_ATOMIC max_dest_rd_atomic code(rng, 17);
        MIN_RNR_TIMER min_rnr_timer code(rng, 32);
        SQ_PSN sq_psn Psn::new(rng.u32(..));
        TIMEOUT timeout code(rng, 32);
        RETRY_CNT retry_cnt code(rng, 8);
        RNR_RETRY rnr_retry code(rng, 8);
        MAX_QP_RD_ATOMIC max_rd_atomic code(rng, 129);
        QKEY qkey Qkey(rng.u32(..));
        EN_SQD_ASYNC_NOTIFY en_sqd_async_notify rng.bool();
    }
    change
}

/// A change that is mostly legal, or wrong in one or two attributes.
fn any_change(rng: &mut Rng, pair: &Pair, model: &Model) -> QpChange {
    let from = model.attr.state;
    let to = match rng.u8(..50) {
        0 => Reset,
        1 => Error,
        2..=6 => QpState::ALL[rng.usize(..7)],
        _ => {
            let ways: Vec<QpState> =
                model.rows.iter().filter(|row| row.0 == from).map(|row| row.1).collect();
            if ways.is_empty() { Reset } else { ways[rng.usize(..ways.len())] }
        }
    };
    let (required, optional) = model.row(from, to).unwrap_or_default();
    let mut mask = required | optional & M::from_bits_truncate(rng.u32(..) & rng.u32(..));
    if rng.u8(..8) == 0 {
        mask.toggle(M::from_bits_truncate(1 << rng.u32(..20)));
    }
    let state = (to != from || rng.bool()).then_some(to);
    change(rng, pair, state, from, mask)
}

/// Delivers a packet of the peer with MigReq 0 on the path in use.
fn hear(pair: &mut Pair, model: &mut Model) {
    let attr = model.attr;
    let is_connected = matches!(model.qp_type, QpType::Rc | QpType::Uc | QpType::Eec);
    if !is_connected || !matches!(attr.state, Rtr | Rts | Sqd | Sqe) || attr.pkey.0 & 0x7fff == 0 {
        return;
    }
    let opcode = match model.qp_type {
        QpType::Rc => OpCode::RC_ACKNOWLEDGE,
        QpType::Eec => OpCode::RD_ACKNOWLEDGE,
        _ => OpCode::UC_SEND_LAST,
    };
    let packet = pair.craft(B, opcode).bth(|bth| {
        (bth.mig_req, bth.pkey) = (false, Pkey(attr.pkey.0 | 0x8000));
        bth.psn = attr.sq_psn;
    });
    let mut back = attr.path.encap;
    (back.src, back.dst) = (back.dst, back.src);
    let rail = pair.node(A).rail_at(attr.port, back.dst);
    let frame = pair.frame_by(&back, &packet);
    let Some(rail) = rail else { return };
    pair.world.inject_by(rail, B as u16, A as u16, frame, Duration::ZERO);
    pair.run_for(Duration::ZERO);
    model.hear();
}

/// Posts a send with an invalid L_Key, which fails.
fn fail(pair: &mut Pair, model: &mut Model) {
    let is_connected = matches!(model.qp_type, QpType::Rc | QpType::Uc);
    if model.attr.state != Rts || !is_connected {
        return;
    }
    let mut sge = pair.local(A).sge(0, 8);
    sge.lkey.0 ^= 1 << 20;
    pair.post(A, SendOp::Send { imm: None }, &[sge]);
    model.fail();
}

#[test] //= check H10 test
//= check R6 test
//= check R7 test
fn a_million_random_changes_are_what_the_model_says() {
    let types = QpType::ALL;
    let (mut granted, mut migrated, mut refused) = (0, 0, 0);
    for (seed, qp_type) in types.into_iter().enumerate() {
        let mut rng = Rng::with_seed(seed as u64);
        let mut pair = Pair::reset(|terms| {
            (terms.qp_type, terms.rails) = (qp_type, Rails::TwoPorts);
            (terms.is_recorded, terms.region) = (false, 1 << 10);
        });
        let (rows, attr) = (rows(qp_type), pair.qp(A).attr());
        let mut model = Model { qp_type, rows, attr, given: M::empty() };
        let before = migrated;
        for step in 0..CHANGES / types.len() as u32 {
            match rng.u8(..16) {
                0..=2 => hear(&mut pair, &mut model),
                3 if rng.u8(..8) == 0 => fail(&mut pair, &mut model),
                _ => {}
            }
            assert_eq!(pair.qp(A).attr(), model.attr, "{qp_type}, before step {step}");
            let change = any_change(&mut rng, &pair, &model);
            let is_granted = model.grants(&change);
            let result = pair.modify(A, &change);
            let what = || format!("{qp_type}, step {step}: {change:?} of {:?}", model.attr);
            assert_eq!(result.is_ok(), is_granted, "{result:?}: {}", what());
            if is_granted {
                granted += 1;
                migrated += u32::from(change.path_mig_state == Some(PathMigState::Migrated));
                model.apply(&change);
            } else {
                refused += 1;
            }
            assert_eq!(pair.qp(A).attr(), model.attr, "{qp_type}, step {step}: {change:?}");
        }
        let migrates = matches!(qp_type, QpType::Rc | QpType::Uc | QpType::Eec);
        assert_eq!(migrated > before + 100, migrates, "{qp_type}: {}", migrated - before);
    }
    assert!(granted > CHANGES / 3 && refused > CHANGES / 20, "{granted} {refused}");
    assert!(migrated > 500, "{migrated}");
}
