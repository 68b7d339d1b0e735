//! Trial of a NIC's transmit queues: some devices report more than they serve, and lose what is
//! sent by the others.
//!
//! ```text
//!   frame by queue 1 ─▶ counted? ── yes ─▶ next queue
//!                          └ no ─▶ frame by queue 0 ─▶ counted alone? ── three times ─▶ silent
//! ```
//!
//! A frame is that of Ethernet's configuration test, from the port to its own address, so that a
//! switch does not forward it. The driver's counter of sent frames has to move.
//!
//! Invariants
//! - A queue is called silent only if a later frame of the first queue was counted and its own was
//!   not, several times, with the link up before and after. So slow counters and a link that drops
//!   are no evidence against it.
//!
//! Not here: receive queues, by which the check of several lcores counts packets of a peer. A
//! driver that counts frames when it takes them, as that of virtio does, has no silent queue here.

use crate::limits::RawPort;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uroce_engine::mbuf::MbufBatch;
use uroce_engine::port::QueuePair;

/// Frames of a queue that have to be lost.
const FRAMES: u32 = 3;
/// Interval of looking at the counter.
const LOOK: Duration = Duration::from_millis(10);
/// Looks for which a frame may stay uncounted: two seconds. Drivers that ask their NIC for its
/// counters now and then do so once in a second.
const LOOKS: u32 = 200;

/// EtherType of the configuration test (Ethernet 2.0, section 8).
const LOOPBACK: [u8; 2] = 0x9000_u16.to_be_bytes();
/// Its message: nothing to skip, a reply, receipt number 0.
const REPLY: [u8; 6] = [0, 0, 1, 0, 0, 0];
/// Length of the shortest Ethernet frame, without its CRC.
const SHORTEST: usize = 60;

/// What the trial has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sending {
    /// There was no trial, or it came to no end: one queue, no link, or nothing was counted.
    #[default]
    NotTried,
    /// That many queues send, as many as were tried.
    All(u16),
    /// The first queue that sends nothing.
    Silent(u16),
}

/// A started NIC.
trait Nic {
    /// Number of its queues.
    fn queues(&self) -> u16;
    /// Sends a frame by a queue. Returns false if the queue does not take it.
    fn send(&mut self, queue: u16) -> bool;
    /// Returns how many frames it counts as sent.
    fn sent(&self) -> u64;
    /// Returns whether its link is up.
    fn is_up(&self) -> bool;
    /// Waits for [`LOOK`].
    fn pause(&mut self);
}

/// Tries the queues of a port with a link.
pub(super) fn of(port: &mut RawPort) -> Sending {
    let others = (1..port.port.queue_pairs()).map_while(|index| port.port.queue_pair(index).ok());
    let others = others.collect();
    trial(&mut Opened { port, others }).unwrap_or_default()
}

/// Tries all queues. `None` if it cannot be told whether they send.
fn trial(nic: &mut impl Nic) -> Option<Sending> {
    if nic.queues() < 2 || !is_counted(nic)? {
        return None;
    }
    for queue in 1..nic.queues() {
        if !sends(nic, queue)? {
            return Some(Sending::Silent(queue));
        }
    }
    Some(Sending::All(nic.queues()))
}

/// Returns whether a queue sends.
fn sends(nic: &mut impl Nic, queue: u16) -> Option<bool> {
    for _ in 0..FRAMES {
        let before = nic.sent();
        if !nic.is_up() {
            return None;
        }
        // A queue that does not take a frame does not send it either.
        nic.send(queue);
        if reaches(nic, before + 1) {
            return Some(true);
        }
        if !is_counted(nic)? {
            return None;
        }
        // If that was this queue's frame, the other is counted now.
        if reaches(nic, before + 2) {
            return Some(true);
        }
    }
    nic.is_up().then_some(false)
}

/// Sends a frame by the first queue. Returns whether the counter moves. `None` if the queue does
/// not take the frame, or the link is down.
fn is_counted(nic: &mut impl Nic) -> Option<bool> {
    let before = nic.sent();
    if !nic.is_up() || !nic.send(0) {
        return None;
    }
    Some(reaches(nic, before + 1))
}

/// Waits until the counter has reached a number. Returns whether it has.
fn reaches(nic: &mut impl Nic, number: u64) -> bool {
    for _ in 0..LOOKS {
        if nic.sent() >= number {
            return true;
        }
        nic.pause();
    }
    nic.sent() >= number
}

