//! A session: lines that are carried out one after the other, from the shell, a file or a prompt.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uroce_command::tree::{Line, Save, help, parse};
use uroce_command::{Answer, Refusal, Request, Set, Show, ShowConfig, render};

use crate::bench::{Bench, Tell, Told};
use crate::client::{Client, ClientError};
use crate::output::Output;
use crate::period::Period;
use crate::screen::{self, Screen};
use crate::{bench, monitor, pager, style};

/// Deepest nesting of files that load files.
const DEPTH: usize = 8;
/// Longest line in bytes.
const LINE_MAX: u64 = 64 * 1024;

/// Time in microseconds over which lcores' turns are measured before they are shown.
const MEASURED_US: u64 = 1_000_000;

/// How a line, or all lines of a file, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was carried out.
    Done,
    /// It failed; the next line may still work.
    Failed,
    /// The line is not a command.
    Usage,
    /// The session is to end.
    Quit,
    /// Nothing can work any more.
    Over,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    client: Option<Client>,
    json: bool,
    /// The session ends at the first line that fails.
    pub(crate) stop_at_error: bool,
    /// Lines are printed before they are carried out.
    pub(crate) trace: bool,
    /// Some line has failed.
    pub(crate) has_failed: bool,
    /// Long answers stop after each screenful, except those to the lines of files.
    pub(crate) pages: bool,
    /// Files that are being read.
    depth: usize,
    /// The session is one command of a shell.
    is_one_shot: bool,
    /// Statistics that are shown again and again.
    period: Option<Period>,
    /// Seconds of the last `set stats-period`, if there was one; 0 for no statistics.
    stats_period: Option<u32>,
    /// The last measurement.
    bench: Option<Bench>,
    /// Where its outcome is told while a line is being read; without it, before the next line.
    pub(crate) screen: Option<Screen>,
}

impl Session {
    /// Begins a session with a process, if there is one.
    pub(crate) fn new(client: Option<Client>, json: bool) -> Session {
        Session {
            client,
            json,
            stop_at_error: false,
            trace: false,
            has_failed: false,
            pages: false,
            depth: 0,
            is_one_shot: false,
            period: None,
            stats_period: None,
            bench: None,
            screen: None,
        }
    }

