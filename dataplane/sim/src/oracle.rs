//! The oracle: checks each completion, and the memory at the end.
//!
//! Rules
//! - Every work request completes once, in order; unsignalled ones are done when a later one is.
//! - A message is received once, in order, with its bytes, length, immediate data and solicited
//!   mark; a completed WRITE, READ or ATOMIC has had exactly its effect.
//! - After a FLUSH for persistence everything written before it is durable.
//! - In the end every byte that no message was sent to is unchanged.
//! - Additions to a shared word form one unbroken chain of former values.
//! - A transport retry error is explained by faults (see [`Traffic::explain`]); other errors have a
//!   cause.
//! - Without any fault nothing is sent twice, except after an RNR NAK.

mod last;
mod lost;

use uroce_wire::{Placement, Qpn};

use crate::campaign::plan::{RETRY_CNT, Role};
use crate::campaign::workload::{Content, PostedRecv, PostedSend, Traffic, Work};
use crate::faults::Rates;
use crate::world::fault_plan::TROUBLE_MAX;
use crate::world::node::Completed;
use uroce_transport::{Cqe, QpState, QpType, Side, WcOpcode, WcStatus, ack_timeout};

impl Traffic {
    /// Checks one completion.
    pub(crate) fn judge(&mut self, completed: &Completed) -> Result<(), String> {
        self.world.note(|| format!("{:?} {:?}", completed.at, completed.cqe));
        let index = self.by_slot[usize::from(completed.at.node)][usize::from(completed.at.qp)];
        let qpn: Qpn = self.world.qp(completed.at).qpn();
        if completed.cqe.qpn != qpn {
            return Err(format!("a completion of {:?} at {qpn:?}", completed.cqe.qpn));
        }
        match completed.side {
            Side::Send => self.judge_send(index, &completed.cqe),
            Side::Recv => self.judge_recv(index, &completed.cqe),
        }
        .map_err(|what| format!("{what}; {:?} at {:?}", completed.cqe, completed.at))
    }

    fn judge_send(&mut self, index: usize, cqe: &Cqe) -> Result<(), String> {
        loop {
            let Some(posted) = self.ends[index].sends.pop_front() else {
                return Err("a send completes that is not posted".into());
            };
            if posted.wr_id != cqe.wr_id {
                if posted.is_signaled || self.ends[index].has_failed {
                    return Err(format!("{posted:?} should complete first"));
                }
                self.succeed(index, &posted)?;
                continue;
            }
            if cqe.status != WcStatus::Success {
                return self.judge_send_error(index, &posted, cqe.status);
            }
            if !posted.is_signaled {
                return Err("an unsignalled send completes".into());
            }
            let byte_len = match posted.work {
                Work::Read { len, .. } => len,
                Work::Atomic { .. } | Work::SharedAdd { .. } => 8,
                Work::Send | Work::Write { .. } | Work::Flush { .. } | Work::Doomed => 0,
            };
            if (cqe.opcode, cqe.byte_len) != (posted.opcode, byte_len) {
                return Err(format!("{posted:?} completes as something else"));
            }
            return self.succeed(index, &posted);
        }
    }

    /// Checks the effect of a send work request that has succeeded.
    fn succeed(&mut self, index: usize, posted: &PostedSend) -> Result<(), String> {
        self.messages += 1;
        match self.world.qp(self.ends[index].at).qp_type() {
            QpType::Rd => self.rd_messages += 1,
            QpType::XrcSend => self.xrc_messages += 1,
            _ => {}
        }
        if self.ends[index].has_failed {
            return Err(format!("{posted:?} succeeds after a failure"));
        }
        let peer = self.ends[index].peer;
        let first = self.ends[peer].expected.front();
        if first.is_some_and(|expected| expected.wr_id <= posted.wr_id) {
            return Err(format!("{posted:?} succeeds before it is received"));
        }
        match posted.work {
            Work::Doomed => Err(format!("{posted:?} succeeds, which cannot be")),
            Work::Send => Ok(()),
            Work::Write { offset, len } => self.check_target(peer, offset, len, posted.wr_id),
            Work::Flush { offset, len, placement } => {
                let is_durable = placement.contains(Placement::PERSISTENT);
                if is_durable {
                    self.check_durable(peer, offset, len, posted.wr_id)
                } else {
                    Ok(())
                }
            }
            Work::Read { offset, len, chunk } => {
                self.bytes += u64::from(len);
                let [me, peer] = self.ends.get_disjoint_mut([index, peer]).expect("two ends");
                let read = &peer.shadow[offset as usize..(offset + len) as usize];
                let memory = &mut self.world.node_mut(me.at.node).memory;
                me.landing.check(&chunk, memory, [read], len)?;
                me.landing.release(&chunk, memory, len)
            }
            Work::Atomic { chunk, former } => {
                let me = &mut self.ends[index];
                let memory = &mut self.world.node_mut(me.at.node).memory;
                me.landing.check(&chunk, memory, [&former.to_ne_bytes()[..]], 8)?;
                me.landing.release(&chunk, memory, 8)
            }
            Work::SharedAdd { chunk, word, add } => {
                let me = &mut self.ends[index];
                let memory = &mut self.world.node_mut(me.at.node).memory;
                let mut former = [0; 8];
                let landed = chunk.pieces.slices(memory.bytes(me.landing.mr)).flatten();
                former.iter_mut().zip(landed).for_each(|(to, from)| *to = *from);
                self.shared[word].done.push((u64::from_ne_bytes(former), add));
                me.landing.release(&chunk, memory, 8)
            }
        }
    }

