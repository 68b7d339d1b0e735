//! Send queue: work requests pass from the application's post to the core's queue.
//!
//! Invariants
//! - A refused post changes nothing.
//! - The rules checked here are the core's. The state is checked again there, where it is exact.

use super::ring::{POSTED_AHEAD, RingEnd, RingFeed, RingSpec, Which, ring};
use crate::memory::mr_table::MrView;
use crate::sync::{Consumer, Producer, RingBuffer};
use uroce_transport::{
    Env, MAX_INLINE_DATA, PostError, Qp, QpState, QpType, RdAddress, SendWr, Sge,
};

/// The application's end of a send queue. One thread may post at a time.
#[derive(Debug)]
pub struct SendQueueEnd {
    ring: RingEnd<Posted>,
    /// The ring of inline data, if the QP takes inline data.
    inline: Option<Producer<u8>>,
    /// The ring of destinations of an RD QP.
    addresses: Option<Producer<RdAddress>>,
    /// Type of the QP. That of an RD QP is EEC, which takes no requests: those of RD QPs come with
    /// a destination.
    qp_type: QpType,
    max_inline: u32,
}

/// The lcore's end of a send queue.
#[derive(Debug)]
pub struct SendQueueFeed {
    /// The ring of posted requests.
    pub ring: RingFeed<Posted>,
    inline: Option<Consumer<u8>>,
    /// Boxed, since few queues have one.
    addresses: Option<Box<Consumer<RdAddress>>>,
    depth: u32,
    /// Whether there may be something in the ring.
    rung: bool,
}

/// A work request in the ring. Its inline data are the next `inline_len` bytes in the other ring;
/// the destination of an RD QP's is the next one in a third.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    wr: SendWr,
    inline_len: u32,
}

/// The data of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    /// The memory of a scatter/gather list, until the request completes.
    Sges(&'a [Sge]),
    /// These bytes, copied when the request is posted.
    Inline(&'a [u8]),
}

/// Type of QP and inline size of a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendSpec {
    /// Type of the QP.
    pub qp_type: QpType,
    /// Largest number of bytes of inline data of one work request.
    pub max_inline: u32,
}

/// Makes both ends of a send queue.
pub fn send_queue(spec: RingSpec, send: SendSpec) -> (SendQueueEnd, SendQueueFeed) {
    let SendSpec { qp_type, max_inline } = send;
    let depth = spec.depth;
    let (end, feed) = ring(spec, Which::Send);
    // Room for the inline data of all work requests of the queue, so it is never full.
    let bytes = depth as usize * max_inline as usize;
    let (producer, consumer) = (bytes > 0).then(|| RingBuffer::new(bytes)).unzip();
    let is_rd = qp_type == QpType::Rd;
    let (to, from) = is_rd.then(|| RingBuffer::new(depth as usize)).unzip();
    let qp_type = if is_rd { QpType::Eec } else { qp_type };
    (
        SendQueueEnd { ring: end, inline: producer, addresses: to, qp_type, max_inline },
        SendQueueFeed {
            ring: feed,
            inline: consumer,
            addresses: from.map(Box::new),
            depth,
            rung: false,
        },
    )
}

