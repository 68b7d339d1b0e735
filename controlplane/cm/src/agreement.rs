//! Agreement on what both ends of a connection may use beyond the specification: 8 bytes at the end
//! of the private data of a REQ and of a REP.
//!
//! Read first: IBA 12.6 for private data; Annex A11 for the consumer's part of it.
//!
//! ```text
//!   bytes   0..5                    5         6                   7
//!         +-----------------------+---------+-------------------+-----------------------+
//!         | F1 'u' 'r' 'o' CE     | version | kind              | features              |
//!         +-----------------------+---------+-------------------+-----------------------+
//!                                   1         1 REQ: an offer     bit 0 selective repeat
//!                                             2 REP: an answer    bits 1..8 sent as 0
//! ```
//!
//! The active side offers features in its REQ. The passive side answers with those of them that it
//! will use. Both ends use the features of the answer, and none without an answer. To other stacks
//! the tag is private data, at a place where their consumers expect padding.
//!
//! Invariants
//! - A tag never replaces private data: if the last 8 bytes of a field are not zero, it gets no
//!   tag.
//! - A valid tag is removed before the consumer sees the private data. Anything else stays as the
//!   peer's private data: a tag of another version, an offer in a REP, an answer without an offer,
//!   or an answer with features that were not offered.
//!   with features that were not offered.
//! - An unknown feature in an offer is ignored, so that a later uroce can offer more.
//!
//! Not here: whether a queue pair can use a feature. The consumer decides that.

use uroce_wire::cm::PrivateData;

/// Length of a tag in bytes. Private data that is shorter than its field by this much leaves room
/// for a tag.
pub const TAG_LEN: usize = 8;

const MAGIC: [u8; 5] = [0xf1, b'u', b'r', b'o', 0xce];
const VERSION: u8 = 1;
/// All features that this side can offer or accept.
const KNOWN: u8 = Features::SELECTIVE_REPEAT.0;

/// Features beyond the specification that are offered or agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(u8);

/// The message that contains a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Offer = 1,
    Answer = 2,
}

impl Features {
    pub(crate) const NONE: Features = Features(0);
    /// The responder acknowledges packets that are ahead of a lost one, and only lost packets are
    /// sent again.
    pub(crate) const SELECTIVE_REPEAT: Features = Features(1);

    /// Returns selective repeat if `is_wanted`, otherwise no feature.
    pub(crate) fn selective_repeat(is_wanted: bool) -> Features {
        if is_wanted { Features::SELECTIVE_REPEAT } else { Features::NONE }
    }

    pub(crate) fn has_selective_repeat(self) -> bool {
        self.0 & Features::SELECTIVE_REPEAT.0 != 0
    }

    fn is_within(self, other: Features) -> bool {
        self.0 & !other.0 == 0
    }

    /// Writes an offer of these features to the private data of a REQ. Returns the features
    /// offered: none if the private data leaves no room.
    pub(crate) fn offer(self, data: &mut PrivateData<92>) -> Features {
        self.write(Kind::Offer, &mut data.0)
    }

    /// Writes the answer to an offer to the private data of a REP. Returns the features agreed on:
    /// those that were offered, or none if the private data leaves no room.
    pub(crate) fn answer(self, offered: Features, data: &mut PrivateData<196>) -> Features {
        Features(self.0 & offered.0).write(Kind::Answer, &mut data.0)
    }

    fn write(self, kind: Kind, data: &mut [u8]) -> Features {
        match data.last_chunk_mut() {
            Some(tag) if self != Features::NONE && *tag == [0; TAG_LEN] => {
                *tag = tag_of(kind, self.0);
                self
            }
            _ => Features::NONE,
        }
    }
}

/// Splits the private data of a REQ into the known features that it offers, and the peer's private
/// data.
pub(crate) fn split_offer(mut data: PrivateData<92>) -> (Features, PrivateData<92>) {
    let offered = take(Kind::Offer, &mut data.0, |_| true);
    (Features(offered.0 & KNOWN), data)
}

/// Splits the private data of a REP into the features of its answer to `offered`, and the peer's
/// private data.
pub(crate) fn split_answer(
    offered: Features,
    mut data: PrivateData<196>,
) -> (Features, PrivateData<196>) {
    let agreed = take(Kind::Answer, &mut data.0, |answer| answer.is_within(offered));
    (agreed, data)
}

/// Removes a tag with features that `is_valid` accepts, and returns the features.
//= check A28 — bytes that are no valid tag at this place are the peer's private data
fn take(kind: Kind, data: &mut [u8], is_valid: impl FnOnce(Features) -> bool) -> Features {
    let Some(tag) = data.last_chunk_mut::<TAG_LEN>() else { return Features::NONE };
    let features = Features(tag[TAG_LEN - 1]);
    if features == Features::NONE || *tag != tag_of(kind, features.0) || !is_valid(features) {
        return Features::NONE;
    }
    *tag = [0; TAG_LEN];
    features
}

const fn tag_of(kind: Kind, features: u8) -> [u8; TAG_LEN] {
    let [a, b, c, d, e] = MAGIC;
    [a, b, c, d, e, VERSION, kind as u8, features]
}

#[cfg(test)]
mod tests;
