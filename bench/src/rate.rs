//! Pacing: how accurately queue pairs keep to their rates.
//!
//! For each rate WRITEs (for UD, SENDs) are sent for a while, with a few large messages in flight.
//! The rate of whole frames, from the first post to the last completion, is compared with the
//! requested one. 10 and 25 Gb/s are static rates of the path; 1 Gb/s has no code in the verbs and
//! is set as the queue pair's rate limit.
//!
//! Invariant: a rate that the machine does not exceed by a margin without a limit is reported as
//! not reached, and does not count in the verdict.

use crate::cli::RateArgs;
use crate::error::BenchError;
use crate::limits::PACKET_OVERHEAD;
use crate::machine::Machine;
use crate::node::Node;
use crate::perf::measure::median;
use crate::perf::plan::{Amount, Measure, Operation, Plan, Rate, Service};
use crate::perf::report::Row;
use crate::perf::traffic;
use crate::rendezvous::Link;
use serde_json::{Value, json};
use std::time::Duration;

/// Path MTU of all tests, and bytes of a message; a datagram is one packet.
const MTU: u32 = 4096;
const SIZE: u32 = 65536;
/// Bytes of a frame in addition to its payload. RETH is in a WRITE's first packet, DETH in every
/// datagram, XRCETH in every packet of XRC, RDETH and DETH in every packet of an RD request.
const FRAME: u32 = PACKET_OVERHEAD as u32;
const RETH: u32 = 16;
const DETH: u32 = 8;
const XRCETH: u32 = 4;
const RDETH: u32 = 4;
/// Messages in flight: a fraction of a millisecond at the usual rates.
const DEPTH: u32 = 8;
const DATAGRAMS: u32 = 64;
/// Factor by which a machine must be faster without a limit for a rate to count as reached.
const MARGIN: f64 = 1.1;
/// Largest relative error of a rate.
const TOLERANCE: f64 = 0.02;

/// Runs the subcommand.
pub(crate) fn run(args: &RateArgs) -> Result<(), BenchError> {
    if args.runs == 0 || args.time_ms == 0 || args.rates.iter().any(|rate| *rate <= 0.0) {
        return Err(BenchError::usage("--runs, --time-ms and --rates must be above 0"));
    }
    let [server, client] = Node::open_both(&args.device, None, 0)?;
    let plans: Vec<Plan> = plans(args).collect();
    let (mut far, mut near) = Link::pair()?;
    let (served, asked) = (plans.iter(), plans.iter());
    let serve = move || {
        served
            .map(|plan| traffic::run(&server, &mut far, plan, &mut |_| ()))
            .try_for_each(|outcome| outcome.map(|_| ()))
    };
    let ask = move || asked.map(|plan| measure(&client, &mut near, plan)).collect();
    let measured: Vec<f64> = crate::both_ends(serve, ask)?;
    let rows = rows(args, &plans, &measured);
    report(args, &rows, &measured);
    match rows.iter().find(|row| row.is_reached() && row.error().abs() > TOLERANCE) {
        None => Ok(()),
        Some(row) => Err(BenchError::Corrupt(format!(
            "{} Gb/s were requested and {:.3} sent",
            row.asked, row.sent
        ))),
    }
}

/// Returns the runs of all rates, those without a limit first.
fn plans(args: &RateArgs) -> impl Iterator<Item = Plan> + '_ {
    let (operation, size, depth) = match args.connection {
        Service::Ud => (Operation::Send, MTU, DATAGRAMS),
        Service::Rc | Service::Uc | Service::Xrc | Service::Rd => (Operation::Write, SIZE, DEPTH),
    };
    let rates = [Rate::Max].into_iter().chain(args.rates.iter().map(|gbps| limit(*gbps)));
    let runs = rates.flat_map(|rate| std::iter::repeat_n(rate, args.runs as usize));
    runs.map(move |rate| Plan {
        service: args.connection,
        sizes: vec![size],
        amount: Amount::Duration(Duration::from_millis(args.time_ms)),
        tx_depth: depth,
        cq_mod: Some(1),
        mtu: Some(MTU),
        rate,
        no_peak: true,
        ..Plan::new(operation, Measure::Bandwidth)
    })
}

/// Returns the static rate if the verbs have it, else the queue pair's rate limit.
fn limit(gbps: f64) -> Rate {
    let path = Rate::of_path(gbps * 1e3);
    match path.gbps() {
        Some(known) if known == gbps => path,
        _ => Rate::QueuePair((gbps * 1e6) as u32),
    }
}

/// Measures the rate of whole frames in Gb/s.
fn measure(client: &Node, link: &mut Link, plan: &Plan) -> Result<f64, BenchError> {
    let outcome = traffic::run(client, link, plan, &mut |_| ())?;
    let Some(Row::Bandwidth(row)) = outcome.rows.first() else { return Ok(0.0) };
    Ok(row.gbps() * f64::from(on_the_wire(plan)) / f64::from(plan.size_max()))
}

