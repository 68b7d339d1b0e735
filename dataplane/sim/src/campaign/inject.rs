//! Strikes: events from outside of the protocol that hit a connection. A QP is failed, reset or
//! destroyed, memory is deregistered, or work is posted that must fail.
//!
//! Invariants
//! - Each strike names the errors that it explains (see [`Excuses`]); the oracle refuses all
//!   others.
//! - A struck connection is connected again, with new PSNs, once all its frames have landed.
//!   Nothing of its former use may have an effect then.

use core::time::Duration;
use std::collections::VecDeque;

use uroce_wire::{Lkey, Placement, Psn, Rkey, Selectivity, Va};

use crate::campaign::chunks::{CANARY, Chunks};
use crate::campaign::workload::{Traffic, WORDS, Work};
use crate::world::memory::Mr;
use uroce_transport::{PostError, QpChange, QpState, SendOp, WcOpcode, WcStatus};

/// Errors of one end that a strike explains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excuses {
    /// The connection was struck: its QPs may go to ERR.
    pub(crate) is_struck: bool,
    /// Whether an RD QP has told why this EEC ended.
    pub(crate) is_explained: bool,
    /// This send, by its `wr_id`, must fail with this status.
    pub(crate) doomed: Option<(u64, WcStatus)>,
    /// A send may fail with this status.
    pub(crate) send: Option<WcStatus>,
    /// A receive may fail with this status.
    pub(crate) recv: Option<WcStatus>,
    /// Content of the target at the time when no peer could write to it any more.
    pub(crate) frozen: Option<Vec<u8>>,
}

impl Traffic {
    /// Runs the alarm of a connection that is struck now and then.
    pub(crate) fn strike(&mut self, connection: usize, token: u32) -> Result<(), String> {
        let ends = [2 * connection, 2 * connection + 1];
        if ends.iter().all(|end| self.ends[*end].is_dead) {
            self.take_up_anew(connection)?;
        } else if !ends.iter().any(|end| self.ends[*end].excuses.is_struck) {
            let side = self.rng.usize(..2);
            self.hit(ends[side], ends[1 - side])?;
        }
        let lag = Duration::from_micros(self.rng.u64(100..60_000));
        self.world.wake(self.world.now() + lag, token);
        Ok(())
    }

    fn hit(&mut self, a: usize, b: usize) -> Result<(), String> {
        let at = self.ends[a].at;
        let kind = self.rng.u8(..16);
        if kind >= 7 {
            return self.doom(a, b);
        }
        self.world.note(|| format!("strike {kind} at {at:?}"));
        for end in [a, b] {
            self.ends[end].excuses.is_struck = true;
            self.ends[end].is_dead = kind < 4;
        }
        match kind {
            0 => self.world.fail(at),
            1 => self.change(a, QpState::Err)?,
            2 => {
                self.forget(a);
                self.change(a, QpState::Reset)?;
            }
            3 => {
                self.forget(a);
                self.world.destroy(at);
            }
            4 => {
                self.deregister(a, self.ends[a].target);
                self.ends[b].excuses.send = Some(WcStatus::RemAccessErr);
            }
            5 => {
                self.deregister(a, self.ends[a].landing.mr);
                self.ends[a].excuses.send = Some(WcStatus::LocProtErr);
            }
            _ => {
                self.deregister(a, self.ends[a].inbox.mr);
                self.ends[a].excuses.recv = Some(WcStatus::LocProtErr);
                self.ends[b].excuses.send = Some(WcStatus::RemOpErr);
            }
        }
        // After these strikes the peer can no longer write: the QP or the key is gone.
        if kind < 5 {
            let me = &mut self.ends[a];
            me.excuses.frozen = Some(self.world.node(at.node).memory.bytes(me.target).to_vec());
        }
        Ok(())
    }

    fn change(&mut self, end: usize, state: QpState) -> Result<(), String> {
        let refused = |error| format!("a change to {state} was refused: {error}");
        self.world.modify(self.ends[end].at, &QpChange::to(state)).map_err(refused)
    }

    /// Forgets the posted requests of a QP that will not complete them.
    fn forget(&mut self, end: usize) {
        let me = &mut self.ends[end];
        for posted in me.sends.drain(..) {
            if let Work::SharedAdd { word, .. } = posted.work {
                self.shared[word].is_uncertain = true;
            }
        }
        me.recvs.clear();
        me.has_failed = true;
    }

    fn deregister(&mut self, end: usize, mr: Mr) {
        self.world.node_mut(self.ends[end].at.node).memory.deregister(mr);
    }