impl SendQueueEnd {
    /// Posts a work request with its scatter/gather list.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr, sges: &[Sge]) -> Result<(), PostError> {
        self.post_send_list([(wr, sges)]).map_err(|(_, error)| error)
    }

    /// Posts a work request with payload `data`, which is copied before this returns.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_inline(&mut self, wr: &SendWr, data: &[u8]) -> Result<(), PostError> {
        self.batch()?.push(wr, SendData::Inline(data))
    }

    /// Posts work requests in order, up to the first that is refused, and wakes the lcore once.
    ///
    /// # Errors
    /// The number of requests posted, and the reason why the next one was refused.
    #[inline]
    pub fn post_send_list<'a>(
        &mut self,
        list: impl IntoIterator<Item = (&'a SendWr, &'a [Sge])>,
    ) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch().map_err(|error| (0, error))?;
        for (posted, (wr, sges)) in list.into_iter().enumerate() {
            batch.push(wr, SendData::Sges(sges)).map_err(|error| (posted, error))?;
        }
        Ok(())
    }

    /// Begins a list of work requests. The lcore is woken once, when the list is dropped.
    ///
    /// # Errors
    /// [`PostError::InvalidState`].
    //= check G2 — a post that the state does not allow is refused at once
    #[inline]
    pub fn batch(&mut self) -> Result<SendBatch<'_>, PostError> {
        if !self.ring.state().may_post_send() {
            return Err(PostError::InvalidState);
        }
        let room = self.ring.room();
        Ok(SendBatch { end: self, room, any: false })
    }

    /// Returns how many work requests can be posted now. A place is free again when its request's
    /// completion, or a later one, has been polled.
    pub fn room(&self) -> u32 {
        self.ring.room()
    }

    /// Returns the QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.ring.state()
    }

    /// Returns the most bytes of inline data of a work request.
    pub fn max_inline_data(&self) -> u32 {
        self.max_inline
    }

    #[inline]
    fn push_sges(&mut self, wr: &SendWr, sges: &[Sge], room: &mut u32) -> Result<(), PostError> {
        // What an RD QP takes is refused here, as it has no destination.
        let len = self.ring.check(sges)?;
        wr.op.check(self.qp_type, sges.len(), len)?;
        self.ring.push(Posted { wr: *wr, inline_len: 0 }, sges, room)
    }

    //= check F13 — inline data are copied by the post
    #[inline]
    fn push_inline(&mut self, wr: &SendWr, data: &[u8], room: &mut u32) -> Result<(), PostError> {
        if data.len() > self.max_inline as usize {
            return Err(PostError::InlineTooLong);
        }
        wr.op.check_inline(self.qp_type, data.len())?;
        if *room == 0 {
            return Err(PostError::QueueFull);
        }
        if let Some(inline) = self.inline.as_mut().filter(|_| !data.is_empty()) {
            let chunk = inline.write_chunk_uninit(data.len());
            chunk.map_err(|_| PostError::QueueFull)?.fill_from_iter(data.iter().copied());
        }
        // The length is at most 1024 bytes.
        self.ring.push(Posted { wr: *wr, inline_len: data.len() as u32 }, &[], room)
    }

    fn push_datagram(
        &mut self,
        wr: &SendWr,
        to: &RdAddress,
        data: SendData<'_>,
        room: &mut u32,
    ) -> Result<(), PostError> {
        let addresses = self.addresses.as_mut().ok_or(PostError::WrongOperation)?;
        if *room == 0 {
            return Err(PostError::QueueFull);
        }
        match data {
            SendData::Sges(sges) => {
                let len = self.ring.check(sges)?;
                wr.op.check(QpType::Rd, sges.len(), len)?;
            }
            SendData::Inline(data) if data.len() > self.max_inline as usize => {
                return Err(PostError::InlineTooLong);
            }
            SendData::Inline(data) => wr.op.check_inline(QpType::Rd, data.len())?,
        }
        // This cannot fail: the ring has as many places as the queue, and so can the rest not.
        addresses.push(*to).map_err(|_| PostError::QueueFull)?;
        match data {
            SendData::Sges(sges) => self.ring.push(Posted { wr: *wr, inline_len: 0 }, sges, room),
            SendData::Inline(data) => {
                if let Some(inline) = self.inline.as_mut().filter(|_| !data.is_empty()) {
                    let chunk = inline.write_chunk_uninit(data.len());
                    let chunk = chunk.map_err(|_| PostError::QueueFull)?;
                    chunk.fill_from_iter(data.iter().copied());
                }
                let posted = Posted { wr: *wr, inline_len: data.len() as u32 };
                self.ring.push(posted, &[], room)
            }
        }
    }
}

/// A list of work requests that is being posted; dropping it wakes the lcore.
#[derive(Debug)]
pub struct SendBatch<'q> {
    end: &'q mut SendQueueEnd,
    room: u32,
    any: bool,
}

impl SendBatch<'_> {
    /// Posts one more work request.
    ///
    /// # Errors
    /// [`PostError`]; the request was not posted.
    #[inline]
    pub fn push(&mut self, wr: &SendWr, data: SendData<'_>) -> Result<(), PostError> {
        match data {
            SendData::Sges(sges) => self.end.push_sges(wr, sges, &mut self.room)?,
            SendData::Inline(data) => self.end.push_inline(wr, data, &mut self.room)?,
        }
        self.any = true;
        Ok(())
    }

    /// Posts one more work request of an RD QP, to an RD QP of the peer.
    ///
    /// # Errors
    /// [`PostError`]; the request was not posted. [`PostError::WrongOperation`] if the queue is not
    /// that of an RD QP.
    pub fn push_datagram(
        &mut self,
        wr: &SendWr,
        to: &RdAddress,
        data: SendData<'_>,
    ) -> Result<(), PostError> {
        self.end.push_datagram(wr, to, data, &mut self.room)?;
        self.any = true;
        Ok(())
    }
}

