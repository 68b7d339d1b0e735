//! Rates of paths, with the codes of the verbs' `IBV_RATE_*`.

/// Static rate of a path: a code of the verbs. [`StaticRate::MAX`] means no limit.
///
/// A code stands for the rate in its name. On InfiniBand some codes mean a link's signalling rate,
/// which is some percent higher; Ethernet's rates are data rates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StaticRate(u8);

/// All codes with a limit, and their rates in Mb/s.
const RATES: [(u8, u32); 23] = [
    (2, 2_500),
    (3, 10_000),
    (4, 30_000),
    (5, 5_000),
    (6, 20_000),
    (7, 40_000),
    (8, 60_000),
    (9, 80_000),
    (10, 120_000),
    (11, 14_000),
    (12, 56_000),
    (13, 112_000),
    (14, 168_000),
    (15, 25_000),
    (16, 100_000),
    (17, 200_000),
    (18, 300_000),
    (19, 28_000),
    (20, 50_000),
    (21, 400_000),
    (22, 600_000),
    (23, 800_000),
    (24, 1_200_000),
];

impl StaticRate {
    /// No limit: `IBV_RATE_MAX`.
    pub const MAX: StaticRate = StaticRate(0);

    /// The rate of a code, 0 to 24; `None` if the verbs have no such code.
    pub fn from_code(code: u8) -> Option<StaticRate> {
        let is_known = code == 0 || RATES.iter().any(|(known, _)| *known == code);
        is_known.then_some(StaticRate(code))
    }

    /// The rate of `mbps` Mb/s; `None` if the verbs have no code for it.
    pub fn from_mbps(mbps: u32) -> Option<StaticRate> {
        RATES.iter().find(|(_, known)| *known == mbps).map(|(code, _)| StaticRate(*code))
    }

    /// The code of the rate, 0 to 24.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The rate in Mb/s; `None` if there is no limit.
    pub fn mbps(self) -> Option<u32> {
        RATES.iter().find(|(code, _)| *code == self.0).map(|(_, mbps)| *mbps)
    }

    /// All rates, [`StaticRate::MAX`] first.
    pub fn all() -> impl Iterator<Item = StaticRate> {
        [0].into_iter().chain(RATES.iter().map(|(code, _)| *code)).map(StaticRate)
    }
}

impl core::fmt::Display for StaticRate {
    /// Prints `25 Gb/s`, or `max`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.mbps() {
            None => f.write_str("max"),
            Some(mbps) => write!(f, "{} Gb/s", f64::from(mbps) / 1000.0),
        }
    }
}

impl core::fmt::Debug for StaticRate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_verbs() {
        // In verbs.h, code 1 is not assigned.
        let codes: Vec<u8> =
            (0..=u8::MAX).filter(|code| StaticRate::from_code(*code).is_some()).collect();
        let expected: Vec<u8> = (0..=24).filter(|code| *code != 1).collect();
        assert_eq!(codes, expected);
        assert_eq!(StaticRate::all().count(), expected.len());
        for rate in StaticRate::all() {
            assert_eq!(StaticRate::from_code(rate.code()), Some(rate));
            assert_eq!(rate.mbps().and_then(StaticRate::from_mbps).unwrap_or_default(), rate);
        }
    }

    #[test]
    fn each_rate_is_a_multiple_of_its_generation_and_width() {
        // Mb/s of one lane, by generation; links have 1, 2, 4, 8 or 12 lanes.
        let lanes = [2_500, 5_000, 10_000, 14_000, 25_000, 50_000, 100_000];
        for mbps in StaticRate::all().filter_map(StaticRate::mbps) {
            let is_link =
                lanes.iter().any(|lane| [1, 2, 4, 8, 12].iter().any(|width| lane * width == mbps));
            assert!(is_link, "{mbps}");
        }
        assert_eq!(StaticRate::from_code(15).unwrap().to_string(), "25 Gb/s");
        assert_eq!(StaticRate::from_code(2).unwrap().to_string(), "2.5 Gb/s");
        assert_eq!(StaticRate::MAX.to_string(), "max");
    }
}
