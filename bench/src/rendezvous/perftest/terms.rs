//! Parameters that releases of perftest from 6.30 on compare before they connect.
//!
//! ```text
//!   format                 4 bytes   0; another number ends the comparison without a result
//!   length                 4         of the text
//!   text                             NAME=HEX;NAME=HEX;…  values with the most significant byte
//!                                    first
//! ```
//!
//! A name that only one end sends is not compared. Therefore only those are sent of which the value
//! of a stock program with the same options is certain.
//!
//! Source: perftest's master of 2026. No distribution had a program of 6.28 or later when this was
//! written, so that the tests hold both ends.

use crate::error::BenchError;

/// Format of the text.
pub(super) const FORMAT: u32 = 0;
/// Longest text of the other end. Stock programs send less than 1000 bytes.
pub(super) const TEXT_MAX: u32 = 1 << 16;
/// Name of the limit of READ and ATOMIC requests, which need not be equal.
const READS: &str = "max_qp_rd_atom";

/// Parameters of one end, by perftest's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms(Vec<(String, Vec<u8>)>);

impl Terms {
    /// Adds a number of 4 bytes.
    pub(crate) fn int(mut self, name: &str, value: u32) -> Self {
        self.0.push((name.to_owned(), value.to_be_bytes().to_vec()));
        self
    }

    /// Adds a number of 8 bytes.
    pub(crate) fn long(mut self, name: &str, value: u64) -> Self {
        self.0.push((name.to_owned(), value.to_be_bytes().to_vec()));
        self
    }

    /// Adds the number of READ and ATOMIC requests that this end executes at a time.
    pub(crate) fn reads(self, value: u32) -> Self {
        self.int(READS, value)
    }

    /// Encodes the text.
    pub(super) fn text(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.0.iter().map(|(name, value)| format!("{name}={};", hex(value))).collect()
    }

    /// Decodes a text. As in perftest, a part that is not of the form is left out.
    pub(super) fn parse(text: &[u8]) -> Self {
        let part = |part: &[u8]| {
            let (name, hex) = std::str::from_utf8(part).ok()?.split_once('=')?;
            let digits = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
            let value: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digits).collect();
            Some((name.to_owned(), value?))
        };
        Self(text.split(|&byte| byte == b';').filter_map(part).collect())
    }

    /// Compares with the other end's parameters. Returns the number of READ and ATOMIC requests
    /// that it executes at a time, if it has sent that.
    ///
    /// # Errors
    ///
    /// The parameters that differ.
    pub(super) fn compare(&self, theirs: &Self) -> Result<Option<u32>, BenchError> {
        let of = |name: &str| theirs.0.iter().find(|(known, _)| known == name);
        let differences: Vec<String> = self
            .0
            .iter()
            .filter(|(name, _)| name != READS)
            .filter_map(|(name, ours)| {
                let (_, theirs) = of(name).filter(|(_, theirs)| theirs != ours)?;
                Some(format!("{name} is {} here and {} there", number(ours), number(theirs)))
            })
            .collect();
        if differences.is_empty() {
            let reads = of(READS).and_then(|(_, value)| u32::try_from(number(value)).ok());
            return Ok(reads);
        }
        Err(BenchError::Disagree(differences.join(", ")))
    }
}

/// Returns a value; of more than 8 bytes the last.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms::default().int("verb", 2).long("size", 65536).reads(16)
    }

    #[test]
    fn parameters_are_read_as_they_are_written() {
        let text = "verb=00000002;size=0000000000010000;max_qp_rd_atom=00000010;";
        assert_eq!(terms().text(), text);
        assert_eq!(Terms::parse(text.as_bytes()), terms());
    }

    #[test]
    fn equal_parameters_agree_and_unknown_ones_do_not_count() {
        assert_eq!(terms().compare(&terms()).expect("equal"), Some(16));
        let theirs = Terms::default().int("verb", 2).int("numa_node", 7).reads(4);
        assert_eq!(terms().compare(&theirs).expect("no difference"), Some(4));
        assert_eq!(terms().compare(&Terms::default()).expect("nothing sent"), None);
    }

    #[test]
    fn differing_parameters_are_named() {
        let theirs = Terms::default().int("verb", 4).long("size", 8);
        let text = terms().compare(&theirs).expect_err("they differ").to_string();
        assert!(text.ends_with("verb is 2 here and 4 there, size is 65536 here and 8 there"));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        for text in [
            &b"size=00000000000100"[..],
            b"size=0;verb=zz;=;;a=b=c;\xff\xfe=00;x",
            b"=00000002;verb",
            "verb=00\u{e9}0;".as_bytes(),
        ] {
            let _ = terms().compare(&Terms::parse(text));
        }
        assert_eq!(Terms::parse(b"verb=0000000z;size=01;"), Terms(vec![("size".into(), vec![1])]));
    }
}