impl Drop for SendBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.any {
            self.end.ring.notify_lcore();
        }
    }
}

impl SendQueueFeed {
    /// Returns whether no request is waiting.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Prefetches the ring's positions.
    #[inline]
    pub fn prefetch_ring(&self) {
        self.ring.prefetch();
    }

    /// Prefetches the posted requests, and the slots where the QP will keep them.
    #[inline]
    pub fn prefetch_posted(&self, qp: &Qp) {
        self.ring.prefetch_posted(qp.next_send_slots(POSTED_AHEAD));
    }

    /// Prefetches the memory that the next request names, and its entry in the key table.
    #[inline]
    pub fn prefetch_memory(&self, memory: &MrView<'_>) {
        self.ring.prefetch_memory(memory);
    }

    /// Called when the doorbell of this queue was rung.
    #[inline]
    pub fn ring(&mut self) {
        self.rung = true;
    }

    /// Gives the core what was posted, if the doorbell was rung. Many QPs get a turn only for an
    /// acknowledgement, and looking into their rings would miss the cache.
    #[inline]
    pub fn answer(&mut self, qp: &mut Qp, env: &mut impl Env) {
        if self.rung {
            self.feed(qp, env);
        }
    }

    /// Gives the core as many posted requests as fit. Requests that its state refuses are
    /// discarded, as the content of a queue is by a reset.
    #[inline]
    pub fn feed(&mut self, qp: &mut Qp, env: &mut impl Env) {
        let SendQueueFeed { ring, inline, depth, rung, .. } = self;
        let room = depth.saturating_sub(qp.send_wrs());
        let taken = ring.take(room, |posted, sges| {
            let Posted { wr, inline_len } = posted;
            let result = match *inline_len {
                0 => qp.post_send(wr, sges, env),
                len => with_inline(inline.as_mut(), len, |data| qp.post_inline(wr, data, env)),
            };
            debug_assert!(
                matches!(result, Ok(()) | Err(PostError::InvalidState)),
                "checked by SendQueueEnd: {result:?}"
            );
            result.is_ok()
        });
        // If there was no more room, the ring may not be empty.
        *rung = taken == room;
    }

    /// Returns whether there may be something in the ring that the core has room for.
    pub fn has_more_for(&self, qp: &Qp) -> bool {
        self.rung && qp.send_wrs() < self.depth
    }

    /// Gives an RD QP what was posted, as [`answer`](SendQueueFeed::answer) does to others.
    pub fn answer_datagrams(&mut self, qp: &mut Qp, env: &mut impl Env) {
        if self.rung {
            self.feed_datagrams(qp, env);
        }
    }

    /// Gives an RD QP as many posted requests as fit, as [`feed`](SendQueueFeed::feed) does to
    /// others.
    pub fn feed_datagrams(&mut self, qp: &mut Qp, env: &mut impl Env) {
        let SendQueueFeed { ring, inline, addresses, depth, rung } = self;
        let Some(addresses) = addresses else { return };
        let room = depth.saturating_sub(qp.send_wrs());
        let taken = ring.take(room, |posted, sges| {
            let Posted { wr, inline_len } = posted;
            // The destination was put there before the request.
            let to = addresses.pop().unwrap_or_default();
            let result = match *inline_len {
                0 => qp.post_datagram(wr, &to, sges, env),
                len => with_inline(inline.as_mut(), len, |data| {
                    qp.post_inline_datagram(wr, &to, data, env)
                }),
            };
            debug_assert!(
                matches!(result, Ok(()) | Err(PostError::InvalidState)),
                "checked by SendQueueEnd: {result:?}"
            );
            result.is_ok()
        });
        *rung = taken == room;
    }
}

/// Takes the next `len` bytes, in one piece. They were put there before their work request.
fn with_inline<R>(inline: Option<&mut Consumer<u8>>, len: u32, take: impl FnOnce(&[u8]) -> R) -> R {
    let mut whole = [0; MAX_INLINE_DATA as usize];
    let chunk = inline.and_then(|inline| inline.read_chunk(len as usize).ok());
    let Some(chunk) = chunk else { return take(&[]) };
    let result = match chunk.as_slices() {
        (data, []) => take(data),
        (head, tail) => {
            whole[..head.len()].copy_from_slice(head);
            whole[head.len()..len as usize].copy_from_slice(tail);
            take(&whole[..len as usize])
        }
    };
    chunk.commit_all();
    result
}
