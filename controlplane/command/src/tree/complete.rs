//! Completion: the words that may be typed at the end of a line.

use clap::{Arg, Command};

use super::{arguments, find, offered, parse, root, takes_either, value_name, words};

/// A word that may be typed, and its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The word.
    pub word: String,
    /// Meaning of the word, one line.
    pub help: String,
}

/// What may be typed at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Index, in bytes, of the word under the cursor in the line: a completion replaces it from
    /// there.
    pub start: usize,
    /// The words that may be typed.
    pub words: Vec<Candidate>,
    /// Name of the value that may be typed instead, as in `PORT|all`.
    pub value: Option<String>,
}

/// Returns what may be typed at the end of a line. Nothing if the line already has a mistake.
pub fn complete(line: &str) -> Completion {
    let start = line
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
    let (before, begun) = line.split_at(start);
    let nothing = Completion { start, words: Vec::new(), value: None };
    let root = root();
    let mut at = &root;
    let Ok(words) = words::split(before) else { return nothing };
    let mut depth = 0;
    for word in &words {
        let is_value = takes_either(at) && at.find_subcommand(&word.text).is_none();
        match (at.has_subcommands() && !is_value, find(at, &word.text)) {
            (true, Ok(next)) => (at, depth) = (next, depth + 1),
            (true, Err(_)) => return nothing,
            (false, _) => break,
        }
    }
    if !at.has_subcommands() || words.len() > depth {
        let (mut words, value) = of_arguments(at, &words[depth..], begun);
        words.retain(|candidate| is_taken(before, &candidate.word));
        return Completion { start, words, value };
    }
    let subs = offered(at).filter(|sub| sub.get_name().starts_with(begun));
    let words = subs.map(|sub| Candidate {
        word: sub.get_name().to_owned(),
        help: sub.get_about().map(ToString::to_string).unwrap_or_default(),
    });
    let value = at.get_positionals().next().map(value_name);
    Completion { start, words: words.collect(), value }
}

/// Returns whether a word may follow the others: none of them is wrong or excludes it.
fn is_taken(before: &str, word: &str) -> bool {
    let column = before.chars().count();
    parse(&format!("{before}{word}")).map_or_else(|mistake| mistake.column > column, |_| true)
}

/// Returns what may follow these words of a command: further words, and the name of a value.
fn of_arguments(
    leaf: &Command,
    given: &[words::Word],
    begun: &str,
) -> (Vec<Candidate>, Option<String>) {
    let nothing = (Vec::new(), None);
    let (mut used, mut places) = (Vec::new(), leaf.get_positionals());
    let mut place = places.next();
    let mut given = given.iter();
    while let Some(word) = given.next() {
        let is_whole = arguments::free_words(leaf, &used).any(|name| name == word.text);
        if place.is_some() && !is_whole && !word.text.starts_with("--") {
            place = places.next();
            continue;
        }
        let Ok(arg) = arguments::keyword(leaf, &used, &word.text) else { return nothing };
        used.extend(arg.get_long());
        if arguments::takes_value(arg) && given.next().is_none() {
            return of_value(arg, begun);
        }
    }
    let (mut words, value) = place.map_or(nothing, |place| of_value(place, begun));
    // A value that is required must be typed before other words.
    if place.is_none_or(|place| !place.is_required_set()) {
        let free = arguments::keywords(leaf).filter(|arg| {
            arg.get_long().is_some_and(|name| name.starts_with(begun) && !used.contains(&name))
        });
        words.extend(free.map(|arg| Candidate {
            word: arg.get_long().unwrap_or_default().to_owned(),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        }));
    }
    (words, value)
}

/// Returns the possible words of a value, and the value's name.
fn of_value(arg: &Arg, begun: &str) -> (Vec<Candidate>, Option<String>) {
    let words = arg.get_possible_values().into_iter().map(|value| Candidate {
        word: value.get_name().to_owned(),
        help: value.get_help().map(ToString::to_string).unwrap_or_default(),
    });
    (words.filter(|word| word.word.starts_with(begun)).collect(), Some(value_name(arg)))
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
        assert_eq!(words("start tx"), ["tx_first"]);
        assert!(words("show nothing s").is_empty());
        assert!(words("show \"port s").is_empty());
    }

    #[test]
    fn words_are_offered_unless_those_before_are_wrong_or_exclude_them() {
        assert_eq!(words("set port 0 "), ["link-up", "link-down", "rate"]);
        assert_eq!(words("set port 0 link-up "), ["rate"]);
        assert!(words("set port 0 rate x ").is_empty());
        assert!(words("set fault port 0 rx t").is_empty());
    }

    #[test]
    fn values_are_named() {
        assert_eq!(complete("show port stats ").value.as_deref(), Some("PORT|all"));
        assert_eq!(complete("show qp 0x").value.as_deref(), Some("QPN|all"));
        assert_eq!(complete("show qp 1 ").value, None);
        assert_eq!(complete("show ").value, None);
    }
}
