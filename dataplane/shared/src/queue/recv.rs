//! Receive queue: receives pass from the application's post to the core's queue.
//!
//! A receive waits in the ring until the core needs it, so a post wakes no thread: the lcore looks
//! into the ring when a packet arrives. Only in ERR the lcore must be woken, to flush the request.
//!
//! The core holds few receives at a time: with many QPs, each byte that a message touches is likely
//! not in a cache.

use super::ring::{RingEnd, RingFeed, RingSpec, Which, ring};
use crate::memory::mr_table::MrView;
use crate::sync::{Ordering, fence};
use uroce_transport::{Env, PostError, Qp, QpCaps, QpState, RecvWr, Sge};

/// Largest number of receives of a QP that its core holds; further ones wait in the ring.
const IN_CORE: u32 = 8;

/// Returns the sizes of the core's queues for an application's queues.
pub fn core_caps(caps: &QpCaps) -> QpCaps {
    QpCaps { max_recv_wr: caps.max_recv_wr.min(IN_CORE), ..*caps }
}

/// The application's end of a receive queue. One thread may post at a time.
#[derive(Debug)]
pub struct RecvQueueEnd {
    ring: RingEnd<RecvWr>,
    /// Whether the QP uses a shared receive queue; posts to this end are then refused.
    has_srq: bool,
}

/// The lcore's end of a receive queue.
#[derive(Debug)]
pub struct RecvQueueFeed {
    /// The ring of posted requests.
    pub ring: RingFeed<RecvWr>,
    /// Capacity of the core's receive queue.
    in_core: u32,
}

/// Makes both ends of a receive queue.
pub fn recv_queue(spec: RingSpec, has_srq: bool) -> (RecvQueueEnd, RecvQueueFeed) {
    let in_core = spec.depth.min(IN_CORE);
    let (end, feed) = ring(spec, Which::Recv);
    (RecvQueueEnd { ring: end, has_srq }, RecvQueueFeed { ring: feed, in_core })
}

impl RecvQueueEnd {
    /// Posts a work request with its scatter list.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        self.post_recv_list([(wr, sges)]).map_err(|(_, error)| error)
    }

    /// Posts work requests in order, up to the first that is refused.
    ///
    /// # Errors
    /// The number of requests posted, and the reason why the next one was refused.
    #[inline]
    pub fn post_recv_list<'a>(
        &mut self,
        list: impl IntoIterator<Item = (&'a RecvWr, &'a [Sge])>,
    ) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch().map_err(|error| (0, error))?;
        for (posted, (wr, sges)) in list.into_iter().enumerate() {
            batch.push(wr, sges).map_err(|error| (posted, error))?;
        }
        Ok(())
    }

    /// Begins a list of work requests.
    ///
    /// # Errors
    /// [`PostError::HasSrq`] or [`PostError::InvalidState`].
    #[inline]
    pub fn batch(&mut self) -> Result<RecvBatch<'_>, PostError> {
        if self.has_srq {
            return Err(PostError::HasSrq);
        }
        if !self.ring.state().may_post_recv() {
            return Err(PostError::InvalidState);
        }
        let room = self.ring.room();
        Ok(RecvBatch { end: self, room })
    }

    /// Returns how many work requests can be posted now. A place is free again when its request's
    /// completion has been polled.
    pub fn room(&self) -> u32 {
        self.ring.room()
    }

    /// Returns the QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.ring.state()
    }
}

/// A list of work requests that is being posted.
#[derive(Debug)]
pub struct RecvBatch<'q> {
    end: &'q mut RecvQueueEnd,
    room: u32,
}

impl RecvBatch<'_> {
    /// Posts one more work request.
    ///
    /// # Errors
    /// [`PostError`]; the request was not posted.
    #[inline]
    pub fn push(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        self.end.ring.check(sges)?;
        self.end.ring.push(*wr, sges, &mut self.room)
    }
}

impl Drop for RecvBatch<'_> {
    //= check G3 — a receive that races with the way to ERR is flushed, not lost
    #[inline]
    fn drop(&mut self) {
        // The lcore publishes ERR and then takes what is in the ring; this thread puts into the
        // ring and then reads the state. The fences (the lcore's is in
        // `RecvQueueFeed::flush_fence`) make one of the two see the other.
        fence(Ordering::SeqCst);
        if self.end.ring.state() == QpState::Err {
            self.end.ring.notify_lcore();
        }
    }
}

impl RecvQueueFeed {
    /// Prefetches the ring's positions.
    #[inline]
    pub fn prefetch_ring(&self) {
        self.ring.prefetch();
    }

    /// Prefetches the posted receives, and the slots where the QP will keep them.
    #[inline]
    pub fn prefetch_posted(&self, qp: &Qp) {
        self.ring.prefetch_posted(qp.next_recv_slots(IN_CORE as usize));
    }

    /// Prefetches the memory that the next receive names, and its entry in the key table.
    #[inline]
    pub fn prefetch_memory(&self, memory: &MrView<'_>) {
        self.ring.prefetch_memory(memory);
    }

    /// Returns whether no receive is waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Gives an RD QP receives if its core has none: one that an EEC asks for must be there.
    pub fn feed_datagrams(&mut self, qp: &mut Qp, env: &mut impl Env) {
        if !self.is_empty() && qp.queued_recvs() == 0 && qp.state().serves_requests() {
            self.feed(qp, env);
        }
    }

