//! The measurements of a plan. Each is a process of its own: this program with other options, or
//! another program.

use super::plan::{Ends, Other, Plan};
use super::stacks;
use crate::error::BenchError;
use crate::pin::cpus;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Messages of a test of the rate, on all queue pairs together.
const MESSAGES: u32 = 400_000;
/// Messages on each queue pair, at least.
const MESSAGES_MIN: u32 = 400;
/// Seconds of a test on several pairs of cores, in which they overlap for the most part.
const SECONDS: &str = "1";
/// Messages of 64 KiB of the test beside other stacks.
const LARGE: &str = "20000";

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Work {
    /// Zero-loss rate of a service at a size: a length of frames, `imix`, or `msg` and a number.
    Rates { service: String, size: String },
    /// Latency of single messages.
    Latency { size: u32, messages: u32 },
    /// Rate on this number of queue pairs.
    Qps(u32),
    /// Rate of this number of pairs of cores.
    Cores(u32),
    /// Goodput with loss.
    Loss,
    /// Failover of this number of queue pairs.
    Failover(u32),
    /// Throughput of uroce, beside that of others.
    Uroce,
    /// Throughput of another stack.
    Other(Other),
}

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

/// Returns the measurements of a round.
pub(super) fn of_plan(plan: &Plan) -> Vec<Work> {
    let mut all = Vec::new();
    if let Some(rates) = &plan.rates {
        let sizes = rates.frames.iter().map(ToString::to_string);
        let sizes: Vec<String> =
            sizes.chain(rates.sizes.iter().map(|size| format!("msg {size}"))).collect();
        for service in &rates.services {
            let one = |size: &String| Work::Rates { service: service.clone(), size: size.clone() };
            all.extend(sizes.iter().map(one));
        }
    }
    if let Some(latency) = &plan.latency {
        let messages = latency.messages;
        all.extend(latency.sizes.iter().map(|&size| Work::Latency { size, messages }));
    }
    let counts = |counts: &Option<super::plan::Counts>, work: fn(u32) -> Work| {
        let counts = counts.as_ref().map_or(Vec::new(), |counts| counts.counts.clone());
        counts.into_iter().map(work).collect::<Vec<Work>>()
    };
    all.extend(counts(&plan.qps, Work::Qps));
    all.extend(counts(&plan.cores, Work::Cores));
    all.extend(plan.loss.as_ref().map(|_| Work::Loss));
    all.extend(counts(&plan.failover, Work::Failover));
    if !plan.beside.is_empty() {
        all.push(Work::Uroce);
    }
    all.extend(plan.beside.iter().copied().map(Work::Other));
    all
}

impl Work {
    /// Returns the name, for progress and for what is missing.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Rates { service, size } => format!("zero-loss rate, {service} {size}"),
            Self::Latency { size, .. } => format!("latency, {size} B"),
            Self::Qps(count) => format!("{count} queue pairs"),
            Self::Cores(pairs) => format!("{pairs} pair(s) of cores"),
            Self::Loss => "goodput with loss".to_owned(),
            Self::Failover(qps) => format!("failover of {qps} queue pair(s)"),
            Self::Uroce | Self::Other(_) => format!("throughput of {}", self.stack()),
        }
    }

    /// Returns the name of the stack.
    pub(super) fn stack(&self) -> &'static str {
        match self {
            Self::Other(Other::Tcp) => "TCP of the kernel, iperf3",
            Self::Other(Other::UcxTcp) => "UCX over TCP",
            Self::Other(Other::SoftRoce) => "Soft-RoCE of the kernel",
            _ => "uroce, WRITE",
        }
    }

    /// Makes the measurement. `folder` is for files that it writes.
    pub(super) fn make(&self, plan: &Plan, folder: &Path) -> Result<Value, Missing> {
        let file = folder.join("measurement.json");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let tested = |text: String| {
            let options = format!("{text} --out_json_file {}", file.display());
            pair(plan.ends, &words(&options)).and_then(|_| read(&file))
        };
        match self {
            Self::Rates { service, size } => {
                let Some(rates) = &plan.rates else { return Err(foreign()) };
                let size = match size.strip_prefix("msg ") {
                    Some(bytes) => format!("--frames none -s {bytes}"),
                    None => format!("--frames {size}"),
                };
                let list = |values: Vec<String>| values.join(",");
                let load = match rates.load.is_empty() {
                    true => "none".to_owned(),
                    false => list(rates.load.iter().map(f64::to_string).collect()),
                };
                let link = list(plan.link.iter().map(u32::to_string).collect());
                let options = format!(
                    "ndr --json -c {service} {size} --searches 1 --time-ms {} --link {link} \
                     --load {load} --load-time-ms {}",
                    rates.trial_ms, rates.load_ms
                );
                pair(plan.ends, &words(&options)).and_then(|output| parse(&output.stdout))
            }
            Self::Latency { size, messages } => {
                tested(format!("send_lat -s {size} -n {messages} -m 4096"))
            }
            Self::Qps(count) => {
                let messages = (MESSAGES / count).max(MESSAGES_MIN);
                tested(format!("send_bw -s 8 -q {count} -n {messages} -l 16 -m 4096 -N"))
            }
            Self::Cores(pairs) => cores(*pairs, folder),
            Self::Loss => {
                let Some(loss) = &plan.loss else { return Err(foreign()) };
                let list: Vec<String> = loss.probabilities.iter().map(f64::to_string).collect();
                let options = format!(
                    "loss --json --runs 1 --time-ms {} --loss {} --plot {}",
                    plan.time_ms,
                    list.join(","),
                    folder.join("loss.svg").display()
                );
                alone(&words(&options))
            }
            Self::Failover(qps) => {
                let plot = folder.join("failover.svg");
                let options = format!("failover --json -q {qps} --plot {}", plot.display());
                alone(&words(&options))
            }
            Self::Uroce => {
                tested(format!("write_bw -s 65536 -t 32 -Q 8 -n {LARGE} -m 4096 -N --report_gbits"))
            }
            Self::Other(other) => stacks::measure(*other, plan.time_ms),
        }
    }
}

