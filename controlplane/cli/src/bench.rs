//! `bench`: perftest's tests by the program `uroce-perf`, a child process beside the prompt.
//!
//! ```text
//!   session ── starts ──> uroce-perf TEST WORDS…
//!      ^                     │ stdout, stderr
//!      └── Progress <── two threads, which read lines until both have ended
//! ```
//!
//! The child has a device of its own: by default one of the local fabric, else the one that its
//! words name. A NIC that a process has open is no other process's.
//!
//! Invariants
//! - One measurement runs at a time. It ends with this program, however that ends.
//! - What is kept of its output is bounded.
//!
//! A command of a shell, `uroce bench …`, has no prompt beside which it could run: it waits for the
//! end.
//!
//! Not here: the tests and their options (`uroce-bench`, which nothing depends on).

mod progress;

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use uroce_command::tree;
use uroce_command::{Answer, answer};

use progress::Progress;
pub(crate) use progress::Tell;

/// The program.
const PROGRAM: &str = "uroce-perf";
/// The child ends when the process of this number does, which is its parent.
const ENDS_WITH: &str = "UROCE_PERF_ENDS_WITH";
/// Time that the child has to end before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// What a command comes to.
pub(crate) enum Told {
    /// An answer of a command that is well.
    Well(Answer),
    /// The outcome of a measurement that is not.
    Failed(Answer),
}

/// Carries out what is not a test, on the last measurement.
///
/// # Errors
///
/// What is wrong, for people.
pub(crate) fn run(last: Option<&Bench>, command: &tree::Bench) -> Result<Told, String> {
    let bench = last.ok_or("no measurement has been started here\nstart one: bench write_bw")?;
    match command {
        tree::Bench::Wait { timeout } => {
            bench.wait(timeout.map(|ms| Duration::from_millis(ms.into())))
        }
        tree::Bench::Stop if !bench.stop() => {
            Err("no measurement runs\n`bench show` has the last one".to_owned())
        }
        _ => Ok(Told::Well(Answer::Bench(bench.progress.take()))),
    }
}

/// Returns the NIC that the words of a test name.
pub(crate) fn nic(words: &[String]) -> Option<&str> {
    let mut words = words.iter().map(String::as_str);
    let after = words.find_map(|word| word.strip_prefix("--pci"))?;
    match after {
        "" => words.next(),
        after => after.strip_prefix('='),
    }
}

/// A measurement that runs, or has ended.
#[derive(Debug)]
pub(crate) struct Bench {
    progress: Arc<Progress>,
}

impl Bench {
    /// Starts a test with these words. `told` is called with its outcome when it ends by itself.
    ///
    /// # Errors
    ///
    /// What is wrong, for people.
    pub(crate) fn start(test: &str, words: &[String], told: Option<Tell>) -> Result<Bench, String> {
        let program = program();
        let mut command = Command::new(&program);
        command.arg(test).args(words).env(ENDS_WITH, std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{PROGRAM} is neither beside this program nor in PATH\n\
                 build it, and put it there: cargo build --release -p uroce-bench"
            ),
            _ => format!("{}: {error}", program.display()),
        })?;
        let line = [test].into_iter().chain(words.iter().map(String::as_str));
        let line = line.collect::<Vec<_>>().join(" ");
        Ok(Bench { progress: Progress::follow(child, line, told) })
    }

    /// Returns the outcome if it has ended and has not been told.
    pub(crate) fn outcome(&self) -> Option<answer::Bench> {
        self.progress.outcome()
    }

    /// Returns the test and its words if it runs.
    pub(crate) fn running(&self) -> Option<String> {
        self.progress.is_running().then(|| self.progress.take().line)
    }

    /// Waits for the end, and returns the outcome.
    ///
    /// # Errors
    ///
    /// It does not come within `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<Told, String> {
        if !self.progress.wait(limit) {
            return Err("the measurement still runs\n`bench stop` ends it".to_owned());
        }
        let outcome = self.progress.take();
        let is_well = outcome.state == "done";
        let answer = Answer::Bench(outcome);
        Ok(if is_well { Told::Well(answer) } else { Told::Failed(answer) })
    }

    /// Ends it. Returns false if it had ended.
    fn stop(&self) -> bool {
        if !self.progress.is_running() {
            return false;
        }
        self.progress.stop(|child| signal(child, Signal::TERM));
        if !self.progress.wait(Some(GRACE)) {
            self.progress.stop(|child| signal(child, Signal::KILL));
            self.progress.wait(Some(GRACE));
        }
        true
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends a signal to a child that has not been waited for.
fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // An error means that it has ended.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// Returns the program: beside this one, else by its name, which is looked for in `PATH`.
fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// Returns the time from `begin` to `end` in milliseconds.
fn millis(begin: Instant, end: Instant) -> u64 {
    u64::try_from(end.duration_since(begin).as_millis()).unwrap_or(u64::MAX)
}