    /// Returns the number of posted receives that the core has not taken.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.ring.waiting()
    }

    /// Gives the core as many posted receives as fit. In ERR and RESET it takes all of them.
    #[inline]
    pub fn feed(&mut self, qp: &mut Qp, env: &mut impl Env) {
        if self.feed_some(IN_CORE, qp, env) > 0 && qp.recv_wrs() == 0 {
            self.feed_rest(qp, env);
        }
    }

    /// Called in a state in which the core keeps no receives. The number is limited: an application
    /// that posts a receive for each that completes would keep the lcore for ever. Later posts ring
    /// the doorbell.
    #[cold]
    fn feed_rest(&mut self, qp: &mut Qp, env: &mut impl Env) {
        let mut left = self.ring.waiting();
        while left > 0 && qp.recv_wrs() == 0 {
            let taken = self.feed_some(left, qp, env);
            left = if taken > 0 { left - taken } else { 0 };
        }
    }

    #[inline]
    fn feed_some(&mut self, most: u32, qp: &mut Qp, env: &mut impl Env) -> u32 {
        let room = self.in_core.saturating_sub(qp.queued_recvs()).min(most);
        self.ring.take(room, |wr, sges| {
            let result = qp.post_recv(wr, sges, env);
            debug_assert!(
                matches!(result, Ok(()) | Err(PostError::InvalidState)),
                "checked by RecvQueueEnd: {result:?}"
            );
            result.is_ok()
        })
    }

    /// A fence that must come between publishing ERR and [`feed`](RecvQueueFeed::feed).
    pub fn flush_fence() {
        // Pairs with the fence in `RecvBatch`.
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::QpShared;
    use super::super::places::Places;
    use super::*;
    use crate::wake::doorbell::Doorbell;
    use std::sync::Arc;
    use uroce_transport::{
        AccessKind, Accessor, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, Flush, Found, Instant,
        Memory, MemoryFault, Outbound, Output, PacketSink, Pd, QpChange, QpInit, QpType, Region,
        SharedReceives, Side, TransmitError,
    };
    use uroce_wire::{Qpn, Rkey, Va};

    /// An application that posts a receive for each one that completes, `OFTEN` times.
    struct Reposter {
        end: RecvQueueEnd,
        shared: Arc<QpShared>,
        lead: u32,
        completed: u32,
    }

    const OFTEN: u32 = 10_000;

    impl Output for Reposter {
        fn complete(&mut self, _: Side, cqe: Cqe) {
            self.completed += 1;
            // The completion counts as polled.
            self.shared.places.free(Which::Recv, cqe.position.wrapping_add(self.lead));
            if self.completed < OFTEN {
                // The first post finds the ring full: its own request is still in its slot.
                let _ = self.end.post_recv(&RecvWr { wr_id: 0 }, &[]);
            }
        }

        fn count(&mut self, _: Counter) {}

        fn event(&mut self, _: AsyncEvent) {}
    }

    impl SharedReceives for Reposter {
        fn take_receive(&mut self, _: u32, _: impl FnOnce(&RecvWr, &[Sge])) -> Found {
            Found::Nothing
        }

        fn receives_waiting(&self) -> u32 {
            0
        }
    }

    impl PacketSink for Reposter {
        fn transmit(&mut self, _: &Outbound<'_>) -> Result<u32, TransmitError> {
            Err(TransmitError::Full)
        }
    }

    impl Env for Reposter {
        type Memory = Reposter;

        type Other<'o> = Reposter;

        fn memory(&mut self) -> &mut Reposter {
            self
        }
    }

    impl Memory for Reposter {
        fn check(&self, _: Accessor, _: Region, _: AccessKind) -> Result<(), MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }

        fn write(&mut self, _: Accessor, _: Region, _: &[u8]) -> Result<(), MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }

        fn atomic(&mut self, _: Accessor, _: Rkey, _: Va, _: AtomicOp) -> Result<u64, MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }

        fn write_word(
            &mut self,
            _: Accessor,
            _: Rkey,
            _: Va,
            _: [u8; 8],
        ) -> Result<(), MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }

        fn flush(&mut self, _: Accessor, _: &Flush) -> Result<(), MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }

        fn bind(&mut self, _: Accessor, _: &BindMw) -> Result<(), MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }

        fn invalidate(&mut self, _: Accessor, _: Rkey) -> Result<(), MemoryFault> {
            Err(MemoryFault::UnknownKey)
        }
    }

    #[test] //= check G3 test
    fn reposting_each_flushed_receive_does_not_keep_the_lcore() {
        const DEPTH: u32 = 100;
        let places = Places::new(1).begin(0, Qpn::new(2)).unwrap();
        let shared = Arc::new(QpShared::new(places));
        let doorbell = Arc::new(Doorbell::new(1, Arc::default()));
        let spec = RingSpec {
            shared: Arc::clone(&shared),
            doorbell: Arc::clone(&doorbell),
            index: 0,
            depth: DEPTH,
            max_sge: 1,
        };
        let (mut end, mut feed) = recv_queue(spec, false);
        let lead = feed.ring.lead();
        shared.places.free(Which::Recv, lead);
        shared.publish_state(QpState::Err);
        (0..DEPTH).for_each(|_| end.post_recv(&RecvWr { wr_id: 0 }, &[]).unwrap());
        let mut env = Reposter { end, shared, lead, completed: 0 };
        let caps = QpCaps {
            max_send_wr: 1,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit::new(QpType::Rc, core_caps(&caps));
        let mut qp = Qp::new(Qpn::new(2), Pd(1), &init);
        qp.modify(Instant::ZERO, &QpChange::to(QpState::Err), &mut env).unwrap();

        feed.feed(&mut qp, &mut env);
        let completed = env.completed;
        assert!((DEPTH..=DEPTH + IN_CORE).contains(&completed), "{completed} at once");
        assert!(!feed.is_empty(), "what was posted meanwhile waits for its doorbell");
        // No receive is lost: with one doorbell after the other, all complete.
        for _ in 0..OFTEN / DEPTH {
            feed.feed(&mut qp, &mut env);
        }
        assert!(feed.is_empty());
    }
}
