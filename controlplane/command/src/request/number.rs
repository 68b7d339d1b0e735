//! Numbers as users type them: decimal, or hexadecimal after `0x`.

use serde::{Deserialize, Serialize};

/// Parses a number of type `T`.
///
/// # Errors
///
/// What was expected instead.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // A sign after `0x` is refused here, because `from_str_radix` accepts it.
        Some(digits) if digits.starts_with(['+', '-']) => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    };
    number.and_then(|number| T::try_from(number).ok()).ok_or("not a number that fits here")
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    /// Returns whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}
