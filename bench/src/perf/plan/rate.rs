//! Limits of a queue pair's sending rate.

use serde::{Deserialize, Serialize};

/// Limit of the sending rate, counting whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rate {
    /// No limit.
    #[default]
    Max,
    /// Static rate of the path, a code of the verbs.
    Path(u8),
    /// Rate limit of the queue pair, in kbit/s.
    QueuePair(u32),
}

impl Rate {
    /// Returns the lowest static rate of the verbs that is at least `mbps`; no limit if there is
    /// none.
    pub(crate) fn of_path(mbps: f64) -> Self {
        let known = uroce::StaticRate::all().filter_map(|rate| Some((rate.mbps()?, rate.code())));
        let fits = known.filter(|(known, _)| f64::from(*known) >= mbps);
        fits.min().map_or(Self::Max, |(_, code)| Self::Path(code))
    }

    /// Returns the limit in Gb/s, if there is one.
    pub(crate) fn gbps(self) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Path(_) => self.of_the_path().mbps().map(|mbps| f64::from(mbps) / 1e3),
            Self::QueuePair(kbps) => Some(f64::from(kbps) / 1e6),
        }
    }

    /// Returns the static rate for the address vector.
    pub(crate) fn of_the_path(self) -> uroce::StaticRate {
        match self {
            Self::Path(code) => uroce::StaticRate::from_code(code).unwrap_or_default(),
            Self::Max | Self::QueuePair(_) => uroce::StaticRate::MAX,
        }
    }

    /// Returns the rate limit for Modify QP: kbit/s, 0 for no limit.
    pub(crate) fn of_the_queue_pair(self) -> u32 {
        match self {
            Self::QueuePair(kbps) => kbps,
            Self::Max | Self::Path(_) => 0,
        }
    }
}
