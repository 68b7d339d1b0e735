//! Forwarding, as testpmd does it: frames that a port receives are sent again or dropped, and reach
//! no QP.
//!
//! Invariants
//! - A frame that cannot leave at once is dropped and counted, as by a switch.
//!
//! Not here: frames that are looped back or handed over. QPs receive these even on a port that
//! forwards.

use super::Receiver;
use crate::counters::{CounterBlock, EngineCounter};
use crate::lane::Lane;
use crate::lane::forward::Forward;
use uroce_wire::fill_checksums;

/// Length in bytes of an Ethernet address.
const MAC: usize = 6;

impl Receiver {
    /// Sends off the burst that port `port` (counted from 0) has received, or drops it. Afterwards
    /// the burst is empty.
    #[cold]
    pub(super) fn forward_burst(
        &mut self,
        port: usize,
        forward: Forward,
        counters: &CounterBlock,
        lanes: &mut [Lane],
    ) {
        let (to, change): (usize, fn(&mut [u8])) = match forward {
            Forward::RxOnly => {
                counters.add(EngineCounter::ForwardDropped, self.burst.len() as u64);
                return self.burst.clear();
            }
            // `to` counts from 1, and the control plane has checked that the port exists.
            Forward::Io { to } => (usize::from(to) - 1, |_| {}),
            Forward::Csum { to } => (usize::from(to) - 1, fill_checksums),
            Forward::Echo => (port, swap_addresses),
        };
        for mut mbuf in self.burst.drain() {
            change(mbuf.as_mut_slice());
            lanes[to].forward_out(mbuf, counters);
        }
    }
}

/// Exchanges the Ethernet addresses of a frame. A frame without two addresses stays as it is.
fn swap_addresses(frame: &mut [u8]) {
    if let Some(addresses) = frame.first_chunk_mut::<{ 2 * MAC }>() {
        addresses.rotate_left(MAC);
    }
}
