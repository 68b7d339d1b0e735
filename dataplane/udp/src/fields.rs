//! The changes of the invariant CRC by one header field, for the lengths of recent packets.
//!
//! A socket can neither set nor show the field, so its share of the CRC is computed.

use uroce_wire::IcrcField;

/// Number of lengths that are kept; a power of two. The packets of a message have at most two
/// lengths, and its answers a third.
const PLACES: usize = 16;

/// One header field: for each of some packet lengths, how the field changes the invariant CRC.
#[derive(Debug)]
pub(crate) struct Fields(Vec<Option<(usize, IcrcField)>>);

impl Default for Fields {
    fn default() -> Fields {
        Fields(vec![None; PLACES])
    }
}

impl Fields {
    /// Returns the field for packets in which `after` covered bytes follow it.
    #[inline]
    pub(crate) fn before(&mut self, after: usize) -> &IcrcField {
        // Packets are a multiple of four bytes long.
        let place = &mut self.0[(after / 4) % PLACES];
        if place.as_ref().is_none_or(|(of, _)| *of != after) {
            *place = None;
        }
        &place.get_or_insert_with(|| (after, IcrcField::new(after))).1
    }
}
