//! Completion in shells: scripts for bash, zsh and fish, and the candidates for which they ask.
//!
//! A script calls `uroce complete WORDS...` with the words of the line after `uroce`, the last of
//! which is the one under the cursor. Candidates come one a line, each with a tab and its meaning.
//! None means names of files.
//!
//! `uroce -c` is for bash's `complete -C`: the line comes in the environment, and candidates are
//! words alone.

use std::path::PathBuf;

use clap::CommandFactory;
use uroce_command::tree::{Completion, complete};

use crate::{ALONE, Options, find, join, values};

/// Returns the script for a shell.
pub(crate) fn script(shell: &str) -> Option<&'static str> {
    match shell {
        "bash" => Some(include_str!("completion/uroce.bash")),
        "zsh" => Some(include_str!("completion/uroce.zsh")),
        "fish" => Some(include_str!("completion/uroce.fish")),
        _ => None,
    }
}

/// Returns the candidates for the last of the words, a line each.
pub(crate) fn candidates(words: &[String]) -> String {
    let Some((begun, before)) = words.split_last() else { return String::new() };
    let mut socket = None;
    let mut before = before.iter().peekable();
    while let Some(word) = before.next_if(|word| word.starts_with('-')) {
        match option_value(word) {
            Value::None => {}
            Value::Joined('s', value) => socket = find::socket(value).ok(),
            Value::Joined(..) => {}
            Value::Next(kind) => match before.next() {
                Some(value) if kind == 's' => socket = find::socket(value).ok(),
                Some(_) => {}
                None if kind == 's' => return lines(of_processes(begun)),
                None => return String::new(),
            },
        }
    }
    let command: Vec<String> = before.cloned().collect();
    if command.is_empty() && begun.starts_with('-') {
        return lines(of_options(begun));
    }
    let mut all = of_command(&command, begun, socket);
    if command.is_empty() {
        let own = ALONE.iter().filter(|(word, _)| word.starts_with(begun));
        all.extend(own.map(|(word, about)| ((*word).to_owned(), (*about).to_owned())));
    }
    if let [word] = command.as_slice()
        && word == "completion"
    {
        let shells = ["bash", "zsh", "fish"].into_iter().filter(|shell| shell.starts_with(begun));
        all = shells.map(|shell| (shell.to_owned(), String::new())).collect();
    }
    lines(all)
}

/// Returns the candidates for the end of the line that bash gives a command of `complete -C`.
pub(crate) fn of_line() -> String {
    let line = std::env::var("COMP_LINE").unwrap_or_default();
    let end = std::env::var("COMP_POINT").ok().and_then(|point| point.parse().ok());
    let line = end.and_then(|end: usize| line.get(..end)).unwrap_or(&line);
    let words: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
    let is_new = line.ends_with(char::is_whitespace);
    let all = candidates(&[words, vec![String::new(); usize::from(is_new)]].concat());
    let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned() + "\n";
    all.lines().map(word).collect()
}

/// A value of an option in a word.
enum Value<'w> {
    /// The option has none.
    None,
    /// It is in the same word.
    Joined(char, &'w str),
    /// It is the next word.
    Next(char),
}

fn option_value(word: &str) -> Value<'_> {
    for (kind, long) in [('s', "--socket"), ('f', "--file")] {
        if let Some(rest) = word.strip_prefix(long) {
            return rest.strip_prefix('=').map_or(Value::Next(kind), |it| Value::Joined(kind, it));
        }
    }
    if word.starts_with("--") {
        return Value::None;
    }
    // Flags may stand before it in the same word.
    let with_value = word.char_indices().find(|(_, letter)| ['s', 'f'].contains(letter));
    match with_value {
        Some((at, kind)) if at + 1 == word.len() => Value::Next(kind),
        Some((at, kind)) => Value::Joined(kind, word[at + 1..].trim_start_matches('=')),
        None => Value::None,
    }
}

/// Returns words and live values of a command.
fn of_command(command: &[String], begun: &str, socket: Option<PathBuf>) -> Vec<(String, String)> {
    let line = match command {
        [] => begun.to_owned(),
        words => format!("{} {begun}", join(words)),
    };
    let Completion { words, value, .. } = complete(&line);
    let words = words.into_iter().map(|candidate| (candidate.word, candidate.help));
    let values = value.map_or(Vec::new(), |name| values::values(socket.as_deref(), &name, begun));
    words.chain(values.into_iter().map(|value| (value, String::new()))).collect()
}

fn of_options(begun: &str) -> Vec<(String, String)> {
    let command = Options::command();
    let options = command.get_arguments().filter_map(|arg| {
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Some((format!("--{}", arg.get_long()?), about))
    });
    options.filter(|(name, _)| name.starts_with(begun)).collect()
}

fn of_processes(begun: &str) -> Vec<(String, String)> {
    let processes = find::processes().into_iter().flatten();
    let all = processes.map(|process| (process.pid.to_string(), process.program));
    all.filter(|(pid, _)| pid.starts_with(begun)).collect()
}

fn lines(candidates: Vec<(String, String)>) -> String {
    let line = |(word, about): (String, String)| format!("{word}\t{about}\n");
    let text: String = candidates.into_iter().map(line).collect();
    // Programs have names of their own choice.
    let is_good = |line: &&str| line.chars().all(|c| c == '\t' || !c.is_control());
    text.lines().filter(is_good).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        candidates(&words).lines().map(word).collect()
    }

    #[test]
    fn options_commands_and_own_words_are_completed() {
        assert_eq!(of("--so"), ["--socket"]);
        assert_eq!(of("-j show po"), ["port"]);
        assert_eq!(of("-js 4194305 show port st"), ["stats"]);
        assert_eq!(of("--socket=4194305 sh po x"), ["xstats"]);
        assert_eq!(of("show qp "), ["all"]);
        assert!(of("p").contains(&"ps".to_owned()));
        assert_eq!(of("completion z"), ["zsh"]);
        assert!(of("-f ").is_empty(), "files");
        assert!(of("-s 9999999").is_empty());
        assert!(of("load_echo ").is_empty(), "files");
    }
}
