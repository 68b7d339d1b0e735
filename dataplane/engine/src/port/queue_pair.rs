//! A queue pair: the data path of a port for one thread.

use super::local::LocalQueues;
use super::udp::UdpQueues;
use crate::dpdk::mbuf::MbufBatch;
use crate::dpdk::port::QueuePair as EthdevQueues;
use std::io;
use uroce_shared::wake::bed::Bed;
use uroce_transport::Instant;
use uroce_wire::Mac;

/// The receive and transmit queues of one number. It can be sent to a thread but not shared.
#[derive(Debug)]
pub struct QueuePair(Kind);

#[derive(Debug)]
enum Kind {
    Ethdev(EthdevQueues),
    Local(Box<LocalQueues>),
    Udp(Box<UdpQueues>),
}

impl From<EthdevQueues> for QueuePair {
    fn from(queues: EthdevQueues) -> QueuePair {
        QueuePair(Kind::Ethdev(queues))
    }
}

impl From<LocalQueues> for QueuePair {
    fn from(queues: LocalQueues) -> QueuePair {
        QueuePair(Kind::Local(Box::new(queues)))
    }
}

impl From<UdpQueues> for QueuePair {
    fn from(queues: UdpQueues) -> QueuePair {
        QueuePair(Kind::Udp(Box::new(queues)))
    }
}

impl QueuePair {
    /// Returns its number in the port.
    pub fn index(&self) -> u16 {
        match &self.0 {
            Kind::Ethdev(queues) => queues.index(),
            Kind::Local(queues) => queues.index(),
            Kind::Udp(queues) => queues.index(),
        }
    }

    /// Begins a turn of the owner. Times of all turns have one origin and do not go back. DPDK's
    /// devices need no time.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        if let Kind::Local(queues) = &mut self.0 {
            queues.begin(now);
        }
    }

    /// Appends received frames to the batch, as many as there are and fit; returns how many.
    ///
    /// Best called with an empty batch: vector drivers deliver in multiples of 4, 8 or 32.
    #[inline]
    pub fn rx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        match &mut self.0 {
            Kind::Ethdev(queues) => queues.rx_burst(batch),
            Kind::Local(queues) => queues.rx_burst(batch),
            Kind::Udp(queues) => queues.rx_burst(batch),
        }
    }

    /// Sends frames of the batch, as many as the port takes; returns how many.
    ///
    /// Sent frames are removed from the batch. The unsent ones stay, in order. A DPDK device takes
    /// frames from the front: none is sent while the queue is full, and on some devices (memif)
    /// while the link is down. A local port itself keeps some of the frames for peers without room,
    /// and leaves the others in the batch.
    #[inline]
    pub fn tx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        match &mut self.0 {
            Kind::Ethdev(queues) => queues.tx_burst(batch),
            Kind::Local(queues) => queues.tx_burst(batch),
            Kind::Udp(queues) => queues.tx_burst(batch),
        }
    }

    /// Frees what was sent, as far as that is possible, when the mempool is empty.
    #[cold]
    pub(crate) fn reclaim(&mut self) {
        if let Kind::Ethdev(queues) = &mut self.0 {
            queues.reclaim();
        }
    }

    /// Makes arriving frames wake a bed while the queue is [armed](QueuePair::arm).
    ///
    /// # Errors
    /// The driver has no interrupt, or the process has no descriptor left.
    pub(crate) fn listen(&self, bed: &Bed) -> io::Result<()> {
        match &self.0 {
            Kind::Ethdev(queues) => queues.listen(bed),
            Kind::Local(queues) => queues.listen(bed),
            Kind::Udp(queues) => queues.listen(bed),
        }
    }

    /// Arms the queue: arriving frames wake the bed from now on. Returns false if the queue has to
    /// be polled.
    pub(crate) fn arm(&mut self) -> bool {
        match &mut self.0 {
            Kind::Ethdev(queues) => queues.arm(),
            Kind::Local(queues) => queues.arm(),
            Kind::Udp(queues) => queues.arm(),
        }
    }

    /// Disarms the queue: it is polled again.
    pub(crate) fn disarm(&mut self) {
        match &mut self.0 {
            Kind::Ethdev(queues) => queues.disarm(),
            Kind::Local(queues) => queues.disarm(),
            Kind::Udp(_) => {}
        }
    }

    /// Returns the number of frames that came in several segments and did not fit into one mbuf. A
    /// peer that respects the MTU does not cause this.
    pub fn multi_segment_drops(&self) -> u64 {
        match &self.0 {
            Kind::Ethdev(queues) => queues.multi_segment_drops(),
            Kind::Local(_) | Kind::Udp(_) => 0,
        }
    }

    /// Returns whether frames to this Ethernet address have to wait, while others need not.
    pub(crate) fn is_waiting(&self, mac: Mac) -> bool {
        matches!(&self.0, Kind::Local(queues) if queues.is_waiting(mac))
    }

    /// Returns whether frames that were taken from a batch still wait in the port.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        matches!(&self.0, Kind::Local(queues) if queues.has_parked())
    }

    /// Drops the frames that wait in the port; returns how many.
    pub(crate) fn drop_parked(&mut self) -> usize {
        match &mut self.0 {
            Kind::Ethdev(_) | Kind::Udp(_) => 0,
            Kind::Local(queues) => queues.drop_parked(),
        }
    }

    /// Returns whether the port itself drops frames that have waited for too long, each by its own
    /// peer. Where a port has one peer the engine drops them.
    #[inline]
    pub(crate) fn bounds_waits(&self) -> bool {
        matches!(self.0, Kind::Local(_))
    }

    /// Returns the number of frames that the port itself has dropped because their peer has taken
    /// nothing for long.
    pub(crate) fn stuck_drops(&self) -> u64 {
        match &self.0 {
            Kind::Ethdev(_) | Kind::Udp(_) => 0,
            Kind::Local(queues) => queues.stuck_drops(),
        }
    }
}
