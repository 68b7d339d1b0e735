//! Rate of WRITEs against the number of memory regions that they go to: what it costs when the keys
//! that packets name are many.
//!
//! One thread drives the lcores of both ends, which are joined by rings. Each message goes to
//! another region, in an order without a pattern that a processor could guess, until all regions
//! had one; then the order begins anew.

use crate::cli::{DeviceArgs, RegionsArgs};
use crate::error::{BenchError, Step};
use crate::machine::Machine;
use crate::node::{Drive, Node, PORT};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uroce::{
    AccessFlags, ConnectOptions, MemoryRegion, ProtectionDomain, QpInit, RemoteBuffer, SendWr,
    WorkCompletion,
};

/// WRITEs in flight; one of [`SIGNALED`] makes a completion.
const DEPTH: u64 = 32;
const SIGNALED: u64 = 8;

/// Runs the subcommand.
pub(crate) fn run(args: &RegionsArgs) -> Result<(), BenchError> {
    if args.time_ms == 0 {
        return Err(BenchError::usage("--time-ms must be at least 1"));
    }
    if !args.json {
        println!(" WRITEs of {} B to    #regions   M/s        registering[usec]", args.size);
    }
    let mut points = Vec::new();
    for &count in &args.counts {
        let point = point(count, args)?;
        if !args.json {
            let Point { rate, register_us } = point;
            println!("                      {count:<10} {:<10.3} {register_us:<.2}", rate / 1e6);
        }
        points.push(json!({
            "regions": count,
            "messages_per_s": point.rate,
            "register_us": point.register_us,
        }));
    }
    if args.json {
        println!("{}", value(args, points));
    }
    Ok(())
}

fn value(args: &RegionsArgs, points: Vec<Value>) -> Value {
    json!({
        "test": "regions",
        "operation": "RDMA_WRITE",
        "size": args.size,
        "points": points,
        "machine": Machine::this(),
    })
}

/// Figures of a number of regions.
struct Point {
    /// Messages per second.
    rate: f64,
    /// Time to register a region, with its memory.
    register_us: f64,
}

fn point(count: u32, args: &RegionsArgs) -> Result<Point, BenchError> {
    let [server, client] = Node::open_both(&DeviceArgs::default(), None, 0)?;
    let pd = server.context.allocate_pd();
    let begin = Instant::now();
    let regions = register(&pd, count, args.size)?;
    let register_us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(count);
    let remotes: Vec<RemoteBuffer> = order(count).map(|at| regions[at].remote()).collect();
    let rate = rate([&server, &client], &pd, &remotes, args)?;
    Ok(Point { rate, register_us })
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

/// Returns the messages per second over a connection.
fn rate(
    [server, client]: [&Node; 2],
    target_pd: &ProtectionDomain,
    remotes: &[RemoteBuffer],
    args: &RegionsArgs,
) -> Result<f64, BenchError> {
    let pd = client.context.allocate_pd();
    let memory = pd.allocate(args.size as usize, AccessFlags::all()).step("allocating memory")?;
    let cq = client.context.create_cq(2 * DEPTH as u32).step("creating a completion queue")?;
    let far_cq = server.context.create_cq(1).step("creating a completion queue")?;
    let mut qp = pd.create_qp(&QpInit::new(&cq)).step("creating a queue pair")?;
    let target = target_pd.create_qp(&QpInit::new(&far_cq)).step("creating a queue pair")?;
    let [here, there] = [&qp, &target].map(|qp| qp.endpoint(PORT, 0).step("our address"));
    let options = ConnectOptions::default();
    target.control().connect(&here?, &options).step("connecting")?;
    qp.control().connect(&there?, &options).step("connecting")?;
    let mut drives = [client.drive()?, server.drive()?];
    let local = [memory.slice(..).step("a slice of memory")?];
    let mut completions = [WorkCompletion::default(); DEPTH as usize];
    let (begin, time) = (Instant::now(), Duration::from_millis(args.time_ms));
    let (mut posted, mut done) = (0u64, 0u64);
    // All regions are written to at least once, however short the time is.
    while begin.elapsed() < time || done < remotes.len() as u64 {
        while posted - done < DEPTH {
            let remote = remotes[(posted % remotes.len() as u64) as usize];
            posted += 1;
            let request = SendWr::write(&local, remote).id(posted);
            let asked = posted.is_multiple_of(SIGNALED);
            let request = if asked { request.signaled() } else { request };
            qp.post_send(&request).step("posting")?;
        }
        drives.iter_mut().for_each(Drive::turn);
        let count = cq.poll(&mut completions).step("polling a CQ")?;
        for completion in &completions[..count] {
            let failed = |status| BenchError::Completion { operation: "RDMA WRITE", status };
            completion.ok().map_err(failed)?;
            done = completion.wr_id;
        }
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_region_has_its_turn() {
        for count in [1, 2, 7, 64, 1000, 65_536] {
            let mut all: Vec<usize> = order(count).collect();
            let ascending = all.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(ascending <= all.len() / 2, "{count}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count as usize), "{count}");
        }
    }

    #[test]
    fn every_region_is_written_to() {
        let [server, client] = Node::open_both(&DeviceArgs::default(), None, 0).expect("two ends");
        let pd = server.context.allocate_pd();
        let regions = register(&pd, 5000, 64).expect("regions");
        let remotes: Vec<RemoteBuffer> = order(5000).map(|at| regions[at].remote()).collect();
        regions.iter().for_each(|region| region.fill(.., 0x11).expect("filled"));
        let args = RegionsArgs { counts: vec![], size: 64, time_ms: 1, json: true };
        assert!(rate([&server, &client], &pd, &remotes, &args).expect("a rate") > 0.0);
        // The source is fresh memory, which is 0.
        let untouched = regions.iter().filter(|region| region.load_u8(63).expect("a byte") != 0);
        assert_eq!(untouched.count(), 0);
    }
}
