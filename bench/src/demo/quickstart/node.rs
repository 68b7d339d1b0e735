//! A node: one end, or with rings both ends, in its own process.

use super::capacity;
use super::figures::{
    Figures, LARGE, MTU, Note, RATE_MANY, RATE_ONE, Test, WRITE, measurements, median_run,
    median_share, verifications,
};
use crate::cli::{DeviceArgs, NodeArgs, NodePart};
use crate::error::BenchError;
use crate::limits::{self, Limits, RawPort, Setting};
use crate::node::Node;
use crate::perf::report::Row;
use crate::perf::traffic;
use crate::pin::Side;
use crate::rendezvous::Link;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use uroce_engine::eal::Eal;
use uroce_engine::port::vdev::{MemifRole, memif};

/// Frames that a memif ring holds.
const RING: u32 = 1024;
/// MTU of the ports.
const PORT_MTU: u16 = 4200;

/// Runs the subcommand that the parent starts. An error is sent as a note.
pub(crate) fn run(args: &NodeArgs) -> Result<(), BenchError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| BenchError::io("PR_SET_PDEATHSIG", error.into()))?;
    let result = match args.part {
        NodePart::Ring => ring(args),
        NodePart::MemifServer => memif_end(args, Side::Server),
        NodePart::MemifClient => memif_end(args, Side::Client),
        NodePart::Qps => capacity::measure().map(|found| note(&Note::Opened(found))),
    };
    result.inspect_err(|error| note(&Note::Failed(error.to_string())))
}

/// Sends a note to the parent. If the parent has ended, this process ends, too.
fn note(note: &Note) {
    if let Ok(text) = serde_json::to_string(note) {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    }
}

fn setting(args: &NodeArgs) -> Setting {
    Setting { size: LARGE, mtu: MTU, time: Duration::from_millis(args.time_ms) }
}

/// Runs both ends in this process.
fn ring(args: &NodeArgs) -> Result<(), BenchError> {
    let [server, client] = Node::open_both(&DeviceArgs::default(), Some(MTU), 0)?;
    let (raw_client, raw_server) = RawPort::ring_pair("limits", &setting(args))?;
    let (mut far, mut near) = Link::pair()?;
    let serve = move || {
        let mut end = End { node: server, raw: raw_server, link: &mut far, many: true };
        end.serve(args)
    };
    let report = move || {
        let mut end = End { node: client, raw: raw_client, link: &mut near, many: true };
        end.report(args, "ring")
    };
    crate::both_ends(serve, report)
}

/// Runs one of two processes.
fn memif_end(args: &NodeArgs, side: Side) -> Result<(), BenchError> {
    let role = match side {
        Side::Server => MemifRole::Server,
        Side::Client => MemifRole::Client,
    };
    let socket = |name: &str| args.folder.join(name);
    let device = |index, name| memif(index, role, &socket(name), PORT_MTU, RING);
    let options = DeviceArgs { vdev: Some(device(0, "stack")), ..DeviceArgs::default() };
    let node = Node::open(&options, side, Some(MTU), 0)?;
    let eal = Eal::running().ok_or_else(|| BenchError::usage("EAL does not run"))?;
    let raw = RawPort::open_on(eal, device(1, "limits"), &setting(args))?;
    let mut link = exchange(side, &socket("exchange"))?;
    let mut end = End { node, raw, link: &mut link, many: false };
    match side {
        Side::Server => end.serve(args),
        Side::Client => end.report(args, "memif"),
    }
}

fn exchange(side: Side, path: &Path) -> Result<Link, BenchError> {
    match side {
        Side::Server => Link::accept_at(path),
        Side::Client => Link::connect_to(path),
    }
}

/// One end with its devices.
struct End<'a> {
    node: Node,
    raw: RawPort,
    link: &'a mut Link,
    /// Also measure many queue pairs.
    many: bool,
}

impl End<'_> {
    /// Runs the server's part of all tests.
    fn serve(&mut self, args: &NodeArgs) -> Result<(), BenchError> {
        self.raw.wait_for_link()?;
        for test in verifications() {
            self.test(&test)?;
        }
        for _ in 0..args.runs {
            for test in measurements(setting(args).time, self.many) {
                self.test(&test)?;
            }
            // Attached to this thread, the lcore of the stack is idle meanwhile.
            let _resting = self.node.drive()?;
            let result = limits::server(&mut self.raw, self.link, &setting(args));
            result.inspect_err(|error| self.link.send_failure(error))?;
        }
        Ok(())
    }

    /// Runs the client's part of all tests, and sends notes to the parent.
    fn report(&mut self, args: &NodeArgs, vdev: &str) -> Result<(), BenchError> {
        self.raw.wait_for_link()?;
        for test in verifications() {
            note(&Note::Begin(format!("{vdev}: {}, every byte verified", test.name)));
            let outcome = self.test(&test)?;
            note(&Note::Verified { bytes: outcome.verified_bytes.unwrap_or(0) });
        }
        let setting = setting(args);
        let tests = measurements(setting.time, self.many);
        let (mut rows, mut runs) = (vec![Vec::new(); tests.len()], Vec::new());
        let mut retransmissions = 0;
        for round in 1..=args.runs {
            for (test, rows) in tests.iter().zip(&mut rows) {
                note(&Note::Begin(format!("{vdev}, run {round}: {}", test.name)));
                let outcome = self.test(test)?;
                rows.extend(outcome.rows);
                retransmissions += outcome.retransmissions;
                note(&Note::Measured);
            }
            note(&Note::Begin(format!("{vdev}, run {round}: limits")));
            let _resting = self.node.drive()?;
            let result = limits::client(&mut self.raw, self.link, &setting);
            runs.push(result.inspect_err(|error| self.link.send_failure(error))?);
            note(&Note::Measured);
        }
        note(&Note::Done(Box::new(figures(&tests, &rows, &runs, retransmissions))));
        Ok(())
    }

    fn test(&mut self, test: &Test) -> Result<traffic::Outcome, BenchError> {
        let plan = test.plan.clone().checked()?;
        traffic::run(&self.node, self.link, &plan, &mut |_| ())
    }
}

/// Returns the median run of each test, by name.
fn figures(tests: &[Test], rows: &[Vec<Row>], limits: &[Limits], retransmissions: u64) -> Figures {
    let figure = |row: &Row| match row {
        Row::Bandwidth(row) => row.messages_per_second(),
        Row::Latency(_, row) => row.p50,
    };
    let rows_of = |name| {
        let rows = tests.iter().zip(rows).filter(move |(test, _)| test.name == name);
        rows.flat_map(|(_, rows)| rows)
    };
    let of = |name| rows_of(name).map(figure);
    let rooflines = limits.iter().map(|run| run.roofline_gbps * 1e9 / f64::from(8 * LARGE));
    let mut figures = Figures {
        limits: Limits::median(limits),
        roofline_share: median_share(of(WRITE), rooflines),
        many_qps_share: median_share(of(RATE_MANY), of(RATE_ONE)),
        retransmissions,
        ..Figures::default()
    };
    for name in names(tests) {
        let rows: Vec<Row> = rows_of(name).copied().collect();
        match median_run(&rows, figure) {
            Some(Row::Bandwidth(row)) => figures.bandwidth.push((name.to_owned(), row)),
            Some(Row::Latency(size, row)) => figures.latency.push((name.to_owned(), size, row)),
            None => (),
        }
    }
    figures
}

/// Returns each name once, in the order of the tests.
fn names(tests: &[Test]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for test in tests {
        if !names.contains(&test.name) {
            names.push(test.name);
        }
    }
    names
}
