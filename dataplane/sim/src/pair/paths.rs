//! The two paths of a pair: loading and arming the alternate path, migrating, cutting and mending.

use super::{Pair, Rails, Terms};
use uroce_transport::{
    AltPath, ModifyError, PathAttr, PathMigState, QpChange, QpState, QpType, StaticRate,
};

impl Pair {
    /// A pair in RTS on the first rail, both ends ARMED to migrate to the second.
    ///
    /// # Panics
    /// If the ends do not become ARMED by the exchange of one message each way.
    pub fn armed(change: impl FnOnce(&mut Terms)) -> Pair {
        let mut pair = Pair::two_paths(change);
        pair.arm();
        pair
    }

    /// A pair in RTS on the first rail, with a second one, observed by the independent checker.
    pub fn two_paths(change: impl FnOnce(&mut Terms)) -> Pair {
        Pair::with(|terms| {
            terms.rails = Rails::TwoPorts;
            terms.is_tapped = true;
            change(terms);
        })
    }

    /// Loads the rail that is not in use as alternate path at both ends, re-arms them, and
    /// exchanges packets so that both become ARMED.
    ///
    /// # Panics
    /// If the ends do not become ARMED.
    pub fn arm(&mut self) {
        for end in [0, 1] {
            self.rearm(end).expect("an end that has migrated");
        }
        // On UC there are no responses, so each end must send a request.
        let speakers = if self.terms.qp_type == QpType::Uc { 2 } else { 1 };
        for end in 0..speakers {
            self.write(end, 0);
        }
        self.run();
        self.completed.clear();
        for end in [0, 1] {
            assert_eq!(self.path_mig_state(end), PathMigState::Armed, "end {end}");
        }
    }

    /// The rail that an end sends on.
    pub fn rail(&self, end: usize) -> usize {
        self.world.rail_in_use(self.at(end))
    }

    /// State of path migration of an end.
    pub fn path_mig_state(&self, end: usize) -> PathMigState {
        self.qp(end).attr().path_mig_state
    }

    /// A rail as alternate path of an end, with the timeout of the terms.
    pub fn alternate(&self, end: usize, rail: usize) -> AltPath {
        AltPath {
            path: PathAttr { encap: self.path_on(end, rail), rate: StaticRate::MAX },
            port: self.node(end).rail(rail).port,
            pkey: self.qp(end).attr().pkey,
            timeout: self.terms.half[end].timeout,
        }
    }

    /// Loads the rail that an end does not use as alternate path, and sets REARM.
    ///
    /// # Errors
    /// The errors of [`uroce_transport::Qp::modify`].
    pub fn rearm(&mut self, end: usize) -> Result<(), ModifyError> {
        let alt_path = Some(self.alternate(end, 1 - self.rail(end)));
        let path_mig_state = Some(PathMigState::Rearm);
        self.modify(end, &QpChange { alt_path, path_mig_state, ..QpChange::default() })
    }

    /// Requests migration of an end, as its owner.
    ///
    /// # Errors
    /// The errors of [`uroce_transport::Qp::modify`].
    pub fn migrate(&mut self, end: usize) -> Result<(), ModifyError> {
        let path_mig_state = Some(PathMigState::Migrated);
        self.modify(end, &QpChange { path_mig_state, ..QpChange::default() })
    }

    /// Modifies an end's QP.
    ///
    /// # Errors
    /// The errors of [`uroce_transport::Qp::modify`].
    pub fn modify(&mut self, end: usize, change: &QpChange) -> Result<(), ModifyError> {
        self.world.modify(self.at(end), change)
    }

    /// Cuts a rail in both directions, without a report to the ends.
    pub fn cut(&mut self, rail: usize) {
        self.world.cut_rail(0, 1, rail);
        self.world.cut_rail(1, 0, rail);
    }

    /// Mends a rail in both directions.
    pub fn mend(&mut self, rail: usize) {
        self.world.mend_rail(0, 1, rail);
        self.world.mend_rail(1, 0, rail);
    }

    /// Cuts a rail and reports it to both ends: an ARMED end that uses it migrates at once.
    pub fn link_down(&mut self, rail: usize) {
        self.cut(rail);
        for end in [0, 1] {
            let is_armed = self.path_mig_state(end) == PathMigState::Armed;
            if is_armed && self.rail(end) == rail && self.qp(end).state() == QpState::Rts {
                self.migrate(end).expect("an armed QP in RTS");
            }
        }
    }
}
