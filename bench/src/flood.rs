//! A flood of bad frames beside a healthy queue pair: its cost, and a check that it damages
//! nothing.
//!
//! ```text
//!   client ═══ ring ═══► server, port 1        WRITEs of the healthy queue pair
//!   flood  ═══ memif ══► server, port 2        bad frames, many of them for that same queue pair
//! ```
//!
//! Both ends are in this process. The server's one lcore polls both ports. The client's thread
//! sends the flood, one burst after each turn of its lcore, as fast as the link allows; the time
//! that this takes from the client counts as a cost of the flood. The test runs alternately without
//! and with the flood, and medians are compared. A last run verifies every byte during the flood.
//!
//! Invariant: the server counts every frame of the flood as dropped, by reason.

mod frames;

use crate::cli::{DeviceArgs, FloodArgs};
use crate::demo::quickstart::Folder;
use crate::error::{BenchError, Step};
use crate::limits::{RawPort, Setting};
use crate::machine::Machine;
use crate::node::{Background, Node};
use crate::perf::measure::median;
use crate::perf::plan::{Amount, Measure, Operation, Plan};
use crate::perf::report::Row;
use crate::perf::traffic::{self, Event};
use crate::rendezvous::Link;
use frames::Aim;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uroce::Context;
use uroce_engine::eal::Eal;
use uroce_engine::mbuf::MbufBatch;
use uroce_engine::port::vdev::{MemifRole, memif};

/// MTU of the ports; a path MTU of 4096 fits.
const PORT_MTU: u16 = 4200;
/// Frames that the flood's link holds.
const RING: u32 = 1024;
/// Address of the flooded port.
const ADDRESS: &str = "198.18.1.1/24";
/// Messages that are verified during the flood.
const VERIFIED: u64 = 500;
/// The server's counters of bad frames.
const DROPPED: [&str; 8] = [
    "rx_malformed",
    "rx_reserved_opcode",
    "rx_icrc_errors",
    "rx_not_for_us",
    "rx_unknown_qpn",
    "rx_wrong_source",
    "rx_wrong_service",
    "rx_qp_not_ready",
];

/// The bad frames and the port that sends them.
pub(crate) struct Flood {
    raw: RawPort,
    frames: Vec<Vec<u8>>,
    next: usize,
    batch: MbufBatch,
    open: bool,
    /// Number of frames sent.
    sent: u64,
}

