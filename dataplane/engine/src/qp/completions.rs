//! Completions of a QP: the queues that get them, and which of these got some in this turn.
//!
//! Not here: waking the threads that wait for events ([`uroce_shared::queue`]).

use crate::counters::{CounterBlock, EngineCounter};
use std::sync::Arc;
use uroce_shared::queue::CompletionQueue;
use uroce_transport::{Cqe, Instant, Side};

/// The destinations of a QP's completions.
#[derive(Debug)]
pub(crate) struct Completions {
    send_cq: Arc<CompletionQueue>,
    recv_cq: Arc<CompletionQueue>,
    /// The QP's slot.
    slot: u32,
    /// For each [`Side`], the difference between the requests' positions and the core's count.
    pub(super) leads: [u32; 2],
    pending: PendingNotify,
    /// Whether a completion found its CQ full.
    pub(super) overrun: bool,
}

/// The queues that got completions in this turn and were not notified yet.
#[derive(Debug, Default)]
struct PendingNotify {
    /// `Some` if the send CQ got completions; true if one of them was solicited.
    sent: Option<bool>,
    /// `Some` if the receive CQ got completions; true if one of them was solicited.
    received: Option<bool>,
}

impl Completions {
    /// Makes the destinations of the completions of the QP in `slot`: its send CQ and receive CQ.
    pub(crate) fn new([send_cq, recv_cq]: [Arc<CompletionQueue>; 2], slot: u32) -> Completions {
        let pending = PendingNotify::default();
        Completions { send_cq, recv_cq, slot, leads: [0; 2], pending, overrun: false }
    }

    /// Returns the QP's slot.
    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    /// Finishes a completion of the core: adds the time and the QP's slot, adjusts the position.
    #[inline]
    pub(crate) fn finish(&self, side: Side, at: Instant, cqe: Cqe) -> Cqe {
        let position = cqe.position.wrapping_add(self.leads[side as usize]);
        Cqe { at, position, slot: self.slot, ..cqe }
    }

    /// Sets the queue of the completions of receives from now on. The former one is notified of
    /// what it has got.
    pub(crate) fn receive_in(&mut self, cq: &Arc<CompletionQueue>) {
        if Arc::ptr_eq(&self.recv_cq, cq) {
            return;
        }
        if let Some(solicited) = self.pending.received.take() {
            CompletionQueue::notify_fence();
            if self.recv_cq.wants_event(solicited) {
                self.recv_cq.notify();
            }
        }
        // The XRC domain still has the former queue, so nothing is freed here.
        self.recv_cq = Arc::clone(cq);
    }

    /// Puts completions into their queues.
    pub(crate) fn deliver(
        &mut self,
        cqes: impl Iterator<Item = (Side, Cqe)>,
        counters: &CounterBlock,
    ) {
        for (side, cqe) in cqes {
            let (cq, pending) = match side {
                Side::Send => (&self.send_cq, &mut self.pending.sent),
                Side::Recv => (&self.recv_cq, &mut self.pending.received),
            };
            let mut solicited = cqe.solicited;
            if cq.push(cqe).is_err() {
                // Wake the sleeping thread, which would otherwise wait for a completion that never
                // comes.
                solicited = true;
                self.overrun = true;
                counters.count(EngineCounter::CqOverrun);
            }
            *pending = Some(pending.unwrap_or(false) | solicited);
        }
    }

    /// Returns whether completions have gone out since the last [`notify`](Completions::notify).
    #[inline]
    pub(crate) fn has_delivered(&self) -> bool {
        self.pending.sent.is_some() || self.pending.received.is_some()
    }

    /// Notifies the CQs that got completions. Call [`CompletionQueue::notify_fence`] before it.
    pub(crate) fn notify(&mut self) {
        let PendingNotify { sent, received } = std::mem::take(&mut self.pending);
        for (cq, pending) in [(&self.send_cq, sent), (&self.recv_cq, received)] {
            if pending.is_some_and(|solicited| cq.wants_event(solicited)) {
                cq.notify();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_shared::queue::{Arm, CompletionChannel};
    use uroce_transport::{WcOpcode, WcStatus};
    use uroce_wire::Qpn;

    /// A message of a turn that completes elsewhere than the one before.
    #[test]
    fn the_former_queue_is_notified_when_receives_complete_elsewhere() {
        let channel = CompletionChannel::new(3).unwrap();
        let cqs = [(); 3].map(|()| CompletionQueue::new(4, Some(&channel)).unwrap());
        let [sends, first, second] = &cqs;
        cqs.iter().for_each(|cq| cq.arm(Arm::Next));
        let mut completions = Completions::new([sends, first].map(Arc::clone), 0);
        let counters = CounterBlock::new();
        let received = |wr_id| {
            let cqe = Cqe::new(wr_id, WcStatus::Success, WcOpcode::Recv, Qpn::new(2));
            vec![(Side::Recv, cqe)]
        };
        completions.deliver(received(1).into_iter(), &counters);
        completions.receive_in(first);
        assert!(channel.try_next().unwrap().is_none(), "it is the same queue");
        completions.receive_in(second);
        assert!(Arc::ptr_eq(&channel.try_next().unwrap().unwrap(), first));
        assert!(!completions.has_delivered());
        completions.deliver(received(2).into_iter(), &counters);
        CompletionQueue::notify_fence();
        completions.notify();
        assert!(Arc::ptr_eq(&channel.try_next().unwrap().unwrap(), second));
        assert!(channel.try_next().unwrap().is_none());
        for (cq, wr_id) in [(first, 1), (second, 2)] {
            assert_eq!(cq.poll().unwrap().map(|cqe| cqe.wr_id), Some(wr_id));
        }
    }
}
