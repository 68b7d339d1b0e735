//! How each measurement is made: as a process of this program with other options, or as another
//! program.

use super::child::{Missing, Running};
use super::plan::{Ends, Plan, Rates};
use super::stacks;
use super::work::Work;
use crate::pin::cpus;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Test of several pairs at the same time. They overlap for most of its second.
const TOGETHER: &str = "write_bw -s 65536 -t 32 -Q 8 -D 1 -m 4096 -N --report_gbits";
/// Messages of 64 KiB of the test beside other stacks.
const LARGE: &str = "20000";
/// Time for a measurement to start and to end, beside what it measures.
const AROUND: Duration = Duration::from_secs(120);

/// Makes a measurement. `folder` is for files that it writes.
pub(super) fn make(work: &Work, plan: &Plan, folder: &Path) -> Result<Value, Missing> {
    let making = Making { plan, folder, limit: limit(work, plan) };
    match work {
        Work::Rates { service, size } => {
            let Some(rates) = &plan.rates else { return Err(foreign()) };
            let output = making.pair(&ndr(plan, rates, service, size), &words("--json"))?;
            parse(&output.stdout)
        }
        Work::Latency { size, messages } => making.tested(&latency(*size, *messages)),
        Work::Qps(count) => making.alone(&words(&scale("qps", *count, plan))),
        Work::Regions(count) => making.alone(&words(&scale("regions", *count, plan))),
        Work::Cores(pairs) => making.cores(*pairs),
        Work::Processes(pairs) => making.processes(*pairs),
        Work::Loss => {
            let Some(loss) = &plan.loss else { return Err(foreign()) };
            let list: Vec<String> = loss.probabilities.iter().map(f64::to_string).collect();
            let (time, list) = (plan.time_ms, list.join(","));
            making.plotted(&format!("loss --json --runs 1 --time-ms {time} --loss {list}"), "loss")
        }
        Work::Failover(qps) => making.plotted(&format!("failover --json -q {qps}"), "failover"),
        Work::Uroce => making
            .tested(&format!("write_bw -s 65536 -t 32 -Q 8 -n {LARGE} -m 4096 -N --report_gbits")),
        Work::Other(other) => stacks::measure(*other, plan.time_ms),
    }
}

fn latency(size: u32, messages: u32) -> String {
    format!("send_lat -s {size} -n {messages} -m 4096")
}

fn scale(what: &str, count: u32, plan: &Plan) -> String {
    format!("scale --json --{what} {count} --time-ms {}", plan.time_ms)
}

/// Returns the options of a search for the zero-loss rate.
fn ndr(plan: &Plan, rates: &Rates, service: &str, size: &str) -> Vec<OsString> {
    let size = match size.strip_prefix("msg ") {
        Some(bytes) => format!("--frames none -s {bytes}"),
        None => format!("--frames {size}"),
    };
    let load = match rates.load.is_empty() {
        true => "none".to_owned(),
        false => rates.load.iter().map(f64::to_string).collect::<Vec<_>>().join(","),
    };
    let link = plan.link.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let Rates { trial_ms, load_ms, .. } = rates;
    words(&format!(
        "ndr -c {service} {size} --searches 1 --time-ms {trial_ms} --link {link} --load {load} \
         --load-time-ms {load_ms}"
    ))
}

/// Returns the longest time of a measurement.
fn limit(work: &Work, plan: &Plan) -> Duration {
    let measured = match work {
        Work::Rates { .. } => plan.rates.as_ref().map_or(0, |rates| {
            // Several hundred trials, each again and again on a busy machine.
            4000 * rates.trial_ms + 2 * rates.load_ms * rates.load.len() as u64
        }),
        // A tenth of a millisecond for a message, and 100 MB/s each way.
        Work::Latency { size, messages } => {
            let (size, messages) = (u64::from(*size), u64::from(*messages));
            messages / 10 + 2 * size * messages / 100_000
        }
        Work::Loss => {
            let points = plan.loss.as_ref().map_or(0, |loss| loss.probabilities.len());
            8 * plan.time_ms * points as u64
        }
        Work::Qps(count) => 2 * plan.time_ms + u64::from(*count),
        Work::Regions(count) => 2 * plan.time_ms + u64::from(*count) / 10,
        Work::Failover(count) => 10 * u64::from(*count),
        Work::Cores(_) | Work::Processes(_) | Work::Uroce | Work::Other(_) => 0,
    };
    AROUND + Duration::from_millis(measured)
}

fn foreign() -> Missing {
    Missing::Failed("the plan has no such part".to_owned())
}

fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