impl Background for Flood {
    /// Sends a burst if the flood is on.
    fn after_turn(&mut self) {
        if !self.open || self.frames.is_empty() {
            return;
        }
        let had = self.batch.len();
        if self.raw.pool.alloc_burst(&mut self.batch, usize::MAX).is_ok() {
            for mbuf in &mut self.batch.as_mut_slice()[had..] {
                let frame = &self.frames[self.next];
                self.next = (self.next + 1) % self.frames.len();
                // Every frame is shorter than a buffer, so that this succeeds.
                if mbuf.set_len(frame.len()).is_ok() {
                    mbuf.as_mut_slice().copy_from_slice(frame);
                }
            }
        }
        self.sent += self.raw.queue.tx_burst(&mut self.batch) as u64;
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &FloodArgs) -> Result<(), BenchError> {
    if args.runs == 0 || args.time_ms == 0 {
        return Err(BenchError::usage("--runs and --time-ms must be at least 1"));
    }
    let folder = Folder::new()?;
    let socket = folder.path().join("flood");
    let port = memif(1, MemifRole::Server, &socket, PORT_MTU, RING);
    let [server, mut client] = Node::open_both_beside(&DeviceArgs::default(), &port, ADDRESS)?;
    let eal = Eal::running().ok_or_else(|| BenchError::usage("EAL does not run"))?;
    let setting = Setting { size: 4096, mtu: 4096, time: Duration::ZERO };
    let raw =
        RawPort::open_on(eal, memif(2, MemifRole::Client, &socket, PORT_MTU, RING), &setting)?;
    raw.wait_for_link()?;
    folder.remove();
    let aim = Aim::at(&server.context)?;
    let (frames, batch) = (Vec::new(), MbufBatch::new());
    let flood = Flood { raw, frames, next: 0, batch, open: false, sent: 0 };
    let flood = Arc::new(Mutex::new(flood));
    let background: Arc<Mutex<dyn Background>> = Arc::<Mutex<Flood>>::clone(&flood);
    client.background = Some(background);
    let counters = server.context.clone();
    let (mut far, mut near) = Link::pair()?;
    let plans = &plans(args);
    let serve = move || {
        plans.iter().try_for_each(|(plan, _)| {
            traffic::run(&server, &mut far, plan, &mut |_| ()).map(|_| ())
        })
    };
    let ask = move || {
        let mut test = Test { client, aim, flood, counters, report: Report::default() };
        plans.iter().try_for_each(|(plan, open)| test.run(&mut near, plan, *open))?;
        Ok(test.report)
    };
    let report = crate::both_ends(serve, ask)?;
    report.print(args);
    report.verdict()
}

/// Returns the test runs in order, each with its flag for the flood. The last one verifies.
fn plans(args: &FloodArgs) -> Vec<(Plan, bool)> {
    let mut plan = Plan::new(Operation::Write, Measure::Bandwidth);
    plan.sizes = vec![args.size];
    plan.tx_depth = 32;
    plan.cq_mod = Some(8);
    plan.amount = Amount::Duration(Duration::from_millis(args.time_ms));
    let verified = Plan { verify: true, amount: Amount::Iterations(VERIFIED), ..plan.clone() };
    let round = [(plan.clone(), false), (plan, true)];
    let rounds = (0..args.runs).flat_map(|_| round.clone());
    rounds.chain([(verified, true)]).collect()
}

/// State of the client.
struct Test {
    client: Node,
    aim: Aim,
    flood: Arc<Mutex<Flood>>,
    /// Counters of the server.
    counters: Context,
    report: Report,
}

impl Test {
    fn run(&mut self, link: &mut Link, plan: &Plan, open: bool) -> Result<(), BenchError> {
        let (flood, aim, dropped) = (&self.flood, &self.aim, dropped(&self.counters)?);
        let mut lock = flood.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lock.sent;
        drop(lock);
        let outcome = traffic::run(&self.client, link, plan, &mut |event| match event {
            Event::Connected(connected) => {
                let mut flood = flood.lock().unwrap_or_else(PoisonError::into_inner);
                flood.frames = frames::all(aim, &connected.remote[0]);
                flood.open = open;
            }
            Event::Row(_) => {
                flood.lock().unwrap_or_else(PoisonError::into_inner).open = false;
            }
            _ => (),
        })?;
        lock = flood.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = lock.sent - before;
        drop(lock);
        let report = &mut self.report;
        report.verified_bytes += outcome.verified_bytes.unwrap_or(0);
        if let (false, Some(Row::Bandwidth(row))) = (plan.verify, outcome.rows.first()) {
            if open { &mut report.flooded } else { &mut report.alone }.push(row.gbps());
            if open {
                // This includes the few frames that were sent while the ends waited for each other.
                report.rates.push(sent as f64 / row.elapsed_ns as f64 * 1e3);
            }
        }
        report.frames += sent;
        for (name, count) in self::dropped(&self.counters)? {
            let before = dropped.get(&name).and_then(Value::as_u64).unwrap_or(0);
            let grown = count.as_u64().unwrap_or(0) - before;
            let all = report.dropped.get(&name).and_then(Value::as_u64).unwrap_or(0);
            if all + grown > 0 {
                report.dropped.insert(name, (all + grown).into());
            }
        }
        Ok(())
    }
}

/// Returns the server's counters of bad frames, by name.
fn dropped(server: &Context) -> Result<Map<String, Value>, BenchError> {
    let counts = server.counters().step("reading counters")?;
    Ok(counts
        .iter()
        .filter(|count| DROPPED.contains(&count.name))
        .map(|count| (count.name.to_owned(), count.value.into()))
        .collect())
}

/// Results of all runs.
#[derive(Clone, Debug, Default)]
struct Report {
    /// Payload rate in Gb/s of each run, without the flood and with it.
    alone: Vec<f64>,
    flooded: Vec<f64>,
    /// Bad frames of each run, in millions per second.
    rates: Vec<f64>,
    /// Total number of bad frames.
    frames: u64,
    /// Frames that the server dropped, by reason.
    dropped: Map<String, Value>,
    verified_bytes: u64,
}

impl Report {
    fn share(&self) -> f64 {
        median(&self.flooded) / median(&self.alone).max(f64::MIN_POSITIVE)
    }

    fn value(&self, args: &FloodArgs) -> Value {
        json!({
            "alone_gbps": median(&self.alone),
            "flooded_gbps": median(&self.flooded),
            "flood_share": self.share(),
            "bad_frames_mpps": median(&self.rates),
            "bad_frames": self.frames,
            "dropped": self.dropped,
            "verified": self.verdict().is_ok(),
            "verified_bytes": self.verified_bytes,
            "size": args.size,
            "runs": args.runs,
            "machine": Machine::this(),
        })
    }

    fn print(&self, args: &FloodArgs) {
        if args.json {
            println!("{}", self.value(args));
            return;
        }
        println!(
            " RC WRITE of {} bytes: {:.2} Gb/s alone, {:.2} Gb/s beside {:.2} M bad frames a \
             second: {:.0} %",
            args.size,
            median(&self.alone),
            median(&self.flooded),
            median(&self.rates),
            100.0 * self.share(),
        );
        println!(" {} bad frames, dropped as {}", self.frames, Value::from(self.dropped.clone()));
        println!(" verified meanwhile: {} bytes of payload, each as sent", self.verified_bytes);
    }

    /// Returns an error unless there was a flood and all of it was dropped.
    fn verdict(&self) -> Result<(), BenchError> {
        let dropped: u64 = self.dropped.values().filter_map(Value::as_u64).sum();
        // Frames still in flight are not counted yet.
        let on_the_way = 2 * u64::from(RING);
        if self.frames > 0 && dropped + on_the_way >= self.frames {
            return Ok(());
        }
        let sent = self.frames;
        Err(BenchError::Corrupt(format!("of {sent} bad frames only {dropped} were dropped")))
    }
}
