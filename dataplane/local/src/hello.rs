//! Messages of the handshake between two members' threads.
//!
//! ```text
//!   connecting member                       listening member
//!     Link   + board, eventfds ───────────▶   checks number, process, versions, sizes
//!            ◀─── Welcome + memory, board, eventfds        the link is made
//!            ◀─── Crossed                                  its own attempt counts
//!     Present ────────────────────────────▶   notes the member; no answer
//! ```
//!
//! After the handshake neither side sends anything: the connection only shows that both are there.

use crate::{FRAME_MAX, FRAME_MIN, MEMBERS_MAX, QUEUES_MAX};

/// First bytes of each message.
const MAGIC: [u8; 8] = *b"uroceLF\0";
/// Version of the messages and of the shared memory. It changes with any of the two.
const VERSION: u32 = 1;

/// Kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The sender is there.
    Present = 1,
    /// The sender asks for a link.
    Link = 2,
    /// The link is made.
    Welcome = 3,
    /// The receiver of a `Link` has asked first.
    Crossed = 4,
}

/// A message: the sender, and what it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) kind: Kind,
    /// Number of the sender.
    pub(crate) number: u8,
    pub(crate) queues: u16,
    pub(crate) frame_max: u32,
    /// A random number that the sender has drawn when it joined.
    pub(crate) life: u64,
}

impl Hello {
    /// Bytes of a message; numbers are in host order.
    pub(crate) const LEN: usize = 32;

    /// Returns the message's bytes.
    pub(crate) fn emit(&self) -> [u8; Hello::LEN] {
        let mut bytes = [0; Hello::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[12] = self.kind as u8;
        bytes[13] = self.number;
        bytes[14..16].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.frame_max.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.life.to_ne_bytes());
        bytes
    }

    /// Reads a message; `None` if it is none of this version, or a number is out of range.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; Hello::LEN] = bytes.try_into().ok()?;
        let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let kind = match bytes[12] {
            1 => Kind::Present,
            2 => Kind::Link,
            3 => Kind::Welcome,
            4 => Kind::Crossed,
            _ => return None,
        };
        let hello = Hello {
            kind,
            number: bytes[13],
            queues: u16::from_ne_bytes([bytes[14], bytes[15]]),
            frame_max: number(16),
            life: u64::from_ne_bytes([24, 25, 26, 27, 28, 29, 30, 31].map(|at: usize| bytes[at])),
        };
        let is_sound = bytes[..8] == MAGIC
            && number(8) == VERSION
            && number(20) == 0
            && (1..=MEMBERS_MAX).contains(&hello.number)
            && (1..=QUEUES_MAX).contains(&hello.queues)
            && (FRAME_MIN..=FRAME_MAX).contains(&(hello.frame_max as usize));
        is_sound.then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello =
        Hello { kind: Kind::Link, number: 64, queues: 32, frame_max: 1500, life: 0x0123_4567_89ab };

    #[test]
    fn a_message_is_read_as_it_was_written() {
        assert_eq!(Hello::parse(&HELLO.emit()), Some(HELLO));
    }

    #[test]
    fn every_byte_but_those_of_the_life_is_checked() {
        for at in 0..24 {
            let mut bytes = HELLO.emit();
            bytes[at] ^= 0xff;
            // A number may become another one that is in range.
            let parsed = Hello::parse(&bytes);
            assert!(parsed.is_none() || (16..20).contains(&at), "byte {at}: {parsed:?}");
        }
        let bytes = HELLO.emit();
        assert_eq!(Hello::parse(&bytes[..31]), None);
        assert_eq!(Hello::parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Hello::parse(&[]), None);
    }
}
