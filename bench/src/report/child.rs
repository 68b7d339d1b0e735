//! Processes that a report starts. Each ends in its time, or is ended.

use crate::error::BenchError;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at a process.
const LOOK: Duration = Duration::from_millis(5);

/// The reason for which a measurement has no result.
#[derive(Debug)]
pub(super) enum Missing {
    /// It cannot be made on this machine.
    NotHere(String),
    /// It has failed.
    Failed(String),
}

impl From<BenchError> for Missing {
    fn from(error: BenchError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Missing {
    /// Returns the failure of an operation of the system.
    pub(super) fn io(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A process that runs, with its output so far; killed when dropped, should it still run.
pub(super) struct Running {
    child: Child,
    deadline: Instant,
    limit: Duration,
    /// Readers of standard output and standard error.
    readers: [Option<JoinHandle<Vec<u8>>>; 2],
}

impl Running {
    /// Starts a process that has `limit` to end.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub(super) fn start(command: &mut Command, limit: Duration) -> std::io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let readers = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
        Ok(Self { child, deadline: Instant::now() + limit, limit, readers })
    }

    /// Waits for its end. Returns its output, of a process that has succeeded.
    ///
    /// # Errors
    ///
    /// The last line of its errors, or that it took too long.
    pub(super) fn succeeded(self) -> Result<Output, Missing> {
        let output = self.output()?;
        if output.status.success() { Ok(output) } else { Err(Missing::Failed(cause(&output))) }
    }

    /// Waits for its end. Returns its output.
    ///
    /// # Errors
    ///
    /// It took too long.
    pub(super) fn output(mut self) -> Result<Output, Missing> {
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(Missing::io)? {
                break status;
            }
            if Instant::now() > self.deadline {
                let text = format!("it did not end within {} s", self.limit.as_secs());
                return Err(Missing::Failed(text));
            }
            std::thread::sleep(LOOK);
        };
        let [stdout, stderr] = self
            .readers
            .each_mut()
            .map(|reader| reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default());
        Ok(Output { status, stdout, stderr })
    }
}

/// Returns the last line of a process' errors.
pub(super) fn cause(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.map(|line| line.trim().trim_start_matches("uroce-perf: ").to_owned());
    line.unwrap_or_else(|| output.status.to_string())
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads an output to its end, so that the process never waits for room in a pipe.
fn reader(mut output: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read counts; a pipe ends with its process.
        let _ = output.read_to_end(&mut bytes);
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> Result<Output, Missing> {
        let mut command = Command::new("sh");
        Running::start(command.args(["-c", script]), limit).expect("a shell").succeeded()
    }

    #[test]
    fn the_cause_of_a_failure_is_its_last_line() {
        let failure = |script| match run(script, Duration::from_secs(10)) {
            Err(Missing::Failed(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(failure("echo a >&2; echo uroce-perf: cause >&2; exit 1"), "cause");
        assert_eq!(failure("exit 3"), "exit status: 3");
    }

    #[test]
    fn a_process_may_write_more_than_a_pipe_holds() {
        let output = run("head -c 300000 /dev/zero", Duration::from_secs(10)).expect("it ends");
        assert_eq!(output.stdout.len(), 300_000);
    }

    #[test]
    fn a_process_that_does_not_end_is_ended() {
        let begin = Instant::now();
        let error = run("exec sleep 60", Duration::from_millis(50)).expect_err("too long");
        assert!(matches!(&error, Missing::Failed(text) if text.contains("did not end within")));
        assert!(begin.elapsed() < Duration::from_secs(30), "{error:?}");
    }
}
