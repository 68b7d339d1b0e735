//! Rate of WRITEs against the number of queue pairs that they leave by, and of memory regions that
//! they go to: what it costs when states and keys are many.
//!
//! One thread drives the lcores of both ends, which are joined by rings. Each message takes another
//! queue pair, or goes to another region, in an order without a pattern that a processor could
//! guess, until all had one; then the order begins anew.

use crate::cli::{DeviceArgs, ScaleArgs};
use crate::error::{BenchError, Step};
use crate::machine::Machine;
use crate::node::{Drive, Node, PORT};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uroce::{
    AccessFlags, CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain, QpCaps, QpInit,
    QueuePair, RemoteBuffer, SendWr, WorkCompletion,
};

/// WRITEs in flight.
const DEPTH: u64 = 32;
/// Messages for a completion, on one queue pair. On several each message asks for one.
const SIGNALED: u64 = 8;
/// Queue pairs of a device beside those that are measured.
const SPARE: u32 = 16;

/// Runs the subcommand.
pub(crate) fn run(args: &ScaleArgs) -> Result<(), BenchError> {
    if args.time_ms == 0 {
        return Err(BenchError::usage("--time-ms must be at least 1"));
    }
    if !args.json {
        println!(" WRITEs of {} B     #number    M/s        making[usec]", args.size);
    }
    let qps = args.qps.iter().map(|&count| Many { qps: count, regions: 1 });
    let regions = args.regions.iter().map(|&count| Many { qps: 1, regions: count });
    let mut points = Vec::new();
    for (what, many) in qps.map(|many| ("qps", many)).chain(regions.map(|many| ("regions", many))) {
        let Point { rate, making_us } = point(many, args)?;
        let count = many.qps.max(many.regions);
        if !args.json {
            let what = if what == "qps" { "queue pairs" } else { "regions" };
            println!(" {what:<18} {count:<10} {:<10.3} {making_us:<.2}", rate / 1e6);
        }
        points.push(json!({
            what: count,
            "messages_per_s": rate,
            "making_us": making_us,
        }));
    }
    if args.json {
        println!("{}", value(args, points));
    }
    Ok(())
}

fn value(args: &ScaleArgs, points: Vec<Value>) -> Value {
    json!({
        "test": "scale",
        "operation": "RDMA_WRITE",
        "size": args.size,
        "points": points,
        "machine": Machine::this(),
    })
}

/// Numbers of queue pairs and of regions.
#[derive(Clone, Copy, Debug)]
struct Many {
    qps: u32,
    regions: u32,
}

/// Figures of a number of queue pairs or regions.
struct Point {
    /// Messages per second.
    rate: f64,
    /// Time to make a connected pair of queue pairs, or a region with its memory.
    making_us: f64,
}

fn point(many: Many, args: &ScaleArgs) -> Result<Point, BenchError> {
    let [server, client] = Node::open_both_for(&DeviceArgs::default(), many.qps + SPARE)?;
    let pd = server.context.allocate_pd();
    let begin = Instant::now();
    let regions = register(&pd, many.regions, args.size)?;
    let registering = begin.elapsed();
    let begin = Instant::now();
    let mut client = Client::connect([&server, &client], &pd, many.qps, args.size)?;
    let making = if many.qps > 1 { begin.elapsed() } else { registering };
    let making_us = making.as_secs_f64() * 1e6 / f64::from(many.qps.max(many.regions));
    let remotes: Vec<RemoteBuffer> = order(many.regions).map(|at| regions[at].remote()).collect();
    let rate = client.rate(&remotes, Duration::from_millis(args.time_ms))?;
    Ok(Point { rate, making_us })
}

fn register(pd: &ProtectionDomain, count: u32, size: u32) -> Result<Vec<MemoryRegion>, BenchError> {
    let one = |_| pd.allocate(size as usize, AccessFlags::all()).step("registering memory");
    (0..count).map(one).collect()
}

/// Returns all numbers below `count`, each once: steps of a prime that does not divide it.
fn order(count: u32) -> impl Iterator<Item = usize> {
    let count = u64::from(count);
    let step = [0x9e37_79b1u64, 0x85eb_ca77].into_iter().find(|step| !count.is_multiple_of(*step));
    let step = step.unwrap_or(1);
    (0..count).map(move |at| (at * step % count) as usize)
}

/// Queue pairs of both ends, connected, and the hold on both lcores, which is given back first: the
/// lcores' own threads then serve what the rest asks for on its way out.
struct Client {
    drives: [Drive; 2],
    qps: Vec<QueuePair>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// The server's end.
    _targets: Vec<QueuePair>,
}

