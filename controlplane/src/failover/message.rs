//! Messages by which two control planes agree on an alternate path.
//!
//! A message is a MAD of a vendor's class with an OUI (IBA 16.5), method "Send": Linux and NICs
//! have no agent for it, drop it and answer nothing. The OUI is a locally administered one.
//!
//! ```text
//!   0  MAD header, 24 bytes: class 0x4e, method Send, the kind as the attribute, transaction
//!  24  RMPP header, 12 bytes, unused
//!  36  0, OUI 72:6f:63
//!  40  version, reason of a refusal, 1 if LAP and APR load the path, number of GIDs
//!  44  QPN of the sender, 4 bytes; QPN of the receiver, 4 bytes
//!  52  token, 8 bytes
//!  60  up to 8 GIDs; the rest is 0
//! ```
//!
//! Invariants
//! - A message that is parsed is the one that [`Message::emit`] writes: every byte is checked.
//! - No sequence of bytes causes a panic.
//!
//! Not here: which message is due, and whether its sender may send it.

use uroce_wire::mad::{MAD_LEN, Mad, MadHeader};
use uroce_wire::{Gid, Qpn};

/// Management class of the messages, one of those that vendors share by their OUIs.
const CLASS: u8 = 0x4e;
const OUI: [u8; 3] = *b"roc";
const VERSION: u8 = 1;
/// Transaction of a call, which belongs to no offer.
pub(super) const CALL: u64 = 1;
/// Largest number of GIDs in a message.
pub(super) const GIDS_MAX: usize = 8;

/// Kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum Kind {
    /// Has the GIDs of other ports over which the sender can be reached.
    Offer = 1,
    /// Has the path that the receiver of an offer has chosen: its own GID, then the peer's.
    Accept = 2,
    /// There is no path at present, for a [`Refusal`].
    Refuse = 3,
    /// Comes by the alternate path, and asks the receiver to arm it.
    Probe = 4,
    /// Answers a probe by the alternate path: the sender is ready to migrate to it.
    Ready = 5,
    /// Asks for an offer.
    Call = 6,
}

const KINDS: [Kind; 6] =
    [Kind::Offer, Kind::Accept, Kind::Refuse, Kind::Probe, Kind::Ready, Kind::Call];

/// Reason for which an offer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Refusal {
    /// The connection is being made, or is about to migrate.
    Later = 1,
    /// No other port leads to any of the GIDs.
    NoPath = 2,
    /// The program has loaded an alternate path.
    OfProgram = 3,
}

const REFUSALS: [Refusal; 3] = [Refusal::Later, Refusal::NoPath, Refusal::OfProgram];

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// Chosen by the sender of the offer; equal in all messages about it. [`CALL`] in a call.
    pub(super) transaction: u64,
    /// Chosen by the receiver of the offer, which a probe repeats: it is sent to the peer's address
    /// only. 0 in an offer, a refusal and a call.
    pub(super) token: u64,
    pub(super) from: Qpn,
    pub(super) to: Qpn,
    /// In an offer: the path is loaded by the connection manager's LAP and APR.
    pub(super) is_by_lap: bool,
    /// In a refusal.
    pub(super) refusal: Option<Refusal>,
    /// GIDs, of which the first `count` are set: see [`gids`](Self::gids).
    pub(super) gids: [Gid; GIDS_MAX],
    pub(super) count: u8,
}

impl Message {
    /// Makes a message without token, reason and GIDs.
    pub(super) fn new(kind: Kind, transaction: u64, from: Qpn, to: Qpn) -> Message {
        Message {
            kind,
            transaction,
            token: 0,
            from,
            to,
            is_by_lap: false,
            refusal: None,
            gids: [Gid::default(); GIDS_MAX],
            count: 0,
        }
    }

    /// Sets the GIDs; those after the first [`GIDS_MAX`] are left out.
    pub(super) fn with_gids(mut self, gids: &[Gid]) -> Message {
        let count = gids.len().min(GIDS_MAX);
        self.gids[..count].copy_from_slice(&gids[..count]);
        self.count = count as u8;
        self
    }

    pub(super) fn gids(&self) -> &[Gid] {
        &self.gids[..usize::from(self.count)]
    }

    /// Returns whether a MAD is of the class of these messages, whatever else it has.
    pub(super) fn is_of_class(mad: &Mad) -> bool {
        let header = header_of(mad);
        header.mgmt_class == CLASS && header.method == MadHeader::SEND && mad[37..40] == OUI
    }

    /// Reads a message; `None` if any byte of it cannot be.
    pub(super) fn parse(mad: &Mad) -> Option<Message> {
        let header = header_of(mad);
        let kind = *KINDS.iter().find(|kind| **kind as u16 == header.attribute_id)?;
        let refusal = REFUSALS.iter().find(|refusal| **refusal as u8 == mad[41]).copied();
        let mut gids = [Gid::default(); GIDS_MAX];
        let count = usize::from(mad[43]);
        for (at, gid) in gids.get_mut(..count)?.iter_mut().enumerate() {
            *gid = Gid(*mad[60 + 16 * at..].first_chunk()?);
        }
        let message = Message {
            kind,
            transaction: header.transaction_id,
            token: u64::from_be_bytes(*mad[52..].first_chunk()?),
            from: Qpn::new(u32::from_be_bytes(*mad[44..].first_chunk()?)),
            to: Qpn::new(u32::from_be_bytes(*mad[48..].first_chunk()?)),
            is_by_lap: mad[42] == 1,
            refusal,
            gids,
            count: mad[43],
        };
        (message.is_sound() && message.emit() == *mad).then_some(message)
    }