fn foreign() -> Missing {
    Missing::Failed("the plan has no such part".to_owned())
}

/// Returns this program with options. It ends with this process.
fn this(options: &[String]) -> Result<Command, Missing> {
    let program = std::env::current_exe()
        .map_err(|error| Missing::Failed(format!("finding this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(options).env("UROCE_PERF_ENDS_WITH", std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Runs a test that has both of its ends in one process anyway.
fn alone(options: &[String]) -> Result<Value, Missing> {
    let output = this(options)?.output().map_err(|error| Missing::Failed(error.to_string()))?;
    parse(&succeeded(output)?.stdout)
}

/// Runs both ends of a test. Returns the client's output.
fn pair(ends: Ends, options: &[String]) -> Result<Output, Missing> {
    let started = |error: std::io::Error| Missing::Failed(error.to_string());
    if ends == Ends::Rings {
        let options = [options, &["--in-process".to_owned()]].concat();
        return succeeded(this(&options)?.output().map_err(started)?);
    }
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let options = [options, &["-p".to_owned(), free.map_err(started)?.port().to_string()]].concat();
    let server = Server(this(&options)?.spawn().map_err(started)?);
    let client = [&options[..], &["localhost".to_owned()]].concat();
    let output = this(&client)?.output().map_err(started)?;
    drop(server);
    succeeded(output)
}

/// A server; killed when dropped, should it still run.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a pair of ends on each of several pairs of cores at the same time, and adds their rates.
fn cores(pairs: u32, folder: &Path) -> Result<Value, Missing> {
    let (cpus, needed) = (cpus(), 2 * pairs as usize);
    if needed > cpus.len() {
        let text = format!("{needed} CPUs are needed, there are {}", cpus.len());
        return Err(Missing::NotHere(text));
    }
    let started = |error: std::io::Error| Missing::Failed(error.to_string());
    let mut running = Vec::new();
    for (at, pair) in cpus.chunks_exact(2).take(pairs as usize).enumerate() {
        let file: PathBuf = folder.join(format!("pair-{at}.json"));
        let options = format!(
            "write_bw --in-process -s 65536 -t 32 -Q 8 -D {SECONDS} -m 4096 -N --report_gbits \
             --lcores {},{} --out_json_file {}",
            pair[0],
            pair[1],
            file.display()
        );
        let options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        running.push((Server(this(&options)?.spawn().map_err(started)?), file));
    }
    let mut gbps = 0.0;
    for (mut server, file) in running {
        let status = server.0.wait().map_err(started)?;
        if !status.success() {
            return Err(Missing::Failed(format!("a pair of ends: {status}")));
        }
        gbps += read(&file)?["results"]["BW_average"].as_f64().unwrap_or(0.0);
    }
    Ok(json!({ "gbps": gbps }))
}

/// Returns the output of a process that has succeeded, or the last line of its errors.
pub(super) fn succeeded(output: Output) -> Result<Output, Missing> {
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.map(|line| line.trim().trim_start_matches("uroce-perf: ").to_owned());
    let line = line.unwrap_or_else(|| output.status.to_string());
    Err(Missing::Failed(line))
}

/// Parses the last line of a program's output.
fn parse(bytes: &[u8]) -> Result<Value, Missing> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .map_err(|error| Missing::Failed(format!("its output is not JSON: {error}")))
}

fn read(file: &Path) -> Result<Value, Missing> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Missing::Failed(format!("{}: {error}", file.display())))?;
    serde_json::from_str(&text)
        .map_err(|error| Missing::Failed(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_every_point_of_the_plan_once() {
        let plan = Plan::read("full").expect("the full plan");
        let all = of_plan(&plan);
        let names: std::collections::BTreeSet<String> = all.iter().map(Work::name).collect();
        assert_eq!(names.len(), all.len(), "names differ");
        assert_eq!(all.len(), 3 * 13 + 9 + 6 + 6 + 1 + 2 + 1 + 3);
        assert!(matches!(Work::Cores(1000).make(&plan, Path::new("/")), Err(Missing::NotHere(_))));
    }

    #[test]
    fn the_cause_of_a_failure_is_its_last_line() {
        let run = |script: &str| {
            let output = Command::new("sh").args(["-c", script]).output().expect("a shell");
            succeeded(output).map(|_| ()).expect_err("a failure")
        };
        let Missing::Failed(text) = run("echo a >&2; echo cause >&2; exit 1") else { panic!() };
        assert_eq!(text, "cause");
        let Missing::Failed(text) = run("exit 3") else { panic!() };
        assert_eq!(text, "exit status: 3");
    }
}
