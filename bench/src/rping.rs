//! `rping`: the client offers its memory, the server reads it and writes it back.
//!
//! The work of rdmacm-utils' program of this name, over the Rust interface. The other end may be
//! that program, or this one. [`connection`] has the connections, [`ping`] the messages, [`text`]
//! the data. A server ends with its client; a persistent one goes on, with a thread per client.

mod completions;
mod connection;
mod ping;
mod text;

use crate::cli::RpingArgs;
use crate::error::{BenchError, Step};
use crate::node::Node;
use crate::pin::Side;
use connection::{SETUP, disconnect, init, linger, open, param, place, report, wait_until_ended};
use ping::Ping;
use serde_json::json;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uroce::ProtectionDomain;
use uroce::cm::{CmError, ConnectRequest, Connection, Destination, Listener};

/// Clients that may wait.
const BACKLOG: u32 = 128;
/// Interval at which a server checks whether it has served all clients.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the subcommand.
pub(crate) fn run(args: &RpingArgs) -> Result<(), BenchError> {
    match args.address {
        Some(server) if args.client => client(args, server),
        _ => serve(args),
    }
}

/// Results of a server's connections.
#[derive(Default)]
struct Tally {
    /// Connections that were established.
    clients: u32,
    /// Connections that were not established, or ended with an error.
    failed: u32,
    pings: u64,
}

fn client(args: &RpingArgs, server: IpAddr) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Client)?;
    let pd = node.context.allocate_pd();
    let mut ping = prepare(&node, &pd, args)?;
    let to = Destination::to(SocketAddr::new(server, args.port));
    let connection = Connection::connect(ping.qp(), to, &param(), SETUP).step("connecting")?;
    let mut number = 0;
    while args.count == 0 || number < args.count {
        let Some(said) = ping.ping(number, args.validate)? else { break };
        show(args, "", &said);
        number += 1;
    }
    if args.count > 0 && number < args.count {
        return Err(BenchError::Peer(format!("it disconnected after {number} pings")));
    }
    ping.settle()?;
    disconnect(&connection)?;
    if args.json {
        report(Side::Client, &node, json!({ "pings": number, "verified": args.validate }))?;
    }
    linger(&args.device);
    Ok(())
}

fn serve(args: &RpingArgs) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Server)?;
    let pd = node.context.allocate_pd();
    let address = place(args.address, args.port);
    let listener = Listener::bind(&node.context, address, BACKLOG).step("listening")?;
    println!("listening on {}", listener.local_addr());
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        while !served_all(args, &tally) {
            let Some(request) = listener.next(LOOK) else { continue };
            let (node, pd, tally) = (&node, &pd, &tally);
            scope.spawn(move || attend(node, pd, args, request, tally));
        }
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    if args.json {
        let Tally { clients, failed, pings } = tally;
        let more = json!({
            "pings": pings, "clients": clients, "failed": failed, "verified": args.validate,
        });
        report(Side::Server, &node, more)?;
    }
    linger(&args.device);
    if tally.failed > 0 && !args.persistent {
        return Err(BenchError::Peer("see above".to_owned()));
    }
    Ok(())
}

/// Tells whether the server waits for no further client.
fn served_all(args: &RpingArgs, tally: &Mutex<Tally>) -> bool {
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    if args.persistent {
        args.clients > 0 && tally.clients >= args.clients
    } else {
        tally.clients + tally.failed > 0
    }
}

/// Serves one client from its request to its end, and prints its error if there is one.
fn attend(
    node: &Node,
    pd: &ProtectionDomain,
    args: &RpingArgs,
    request: ConnectRequest,
    tally: &Mutex<Tally>,
) {
    let peer = request.peer_addr();
    let mut pings = None;
    let outcome = pong(node, pd, args, request, tally, &mut pings);
    if let Err(error) = &outcome {
        eprintln!("uroce-perf: client {peer}: {error}");
    }
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    tally.clients += u32::from(pings.is_some());
    tally.failed += u32::from(outcome.is_err());
    tally.pings += pings.unwrap_or(0);
}

/// Runs one client's connection. `pings` is set once it is established.
fn pong(
    node: &Node,
    pd: &ProtectionDomain,
    args: &RpingArgs,
    request: ConnectRequest,
    tally: &Mutex<Tally>,
    pings: &mut Option<u64>,
) -> Result<(), BenchError> {
    let mut ping = prepare(node, pd, args)?;
    let connection = request.accept(ping.qp(), &param()).step("accepting")?;
    establish(&connection, args, tally)?;
    let number = pings.insert(0);
    while let Some(said) = ping.pong(*number, args.validate)? {
        show(args, "server ", &said);
        *number += 1;
    }
    wait_until_ended(&connection)
}

/// Waits until a client is connected, or the server waits for no further client.
fn establish(
    connection: &Connection,
    args: &RpingArgs,
    tally: &Mutex<Tally>,
) -> Result<(), BenchError> {
    let end = Instant::now() + SETUP;
    loop {
        match connection.wait_established(LOOK) {
            Err(CmError::TimedOut) if Instant::now() < end && !served_all(args, tally) => {}
            result => return result.step("accepting"),
        }
    }
}

/// Creates a queue pair with its receives posted.
fn prepare(node: &Node, pd: &ProtectionDomain, args: &RpingArgs) -> Result<Ping, BenchError> {
    let cq = node.context.create_cq(Ping::completions()).step("creating a CQ")?;
    let mut ping = Ping::new(pd, cq, args.size as usize)?;
    ping.qp().init(&init()).step("taking the QP to INIT")?;
    ping.post_receives()?;
    Ok(ping)
}

/// Prints a ping's data as the stock program does. Standard output may be closed.
fn show(args: &RpingArgs, who: &str, said: &str) {
    if args.print {
        let _ = writeln!(std::io::stdout(), "{who}ping data: {said}");
    }
}
