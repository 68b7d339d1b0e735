//! Results of a report, kept as lines of JSON: one when a measurement is done, so that a report
//! that is stopped loses at most the one that it was at.
//!
//! Invariants
//! - One process at a time writes a report.
//! - All results of a report are of one plan, one machine and one build: the program itself, not
//!   only its commit.
//! - A measurement without a result is made again when the report goes on. Its latest outcome
//!   counts.

use super::plan::Plan;
use super::work::Work;
use crate::error::BenchError;
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file.
const FILE: &str = "results.jsonl";

/// Result of a measurement in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) work: Work,
    /// Number of the round, from 0.
    pub(super) round: u32,
    /// The result, or the reason for which there is none.
    pub(super) outcome: Result<Value, String>,
}

/// First line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    plan: Plan,
    /// Machine and versions.
    machine: Value,
    /// Digest of the program, which differs for two builds of one commit with changes.
    program: String,
}

/// Returns the digest of this program's file.
fn program() -> Result<String, BenchError> {
    let what = |error| BenchError::io("reading this program's file", error);
    let bytes = std::env::current_exe().and_then(std::fs::read).map_err(what)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

/// The file, and what is in it.
pub(super) struct Results {
    file: File,
    path: PathBuf,
    pub(super) plan: Plan,
    pub(super) machine: Value,
    pub(super) entries: Vec<Entry>,
}

impl Results {
    /// Begins a report in a folder, or goes on with the one that is there, which must have the same
    /// plan and be of the same build and machine.
    pub(super) fn open(folder: &Path, plan: &Plan) -> Result<Self, BenchError> {
        let what = |error| BenchError::io(format_args!("writing to {}", folder.display()), error);
        std::fs::create_dir_all(folder).map_err(what)?;
        let path = folder.join(FILE);
        let (machine, program) = (json!(Machine::this()), program()?);
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(what)?;
        let folder = folder.display();
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                let text = format!("another process writes the report in {folder}: wait for it");
                return Err(BenchError::usage(text));
            }
            Err(TryLockError::Error(error)) => return Err(what(error)),
        }
        let mut results = Self { file, path, plan: plan.clone(), machine, entries: Vec::new() };
        let bytes = std::fs::read(&results.path).map_err(what)?;
        if !bytes.contains(&b'\n') {
            // New, or stopped while its first line was written.
            results.file.set_len(0).map_err(what)?;
            let (plan, machine) = (plan.clone(), results.machine.clone());
            results.line(&Head { plan, machine, program })?;
            return Ok(results);
        }
        let (head, entries, whole) = read(&results.path)?;
        if head.plan != *plan {
            return Err(BenchError::usage(format!(
                "{folder} has results of another plan: choose another folder with -o"
            )));
        }
        if head.machine != results.machine || head.program != program {
            return Err(BenchError::usage(format!(
                "{folder} has results of another build or machine: choose another folder with -o"
            )));
        }
        // A line that was cut off when the report was stopped is measured again.
        results.file.set_len(whole).map_err(what)?;
        results.entries = entries;
        Ok(results)
    }

    /// Adds a result and writes it.
    pub(super) fn add(&mut self, entry: Entry) -> Result<(), BenchError> {
        self.line(&entry)?;
        self.entries.retain(|one| !one.is_of(&entry.work, entry.round));
        self.entries.push(entry);
        Ok(())
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), BenchError> {
        let mut text = serde_json::to_string(line)
            .map_err(|error| BenchError::io("writing JSON", error.into()))?;
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|error| BenchError::io(format_args!("writing {}", self.path.display()), error))
    }

    /// Tells whether a measurement of a round is done.
    pub(super) fn has(&self, work: &Work, round: u32) -> bool {
        self.entries.iter().any(|one| one.is_of(work, round) && one.outcome.is_ok())
    }
}

impl Entry {
    fn is_of(&self, work: &Work, round: u32) -> bool {
        self.round == round && self.work == *work
    }
}