    /// Returns the process's socket.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.client.as_ref().map(Client::path)
    }

    /// Carries out the one line of a command line.
    pub(crate) fn one_shot(&mut self, line: &str) -> Outcome {
        self.pages = true;
        self.is_one_shot = true;
        self.note(line);
        self.line(line, Some(""))
    }

    /// Carries out the lines of files.
    pub(crate) fn files(&mut self, files: &[PathBuf]) -> Outcome {
        for file in files {
            let outcome = self.load(file);
            if matches!(outcome, Outcome::Quit | Outcome::Over) {
                return outcome;
            }
        }
        Outcome::Done
    }

    /// Carries out all lines of a reader. With [`stop_at_error`](Session::stop_at_error), the first
    /// that fails is the last.
    pub(crate) fn lines(&mut self, reader: &mut dyn BufRead, name: &str) -> Outcome {
        for number in 1.. {
            let mut bytes = Vec::new();
            let read = Read::take(&mut *reader, LINE_MAX).read_until(b'\n', &mut bytes);
            match read {
                Ok(0) => break,
                Ok(len) if len as u64 == LINE_MAX && bytes.last() != Some(&b'\n') => {
                    style::error(&format!("{name}:{number}: the line is too long"));
                    self.has_failed = true;
                    return Outcome::Over;
                }
                Ok(_) => {}
                Err(error) => {
                    style::error(&format!("{name}: {error}"));
                    self.has_failed = true;
                    return Outcome::Failed;
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            let line = text.trim_end_matches(['\n', '\r']);
            self.note(line);
            let outcome = self.line(line, Some(&format!("{name}:{number}: ")));
            match outcome {
                Outcome::Done => {}
                Outcome::Quit | Outcome::Over => return outcome,
                Outcome::Failed | Outcome::Usage if self.stop_at_error => return Outcome::Over,
                Outcome::Failed | Outcome::Usage => {}
            }
        }
        Outcome::Done
    }

    /// Prints a line that is about to be carried out, if that is wanted.
    fn note(&self, line: &str) {
        if self.trace {
            let _ = writeln!(std::io::stdout(), "> {}", render::harmless(line));
        }
    }

    /// Carries out one line. Where it was not typed at the prompt, a mistake is shown below a copy
    /// of the line, which begins with `place`.
    pub(crate) fn line(&mut self, line: &str, place: Option<&str>) -> Outcome {
        let outcome = match parse(line) {
            Ok(None) => Outcome::Done,
            Ok(Some(line)) => self.execute(&line),
            Err(mistake) => {
                match place {
                    Some(place) => {
                        let line = render::harmless(line);
                        let place = render::harmless(place);
                        let _ = writeln!(std::io::stderr(), "{place}{line}");
                        style::error(&mistake.text(place.chars().count()));
                    }
                    None => style::error(&mistake.text(crate::prompt::PROMPT.len())),
                }
                Outcome::Usage
            }
        };
        self.has_failed |= !matches!(outcome, Outcome::Done | Outcome::Quit);
        outcome
    }

    fn execute(&mut self, line: &Line) -> Outcome {
        if !matches!(line, Line::Bench(_)) && self.tell_bench() == Outcome::Failed {
            return Outcome::Failed;
        }
        match line {
            Line::Request(Request::Set(Set::StatsPeriod { seconds })) => {
                self.show_statistics(*seconds)
            }
            Line::Request(request) => self.request(request),
            Line::Help { words } => match help(words) {
                Some(text) => self.print(&text),
                None => fail("no such section or command; type \"help\""),
            },
            Line::Sleep { ms } => {
                std::thread::sleep(Duration::from_millis(u64::from(*ms)));
                Outcome::Done
            }
            Line::Load { file, .. } => file.as_ref().map_or(Outcome::Usage, |file| self.load(file)),
            Line::LoadEcho { file } => {
                let before = std::mem::replace(&mut self.trace, true);
                let outcome = self.load(file);
                self.trace = before;
                outcome
            }
            Line::Monitor(monitor) => monitor::run(self, *monitor),
            Line::Bench(command) => self.bench(command),
            Line::Save(Save::Config { file }) => self.save_config(file),
            Line::Version => self.print(&format!("uroce {}\n", env!("CARGO_PKG_VERSION"))),
            Line::Quit => Outcome::Quit,
        }
    }

    fn load(&mut self, path: &Path) -> Outcome {
        if self.depth >= DEPTH {
            return fail(&format!("{}: files load files {DEPTH} deep", path.display()));
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                self.has_failed = true;
                return fail(&format!("{}: {error}", path.display()));
            }
        };
        self.depth += 1;
        let outcome = self.lines(&mut BufReader::new(file), &path.display().to_string());
        self.depth -= 1;
        outcome
    }

    /// Writes the configuration of the process to a new file.
    fn save_config(&mut self, path: &Path) -> Outcome {
        let request = Request::Show(Show::Config(ShowConfig::File));
        let text = match self.answer(&request) {
            Ok(Answer::ConfigFile(text)) => text,
            Ok(_) => return self.failed("the process does not tell its configuration"),
            Err(outcome) => return outcome,
        };
        match Output::new(path).and_then(|output| output.fill(&text)) {
            Ok(()) => self.show(&Answer::Done),
            Err(text) => self.failed(&text),
        }
    }

    /// Asks the process and prints the answer.
    pub(crate) fn request(&mut self, request: &Request) -> Outcome {
        match self.answer(request) {
            Ok(answer) => self.show(&answer),
            Err(outcome) => outcome,
        }
    }

    /// Returns whether answers are printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints an answer.
    fn show(&self, answer: &Answer) -> Outcome {
        self.print(&screen::text(answer, self.json))
    }

    /// Carries out `bench`. A command of a shell waits for the end.
    fn bench(&mut self, command: &uroce_command::tree::Bench) -> Outcome {
        let told = match command.test() {
            None => bench::run(self.bench.as_ref(), command),
            Some((test, words)) => {
                if let Err(outcome) = self.check_nic(words) {
                    return outcome;
                }
                self.begin_bench(test, words)
            }
        };
        match told {
            Ok(Told::Well(answer)) => self.show(&answer),
            Ok(Told::Failed(answer)) => match self.show(&answer) {
                Outcome::Done => Outcome::Failed,
                end => end,
            },
            Err(text) => self.failed(&text),
        }
    }

    /// Tells the outcome of a measurement that has ended, unless a command has told it: before the
    /// next line, before another measurement takes its place, and at the end of the session.
    pub(crate) fn tell_bench(&mut self) -> Outcome {
        let Some(outcome) = self.bench.as_ref().and_then(Bench::outcome) else {
            return Outcome::Done;
        };
        let is_well = outcome.state == "done";
        self.has_failed |= !is_well;
        self.show(&Answer::Bench(outcome));
        if is_well || !self.stop_at_error { Outcome::Done } else { Outcome::Failed }
    }

    fn begin_bench(&mut self, test: &str, words: &[String]) -> Result<Told, String> {
        if let Some(line) = self.bench.as_ref().and_then(Bench::running) {
            return Err(format!("{line} runs\n`bench stop` ends it"));
        }
        if self.tell_bench() == Outcome::Failed {
            return Err("the measurement before has failed".to_owned());
        }
        let is_json = self.json;
        let tell = |at: Screen| {
            Tell(Box::new(move |of| at.print(screen::text(&Answer::Bench(of), is_json))))
        };
        let bench = self.bench.insert(Bench::start(test, words, self.screen.clone().map(tell))?);
        if self.is_one_shot {
            return bench.wait(None);
        }
        Ok(Told::Well(Answer::Text(format!(
            "{test} runs beside the prompt, on a device of its own: `bench show` has its \
             progress, `bench stop` ends it"
        ))))
    }

    /// Checks that the words of a test do not name a NIC that the process has open.
    fn check_nic(&mut self, words: &[String]) -> Result<(), Outcome> {
        let Some(nic) = bench::nic(words).filter(|_| self.client.is_some()) else { return Ok(()) };
        let request = Request::Show(Show::Config(ShowConfig::File));
        let Answer::ConfigFile(text) = self.answer(&request)? else { return Ok(()) };
        if text.contains(&format!("pci = \"{nic}\"")) {
            return Err(self.failed(&format!(
                "{nic} is a port of the process, and a NIC is one process's\n\
                 name another one, or none for the local fabric"
            )));
        }
        Ok(())
    }

    /// Carries out `set stats-period`.
    fn show_statistics(&mut self, seconds: u32) -> Outcome {
        self.period = None;
        if seconds == 0 {
            self.stats_period = Some(0);
            return Outcome::Done;
        }
        if self.is_one_shot {
            return self.failed(
                "a command of a shell ends at once, and its statistics with it\n\
                 set it at a prompt: uroce -s PID",
            );
        }
        let Some(path) = self.socket() else {
            return self.failed("there is no process; name one: uroce -s PID");
        };
        match Client::connect(path) {
            Ok(client) => {
                let screen = self.screen.clone();
                self.period = Some(Period::show(seconds, client, screen, self.json));
                self.stats_period = Some(seconds);
                Outcome::Done
            }
            Err(error) => self.failed(&error.to_string()),
        }
    }

    /// Ends the statistics beside the session. Returns the seconds of the last `set stats-period`,
    /// if there was one; 0 for no statistics.
    pub(crate) fn take_stats_period(&mut self) -> Option<u32> {
        self.period = None;
        self.stats_period
    }

    /// Asks the process. What is wrong has been told if there is no answer.
    pub(crate) fn answer(&mut self, request: &Request) -> Result<Answer, Outcome> {
        let Some(client) = &mut self.client else {
            return Err(fail("there is no process; name one: uroce -s PID"));
        };
        let output = match Output::of(request) {
            Ok(output) => output,
            Err(text) => return Err(self.failed(&text)),
        };
        let file = output.as_ref().map(|output| &output.file);
        let answer = client.ask_anew(request, file);
        if let (Err(_), Some(output)) = (&answer, output) {
            output.discard();
        }
        let answer = match answer {
            // Lcores measure from the first question on.
            Ok(Answer::Runtime(lcores)) if lcores.iter().any(|of| of.time_us < MEASURED_US) => {
                std::thread::sleep(Duration::from_micros(MEASURED_US));
                client.ask(request)
            }
            answer => answer,
        };
        answer.map_err(|error| {
            let outcome = self.refused(&error);
            if matches!(error, ClientError::Refused(_)) { outcome } else { Outcome::Over }
        })
    }

    /// Tells that a command has failed in this program.
    pub(crate) fn failed(&self, text: &str) -> Outcome {
        self.refused(&ClientError::Refused(Refusal::Failed(text.to_owned())))
    }

    /// Tells why a request has no answer; with JSON on stdout, as the answer would be.
    fn refused(&self, error: &ClientError) -> Outcome {
        let text = render::harmless(&error.to_string());
        if self.json {
            let _ = self.print(&format!("{}\n", serde_json::json!({ "error": text })));
            return Outcome::Failed;
        }
        fail(&text)
    }

    /// Prints to stdout. If its reader has gone, the session is over.
    fn print(&self, text: &str) -> Outcome {
        match self.pages && self.depth == 0 {
            true => pager::print(text).map_or(Outcome::Over, |()| Outcome::Done),
            false => self.print_on(text),
        }
    }

    /// Prints to stdout, whatever its length. If its reader has gone, the session is over.
    pub(crate) fn print_on(&self, text: &str) -> Outcome {
        let mut stdout = std::io::stdout();
        let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        printed.map_or(Outcome::Over, |()| Outcome::Done)
    }
}

fn fail(text: &str) -> Outcome {
    style::error(text);
    Outcome::Failed
}
