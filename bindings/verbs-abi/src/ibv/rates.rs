//! Conversions of link rates between codes of the verbs interface, multiples of 2.5 Gb/s, and Mb/s.

use std::ffi::{c_int, c_uint};

use crate::abi;

/// Each code with its multiple of 2.5 Gb/s, if it has one, and its signaling rate in Mb/s.
const RATES: [(c_uint, Option<c_int>, c_int); 23] = [
    (abi::IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (abi::IBV_RATE_10_GBPS, Some(4), 10_000),
    (abi::IBV_RATE_30_GBPS, Some(12), 30_000),
    (abi::IBV_RATE_5_GBPS, Some(2), 5_000),
    (abi::IBV_RATE_20_GBPS, Some(8), 20_000),
    (abi::IBV_RATE_40_GBPS, Some(16), 40_000),
    (abi::IBV_RATE_60_GBPS, Some(24), 60_000),
    (abi::IBV_RATE_80_GBPS, Some(32), 80_000),
    (abi::IBV_RATE_120_GBPS, Some(48), 120_000),
    (abi::IBV_RATE_14_GBPS, None, 14_062),
    (abi::IBV_RATE_56_GBPS, None, 56_250),
    (abi::IBV_RATE_112_GBPS, None, 112_500),
    (abi::IBV_RATE_168_GBPS, None, 168_750),
    (abi::IBV_RATE_25_GBPS, None, 25_781),
    (abi::IBV_RATE_100_GBPS, None, 103_125),
    (abi::IBV_RATE_200_GBPS, None, 206_250),
    (abi::IBV_RATE_300_GBPS, None, 309_375),
    (abi::IBV_RATE_28_GBPS, Some(11), 28_125),
    (abi::IBV_RATE_50_GBPS, Some(20), 53_125),
    (abi::IBV_RATE_400_GBPS, Some(160), 425_000),
    (abi::IBV_RATE_600_GBPS, Some(240), 637_500),
    (abi::IBV_RATE_800_GBPS, Some(320), 850_000),
    (abi::IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_uint) -> c_int {
    let found = RATES.iter().find(|(code, ..)| *code == rate);
    found.and_then(|(_, mult, _)| *mult).unwrap_or(-1)
}

pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_uint {
    let found = RATES.iter().find(|(_, known, _)| *known == Some(mult));
    found.map_or(abi::IBV_RATE_MAX, |(code, ..)| *code)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_uint) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(.., mbps)| *mbps)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_uint {
    let found = RATES.iter().find(|(.., known)| *known == mbps);
    found.map_or(abi::IBV_RATE_MAX, |(code, ..)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rate_comes_back_from_what_it_was_converted_to() {
        for (code, mult, mbps) in RATES {
            assert_eq!(ibv_rate_to_mbps(code), mbps);
            assert_eq!(mbps_to_ibv_rate(mbps), code);
            assert_eq!(ibv_rate_to_mult(code), mult.unwrap_or(-1));
            assert_eq!(mult.map_or(code, |mult| mult_to_ibv_rate(mult)), code);
        }
    }

    #[test]
    fn a_value_that_is_no_rate_has_no_code() {
        for code in [0, 1, 25, c_uint::MAX] {
            assert_eq!((ibv_rate_to_mbps(code), ibv_rate_to_mult(code)), (-1, -1));
        }
        for number in [c_int::MIN, -1, 0, 3, c_int::MAX] {
            assert_eq!((mult_to_ibv_rate(number), mbps_to_ibv_rate(number)), (0, 0));
        }
    }
}