/// A port with all its queues.
struct Opened<'a> {
    port: &'a mut RawPort,
    /// The queue pairs after the first.
    others: Vec<QueuePair>,
}

impl Nic for Opened<'_> {
    fn queues(&self) -> u16 {
        // As many as the port has, and fewer than 65536.
        1 + self.others.len() as u16
    }

    fn send(&mut self, queue: u16) -> bool {
        let Ok(mut mbuf) = self.port.pool.alloc() else { return false };
        if mbuf.set_len(SHORTEST).is_err() {
            return false;
        }
        let mac = self.port.port.mac().0;
        let message = [&mac[..], &mac, &LOOPBACK, &REPLY].concat();
        let frame = mbuf.as_mut_slice();
        frame.fill(0);
        frame[..message.len()].copy_from_slice(&message);
        let mut batch = MbufBatch::new();
        let queue = match usize::from(queue).checked_sub(1) {
            None => &mut self.port.queue,
            Some(at) => &mut self.others[at],
        };
        batch.push(mbuf).is_ok() && queue.tx_burst(&mut batch) == 1
    }

    fn sent(&self) -> u64 {
        self.port.port.stats().tx_packets
    }

    fn is_up(&self) -> bool {
        self.port.port.link().up
    }

    fn pause(&mut self) {
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// A NIC in a time of its own, which is counted in looks.
    struct Model {
        now: u64,
        queues: u16,
        /// The queue from which on nothing is sent.
        silent: u16,
        /// When the counter is read from the device: at this time, and at intervals.
        refresh: (u64, u64),
        /// The time of each frame that left.
        left: Vec<u64>,
        /// When the link is down.
        down: Range<u64>,
        /// Frames that are still lost.
        losses: u32,
    }

    fn model() -> Model {
        let (refresh, down) = ((0, 1), 0..0);
        Model { now: 0, queues: 4, silent: 4, refresh, left: Vec::new(), down, losses: 0 }
    }

    impl Nic for Model {
        fn queues(&self) -> u16 {
            self.queues
        }

        fn send(&mut self, queue: u16) -> bool {
            let is_lost = queue > 0 && self.losses > 0;
            self.losses -= u32::from(is_lost);
            if queue < self.silent && !is_lost && !self.down.contains(&self.now) {
                self.left.push(self.now);
            }
            true
        }

        fn sent(&self) -> u64 {
            let (phase, interval) = self.refresh;
            let read = (self.now + interval - phase) / interval * interval + phase;
            self.left.iter().filter(|&&at| at + interval < read).count() as u64
        }

        fn is_up(&self) -> bool {
            !self.down.contains(&self.now)
        }

        fn pause(&mut self) {
            self.now += 1;
        }
    }

    #[test]
    fn the_first_queue_that_does_not_send_is_found() {
        assert_eq!(trial(&mut model()), Some(Sending::All(4)));
        for silent in 1..4 {
            let mut nic = Model { silent, ..model() };
            assert_eq!(trial(&mut nic), Some(Sending::Silent(silent)));
        }
        assert_eq!(trial(&mut Model { queues: 1, ..model() }), None);
    }

    #[test]
    fn counters_that_are_read_once_in_a_second_are_no_evidence() {
        for phase in 0..100 {
            let slow = || Model { refresh: (phase, 100), ..model() };
            assert_eq!(trial(&mut slow()), Some(Sending::All(4)), "phase {phase}");
            let mut nic = Model { silent: 2, ..slow() };
            assert_eq!(trial(&mut nic), Some(Sending::Silent(2)), "phase {phase}");
        }
    }

    #[test]
    fn counters_that_are_slower_than_the_trial_end_it() {
        assert_eq!(trial(&mut Model { refresh: (0, 100_000), ..model() }), None);
    }

    #[test]
    fn a_link_that_drops_is_no_evidence() {
        for begin in 0..500 {
            for length in [1, 10, 199, 201, 650, 5000] {
                let mut nic = Model { down: begin..begin + length, ..model() };
                nic.refresh = (begin % 100, 100);
                let found = trial(&mut nic);
                let is_fair = matches!(found, None | Some(Sending::All(4)));
                assert!(is_fair, "{begin}, {length}: {found:?}");
            }
        }
    }

    #[test]
    fn lost_frames_are_no_evidence() {
        let mut nic = Model { losses: FRAMES - 1, ..model() };
        assert_eq!(trial(&mut nic), Some(Sending::All(4)));
    }
}
