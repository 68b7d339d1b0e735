//! The order of new request packets within and between messages, and their lengths.

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Kind, Seen, Shape};

/// Length of the longest message, in bytes.
const LONGEST: u32 = 1 << 31;

/// The message that is in progress.
#[derive(Clone, Copy, Debug)]
enum Open {
    None,
    Send,
    /// A WRITE, with the number of bytes still to come.
    Write(u32),
}

/// A requester's position within its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages {
    mtu: u32,
    open: Open,
    /// The shared receive queue that the message in progress has named; for RD the two queue pairs
    /// and the Q_Key.
    names: [u32; 4],
}

impl Messages {
    pub(crate) fn new(mtu: u32) -> Messages {
        Messages { mtu, open: Open::None, names: [0; 4] }
    }

    /// Returns whether no message is in progress.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.open, Open::None)
    }

    /// Forgets the message in progress, which is given up.
    pub(crate) fn give_up(&mut self) {
        self.open = Open::None;
    }

    /// Checks the next new request packet and returns the number of PSNs that it uses.
    pub(crate) fn next(&mut self, seen: &Seen, shape: &Shape) -> Result<u32, Flaw> {
        let goes_on = match (self.open, shape.kind) {
            (Open::None, _) => shape.is_first,
            (Open::Send, Kind::Send) | (Open::Write(_), Kind::Write) => !shape.is_first,
            _ => false,
        };
        ensure(goes_on, Rule::MessageOrder, seen.opcode, 0_u8)?;
        let names = [seen.srqn, seen.dest_qpn, seen.src_qpn, seen.qkey];
        if shape.is_first {
            self.names = names;
        }
        ensure(names == self.names, Rule::QueueChanged, seen.dest_qpn, self.names[1])?;
        self.check_length(seen, shape)?;
        ensure(shape.is_last || !seen.solicited, Rule::SolicitedPlace, seen.opcode, 0_u8)?;
        match shape.kind {
            Kind::Write => {
                let left = match self.open {
                    Open::Write(left) => left,
                    _ => seen.dma_len,
                };
                let is_right = match shape.is_last {
                    true => left == seen.payload_len,
                    false => left > seen.payload_len,
                };
                let is_right = is_right && left <= LONGEST;
                ensure(is_right, Rule::WriteLength, seen.payload_len, left)?;
                self.open = Open::Write(left - seen.payload_len);
            }
            Kind::Send => self.open = Open::Send,
            Kind::ReadRequest => {
                ensure(seen.dma_len <= LONGEST, Rule::PayloadLength, seen.dma_len, LONGEST)?;
                return Ok(seen.dma_len.div_ceil(self.mtu).max(1));
            }
            Kind::AtomicWrite => {
                let len = seen.dma_len;
                ensure(len == 8, Rule::WriteLength, seen.payload_len, len)?;
            }
            Kind::Flush => {
                let (placement, level) = (seen.flush & 0xf, seen.flush >> 4);
                let is_defined = (1..=3).contains(&placement) && level <= 1;
                ensure(is_defined, Rule::FlushKind, seen.flush, 1_u8)?;
            }
            _ => {}
        }
        if shape.is_last {
            self.open = Open::None;
        }
        Ok(1)
    }

    fn check_length(&self, seen: &Seen, shape: &Shape) -> Result<(), Flaw> {
        if !matches!(shape.kind, Kind::Send | Kind::Write) {
            return Ok(());
        }
        let len = seen.payload_len;
        let is_right = match (shape.is_first, shape.is_last) {
            (_, false) => len == self.mtu,
            (false, true) => 0 < len && len <= self.mtu,
            (true, true) => len <= self.mtu,
        };
        ensure(is_right, Rule::MtuRule, len, self.mtu)
    }
}
