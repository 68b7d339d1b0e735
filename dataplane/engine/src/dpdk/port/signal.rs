//! Signal: wakes a sleeping lcore when frames arrive. There is one kind for each kind of driver.
//!
//! | driver | what wakes |
//! | --- | --- |
//! | rings of one process | a [`Bell`] that the sender rings |
//! | memif | the interrupt of the receive ring, which the driver leaves masked ([`super::memif`]) |
//! | af_packet | the queue's packet socket |
//! | tap, virtio-user, vhost, NICs with receive interrupts | what `rte_eth_dev_rx_intr_*` gives |
//!
//! Not here: sleeping ([`uroce_shared::wake::bed`]).

use super::Device;
use super::memif::Interrupts;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use uroce_shared::sync::wakers::Wakers;
use uroce_shared::wake::bed::Bed;
use uroce_shared::wake::bell::Bell;

/// How a receive queue signals the arrival of frames.
#[derive(Debug)]
pub(super) enum Signal {
    /// The driver gives no signal.
    Silent,
    /// One end of a ring port: after it has sent, it rings the other end's bell.
    Ring { own: Arc<Bell>, peer: Arc<Bell> },
    /// A memif link's interrupts, and the number of the queue.
    Memif(Arc<Interrupts>, u16),
    /// A socket that the driver opened; it stays open as long as the device and needs no arming.
    Socket(RawFd),
    /// A receive interrupt of DPDK: port, queue and descriptor.
    Interrupt(u16, u16, RawFd),
}

impl Signal {
    /// Returns the signal of receive queue `index`.
    pub(super) fn of(device: &Device, index: u16) -> Signal {
        let at = usize::from(index);
        if let Some((rings, end)) = &device.under.rings {
            let [own, peer] = [*end, 1 - *end].map(|end| Arc::clone(&rings.bells[end][at]));
            return Signal::Ring { own, peer };
        }
        if let Some(link) = &device.under.link {
            return Signal::Memif(link.interrupts(), index);
        }
        if let Some(socket) = device.under.sockets.of_queue(at) {
            return Signal::Socket(socket);
        }
        if !device.has_interrupts {
            return Signal::Silent;
        }
        // SAFETY: the caller holds the device, so the port is started; `index` is one of its
        // queues.
        match unsafe { dpdk_sys::uroce_rx_interrupt_fd(device.id, index) } {
            fd if fd >= 0 => Signal::Interrupt(device.id, index, fd),
            _ => Signal::Silent,
        }
    }

    /// Makes frames wake this bed from now on, whenever the queue is armed.
    ///
    /// # Errors
    /// The driver has no interrupt, or the process has no descriptor left.
    pub(super) fn listen(&self, bed: &Bed) -> io::Result<()> {
        match self {
            Signal::Silent => Err(io::ErrorKind::Unsupported.into()),
            Signal::Ring { own, .. } => bed.wakers().add(own.listen()?),
            Signal::Memif(interrupts, queue) => interrupts.listen(*queue, bed),
            Signal::Socket(_) | Signal::Interrupt(..) => self.add_to(bed.wakers()),
        }
    }

    /// Adds the descriptor of the kernel's or DPDK's own kind, if there is one, to `wakers`.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn add_to(&self, wakers: &Wakers) -> io::Result<()> {
        let (Signal::Socket(fd) | Signal::Interrupt(.., fd)) = self else { return Ok(()) };
        // SAFETY: the driver closes the descriptor with the device or when it is reset. The queue
        // pair keeps the device open, and there is none during a reset.
        wakers.add(unsafe { BorrowedFd::borrow_raw(*fd) })
    }

    /// Arms the queue: frames wake from now on. Returns false if they cannot.
    pub(super) fn arm(&self) -> bool {
        match self {
            Signal::Silent => false,
            Signal::Ring { own, .. } => {
                own.arm();
                true
            }
            Signal::Memif(interrupts, queue) => interrupts.arm(*queue),
            Signal::Socket(_) => true,
            // SAFETY: the queue pair that owns this signal keeps the port open, and `queue` is its
            // own queue.
            Signal::Interrupt(port, queue, _) => unsafe {
                dpdk_sys::uroce_rx_interrupt(*port, *queue, 1) == 0
            },
        }
    }

    /// Disarms the queue: frames do not wake any more.
    pub(super) fn disarm(&self) {
        match self {
            Signal::Silent | Signal::Socket(_) => {}
            Signal::Ring { own, .. } => own.disarm(),
            Signal::Memif(interrupts, queue) => interrupts.disarm(*queue),
            // SAFETY: the queue pair that owns this signal keeps the port open, and `queue` is its
            // own queue. An interrupt that cannot be disabled only wakes for nothing.
            Signal::Interrupt(port, queue, _) => unsafe {
                dpdk_sys::uroce_rx_interrupt(*port, *queue, 0);
            },
        }
    }

    /// Called after frames were sent: wakes the other end of a ring. Other drivers do this by
    /// themselves.
    #[inline]
    pub(super) fn sent(&self) {
        if let Signal::Ring { peer, .. } = self {
            peer.ring();
        }
    }
}