impl Client {
    fn connect(
        [server, client]: [&Node; 2],
        target_pd: &ProtectionDomain,
        count: u32,
        size: u32,
    ) -> Result<Self, BenchError> {
        let pd = client.context.allocate_pd();
        let memory = pd.allocate(size as usize, AccessFlags::all()).step("allocating memory")?;
        let cq = client.context.create_cq(2 * DEPTH as u32).step("creating a completion queue")?;
        let far_cq = server.context.create_cq(1).step("creating a completion queue")?;
        // A queue pair has its next turn before the last of many completes, seldom.
        let max_send_wr = if count == 1 { DEPTH as u32 } else { 4 };
        let caps = QpCaps {
            max_send_wr,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let (mut qps, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let qp = pd.create_qp(&QpInit { caps, ..QpInit::new(&cq) });
            let qp = qp.step("creating a queue pair")?;
            let target = target_pd.create_qp(&QpInit { caps, ..QpInit::new(&far_cq) });
            let target = target.step("creating a queue pair")?;
            let [here, there] = [&qp, &target].map(|qp| qp.endpoint(PORT, 0).step("our address"));
            let options = ConnectOptions::default();
            target.control().connect(&here?, &options).step("connecting")?;
            qp.control().connect(&there?, &options).step("connecting")?;
            qps.push(qp);
            targets.push(target);
        }
        let drives = [client.drive()?, server.drive()?];
        Ok(Self { drives, qps, cq, memory, _targets: targets })
    }

    /// Returns the messages per second in `time`, or longer until each queue pair and each region
    /// had a message.
    fn rate(&mut self, remotes: &[RemoteBuffer], time: Duration) -> Result<f64, BenchError> {
        let Self { drives, qps, cq, memory, .. } = self;
        let local = [memory.slice(..).step("a slice of memory")?];
        let ways: Vec<usize> = order(qps.len() as u32).collect();
        let fewest = qps.len().max(remotes.len()) as u64;
        let signaled = if qps.len() == 1 { SIGNALED } else { 1 };
        let depth = DEPTH.min(if qps.len() == 1 { DEPTH } else { qps.len() as u64 });
        let mut completions = [WorkCompletion::default(); DEPTH as usize];
        let begin = Instant::now();
        let (mut posted, mut done) = (0u64, 0u64);
        while begin.elapsed() < time || done < fewest {
            while posted - done < depth {
                let qp = &mut qps[ways[(posted % ways.len() as u64) as usize]];
                let remote = remotes[(posted % remotes.len() as u64) as usize];
                let request = SendWr::write(&local, remote).id(posted + 1);
                let asked = (posted + 1).is_multiple_of(signaled);
                let request = if asked { request.signaled() } else { request };
                qp.post_send(&request).step("posting")?;
                posted += 1;
            }
            drives.iter_mut().for_each(Drive::turn);
            let count = cq.poll(&mut completions).step("polling a CQ")?;
            for completion in &completions[..count] {
                let failed = |status| BenchError::Completion { operation: "RDMA WRITE", status };
                completion.ok().map_err(failed)?;
            }
            done += count as u64 * signaled;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_has_its_turn() {
        for count in [1, 2, 7, 64, 1000, 65_536] {
            let mut all: Vec<usize> = order(count).collect();
            let ascending = all.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(ascending <= all.len() / 2, "{count}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count as usize), "{count}");
        }
    }

    #[test]
    fn every_region_is_written_to_by_whatever_number_of_queue_pairs() {
        for many in [Many { qps: 1, regions: 5000 }, Many { qps: 300, regions: 300 }] {
            let [server, client] =
                Node::open_both_for(&DeviceArgs::default(), many.qps + SPARE).expect("two ends");
            let pd = server.context.allocate_pd();
            let regions = register(&pd, many.regions, 64).expect("regions");
            let remotes: Vec<RemoteBuffer> =
                order(many.regions).map(|at| regions[at].remote()).collect();
            regions.iter().for_each(|region| region.fill(.., 0x11).expect("filled"));
            let mut client =
                Client::connect([&server, &client], &pd, many.qps, 64).expect("connected");
            assert!(client.rate(&remotes, Duration::from_millis(1)).expect("a rate") > 0.0);
            // The source is fresh memory, which is 0.
            let untouched =
                regions.iter().filter(|region| region.load_u8(63).expect("a byte") != 0);
            assert_eq!(untouched.count(), 0, "{many:?}");
        }
    }
}
