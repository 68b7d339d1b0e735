//! Control operations during traffic: paths are cut and mended, QPs migrate, are re-armed, drained,
//! resumed and modified.
//!
//! Invariants
//! - A request is granted exactly if the oracle's own table allows it.
//! - Both ends of a connection are re-armed at the same time, once both use the same path, as two
//!   applications do that exchange LAP and APR.

use core::time::Duration;

use uroce_wire::Pkey;

use crate::campaign::workload::Traffic;
use crate::world::checker::apm::Stand;
use crate::world::names::At;
use uroce_transport::{
    AltPath, ModifyError, PathAttr, PathMigState, QpChange, QpState, QpType, StaticRate,
    rnr_timeout,
};

/// Longest RNR timer code that is set; longer ones only make a run longer.
const RNR_TIMER_MAX: u8 = 16;

impl Traffic {
    /// Runs one control operation of a connection, and sets the alarm for the next.
    pub(crate) fn control(
        &mut self,
        connection: usize,
        token: u32,
        is_posting: bool,
    ) -> Result<(), String> {
        let Some(pace) = self.connections[connection].control_pace else { return Ok(()) };
        if is_posting {
            self.operate(connection)?;
        } else {
            // Ends operations in progress, so that all work can finish.
            self.mend(connection);
            for side in [0, 1] {
                self.resume(2 * connection + side)?;
            }
        }
        let lag = Duration::from_nanos(self.rng.u64(1..=2 * pace.as_nanos() as u64));
        self.world.wake(self.world.now() + lag, token);
        Ok(())
    }

    fn operate(&mut self, connection: usize) -> Result<(), String> {
        let side = self.rng.usize(..2);
        let end = 2 * connection + side;
        if self.ends[end].is_dead || self.ends[end ^ 1].is_dead {
            return Ok(());
        }
        let mut kind = self.rng.u8(..24);
        if self.connections[connection].is_carried() {
            // An RD QP has no path and no rate of its own.
            kind = 17 + kind % 5;
        }
        self.world.note(|| format!("operation {kind} at end {end}"));
        self.operations += 1;
        match kind {
            0..=3 => self.migrate(end),
            4 => self.migrate(end).and_then(|()| self.migrate(end ^ 1)),
            5..=10 => self.rearm(connection),
            11 | 12 => {
                self.cut(end);
                Ok(())
            }
            13..=16 => {
                self.mend(connection);
                Ok(())
            }
            17 => self.drain(end),
            18..=20 => self.resume(end),
            21 => self.set_rnr_timer(end),
            22 => self.set_rate(end),
            _ => self.want_armed(end),
        }
    }

    fn at(&self, end: usize) -> At {
        self.ends[end].at
    }

    fn grant(&mut self, end: usize, change: &QpChange) -> Result<(), String> {
        let at = self.at(end);
        let refused = |error: ModifyError| format!("{change:?} at {at:?} was refused: {error}");
        self.world.modify(at, change).map_err(refused)
    }

    fn refuse(&mut self, end: usize, change: &QpChange) -> Result<(), String> {
        let at = self.at(end);
        match self.world.modify(at, change) {
            Err(_) => Ok(()),
            Ok(()) => Err(format!("{change:?} at {at:?} was granted")),
        }
    }

    /// Requests a migration of one end. It must succeed if the end is ARMED and in RTS.
    fn migrate(&mut self, end: usize) -> Result<(), String> {
        let at = self.at(end);
        let may = self.world.stand(at) == Stand::Armed && self.state(end) == QpState::Rts;
        let wanted = Some(PathMigState::Migrated);
        let change = QpChange { path_mig_state: wanted, ..QpChange::default() };
        if may { self.grant(end, &change) } else { self.refuse(end, &change) }
    }

    /// Requests ARMED, which must be refused: only both ends together can enter it.
    fn want_armed(&mut self, end: usize) -> Result<(), String> {
        let wanted = Some(PathMigState::Armed);
        self.refuse(end, &QpChange { path_mig_state: wanted, ..QpChange::default() })
    }

    /// Re-arms both ends for the other path, if both use the same path and are MIGRATED.
    fn rearm(&mut self, connection: usize) -> Result<(), String> {
        let ends = [2 * connection, 2 * connection + 1];
        let is_ready = |end: usize| {
            self.world.stand(self.at(end)) == Stand::Migrated && self.state(end) == QpState::Rts
        };
        let rails = ends.map(|end| self.world.rail_in_use(self.at(end)));
        if !ends.iter().all(|end| is_ready(*end)) || rails[0] != rails[1] {
            return Ok(());
        }
        for end in ends {
            let alt_path = Some(self.alternate(end, 1 - rails[0]));
            let wanted = Some(PathMigState::Rearm);
            let change = QpChange { alt_path, path_mig_state: wanted, ..QpChange::default() };
            self.grant(end, &change)?;
        }
        Ok(())
    }

