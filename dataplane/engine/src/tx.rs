//! Burst out: packets of QPs and frames of the control plane leave through a port, or are looped
//! back.
//!
//! ```text
//!   Outbound ─▶ mbuf: template │ BTH … │ payload, gathered │ pad │ ICRC ─┬▶ batch ─▶ tx_burst
//!                                                                        └▶ looped ─▶ rx
//! ```
//!
//! Frames to the device's own addresses do not go to the port: the same lcore receives them in its
//! next turn. A datagram to a multicast group goes both ways if QPs of this device are in the
//! group.
//!
//! Read first: IBA 9.2 and 9.3 (headers); Annex A17 for the RoCEv2 packet.
//!
//! Invariants
//! - An accepted packet is sent: frames that the port does not take stay at the front of the batch.
//!   A full batch, a full loop-back batch or an empty mempool is [`TransmitError::Full`], never a
//!   loss. Frames are lost only at a port with its link down, and at one that has taken nothing for
//!   long. Looped frames do not depend on the link.
//! - A frame longer than an mbuf is refused; Modify QP refuses a path MTU that could make one.
//!
//! Not here: the order in which QPs send ([`crate::schedule`]).

mod patience;
mod queue;

use crate::config::{PortAddresses, PortBinding, path_mtu_of};
use crate::counters::{CounterBlock, EngineCounter};
use crate::fault::Loss;
use crate::mbuf::{BATCH, Mbuf, MbufBatch, Mempool};
use patience::Patience;
pub(crate) use queue::{Queue, queues};
use std::collections::VecDeque;
use uroce_shared::copy::sum::{LEAST, copy_summed};
use uroce_shared::memory::mr_table::Access;
use uroce_transport::{Instant, MemoryFault, Outbound, Piece, TransmitError};
use uroce_wire::{HeaderTemplate, ICRC_LEN, Mac, OuterSums, PathMtu, emit_headers, headers_len};

/// The error of a packet that does not fit into an mbuf, or has headers that cannot be written.
const TOO_LONG: TransmitError = TransmitError::Memory(MemoryFault::OutOfRange);
/// Mbufs taken from the mempool at a time. An idle lcore holds up to this many and [`AHEAD`].
const SPARE: usize = BATCH / 4;
/// How many packets ahead an mbuf's header and first lines are prefetched, since another core used
/// them last. One at a time: many at once would delay the other cache lines.
const AHEAD: usize = 8;
/// Most batches of other lcores' frames that are sent in one turn.
const GUESTS: usize = 4;
/// How many packets ahead the remaining lines of a large packet's mbuf are prefetched.
const REST_AHEAD: usize = 2;

/// One lcore's state of a port.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Queue,
    pub(crate) addresses: Box<PortAddresses>,
    /// The largest path MTU that fits the port, which datagrams use.
    pub(crate) path_mtu: Option<PathMtu>,
    pub(crate) rx_loss: Loss,
    /// QPs that may have something to send, in the order of their turns.
    pub(crate) active: VecDeque<u32>,
    /// Number of multi-segment frames dropped by the port that have been counted.
    pub(crate) not_linear: u64,
    /// Packets taken since the start, and bytes of their frames; the scheduler measures turns by
    /// them.
    pub(crate) taken: u64,
    pub(crate) taken_bytes: u64,
    pool: Mempool,
    tx_loss: Loss,
    sums: OuterSums,
    /// Whether the link is down.
    cut: bool,
    /// Frames for the port.
    batch: MbufBatch,
    /// For a port that takes nothing.
    patience: Patience,
    /// Looped frames, complete with ICRC: this lcore's next turn receives them.
    pub(crate) looped: MbufBatch,
    /// Whether a connection of this port has, or had, its other end in this device.
    pub(crate) has_loopers: bool,
    /// Whether the last packet was refused because `looped` was full.
    loop_full: bool,
    /// Empty mbufs.
    spare: MbufBatch,
    /// Whether the mempool was found empty in this turn.
    starved: bool,
}

