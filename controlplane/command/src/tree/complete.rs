//! Completion: the words that may stand at the end of a line.

use super::{find, root, value_name, words};

/// A word that may be typed, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The word.
    pub word: String,
    /// What it means, one line.
    pub help: String,
}

/// What may be typed at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Place in the line, in bytes, from which the word under the cursor is to be replaced.
    pub start: usize,
    /// Words of the tree.
    pub words: Vec<Candidate>,
    /// Name of the value that may be typed instead, as in `PORT|all`.
    pub value: Option<String>,
}

/// Returns what may be typed at the end of a line. Nothing if the line has a mistake already.
pub fn complete(line: &str) -> Completion {
    let start = line
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
    let (before, begun) = line.split_at(start);
    let nothing = Completion { start, words: Vec::new(), value: None };
    let root = root();
    let mut at = &root;
    let Ok(words) = words::split(before) else { return nothing };
    let mut given = 0;
    for word in &words {
        match (at.has_subcommands(), find(at, &word.text)) {
            (true, Ok(next)) => at = next,
            (true, Err(_)) => return nothing,
            (false, _) => given += 1,
        }
    }
    let subs = at.get_subcommands().filter(|sub| sub.get_name().starts_with(begun));
    let words = subs.map(|sub| Candidate {
        word: sub.get_name().to_owned(),
        help: sub.get_about().map(ToString::to_string).unwrap_or_default(),
    });
    let value = at.get_positionals().nth(given).filter(|_| !at.has_subcommands()).map(value_name);
    Completion { start, words: words.collect(), value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        complete(line).words.into_iter().map(|candidate| candidate.word).collect()
    }

    #[test]
    fn words_are_completed_after_short_words_too() {
        assert_eq!(words("sho"), ["show"]);
        assert_eq!(words("show po"), ["port"]);
        assert_eq!(words("sh po s"), ["summary", "stats"]);
        assert_eq!(complete("sh po s").start, 6);
        assert_eq!(words("show port"), ["port"]);
        assert!(words("show nothing s").is_empty());
        assert!(words("show \"port s").is_empty());
    }

    #[test]
    fn values_are_named() {
        assert_eq!(complete("show port stats ").value.as_deref(), Some("PORT|all"));
        assert_eq!(complete("show qp 0x").value.as_deref(), Some("QPN|all"));
        assert_eq!(complete("show qp 1 ").value, None);
        assert_eq!(complete("show ").value, None);
    }
}
