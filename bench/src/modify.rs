//! Round trip of Modify QP: an attribute of a queue pair is changed repeatedly, while its lcore is
//! idle and while it is under full load.
//!
//! ```text
//!   caller ── request ──► control-plane thread ── command ──► lcore     one CPU ║ the other
//!          ◄── answer ──                       ◄── reply  ──
//! ```
//!
//! One thread drives the lcores of both ends, so that on a machine with two CPUs the other CPU is
//! left for the caller and the control plane. Under load the thread is always busy, because it
//! sends and receives.
//!
//! Invariant: the modified queue pair is the one that carries the traffic, and each change differs
//! from the one before.

use crate::cli::{CpuList, DeviceArgs, ModifyArgs};
use crate::error::{BenchError, Step};
use crate::machine::Machine;
use crate::node::{Drive, Node, PORT};
use crate::perf::measure::{Bandwidth, Latency, Quantiles};
use crate::pin::{cpus, pin};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use uroce::{
    AccessFlags, CompletionQueue, ConnectOptions, MemoryRegion, QpChange, QpControl, QpInit,
    QueuePair, SendWr, WorkCompletion,
};

/// WRITEs in flight; one of [`SIGNALED`] makes a completion.
const DEPTH: u64 = 32;
const SIGNALED: u64 = 8;
/// Round trips at the beginning of each part that are not counted.
const WARM_UP: u32 = 20;

/// Phases of the driving thread.
const IDLE: u8 = 0;
const TRAFFIC: u8 = 1;
const END: u8 = 2;

/// Runs the subcommand.
pub(crate) fn run(args: &ModifyArgs) -> Result<(), BenchError> {
    if args.time_ms == 0 || args.size == 0 {
        return Err(BenchError::usage("--time-ms and -s must be at least 1"));
    }
    let (Some(&free), Some(&busy)) = (cpus().first(), cpus().last()) else {
        return Err(BenchError::usage("no CPU to run on"));
    };
    let device =
        DeviceArgs { lcores: Some(CpuList::Cpus(vec![busy, busy])), ..DeviceArgs::default() };
    let [server, client] = Node::open_both(&device, None, 0)?;
    let target = End::new(&server, args.size)?;
    let source = End::new(&client, args.size)?;
    let options = ConnectOptions::default();
    let ends = [&source, &target].map(|end| end.qp.endpoint(PORT, 0));
    let [here, there] = ends;
    let control = source.qp.control().clone();
    target.qp.control().connect(&here.step("our address")?, &options).step("connecting")?;
    control.connect(&there.step("our address")?, &options).step("connecting")?;
    let (phase, ready) = (AtomicU8::new(IDLE), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let traffic = Traffic { source, target };
            let result = Ok([client.drive()?, server.drive()?])
                .and_then(|drives| traffic.run(drives, &phase, &ready));
            // The measuring thread must not wait for this one any longer.
            ready.store(true, Ordering::Release);
            result
        });
        pin(free);
        let time = Duration::from_millis(args.time_ms);
        let result = measure(&control, time, &phase, &ready);
        phase.store(END, Ordering::Release);
        let traffic = crate::joined(driver)?;
        report(args, &result?, &traffic);
        Ok(())
    })
}

/// A queue pair, its completion queue and its memory.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    fn new(node: &Node, size: u32) -> Result<Self, BenchError> {
        let pd = node.context.allocate_pd();
        let memory = pd.allocate(size as usize, AccessFlags::all()).step("allocating memory")?;
        let cq = node.context.create_cq(2 * DEPTH as u32).step("creating a completion queue")?;
        let qp = pd.create_qp(&QpInit::new(&cq)).step("creating a queue pair")?;
        Ok(Self { qp, cq, memory })
    }
}

/// State of the driving thread.
struct Traffic {
    source: End,
    target: End,
}