    /// Posts a work request that must fail; the end posts nothing after it.
    fn doom(&mut self, a: usize, b: usize) -> Result<(), String> {
        let me = &self.ends[a];
        if self.world.qp(me.at).send_wrs() == me.end.caps.max_send_wr || me.is_dead {
            return Ok(());
        }
        let (target, words) = (self.ends[b].target, self.ends[b].words);
        let (rkey, end) = (target.rkey(), u64::from(target.len()));
        let wrong = Rkey(rkey.0 ^ 1 << self.rng.u32(12..30));
        let write = |va, rkey| SendOp::Write { va, rkey, imm: None };
        let access = WcStatus::RemAccessErr;
        if self.ends[a].end.mix[4..] != [0; 2] && self.rng.bool() {
            return self.doom_placement(a, b, wrong);
        }
        let (op, len, status) = match self.rng.u8(..14) {
            0 => (write(target.va(0), wrong), 9, access),
            // One byte beyond the end, in the last of several packets.
            1 => (write(target.va(end - 5000.min(end)), rkey), 5000.min(end as u32) + 1, access),
            // The range wraps past 2^64.
            2 => (write(Va(u64::MAX - 7), rkey), 64, access),
            3 => (write(words.va(0), words.rkey()), 8, access),
            4 => (SendOp::Read { va: target.va(1), rkey: wrong }, 20, access),
            5 => (SendOp::Read { va: Va(u64::MAX - 9), rkey }, 64, access),
            6 => (SendOp::Read { va: target.va(end - 3), rkey }, 4, access),
            7 => {
                let op = SendOp::FetchAdd { va: words.va(4), rkey: words.rkey(), add: 1 };
                (op, 8, WcStatus::RemInvReqErr)
            }
            8 => {
                let va = Va(target.va(7).0 & !7);
                (SendOp::CompareSwap { va, rkey, compare: 0, swap: 1 }, 8, access)
            }
            9 => {
                let len = self.ends[b].end.max_recv_len + 1;
                self.ends[b].excuses.recv = Some(WcStatus::LocLenErr);
                (SendOp::Send { imm: None }, len, WcStatus::RemInvReqErr)
            }
            _ => return self.doom_locally(a, b),
        };
        self.post_doomed(a, b, op, len, status)
    }

    /// Posts an ATOMIC WRITE or FLUSH that the peer must refuse.
    fn doom_placement(&mut self, a: usize, b: usize, wrong: Rkey) -> Result<(), String> {
        let (target, words) = (self.ends[b].target, self.ends[b].words);
        let (rkey, end) = (target.rkey(), u64::from(target.len()));
        let flush = |va, rkey, len, selectivity| {
            let placement = Placement::GLOBAL.union(Placement::PERSISTENT);
            SendOp::Flush { va, rkey, len, placement, selectivity }
        };
        let write = |va, rkey| SendOp::AtomicWrite { va, rkey };
        let (range, region) = (Selectivity::Range, Selectivity::Region);
        let (access, invalid) = (WcStatus::RemAccessErr, WcStatus::RemInvReqErr);
        let (op, len, status) = match self.rng.u8(..8) {
            0 => (write(target.va(0), wrong), 8, access),
            1 => (write(target.va(self.rng.u64(1..8)), rkey), 8, invalid),
            2 => (write(Va(target.va(end).0 & !7), rkey), 8, access),
            // The region grants neither a WRITE nor a FLUSH.
            3 => (write(words.va(0), words.rkey()), 8, access),
            4 => (flush(words.va(0), words.rkey(), 8, region), 0, access),
            5 => (flush(target.va(1), rkey, target.len(), range), 0, access),
            // The range wraps past 2^64.
            6 => (flush(Va(u64::MAX - 7), rkey, 64, range), 0, access),
            _ => (flush(target.va(0), wrong, 1, region), 0, access),
        };
        self.post_doomed(a, b, op, len, status)
    }

    /// Posts a work request that must fail because its L_Keys are wrong.
    fn doom_locally(&mut self, a: usize, b: usize) -> Result<(), String> {
        let (target, words) = (self.ends[b].target, self.ends[b].words);
        let op = match self.rng.u8(..4) {
            0 => SendOp::Send { imm: None },
            1 => SendOp::Write { va: target.va(0), rkey: target.rkey(), imm: None },
            2 => SendOp::Read { va: target.va(0), rkey: target.rkey() },
            _ => SendOp::FetchAdd { va: words.va(0), rkey: words.rkey(), add: 1 },
        };
        self.post_doomed(a, b, op, 8, WcStatus::LocProtErr)
    }

