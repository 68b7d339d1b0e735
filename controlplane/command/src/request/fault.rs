//! Requests about injected faults.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(feature = "tree")]
use super::number::number;

/// Changes of the faults of a port. A value that is not given stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct SetFault {
    /// Number of a port
    #[cfg_attr(feature = "tree", arg(long, value_name = "PORT", value_parser = number::<u32>))]
    pub port: u32,
    /// Only received frames; without rx and tx, both directions
    #[cfg_attr(feature = "tree", arg(long, conflicts_with = "tx"))]
    #[serde(default)]
    pub rx: bool,
    /// Only frames that are sent by QPs or forwarded, not those of the connection manager
    #[cfg_attr(feature = "tree", arg(long))]
    #[serde(default)]
    pub tx: bool,
    /// Share of frames that are lost, 0 to 1
    #[cfg_attr(feature = "tree", arg(long, value_name = "SHARE"))]
    pub loss: Option<Share>,
    /// Share of frames that come twice
    #[cfg_attr(feature = "tree", arg(long, value_name = "SHARE"))]
    pub dup: Option<Share>,
    /// Share of frames that up to eight later ones overtake
    #[cfg_attr(feature = "tree", arg(long, value_name = "SHARE"))]
    pub reorder: Option<Share>,
    /// Share of frames with a wrong bit, which the peer's invariant CRC finds
    #[cfg_attr(feature = "tree", arg(long, value_name = "SHARE"))]
    pub corrupt: Option<Share>,
    /// Delay of each frame in microseconds, up to a second
    #[cfg_attr(feature = "tree", arg(long, value_name = "US",
        value_parser = clap::value_parser!(u32).range(..=1_000_000)))]
    pub delay: Option<u32>,
    /// Seed of the random choice
    #[cfg_attr(feature = "tree", arg(long, value_name = "SEED"))]
    pub seed: Option<u64>,
    /// Number of a QP: only frames that it sends and those to it
    #[cfg_attr(feature = "tree", arg(long, value_name = "QPN", value_parser = number::<u32>))]
    pub qp: Option<u32>,
}

/// A share of frames, 0 to 1, as a number of thousand-millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "f64", try_from = "f64")]
pub struct Share(u32);

/// Number of steps in a whole.
const WHOLE: f64 = 1e9;

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        f64::from(share.0) / WHOLE
    }
}

impl TryFrom<f64> for Share {
    type Error = &'static str;

    fn try_from(share: f64) -> Result<Share, Self::Error> {
        if (0.0..=1.0).contains(&share) {
            Ok(Share((share * WHOLE).round() as u32))
        } else {
            Err("not a share from 0 to 1")
        }
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Share, Self::Err> {
        text.parse::<f64>().map_err(|_| "not a number").and_then(Share::try_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_from_0_to_1() {
        for (text, share) in [("0", 0.0), ("1", 1.0), ("0.01", 0.01), ("1e-3", 0.001)] {
            assert_eq!(f64::from(text.parse::<Share>().unwrap()), share);
        }
        for text in ["", "1.1", "-0.1", "nan", "inf", "1%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Share>("2").is_err());
        assert_eq!(serde_json::to_string(&Share::try_from(0.01).unwrap()).unwrap(), "0.01");
    }

    #[cfg(feature = "tree")]
    #[test]
    fn lines_are_as_testpmds() {
        use crate::tree::{Line, parse};
        use crate::{Request, Set};

        let none = SetFault {
            port: 0,
            rx: false,
            tx: false,
            loss: None,
            dup: None,
            reorder: None,
            corrupt: None,
            delay: None,
            seed: None,
            qp: None,
        };
        let share = |share: f64| Some(Share::try_from(share).unwrap());
        for (line, fault) in [
            (
                "set fault port 0 rx loss 0.01 seed 7",
                SetFault { rx: true, loss: share(0.01), seed: Some(7), ..none.clone() },
            ),
            (
                "set fault port 1 tx corrupt 1 dup .5 qp 0x11",
                SetFault {
                    port: 1,
                    tx: true,
                    corrupt: share(1.0),
                    dup: share(0.5),
                    qp: Some(0x11),
                    ..none.clone()
                },
            ),
            ("set fault port 0 delay 100", SetFault { delay: Some(100), ..none }),
        ] {
            let set = Line::Request(Request::Set(Set::Fault(fault)));
            assert_eq!(parse(line).unwrap(), Some(set), "{line}");
        }
        for wrong in [
            "set fault",
            "set fault loss 0.1",
            "set fault port 0 loss 1.5",
            "set fault port 0 loss",
            "set fault port 0 rx tx loss 0.1",
            "set fault port 0 delay 1000001",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