    /// Checks that the peer's range holds the WRITE's bytes, unless a later WRITE changes them.
    fn check_target(
        &mut self,
        owner: usize,
        offset: u32,
        len: u32,
        wr_id: u64,
    ) -> Result<(), String> {
        let writer = self.ends[owner].peer;
        let is_written_again = self.ends[writer].sends.iter().any(|posted| match posted.work {
            Work::Write { offset: start, len: count, .. } => {
                posted.wr_id > wr_id && offset < start + count && start < offset + len
            }
            _ => false,
        });
        // After a failure any of the later WRITEs may have been executed.
        if is_written_again || self.ends[writer].has_failed {
            return Ok(());
        }
        self.bytes += u64::from(len);
        let owner = &self.ends[owner];
        let range = offset as usize..(offset + len) as usize;
        let memory = &self.world.node(owner.at.node).memory;
        if memory.bytes(owner.target)[range.clone()] == owner.shadow[range] {
            Ok(())
        } else {
            Err(format!("WRITE {wr_id} of {len} bytes to {offset} is not in memory"))
        }
    }

    /// Checks that what was written to the peer's range before a FLUSH would survive a loss of
    /// power. Bytes that a later WRITE changes may or may not.
    fn check_durable(
        &mut self,
        owner: usize,
        offset: u32,
        len: u32,
        wr_id: u64,
    ) -> Result<(), String> {
        let writer = &self.ends[self.ends[owner].peer];
        if writer.has_failed {
            return Ok(());
        }
        self.bytes += u64::from(len);
        let owner = &self.ends[owner];
        let memory = &self.world.node(owner.at.node).memory;
        let mut durable = memory.durable(owner.target).to_vec();
        for posted in writer.sends.iter().filter(|posted| posted.wr_id > wr_id) {
            if let Work::Write { offset, len } = posted.work {
                let range = offset as usize..(offset + len) as usize;
                durable[range.clone()].copy_from_slice(&owner.shadow[range]);
            }
        }
        let range = offset as usize..(offset + len) as usize;
        if durable[range.clone()] == owner.shadow[range] {
            Ok(())
        } else {
            Err(format!("FLUSH {wr_id} of {len} bytes from {offset} has left some behind"))
        }
    }

    fn judge_send_error(
        &mut self,
        index: usize,
        posted: &PostedSend,
        status: WcStatus,
    ) -> Result<(), String> {
        if let Work::SharedAdd { word, .. } = posted.work {
            self.shared[word].is_uncertain = true;
        }
        let me = &self.ends[index];
        if me.has_failed {
            return match status {
                WcStatus::WrFlushErr => Ok(()),
                _ => Err("more than one error before the flush".into()),
            };
        }
        let peer = me.peer;
        let excuses = &me.excuses;
        let is_read = matches!(posted.work, Work::Read { .. });
        let is_carried = self.connections[index / 2].is_carried();
        let is_over = self.is_carrier_over(index);
        let is_peer_gone = !self.world.qp(self.ends[peer].at).state().serves_requests();
        match status {
            // The EEC has ended because of another RD QP's request, or of this one.
            WcStatus::InvEecStateErr | WcStatus::RetryExcErr if is_carried && is_over => {
                self.explain_end(index)?;
            }
            // The peer's RD QP has failed, or was reset.
            WcStatus::RemInvRdReqErr if is_carried && (is_peer_gone || excuses.is_struck) => {}
            // The QP went to ERR for a reason other than one of its sends.
            WcStatus::WrFlushErr if excuses.is_struck && self.is_in_error(index) => {}
            WcStatus::RetryExcErr if self.is_peer_down(index) => {}
            // The answer was lost before the key was deregistered; the repeated READ gets none.
            WcStatus::RetryExcErr
                if is_read && !is_carried && excuses.send == Some(WcStatus::RemAccessErr) => {}
            WcStatus::RetryExcErr => self.explain(index)?,
            _ if excuses.doomed == Some((posted.wr_id, status)) => self.judge_doomed(index)?,
            _ if excuses.send == Some(status) => {}
            _ => return Err(format!("{posted:?} fails for no reason")),
        }
        if !self.ends[peer].is_dead {
            self.dead += 1;
        }
        self.ends[index].has_failed = true;
        self.ends[index].is_dead = true;
        self.ends[peer].is_dead = true;
        Ok(())
    }