/// A report that was made before.
pub(super) struct Made {
    /// Machine and versions.
    pub(super) machine: Value,
    pub(super) entries: Vec<Entry>,
}

/// Reads a report, from its folder or the file itself.
pub(super) fn made(report: &Path) -> Result<Made, BenchError> {
    let file = report.join(FILE);
    let file = if report.is_dir() { &file } else { report };
    read(file).map(|(head, entries, _)| Made { machine: head.machine, entries })
}

/// Returns the head, the entries, and the length of all whole lines.
fn read(path: &Path) -> Result<(Head, Vec<Entry>, u64), BenchError> {
    let what = |error| BenchError::io(format_args!("reading {}", path.display()), error);
    let mut bytes = std::fs::read(path).map_err(what)?;
    // A line that was cut off may end within a character.
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    let text = String::from_utf8(bytes)
        .map_err(|_| BenchError::usage(format!("{}: not of a report: no UTF-8", path.display())))?;
    let wrong = |line: usize, error: serde_json::Error| {
        BenchError::usage(format!("{}, line {line}: not of a report: {error}", path.display()))
    };
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().unwrap_or((0, ""));
    let head = serde_json::from_str(first).map_err(|error| wrong(1, error))?;
    let mut entries: Vec<Entry> = Vec::new();
    for (at, line) in lines {
        let entry: Entry = serde_json::from_str(line).map_err(|error| wrong(at + 1, error))?;
        entries.retain(|one| !one.is_of(&entry.work, entry.round));
        entries.push(entry);
    }
    Ok((head, entries, text.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::quickstart::Folder;

    #[test]
    fn what_is_done_is_kept_and_a_line_that_was_cut_off_is_not() {
        let folder = Folder::new().expect("a folder");
        let place = folder.path().join("report");
        let plan = Plan::read("minute").expect("a plan");
        let entry = |round| Entry { work: Work::Qps(8), round, outcome: Ok(json!({ "a": round })) };
        let mut results = Results::open(&place, &plan).expect("a new report");
        results.add(entry(0)).expect("written");
        let failed = Entry { outcome: Err("the other end is gone".to_owned()), ..entry(1) };
        results.add(failed.clone()).expect("written");
        drop(results);
        let file = place.join(FILE);
        let text = std::fs::read(&file).expect("text");
        std::fs::write(&file, [&text[..], b"{\"work\":\"\xc2"].concat()).expect("a torn line");
        let mut results = Results::open(&place, &plan).expect("it goes on");
        assert_eq!(results.entries, [entry(0), failed]);
        let has = |results: &Results| [0, 1, 2].map(|round| results.has(&Work::Qps(8), round));
        assert_eq!(has(&results), [true, false, false], "a failure is measured again");
        results.add(entry(2)).expect("written");
        results.add(entry(1)).expect("written");
        assert_eq!(has(&results), [true; 3]);
        let other = Results::open(&place, &plan).err().expect("locked").to_string();
        assert!(other.contains("another process writes the report"), "{other}");
        assert_eq!(results.entries, [entry(0), entry(2), entry(1)]);
        assert_eq!(made(&place).expect("all").entries, results.entries);
        drop(results);
        let text = std::fs::read_to_string(&file).expect("text");
        std::fs::write(&file, &text[..20]).expect("a torn head");
        assert_eq!(Results::open(&place, &plan).expect("begun anew").entries, []);
        let changed = text.replacen(&program().expect("a digest"), "0123", 1);
        std::fs::write(&file, changed).expect("another build");
        let error = Results::open(&place, &plan).err().expect("another build").to_string();
        assert!(error.contains("another build or machine"), "{error}");
        let other = Plan::read("full").expect("a plan");
        let error = Results::open(&place, &other).err().expect("another plan").to_string();
        assert!(error.contains("another plan: choose another folder"), "{error}");
        std::fs::write(&file, "text\n").expect("written");
        let error = made(&file).err().expect("no report").to_string();
        assert!(error.contains("line 1: not of a report"), "{error}");
    }
}
