//! Trial of the queues of a NIC that was just started: some devices report more queues than they
//! serve, and lose all that is sent by the others.
//!
//! A frame is sent by each queue in turn, and the NIC has to count it as sent. The frame is that of
//! Ethernet's configuration test, from the port to its own address. A switch does not pass such a
//! frame on, since its destination is where it came from.
//!
//! Not here: a trial of receive queues, for which a peer has to send: `uroce-perf nic-check` does
//! that.

use super::{Capabilities, PortStats, link};
use crate::dpdk::mbuf::Mempool;
use std::time::{Duration, Instant};
use uroce_wire::Mac;

/// Longest wait for the link. NICs do not send without one, so there is no trial then.
const LINK: Duration = Duration::from_secs(1);
/// Longest wait for a frame to be counted. Drivers that ask their device for its counters at long
/// intervals take longer, for the first queue too.
const COUNTED: Duration = Duration::from_millis(250);
/// Interval of looking.
const LOOK: Duration = Duration::from_millis(1);

/// EtherType of the configuration test (Ethernet 2.0, section 8).
const LOOPBACK: [u8; 2] = 0x9000_u16.to_be_bytes();
/// Its message: nothing to skip, a reply, receipt number 0.
const REPLY: [u8; 6] = [0, 0, 1, 0, 0, 0];
/// Length of the shortest Ethernet frame, without its CRC.
const SHORTEST: usize = 60;

/// Returns how many of the queue pairs, counted from the first, send. All of them if that cannot be
/// found out, because the link is down or the NIC does not count what it sends.
///
/// The caller owns the port, which is started with that many queue pairs.
pub(super) fn sending(
    id: u16,
    capabilities: &Capabilities,
    queue_pairs: u16,
    mac: Mac,
    pool: &Mempool,
) -> u16 {
    let is_tried = capabilities.is_pci() && queue_pairs > 1;
    if !is_tried || !comes_true(LINK, || link(id).up) {
        return queue_pairs;
    }
    sending_of(queue_pairs, |queue| {
        let before = sent(id);
        transmit(id, queue, mac, pool) && comes_true(COUNTED, || sent(id) != before)
    })
}

/// Returns how many queues send, if `sends` tells of one queue whether it does.
fn sending_of(queue_pairs: u16, mut sends: impl FnMut(u16) -> bool) -> u16 {
    if !sends(0) {
        return queue_pairs;
    }
    // A frame may be lost for another reason, so that a queue gets a second one.
    let silent = (1..queue_pairs).find(|&queue| !sends(queue) && !sends(queue));
    silent.unwrap_or(queue_pairs)
}

/// Sends a frame by a queue. Returns false if the queue does not take it, or there is no mbuf.
fn transmit(id: u16, queue: u16, mac: Mac, pool: &Mempool) -> bool {
    let Ok(mut mbuf) = pool.alloc() else { return false };
    if mbuf.set_len(SHORTEST).is_err() {
        return false;
    }
    let frame = mbuf.as_mut_slice();
    frame.fill(0);
    let message = [&mac.0[..], &mac.0, &LOOPBACK, &REPLY].concat();
    frame[..message.len()].copy_from_slice(&message);
    let mut batch = crate::dpdk::mbuf::MbufBatch::new();
    let pushed = batch.push(mbuf);
    debug_assert!(pushed.is_ok(), "the batch was empty");
    // SAFETY: the caller of `sending` owns the port, which is started and has this queue; the first
    // pointer is an owned mbuf of a single segment.
    let taken = unsafe { dpdk_sys::uroce_tx_burst(id, queue, batch.pointers(), 1) };
    // SAFETY: the driver now owns the first `taken ≤ 1` mbufs.
    unsafe { batch.forget_front(usize::from(taken)) };
    taken == 1
}

/// Returns how many frames the port has sent.
fn sent(id: u16) -> u64 {
    let mut stats = dpdk_sys::uroce_port_stats::default();
    // SAFETY: the caller of `sending` owns the port; `stats` is writable. On failure it stays zero.
    unsafe { dpdk_sys::uroce_port_stats(id, &mut stats) };
    PortStats::from(stats).tx_packets
}

fn comes_true(limit: Duration, mut check: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        match check() {
            true => return true,
            false if Instant::now() >= deadline => return false,
            false => std::thread::sleep(LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_count_up_to_the_first_that_does_not_send() {
        assert_eq!(sending_of(4, |_| true), 4);
        assert_eq!(sending_of(4, |queue| queue < 1), 1);
        assert_eq!(sending_of(4, |queue| queue != 2), 2);
        assert_eq!(sending_of(1, |_| true), 1);
    }

    #[test]
    fn a_nic_that_does_not_count_keeps_its_queues_and_one_lost_frame_is_no_verdict() {
        assert_eq!(sending_of(4, |_| false), 4);
        let mut frames = 0;
        let loses_the_second = |_| {
            frames += 1;
            frames != 2
        };
        assert_eq!(sending_of(4, loses_the_second), 4);
    }
}