impl Lane {
    /// Makes the state of a port for lcore number `lcore` of an engine with `max_qps` QPs.
    pub(crate) fn new(queue: Queue, lcore: usize, binding: &PortBinding, max_qps: u32) -> Lane {
        let (rx_loss, tx_loss) = binding.loss.at_queue(lcore);
        Lane {
            queue,
            addresses: Box::new(binding.addresses.clone()),
            path_mtu: path_mtu_of(binding.port.mtu()),
            rx_loss,
            active: VecDeque::with_capacity(max_qps as usize),
            not_linear: 0,
            taken: 0,
            taken_bytes: 0,
            pool: binding.pool.clone(),
            tx_loss,
            sums: OuterSums::new(),
            cut: false,
            batch: MbufBatch::new(),
            patience: Patience::new(),
            looped: MbufBatch::new(),
            has_loopers: false,
            loop_full: false,
            spare: MbufBatch::new(),
            starved: false,
        }
    }

    /// Builds a packet behind `template` and queues it. Returns the frame's length in bytes.
    ///
    /// # Errors
    /// [`TransmitError`]; nothing was queued.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &Access<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        if template.is_loopback() {
            return self.transmit_looped(template, packet, memory, counters);
        }
        if !self.has_room() {
            self.loop_full = false;
            return Err(TransmitError::Full);
        }
        let (len, mbuf) = self.build(template, packet, memory, counters, self.cut)?;
        if let Some(mbuf) = mbuf {
            let _ = self.batch.push(mbuf);
        }
        Ok(len)
    }

    /// Builds a packet to one of the device's own addresses and queues it to be looped back.
    /// Returns the frame's length in bytes.
    #[inline(never)]
    fn transmit_looped(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &Access<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        self.check_loop_room()?;
        let (len, mbuf) = self.build(template, packet, memory, counters, false)?;
        if let Some(mbuf) = mbuf {
            counters.count(EngineCounter::Looped);
            let _ = self.looped.push(mbuf);
        }
        Ok(len)
    }

    /// Builds a datagram to a group that QPs of this device are in; queues it for the port, and a
    /// copy to be looped back to them. Returns the frame's length in bytes.
    //= check L5 — the members beside the sender hear it as those on other hosts do
    pub(crate) fn transmit_to_group(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &Access<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        self.check_loop_room()?;
        if !self.has_room() {
            self.loop_full = false;
            return Err(TransmitError::Full);
        }
        let mut copy = self.empty_mbuf().ok_or(TransmitError::Full)?;
        let built = self.build(template, packet, memory, counters, false);
        let (len, mbuf) = match built {
            Ok((len, Some(mbuf))) => (len, mbuf),
            lost_or_refused => {
                let _ = self.spare.push(copy);
                return lost_or_refused.map(|(len, _)| len);
            }
        };
        // This cannot fail: mbufs of one mempool have one size.
        if copy.set_len(mbuf.len()).is_ok() {
            copy.as_mut_slice().copy_from_slice(mbuf.as_slice());
            counters.count(EngineCounter::Looped);
            let _ = self.looped.push(copy);
        }
        if self.cut {
            counters.count(EngineCounter::TxLinkDown);
            let _ = self.spare.push(mbuf);
        } else {
            let _ = self.batch.push(mbuf);
        }
        Ok(len)
    }

    /// Builds a packet and returns its length. The mbuf is `None` if the packet is lost here,
    /// because the link is `cut` or by injected loss.
    #[inline(always)]
    fn build(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &Access<'_>,
        counters: &CounterBlock,
        cut: bool,
    ) -> Result<(u32, Option<Mbuf>), TransmitError> {
        let mut mbuf = self.empty_mbuf().ok_or(TransmitError::Full)?;
        let next = self.spare.as_slice().iter().nth_back(REST_AHEAD - 1);
        let built = build(&mut mbuf, template, packet, memory, &mut self.sums, next);
        let len = mbuf.len();
        if built.is_err() || cut || self.tx_loss.loses() {
            // `push` cannot fail: the mbuf was taken from this batch.
            let _ = self.spare.push(mbuf);
            built?;
            let cut = if cut { EngineCounter::TxLinkDown } else { EngineCounter::TxLost };
            counters.count(cut);
            self.count_taken(len);
            return Ok((len as u32, None));
        }
        counters.count(EngineCounter::TxPackets);
        counters.add(EngineCounter::TxBytes, len as u64);
        self.count_taken(len);
        Ok((len as u32, Some(mbuf)))
    }

    #[inline]
    fn count_taken(&mut self, len: usize) {
        self.taken += 1;
        self.taken_bytes += len as u64;
    }

    /// Returns [`TransmitError::Full`] unless one more frame can be looped back.
    #[inline]
    fn check_loop_room(&mut self) -> Result<(), TransmitError> {
        self.loop_full = self.looped.room() == 0;
        if self.loop_full { Err(TransmitError::Full) } else { Ok(()) }
    }

    /// Returns, once, whether the last refused packet was refused because `looped` was full.
    pub(crate) fn take_loop_full(&mut self) -> bool {
        std::mem::take(&mut self.loop_full)
    }

    /// Returns a copy of the frame; `None` if the mempool is empty.
    pub(crate) fn copy_of(&mut self, frame: &Mbuf) -> Option<Mbuf> {
        let mut copy = self.pool.alloc().ok()?;
        copy.set_len(frame.len()).ok()?;
        copy.as_mut_slice().copy_from_slice(frame.as_slice());
        Some(copy)
    }

    /// Returns whether there is room for a complete frame, in the batch or in `looped`.
    pub(crate) fn can_inject(&mut self, frame: &Mbuf) -> bool {
        match is_looped(frame) {
            true => self.looped.room() > 0,
            false => self.cut || self.has_room(),
        }
    }

    /// Queues a complete frame. [`can_inject`](Lane::can_inject) must have returned true.
    pub(crate) fn inject(&mut self, frame: Mbuf, counters: &CounterBlock) {
        if is_looped(&frame) {
            counters.count(EngineCounter::Looped);
            let _ = self.looped.push(frame);
        } else if self.cut {
            counters.count(EngineCounter::TxLinkDown);
        } else {
            counters.count(EngineCounter::TxOther);
            let _ = self.batch.push(frame);
        }
    }

    /// Sets the injected loss of received and sent frames.
    pub(crate) fn set_loss(&mut self, rx: Loss, tx: Loss) {
        (self.rx_loss, self.tx_loss) = (rx, tx);
    }

    /// Sets the link up or down. Frames that wait for a link that goes down are lost.
    #[cold]
    pub(crate) fn set_link(&mut self, up: bool, counters: &CounterBlock) {
        self.cut = !up;
        self.patience.link_moved();
        if self.cut {
            counters.add(EngineCounter::TxLinkDown, self.batch.len() as u64);
            self.batch.clear();
        }
    }

    /// Returns whether the link is down.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns whether no frame waits to leave or to be looped back.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.active.is_empty()
            && self.batch.is_empty()
            && self.looped.is_empty()
            && self.queue.is_at_rest()
    }

    /// Returns whether there is room for one more frame; sends a burst to make room.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.batch.room() > 0 || self.burst() > 0
    }

    /// Ends the turn: sends all frames that the port takes. Returns whether any were sent.
    #[inline]
    pub(crate) fn flush(&mut self, now: Instant, counters: &CounterBlock) -> bool {
        let mut sent = match self.batch.is_empty() {
            true => 0,
            false => self.burst(),
        };
        // Then the frames of lcores without a queue pair: as many as fit, and more while all of
        // them leave.
        for _ in 0..GUESTS {
            if !self.queue.take_over(&mut self.batch) {
                break;
            }
            sent += self.burst();
            if !self.batch.is_empty() {
                break;
            }
        }
        if !self.batch.is_empty() {
            counters.count(EngineCounter::TxFull);
            self.lose_if_stuck(now, counters);
        }
        if std::mem::take(&mut self.starved) {
            counters.count(EngineCounter::NoMbuf);
        }
        sent > 0
    }

    #[inline]
    fn burst(&mut self) -> usize {
        let sent = self.queue.tx_burst(&mut self.batch);
        if sent > 0 {
            self.patience.renew();
        }
        sent
    }

    /// Drops frames that a port has not taken for long, as if the link were down.
    #[cold]
    fn lose_if_stuck(&mut self, now: Instant, counters: &CounterBlock) {
        if self.patience.is_over(now) {
            counters.add(EngineCounter::TxStuck, self.batch.len() as u64);
            self.batch.clear();
        }
    }

    #[inline]
    fn empty_mbuf(&mut self) -> Option<Mbuf> {
        if self.spare.len() <= AHEAD && !self.refill() && self.spare.is_empty() {
            self.starved = true;
            return None;
        }
        let mut mbuf = self.spare.pop()?;
        if let Some(ahead) = self.spare.as_slice().iter().nth_back(AHEAD - 1) {
            ahead.prefetch_start();
        }
        mbuf.reset();
        Some(mbuf)
    }

    /// Takes more mbufs. Those that are already there are used first, since they have been
    /// prefetched. A nearly empty mempool may have one mbuf but not a batch of them.
    #[cold]
    fn refill(&mut self) -> bool {
        let had = self.spare.len();
        let filled = self.pool.take_burst(&mut self.spare, SPARE).is_ok()
            || self.pool.take_burst(&mut self.spare, 1).is_ok();
        self.spare.as_mut_slice().rotate_left(had);
        filled
    }
}