/// Returns this program with options. It ends with this process.
fn this(options: &[OsString]) -> Result<Command, Missing> {
    let program = std::env::current_exe()
        .map_err(|error| Missing::Failed(format!("finding this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(options).env("UROCE_PERF_ENDS_WITH", std::process::id().to_string());
    Ok(command)
}

/// A measurement that is being made.
struct Making<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    limit: Duration,
}

impl Making<'_> {
    fn start(&self, options: &[OsString]) -> Result<Running, Missing> {
        Running::start(&mut this(options)?, self.limit).map_err(Missing::io)
    }

    /// Runs a test that has both of its ends in one process anyway.
    fn alone(&self, options: &[OsString]) -> Result<Value, Missing> {
        parse(&self.start(options)?.succeeded()?.stdout)
    }

    /// Runs such a test, which also draws a plot.
    fn plotted(&self, text: &str, plot: &str) -> Result<Value, Missing> {
        let file = self.folder.join(plot).with_extension("svg");
        self.alone(&[words(text), vec!["--plot".into(), file.into()]].concat())
    }

    /// Runs both ends of one of perftest's tests. Returns the client's results.
    fn tested(&self, text: &str) -> Result<Value, Missing> {
        let file = self.folder.join("measurement.json");
        self.pair(&words(text), &to_file(&file))?;
        read(&file)
    }

    /// Runs both ends of a test. `own` are options of the client alone. Returns its output.
    fn pair(&self, options: &[OsString], own: &[OsString]) -> Result<Output, Missing> {
        let more = self.plan.options.iter().map(OsString::from);
        let options: Vec<OsString> = options.iter().cloned().chain(more).collect();
        if self.plan.ends == Ends::Rings {
            return self.start(&[&options, own, &words("--in-process")].concat())?.succeeded();
        }
        let [server, client] = two_ends(&options)?;
        let server = self.start(&server)?;
        let output = self.start(&[&client, own].concat())?.succeeded();
        drop(server);
        output
    }

    /// Runs a pair of ends on each of several pairs of cores at the same time, and adds their
    /// rates.
    fn cores(&self, pairs: u32) -> Result<Value, Missing> {
        let (cpus, needed) = (cpus(), 2 * pairs as usize);
        if needed > cpus.len() {
            let text = format!("{needed} CPUs are needed, there are {}", cpus.len());
            return Err(Missing::NotHere(text));
        }
        let mut running = Vec::new();
        for (at, pair) in cpus.chunks_exact(2).take(pairs as usize).enumerate() {
            let file = self.file_of_pair(at);
            let own = format!("{TOGETHER} --in-process --lcores {},{}", pair[0], pair[1]);
            running.push((self.start(&[words(&own), to_file(&file)].concat())?, file));
        }
        sum(running)
    }

    /// Runs several pairs of processes in the local fabric at the same time, and adds their rates.
    fn processes(&self, pairs: u32) -> Result<Value, Missing> {
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        for at in 0..pairs as usize {
            let file = self.file_of_pair(at);
            let [server, client] = two_ends(&words(TOGETHER))?;
            servers.push(self.start(&server)?);
            clients.push((self.start(&[client, to_file(&file)].concat())?, file));
        }
        sum(clients)
    }

    fn file_of_pair(&self, at: usize) -> PathBuf {
        self.folder.join(format!("pair-{at}.json"))
    }
}

fn to_file(file: &Path) -> Vec<OsString> {
    vec!["--out_json_file".into(), file.into()]
}

/// Returns the options of a server and of its client, which meet at a free TCP port.
fn two_ends(options: &[OsString]) -> Result<[Vec<OsString>; 2], Missing> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.map_err(Missing::io)?.port();
    let server = [options, &words(&format!("-p {port}"))].concat();
    let client = [&server[..], &words("localhost")].concat();
    Ok([server, client])
}

/// Waits for all, and adds the rates in their files.
fn sum(running: Vec<(Running, PathBuf)>) -> Result<Value, Missing> {
    let mut gbps = 0.0;
    for (process, file) in running {
        process.succeeded()?;
        gbps += read(&file)?["results"]["BW_average"].as_f64().unwrap_or(0.0);
    }
    Ok(json!({ "gbps": gbps }))
}

/// Parses the last line of a program's output.
fn parse(bytes: &[u8]) -> Result<Value, Missing> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .map_err(|error| Missing::Failed(format!("its output is not JSON: {error}")))
}

/// Reads and removes a file of results, so that no later measurement finds it.
fn read(file: &Path) -> Result<Value, Missing> {
    let wrong =
        |error: &dyn std::fmt::Display| Missing::Failed(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    std::fs::remove_file(file).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cores_than_there_are_cannot_be_measured_here() {
        let plan = Plan::read("full").expect("the full plan");
        let outcome = make(&Work::Cores(1000), &plan, Path::new("/"));
        assert!(matches!(outcome, Err(Missing::NotHere(_))));
    }

    #[test]
    fn every_measurement_has_time_for_what_the_plan_asks_of_it() {
        let plan = Plan::read("full").expect("the full plan");
        for work in super::super::work::of_plan(&plan) {
            assert!(limit(&work, &plan) >= AROUND, "{work:?}");
        }
        let rates = Work::Rates { service: "RC".to_owned(), size: "64".to_owned() };
        assert!(limit(&rates, &plan) > AROUND + Duration::from_secs(200));
        let large = Work::Latency { size: 8 << 20, messages: 100_000 };
        assert!(limit(&large, &plan) > Duration::from_secs(10_000));
    }

    #[test]
    fn every_measurement_is_a_command_that_this_program_takes() {
        use crate::cli::{Cli, Command};
        use clap::Parser;
        let plan = Plan::read("full").expect("the full plan");
        let rates = plan.rates.as_ref().expect("rates");
        let mut lines = vec![ndr(&plan, rates, "RC", "msg 8192"), ndr(&plan, rates, "UD", "imix")];
        let most = |text: String| lines.push(words(&text));
        let all = [TOGETHER.to_owned(), latency(8 << 20, 10)];
        all.into_iter().for_each(most);
        for (what, most) in [("qps", 65_536), ("regions", 1_000_000)] {
            let line = [words("uroce-perf"), words(&scale(what, most, &plan))].concat();
            let command = Cli::try_parse_from(&line).map(|cli| cli.command);
            assert!(matches!(command, Ok(Command::Scale(_))), "{what}");
        }
        for line in lines {
            let line = [words("uroce-perf"), line, words("--in-process")].concat();
            match Cli::try_parse_from(&line).expect("known options").command {
                Command::Ndr(args) => drop(args.checked().expect("valid")),
                Command::Perftest(test) => drop(test.args().expect("valid")),
                other => panic!("{other:?}"),
            }
        }
    }
}
