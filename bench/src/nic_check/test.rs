//! A test as a process: its output, its time limit, and the reason of its failure.

use super::checks::configuration;
use crate::cli::NicArgs;
use crate::demo::quickstart::Folder;
use crate::error::BenchError;
use crate::pin::Side;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::checks::Setting;

/// Longest time of a test, with the start of the driver.
pub(super) const LIMIT: Duration = Duration::from_secs(90);
/// Largest number of bytes of output that are kept; a test writes less.
const OUTPUT_MAX: usize = 1 << 20;

/// A running test. Dropping it kills the process.
pub(super) struct Test {
    process: Child,
    output: Receiver<Vec<u8>>,
    said: Vec<u8>,
    deadline: Instant,
    folder: Folder,
}

/// What a test has left.
#[derive(Debug)]
pub(super) struct Ended {
    /// Reason of its failure.
    pub(super) fault: Option<String>,
    /// Whether it was killed because its time was over.
    pub(super) is_late: bool,
    /// What it has written.
    pub(super) said: String,
    /// Its report in JSON, if it was told to write one.
    pub(super) json: Option<serde_json::Value>,
}

impl Test {
    /// Starts a test of uroce-perf on a NIC. It is killed if it has not ended by `deadline`.
    pub(super) fn start(
        nic: &NicArgs,
        side: Side,
        setting: Setting,
        lcores: u16,
        words: &[&str],
        deadline: Instant,
    ) -> Result<Test, BenchError> {
        let folder = Folder::new()?;
        let path = folder.path().join("nic.toml");
        std::fs::write(&path, configuration(nic, side, setting, lcores)?)
            .map_err(|error| BenchError::io(format!("writing {}", path.display()), error))?;
        let mut command = this_program()?;
        command.args(words).arg("--config").arg(path);
        command.arg("--out_json_file").arg(report_in(&folder));
        Self::spawn(command, folder, deadline)
    }

    /// Starts the program with this command line. It is killed if it has not ended by `deadline`.
    pub(super) fn spawn(
        mut command: Command,
        folder: Folder,
        deadline: Instant,
    ) -> Result<Test, BenchError> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| BenchError::io("starting a test", error))?;
        let (sender, output) = channel();
        for pipe in [
            process.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
            process.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        ] {
            let (Some(mut pipe), sender) = (pipe, sender.clone()) else { continue };
            // The thread ends with the child's output.
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                    let _ = sender.send(bytes[..count].to_vec());
                }
            });
        }
        Ok(Test { process, output, said: Vec::new(), deadline, folder })
    }

    /// Waits until the test has written `text`. False if it ends before.
    pub(super) fn says(&mut self, text: &str) -> bool {
        while !self.text().contains(text) {
            if !self.listen(self.deadline) {
                return false;
            }
        }
        true
    }

    /// Waits for the end of the test, and kills it if that takes too long.
    pub(super) fn finish(self) -> Ended {
        let deadline = self.deadline;
        self.finish_by(deadline)
    }

    /// Waits for the end of the test until `deadline`, and kills it then.
    pub(super) fn finish_by(mut self, deadline: Instant) -> Ended {
        while self.listen(deadline) {}
        let (fault, is_late) = match self.exit(deadline) {
            Some(status) => (reason(status, &self.text()), false),
            None => (Some("it does not come to an end".to_owned()), true),
        };
        let json = std::fs::read(report_in(&self.folder)).ok();
        Ended {
            fault,
            is_late,
            said: self.text(),
            json: json.and_then(|bytes| serde_json::from_slice(&bytes).ok()),
        }
    }

    /// Gives a command to the test by `uroce`, the program. Returns the reason if that fails.
    pub(super) fn command(&self, uroce: &Path, command: &str) -> Option<String> {
        let tell = || {
            let mut telling = Command::new(uroce);
            telling.args(["-s", &self.process.id().to_string()]).args(command.split(' '));
            Test::spawn(telling, Folder::new()?, self.deadline)
        };
        let fault = match tell() {
            Ok(telling) => telling.finish().fault?,
            Err(error) => error.to_string(),
        };
        Some(format!("`{command}`: {fault}"))
    }

    /// Returns what the test has written so far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// Takes more of the output. False at its end, or after the deadline.
    fn listen(&mut self, deadline: Instant) -> bool {
        match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(bytes) => {
                let room = OUTPUT_MAX.saturating_sub(self.said.len());
                self.said.extend_from_slice(&bytes[..bytes.len().min(room)]);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Waits for the status of a process with its output closed; kills it at the deadline.
    fn exit(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        // A process that has ended already is only reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a command that starts this program.
pub(super) fn this_program() -> Result<Command, BenchError> {
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|error| BenchError::io("finding this program", error))
}

/// Returns the path of `uroce`, which stands beside this program.
pub(super) fn commands() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name("uroce");
    path.exists().then_some(path)
}

fn report_in(folder: &Folder) -> PathBuf {
    folder.path().join("report.json")
}

/// Returns the reason for which a test has failed: its own last line, or the signal that ended it.
fn reason(status: ExitStatus, said: &str) -> Option<String> {
    if status.success() {
        return None;
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words = last.strip_prefix("uroce-perf: ").unwrap_or(last);
    Some(match status.signal() {
        Some(signal) => format!(
            "signal {signal} ended the process, probably in the driver: bind the NIC to vfio-pci, \
             behind an IOMMU"
        ),
        None if words.is_empty() => format!("it ended with {status}"),
        None => words.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Test {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let deadline = Instant::now() + LIMIT;
        Test::spawn(command, Folder::new().expect("a folder"), deadline).expect("starts")
    }

    #[test]
    fn a_failure_has_its_reason() {
        let fault = |script| {
            let ended = shell(script).finish();
            assert!(!ended.is_late);
            ended.fault
        };
        assert_eq!(fault("echo fine"), None);
        assert_eq!(fault("echo 'uroce-perf: no link' >&2; exit 1"), Some("no link".to_owned()));
        assert!(fault("exit 3").expect("failed").contains('3'));
        assert!(fault("kill -SEGV $$").expect("failed").contains("signal 11"));
    }

    #[test]
    fn a_command_that_fails_tells_why() {
        let test = shell("exec sleep 60");
        let fault = |uroce| test.command(Path::new(uroce), "port reset 0 force");
        assert_eq!(fault("true"), None);
        assert!(fault("false").expect("refused").starts_with("`port reset 0 force`: "));
        assert!(fault("/nonexistent/uroce").expect("none").contains("No such file"));
    }

    #[test]
    fn a_test_that_does_not_end_is_killed() {
        let mut test = shell("echo ready; exec sleep 60");
        assert!(test.says("ready"));
        let begin = Instant::now();
        let ended = test.finish_by(begin + Duration::from_millis(50));
        assert!(ended.fault.is_some() && ended.is_late);
        assert!(begin.elapsed() < Duration::from_secs(20), "{ended:?}");
        assert!(!shell("echo other").says("ready"));
    }
}
