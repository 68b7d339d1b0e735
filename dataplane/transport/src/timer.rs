//! The two coded intervals of a reliable QP: local ACK timeout and RNR NAK timer.
//!
//! Read first: IBA 9.7.5 (RNR NAK timer) and 9.7.6.1.3 (local ACK timeout).
//!
//! Both are five-bit codes, on the wire or in attributes. The tests compare the tables with their
//! formulas.

use core::time::Duration;

/// The local ACK timeout of a code: 4.096 µs · 2^code; `None` for code 0, which means no timeout.
///
/// Only the low five bits of `code` are used. Codes above 31 cannot be set (see
/// [`crate::ModifyError`]).
//= check B2 — timeout code 0 never resends
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 0x1f {
        0 => None,
        code => Some(Duration::from_nanos(4096 << code)),
    }
}

/// Time that a requester waits after an RNR NAK with this timer code.
//= check B6 — 32 codes, 0.01 ms to 491.52 ms, and code 0 the longest
pub const fn rnr_timeout(code: u8) -> Duration {
    Duration::from_micros(10 * RNR_TENS_OF_MICROS[(code & 0x1f) as usize])
}

/// RNR timer values in units of 10 µs. Codes come in pairs 2^n, 1.5·2^n; code 0 continues after
/// code 31.
const RNR_TENS_OF_MICROS: [u64; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= check B1 test
    fn ack_timeout_doubles_with_each_code() {
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        for code in 2..32 {
            assert_eq!(ack_timeout(code).unwrap(), ack_timeout(code - 1).unwrap() * 2);
        }
    }

    #[test] //= check B2 test
    fn ack_timeout_zero_is_never() {
        assert_eq!(ack_timeout(0), None);
    }

    #[test] //= check B6 test
    fn rnr_table_follows_its_formula() {
        assert_eq!(rnr_timeout(0), Duration::from_micros(655_360));
        assert_eq!(rnr_timeout(1), Duration::from_micros(10));
        assert_eq!(rnr_timeout(31), Duration::from_micros(491_520));
        for code in 2..32u8 {
            let octave = 1u64 << (code / 2);
            let micros = if code.is_multiple_of(2) { 10 * octave } else { 15 * octave };
            assert_eq!(rnr_timeout(code), Duration::from_micros(micros), "code {code}");
        }
    }
}
