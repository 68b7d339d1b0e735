//! Forwarding: what a port does with received frames that go to no QP.
//!
//! Invariants
//! - A port is given mbufs of its own mempool only. Another mempool may lie in memory that the
//!   port's device, or a driver that shares memory, cannot use.
//!
//! Not here: taking the frames from the port ([`crate::rx`]).

use super::Lane;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::Mbuf;
use uroce_wire::{EtherType, Frame};

/// Place of the EtherType in a frame, behind two addresses.
const ETHER_TYPE: usize = 12;
/// Bytes of an Ethernet header without a tag.
const HEADER: usize = ETHER_TYPE + 2;
/// Bytes of a tag.
const TAG: usize = 4;

/// What a port does with received frames, instead of giving them to QPs and the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// They leave unchanged.
    Io {
        /// Port through which they leave, counted from 1.
        to: u8,
    },
    /// They leave with the checksums of their IPv4 headers and of UDP computed anew.
    Csum {
        /// Port through which they leave, counted from 1.
        to: u8,
    },
    /// They leave through the port that they came from, with their Ethernet addresses swapped.
    Echo,
    /// They are dropped.
    RxOnly,
}

/// A lane's state for forwarding.
#[derive(Debug)]
pub(super) struct Forwarding {
    /// What the port does with received frames, if it forwards.
    pub(super) of_received: Option<Forward>,
    /// Largest Ethernet payload of the port in bytes.
    mtu: usize,
    /// Frames that were to be forwarded through this port but were dropped, since the start.
    dropped: u64,
}

impl Forwarding {
    /// Makes the state of a port with this MTU, which does not forward.
    pub(super) fn new(mtu: u16) -> Forwarding {
        Forwarding { of_received: None, mtu: mtu.into(), dropped: 0 }
    }

    /// Returns whether a frame is no longer than the MTU allows. Up to two tags do not count.
    pub(super) fn fits(&self, frame: &[u8]) -> bool {
        let is_tag = |at: usize| {
            let kind = frame.get(at..).and_then(|rest| rest.first_chunk().copied());
            let kind = kind.map(|kind| EtherType(u16::from_be_bytes(kind)));
            matches!(kind, Some(EtherType::VLAN | EtherType::SERVICE_VLAN))
        };
        let header = match (is_tag(ETHER_TYPE), is_tag(ETHER_TYPE + TAG)) {
            (false, _) => HEADER,
            (true, false) => HEADER + TAG,
            (true, true) => HEADER + 2 * TAG,
        };
        frame.len() <= header + self.mtu
    }
}

impl Lane {
    /// Sets what the port does with received frames; `None` gives them to QPs and the control
    /// plane.
    pub(crate) fn set_forward(&mut self, forward: Option<Forward>) {
        self.forwarding.of_received = forward;
        self.watch();
    }

    /// Returns what the port does with received frames, if it forwards.
    #[inline]
    pub(crate) fn forward(&self) -> Option<Forward> {
        self.forwarding.of_received
    }

    /// Returns how many frames were to be forwarded through this port but were dropped.
    pub(crate) fn unforwarded(&self) -> u64 {
        self.forwarding.dropped
    }

    /// Queues a received frame, which may be from any mempool. Drops and counts it if the link is
    /// set down, if the frame is longer than the MTU allows, if the port takes no more frames, if
    /// its mempool is empty, or by injected loss.
    pub(crate) fn forward_out(&mut self, frame: Mbuf, counters: &CounterBlock) {
        if !self.send_on(frame, counters) {
            self.forwarding.dropped += 1;
        }
    }

    /// Queues a frame, or drops and counts it. Returns false if it was dropped.
    fn send_on(&mut self, frame: Mbuf, counters: &CounterBlock) -> bool {
        if self.is_cut {
            counters.count(EngineCounter::TxLinkDown);
            return false;
        }
        let can_leave = self.forwarding.fits(frame.as_slice()) && self.has_room();
        let Some(frame) = can_leave.then(|| self.tx.own(frame)).flatten() else {
            counters.count(EngineCounter::ForwardDropped);
            return false;
        };
        let is_concerned = self.tx.faults.is_some()
            && matches!(Frame::parse(frame.as_slice()), Ok(Frame::Roce(_)));
        if is_concerned && self.tx.loses(None, counters) {
            return false;
        }
        let before = self.tx.crowded_out();
        let passes = match is_concerned {
            true => self.tx.detour(frame, None, self.now, counters),
            false => Some(frame),
        };
        if self.tx.crowded_out() != before {
            return false;
        }
        counters.count(EngineCounter::Forwarded);
        if let Some(frame) = passes {
            self.tap_sent(&frame, None);
            self.tx.queue(frame);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_make_no_frame_too_long() {
        let forwarding = Forwarding::new(100);
        let mut frame = [0; 130];
        let longest = |frame: &[u8]| (0..=130).filter(|len| forwarding.fits(&frame[..*len])).max();
        assert_eq!(longest(&frame), Some(114));
        frame[ETHER_TYPE..HEADER].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
        assert_eq!(longest(&frame), Some(118));
        frame[ETHER_TYPE..HEADER].copy_from_slice(&EtherType::SERVICE_VLAN.0.to_be_bytes());
        assert_eq!(longest(&frame), Some(118));
        let inner = ETHER_TYPE + TAG..HEADER + TAG;
        frame[inner].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
        assert_eq!(longest(&frame), Some(122));
    }
}
