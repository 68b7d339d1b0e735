//! Goodput on lossy links: WRITEs between two ends that each lose a share of what they receive.
//!
//! Runs of all probabilities take turns, so that a machine that becomes slower does not spoil one
//! of them alone. The share is that of the median goodput without loss.
//!
//! Not here: congestion, where losses come in bursts; links with a delay, which the simulator has.

mod report;

use crate::cli::{LossArgs, Peers};
use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use crate::perf::plan::{Amount, Measure, Operation, Plan};
use crate::perf::report::Row;
use crate::perf::traffic;
use crate::rendezvous::Link;
use report::{Point, Report};
use std::time::Duration;
use uroce::Context;
use uroce::config::LossConfig;

/// The way in which losses are repaired. Each is measured, and has its lines in the table and its
/// curve in the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// By what any RC peer understands: all packets after a lost one are sent again.
    Any,
    /// By selective repeat, between two ends of uroce: only lost packets are sent again.
    Own,
}

impl Mode {
    /// Returns the modes that are measured, in their order.
    fn of(peers: Peers) -> &'static [Mode] {
        match peers {
            Peers::Any => &[Mode::Any],
            Peers::Own => &[Mode::Own],
            Peers::Both => &[Mode::Any, Mode::Own],
        }
    }

    /// Returns the name, for tables.
    fn name(self) -> &'static str {
        match self {
            Mode::Any => "any",
            Mode::Own => "own",
        }
    }

    /// Returns the parameters of its runs.
    fn plan(self, args: &LossArgs) -> Plan {
        Plan {
            sizes: vec![args.size],
            amount: Amount::Duration(Duration::from_millis(args.time_ms)),
            mtu: Some(args.mtu),
            qp_timeout: args.ack_timeout,
            selective_repeat: self == Mode::Own,
            no_peak: true,
            ..Plan::new(Operation::Write, Measure::Bandwidth)
        }
    }
}

/// One run: a mode and a probability of loss, with the number of the round for the seed.
#[derive(Clone, Copy, Debug)]
struct Run {
    mode: Mode,
    loss: f64,
    round: u32,
}

/// Runs the subcommand.
pub(crate) fn run(args: &LossArgs) -> Result<(), BenchError> {
    let args = args.clone().checked()?;
    Mode::of(args.mode).iter().try_for_each(|mode| mode.plan(&args).checked().map(|_| ()))?;
    let [server, client] = Node::open_both(&args.device, Some(args.mtu), 0)?;
    let contexts = [server.context.clone(), client.context.clone()];
    let (mut far, mut near) = Link::pair()?;
    let serve = || {
        runs(&args).try_for_each(|run| {
            traffic::run(&server, &mut far, &run.mode.plan(&args), &mut |_| ()).map(|_| ())
        })
    };
    let ask = || {
        let mut points = points(&args);
        for (at, run) in runs(&args).enumerate() {
            // The server does not begin before the client has sent its plan.
            set_loss(&contexts, &run, args.device.seed.unwrap_or(0))?;
            let outcome = traffic::run(&client, &mut near, &run.mode.plan(&args), &mut |_| ())
                .map_err(|error| with_loss(run.loss, error))?;
            let count = points.len();
            let point = &mut points[at % count];
            if let Some(Row::Bandwidth(row)) = outcome.rows.first() {
                point.gbps.push(row.gbps());
            }
            point.retransmissions += outcome.retransmissions;
        }
        Ok(points)
    };
    let points = crate::both_ends(serve, ask)?;
    let report = Report { args: &args, points };
    report.draw()?;
    report.print();
    Ok(())
}

/// Adds the probability of loss to the error of a work request.
fn with_loss(loss: f64, error: BenchError) -> BenchError {
    match error {
        BenchError::Completion { .. } => BenchError::Lossy { loss, source: Box::new(error) },
        other => other,
    }
}

/// Returns all runs in their order: each round has every mode and probability once.
fn runs(args: &LossArgs) -> impl Iterator<Item = Run> + '_ {
    let round = move |round| {
        let modes = Mode::of(args.mode).iter();
        modes.flat_map(move |&mode| args.loss.iter().map(move |&loss| Run { mode, loss, round }))
    };
    (0..args.runs).flat_map(round)
}

/// Returns the points to be measured, in the order of the runs of a round.
fn points(args: &LossArgs) -> Vec<Point> {
    runs(args).take_while(|run| run.round == 0).map(|run| Point::new(run.mode, run.loss)).collect()
}

/// Sets the loss of what both ends receive.
fn set_loss(ends: &[Context; 2], run: &Run, seed: u64) -> Result<(), BenchError> {
    for (end, side) in ends.iter().zip(0..) {
        // Different at the two ends, and in each round.
        let seed = seed.wrapping_add(u64::from(2 * run.round + side));
        let loss = LossConfig { rx: run.loss, tx: 0.0, seed };
        end.set_loss(PORT, loss).step("setting the loss")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_that_were_used_up_name_the_loss_and_the_remedy() {
        let status = uroce::WcStatus::RetryExcErr;
        let error = with_loss(0.05, BenchError::Completion { operation: "RDMA WRITE", status });
        let text = error.to_string();
        assert!(text.starts_with("with a loss of 0.05 each way a work request"), "{text}");
        assert!(text.ends_with("a longer --ack-timeout lets retries wait longer"), "{text}");
        // The other end's failure must be told from its echo.
        assert!(matches!(with_loss(0.05, BenchError::PeerGone), BenchError::PeerGone));
    }
}
