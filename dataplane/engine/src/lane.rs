//! Lane: one lcore's state of a port. Packets of QPs and frames of the control plane leave through
//! it, or are looped back; received frames come in through it.
//!
//! ```text
//!              ┌▶ tx_lane: frame ─▶ batch ─▶ [bottleneck] ─▶ tx_burst
//!   Outbound ──┤
//!              └▶ loopback ─▶ the lcore's next turn
//!   rx_burst ───▶ rx_lane ─▶ crate::rx
//! ```
//!
//! Frames to the device's own addresses do not go to the port. A datagram to a multicast group goes
//! both ways if the group has QPs of this device.
//!
//! Invariants
//! - A refused packet leaves nothing behind. It is refused with [`TransmitError::Full`] if it may
//!   be accepted later.
//!
//! Not here: the order in which QPs send ([`crate::qp::schedule`]); where a received
//! frame goes ([`crate::rx`]).

pub(crate) mod binding;
pub(crate) mod bottleneck;
pub(crate) mod faults;
pub(crate) mod forward;
mod frame;
mod host;
pub(crate) mod loopback;
pub(crate) mod loss;
mod patience;
mod queue;
mod random;
mod raw;
mod rx_lane;
pub(crate) mod sniffed;
pub(crate) mod tap;
mod tx_lane;

use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::Mbuf;
use binding::{PortAddresses, PortBinding, path_mtu_of};
use bottleneck::backlog::Backlog;
use bottleneck::slow::Bottleneck;
use faults::{Faults, PortFaults};
use forward::Forwarding;
use loopback::Loopback;
pub(crate) use queue::{Queue, queues};
use rx_lane::RxLane;
use sniffed::Sniffed;
use std::sync::Arc;
use tap::Tap;
use tx_lane::TxLane;
use uroce_shared::memory::mr_table::MrView;
use uroce_transport::{DropReason, Instant, Outbound, TransmitError};
use uroce_wire::{HeaderTemplate, Mac, PathMtu, Qpn};

/// Largest number of batches of other lcores' frames that are sent in one turn.
const GUESTS: usize = 4;
/// Largest number of batches that leave a bottleneck in one turn: more than a turn adds.
const RELEASES: usize = 8;

/// One lcore's state of a port.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Queue,
    pub(crate) addresses: Box<PortAddresses>,
    /// The largest path MTU that fits the port. Datagrams use it.
    pub(crate) path_mtu: Option<PathMtu>,
    pub(crate) rx: RxLane,
    pub(crate) looped: Loopback,
    tx: TxLane,
    forwarding: Forwarding,
    /// Takes copies of frames for a capture.
    tap: Option<Box<Tap>>,
    /// Takes copies of sent frames for sniffers.
    sniffed: Option<Box<Sniffed>>,
    /// The time of this turn.
    now: Instant,
    /// Whether the link is set down.
    is_cut: bool,
    /// Whether a frame takes more work than to be passed on: the link is set down, faults are
    /// injected, there is a tap or a sniffer, or the port forwards.
    is_watched: bool,
    /// Whether some frames wait because their receivers alone have no room. Then each new frame's
    /// receiver is looked at.
    has_waiting: bool,
    /// Whether the last packet was refused because its receiver has no room.
    receiver_is_full: bool,
}

impl Lane {
    /// Makes the state of a port for lcore number `lcore`. `backlog` is the port's.
    pub(crate) fn new(
        queue: Queue,
        lcore: usize,
        binding: &PortBinding,
        backlog: &Arc<Backlog>,
    ) -> Lane {
        let mut faults = PortFaults::default();
        faults.set_loss(binding.loss);
        // Loss holds no frames, so the number of lcores does not matter here.
        let [rx_faults, tx_faults] = faults.at_queue(lcore, 1, &binding.pool);
        let bottleneck = binding.bottleneck.as_ref();
        let bottleneck = bottleneck.map(|config| Bottleneck::new(config, lcore, backlog));
        let mut lane = Lane {
            queue,
            addresses: Box::new(binding.addresses.clone()),
            path_mtu: path_mtu_of(binding.port.mtu()),
            rx: RxLane::new(rx_faults),
            looped: Loopback::new(),
            tx: TxLane::new(binding.pool.clone(), tx_faults, bottleneck),
            forwarding: Forwarding::new(binding.port.mtu()),
            tap: None,
            sniffed: None,
            now: Instant::ZERO,
            is_cut: false,
            is_watched: false,
            has_waiting: false,
            receiver_is_full: false,
        };
        lane.watch();
        lane
    }

