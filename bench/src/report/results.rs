//! Results of a report, kept as lines of JSON: one when a measurement is done, so that a report
//! that is stopped loses at most the one that it was at.

use super::plan::Plan;
use super::work::Work;
use crate::error::BenchError;
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
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
        let machine = json!(Machine::this());
        if !path.exists() {
            let head = Head { plan: plan.clone(), machine: machine.clone() };
            let file = OpenOptions::new().append(true).create_new(true).open(&path);
            let mut results = Self {
                file: file.map_err(what)?,
                path,
                plan: plan.clone(),
                machine,
                entries: Vec::new(),
            };
            results.line(&head)?;
            return Ok(results);
        }
        let (head, entries, whole) = read(&path)?;
        let folder = folder.display();
        if head.plan != *plan {
            return Err(BenchError::usage(format!(
                "{folder} has results of another plan: choose another folder with -o"
            )));
        }
        if head.machine != machine {
            return Err(BenchError::usage(format!(
                "{folder} has results of another build or machine: choose another folder with -o"
            )));
        }
        let file = OpenOptions::new().write(true).open(&path).map_err(what)?;
        // A line that was cut off when the report was stopped is measured again.
        file.set_len(whole).map_err(what)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(what)?;
        Ok(Self { file, path, plan: head.plan, machine, entries })
    }

    /// Adds a result and writes it.
    pub(super) fn add(&mut self, entry: Entry) -> Result<(), BenchError> {
        self.line(&entry)?;
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
        self.entries.iter().any(|entry| entry.round == round && entry.work == *work)
    }
}

/// Reads the results of a report, from its folder or the file itself.
pub(super) fn entries(report: &Path) -> Result<Vec<Entry>, BenchError> {
    let file = report.join(FILE);
    let file = if report.is_dir() { &file } else { report };
    read(file).map(|(_, entries, _)| entries)
}

/// Returns the head, the entries, and the length of all whole lines.
fn read(path: &Path) -> Result<(Head, Vec<Entry>, u64), BenchError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| BenchError::io(format_args!("reading {}", path.display()), error))?;
    let wrong = |line: usize, error: serde_json::Error| {
        BenchError::usage(format!("{}, line {line}: not of a report: {error}", path.display()))
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..whole].lines().enumerate();
    let (_, first) = lines.next().unwrap_or((0, ""));
    let head = serde_json::from_str(first).map_err(|error| wrong(1, error))?;
    let parsed =
        lines.map(|(at, line)| serde_json::from_str(line).map_err(|error| wrong(at + 1, error)));
    Ok((head, parsed.collect::<Result<_, _>>()?, whole as u64))
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
        let text = std::fs::read_to_string(&file).expect("text");
        std::fs::write(&file, text + "{\"work\":{\"Qps\"").expect("a torn line");
        let mut results = Results::open(&place, &plan).expect("it goes on");
        assert_eq!(results.entries, [entry(0), failed]);
        assert!(results.has(&Work::Qps(8), 1) && !results.has(&Work::Qps(8), 2));
        results.add(entry(2)).expect("written");
        assert_eq!(entries(&place).expect("all").len(), 3);
        let other = Plan::read("full").expect("a plan");
        let error = Results::open(&place, &other).err().expect("another plan").to_string();
        assert!(error.contains("another plan: choose another folder"), "{error}");
        std::fs::write(&file, "text\n").expect("written");
        let error = entries(&file).expect_err("no report").to_string();
        assert!(error.contains("line 1: not of a report"), "{error}");
    }
}
