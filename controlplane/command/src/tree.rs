//! The command tree: parses lines of testpmd's grammar (verb, object, number) to commands.
//!
//! The words are clap's subcommands, or unique beginnings of their names. Values follow them, and
//! then words with a value each. An error in a line is a [`Mistake`], which has its place, what was
//! expected there, and a remedy.
//!
//! Not here: carrying out a command.

mod arguments;
mod bench;
mod complete;
mod help;
mod mistake;
mod monitor;
mod words;

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser, Subcommand};

use crate::request::{Alt, Request, Select};
use words::Word;

pub use bench::{Bench, Test};
pub use complete::{Candidate, Completion, complete};
pub use help::{Entry, Section, help, sections};
pub use mistake::{Fault, Mistake};
pub use monitor::{Monitor, Pace};

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
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Load {
        /// File with one command per line
        #[arg(value_name = "FILE", required = true)]
        file: Option<PathBuf>,
        /// What is loaded instead of a file
        #[command(subcommand)]
        what: Option<Load>,
    },
    /// Run the commands of a file, and show each before it runs
    #[command(name = "load_echo")]
    LoadEcho {
        /// File with one command per line
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show what changes, line by line, until Ctrl-C or `q`
    #[command(subcommand)]
    Monitor(Monitor),
    /// Measure with perftest's tests beside the prompt
    #[command(subcommand)]
    Bench(Bench),
    /// Save the configuration of the process
    #[command(subcommand)]
    Save(Save),
    /// Show the release of this program
    Version,
    /// Leave
    Quit,
}

/// Objects of `save`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Save {
    /// Write the configuration file that would start the devices of the process again
    Config {
        /// The file, which must not exist
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Objects of `load` other than files.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Load {
    /// Alternate paths
    #[command(subcommand)]
    Alt(Alt),
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

/// Returns the tree's root.
pub(crate) fn root() -> Command {
    Root::command()
}

/// Parses a line. `None` if the line is empty or a comment.
///
/// # Errors
///
/// The first mistake in the line.
pub fn parse(line: &str) -> Result<Option<Line>, Mistake> {
    let mut words = words::split(line).map_err(|word| Mistake::open_quote(line, &word))?;
    put_port_last(&mut words);
    if words.is_empty() {
        return Ok(None);
    }
    let root = root();
    let (leaf, depth, names) = walk(&root, &words, line)?;
    let before: Vec<String> = words[..depth].iter().map(|word| word.text.clone()).collect();
    let arguments = arguments::translate(line, leaf, &words[depth..], &before)?;
    let full = names.iter().chain(&arguments.given);
    match Root::try_parse_from(full) {
        Ok(Root { line: Line::Load { what: Some(Load::Alt(Alt::Path(path))), .. } }) => {
            Ok(Some(Line::Request(Request::LoadAltPath(path))))
        }
        Ok(root) => Ok(Some(root.line)),
        Err(error) => Err(argument(line, leaf, &words[depth..], &before, &arguments, &error)),
    }
}

/// Moves the number of the port in testpmd's `show port PORT rss reta` to where other commands have
/// it.
fn put_port_last(words: &mut Vec<Word>) {
    let is = |at: usize, name: &str| {
        words.get(at).is_some_and(|word| !word.text.is_empty() && name.starts_with(&word.text))
    };
    let is_port = words.get(2).is_some_and(|word| word.text.parse::<Select>().is_ok());
    if is_port && is(0, "show") && is(1, "port") && is(3, "rss") && words.len() > 4 {
        let port = words.remove(2);
        words.insert(4, port);
    }
}

/// Follows words of a line to a command without subcommands. Returns that command, the number of
/// words in its name, and these words in full.
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
        if takes_either(at) && at.find_subcommand(&word.text).is_none() {
            break;
        }
        at = find(at, &word.text).map_err(|fault| {
            let fault = if names.is_empty() { fault } else { fault.within_a_command() };
            Mistake::at(line, word, fault, all_names(at), &names)
        })?;
        names.push(at.get_name().to_owned());
    }
    Ok((at, names.len(), names))
}

/// Returns whether a value may stand in the place of a subcommand. Then a subcommand's name must be
/// typed in full.
fn takes_either(command: &Command) -> bool {
    command.has_subcommands() && command.get_positionals().next().is_some()
}

/// Returns the subcommand with this name, or the only one with a name that begins with `word`.
fn find<'c>(command: &'c Command, word: &str) -> Result<&'c Command, Fault> {
    // The name of a hidden subcommand has to be typed in full.
    if let Some(hidden) = command.find_subcommand(word).filter(|sub| sub.is_hide_set()) {
        return Ok(hidden);
    }
    let name = begins_one(offered(command).map(Command::get_name), word)?;
    command.find_subcommand(name).ok_or(Fault::NotFound)
}

/// Returns the name that equals `word`, or the only one that begins with it.
fn begins_one<'n>(names: impl Iterator<Item = &'n str>, word: &str) -> Result<&'n str, Fault> {
    let begun = |name: &&str| name.starts_with(word) && !word.is_empty();
    let names: Vec<&str> = names.filter(begun).collect();
    match names.as_slice() {
        _ if names.contains(&word) => {
            Ok(names.into_iter().find(|name| *name == word).unwrap_or(""))
        }
        [one] => Ok(one),
        [] => Err(Fault::NotFound),
        _ => Err(Fault::Ambiguous),
    }
}

/// Returns the subcommands that help and completion show.
fn offered(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn all_names(command: &Command) -> Vec<String> {
    offered(command).map(|sub| sub.get_name().to_owned()).collect()
}

/// Translates clap's error about the arguments of a command to a mistake.
fn argument(
    line: &str,
    leaf: &Command,
    given: &[Word],
    names: &[String],
    arguments: &arguments::Arguments<'_>,
    error: &clap::Error,
) -> Mistake {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let mut missing = arguments::missing(leaf, arguments);
        if missing.is_empty() {
            missing.extend(needed_by_others(error));
        }
        return Mistake::missing(line, missing, names);
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let culprit = text(ContextKind::InvalidValue).or_else(|| text(ContextKind::InvalidArg));
    let is_it = |(word, value): &(&Word, &Option<&clap::Arg>)| {
        value.is_some() && Some(word.text.as_str()) == culprit
    };
    let mut pairs = given.iter().zip(&arguments.values);
    let found = pairs.clone().find(is_it).or_else(|| pairs.next_back());
    match found {
        Some((word, value)) => {
            let expected =
                value.map_or_else(|| vec!["the end of the line".to_owned()], arguments::expected);
            Mistake::at(line, word, Fault::Bad, expected, names)
        }
        None => Mistake::missing(line, vec!["the end of the line".to_owned()], names),
    }
}

/// Returns the words that are missing although other words on the line need them.
fn needed_by_others(error: &clap::Error) -> Vec<String> {
    let Some(ContextValue::Strings(args)) = error.get(ContextKind::InvalidArg) else {
        return Vec::new();
    };
    let name = |arg: &String| arg.trim_start_matches('-').split(' ').next().map(str::to_owned);
    args.iter().filter_map(name).collect()
}

/// Returns the name of a value as the help has it, for example `PORT|all`.
pub(crate) fn value_name(arg: &clap::Arg) -> String {
    arg.get_value_names()
        .and_then(|names| names.first())
        .map_or_else(|| arg.get_id().to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests;