    /// Updates `is_watched`. To be called after each change of what it depends on.
    fn watch(&mut self) {
        let has_faults = self.rx.faults.is_some() || self.tx.faults.is_some();
        let is_copied = self.tap.is_some() || self.is_sniffed();
        let is_special = is_copied || self.forwarding.of_received.is_some();
        self.is_watched = self.is_cut || has_faults || is_special;
    }

    /// Builds a packet behind the headers of `template` and queues it, for the port or to be looped
    /// back. Returns the frame's length in bytes.
    ///
    /// # Errors
    /// [`TransmitError`]; nothing was queued.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &MrView<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        if template.is_loopback() {
            return self.transmit_looped(template, packet, memory, counters);
        }
        self.check_room()?;
        if self.has_waiting && self.queue.is_waiting(template.dst_mac()) {
            self.receiver_is_full = true;
            return Err(TransmitError::Full);
        }
        if self.is_watched {
            return self.transmit_watched(template, packet, memory, counters);
        }
        let mbuf = self.tx.build(template, packet, memory)?;
        let len = self.tx.count_sent(&mbuf, counters);
        self.tx.queue(mbuf);
        Ok(len)
    }

    /// Builds a packet and queues it for the port, unless it is lost because the link is set down
    /// or by injected loss. Returns the frame's length in bytes.
    #[inline(never)]
    fn transmit_watched(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &MrView<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        let mbuf = self.tx.build(template, packet, memory)?;
        let len = mbuf.len() as u32;
        if self.is_cut {
            self.tx.drop_taken(mbuf, EngineCounter::TxLinkDown, counters);
        } else if let Some(mbuf) = self.tx.lose(mbuf, packet.by.qpn, counters)
            && let Some(mbuf) = self.tx.detour(mbuf, Some(packet.by.qpn), self.now, counters)
        {
            self.tap_sent(&mbuf, Some(packet.by.qpn));
            self.tx.queue(mbuf);
        }
        Ok(len)
    }

    /// Gives the tap and the sniffers, if there are any, a copy of a frame that is sent. `by` is
    /// the QP that sends it; `None` for frames of the control plane and forwarded ones.
    #[inline]
    fn tap_sent(&mut self, frame: &Mbuf, by: Option<Qpn>) {
        if let Some(tap) = &mut self.tap {
            tap.take_sent(frame.as_slice(), by, self.now);
        }
        if let Some(sniffed) = &mut self.sniffed {
            sniffed.take(frame, &mut self.tx);
        }
    }

    /// Gives the tap, if there is one, a copy of a received frame.
    #[inline]
    pub(crate) fn tap_received(&mut self, frame: &Mbuf) {
        if let Some(tap) = &mut self.tap {
            tap.take_received(frame.as_slice(), self.now);
        }
    }

    /// Tells the tap, if there is one, that a received frame was dropped.
    #[cold]
    pub(crate) fn tap_dropped(&mut self, frame: &Mbuf, reason: DropReason) {
        if let Some(tap) = &mut self.tap {
            tap.take_dropped(frame.as_slice(), reason, self.now);
        }
    }

    /// Sets the tap, or none; returns the former one.
    pub(crate) fn set_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        let former = std::mem::replace(&mut self.tap, tap);
        self.watch();
        former
    }

    /// Returns, once, whether the last refused packet was refused for its destination alone, so
    /// that others may be accepted.
    pub(crate) fn take_was_refused_alone(&mut self) -> bool {
        std::mem::take(&mut self.receiver_is_full) | self.looped.take_was_full()
    }

    /// Builds a packet to one of the device's own addresses and queues it to be looped back.
    /// Returns the frame's length in bytes.
    #[inline(never)]
    fn transmit_looped(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &MrView<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        self.looped.check_room()?;
        let mbuf = self.tx.build(template, packet, memory)?;
        let len = mbuf.len() as u32;
        if let Some(mbuf) = self.tx.lose(mbuf, packet.by.qpn, counters) {
            counters.count(EngineCounter::Looped);
            self.tap_sent(&mbuf, Some(packet.by.qpn));
            self.looped.push(mbuf);
        }
        Ok(len)
    }

    /// Builds a datagram to a group that has QPs of this device. Queues it for the port, and a copy
    /// to be looped back to them. Returns the frame's length in bytes.
    ///
    /// # Errors
    /// [`TransmitError`]; nothing was queued.
    //= check L5 — members on the sender's device get it as those on other hosts do
    pub(crate) fn transmit_to_group(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &MrView<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, TransmitError> {
        self.looped.check_room()?;
        self.check_room()?;
        let mut copy = self.tx.empty_mbuf().ok_or(TransmitError::Full)?;
        let built = self.tx.build(template, packet, memory);
        let by = packet.by.qpn;
        let built = built.map(|mbuf| (mbuf.len() as u32, self.tx.lose(mbuf, by, counters)));
        let (len, mbuf) = match built {
            Ok((len, Some(mbuf))) => (len, mbuf),
            lost_or_refused => {
                self.tx.give_back(copy);
                return lost_or_refused.map(|(len, _)| len);
            }
        };
        // This cannot fail: mbufs of one mempool have one size.
        if copy.set_len(mbuf.len()).is_ok() {
            copy.as_mut_slice().copy_from_slice(mbuf.as_slice());
            counters.count(EngineCounter::Looped);
            self.looped.push(copy);
        }
        // The link concerns only the frame for the port: the copy does not pass it.
        if self.is_cut {
            counters.count(EngineCounter::TxLinkDown);
            self.tx.give_back(mbuf);
        } else if let Some(mbuf) = self.tx.detour(mbuf, Some(by), self.now, counters) {
            self.tap_sent(&mbuf, Some(by));
            self.tx.queue(mbuf);
        }
        Ok(len)
    }

    /// Checks that there is room for one more frame in the batch; sends a burst to make room.
    ///
    /// # Errors
    /// [`TransmitError::Full`].
    #[inline]
    fn check_room(&mut self) -> Result<(), TransmitError> {
        if self.has_room() {
            return Ok(());
        }
        self.looped.is_not_to_blame();
        self.receiver_is_full = false;
        Err(TransmitError::Full)
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        self.tx.batch.room() > 0 || self.burst() > 0
    }

    /// Returns a copy of a frame; `None` if the mempool is empty.
    pub(crate) fn copy_of(&mut self, frame: &Mbuf) -> Option<Mbuf> {
        self.tx.copy_of(frame)
    }

    /// Returns a copy of a frame for a raw QP; `None` if that would leave RoCE few mbufs.
    pub(crate) fn spare_copy_of(&mut self, frame: &Mbuf) -> Option<Mbuf> {
        self.tx.spare_copy_of(frame)
    }

    /// Returns whether [`inject`](Lane::inject) can take a complete frame: there is room for it, in
    /// the batch or to be looped back, or it is to be dropped because its link is set down.
    pub(crate) fn can_inject(&mut self, frame: &Mbuf) -> bool {
        match is_looped(frame) {
            true => self.looped.has_room(),
            false => self.is_cut || self.has_room(),
        }
    }

    /// Queues a complete frame, or drops and counts it if its link is set down.
    /// [`can_inject`](Lane::can_inject) must have returned true.
    pub(crate) fn inject(&mut self, frame: Mbuf, counters: &CounterBlock) {
        if is_looped(&frame) {
            counters.count(EngineCounter::Looped);
            self.tap_sent(&frame, None);
            self.looped.push(frame);
        } else if self.is_cut {
            counters.count(EngineCounter::TxLinkDown);
        } else {
            counters.count(EngineCounter::TxOther);
            self.tap_sent(&frame, None);
            self.tx.queue(frame);
        }
    }

    /// Sets the faults of received and sent frames; returns the former ones. The frames that these
    /// hold are dropped.
    pub(crate) fn set_faults(
        &mut self,
        [rx, tx]: [Option<Box<Faults>>; 2],
        counters: &CounterBlock,
    ) -> [Option<Box<Faults>>; 2] {
        let rx = std::mem::replace(&mut self.rx.faults, rx);
        let tx = std::mem::replace(&mut self.tx.faults, tx);
        let mut former = [rx, tx];
        former.iter_mut().flatten().for_each(|faults| faults.end(counters));
        self.watch();
        former
    }

    /// Queues the frames that injected faults have held and that are due.
    #[inline(never)]
    fn release_held(&mut self, now: Instant) {
        while self.tx.faults.is_some()
            && self.has_room()
            && let Some(faults) = &mut self.tx.faults
            && let Some((by, mbuf)) = faults.release(now)
        {
            self.tap_sent(&mbuf, by);
            self.tx.queue(mbuf);
        }
    }

    /// Sets the bottleneck, or none; returns the former one. The frames that wait in it are
    /// dropped.
    pub(crate) fn set_bottleneck(
        &mut self,
        bottleneck: Option<Box<Bottleneck>>,
        now: Instant,
        counters: &CounterBlock,
    ) -> Option<Box<Bottleneck>> {
        let over = self.tx.former_bottleneck.take();
        let mut former = std::mem::replace(&mut self.tx.bottleneck, bottleneck).or(over);
        if let Some(former) = &mut former {
            former.end(counters);
        }
        self.begin(now);
        former
    }

    /// Sets the rate of the bottleneck, or takes it away; returns whether there is a bottleneck.
    /// Frames that wait in it leave at the new rate.
    pub(crate) fn set_rate(
        &mut self,
        rate_mbps: Option<u32>,
        is_first: bool,
        now: Instant,
    ) -> bool {
        let over = self.tx.former_bottleneck.take();
        self.tx.bottleneck = self.tx.bottleneck.take().or(over);
        self.begin(now);
        let bottleneck = self.tx.bottleneck.as_mut();
        bottleneck.map(|bottleneck| bottleneck.set_rate(rate_mbps, is_first)).is_some()
    }

    /// Begins a turn: frames that are queued or sent from now on come at this time.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = now;
        self.queue.begin(now);
        if let Some(bottleneck) = &mut self.tx.bottleneck {
            bottleneck.begin(now);
        }
    }

    /// Sets the link up or down. Frames that wait for a link that goes down are lost.
    #[cold]
    pub(crate) fn set_link(&mut self, up: bool, counters: &CounterBlock) {
        self.is_cut = !up;
        self.watch();
        self.tx.patience.link_moved();
        if self.is_cut {
            let waiting = self.tx.drop_waiting() + self.queue.drop_parked() as u64;
            let drop = |of: &mut Option<Box<Faults>>| of.as_mut().map_or(0, |of| of.drop_held());
            let (held, received) = (drop(&mut self.tx.faults), drop(&mut self.rx.faults));
            counters.add(EngineCounter::TxLinkDown, waiting + held);
            counters.add(EngineCounter::RxLinkDown, received);
            self.has_waiting = false;
        }
    }

    /// Returns the number of packets that the lane has accepted from QPs since the start.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.tx.taken
    }

    /// Returns the bytes of all frames that the lane has made of QPs' packets since the start.
    #[inline]
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.tx.taken_bytes
    }

    /// Returns whether no frame waits to leave or to be looped back.
    pub(crate) fn is_at_rest(&self) -> bool {
        let mut faults = [&self.rx.faults, &self.tx.faults].into_iter().flatten();
        let holds_none = faults.all(|faults| faults.is_empty());
        let is_sniffed = self.sniffed.as_ref().is_none_or(|sniffed| sniffed.is_empty());
        let is_empty = self.tx.is_empty() && self.looped.is_empty() && is_sniffed;
        holds_none && is_empty && self.queue.is_at_rest()
    }

    /// Ends the turn: sends all frames that the port takes. Returns whether any were sent.
    #[inline]
    pub(crate) fn flush(&mut self, now: Instant, counters: &CounterBlock) -> bool {
        if self.is_watched {
            self.release_held(now);
        }
        if self.tx.bottleneck.is_some() {
            return self.flush_slowly(now, counters);
        }
        let mut sent = match self.tx.batch.is_empty() && !self.has_waiting {
            true => 0,
            false => self.burst(),
        };
        // Then the frames of lcores without a queue pair: as many as fit, and more while all of
        // them leave.
        for _ in 0..GUESTS {
            if !self.queue.take_over(&mut self.tx.batch) {
                break;
            }
            sent += self.burst();
            if !self.tx.batch.is_empty() {
                break;
            }
        }
        self.end_turn(!self.tx.batch.is_empty(), now, counters);
        sent > 0
    }

    /// Ends the turn of a port with a bottleneck: sends the frames that may leave it, then those of
    /// lcores without a queue pair, which have passed the bottleneck there.
    #[cold]
    fn flush_slowly(&mut self, now: Instant, counters: &CounterBlock) -> bool {
        let Some(bottleneck) = &mut self.tx.bottleneck else { return false };
        bottleneck.take(&mut self.tx.batch);
        let (mut sent, mut is_full) = (0, false);
        if self.queue.has_parked() {
            sent += self.queue.tx_burst(&mut bottleneck.leaving);
        }
        for _ in 0..RELEASES {
            if !bottleneck.release() && !self.queue.take_over(&mut bottleneck.leaving) {
                break;
            }
            sent += self.queue.tx_burst(&mut bottleneck.leaving);
            is_full = !bottleneck.leaving.is_empty();
            if is_full {
                break;
            }
        }
        bottleneck.count(counters);
        if bottleneck.is_over() {
            self.tx.former_bottleneck = self.tx.bottleneck.take();
        }
        if sent > 0 {
            self.tx.patience.renew();
        }
        self.end_turn(is_full, now, counters);
        sent > 0
    }

    /// Counts what has kept frames of this turn back: a full port or an empty mempool.
    #[inline]
    fn end_turn(&mut self, is_full: bool, now: Instant, counters: &CounterBlock) {
        if is_full {
            counters.count(EngineCounter::TxFull);
            if !self.queue.bounds_waits() {
                self.tx.lose_if_stuck(now, counters);
            }
        }
        if self.tx.take_starved() {
            counters.count(EngineCounter::NoMbuf);
            self.queue.reclaim();
        }
        let stuck = self.queue.stuck_drops();
        if stuck != self.tx.stuck {
            counters.add(EngineCounter::TxStuck, stuck - self.tx.stuck);
            self.tx.stuck = stuck;
        }
    }

    /// Makes room in the batch: sends frames, or moves all of them to the bottleneck. Returns
    /// the number of frames.
    #[inline]
    fn burst(&mut self) -> usize {
        if let Some(bottleneck) = &mut self.tx.bottleneck {
            return bottleneck.take(&mut self.tx.batch);
        }
        let sent = self.queue.tx_burst(&mut self.tx.batch);
        if sent > 0 {
            self.tx.patience.renew();
        }
        self.has_waiting = self.queue.has_parked();
        sent
    }
}

/// Returns whether a frame of the control plane is addressed to the device itself.
fn is_looped(frame: &Mbuf) -> bool {
    frame.as_slice().starts_with(&Mac::LOOPBACK.0)
}
