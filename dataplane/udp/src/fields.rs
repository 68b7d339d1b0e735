//! The fields of the invariant CRC that a socket neither sets nor shows, for the lengths of recent
//! packets.

use uroce_wire::IcrcField;

/// Lengths that are kept; a power of two. A message has packets of two lengths, and is answered by
/// those of a third.
const PLACES: usize = 16;

/// A field at one place before the end, for each of some lengths.
#[derive(Debug)]
pub(crate) struct Fields(Vec<Option<(usize, IcrcField)>>);

impl Default for Fields {
    fn default() -> Fields {
        Fields(vec![None; PLACES])
    }
}

impl Fields {
    /// Returns the field that this many covered bytes follow.
    #[inline]
    pub(crate) fn before(&mut self, after: usize) -> &IcrcField {
        // Lengths are multiples of four.
        let place = &mut self.0[(after / 4) % PLACES];
        if place.as_ref().is_none_or(|(of, _)| *of != after) {
            *place = None;
        }
        &place.get_or_insert_with(|| (after, IcrcField::new(after))).1
    }
}