    /// Returns whether what the peer's end travels by, itself or its EEC, has left RTS.
    fn is_peer_down(&self, index: usize) -> bool {
        let carrier = self.ends[self.ends[index].peer].carrier;
        self.world.qp(self.ends[carrier].at).state() != QpState::Rts
    }

    fn is_carrier_over(&self, index: usize) -> bool {
        self.is_in_error(self.ends[index].carrier)
    }

    fn is_in_error(&self, index: usize) -> bool {
        self.world.qp(self.ends[index].at).state() == QpState::Err
    }

    /// Checks that the EEC of an RD QP had a reason to end, unless another of its RD QPs has told
    /// one: answers that are late come to an EEC that has ended, and look like progress.
    fn explain_end(&mut self, index: usize) -> Result<(), String> {
        let carrier = self.ends[index].carrier;
        if !self.ends[carrier].excuses.is_explained && !self.is_peer_down(index) {
            self.explain(index)?;
        }
        self.ends[carrier].excuses.is_explained = true;
        Ok(())
    }

    /// Checks that the faults explain why the transport retries ran out.
    ///
    /// Each of the `RETRY_CNT + 1` charges in a row stands for a packet on this connection, in
    /// either direction, that was lost, damaged, delayed or duplicated. So at least as many faults
    /// must have hit the connection since the first of these packets was sent: one ACK timeout, the
    /// longest delay and the longest lag of a copy before that charge. An end with a timeout
    /// shorter than the round trip needs no faults.
    fn explain(&self, index: usize) -> Result<(), String> {
        let end = &self.ends[self.ends[index].carrier];
        let needed = usize::from(RETRY_CNT) + 1;
        let progress = self.world.last_progress(end.at);
        let charges = self.world.charges_of(end.at).iter().filter(|charge| **charge >= progress);
        let Some(first) = charges.clone().rev().nth(needed - 1) else {
            return Err(format!("only {} retries were charged", charges.count()));
        };
        if end.end.is_hasty {
            return Ok(());
        }
        let timeout = ack_timeout(self.world.qp(end.at).attr().timeout).unwrap_or_default();
        let window = timeout + Rates::MAX_DELAY + Rates::MAX_LATE + TROUBLE_MAX;
        let faults = self.world.faults_of(end.at);
        let seen = faults.iter().filter(|fault| **fault + window >= *first).count();
        if seen >= needed {
            Ok(())
        } else {
            Err(format!("retries ran out after {seen} faults, {needed} would explain it"))
        }
    }

    /// Returns whether packets may come late.
    fn may_be_late(&self) -> bool {
        let faults = self.world.faults();
        faults.duplicated + faults.delayed > 0
    }

    fn judge_recv(&mut self, index: usize, cqe: &Cqe) -> Result<(), String> {
        // With several queues the message determines which receive is next.
        let srqn = self.ends[index].expected.front().map(|expected| expected.srqn);
        let recvs = &mut self.ends[index].recvs;
        let is_next = |it: &PostedRecv| srqn.is_none_or(|srqn| it.srqn == srqn);
        let place = recvs.iter().position(is_next).unwrap_or(0);
        let Some(posted) = recvs.remove(place) else {
            return Err("a receive completes that is not posted".into());
        };
        self.wake_receiver(index);
        if posted.wr_id != cqe.wr_id {
            return Err(format!("{posted:?} should complete first"));
        }
        if cqe.status != WcStatus::Success {
            return self.judge_recv_error(index, &posted, cqe.status);
        }
        let Some(expected) = self.ends[index].expected.pop_front() else {
            return Err("a message is received that was not sent".into());
        };
        let opcode = match expected.content {
            Content::Source(_) => WcOpcode::Recv,
            Content::Target { .. } => WcOpcode::RecvRdmaWithImm,
        };
        let reported = (cqe.opcode, cqe.byte_len, cqe.imm, cqe.solicited);
        if reported != (opcode, expected.len, expected.imm, expected.solicited) {
            return Err(format!("{expected:?} was to be received"));
        }
        self.judge_source(index, cqe)?;
        match expected.content {
            Content::Source(pieces) => {
                self.bytes += u64::from(expected.len);
                let peer = &self.ends[self.ends[index].peer];
                let (node, source) = (peer.at.node, peer.source);
                let me = &mut self.ends[index];
                let sent = pieces.slices(self.world.node(node).memory.bytes(source));
                let memory = &self.world.node(me.at.node).memory;
                me.inbox_of(posted.srqn).check(&posted.chunk, memory, sent, expected.len)?;
                let memory = &mut self.world.node_mut(me.at.node).memory;
                me.inbox_of(posted.srqn).release(&posted.chunk, memory, expected.len)
            }
            Content::Target { offset } => {
                self.check_target(index, offset, expected.len, expected.wr_id)?;
                let me = &mut self.ends[index];
                let memory = &mut self.world.node_mut(me.at.node).memory;
                me.inbox_of(posted.srqn).release(&posted.chunk, memory, 0)
            }
        }
    }