impl Traffic {
    /// Drives both lcores until the end, and posts WRITEs in the traffic phase. Returns the
    /// bandwidth of that phase.
    fn run(
        mut self,
        mut drives: [Drive; 2],
        phase: &AtomicU8,
        ready: &AtomicBool,
    ) -> Result<Bandwidth, BenchError> {
        let slices = [self.source.memory.slice(..).step("a slice of memory")?];
        let write = SendWr::write(&slices, self.target.memory.remote());
        let mut completions = [WorkCompletion::default(); DEPTH as usize];
        let (mut posted, mut messages, mut begin) = (0, 0, None);
        ready.store(true, Ordering::Release);
        loop {
            let phase = phase.load(Ordering::Acquire);
            if phase == TRAFFIC {
                begin.get_or_insert_with(Instant::now);
                while posted - messages < DEPTH {
                    posted += 1;
                    let wr = write.id(posted);
                    let wr = if posted % SIGNALED == 0 { wr.signaled() } else { wr };
                    self.source.qp.post_send(&wr).step("posting")?;
                }
            }
            drives.iter_mut().for_each(Drive::turn);
            let count = self.source.cq.poll(&mut completions).step("polling a CQ")?;
            for completion in &completions[..count] {
                let failed = |status| BenchError::Completion { operation: "RDMA WRITE", status };
                completion.ok().map_err(failed)?;
                messages = completion.wr_id;
            }
            if phase == END {
                let elapsed = begin.map(|begin| begin.elapsed()).unwrap_or_default();
                let (size, elapsed_ns) = (slices[0].len() as u64, elapsed.as_nanos() as u64);
                return Ok(Bandwidth { messages, size, elapsed_ns, ..Bandwidth::default() });
            }
        }
    }
}

/// Measures round trips without traffic, then with it.
fn measure(
    control: &QpControl,
    time: Duration,
    phase: &AtomicU8,
    ready: &AtomicBool,
) -> Result<[Quantiles; 2], BenchError> {
    while !ready.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let idle = round_trips(control, time)?;
    phase.store(TRAFFIC, Ordering::Release);
    Ok([idle, round_trips(control, time)?])
}

fn round_trips(control: &QpControl, time: Duration) -> Result<Quantiles, BenchError> {
    let mut latency = Latency::new();
    let begin = Instant::now();
    for call in 0.. {
        let timer = Some(1 + (call % 30) as u8);
        let change = QpChange { min_rnr_timer: timer, ..QpChange::default() };
        let start = Instant::now();
        control.modify(&change, None).step("Modify QP")?;
        let end = Instant::now();
        if call >= WARM_UP {
            latency.record((end - start).as_nanos() as u64);
        }
        if call > WARM_UP && end - begin >= time {
            break;
        }
    }
    Ok(latency.quantiles(1.0))
}

fn report(args: &ModifyArgs, [idle, busy]: &[Quantiles; 2], traffic: &Bandwidth) {
    let gbps = traffic.gbps();
    if args.json {
        println!("{}", value(args, idle, busy, gbps));
        return;
    }
    println!(
        " Modify QP, round trip      #calls    t_min[usec]  t_typical[usec]  99%[usec]  t_max[usec]"
    );
    let traffic = format!("beside {gbps:.2} Gb/s of WRITE");
    for (beside, row) in [("lcore idle", idle), (&traffic, busy)] {
        println!(
            " {beside:<26} {:<9} {:<12.2} {:<16.2} {:<10.2} {:<.2}",
            row.count,
            row.min / 1e3,
            row.p50 / 1e3,
            row.p99 / 1e3,
            row.max / 1e3,
        );
    }
}

fn value(args: &ModifyArgs, idle: &Quantiles, busy: &Quantiles, gbps: f64) -> Value {
    let row = |row: &Quantiles| {
        json!({
            "calls": row.count,
            "min_us": row.min / 1e3,
            "median_us": row.p50 / 1e3,
            "p99_us": row.p99 / 1e3,
            "max_us": row.max / 1e3,
        })
    };
    json!({
        "idle": row(idle),
        "traffic": row(busy),
        "traffic_gbps": gbps,
        "size": args.size,
        "machine": Machine::this(),
    })
}
