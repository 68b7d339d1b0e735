//! Exits: the queues through which frames leave the lcore that received them.

use super::destination::Destination;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::Mbuf;
use crate::limits::MAX_PORTS;
use std::sync::Arc;
use uroce_shared::sync::ArrayQueue;
use uroce_shared::wake::bell::Bell;
use uroce_shared::wake::waker::Waker;
use uroce_transport::{DropReason, Pd};

/// Capacity of an lcore's hand-over queue, in packets.
const HAND_OVER: usize = 1024;
/// Capacity, in frames, of each of the two queues to the control plane. The queues are separate, so
/// that neither kind of frame takes the other's room.
const SLOW_PATH: usize = 256;

/// A received frame that is not RoCEv2: ARP, neighbour discovery, ICMP …
#[derive(Debug)]
pub struct SlowFrame {
    /// The port that received the frame, counted from 1.
    pub port: u8,
    /// The frame.
    pub mbuf: Mbuf,
}

/// A received packet to QP 1, the general services interface: a management datagram.
///
/// It is a RoCEv2 packet to an address of the port, and its service is UD. Its invariant CRC is
/// verified, unless the frame was looped back.
#[derive(Debug)]
pub struct GsiFrame {
    /// The port that received the packet, counted from 1.
    pub port: u8,
    /// The whole frame.
    pub mbuf: Mbuf,
}

/// What the lcore that a frame is handed over to does with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Its invariant CRC is verified, or it was looped back: the QP that it names gets it.
    Packet,
    /// The lcore's raw QPs that take it get it.
    Raw,
    /// The lcore's raw QPs that take it get it, except those of the sender's domain.
    Heard(Sender),
    /// The lcore's sniffers get it.
    Sniffed,
}

/// The domain of a raw QP that has sent a frame, in bytes: they need no alignment in [`Handed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sender([u8; 4]);

impl From<Pd> for Sender {
    fn from(Pd(number): Pd) -> Sender {
        Sender(number.to_ne_bytes())
    }
}

impl From<Sender> for Pd {
    fn from(Sender(bytes): Sender) -> Pd {
        Pd(u32::from_ne_bytes(bytes))
    }
}

/// A frame that is handed over. Two words, as there is one for each packet to another lcore's QP.
#[derive(Debug)]
pub(super) struct Handed {
    port: u8,
    purpose: Purpose,
    mbuf: Mbuf,
}

const _: () = assert!(size_of::<Handed>() == 16);

impl Handed {
    /// A frame that port `port`, counted from 0, has received.
    #[inline]
    pub(super) fn new(port: usize, purpose: Purpose, mbuf: Mbuf) -> Handed {
        const { assert!(MAX_PORTS <= u8::MAX as usize) };
        Handed { port: port as u8, purpose, mbuf }
    }

    /// Returns the port, counted from 0, the purpose and the frame.
    #[inline]
    pub(super) fn into_parts(self) -> (usize, Purpose, Mbuf) {
        (usize::from(self.port), self.purpose, self.mbuf)
    }
}

/// The queues through which packets leave the lcore that received them.
#[derive(Debug)]
pub(crate) struct Exits {
    /// One queue per lcore: frames for its QPs.
    hand_over: Box<[ArrayQueue<Handed>]>,
    /// One bell per lcore, rung after a packet was put into its queue.
    bells: Box<[Arc<Bell>]>,
    /// Frames for the control plane.
    pub(crate) slow_path: ArrayQueue<SlowFrame>,
    /// Packets to QP 1 for the control plane.
    pub(crate) gsi: ArrayQueue<GsiFrame>,
    /// Wakes the control plane for either queue.
    pub(crate) waker: Arc<Waker>,
}

impl Exits {
    /// Makes the queues of an engine that has one lcore per bell.
    pub(crate) fn new(bells: Box<[Arc<Bell>]>, waker: Arc<Waker>) -> Exits {
        // A single lcore never hands over.
        let depth = if bells.len() > 1 { HAND_OVER } else { 1 };
        Exits {
            hand_over: (0..bells.len()).map(|_| ArrayQueue::new(depth)).collect(),
            slow_path: ArrayQueue::new(SLOW_PATH),
            gsi: ArrayQueue::new(SLOW_PATH),
            bells,
            waker,
        }
    }

    /// Returns the queue of packets that other lcores have handed over to lcore `lcore`.
    pub(super) fn handed_over(&self, lcore: usize) -> &ArrayQueue<Handed> {
        &self.hand_over[lcore]
    }

    /// Puts a frame that port `port` (counted from 0) has received into the queue of its
    /// destination. Returns the frame if it stays with the lcore, because its destination has no
    /// queue or the queue is full. A full queue is counted.
    //= check J13 — what the control plane does not take in time is dropped, and nothing else
    pub(super) fn carry(
        &self,
        destination: Destination,
        port: usize,
        mbuf: Mbuf,
        counters: &CounterBlock,
    ) -> Option<Mbuf> {
        const { assert!(MAX_PORTS <= u8::MAX as usize) };
        let number = port as u8 + 1;
        let (rest, done, full) = match destination {
            Destination::Lcore(owner) => (
                self.hand_over(usize::from(owner), Handed::new(port, Purpose::Packet, mbuf)),
                EngineCounter::HandedOver,
                DropReason::HandOverFull,
            ),
            Destination::SlowPath => (
                self.slow_path.push(SlowFrame { port: number, mbuf }).err().map(|full| full.mbuf),
                EngineCounter::RxOther,
                DropReason::SlowPathFull,
            ),
            Destination::Gsi => (
                self.gsi.push(GsiFrame { port: number, mbuf }).err().map(|full| full.mbuf),
                EngineCounter::RxGsi,
                DropReason::GsiFull,
            ),
            Destination::Done
            | Destination::Held
            | Destination::Drop(_)
            | Destination::Group
            | Destination::Raw
            | Destination::RawAndHost => return Some(mbuf),
        };
        match &rest {
            None => counters.count(done),
            Some(_) => counters.count_drop(full),
        }
        rest
    }

    /// Hands a frame for raw QPs over to an lcore. Returns false if that lcore has too many: half
    /// of its queue is left to RoCE.
    pub(super) fn share(&self, owner: usize, handed: Handed, counters: &CounterBlock) -> bool {
        let is_crowded =
            self.hand_over.get(owner).is_none_or(|queue| queue.len() >= queue.capacity() / 2);
        let is_shared = !is_crowded && self.hand_over(owner, handed).is_none();
        if is_shared {
            counters.count(EngineCounter::HandedOver);
        }
        is_shared
    }

    fn hand_over(&self, owner: usize, handed: Handed) -> Option<Mbuf> {
        let Some(queue) = self.hand_over.get(owner) else { return Some(handed.mbuf) };
        let rest = queue.push(handed).err().map(|handed| handed.mbuf);
        if rest.is_none() {
            self.bells[owner].ring();
        }
        rest
    }
}
