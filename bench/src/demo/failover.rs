//! Failover: a link is cut under traffic, and its queue pairs migrate to another link.
//!
//! ```text
//!   node "left"  port 1 ═══ link 1 ═══ port 1  node "right"      RC, armed with link 2
//!                port 2 ═══ link 2 ═══ port 2
//! ```
//!
//! Both nodes are in this process and their links are rings, so that both ends of a link go down at
//! the same time, and all times come from one clock. One thread drives the lcores of both nodes, so
//! that on a machine with two CPUs the other CPU is left for the control planes.
//!
//! A cut link loses every frame in both directions. With `--link-down` it also reports that it is
//! down, like a NIC with its cable pulled.
//!
//! Invariant: an acknowledgement is counted as received over the other link only if it was polled
//! in a turn that began after the cut was complete.

mod nodes;
mod report;
mod traffic;

use crate::cli::FailoverArgs;
use crate::error::{BenchError, Step};
use crate::pin::{cpus, pin};
use nodes::Nodes;
use report::Report;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use traffic::{End, Shape, Signals, Traffic};
use uroce::{Context, EventKind, EventSource, QpControl};

/// Largest number of bytes in flight, over all queue pairs.
const UNDER_WAY: u32 = 2 << 20;
/// Largest number of messages in flight of one queue pair.
const DEPTH_MAX: u32 = 32;
/// Longest wait for the migrations after a cut.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which events are polled.
const PAUSE: Duration = Duration::from_micros(100);

/// Runs the subcommand.
pub(crate) fn run(args: &FailoverArgs) -> Result<(), BenchError> {
    let args = args.clone().checked()?;
    let (Some(&free), Some(&busy)) = (cpus().first(), cpus().last()) else {
        return Err(BenchError::usage("no CPU to run on"));
    };
    let depth = (UNDER_WAY / args.size / args.qps).clamp(1, DEPTH_MAX);
    let shape = Shape { qps: args.qps, depth, size: args.size };
    let nodes = Nodes::open(shape)?;
    let [from, to] = [End::new(&nodes.left, shape)?, End::new(&nodes.right, shape)?];
    let controls = nodes.connect(&from, &to, &args)?;
    let (epoch, signals) = (Instant::now(), Signals::default());
    let report = std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            pin(busy);
            let adopt = |context: &Context| context.adopt_lcore(0).step("taking over the lcore");
            let drives = [adopt(&nodes.left)?, adopt(&nodes.right)?];
            Traffic::new(from, to, shape, epoch, &signals).run(drives)
        });
        pin(free);
        let witness =
            Witness { nodes: &nodes, qps: &controls, args: &args, epoch, signals: &signals };
        let seen = witness.cut();
        signals.stop.store(true, Ordering::Release);
        let tally = crate::joined(driver)?;
        let (cut, migrations) = seen?;
        let silences = nodes::silences(&controls[..args.qps as usize])?;
        Ok::<_, BenchError>(Report { args: &args, tally, cut, migrations, silences })
    })?;
    report.draw(&args.plot)?;
    if args.json {
        println!("{}", report.value());
    } else {
        report.print();
    }
    report.verdict()
}

/// Cuts the link and records the migrations.
struct Witness<'a> {
    nodes: &'a Nodes,
    /// Queue pairs of the left node, then of the right one.
    qps: &'a [QpControl],
    args: &'a FailoverArgs,
    epoch: Instant,
    signals: &'a Signals,
}

/// Time of the cut, and the times of each node's migrations.
type Seen = (Duration, [Vec<Duration>; 2]);

impl Witness<'_> {
    fn cut(&self) -> Result<Seen, BenchError> {
        let Nodes { left, right } = self.nodes;
        let before = Duration::from_millis(self.args.time_ms);
        nodes::await_armed(self.qps)?;
        std::thread::sleep(before);
        let early = self.take(left)?.len() + self.take(right)?.len();
        if early > 0 {
            return Err(BenchError::Corrupt(format!("{early} PATH_MIG before the cut")));
        }
        let cut = self.epoch.elapsed();
        self.nodes.cut(self.args.link_down)?;
        self.signals.cut_ns.store(self.epoch.elapsed().as_nanos() as u64, Ordering::Release);
        let mut seen = [Vec::new(), Vec::new()];
        let mut all = None;
        loop {
            seen[0].append(&mut self.take(left)?);
            seen[1].append(&mut self.take(right)?);
            let now = self.epoch.elapsed();
            if seen.iter().all(|times| times.len() >= self.args.qps as usize) {
                all.get_or_insert(now);
            }
            // Traffic goes on for a while after all queue pairs have migrated.
            if all.is_some_and(|all| now > all + before) || now > cut + PATIENCE {
                return Ok((cut, seen));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the times of a node's migrations since the last call.
    fn take(&self, context: &Context) -> Result<Vec<Duration>, BenchError> {
        let mut times = Vec::new();
        while let Some(event) = context.poll_async_event().step("taking events")? {
            if let (EventKind::PathMig, EventSource::QueuePair(_)) = (event.kind, event.source) {
                times.push(self.epoch.elapsed());
            }
        }
        Ok(times)
    }
}
