//! Words of a line, with their places.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// The word without its quotation marks.
    pub(super) text: String,
    /// Column of the word's first character, from 0.
    pub(super) column: usize,
    /// Number of characters that the word takes in the line, with its quotation marks.
    pub(super) len: usize,
}

/// Splits a line at spaces. A part in quotation marks may contain spaces. A `#` at the beginning of
/// a word begins a comment, which ends with the line.
///
/// # Errors
///
/// The word with a quotation mark that is not closed.
pub(super) fn split(line: &str) -> Result<Vec<Word>, Word> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quoted = false;
    for (column, c) in line.chars().enumerate() {
        match (c, &mut word) {
            ('#', None) => break,
            (c, _) if c.is_whitespace() && !quoted => words.extend(word.take()),
            (c, word) => {
                let word = word.get_or_insert(Word { text: String::new(), column, len: 0 });
                word.len += 1;
                if c == '"' { quoted = !quoted } else { word.text.push(c) }
            }
        }
    }
    match word {
        Some(open) if quoted => Err(open),
        word => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_places_and_quotes_keep_spaces() {
        let words = split("  load \"a b\"c  # and \"no more").unwrap();
        let of = |word: &Word| (word.text.clone(), word.column, word.len);
        let words: Vec<_> = words.iter().map(of).collect();
        assert_eq!(words, [("load".to_owned(), 2, 4), ("a bc".to_owned(), 7, 6)]);
        assert_eq!(split("# all of it").unwrap(), []);
        assert_eq!(split("a#b").unwrap()[0].text, "a#b");
        assert_eq!(split("\"\"").unwrap()[0].text, "");
        assert_eq!(split("x \"y z").unwrap_err().column, 2);
    }
}
