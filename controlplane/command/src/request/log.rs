//! The log of a process: `set verbose`, `set log`.

use serde::{Deserialize, Serialize};

/// Level of the log. Lines of this level and of the levels above it in this list are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// No lines.
    Off,
    /// Errors in uroce itself.
    Error,
    /// Requests and settings that could not be carried out as asked.
    Warn,
    /// Devices, links, events of ports.
    Info,
    /// Modify QP, paths, states of connections.
    Debug,
    /// All lines.
    Trace,
}

impl LogLevel {
    /// Returns the level for the number in `set verbose`: 0 writes nothing, 3 and more write
    /// everything.
    pub fn of(number: u16) -> LogLevel {
        match number {
            0 => LogLevel::Off,
            1 => LogLevel::Info,
            2 => LogLevel::Debug,
            _ => LogLevel::Trace,
        }
    }

    /// Returns the name of the level.
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
