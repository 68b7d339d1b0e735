//! Counters of what an endpoint's queues receive, send and drop.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that the threads of the queues add to and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

/// Counters of what an endpoint's queues receive, send and drop, since the endpoint was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Datagrams received.
    pub rx_datagrams: Counter,
    /// Bytes of the received datagrams, from BTH to the invariant CRC.
    pub rx_bytes: Counter,
    /// Datagrams lost because the socket's receive buffer was full.
    pub rx_no_room: Counter,
    /// Datagrams dropped because they are longer than the MTU.
    pub rx_too_long: Counter,
    /// Messages lost because the control messages that came with them could not be read.
    pub rx_errors: Counter,
    /// Datagrams sent.
    pub tx_datagrams: Counter,
    /// Bytes of the sent datagrams, from BTH to the invariant CRC.
    pub tx_bytes: Counter,
    /// Frames dropped because they are not RoCEv2, or not from an address of the endpoint.
    pub tx_unsendable: Counter,
    /// Frames dropped because they are longer than the MTU of the interface or of the path.
    pub tx_too_long: Counter,
    /// Frames dropped because the kernel has no route to their destination, or forbids to send to
    /// it.
    pub tx_unreachable: Counter,
}

impl Counters {
    /// Returns all counters with their names.
    pub fn by_name(&self) -> [(&'static str, u64); 10] {
        [
            ("rx_datagrams", self.rx_datagrams.get()),
            ("rx_bytes", self.rx_bytes.get()),
            ("rx_no_room", self.rx_no_room.get()),
            ("rx_too_long", self.rx_too_long.get()),
            ("rx_errors", self.rx_errors.get()),
            ("tx_datagrams", self.tx_datagrams.get()),
            ("tx_bytes", self.tx_bytes.get()),
            ("tx_unsendable", self.tx_unsendable.get()),
            ("tx_too_long", self.tx_too_long.get()),
            ("tx_unreachable", self.tx_unreachable.get()),
        ]
    }
}
