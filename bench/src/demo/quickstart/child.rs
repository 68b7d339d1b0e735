//! The nodes as child processes, and the folder of their sockets.

use super::figures::Note;
use crate::cli::{NodePart, QuickstartArgs};
use crate::error::BenchError;
use clap::ValueEnum;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Environment variable that makes glibc ask the kernel for huge pages.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Longest time without a note of a node, in addition to the time of its measurements.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest time from a node's last note to its end.
const FAREWELL: Duration = Duration::from_secs(10);

/// The process of a node. Dropping it kills the process.
pub(super) struct Child {
    process: std::process::Child,
    part: NodePart,
    notes: Receiver<String>,
    silence: Duration,
}

impl Child {
    /// Starts a node.
    pub(super) fn start(
        args: &QuickstartArgs,
        part: NodePart,
        folder: &Path,
    ) -> Result<Self, BenchError> {
        let what = |error| BenchError::io("starting a node", error);
        let name = part.to_possible_value().map(|value| value.get_name().to_owned());
        let mut command = Command::new(std::env::current_exe().map_err(what)?);
        // With small pages the size of the TLB would be measured. The memory of a queue pair,
        // however, can only be measured with small pages.
        if !matches!(part, NodePart::Qps) && std::env::var_os(TUNABLES).is_none() {
            command.env(TUNABLES, "glibc.malloc.hugetlb=1");
        }
        let mut process = command
            .arg("quickstart-node")
            .arg(name.unwrap_or_default())
            .arg("--folder")
            .arg(folder)
            .args(["--runs", &args.runs.to_string()])
            .args(["--time-ms", &args.time_ms.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(what)?;
        let (sender, notes) = channel();
        if let Some(stdout) = process.stdout.take() {
            // The thread ends with the child's output. Lines that are not read any more are
            // dropped.
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        let silence = SILENCE + 20 * Duration::from_millis(args.time_ms);
        Ok(Self { process, part, notes, silence })
    }

    /// Waits for the node's next note; `None` at the end of its output.
    pub(super) fn next_note(&mut self) -> Result<Option<Note>, BenchError> {
        match self.notes.recv_timeout(self.silence) {
            Ok(line) => {
                let note = serde_json::from_str(&line);
                note.map(Some).map_err(|_| self.failure(&format!("said {line:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = self.silence.as_secs();
                Err(self.failure(&format!("said nothing for {seconds} s")))
            }
        }
    }

    /// Waits for the node's end, which must be a success.
    pub(super) fn finish(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + FAREWELL;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    let cause = self.last_words();
                    return Err(cause.unwrap_or_else(|| self.failure(&format!("ended: {status}"))));
                }
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(None) => return Err(self.failure("does not end")),
                Err(error) => return Err(BenchError::io("waiting for a node", error)),
            }
        }
    }

    /// Returns the error of a failed node: its own note, else its exit status.
    pub(super) fn cause(&mut self) -> Option<BenchError> {
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.process.try_wait() {
                let said = self.last_words();
                let ended = (!status.success()).then(|| self.failure(&format!("ended: {status}")));
                return said.or(ended);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    fn last_words(&self) -> Option<BenchError> {
        self.notes.iter().find_map(|line| match serde_json::from_str(&line) {
            Ok(Note::Failed(text)) => Some(BenchError::Child(text)),
            _ => None,
        })
    }

    fn failure(&self, what: &str) -> BenchError {
        BenchError::Child(format!("the {} node {what}", self.part_name()))
    }

    fn part_name(&self) -> &'static str {
        match self.part {
            NodePart::Ring => "ring",
            NodePart::MemifServer => "memif server",
            NodePart::MemifClient => "memif client",
            NodePart::Qps => "queue pair",
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A process that has ended already is only reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A new folder for sockets, which is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder in the system's folder for temporary files.
    pub(crate) fn new() -> Result<Self, BenchError> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = now.map_or(0, |time| time.subsec_nanos());
        let name = format!("uroce-quickstart-{}-{nanos:x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)
            .map_err(|error| BenchError::io(format!("making {}", path.display()), error))?;
        Ok(Self(path))
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the folder. Connected ends do not need its sockets any more, and a process killed by
    /// a signal could not remove it later.
    pub(crate) fn remove(&self) {
        // An error leaves an empty folder behind and is ignored.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_and_goes_away() {
        let (one, two) = (Folder::new().expect("a folder"), Folder::new().expect("another"));
        assert_ne!(one.path(), two.path());
        let path = one.path().to_owned();
        std::fs::write(path.join("x"), "x").expect("it is ours");
        drop(one);
        assert!(!path.exists());
        two.remove();
        assert!(!two.path().exists());
    }
}
