//! `uroce`: commands to running processes, from the shell, a file or a prompt.
//!
//! ```text
//!   uroce ps ──────────────────────────> each process of this user: a line
//!   uroce -s PID show port stats all ──> one command
//!   uroce -s PID -f FILE ──────────────> the commands of a file
//!   uroce -s PID ──────────────────────> a prompt
//!   uroce export ──────────────────────> metrics of all processes, over HTTP
//!   uroce [EAL options] -- -i ─────────> a device of its own, and a prompt
//! ```
//!
//! Exit codes: 0, 1 if a command has failed, 2 for wrong usage.
//!
//! Not here: the grammar and the texts of answers (`uroce-command`).

#![forbid(unsafe_code)]

mod bench;
mod client;
mod completion;
mod dump;
mod export;
mod find;
mod manual;
mod monitor;
mod output;
mod own;
mod pager;
mod period;
mod prompt;
mod reference;
mod screen;
mod session;
mod style;
mod values;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use uroce_command::render;
use uroce_command::tree::{Line, parse};

use client::Client;
use session::{Outcome, Session};

/// Commands to processes that use uroce
#[derive(Debug, Parser)]
#[command(name = "uroce", version, after_help = AFTER)]
struct Options {
    /// Process: its number, or the path of its control socket
    #[arg(short, long, value_name = "PID|SOCKET")]
    socket: Option<String>,
    /// Print answers as JSON
    #[arg(short, long)]
    json: bool,
    /// End at the first command that fails
    #[arg(short, long)]
    end: bool,
    /// Print each command before it runs
    #[arg(short = 'x', long)]
    trace: bool,
    /// Run the commands of a file; may be given several times
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    file: Vec<PathBuf>,
    /// Print the options and all commands as JSON, for programs that make manuals of them
    #[arg(short, long)]
    dump: bool,
    /// A command, or one of ps, export, completion, man, reference; without one, a prompt
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const AFTER: &str = "\
Examples:
  uroce ps                            processes of this user; of all users, for root
  uroce -s 1234 show port stats all   one command to process 1234
  uroce -s 1234                       a prompt
  uroce help all                      all commands
  uroce export                        metrics of all processes for Prometheus; --help has more
  uroce completion bash               completion for a shell: bash, zsh, fish
  complete -C 'uroce -c' uroce        completion in bash without a script
  uroce --vdev=net_null0 -- -i        a device of its own; uroce -- --help has the options

Exit codes: 0; 1 if a command has failed; 2 for wrong usage.";

/// Commands of the program itself, which need no process, and their meanings.
const ALONE: &[(&str, &str)] = &[
    ("ps", "List the processes of this user; for root, of all users"),
    ("export", "Serve the metrics of all processes, for Prometheus"),
    ("completion", "Print the completion script of a shell: `bash`, `zsh` or `fish`"),
    ("man", "Print this manual page, in the format of man(7)"),
    ("reference", "Print the reference of all commands, in Markdown"),
];

/// Exit code of wrong usage.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let lossy = |argument: std::ffi::OsString| argument.to_string_lossy().into_owned();
    let arguments: Vec<String> = std::env::args_os().skip(1).map(lossy).collect();
    if let Some((word, rest)) = arguments.split_first()
        && word == "complete"
    {
        return say(&completion::candidates(rest));
    }
    if arguments.first().is_some_and(|word| word == "-c") {
        return say(&completion::of_line());
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--") {
        return own::main(&arguments[..at], &arguments[at + 1..]);
    }
    let options = Options::parse();
    if options.dump {
        return say(&dump::text());
    }
    if let Some(code) = alone(&options) {
        return code;
    }
    if options.socket.is_none()
        && let Some(("export", rest)) =
            options.command.split_first().map(|(word, rest)| (word.as_str(), rest))
    {
        return export::main(rest);
    }
    let line = join(&options.command);
    let Some(target) = &options.socket else {
        return without_a_process(&options, &line);
    };
    let client = match find::socket(target).and_then(|path| Client::connect(&path)) {
        Ok(client) => client,
        Err(error) => {
            style::error(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    run(&options, Session::new(Some(client), options.json), &line)
}

/// Runs a command of the program itself. `None` if it is not one.
fn alone(options: &Options) -> Option<ExitCode> {
    let words: Vec<&str> = options.command.iter().map(String::as_str).collect();
    if options.socket.is_some() {
        return None;
    }
    Some(match words.as_slice() {
        ["ps"] => ps(options.json),
        ["completion", shell] => match completion::script(shell) {
            Some(script) => say(script),
            None => {
                style::error(&format!("no completion for {shell:?}; for bash, zsh, fish there is"));
                ExitCode::from(USAGE)
            }
        },
        ["completion"] => {
            style::error("for which shell? uroce completion bash, zsh or fish");
            ExitCode::from(USAGE)
        }
        ["man"] => {
            let mut page = Vec::new();
            // Memory takes all.
            let _ = manual::write(&mut page);
            say(&String::from_utf8_lossy(&page))
        }
        ["reference"] => say(&reference::text()),
        _ => return None,
    })
}

/// Prints a text.
fn say(text: &str) -> ExitCode {
    // An error means that the reader has gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Runs the commands that need no process.
fn without_a_process(options: &Options, line: &str) -> ExitCode {
    let needs_one = match parse(line) {
        Ok(Some(Line::Help { .. } | Line::Version | Line::Bench(_))) => false,
        Ok(_) => true,
        Err(_) => line.is_empty(),
    };
    if needs_one {
        style::error("which process? Name it: uroce -s PID. `uroce ps` lists the processes.");
        return ExitCode::from(USAGE);
    }
    run(options, Session::new(None, options.json), line)
}

fn run(options: &Options, mut session: Session, line: &str) -> ExitCode {
    session.stop_at_error = options.end;
    session.trace = options.trace;
    let outcome = if !line.is_empty() {
        session.one_shot(line)
    } else if !options.file.is_empty() {
        session.files(&options.file)
    } else if std::io::stdin().is_terminal() {
        prompt::run(&mut session)
    } else {
        session.lines(&mut std::io::stdin().lock(), "stdin")
    };
    session.tell_bench();
    match outcome {
        Outcome::Done | Outcome::Quit if !session.has_failed => ExitCode::SUCCESS,
        Outcome::Usage => ExitCode::from(USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Joins the words of the shell to a line. A single word with spaces is a line already; among
/// others, words that would not be one in the line are put between quotation marks.
fn join(words: &[String]) -> String {
    if let [line] = words
        && line.contains(char::is_whitespace)
    {
        return line.clone();
    }
    let quoted = |word: &String| {
        let needs = word.is_empty() || word.starts_with('#') || word.contains(char::is_whitespace);
        if needs { format!("\"{word}\"") } else { word.clone() }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn ps(json: bool) -> ExitCode {
    let processes = find::processes();
    let text = if json {
        let answering: Vec<_> = processes.iter().flatten().collect();
        render::json(&answering).unwrap_or_default() + "\n"
    } else {
        render::processes(&processes)
    };
    say(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_shell_stay_words_and_a_line_stays_a_line() {
        let joined =
            |words: &[&str]| join(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(joined(&["show port stats all"]), "show port stats all");
        assert_eq!(joined(&["show", "cq"]), "show cq");
        assert_eq!(joined(&["load", "a b"]), "load \"a b\"");
        assert_eq!(joined(&["load", "#1", ""]), "load \"#1\" \"\"");
        assert_eq!(joined(&[]), "");
    }
}
