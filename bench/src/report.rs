//! Reports: a plan is measured in rounds, and becomes one page with plots and their figures.
//!
//! ```text
//!   plan ──► work: measurements of a round ──► processes of this program and of others
//!                                                 │
//!   results: a line of JSON for each ◄────────────┘      a report that is stopped goes on here
//!      └──► figures ──┬──► page: one HTML file, nothing from a network
//!                     └──► compare: what changed beyond the noise between two reports
//! ```
//!
//! Invariants
//! - A measurement that fails or cannot be made on this machine is in the page with its reason; the
//!   others go on.
//! - The page is written after each round, from the file of results alone.
//!
//! Not here: how anything is measured; each measurement is a command of its own.

mod child;
mod compare;
mod figures;
mod make;
mod page;
mod plan;
mod results;
mod stacks;
mod work;

use crate::cli::ReportArgs;
use crate::error::BenchError;
use child::Missing;
use indicatif::{ProgressBar, ProgressStyle};
use plan::Plan;
use results::{Entry, Results};
use std::io::IsTerminal;
use std::path::Path;
use work::Work;

/// Runs the subcommand.
pub(crate) fn run(args: &ReportArgs) -> Result<(), BenchError> {
    if let [first, second] = &args.compare[..] {
        return compare(first, second);
    }
    let Some(folder) = &args.output else {
        return Err(BenchError::usage("give the folder of the report: -o DIR"));
    };
    let plan = Plan::read(&args.plan)?;
    let mut results = Results::open(folder, &plan)?;
    measure(&mut results, folder)?;
    let page = page::write(&results, folder)?;
    let missing = results.entries.iter().filter(|entry| entry.outcome.is_err()).count();
    println!(" {} results, {missing} missing: {}", results.entries.len(), page.display());
    if missing == results.entries.len() {
        return Err(BenchError::NoResult { count: missing });
    }
    Ok(())
}

/// Prints what differs between two reports. It is an error if figures fell.
fn compare(first: &Path, second: &Path) -> Result<(), BenchError> {
    let [first, second] = [results::made(first)?, results::made(second)?];
    let [before, after] = [&first, &second].map(|report| {
        let mut all = figures::figures(&report.entries);
        all.retain(|figure| !figure.is_beside);
        all
    });
    print!("{}", compare::machines(&first.machine, &second.machine));
    let (text, fell) = compare::compare(&before, &after);
    print!("{text}");
    match fell {
        0 => Ok(()),
        count => Err(BenchError::Worse { count }),
    }
}

/// Makes all measurements that are not done yet.
fn measure(results: &mut Results, folder: &Path) -> Result<(), BenchError> {
    let all = work::of_plan(&results.plan);
    let rounds = results.plan.rounds;
    let files = folder.join("files");
    std::fs::create_dir_all(&files)
        .map_err(|error| BenchError::io(format_args!("making {}", files.display()), error))?;
    let bar = progress(all.len() as u64 * u64::from(rounds));
    for round in 0..rounds {
        for work in &all {
            if !results.has(work, round) {
                bar.set_message(format!("round {}: {}", round + 1, work.name()));
                let entry = one(results, work, round, &files);
                if let Err(reason) = &entry.outcome {
                    bar.suspend(|| eprintln!(" {}: {reason}", work.name()));
                }
                results.add(entry)?;
            }
            bar.inc(1);
        }
        page::write(results, folder)?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn one(results: &Results, work: &Work, round: u32, files: &Path) -> Entry {
    let outcome = make::make(work, &results.plan, files).map_err(|missing| match missing {
        Missing::NotHere(reason) => format!("not here: {reason}"),
        Missing::Failed(reason) => format!("failed: {reason}"),
    });
    Entry { work: work.clone(), round, outcome }
}

/// Creates a progress bar, which is hidden unless standard error is a terminal.
fn progress(steps: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = " {bar:30} {percent:>3} %  {elapsed:>3}, {eta:>3} left  {msg}";
    let bar = ProgressBar::new(steps);
    // The template is constant and valid; the default style would do as well.
    ProgressStyle::with_template(template).map_or(bar.clone(), |style| bar.with_style(style))
}
