//! Frames of raw QPs: built from registered memory, sent as they are.
//!
//! Invariants
//! - A frame to the port's own Ethernet address does not go to the link. It is received here as if
//!   it had come from there, by QPs of the sender's domain too. Another one goes to the link, and a
//!   copy is received here if flows of other domains take it.
//!
//! Not here: which QPs receive a frame ([`crate::rx`]).

use super::Lane;
use super::binding::PortAddresses;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::Mbuf;
use uroce_shared::memory::mr_table::MrView;
use uroce_transport::{DropReason, FrameError, Framing, Gather, OutboundFrame, Piece};
use uroce_wire::flow::FlowFields;
use uroce_wire::{EtherType, Mac, Qpn, make_checksums};

/// Bytes of an Ethernet header without a tag: the least frame.
const HEADER: usize = 14;
/// Bytes of an 802.1Q tag.
const TAG: usize = 4;

impl Lane {
    /// Builds a frame of a raw QP and queues it, for the port or to be looped back. `hears` is
    /// whether a flow of another domain takes the frame. Returns its length in bytes.
    ///
    /// # Errors
    /// [`FrameError`]; nothing was queued.
    #[inline(never)]
    pub(crate) fn transmit_frame(
        &mut self,
        frame: &OutboundFrame<'_>,
        hears: impl FnOnce(&FlowFields, &PortAddresses) -> bool,
        memory: &MrView<'_>,
        counters: &CounterBlock,
    ) -> Result<u32, FrameError> {
        if !self.looped.has_raw_room() {
            return Err(FrameError::Full);
        }
        self.check_room().map_err(|_| FrameError::Full)?;
        let mut mbuf = self.tx.empty_mbuf().ok_or(FrameError::Full)?;
        let to = match self.fill_frame(&mut mbuf, frame, memory) {
            Ok(to) => to,
            Err(refused) => {
                self.tx.give_back(mbuf);
                return Err(refused);
            }
        };
        if self.has_waiting && self.queue.is_waiting(to) {
            self.tx.give_back(mbuf);
            self.receiver_is_full = true;
            return Err(FrameError::Full);
        }
        let len = mbuf.len();
        self.tx.count_taken(len);
        let by = frame.by.qpn;
        if self.tx.loses(Some(by), counters) {
            self.tx.give_back(mbuf);
            return Ok(len as u32);
        }
        //= check W13 — a frame to the port's own address is received here
        if to == self.addresses.mac {
            counters.count(EngineCounter::TxRaw);
            self.tap_sent(&mbuf, Some(by));
            self.looped.push_raw(mbuf);
            return Ok(len as u32);
        }
        let fields = FlowFields::parse(mbuf.as_slice());
        if fields.is_some_and(|fields| hears(&fields, &self.addresses)) {
            match self.tx.spare_copy_of(&mbuf) {
                Some(copy) => self.looped.push_heard(copy, frame.by.pd),
                None => counters.count_drop(DropReason::NoBuffer),
            }
        }
        self.send_frame(mbuf, by, counters);
        Ok(len as u32)
    }

    /// Queues a frame for the port, unless its link is set down or injected faults take it.
    fn send_frame(&mut self, mbuf: Mbuf, by: Qpn, counters: &CounterBlock) {
        if self.is_cut {
            counters.count(EngineCounter::TxLinkDown);
            self.tx.give_back(mbuf);
            return;
        }
        counters.count(EngineCounter::TxRaw);
        if let Some(mbuf) = self.tx.detour(mbuf, Some(by), self.now, counters) {
            self.tap_sent(&mbuf, Some(by));
            self.tx.queue(mbuf);
        }
    }

    /// Writes a frame into an mbuf, and returns its destination.
    fn fill_frame(
        &self,
        mbuf: &mut Mbuf,
        frame: &OutboundFrame<'_>,
        memory: &MrView<'_>,
    ) -> Result<Mac, FrameError> {
        let header = match frame.framing {
            Framing::Whole { .. } => 0,
            Framing::Ipv6 { .. } if self.addresses.vlan.is_some() => HEADER + TAG,
            Framing::Ipv6 { .. } => HEADER,
        };
        let len = header + frame.payload.len() as usize;
        let fits = len >= HEADER && mbuf.set_len(len).is_ok();
        if !fits {
            return Err(FrameError::Length);
        }
        let (place, payload) = mbuf.as_mut_slice().split_at_mut(header);
        gather(&frame.payload, payload, frame, memory)?;
        match frame.framing {
            Framing::Ipv6 { .. } if !is_ipv6(payload) => return Err(FrameError::Length),
            Framing::Ipv6 { to } => self.write_header(place, to),
            Framing::Whole { checksums: true } => make_checksums(payload),
            Framing::Whole { checksums: false } => {}
        }
        if !self.forwarding.fits(mbuf.as_slice()) {
            return Err(FrameError::Length);
        }
        // A frame has at least a header.
        Ok(mbuf.as_slice().first_chunk().map(|to| Mac(*to)).unwrap_or_default())
    }

    /// Writes the Ethernet header of an IPv6 packet, with a tag if `place` has room for it.
    fn write_header(&self, place: &mut [u8], to: Mac) {
        let (addresses, rest) = place.split_at_mut(12);
        addresses[..6].copy_from_slice(&to.0);
        addresses[6..].copy_from_slice(&self.addresses.mac.0);
        let (tag, ether_type) = rest.split_at_mut(rest.len() - 2);
        if let (Some((kind, value)), Some(vlan)) =
            (tag.split_at_mut_checked(2), self.addresses.vlan)
        {
            kind.copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            value.copy_from_slice(&vlan.to_be_bytes());
        }
        ether_type.copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
    }
}

/// Returns whether bytes begin with an IPv6 header (RFC 8200, section 3).
fn is_ipv6(bytes: &[u8]) -> bool {
    bytes.len() >= 40 && bytes[0] >> 4 == 6
}

/// Gathers a payload into `out`, which is as long.
fn gather(
    payload: &Gather<'_>,
    out: &mut [u8],
    frame: &OutboundFrame<'_>,
    memory: &MrView<'_>,
) -> Result<(), FrameError> {
    let mut at = 0;
    for piece in payload.clone() {
        let place = &mut out[at..at + piece.len() as usize];
        at += place.len();
        match piece {
            Piece::Region(region) => {
                memory.read(frame.by, region, place).map_err(FrameError::Memory)?;
            }
            Piece::Bytes(bytes) => place.copy_from_slice(bytes),
        }
    }
    Ok(())
}
