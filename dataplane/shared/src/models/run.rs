//! The program that runs the models, and each model with each loss.

use super::{MODELS, Model};
use crate::sync::weaken::{self, Site};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a model which has lost something is searched for a failure.
const PATIENCE: Duration = Duration::from_secs(10);

/// The program of the models; see [`crate::models`].
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => all(),
        ["--explore"] => {
            MODELS.iter().for_each(check);
            ExitCode::SUCCESS
        }
        [name] => named(name).map_or(ExitCode::from(2), |model| {
            check(model);
            ExitCode::SUCCESS
        }),
        [name, "--weaken", site] => named(name).map_or(ExitCode::from(2), |model| {
            weaken::weaken(site.to_owned());
            explore(model, Some(PATIENCE));
            ExitCode::SUCCESS
        }),
        _ => ExitCode::from(2),
    }
}

fn named(name: &str) -> Option<&'static Model> {
    let model = MODELS.iter().find(|model| model.name == name);
    if model.is_none() {
        eprintln!("no model {name}; there are:");
        MODELS.iter().for_each(|model| eprintln!("  {}: {}", model.name, model.about));
    }
    model
}

/// Explores a model and prints its name, its executions and its time.
fn check(model: &Model) {
    let begin = Instant::now();
    let executions = explore(model, None);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{:<28} {executions:>8} executions {seconds:>6.1} s  {}", model.name, model.about);
}

/// Runs all executions of a model, or as many as fit into `limit`. Panics if one fails.
fn explore(model: &Model, limit: Option<Duration>) -> u64 {
    static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
    EXECUTIONS.store(0, Ordering::Relaxed);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound =
        std::env::var("PB").map_or(Some(model.preemptions), |n| n.parse().ok());
    builder.max_duration = limit;
    builder.max_branches = 2_000;
    let run = model.run;
    builder.check(move || {
        EXECUTIONS.fetch_add(1, Ordering::Relaxed);
        run();
    });
    EXECUTIONS.load(Ordering::Relaxed)
}

/// Runs all models, and then each with one order or write lost. Some model must notice each loss,
/// and each model must notice some loss.
fn all() -> ExitCode {
    let mut noticed: BTreeMap<Site, Vec<&str>> = BTreeMap::new();
    let mut blind = Vec::new();
    for model in MODELS {
        weaken::take_met();
        check(model);
        let (open, others): (Vec<Site>, Vec<Site>) =
            weaken::take_met().into_iter().partition(|site| {
                noticed.entry(*site).or_default().is_empty() && site.excuse().is_none()
            });
        let mut seen = losses_noticed(model.name, &open);
        // The others are tried only until one is noticed.
        if seen.is_empty() {
            let first = others.into_iter().find(|site| !runs_weakened(model.name, *site));
            seen.extend(first);
        }
        let sees = !seen.is_empty();
        for site in seen {
            noticed.entry(site).or_default().push(model.name);
        }
        blind.extend((!sees).then_some(model.name));
    }
    println!("\nlost                          noticed by");
    let mut bad = blind.len();
    for (site, models) in &noticed {
        let by = match site.excuse() {
            _ if !models.is_empty() => models.join(", "),
            Some(why) => format!("need not be: {why}"),
            None => {
                bad += 1;
                String::from("NO MODEL")
            }
        };
        println!("{site:<28}  {by}");
    }
    blind.iter().for_each(|model| println!("{model} notices NOTHING"));
    ExitCode::from(u8::from(bad > 0))
}

/// Returns the sites with a loss that a model notices. They are tried on all CPUs at once, as a
/// model has one thread.
fn losses_noticed(name: &str, sites: &[Site]) -> Vec<Site> {
    let next = AtomicUsize::new(0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let try_some = || {
        let take = || sites.get(next.fetch_add(1, Ordering::Relaxed)).copied();
        let tried = std::iter::from_fn(take);
        tried.filter(|site| !runs_weakened(name, *site)).collect::<Vec<Site>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(try_some)).collect();
        let seen = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        seen.collect()
    })
}

/// Returns whether a model still succeeds with the loss at a site. Runs in a process of its own,
/// because a model that fails leaves its threads behind.
fn runs_weakened(name: &str, site: Site) -> bool {
    let this = std::env::current_exe().expect("this program has a path");
    let status = Command::new(this)
        .args([name, "--weaken", &site.to_string()])
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("this program starts").success()
}
