//! Connection set-ups per second, by the connection manager.
//!
//! A set-up creates a queue pair and connects it. It lasts from the client's call to create its
//! queue pair until that is in RTS after the server's reply; several are in progress at a time.
//! They are made in rounds. After a round its connections are disconnected and their queue pairs
//! destroyed, which does not count as set-up time.
//!
//! The server listens on the RDMA port with the number of the other tests' TCP port. No TCP
//! connection is used.
//!
//! Invariant: only established connections count, and one that fails ends the test.

use crate::cli::ConnectArgs;
use crate::error::{BenchError, Step};
use crate::machine::Machine;
use crate::node::Node;
use crate::perf::measure::{Latency, Quantiles, median};
use crate::pin::Side;
use crate::progress::{is_established, take_done};
use crate::qp_maker::QpMaker;
use serde_json::json;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uroce::Context;
use uroce::cm::{ConnectParam, Connection, Destination, Listener};

/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that may wait for the server.
const BACKLOG: u32 = 1024;
/// Interval at which the server drops connections that have ended.
const SWEEP: Duration = Duration::from_millis(20);

/// Runs the subcommand.
pub(crate) fn run(args: &ConnectArgs) -> Result<(), BenchError> {
    if args.connections == 0 || args.rounds == 0 || args.under_way == 0 {
        return Err(BenchError::usage("-n, --rounds and -j must be at least 1"));
    }
    match (&args.server, args.in_process) {
        (Some(server), _) => {
            let node = Node::open(&args.device, Side::Client, None, 0)?;
            report(args, &client(args, &node.context, *server)?)
        }
        (None, false) => {
            let node = Node::open(&args.device, Side::Server, None, 0)?;
            serve(&listen(args, &node.context)?, &node.context, || false)
        }
        (None, true) => both(args),
    }
}

/// Runs both ends, each on its own thread.
fn both(args: &ConnectArgs) -> Result<(), BenchError> {
    let [server, client_node] = Node::open_both(&args.device, None, 0)?;
    let listener = listen(args, &server.context)?;
    let address = SocketAddr::new(address_of(&server.context)?, args.port);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving =
            scope.spawn(|| serve(&listener, &server.context, || ended.load(Ordering::Acquire)));
        let measured = client(args, &client_node.context, address);
        ended.store(true, Ordering::Release);
        let served = crate::joined(serving);
        report(args, &measured?)?;
        served
    })
}

fn listen(args: &ConnectArgs, context: &Context) -> Result<Listener, BenchError> {
    let address = SocketAddr::new(address_of(context)?, args.port);
    Listener::bind(context, address, BACKLOG).step("listening")
}

/// The first address of a device's first port.
pub(crate) fn address_of(context: &Context) -> Result<IpAddr, BenchError> {
    let port = context.ports().into_iter().next();
    let gid = port.and_then(|port| port.gids.first().copied());
    gid.map(|gid| gid.to_ip()).ok_or_else(|| BenchError::usage("the port has no address"))
}

/// Accepts all requests until `ended`, and drops connections that have ended.
fn serve(
    listener: &Listener,
    context: &Context,
    ended: impl Fn() -> bool,
) -> Result<(), BenchError> {
    let maker = QpMaker::new(context)?;
    let mut connections: Vec<Connection> = Vec::new();
    let mut swept = Instant::now();
    while !ended() {
        if let Some(request) = listener.next(SWEEP) {
            let qp = maker.create()?;
            let accepted = request.accept(&qp, &ConnectParam::default());
            connections.push(accepted.step("accepting")?);
        }
        if swept.elapsed() >= SWEEP {
            connections.retain(is_alive);
            swept = Instant::now();
        }
    }
    Ok(())
}

fn is_alive(connection: &Connection) -> bool {
    while let Some(event) = connection.next_event(Duration::ZERO) {
        if event.is_end() {
            return false;
        }
    }
    true
}

/// Results of the client.
struct Measured {
    /// Set-ups per second, of each round.
    rates: Vec<f64>,
    /// Connections disconnected and destroyed per second, of each round.
    ends: Vec<f64>,
    /// Durations of the set-ups.
    latency: Quantiles,
}

fn client(
    args: &ConnectArgs,
    context: &Context,
    server: SocketAddr,
) -> Result<Measured, BenchError> {
    let (maker, mut latency) = (QpMaker::new(context)?, Latency::new());
    let (mut rates, mut ends) = (Vec::new(), Vec::new());
    // This resolves the server's Ethernet address before the measurement.
    round(args, &maker, server, 1, &mut Latency::new())?;
    for _ in 0..args.rounds {
        let begin = Instant::now();
        let made = round(args, &maker, server, args.connections, &mut latency)?;
        let rate = |begin: Instant| f64::from(args.connections) / begin.elapsed().as_secs_f64();
        rates.push(rate(begin));
        let begin = Instant::now();
        for connection in &made {
            connection.disconnect().step("disconnecting")?;
        }
        made.iter().try_for_each(await_end)?;
        ends.push(rate(begin));
    }
    Ok(Measured { rates, ends, latency: latency.quantiles(1.0) })
}

/// Makes `count` connections, with up to `-j` in progress at a time.
fn round(
    args: &ConnectArgs,
    maker: &QpMaker,
    server: SocketAddr,
    count: u32,
    latency: &mut Latency,
) -> Result<Vec<Connection>, BenchError> {
    let mut made = Vec::with_capacity(count as usize);
    let mut pending: VecDeque<(Instant, Connection)> = VecDeque::new();
    let mut begun = 0;
    while made.len() < count as usize {
        while begun < count && pending.len() < args.under_way as usize {
            let begin = Instant::now();
            let qp = maker.create()?;
            let to = Destination::to(server);
            let connection = Connection::begin(&qp, to, &ConnectParam::default());
            pending.push_back((begin, connection.step("connecting")?));
            begun += 1;
        }
        let is_done = |(_, connection): &(_, Connection), wait| is_established(connection, wait);
        take_done(&mut pending, PATIENCE, is_done, |(begin, connection)| {
            latency.record(begin.elapsed().as_nanos() as u64);
            made.push(connection);
        })?;
    }
    Ok(made)
}

fn await_end(connection: &Connection) -> Result<(), BenchError> {
    let (waiting, limit) = ("waiting for the end of a connection", PATIENCE);
    match connection.next_event(PATIENCE) {
        Some(_) => Ok(()),
        None => Err(BenchError::TimedOut { waiting, limit }),
    }
}

fn report(args: &ConnectArgs, measured: &Measured) -> Result<(), BenchError> {
    let Measured { rates, ends, latency } = measured;
    let (rate, end) = (median(rates), median(ends));
    if args.json {
        let value = json!({
            "setups_per_s": rate,
            "disconnects_per_s": end,
            "latency_median_us": latency.p50 / 1e3,
            "latency_p99_us": latency.p99 / 1e3,
            "connections": args.connections,
            "rounds": args.rounds,
            "under_way": args.under_way,
            "machine": Machine::this(),
        });
        println!("{value}");
        return Ok(());
    }
    println!(
        " {} connections, {} rounds, {} under way at a time",
        args.connections, args.rounds, args.under_way
    );
    println!(" set-ups[1/s]  disconnects[1/s]  t_typical[usec]  99%[usec]");
    println!(" {rate:<13.0} {end:<17.0} {:<16.1} {:.1}", latency.p50 / 1e3, latency.p99 / 1e3);
    Ok(())
}
