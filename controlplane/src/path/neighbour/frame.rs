//! Ethernet around what the neighbour protocols say.

use uroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use uroce_wire::{Mac, ParseError};

/// Shortest Ethernet frame without its check sequence; not every driver pads.
const FRAME_MIN: usize = 60;

/// How the port's frames look on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) mac: Mac,
    /// Tag of every frame; without one, frames are untagged or carry a priority only.
    pub(super) vlan: Option<u16>,
}

impl Link {
    /// Is a frame with this tag on our VLAN?
    pub(super) fn is_on_vlan(&self, tag: Option<Vlan>) -> bool {
        tag.map_or(0, |tag| tag.vid) == self.vlan.unwrap_or(0)
    }

    /// A frame with `len` bytes of payload, which `fill` writes over zeros.
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

/// Splits a received frame.
pub(super) fn parse(frame: &[u8]) -> Result<(Ethernet, &[u8]), ParseError> {
    Ethernet::parse(frame)
}
