//! Selection of CM ids: of listeners, connections and look-ups.

use serde::{Deserialize, Serialize};

/// A selection of CM ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectCm {
    /// All ids.
    All,
    /// Those ids that listen.
    Listen,
    /// The id with this number.
    One(u32),
}

impl std::str::FromStr for SelectCm {
    type Err = &'static str;

    /// Parses a number, or `listen` or `all`, or a beginning of these words.
    fn from_str(text: &str) -> Result<SelectCm, Self::Err> {
        if !text.is_empty() && "listen".starts_with(text) {
            return Ok(SelectCm::Listen);
        }
        match text.parse() {
            Ok(super::Select::All) => Ok(SelectCm::All),
            Ok(super::Select::One(number)) => Ok(SelectCm::One(number)),
            Err(_) => Err("not a number, 0x and a number, listen, or all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_number_or_a_word() {
        assert_eq!("0x10".parse(), Ok(SelectCm::One(16)));
        assert_eq!("l".parse(), Ok(SelectCm::Listen));
        assert_eq!("all".parse(), Ok(SelectCm::All));
        assert!("".parse::<SelectCm>().is_err() && "listens".parse::<SelectCm>().is_err());
    }
}
