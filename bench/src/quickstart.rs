//! The quickstart: the main job, verified, and its figures beside the limits of this machine.
//!
//! ```text
//!   quickstart ─┬─► node memif-server ◄═ memif ═► node memif-client ─┐
//!      ▲        ├─► node ring: both ends in one process ─────────────┤
//!      │        └─► node qps: one device, 65,536 queue pairs ────────┤
//!      └────────────── notes, one JSON a line ◄──────────────────────┘
//! ```
//!
//! A node verifies WRITE, READ, SEND, FETCH_ADD and CMP_SWAP byte for byte, then measures in
//! rounds: each test once, the limits once. Medians of the rounds are reported, and of each round's
//! own shares, so that what else runs on the machine weighs on both alike. Over rings the rate of
//! small messages is also taken on 1,000 queue pairs. A third process opens as many queue pairs as
//! there can be ([`capacity`]).
//!
//! Invariants
//! - `verified` is true only if every payload byte of every verified test was looked at.
//! - The parent ends its nodes by their process numbers, however it ends itself; a node ends with
//!   its parent.
//!
//! Not here: installing and building, which is `deploy/quickstart`'s.

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

/// Milliseconds of a measurement, at most: one end may wait so long for the other's next word, and
/// its patience is longer.
const TIME_MAX_MS: u64 = 10_000;

/// What a node has found out.
#[derive(Clone, Debug, Default)]
struct Findings {
    verified_bytes: u64,
    figures: Option<Figures>,
    capacity: Option<Capacity>,
}

/// The subcommand.
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

/// A bar on a terminal, nothing elsewhere.
fn progress(args: &QuickstartArgs) -> ProgressBar {
    let steps = figures::steps(args.runs, false) + figures::steps(args.runs, true) + 1;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(" {bar:40} {percent:>3} %  {elapsed:>3}  {msg}");
    let bar = ProgressBar::new(steps);
    // The template is a constant; without it the default style shows as much.
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// Two processes; the client reports.
fn memif(
    args: &QuickstartArgs,
    folder: &Folder,
    bar: &ProgressBar,
) -> Result<Findings, BenchError> {
    let mut server = Child::start(args, NodePart::MemifServer, folder.path())?;
    let findings = part(args, NodePart::MemifClient, folder, bar);
    match findings {
        Ok(findings) => server.finish().map(|()| findings),
        // The server may have been the first to fail, and know why.
        Err(error) => Err(server.cause().unwrap_or(error)),
    }
}

/// Runs the node that reports, to its end.
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
                // Both ends are connected by then.
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
