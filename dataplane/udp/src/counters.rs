//! What the queues of an endpoint have done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread counts and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

/// What the queues of an endpoint have done.
#[derive(Debug, Default)]
pub struct Counters {
    /// Datagrams received.
    pub rx_datagrams: Counter,
    /// Their bytes, without headers up to UDP.
    pub rx_bytes: Counter,
    /// Datagrams lost because a socket was full.
    pub rx_no_room: Counter,
    /// Messages lost because the kernel's words on them were not understood.
    pub rx_errors: Counter,
    /// Datagrams sent.
    pub tx_datagrams: Counter,
    /// Their bytes, without headers up to UDP.
    pub tx_bytes: Counter,
    /// Frames dropped that are not RoCEv2 from an address of the endpoint.
    pub tx_unsendable: Counter,
    /// Frames dropped that are longer than the interface's or the path's MTU.
    pub tx_too_long: Counter,
    /// Frames dropped because the kernel has no way to their destination or forbids it.
    pub tx_unreachable: Counter,
}

impl Counters {
    /// Returns all counters with their names.
    pub fn by_name(&self) -> [(&'static str, u64); 9] {
        [
            ("rx_datagrams", self.rx_datagrams.get()),
            ("rx_bytes", self.rx_bytes.get()),
            ("rx_no_room", self.rx_no_room.get()),
            ("rx_errors", self.rx_errors.get()),
            ("tx_datagrams", self.tx_datagrams.get()),
            ("tx_bytes", self.tx_bytes.get()),
            ("tx_unsendable", self.tx_unsendable.get()),
            ("tx_too_long", self.tx_too_long.get()),
            ("tx_unreachable", self.tx_unreachable.get()),
        ]
    }
}
