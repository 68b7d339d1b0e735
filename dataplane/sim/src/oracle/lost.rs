//! Connections that end although no request is outstanding: a keepalive was not answered.

use crate::campaign::workload::Traffic;
use uroce_transport::{AsyncEvent, QpChange, QpState};

impl Traffic {
    /// Checks the QPs that have given their peers up since the last call. To be called before the
    /// completions of that input are judged.
    ///
    /// # Errors
    /// Description of one that had no reason to.
    pub(crate) fn judge_lost_peers(&mut self) -> Result<(), String> {
        let mut happened = core::mem::take(&mut self.happened);
        self.world.take_events(&mut happened);
        for pair in happened.windows(2).filter(|pair| pair[0].at == pair[1].at) {
            // A QP that had requests completes the first one with the error, and is judged by that.
            if (pair[0].event, pair[1].event) == (AsyncEvent::PeerLost, AsyncEvent::QpFatal) {
                let at = pair[0].at;
                let index = self.by_slot[usize::from(at.node)][usize::from(at.qp)];
                self.judge_lost_peer(index).map_err(|what| format!("{what}; {at:?}"))?;
            }
        }
        happened.clear();
        self.happened = happened;
        Ok(())
    }

    /// Checks one QP that has given its peer up while it had no request.
    fn judge_lost_peer(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let is_peer_down = self.world.qp(self.ends[peer].at).state() != QpState::Rts;
        if !is_peer_down {
            self.explain(index)?;
        }
        if !self.ends[peer].is_dead {
            self.dead += 1;
        }
        self.ends[index].excuses.is_struck = true;
        self.ends[index].is_dead = true;
        self.ends[peer].is_dead = true;
        Ok(())
    }

    /// Turns all keepalives off, so that the run comes to rest.
    ///
    /// # Errors
    /// A change was refused.
    pub(crate) fn end_keepalives(&mut self) -> Result<(), String> {
        for index in 0..self.ends.len() {
            let at = self.ends[index].at;
            if self.world.qp(at).state().sends() && self.world.qp(at).attr().keepalive_ms > 0 {
                let change = QpChange { keepalive_ms: Some(0), ..QpChange::default() };
                // A QP in SQD takes a change of its attributes once it has drained.
                let result = self.world.modify(at, &change);
                result.map_err(|error| format!("the keepalive was not turned off: {error}"))?;
            }
        }
        Ok(())
    }
}