    fn alternate(&mut self, end: usize, rail: usize) -> AltPath {
        let (me, peer) = (self.at(end), self.at(end ^ 1));
        let [from, to] = [me, peer].map(|at| self.world.qp(at).qpn());
        let connection = self.connections[end / 2];
        let encap = self.path(&connection, [me.node, peer.node], rail, from, to);
        let port = self.world.node(me.node).rail(rail).port;
        let pkey = [Pkey::DEFAULT, Pkey(0x8001)][rail];
        let rate = self.any_rate();
        let timeout = self.ends[end].end.timeout + self.rng.u8(..=1);
        AltPath { path: PathAttr { encap, rate }, port, pkey, timeout }
    }

    /// Cuts the path that an end uses, or the other one, in one direction or both.
    fn cut(&mut self, end: usize) {
        let (me, peer) = (self.at(end), self.at(end ^ 1));
        let used = self.world.rail_in_use(me);
        let rail = if self.rng.u8(..4) == 0 { 1 - used } else { used };
        self.world.cut_rail(me.node, peer.node, rail);
        if self.rng.bool() {
            self.world.cut_rail(peer.node, me.node, rail);
        }
        self.world.note(|| format!("rail {rail} is cut"));
    }

    /// Mends all paths between the nodes of a connection.
    fn mend(&mut self, connection: usize) {
        let [a, b] = [0, 1].map(|side| self.at(2 * connection + side).node);
        for rail in [0, 1] {
            self.world.mend_rail(a, b, rail);
            self.world.mend_rail(b, a, rail);
        }
    }

    fn drain(&mut self, end: usize) -> Result<(), String> {
        if self.state(end) != QpState::Rts {
            return Ok(());
        }
        let notify = self.rng.bool().then_some(true);
        let change = QpChange { en_sqd_async_notify: notify, ..QpChange::to(QpState::Sqd) };
        self.grant(end, &change)
    }

    /// Resumes a QP in SQD; a modification before that is allowed only if it has drained.
    fn resume(&mut self, end: usize) -> Result<(), String> {
        if self.state(end) != QpState::Sqd {
            return Ok(());
        }
        let at = self.at(end);
        let attr = self.world.qp(at).attr();
        let path = PathAttr { rate: self.any_rate(), ..attr.path };
        let code = Some(attr.min_rnr_timer);
        let change = match self.connections[end / 2].is_carried() {
            true => QpChange { min_rnr_timer: code, ..QpChange::to(QpState::Sqd) },
            false => QpChange { path: Some(path), ..QpChange::to(QpState::Sqd) },
        };
        if self.world.qp(at).is_drained() {
            self.grant(end, &change)?;
        } else {
            self.refuse(end, &change)?;
        }
        self.grant(end, &QpChange::to(QpState::Rts))
    }

    fn set_rnr_timer(&mut self, end: usize) -> Result<(), String> {
        let qp_type = self.world.qp(self.at(end)).qp_type();
        let has_none = matches!(qp_type, QpType::XrcSend | QpType::Eec);
        if self.state(end) != QpState::Rts || has_none {
            return Ok(());
        }
        let code = self.rng.u8(1..=RNR_TIMER_MAX);
        debug_assert!(rnr_timeout(code) < Duration::from_millis(4));
        self.grant(end, &QpChange { min_rnr_timer: Some(code), ..QpChange::default() })
    }

    fn set_rate(&mut self, end: usize) -> Result<(), String> {
        if self.state(end) != QpState::Rts {
            return Ok(());
        }
        // At 2 Gb/s and more, a long answer still arrives within the ACK timeout.
        let kbps = if self.rng.bool() { 0 } else { self.rng.u32(2_000_000..50_000_000) };
        self.grant(end, &QpChange { rate_limit: Some(kbps), ..QpChange::default() })
    }

    fn any_rate(&mut self) -> StaticRate {
        match self.rng.bool() {
            true => StaticRate::MAX,
            false => StaticRate::from_code(self.rng.u8(2..=24)).expect("a code of the verbs"),
        }
    }

    fn state(&self, end: usize) -> QpState {
        self.world.qp(self.at(end)).state()
    }

    /// Checks that two live ends use the same path, or that one is about to follow the other.
    pub(crate) fn judge_paths(&self, connection: usize) -> Result<(), String> {
        let ends = [2 * connection, 2 * connection + 1];
        let is_over = |end: &usize| self.ends[*end].is_dead || self.state(*end) == QpState::Err;
        if ends.iter().any(is_over) {
            return Ok(());
        }
        let stands = ends.map(|end| self.world.stand(self.at(end)));
        let rails = ends.map(|end| self.world.rail_in_use(self.at(end)));
        // After one end has migrated, the other follows when it receives a packet, or times out.
        let is_legal = match stands {
            [Stand::Migrated, Stand::Armed] | [Stand::Armed, Stand::Migrated] => true,
            [Stand::Migrated, Stand::Rearm] | [Stand::Rearm, Stand::Migrated] => true,
            _ => rails[0] == rails[1],
        };
        match is_legal {
            true => Ok(()),
            false => Err(format!("connection {connection} is {stands:?} by rails {rails:?}")),
        }
    }
}
