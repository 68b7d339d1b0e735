//! The command tree: lines of testpmd's grammar (verb, object, number) to commands.
//!
//! The words are clap's subcommands, of which a unique beginning is enough. What is wrong with a
//! line is a [`Mistake`] that names the place, what was expected there, and a remedy.
//!
//! Not here: carrying a command out.

mod complete;
mod help;
mod mistake;
mod words;

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser, Subcommand};

use crate::request::Request;
use words::Word;

pub use complete::{Candidate, Completion, complete};
pub use help::help;
pub use mistake::{Fault, Mistake};

/// A command at the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Line {
    /// A command that a process answers.
    #[command(flatten)]
    Request(Request),
    /// Show sections, the commands of a section, or what a command does
    Help {
        /// A section, or the first words of a command
        #[arg(value_name = "SECTION|COMMAND")]
        words: Vec<String>,
    },
    /// Wait
    Sleep {
        /// Milliseconds, up to an hour
        #[arg(value_name = "MS", value_parser = clap::value_parser!(u32).range(..=3_600_000))]
        ms: u32,
    },
    /// Run the commands of a file
    Load {
        /// File with a command a line
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Run the commands of a file, and show each before it runs
    #[command(name = "load_echo")]
    LoadEcho {
        /// File with a command a line
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show the release of this program
    Version,
    /// Leave
    Quit,
}

#[derive(Debug, Parser)]
#[command(
    name = "uroce",
    no_binary_name = true,
    disable_help_flag = true,
    disable_help_subcommand = true
)]
struct Root {
    #[command(subcommand)]
    line: Line,
}

/// Returns the tree.
pub(crate) fn root() -> Command {
    Root::command()
}

/// Parses a line. `None` if it is empty or a comment.
///
/// # Errors
///
/// The first mistake in the line.
pub fn parse(line: &str) -> Result<Option<Line>, Mistake> {
    let words = words::split(line).map_err(|word| Mistake::open_quote(line, &word))?;
    if words.is_empty() {
        return Ok(None);
    }
    let root = root();
    let (leaf, depth, names) = walk(&root, &words, line)?;
    let full = names.into_iter().chain(words[depth..].iter().map(|word| word.text.clone()));
    match Root::try_parse_from(full) {
        Ok(root) => Ok(Some(root.line)),
        Err(error) => Err(argument(line, leaf, &words, depth, &error)),
    }
}

/// Follows the words to a command without further subcommands. Returns it, the number of words that
/// it has, and these in full.
fn walk<'c>(
    root: &'c Command,
    words: &[Word],
    line: &str,
) -> Result<(&'c Command, usize, Vec<String>), Mistake> {
    let (mut at, mut names) = (root, Vec::new());
    while at.has_subcommands() {
        let Some(word) = words.get(names.len()) else {
            return Err(Mistake::missing(line, all_names(at), &names));
        };
        at = find(at, &word.text).map_err(|fault| {
            let fault = if names.is_empty() { fault } else { fault.within_a_command() };
            Mistake::at(line, word, fault, all_names(at), &names)
        })?;
        names.push(at.get_name().to_owned());
    }
    Ok((at, names.len(), names))
}

/// Returns the subcommand of this name, or the only one that begins so.
fn find<'c>(command: &'c Command, word: &str) -> Result<&'c Command, Fault> {
    let all = || command.get_subcommands();
    if let Some(exact) = all().find(|sub| sub.get_name() == word) {
        return Ok(exact);
    }
    let mut begun = all().filter(|sub| sub.get_name().starts_with(word) && !word.is_empty());
    match (begun.next(), begun.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Fault::Ambiguous),
        (None, _) => Err(Fault::NotFound),
    }
}

fn all_names(command: &Command) -> Vec<String> {
    command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
}

/// Translates clap's error about the arguments of a command.
fn argument(
    line: &str,
    leaf: &Command,
    words: &[Word],
    depth: usize,
    error: &clap::Error,
) -> Mistake {
    let names: Vec<String> = words[..depth].iter().map(|word| word.text.clone()).collect();
    let values: Vec<String> = leaf.get_positionals().map(value_name).collect();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let missing = values.get(words.len() - depth).cloned().into_iter().collect();
        return Mistake::missing(line, missing, &names);
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let culprit = text(ContextKind::InvalidValue).or_else(|| text(ContextKind::InvalidArg));
    let given = &words[depth..];
    let at = given.iter().position(|word| Some(word.text.as_str()) == culprit);
    let at = at.unwrap_or(given.len().saturating_sub(1));
    let expected = match values.get(at) {
        Some(value) => vec![value.clone()],
        None => vec!["the end of the line".to_owned()],
    };
    match given.get(at) {
        Some(word) => Mistake::at(line, word, Fault::Bad, expected, &names),
        None => Mistake::missing(line, expected, &names),
    }
}

/// Returns the name of a value in the words of the help, as in `PORT|all`.
pub(crate) fn value_name(arg: &clap::Arg) -> String {
    arg.get_value_names()
        .and_then(|names| names.first())
        .map_or_else(|| arg.get_id().to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests;