    fn post_doomed(
        &mut self,
        a: usize,
        b: usize,
        op: SendOp,
        len: u32,
        status: WcStatus,
    ) -> Result<(), String> {
        if op.returns_data() {
            if self.land(a, len).is_none() {
                return Ok(());
            }
        } else {
            self.gather(a, len);
        }
        if matches!(op, SendOp::Flush { .. }) {
            self.sges.clear();
        }
        if status == WcStatus::LocProtErr {
            for sge in &mut self.sges {
                sge.lkey = Lkey(sge.lkey.0 ^ 1 << 20);
            }
        }
        let (wr_id, _) = self.post(a, op, false, WcOpcode::Send, Work::Doomed)?;
        for end in [a, b] {
            self.ends[end].excuses.is_struck = true;
        }
        self.ends[a].excuses.doomed = Some((wr_id, status));
        Ok(())
    }

    /// Checks, after the doomed send has failed, that all before it is done and it had no effect.
    pub(crate) fn judge_doomed(&self, index: usize) -> Result<(), String> {
        let peer = &self.ends[self.ends[index].peer];
        let memory = &self.world.node(peer.at.node).memory;
        let words: Vec<u8> = peer.shadow_words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        if memory.bytes(peer.target) != peer.shadow || memory.bytes(peer.words) != words {
            return Err("a request that was refused has changed memory".into());
        }
        Ok(())
    }

    /// Checks that memory is unchanged that no peer could write to.
    pub(crate) fn judge_frozen(&self, index: usize) -> Result<(), String> {
        let end = &self.ends[index];
        let memory = &self.world.node(end.at.node).memory;
        match &end.excuses.frozen {
            Some(bytes) if memory.bytes(end.target) != bytes => {
                Err(format!("memory was written that no peer may write to, at {:?}", end.at))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a QP in ERR has completed everything, except unsignalled work done before.
    pub(crate) fn judge_flushed(&self, index: usize) -> Result<(), String> {
        let end = &self.ends[index];
        let is_in_error = self.world.qp(end.at).state() == QpState::Err;
        let is_open = end.sends.iter().any(|posted| posted.is_signaled || end.has_failed);
        // A target's receives are not its own.
        let has_receives = end.queues.is_empty() && !end.recvs.is_empty();
        match is_in_error && (is_open || has_receives) {
            true => {
                Err(format!("{:?} and {:?} never complete", end.sends.front(), end.recvs.front()))
            }
            false => Ok(()),
        }
    }

    /// Connects a dead connection again, if no frame of it is in flight any more.
    fn take_up_anew(&mut self, connection: usize) -> Result<(), String> {
        let ends = [2 * connection, 2 * connection + 1];
        let is_busy = ends.iter().any(|end| self.world.qp(self.ends[*end].at).send_wrs() > 0);
        // Without a carrier there is no way back.
        let lives = |end: &usize| {
            self.world.qp(self.ends[self.ends[*end].carrier].at).state() == QpState::Rts
        };
        let is_stranded = self.connections[connection].is_carried() && !ends.iter().all(lives);
        if is_busy || is_stranded || self.world.is_in_flight(connection) {
            return Ok(());
        }
        for end in ends {
            self.judge_flushed(end)?;
            self.judge_frozen(end)?;
            self.forget(end);
            self.change(end, QpState::Reset)?;
        }
        for side in [0, 1] {
            self.connections[connection].ends[side].sq_psn = Psn::new(self.rng.u32(..));
            self.begin_anew(ends[side]);
        }
        // Requests of the former use that are still on the way are refused.
        self.connections[connection].qkey += 1;
        self.connect(connection);
        self.world.note(|| format!("connection {connection} is taken up anew"));
        for end in ends {
            self.world.wake(self.world.now(), 2 * end as u32);
            self.wake_receiver(end);
        }
        Ok(())
    }

    /// Resets the expectations of an end; the content of its target memory stays.
    fn begin_anew(&mut self, index: usize) {
        let me = &mut self.ends[index];
        self.world.forget_charges(me.at);
        let memory = &mut self.world.node_mut(me.at.node).memory;
        for mr in [me.target, me.landing.mr, me.inbox.mr] {
            memory.register_again(mr);
        }
        for mr in [me.landing.mr, me.inbox.mr] {
            memory.bytes_mut(mr).fill(CANARY);
        }
        me.shadow.copy_from_slice(memory.bytes(me.target));
        let words = memory.bytes(me.words).as_chunks::<8>().0;
        me.shadow_words = core::array::from_fn::<_, WORDS, _>(|at| u64::from_ne_bytes(words[at]));
        me.landing = Chunks::new(me.landing.mr);
        me.inbox = Chunks::new(me.inbox.mr);
        me.expected = VecDeque::new();
        me.excuses = Excuses::default();
        (me.has_failed, me.is_dead, me.patience) = (false, false, 0);
    }

    /// Returns whether a post was refused because the QP is in RESET; then it must have had no
    /// effect.
    pub(crate) fn is_refused(&self, index: usize, error: PostError) -> bool {
        let state = self.world.qp(self.ends[index].at).state();
        error == PostError::InvalidState && matches!(state, QpState::Reset)
    }
}