    /// Writes the message.
    pub(super) fn emit(&self) -> Mad {
        let mut mad = [0; MAD_LEN];
        let header = MadHeader {
            base_version: MadHeader::BASE_VERSION,
            mgmt_class: CLASS,
            class_version: 1,
            method: MadHeader::SEND,
            transaction_id: self.transaction,
            attribute_id: self.kind as u16,
            ..MadHeader::default()
        };
        if let Some(place) = mad.first_chunk_mut() {
            header.emit(place);
        }
        mad[37..40].copy_from_slice(&OUI);
        let refusal = self.refusal.map_or(0, |refusal| refusal as u8);
        mad[40..44].copy_from_slice(&[VERSION, refusal, self.is_by_lap.into(), self.count]);
        mad[44..48].copy_from_slice(&self.from.value().to_be_bytes());
        mad[48..52].copy_from_slice(&self.to.value().to_be_bytes());
        mad[52..60].copy_from_slice(&self.token.to_be_bytes());
        for (at, gid) in self.gids().iter().enumerate() {
            mad[60 + 16 * at..][..16].copy_from_slice(&gid.0);
        }
        mad
    }

    /// Returns whether the message has what its kind needs, and nothing else.
    fn is_sound(&self) -> bool {
        let gids = match self.kind {
            Kind::Offer => 1..=GIDS_MAX,
            Kind::Accept => 2..=2,
            Kind::Refuse | Kind::Probe | Kind::Ready | Kind::Call => 0..=0,
        };
        let has_token = matches!(self.kind, Kind::Accept | Kind::Probe | Kind::Ready);
        gids.contains(&self.gids().len())
            && has_token == (self.token != 0)
            && (self.kind == Kind::Refuse) == self.refusal.is_some()
            && (self.kind == Kind::Offer || !self.is_by_lap)
            && self.transaction != 0
            && !self.gids().contains(&Gid::default())
    }
}

fn header_of(mad: &Mad) -> MadHeader {
    const { assert!(MadHeader::LEN <= MAD_LEN) };
    MadHeader::parse(mad.first_chunk().expect("a MAD is longer than its header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(last: u8) -> Gid {
        Gid::from(std::net::IpAddr::from([192, 0, 2, last]))
    }

    /// One message of each kind.
    fn all() -> Vec<Message> {
        let gids = [gid(1), gid(2)];
        let message = |kind| {
            let message = Message::new(kind, 0x0102_0304_0506_0708, Qpn::new(0x11), Qpn::new(0x22));
            match kind {
                Kind::Offer => Message { is_by_lap: true, ..message.with_gids(&gids) },
                Kind::Accept => Message { token: 7, ..message.with_gids(&gids) },
                Kind::Refuse => Message { refusal: Some(Refusal::NoPath), ..message },
                Kind::Probe | Kind::Ready => Message { token: 7, ..message },
                Kind::Call => message,
            }
        };
        KINDS.map(message).to_vec()
    }

    #[test]
    fn each_kind_is_read_as_it_was_written() {
        for message in all() {
            let mad = message.emit();
            assert!(Message::is_of_class(&mad));
            assert_eq!(Message::parse(&mad), Some(message));
        }
    }

    #[test]
    fn the_bytes_of_an_offer_are_known() {
        let mad = all()[0].emit();
        let head = [1, 0x4e, 1, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(mad[..24], head);
        assert_eq!(mad[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x72, 0x6f, 0x63]);
        assert_eq!(mad[40..60], [1, 0, 1, 2, 0, 0, 0, 0x11, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(mad[60..92], [gid(1).0, gid(2).0].concat());
        assert!(mad[92..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_byte_that_is_changed_makes_another_message_or_none() {
        for message in all() {
            for at in 0..MAD_LEN {
                for bit in 0..8 {
                    let mut mad = message.emit();
                    mad[at] ^= 1 << bit;
                    if let Some(other) = Message::parse(&mad) {
                        assert_ne!(other, message, "byte {at}");
                        assert_eq!(other.emit(), mad);
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_at_random_are_no_message() {
        let mut random = fastrand::Rng::with_seed(29);
        for _ in 0..10_000 {
            let mut mad = [0; MAD_LEN];
            random.fill(&mut mad);
            assert_eq!(Message::parse(&mad), None);
            // With the head of a message the rest is looked at as well.
            mad[..44].copy_from_slice(&all()[0].emit()[..44]);
            mad[43] = random.u8(..);
            assert_eq!(Message::parse(&mad), None);
        }
    }

    #[test]
    fn what_a_kind_does_not_have_is_refused() {
        let [offer, accept, refuse, probe, ..] = all()[..] else { panic!() };
        let many = vec![gid(1); GIDS_MAX + 3];
        for wrong in [
            Message { transaction: 0, ..offer },
            Message { token: 1, ..offer },
            offer.with_gids(&[]),
            offer.with_gids(&[gid(1), Gid::default()]),
            accept.with_gids(&[gid(1)]),
            accept.with_gids(&many),
            Message { token: 0, ..accept },
            Message { refusal: None, ..refuse },
            Message { refusal: Some(Refusal::Later), ..probe },
            Message { is_by_lap: true, ..probe },
        ] {
            assert_eq!(Message::parse(&wrong.emit()), None, "{wrong:?}");
        }
        assert_eq!(offer.with_gids(&many).gids().len(), GIDS_MAX);
    }
}