/// Returns whether a frame of the control plane is addressed to the device itself.
fn is_looped(frame: &Mbuf) -> bool {
    frame.as_slice().starts_with(&Mac::LOOPBACK.0)
}

/// Writes the whole frame into an mbuf.
#[inline]
fn build(
    mbuf: &mut Mbuf,
    template: &HeaderTemplate,
    packet: &Outbound<'_>,
    memory: &Access<'_>,
    sums: &mut OuterSums,
    next: Option<&Mbuf>,
) -> Result<(), TransmitError> {
    let payload_len = packet.payload.len() as usize;
    let pad_len = usize::from(packet.bth.pad_count);
    let headers = headers_len(packet.bth.opcode).ok_or(TOO_LONG)?;
    let transport_len = headers + payload_len + pad_len + ICRC_LEN;
    let (before, is_large) = (usize::from(template.len), payload_len >= LEAST);
    let fits = match is_large {
        true => mbuf.set_len_aligned(before + headers, before + transport_len),
        false => mbuf.set_len(before + transport_len),
    };
    fits.map_err(|_| TOO_LONG)?;

    let end = mbuf.headroom() + mbuf.len();
    let out = mbuf.as_mut_slice();
    let at = template.emit(out, transport_len);
    let at = at + emit_headers(&packet.bth, &packet.ext, &mut out[at..]).ok_or(TOO_LONG)?;
    let l3_offset = usize::from(template.l3_offset);
    let (l3, payload) = (&mut out[l3_offset..], at - l3_offset);
    if is_large {
        fill_summed(l3, payload, packet, memory, sums)?;
    } else {
        fill(&mut l3[payload..], packet, memory)?;
    }
    // Most packets are as long as the one before. Another core used the mbuf last.
    if let Some(next) = next {
        next.prefetch_rest(end);
    }
    if is_large { Ok(()) } else { sums.seal(l3).ok_or(TOO_LONG) }
}

