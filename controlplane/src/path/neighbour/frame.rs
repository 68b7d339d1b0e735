//! Ethernet framing of the neighbour protocols.

use uroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use uroce_wire::{Mac, ParseError};

/// Shortest Ethernet frame without its check sequence. Not every driver pads.
const FRAME_MIN: usize = 60;

/// Ethernet address and VLAN of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) mac: Mac,
    /// VLAN ID of every frame. `None`: frames are untagged, or tagged with a priority only.
    pub(super) vlan: Option<u16>,
}

impl Link {
    /// Tells whether a frame with this tag belongs to the port's VLAN.
    pub(super) fn is_on_vlan(&self, tag: Option<Vlan>) -> bool {
        tag.map_or(0, |tag| tag.vid) == self.vlan.unwrap_or(0)
    }

    /// Builds a frame with `len` bytes of payload. `fill` gets them zeroed.
    pub(super) fn frame(
        &self,
        dst: Mac,
        ether_type: EtherType,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Vec<u8> {
        let vlan = self.vlan.map(|vid| Vlan { vid, pcp: 0 });
        let header = Ethernet { dst, src: self.mac, vlan, ether_type };
        let at = header.wire_len();
        let mut bytes = vec![0; (at + len).max(FRAME_MIN)];
        header.emit(&mut bytes);
        fill(&mut bytes[at..at + len]);
        bytes
    }
}

/// Splits a received frame into header and payload.
pub(super) fn parse(frame: &[u8]) -> Result<(Ethernet, &[u8]), ParseError> {
    Ethernet::parse(frame)
}
