//! A queue pair: the data path of a port for one thread.

use super::Device;
use super::memif::Gate;
use super::signal::Signal;
use crate::dpdk::eal::lock;
use crate::dpdk::mbuf::MbufBatch;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use uroce_shared::wake::bed::Bed;

/// The receive and transmit queues of one number. DPDK's queues allow one thread at a time: this
/// type can be sent to a thread but not shared.
#[derive(Debug)]
pub struct QueuePair {
    device: Arc<Device>,
    index: u16,
    /// Whether the device is a NIC.
    is_nic: bool,
    multi_segment_drops: u64,
    /// For a memif port: closed while the driver tears its connection down.
    gate: Option<Arc<Gate>>,
    /// Wakes the owner's thread when frames arrive while it sleeps.
    signal: Signal,
    _not_sync: PhantomData<Cell<()>>,
}

impl QueuePair {
    /// Makes a queue pair that the caller has marked as taken.
    pub(super) fn new(device: Arc<Device>, index: u16) -> Self {
        let gate = device.under.link.as_ref().map(|link| link.gate());
        let signal = Signal::of(&device, index);
        if let Some(wakers) = &lock(&device.sleepers)[usize::from(index)] {
            // The lcore that had the queue before sleeps on these. If they refuse the queue, the
            // lcore wakes by itself now and then.
            let _ = signal.add_to(wakers);
        }
        let is_nic = device.capabilities.is_pci();
        Self { device, index, is_nic, multi_segment_drops: 0, gate, signal, _not_sync: PhantomData }
    }

    /// Returns its number in the port.
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
            // SAFETY: `self` keeps the device running, and the device has this queue; `taken` keeps
            // other threads from polling it; `spare` has room for `room` pointers.
            unsafe { dpdk_sys::uroce_rx_burst(id, queue, spare, room, &mut dropped) }
        });
        if let (0, Some(gate)) = (received, &self.gate) {
            gate.count_dry(self.index);
        }
        self.multi_segment_drops += u64::from(dropped);
        // SAFETY: `received` mbufs were written, at most `room`; the driver hands over its only
        // reference, and the shim has made each a single segment.
        unsafe { batch.grow(received) };
        received
    }

    /// Sends frames from the front of the batch, as many as the device takes; returns how many.
    ///
    /// Sent frames are removed from the batch. The unsent ones stay, in order. None is sent while
    /// the queue is full, and on some devices (memif) while the link is down.
    #[inline]
    pub fn tx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        let (id, queue) = (self.device.id, self.index);
        let (first, len) = (batch.pointers(), batch.len() as u16);
        let sent = self.pass(|| {
            // SAFETY: `self` keeps the device running, and the device has this queue; `taken` keeps
            // other threads from using it; the first `len` pointers are owned mbufs of a single
            // segment.
            unsafe { dpdk_sys::uroce_tx_burst(id, queue, first, len) }
        });
        // SAFETY: the driver now owns the first `sent ≤ len` mbufs.
        unsafe { batch.forget_front(sent) };
        if sent > 0 {
            self.signal.sent();
        }
        sent
    }

    /// Has a NIC's driver free the mbufs that were sent, when the mempool is empty. By themselves
    /// most drivers do so only once the queue is nearly full.
    #[cold]
    pub(crate) fn reclaim(&mut self) {
        if self.is_nic {
            // SAFETY: `self` keeps the device running, and the device has this queue; `taken` keeps
            // other threads from using it.
            unsafe { dpdk_sys::uroce_tx_reclaim(self.device.id, self.index) }
        }
    }

    /// Runs a burst; returns 0 without running it while the gate is closed.
    #[inline]
    fn pass(&self, burst: impl FnOnce() -> u16) -> usize {
        usize::from(match &self.gate {
            None => burst(),
            Some(gate) => gate.pass(self.index, burst).unwrap_or(0),
        })
    }

    /// Makes arriving frames wake a bed while the queue is [armed](QueuePair::arm).
    ///
    /// # Errors
    /// The driver has no interrupt, or the process has no descriptor left.
    pub(crate) fn listen(&self, bed: &Bed) -> io::Result<()> {
        self.signal.listen(bed)?;
        lock(&self.device.sleepers)[usize::from(self.index)] = Some(Arc::clone(bed.wakers()));
        Ok(())
    }

    /// Arms the queue: arriving frames wake the bed from now on. Returns false if the queue has to
    /// be polled.
    pub(crate) fn arm(&self) -> bool {
        self.signal.arm()
    }

    /// Disarms the queue: it is polled again.
    pub(crate) fn disarm(&self) {
        self.signal.disarm();
    }

    /// Returns the number of frames that came in several segments and did not fit into one mbuf. A
    /// peer that respects the MTU does not cause this.
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
