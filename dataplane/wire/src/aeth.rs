//! AETH, the acknowledge extended transport header.
//!
//! Read first: IBA 9.3 for the layout, 9.7.5 and 9.7.6 for the use.
//!
//! Outside this file the syndrome byte is an enum, [`Syndrome`]. In the byte, bits 6 and 5 choose
//! the kind, bits 4 to 0 are its value, and bit 7 is reserved.

use crate::Msn;
use crate::bytes::{be24, put24};

/// The acknowledge extended transport header: a responder's answer to the request packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aeth {
    /// Acknowledgement, receiver-not-ready NAK, or NAK with a code.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24.
    pub msn: Msn,
}

impl Aeth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the header; every bit pattern is valid.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Aeth {
        Aeth { syndrome: Syndrome::from_byte(b[0]), msn: Msn::new(be24(b, 1)) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = self.syndrome.to_byte();
        put24(b, 1, self.msn.value());
    }
}

/// The responder's verdict on a request, as the AETH carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// ACK: the request was received.
    Ack {
        /// Code of the receive credits, 0..=31; 31 means no limit. See [`credits`].
        credits: u8,
    },
    /// RNR NAK: no receive buffer is posted; the requester may try again later.
    RnrNak {
        /// Code of the time to wait before the next attempt, 0..=31.
        timer: u8,
    },
    /// NAK: the request was refused.
    Nak(NakCode),
    /// A syndrome byte without a defined meaning, kept whole.
    Reserved(u8),
}

impl Syndrome {
    /// ACK with no limit on receive credits.
    pub const UNLIMITED: Syndrome = Syndrome::Ack { credits: 0x1f };

    /// ACK with the largest credit code that promises at most `receives` messages.
    #[inline]
    pub const fn ack(receives: u32) -> Syndrome {
        Syndrome::Ack { credits: credit_code(receives) }
    }

    const RNR: u8 = 0x20;
    const NAK: u8 = 0x60;
    const VALUE: u8 = 0x1f;

    /// Decodes a syndrome byte; [`to_byte`](Syndrome::to_byte) gives the same byte back.
    #[inline]
    pub const fn from_byte(byte: u8) -> Syndrome {
        let value = byte & Self::VALUE;
        match byte & !Self::VALUE {
            0x00 => Syndrome::Ack { credits: value },
            Self::RNR => Syndrome::RnrNak { timer: value },
            Self::NAK => Syndrome::Nak(NakCode::from_code(value)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// Encodes the syndrome byte; credit, timer and NAK codes are cut to their five bits.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & Self::VALUE,
            Syndrome::RnrNak { timer } => Self::RNR | timer & Self::VALUE,
            Syndrome::Nak(code) => Self::NAK | code.code(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

impl Default for Syndrome {
    fn default() -> Syndrome {
        Syndrome::UNLIMITED
    }
}

/// Number of receives that each credit code, 0..=30, stands for. Code 31 means no limit and has no
/// entry.
//= check A19 — all 31 codes
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// Number of receives that a credit code, 0..=31, stands for; `None` means no limit.
#[inline]
pub const fn credits(code: u8) -> Option<u32> {
    let code = (code & Syndrome::VALUE) as usize;
    if code < CREDITS.len() { Some(CREDITS[code] as u32) } else { None }
}

/// The largest credit code, 0..=30, that stands for at most `receives`.
#[inline]
pub const fn credit_code(receives: u32) -> u8 {
    if receives < 2 {
        return receives as u8;
    }
    // Codes come in pairs: 2^n, then 1.5 · 2^n.
    let octave = receives.ilog2();
    let half = receives >> (octave - 1) & 1;
    let code = 2 * octave + half;
    if code < CREDITS.len() as u32 { code as u8 } else { CREDITS.len() as u8 - 1 }
}

/// Reason for which a responder refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A packet before this one is missing; the PSN of the NAK packet is the PSN expected.
    PsnSequenceError,
    /// The opcode, its order or its length is not allowed.
    InvalidRequest,
    /// The R_Key does not grant this access.
    RemoteAccessError,
    /// The responder failed for a reason that the request did not cause.
    RemoteOperationalError,
    /// A reliable datagram request, or an XRC request, broke the rules of its domain.
    InvalidRdRequest,
    /// Codes 5..=31, which have no meaning.
    Reserved(u8),
}

impl NakCode {
    /// Decodes a NAK code, the low five bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> NakCode {
        match code {
            0 => NakCode::PsnSequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccessError,
            3 => NakCode::RemoteOperationalError,
            4 => NakCode::InvalidRdRequest,
            other => NakCode::Reserved(other & Syndrome::VALUE),
        }
    }

    /// The five-bit code of this reason.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccessError => 2,
            NakCode::RemoteOperationalError => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Reserved(code) => code & Syndrome::VALUE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Aeth::LEN;

    fn parse(b: &[u8; LEN]) -> Aeth {
        Aeth::parse(b)
    }

    crate::testing::header_tests! {
        Aeth { syndrome: Syndrome::UNLIMITED, msn: Msn::new(0x01_2345) },
        bytes: [0x1f, 0x01, 0x23, 0x45],
        reserved: [0; LEN]
    }

    #[test]
    fn every_syndrome_byte_has_the_kind_of_its_two_bits_and_comes_back() {
        for byte in 0..=255 {
            let syndrome = Syndrome::from_byte(byte);
            let value = byte & 0x1f;
            let expected = match byte >> 5 {
                0b000 => Syndrome::Ack { credits: value },
                0b001 => Syndrome::RnrNak { timer: value },
                0b011 => Syndrome::Nak(NakCode::from_code(value)),
                _ => Syndrome::Reserved(byte),
            };
            assert_eq!(syndrome, expected);
            assert_eq!(syndrome.to_byte(), byte);
        }
    }

    #[test] //= check A19 test
    fn the_credit_table_follows_its_formula_and_promises_no_more_than_there_is() {
        assert_eq!([0, 1].map(credits), [Some(0), Some(1)]);
        for code in 2..31u8 {
            let octave = 1 << (code / 2);
            let receives = if code.is_multiple_of(2) { octave } else { octave + octave / 2 };
            assert_eq!(credits(code), Some(receives), "code {code}");
            assert_eq!(credit_code(receives), code);
            assert_eq!(credit_code(receives - 1), code - 1);
        }
        assert_eq!(credits(31), None);
        assert_eq!(credit_code(u32::MAX), 30);
        for receives in 0..70_000 {
            let promised = credits(credit_code(receives)).expect("a limit");
            assert!(promised <= receives);
        }
    }

    #[test]
    fn nak_codes_have_the_bytes_peers_expect() {
        let bytes = [
            (NakCode::PsnSequenceError, 0x60),
            (NakCode::InvalidRequest, 0x61),
            (NakCode::RemoteAccessError, 0x62),
            (NakCode::RemoteOperationalError, 0x63),
            (NakCode::InvalidRdRequest, 0x64),
            (NakCode::Reserved(0x1f), 0x7f),
        ];
        for (code, byte) in bytes {
            assert_eq!(Syndrome::Nak(code).to_byte(), byte);
        }
    }

    #[test]
    fn codes_out_of_range_cannot_change_the_kind() {
        assert_eq!(Syndrome::Ack { credits: 0xff }.to_byte(), 0x1f);
        assert_eq!(Syndrome::RnrNak { timer: 0xff }.to_byte(), 0x3f);
        assert_eq!(Syndrome::Nak(NakCode::Reserved(0xff)).to_byte(), 0x7f);
    }
}
