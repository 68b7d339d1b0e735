//! `cmtime`: connections made and ended, and the time of each step.
//!
//! The client takes all connections through one step, then through the next, as the stock program
//! does. With `--one-by-one` it takes one connection through all steps, then the next. No message
//! is sent over them.

use super::{SETUP, destination, ends_within, init, linger, open, param, place, report};
use crate::cli::CmtimeArgs;
use crate::error::{BenchError, Step};
use crate::pin::Side;
use crate::qp_maker::QpMaker;
use crate::under_way::{is_established, take_done};
use serde_json::json;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use uroce::QueuePair;
use uroce::cm::{Connection, Listener};

/// Wait for the next request while there are connections.
const LOOK: Duration = Duration::from_millis(1);
/// Requests accepted before the connections are checked again.
const BATCH: usize = 32;
/// Requests that may wait. A stock client sends all its requests at once.
const BACKLOG: u32 = 4096;

/// Runs the subcommand.
pub(crate) fn run(args: &CmtimeArgs) -> Result<(), BenchError> {
    match args.server {
        Some(server) => client(args, server),
        None => serve(args),
    }
}

/// A connection and its queue pair.
type Both = (Connection, QueuePair);

/// Durations of one step.
struct Row {
    name: &'static str,
    total: Duration,
    longest: Duration,
    shortest: Duration,
}

impl Row {
    fn new(name: &'static str) -> Self {
        Self { name, total: Duration::ZERO, longest: Duration::ZERO, shortest: Duration::MAX }
    }

    fn count(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        self.shortest = self.shortest.min(took);
    }

    fn print(&self, connections: u32) {
        let (total, longest) = (self.total.as_secs_f64() * 1e3, self.longest.as_secs_f64() * 1e3);
        let (shortest, each) = (self.shortest.as_secs_f64() * 1e6, self.each(connections));
        println!("{:<13}: {total:>11.2} {longest:>10.2} {shortest:>10.2} {each:>10.2}", self.name);
    }

    /// Returns the microseconds per connection.
    fn each(&self, connections: u32) -> f64 {
        self.total.as_secs_f64() * 1e6 / f64::from(connections)
    }
}

fn client(args: &CmtimeArgs, server: IpAddr) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Client)?;
    let maker = QpMaker::new(&node.context)?;
    let mut rows = ["create qp", "connect", "disconnect", "destroy"].map(Row::new);
    let at_once = if args.one_by_one { 1 } else { args.connections };
    for _ in 0..args.connections / at_once {
        steps(&maker, args, server, at_once, &mut rows)?;
    }
    println!("step              total ms     max ms     min us  us / conn");
    rows.iter().for_each(|row| row.print(args.connections));
    if args.json {
        let each = rows.iter().map(|row| (row.name.to_owned(), json!(row.each(args.connections))));
        let more = json!({
            "connections": args.connections,
            "us_per_connection": each.collect::<serde_json::Map<_, _>>(),
        });
        report("cmtime", Side::Client, &node, more)?;
    }
    linger(&args.device);
    Ok(())
}

/// Takes `count` connections through all steps.
fn steps(
    maker: &QpMaker,
    args: &CmtimeArgs,
    server: IpAddr,
    count: u32,
    [create, connect, disconnect, destroy]: &mut [Row; 4],
) -> Result<(), BenchError> {
    let to = destination(server, args.port, args.bind);
    let mut qps = Vec::new();
    for_each(create, 0..count, |_| {
        qps.push(queue_pair(maker)?);
        Ok(())
    })?;
    let begin = Instant::now();
    let begun = qps.into_iter().map(|qp| {
        let begun = Instant::now();
        Ok(((Connection::begin(&qp, to, &param()).step("connecting")?, qp), begun))
    });
    let connections = await_all(connect, begin, begun, is_established)?;
    let begin = Instant::now();
    let begun = connections.into_iter().map(|both| {
        let begun = Instant::now();
        both.0.disconnect().step("disconnecting")?;
        Ok((both, begun))
    });
    let connections = await_all(disconnect, begin, begun, ends_within)?;
    for_each(destroy, connections, |both| {
        drop(both);
        Ok(())
    })
}

/// Waits for the end of a step that was started for each connection, and records its duration.
fn await_all(
    row: &mut Row,
    begin: Instant,
    begun: impl Iterator<Item = Result<(Both, Instant), BenchError>>,
    is_done: impl Fn(&Connection, Duration) -> Result<bool, BenchError>,
) -> Result<Vec<Both>, BenchError> {
    let mut under_way = begun.collect::<Result<VecDeque<_>, _>>()?;
    let mut done = Vec::with_capacity(under_way.len());
    while !under_way.is_empty() {
        let is_done = |(both, _): &(Both, _), wait| is_done(&both.0, wait);
        take_done(&mut under_way, SETUP, is_done, |(both, begun)| {
            row.count(begun.elapsed());
            done.push(both);
        })?;
    }
    row.total += begin.elapsed();
    Ok(done)
}

/// Does a step for each item, and records its duration.
fn for_each<T>(
    row: &mut Row,
    items: impl IntoIterator<Item = T>,
    mut step: impl FnMut(T) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let begin = Instant::now();
    for item in items {
        let begun = Instant::now();
        step(item)?;
        row.count(begun.elapsed());
    }
    row.total += begin.elapsed();
    Ok(())
}

fn serve(args: &CmtimeArgs) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Server)?;
    let maker = QpMaker::new(&node.context)?;
    let address = place(args.bind, args.port);
    let listener = Listener::bind(&node.context, address, BACKLOG).step("listening")?;
    println!("listening on {}", listener.local_addr());
    let (mut connections, mut over) = (Vec::new(), 0);
    while over < args.connections {
        for _ in 0..BATCH {
            let Some(request) = listener.next(LOOK) else { break };
            let qp = queue_pair(&maker)?;
            let connection = request.accept(&qp, &param()).step("accepting")?;
            connections.push((connection, qp));
        }
        let before = connections.len();
        connections.retain(|(connection, _)| !has_ended(connection));
        over += u32::try_from(before - connections.len()).unwrap_or(u32::MAX);
    }
    println!("{over} connections");
    if args.json {
        report("cmtime", Side::Server, &node, json!({ "connections": over }))?;
    }
    linger(&args.device);
    Ok(())
}

/// Tells whether a connection is over, for any reason.
fn has_ended(connection: &Connection) -> bool {
    while let Some(event) = connection.next_event(Duration::ZERO) {
        if event.is_end() {
            return true;
        }
    }
    false
}

/// Creates a queue pair in INIT with the smallest queues.
fn queue_pair(maker: &QpMaker) -> Result<QueuePair, BenchError> {
    let mut qp = maker.create()?;
    qp.init(&init()).step("taking the QP to INIT")?;
    Ok(qp)
}