/// Returns the bytes of all frames of a message.
fn on_the_wire(plan: &Plan) -> u32 {
    let size = plan.size_max();
    let (each, first) = match plan.service {
        Service::Rc | Service::Uc => (0, RETH),
        Service::Ud => (0, DETH),
        Service::Xrc => (XRCETH, RETH),
        Service::Rd => (RDETH + DETH, RETH),
    };
    size + size.div_ceil(MTU) * (FRAME + each) + first
}

/// Results of one rate, in Gb/s.
struct Line {
    asked: f64,
    by: &'static str,
    sent: f64,
    least: f64,
    most: f64,
    /// Rate without a limit.
    capacity: f64,
}

impl Line {
    fn error(&self) -> f64 {
        self.sent / self.asked - 1.0
    }

    fn is_reached(&self) -> bool {
        self.capacity >= self.asked * MARGIN
    }
}

fn rows(args: &RateArgs, plans: &[Plan], measured: &[f64]) -> Vec<Line> {
    let runs = args.runs as usize;
    let capacity = median(&measured[..runs]);
    let limited = plans.chunks(runs).zip(measured.chunks(runs)).skip(1);
    limited
        .zip(&args.rates)
        .map(|((plans, sent), asked)| Line {
            asked: *asked,
            by: match plans[0].rate {
                Rate::QueuePair(_) => "rate limit",
                Rate::Max | Rate::Path(_) => "static rate",
            },
            sent: median(sent),
            least: sent.iter().copied().fold(f64::MAX, f64::min),
            most: sent.iter().copied().fold(0.0, f64::max),
            capacity,
        })
        .collect()
}

fn report(args: &RateArgs, rows: &[Line], measured: &[f64]) {
    let capacity = median(&measured[..args.runs as usize]);
    if args.json {
        println!("{}", value(args, rows, capacity));
        return;
    }
    let (service, time) = (args.connection.name(), args.time_ms);
    println!(" {service}, frames of {time} ms at a time; {capacity:.2} Gb/s without a limit");
    println!(" asked[Gb/s]  by             sent[Gb/s]   off[%]   least      most");
    for row in rows {
        let reached = if row.is_reached() { "" } else { "   beyond this machine" };
        println!(
            " {:<12} {:<14} {:<12.4} {:<+8.3} {:<10.4} {:.4}{reached}",
            row.asked,
            row.by,
            row.sent,
            100.0 * row.error(),
            row.least,
            row.most,
        );
    }
}

fn value(args: &RateArgs, rows: &[Line], capacity: f64) -> Value {
    let row = |row: &Line| {
        json!({
            "asked_gbps": row.asked,
            "by": row.by,
            "sent_gbps": row.sent,
            "off_percent": 100.0 * row.error(),
            "least_gbps": row.least,
            "most_gbps": row.most,
            "reached": row.is_reached(),
        })
    };
    json!({
        "service": args.connection.name(),
        "time_ms": args.time_ms,
        "runs": args.runs,
        "unlimited_gbps": capacity,
        "rates": rows.iter().map(row).collect::<Vec<Value>>(),
        "machine": Machine::this(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_paths_where_the_verbs_have_it() {
        assert_eq!(limit(1.0), Rate::QueuePair(1_000_000));
        assert_eq!(limit(10.0).gbps(), Some(10.0));
        assert!(matches!(limit(10.0), Rate::Path(_)) && matches!(limit(25.0), Rate::Path(_)));
    }

    #[test]
    fn a_message_counts_as_the_frames_that_it_is_cut_into() {
        let plan = Plan { sizes: vec![SIZE], ..Plan::new(Operation::Write, Measure::Bandwidth) };
        assert_eq!(on_the_wire(&plan), 65536 + 16 * 58 + 16);
        let xrc = Plan { service: Service::Xrc, ..plan.clone() };
        assert_eq!(on_the_wire(&xrc), 65536 + 16 * (58 + 4) + 16);
        let rd = Plan { service: Service::Rd, ..plan.clone() };
        assert_eq!(on_the_wire(&rd), 65536 + 16 * (58 + 12) + 16);
        let datagram = Plan { service: Service::Ud, sizes: vec![4096], ..plan };
        assert_eq!(on_the_wire(&datagram), 4096 + 58 + 8);
    }

    #[test]
    fn a_rate_beyond_the_machine_judges_nothing() {
        let line = |asked, sent, capacity| Line {
            asked,
            by: "static rate",
            sent,
            least: sent,
            most: sent,
            capacity,
        };
        assert!(line(10.0, 9.9, 20.0).is_reached() && !line(25.0, 20.0, 20.0).is_reached());
        assert!((line(10.0, 9.9, 20.0).error() + 0.01).abs() < 1e-9);
    }
}
