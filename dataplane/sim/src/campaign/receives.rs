//! Receives of random work: posted while there is room, at once or late.

use core::time::Duration;

use crate::campaign::workload::{PostedRecv, Traffic};
use uroce_transport::{QpType, RecvWr};
use uroce_wire::Srqn;

impl Traffic {
    /// Schedules the posting of receives at an end, if there is room and none is scheduled.
    pub(crate) fn wake_receiver(&mut self, index: usize) {
        let is_carried = self.connections[index / 2].is_carried();
        let me = &mut self.ends[index];
        let has_room = (me.recvs.len() as u32) < me.end.caps.max_recv_wr;
        let is_initiator = self.world.qp(me.at).qp_type() == QpType::XrcSend;
        // An RD QP in SQE still receives.
        let qp = self.world.qp(me.at);
        let is_over = me.has_failed && !(is_carried && qp.state().serves_requests());
        if me.receiver_is_awake || is_over || is_initiator || !has_room {
            return;
        }
        me.receiver_is_awake = true;
        let slowness = if me.end.is_slow { 20 } else { 1 };
        let lag = Duration::from_nanos(self.rng.u64(1_000..20_000) * slowness);
        self.world.wake(self.world.now() + lag, 2 * index as u32 + 1);
    }

    /// Posts receives at an end: as many as there is room for, or a few at a slow end.
    pub(crate) fn post_recvs(&mut self, index: usize) -> Result<(), String> {
        self.ends[index].receiver_is_awake = false;
        if self.world.qp(self.ends[index].at).qp_type() == QpType::XrcSend {
            return Ok(());
        }
        let me = &self.ends[index];
        let room = me.end.caps.max_recv_wr - me.recvs.len() as u32;
        let count = if me.end.is_slow { room.min(self.rng.u32(1..=4)) } else { room };
        let is_carried = self.connections[index / 2].is_carried();
        for _ in 0..count {
            let me = &mut self.ends[index];
            let serves = self.world.qp(me.at).state().serves_requests();
            if me.has_failed && !(is_carried && serves) {
                return Ok(());
            }
            let pieces = self.rng.usize(1..=me.end.caps.max_recv_sge as usize);
            // The queue with fewer receives, so that neither is without one for ever.
            let count = |srqn: &Srqn| me.recvs.iter().filter(|it| it.srqn == *srqn).count();
            let queue = me.queues.iter().copied().min_by_key(count);
            let (srqn, len) = (queue.unwrap_or_default(), me.end.max_recv_len);
            let inbox = me.inbox_of(srqn);
            let Some(chunk) = inbox.take(&mut self.rng, len, pieces) else {
                return Ok(());
            };
            chunk.pieces.sges(inbox.mr, &mut self.sges);
            let wr_id = me.next_wr_id;
            me.next_wr_id += 1;
            let at = me.at;
            me.recvs.push_back(PostedRecv { wr_id, chunk, srqn });
            if let Some(srqn) = queue {
                let receive = (RecvWr { wr_id }, self.sges.clone());
                self.world.node_mut(at.node).named_mut(srqn).receives.push_back(receive);
                continue;
            }
            match self.world.post_recv(at, &RecvWr { wr_id }, &self.sges) {
                Ok(()) => {}
                Err(error) if self.is_refused(index, error) => return Ok(()),
                Err(error) => return Err(format!("a receive at {at:?} was refused: {error}")),
            }
        }
        Ok(())
    }
}