    /// Checks the error of a receive.
    fn judge_recv_error(
        &mut self,
        index: usize,
        posted: &PostedRecv,
        status: WcStatus,
    ) -> Result<(), String> {
        let is_carried = self.connections[index / 2].is_carried();
        let me = &self.ends[index];
        let may_flush = me.has_failed || me.excuses.is_struck && self.is_in_error(index);
        match status {
            WcStatus::WrFlushErr if may_flush => Ok(()),
            // The sender has left, or an EEC has ended, in the middle of the message. Or a late
            // copy of the beginning of a message took the receive, after the message was refused
            // and given up for that: it is sent again, and takes another receive.
            WcStatus::RemAbortErr if is_carried && (me.excuses.is_struck || self.may_be_late()) => {
                self.give_back(index, posted)
            }
            WcStatus::LocEecOpErr if is_carried && me.is_dead => Ok(()),
            // Another RD QP's request has ended the EEC, and may be told after this.
            WcStatus::LocEecOpErr if is_carried && self.is_carrier_over(index) => {
                self.explain_end(index)
            }
            status if me.excuses.recv == Some(status) => {
                self.ends[index].excuses.recv = None;
                Ok(())
            }
            _ => Err("a receive fails for no reason".into()),
        }
    }

    /// Takes back the buffer of a receive that its message left in the middle: the QP goes on, and
    /// later receives use these bytes.
    fn give_back(&mut self, index: usize, posted: &PostedRecv) -> Result<(), String> {
        let me = &mut self.ends[index];
        let memory = &mut self.world.node_mut(me.at.node).memory;
        let len = posted.chunk.pieces.iter().map(|(_, len)| len).sum();
        me.inbox_of(posted.srqn).release(&posted.chunk, memory, len)
    }

    /// Checks that a receive of an RD QP names the RD QP and the EEC that its message came from.
    fn judge_source(&self, index: usize, cqe: &Cqe) -> Result<(), String> {
        let me = &self.ends[index];
        if !self.connections[index / 2].is_carried() || me.excuses.is_struck {
            return Ok(());
        }
        let qpn = |end: usize| self.world.qp(self.ends[end].at).qpn();
        match (cqe.src_qpn, cqe.eecn()) == (qpn(me.peer), Some(qpn(me.carrier))) {
            true => Ok(()),
            false => Err(format!("a message of {:?} by {:?}", cqe.src_qpn, cqe.eecn())),
        }
    }

    /// Returns whether all work is done, according to the queues.
    pub(crate) fn is_finished(&self) -> bool {
        self.ends.iter().all(|end| {
            self.world.qp(end.at).send_wrs() == 0 && (end.is_dead || end.expected.is_empty())
        })
    }

    /// Returns whether every connection has failed for good, so that nothing can be posted any
    /// more.
    pub(crate) fn is_all_dead(&self) -> bool {
        self.connections.iter().all(|connection| connection.peace.is_none())
            && self.ends.iter().enumerate().all(|(index, end)| {
                end.is_dead || self.connections[index / 2].role == Role::Context
            })
    }

    /// Description of the work that is not done.
    pub(crate) fn unfinished(&self) -> String {
        let open = self.ends.iter().filter(|end| self.world.qp(end.at).send_wrs() > 0);
        let open: Vec<_> = open.map(|end| (end.at, end.sends.front())).collect();
        format!("not finished: {open:?}")
    }
}

#[cfg(test)]
mod tests;
