//! Failover of connections for programs that load no alternate path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest time before a connection is led back, in seconds: a day.
const AFTER_MAX: u32 = 86_400;

/// Connections that get an alternate path from the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failover {
    /// Only programs load alternate paths.
    #[default]
    Never,
    /// Every RC connection to another uroce device with `auto`: both control planes agree on a path
    /// over other ports than those in use, load it, arm it, and renew it after each migration. The
    /// program gets no events of that and sees the path that it has set. A connection for which its
    /// program loads an alternate path is left alone.
    Auto,
}

/// Reason for which a text is neither a [`Failover`] nor a [`Failback`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailoverError {
    /// The text is no [`Failover`].
    #[error("it is `never` or `auto`")]
    Failover,
    /// The text is no [`Failback`].
    #[error("it is `never` or `after:SECONDS`, with 1 to {AFTER_MAX} seconds")]
    Failback,
}

impl FromStr for Failover {
    type Err = FailoverError;

    fn from_str(text: &str) -> Result<Self, FailoverError> {
        match text {
            "never" => Ok(Failover::Never),
            "auto" => Ok(Failover::Auto),
            _ => Err(FailoverError::Failover),
        }
    }
}

/// Time after which a connection that has migrated by [`Failover::Auto`] is led back to the path
/// that its program has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failback {
    /// It stays on the path that it is on, until that one fails.
    #[default]
    Never,
    /// After this number of seconds, 1 to 86400, in which that path has been armed.
    After(u32),
}

impl fmt::Display for Failback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failback::Never => f.write_str("never"),
            Failback::After(seconds) => write!(f, "after:{seconds}"),
        }
    }
}

impl FromStr for Failback {
    type Err = FailoverError;

    fn from_str(text: &str) -> Result<Self, FailoverError> {
        if text == "never" {
            return Ok(Failback::Never);
        }
        let seconds = text.strip_prefix("after:").and_then(|seconds| seconds.parse().ok());
        let seconds = seconds.filter(|seconds| (1..=AFTER_MAX).contains(seconds));
        seconds.map(Failback::After).ok_or(FailoverError::Failback)
    }
}

impl<'de> Deserialize<'de> for Failback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Failback {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_limits() {
        for (text, expected) in [
            ("never", Some(Failback::Never)),
            ("after:1", Some(Failback::After(1))),
            ("after:86400", Some(Failback::After(86_400))),
            ("after:0", None),
            ("after:86401", None),
            ("after:", None),
            ("after:-1", None),
            ("after:1.5", None),
            ("1", None),
            ("", None),
            ("Never", None),
        ] {
            let read = text.parse::<Failback>();
            assert_eq!(read.ok(), expected, "{text}");
            if let Some(value) = expected {
                assert_eq!(value.to_string(), text);
            }
        }
        assert_eq!("auto".parse(), Ok(Failover::Auto));
        assert_eq!("on".parse::<Failover>(), Err(FailoverError::Failover));
    }
}
