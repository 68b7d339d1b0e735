//! Mistakes in a line. Their text has three lines: testpmd's words, the place with what was
//! expected there, and a remedy.

use super::words::Word;

/// Kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No command begins with this word.
    NotFound,
    /// Several words begin in this way.
    Ambiguous,
    /// The word is not what the command takes here.
    Bad,
}

impl Fault {
    /// Converts the kind of a mistake in the first word to that of one in a later word.
    pub(super) fn within_a_command(self) -> Fault {
        if self == Fault::NotFound { Fault::Bad } else { self }
    }

    /// Returns testpmd's words for the kind of mistake.
    pub fn text(self) -> &'static str {
        match self {
            Fault::NotFound => "Command not found",
            Fault::Ambiguous => "Ambiguous command",
            Fault::Bad => "Bad arguments",
        }
    }
}

/// A mistake in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Kind of the mistake.
    pub fault: Fault,
    /// Column of the place's first character, from 0.
    pub column: usize,
    /// Length of the place in characters, at least 1.
    pub len: usize,
    /// What was expected there: words, or names of values.
    pub expected: Vec<String>,
    /// What to type instead.
    pub remedy: String,
}

impl Mistake {
    /// Creates the mistake of a wrong word, which follows the words in `before`.
    pub(super) fn at(
        line: &str,
        word: &Word,
        fault: Fault,
        expected: Vec<String>,
        before: &[String],
    ) -> Mistake {
        debug_assert!(word.column + word.len <= line.chars().count());
        let (expected, remedy) = match fault {
            Fault::Ambiguous => {
                let begun = expected.into_iter().filter(|name| name.starts_with(&word.text));
                (begun.collect(), "type more of the word".to_owned())
            }
            _ => {
                let remedy = match nearest(&word.text, &expected) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => see_help(before),
                };
                (expected, remedy)
            }
        };
        Mistake { fault, column: word.column, len: word.len.max(1), expected, remedy }
    }

    /// Creates the mistake of a line that ends too early, after the words in `before`.
    pub(super) fn missing(line: &str, expected: Vec<String>, before: &[String]) -> Mistake {
        let column = line.trim_end().chars().count() + 1;
        Mistake { fault: Fault::Bad, column, len: 1, expected, remedy: see_help(before) }
    }

    /// Creates the mistake of a word with an open quotation mark.
    pub(super) fn open_quote(line: &str, word: &Word) -> Mistake {
        let mistake = Mistake::missing(line, vec!["\"".to_owned()], &[]);
        let remedy = "close the quotation mark".to_owned();
        Mistake { column: word.column, len: word.len, remedy, ..mistake }
    }

    /// Returns the text of the mistake: three lines, without a newline at the end. The line with
    /// the mistake is taken to begin in column `indent`.
    pub fn text(&self, indent: usize) -> String {
        let indent = indent + self.column;
        let (pad, caret) = (" ".repeat(indent), "^".repeat(self.len));
        let expected = match self.expected.as_slice() {
            [] => String::new(),
            [one] => format!(" expected {one}"),
            several => format!(" expected one of: {}", several.join(" ")),
        };
        format!("{}\n{pad}{caret}{expected}\n{pad}{}", self.fault.text(), self.remedy)
    }
}

fn see_help(before: &[String]) -> String {
    match before {
        [] => "type \"help\" for all commands".to_owned(),
        words => format!("type \"help {}\"", words.join(" ")),
    }
}

/// Returns the word that is most like `word`, if one is like it.
fn nearest<'w>(word: &str, words: &'w [String]) -> Option<&'w String> {
    let limit = 1 + word.chars().count() / 4;
    let far = |candidate: &&String| distance(word, candidate);
    words.iter().min_by_key(far).filter(|near| distance(word, near) <= limit)
}

/// Returns the number of letters to insert, remove, replace or swap with the next one. Only the
/// first 32 letters of each word count.
fn distance(one: &str, other: &str) -> usize {
    let [one, other]: [Vec<char>; 2] =
        [one, other].map(|word| word.to_lowercase().chars().take(32).collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_a_slip_or_a_missing_letter_is_one_step() {
        for (one, other, steps) in
            [("prot", "port", 1), ("pprt", "port", 1), ("prt", "port", 1), ("", "qp", 2)]
        {
            assert_eq!(distance(one, other), steps, "{one} {other}");
        }
    }
}
