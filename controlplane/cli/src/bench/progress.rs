//! Progress of a measurement: what the child has printed, and how it has ended.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uroce_command::answer;

use super::millis;

/// Lines of output that are kept, the last ones.
const LINES_MAX: usize = 1000;
/// Longest line in bytes; a longer one becomes several.
const LINE_MAX: u64 = 1024;
/// Rows of the table that are kept, the last ones.
const ROWS_MAX: usize = 1000;
/// Pause between two looks whether a child that has closed its output has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Is called with the outcome of a measurement.
pub(crate) struct Tell(pub(crate) Box<dyn FnOnce(answer::Bench) + Send>);

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

/// State of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Done,
    Failed,
    Stopped,
}

/// What is known of a measurement.
#[derive(Debug)]
pub(super) struct Progress {
    known: Mutex<Known>,
    ended: Condvar,
}

#[derive(Debug)]
struct Known {
    child: Child,
    line: String,
    begin: Instant,
    end: Option<Instant>,
    state: State,
    is_asked_to_end: bool,
    is_told: bool,
    told: Option<Tell>,
    output: VecDeque<String>,
    columns: Vec<String>,
    rows: VecDeque<Vec<String>>,
}

impl Progress {
    /// Follows a child to its end.
    pub(super) fn follow(mut child: Child, line: String, told: Option<Tell>) -> Arc<Progress> {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let known = Known {
            child,
            line,
            begin: Instant::now(),
            end: None,
            state: State::Running,
            is_asked_to_end: false,
            is_told: false,
            told,
            output: VecDeque::new(),
            columns: Vec::new(),
            rows: VecDeque::new(),
        };
        let progress = Arc::new(Progress { known: Mutex::new(known), ended: Condvar::new() });
        let of_errors = Arc::clone(&progress);
        let errors = std::thread::spawn(move || {
            stderr.into_iter().for_each(|pipe| of_errors.read(pipe, false));
        });
        let of_table = Arc::clone(&progress);
        std::thread::spawn(move || {
            stdout.into_iter().for_each(|pipe| of_table.read(pipe, true));
            // A thread that reads lines does not panic.
            let _ = errors.join();
            of_table.finish();
        });
        progress
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // What is known is whole after each line.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, pipe: impl Read, has_table: bool) {
        let mut reader = BufReader::new(pipe);
        loop {
            let mut bytes = Vec::new();
            match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes) {
                Ok(1..) => self.lock().push(&String::from_utf8_lossy(&bytes), has_table),
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Waits for the child, which has closed its output, and tells the outcome.
    fn finish(&self) {
        // Its number may be another process's as soon as it has been waited for, so that the state
        // changes under the lock.
        let mut known = loop {
            let mut known = self.lock();
            known.state = match known.child.try_wait() {
                Ok(None) => State::Running,
                Ok(Some(_)) if known.is_asked_to_end => State::Stopped,
                Ok(Some(status)) if status.success() => State::Done,
                Ok(Some(_)) | Err(_) => State::Failed,
            };
            if known.state != State::Running {
                break known;
            }
            drop(known);
            std::thread::sleep(LOOK);
        };
        known.end = Some(Instant::now());
        let told = known.told.take().filter(|_| !known.is_told && !known.is_asked_to_end);
        known.is_told |= told.is_some();
        let outcome = known.answer();
        drop(known);
        self.ended.notify_all();
        if let Some(Tell(tell)) = told {
            tell(outcome);
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.lock().state == State::Running
    }

    /// Returns what is known. An outcome then has been told.
    pub(super) fn take(&self) -> answer::Bench {
        let mut known = self.lock();
        known.is_told |= known.state != State::Running;
        known.answer()
    }

    /// Returns the outcome if there is one that has not been told.
    pub(super) fn outcome(&self) -> Option<answer::Bench> {
        let known = self.lock();
        let is_news = known.state != State::Running && !known.is_told && !known.is_asked_to_end;
        drop(known);
        is_news.then(|| self.take())
    }

    /// Waits for the end. Returns false if it does not come in time.
    pub(super) fn wait(&self, limit: Option<Duration>) -> bool {
        let mut known = self.lock();
        // The command that waits tells the outcome.
        let told = known.told.take();
        let is_running = |known: &mut Known| known.state == State::Running;
        known = match limit {
            None => {
                self.ended.wait_while(known, is_running).unwrap_or_else(|lost| lost.into_inner())
            }
            Some(limit) => {
                let waited = self.ended.wait_timeout_while(known, limit, is_running);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let has_ended = known.state != State::Running;
        if !has_ended {
            known.told = told;
        }
        has_ended
    }

    /// Ends the child, if it runs.
    pub(super) fn stop(&self, end: impl FnOnce(&Child)) {
        let mut known = self.lock();
        if known.state == State::Running {
            known.is_asked_to_end = true;
            end(&known.child);
        }
    }
}

impl Known {
    fn push(&mut self, line: &str, has_table: bool) {
        let line = line.trim_end_matches(['\n', '\r']);
        if has_table {
            self.push_row(line);
        }
        if self.output.len() == LINES_MAX {
            self.output.pop_front();
        }
        self.output.push_back(line.to_owned());
    }

    /// Takes a line of perftest's table: titles after `#bytes`, then rows with as many values.
    fn push_row(&mut self, line: &str) {
        let mut words: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            match words.last_mut() {
                // Two titles have a blank: BW peak, BW average.
                Some(last) if last == "BW" => *last = format!("BW {word}"),
                _ => words.push(word.to_owned()),
            }
        }
        if words.first().is_some_and(|first| first == "#bytes") {
            self.columns = words;
            return;
        }
        let is_row = words.len() == self.columns.len()
            && !words.is_empty()
            && words.iter().all(|word| word.parse::<f64>().is_ok());
        if is_row {
            if self.rows.len() == ROWS_MAX {
                self.rows.pop_front();
            }
            self.rows.push_back(words);
        }
    }

    fn answer(&self) -> answer::Bench {
        let state = match self.state {
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
            State::Stopped => "stopped",
        };
        answer::Bench {
            line: self.line.clone(),
            state: state.to_owned(),
            elapsed_ms: millis(self.begin, self.end.unwrap_or_else(Instant::now)),
            columns: self.columns.clone(),
            rows: self.rows.iter().cloned().collect(),
            output: self.output.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const SOON: Option<Duration> = Some(Duration::from_secs(20));

    fn follow(script: &str) -> Arc<Progress> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Progress::follow(child, "write_bw".to_owned(), None)
    }

    #[test]
    fn the_table_has_a_value_for_each_column() {
        let progress = follow(
            "printf ' #bytes  #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]\\n\
             ----\\n 2  1000  1.5\\t2.5  3\\n 4 1000 nothing 2 3\\n 8 1000 1 2 0\\n 1 2\\n'",
        );
        assert!(progress.wait(SOON));
        let of = progress.take();
        assert_eq!(
            of.columns,
            ["#bytes", "#iterations", "BW peak[MiB/sec]", "BW average[MiB/sec]", "MsgRate[Mpps]"]
        );
        assert_eq!(of.rows, [["2", "1000", "1.5", "2.5", "3"], ["8", "1000", "1", "2", "0"]]);
        assert_eq!((of.state.as_str(), of.output.len()), ("done", 6));
        assert_eq!(progress.outcome(), None, "it has been told");
    }

    #[test]
    fn what_is_kept_of_the_output_is_bounded() {
        let progress =
            follow("yes a | head -n 5000; head -c 100000 /dev/zero; echo end >&2; exit 3");
        assert!(progress.wait(SOON));
        let of = progress.outcome().expect("news");
        assert_eq!((of.state.as_str(), of.output.len()), ("failed", LINES_MAX));
        assert!(of.output.iter().all(|line| line.len() as u64 <= LINE_MAX));
        assert!(of.output.contains(&"end".to_owned()));
    }

    #[test]
    fn a_child_that_is_asked_to_end_is_stopped() {
        let progress = follow("exec sleep 100");
        assert!(!progress.wait(Some(Duration::from_millis(10))));
        progress.stop(|child| super::super::signal(child, rustix::process::Signal::TERM));
        assert!(progress.wait(SOON));
        assert_eq!(progress.outcome(), None, "the one that stops it knows");
        assert_eq!(progress.take().state, "stopped");
    }
}
