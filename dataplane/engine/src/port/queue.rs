//! A queue pair: the data path of a port for one thread.

use super::Device;
use super::memif::Gate;
use super::signal::Signal;
use crate::bed::Bed;
use crate::eal::lock;
use crate::mbuf::MbufBatch;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

/// Receive and transmit queue of one number. DPDK's queues take one thread at a time, which this
/// type is: it can be sent to a thread and not be shared.
#[derive(Debug)]
pub struct QueuePair {
    device: Arc<Device>,
    index: u16,
    multi_segment_drops: u64,
    /// Of a memif port: closed while the driver loses its peer.
    gate: Option<Arc<Gate>>,
    /// Tells of frames while the owner sleeps.
    signal: Signal,
    _not_sync: PhantomData<Cell<()>>,
}

impl QueuePair {
    /// The caller has marked it as taken.
    pub(super) fn new(device: Arc<Device>, index: u16) -> Self {
        let gate = device.under.link.as_ref().map(|link| link.gate());
        let signal = Signal::of(&device, index);
        Self { device, index, multi_segment_drops: 0, gate, signal, _not_sync: PhantomData }
    }

    /// Its number in the port.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Appends received frames to the batch, as many as there are and fit; returns how many.
    ///
    /// Best called with an empty batch: vector drivers deliver in multiples of 4, 8 or 32.
    #[inline]
    pub fn rx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        let (id, queue) = (self.device.id, self.index);
        let (spare, room, mut dropped) = (batch.spare(), batch.room() as u16, 0);
        let received = self.pass(|| {
            // SAFETY: the device runs while we hold it and has this queue; nobody else polls it
            // (`taken`); `spare` has room for `room` pointers.
            unsafe { dpdk_sys::uroce_rx_burst(id, queue, spare, room, &mut dropped) }
        });
        if let (0, Some(gate)) = (received, &self.gate) {
            gate.count_dry(self.index);
        }
        self.multi_segment_drops += u64::from(dropped);
        // SAFETY: so many mbufs were written, at most `room`; a driver hands over its only
        // reference, and the shim made each a single segment.
        unsafe { batch.grow(received) };
        received
    }

    /// Sends frames from the front of the batch, as many as the device takes; returns how many.
    ///
    /// Those are gone from the batch. The unsent tail stays, in order: 0 are sent while the queue
    /// is full, and on some devices (memif) while the link is down.
    #[inline]
    pub fn tx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        let (id, queue) = (self.device.id, self.index);
        let (first, len) = (batch.pointers(), batch.len() as u16);
        let sent = self.pass(|| {
            // SAFETY: as in `rx_burst`; the first `len` pointers are mbufs of ours, of a single
            // segment.
            unsafe { dpdk_sys::uroce_tx_burst(id, queue, first, len) }
        });
        // SAFETY: the driver owns the first `sent ≤ len` mbufs.
        unsafe { batch.forget_front(sent) };
        if sent > 0 {
            self.signal.sent();
        }
        sent
    }

    /// Runs a burst, or says 0 while the gate is closed.
    #[inline]
    fn pass(&self, burst: impl FnOnce() -> u16) -> usize {
        usize::from(match &self.gate {
            None => burst(),
            Some(gate) => gate.pass(self.index, burst).unwrap_or(0),
        })
    }

    /// Has frames that come in wake a bed while the queue is [armed](QueuePair::arm).
    ///
    /// # Errors
    /// The driver has no interrupt, or the process no descriptor left.
    pub(crate) fn listen(&self, bed: &Bed) -> io::Result<()> {
        self.signal.listen(bed)
    }

    /// Frames that come in wake the bed from now on. Says whether they do; if not, somebody has to look.
    pub(crate) fn arm(&self) -> bool {
        self.signal.arm()
    }

    /// Somebody looks again.
    pub(crate) fn disarm(&self) {
        self.signal.disarm();
    }

    /// Frames that came in several segments and did not fit into one mbuf, which no peer within
    /// the MTU causes.
    pub fn multi_segment_drops(&self) -> u64 {
        self.multi_segment_drops
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let Some(taken) = lock(&self.device.taken).get_mut(usize::from(self.index)) {
            *taken = false;
        }
    }
}
