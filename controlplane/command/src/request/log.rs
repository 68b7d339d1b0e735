//! The log of a process: `set verbose`, `set log`.

use serde::{Deserialize, Serialize};

/// Level of the log: lines of this level and of those before it are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Faults of uroce itself.
    Error,
    /// What does not work as it was asked for.
    Warn,
    /// Devices, links, events of ports.
    Info,
    /// Modify QP, paths, states of connections.
    Debug,
    /// All there is.
    Trace,
}

impl LogLevel {
    /// Returns the level of a number of `set verbose`: 0 for nothing, 3 and more for all.
    pub fn of(number: u16) -> LogLevel {
        match number {
            0 => LogLevel::Off,
            1 => LogLevel::Info,
            2 => LogLevel::Debug,
            _ => LogLevel::Trace,
        }
    }

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}