/// Gathers the payload and pads it.
#[inline]
fn fill(out: &mut [u8], packet: &Outbound<'_>, memory: &Access<'_>) -> Result<(), TransmitError> {
    let mut at = 0;
    for piece in packet.payload.clone() {
        let place = &mut out[at..at + piece.len() as usize];
        at += place.len();
        match piece {
            Piece::Region(region) => {
                memory.read(packet.by, region, place).map_err(TransmitError::Memory)?;
            }
            Piece::Bytes(bytes) => place.copy_from_slice(bytes),
        }
    }
    out[at..at + usize::from(packet.bth.pad_count)].fill(0);
    Ok(())
}

/// Gathers and pads the payload at `payload` in `l3`, and appends the invariant CRC, in one pass.
fn fill_summed(
    l3: &mut [u8],
    payload: usize,
    packet: &Outbound<'_>,
    memory: &Access<'_>,
    sums: &mut OuterSums,
) -> Result<(), TransmitError> {
    let (headers, out) = l3.split_at_mut(payload);
    let (mut sum, mut at) = (sums.of(headers).ok_or(TOO_LONG)?, 0);
    for piece in packet.payload.clone() {
        let place = &mut out[at..at + piece.len() as usize];
        at += place.len();
        sum = match piece {
            Piece::Region(region) => {
                let sum = memory.read_summed(packet.by, region, place, sum);
                sum.map_err(TransmitError::Memory)?
            }
            Piece::Bytes(bytes) => copy_summed(bytes, place, sum),
        };
    }
    let (pad, icrc) = out[at..].split_at_mut(usize::from(packet.bth.pad_count));
    pad.fill(0);
    icrc.copy_from_slice(&sum.and(pad).to_bytes());
    Ok(())
}
