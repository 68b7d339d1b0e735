//! The quickstart: the main job, verified, and its results compared with the limits of this
//! machine.
//!
//! ```text
//!   quickstart ─┬─► node memif-server ◄═ memif ═► node memif-client ─┐
//!      ▲        ├─► node ring: both ends in one process ─────────────┤
//!      │        └─► node qps: one device, 65,536 queue pairs ────────┤
//!      └────────── notes, one JSON value per line ◄──────────────────┘
//! ```
//!
//! A node verifies WRITE, READ, SEND, FETCH_ADD and CMP_SWAP byte for byte, then measures in
//! rounds: each test once, the limits once. Medians of the rounds are reported, also of the shares
//! within each round, so that other load on the machine affects both sides of a comparison. Over
//! rings the rate of small messages is also measured on 1,000 queue pairs. A third process opens as
//! many queue pairs as possible ([`capacity`]).
//!
//! Invariants
//! - `verified` is true only if every payload byte of every verified test was checked.
//! - The parent kills its nodes by process number, even if it ends by an error; a node ends with
//!   its parent.
//!
//! Not here: installing and building (`deploy/quickstart`).

mod capacity;
mod child;
mod figures;
mod node;
mod summary;

pub(crate) use child::Folder;
pub(crate) use node::run as run_node;

use crate::cli::{NodePart, QuickstartArgs};
use crate::error::BenchError;
use crate::machine::Machine;
use capacity::Capacity;
use child::Child;
use figures::{Figures, Note};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Longest measurement in milliseconds. One end may have to wait this long for the other's next
/// message, which must be less than its timeout.
const TIME_MAX_MS: u64 = 10_000;

/// Results of one node.
#[derive(Clone, Debug, Default)]
struct Findings {
    verified_bytes: u64,
    figures: Option<Figures>,
    capacity: Option<Capacity>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &QuickstartArgs) -> Result<(), BenchError> {
    if args.runs == 0 || !(1..=TIME_MAX_MS).contains(&args.time_ms) {
        let text = format!("--runs must be at least 1, --time-ms 1 to {TIME_MAX_MS}");
        return Err(BenchError::usage(text));
    }
    let say = |text: &str| match args.json {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    };
    let machine = Machine::this();
    say(&summary::greeting(&machine, args));
    let folder = Folder::new()?;
    let bar = progress(args);
    let memif = memif(args, &folder, &bar);
    let one = |what| part(args, what, &folder, &bar);
    let all = memif.and_then(|memif| Ok((memif, one(NodePart::Ring)?, one(NodePart::Qps)?)));
    bar.finish_and_clear();
    let (memif, ring, qps) = all?;
    let report = summary::Report {
        verified_bytes: memif.verified_bytes + ring.verified_bytes,
        memif: memif.figures.unwrap_or_default(),
        ring: ring.figures.unwrap_or_default(),
        capacity: qps.capacity.unwrap_or_default(),
        machine,
        runs: args.runs,
    };
    say(&report.to_string());
    if args.json {
        println!("{}", report.json());
    }
    report.verdict()
}

/// Creates a progress bar, which is hidden unless standard error is a terminal.
fn progress(args: &QuickstartArgs) -> ProgressBar {
    let steps = figures::steps(args.runs, false) + figures::steps(args.runs, true) + 1;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(" {bar:40} {percent:>3} %  {elapsed:>3}  {msg}");
    let bar = ProgressBar::new(steps);
    // The template is constant and valid; the default style would do as well.
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// Runs two processes, of which the client reports.
fn memif(
    args: &QuickstartArgs,
    folder: &Folder,
    bar: &ProgressBar,
) -> Result<Findings, BenchError> {
    let mut server = Child::start(args, NodePart::MemifServer, folder.path())?;
    let findings = part(args, NodePart::MemifClient, folder, bar);
    match findings {
        Ok(findings) => server.finish().map(|()| findings),
        // The server may have failed first, with the actual cause.
        Err(error) => Err(server.cause().unwrap_or(error)),
    }
}

/// Runs a node that reports, to its end.
fn part(
    args: &QuickstartArgs,
    part: NodePart,
    folder: &Folder,
    bar: &ProgressBar,
) -> Result<Findings, BenchError> {
    let mut node = Child::start(args, part, folder.path())?;
    let mut findings = Findings::default();
    while let Some(note) = node.next_note()? {
        match note {
            Note::Begin(text) => bar.set_message(text),
            Note::Measured => bar.inc(1),
            Note::Verified { bytes } => {
                // Both ends are connected by then, and do not need the sockets.
                folder.remove();
                findings.verified_bytes += bytes;
                bar.inc(1);
            }
            Note::Done(figures) => findings.figures = Some(*figures),
            Note::Opened(capacity) => {
                findings.capacity = Some(capacity);
                bar.inc(1);
            }
            Note::Failed(text) => return Err(BenchError::Child(text)),
        }
    }
    node.finish()?;
    Ok(findings)
}
