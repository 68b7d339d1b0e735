//! `ucmatose`: messages over RC connections, first the server's, then the client's. Then the server
//! disconnects.

use super::messages::Messages;
use super::{SETUP, destination, init, linger, open, param, place, report, wait_until_ended};
use crate::cli::MessageArgs;
use crate::error::{BenchError, Step};
use crate::node::Node;
use crate::pin::Side;
use serde_json::json;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uroce::cm::{Connection, Listener};
use uroce::{ProtectionDomain, QpType};

/// Default port of the server.
const PORT: u16 = 7471;
/// Clients that may wait.
const BACKLOG: u32 = 128;
/// Interval at which a server with all its connections checks whether they are done.
const LOOK: Duration = Duration::from_millis(50);

/// A connection and its messages.
struct Line {
    connection: Connection,
    messages: Messages,
}

/// Runs the subcommand.
pub(crate) fn run(args: &MessageArgs) -> Result<(), BenchError> {
    match args.server {
        Some(server) => client(args, server),
        None => serve(args),
    }
}

fn client(args: &MessageArgs, server: IpAddr) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Client)?;
    let pd = node.context.allocate_pd();
    let mut lines = Vec::new();
    for _ in 0..args.connections {
        let mut messages = prepare(&node, &pd, args)?;
        let to = destination(server, args.port.unwrap_or(PORT), args.bind);
        let connection = Connection::begin(messages.qp(), to, &param()).step("connecting")?;
        lines.push(Line { connection, messages });
    }
    for line in &lines {
        line.connection.wait_established(SETUP).step("connecting")?;
    }
    for line in &mut lines {
        line.messages.receive()?;
    }
    send(&mut lines)?;
    for line in &lines {
        wait_until_ended(&line.connection)?;
    }
    finish(args, &node, Side::Client)
}

fn serve(args: &MessageArgs) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Server)?;
    let pd = node.context.allocate_pd();
    let address = place(args.bind, args.port.unwrap_or(PORT));
    let listener = Listener::bind(&node.context, address, BACKLOG).step("listening")?;
    println!("listening on {}", listener.local_addr());
    let mut lines = Vec::new();
    while lines.len() < args.connections as usize {
        let Some(request) = listener.next(SETUP) else { continue };
        let mut messages = prepare(&node, &pd, args)?;
        let connection = request.accept(messages.qp(), &param()).step("accepting")?;
        lines.push(Line { connection, messages });
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| refuse_more(&listener, &done));
        let outcome = converse(&mut lines);
        done.store(true, Ordering::Relaxed);
        outcome
    })?;
    finish(args, &node, Side::Server)
}

/// Rejects further requests until all connections are done.
fn refuse_more(listener: &Listener, done: &AtomicBool) {
    loop {
        let Some(request) = listener.next(LOOK) else {
            if done.load(Ordering::Relaxed) {
                return;
            }
            continue;
        };
        let peer = request.peer_addr();
        match request.reject(&[]) {
            Ok(()) => println!("rejected {peer}: no more connections"),
            Err(error) => eprintln!("uroce-perf: rejecting {peer}: {error}"),
        }
    }
}

/// Runs the server's part once all connections are made.
fn converse(lines: &mut [Line]) -> Result<(), BenchError> {
    for line in lines.iter() {
        line.connection.wait_established(SETUP).step("accepting")?;
    }
    send(lines)?;
    for line in lines.iter_mut() {
        line.messages.receive()?;
    }
    // All are disconnected before the first is waited for: a stock client keeps its connections
    // until the last one has ended, and its kernel does not repeat an answer for a connection that
    // has been over for some seconds.
    for line in lines.iter() {
        line.connection.disconnect().step("disconnecting")?;
    }
    lines.iter().try_for_each(|line| wait_until_ended(&line.connection))
}

fn send(lines: &mut [Line]) -> Result<(), BenchError> {
    for line in lines.iter_mut() {
        line.messages.send(None)?;
    }
    lines.iter_mut().try_for_each(|line| line.messages.wait_until_sent())
}

fn prepare(node: &Node, pd: &ProtectionDomain, args: &MessageArgs) -> Result<Messages, BenchError> {
    let mut messages = Messages::new(&node.context, pd, QpType::Rc, args.count, args.size)?;
    messages.qp().init(&init()).step("taking the QP to INIT")?;
    messages.post_receives()?;
    Ok(messages)
}

fn finish(args: &MessageArgs, node: &Node, side: Side) -> Result<(), BenchError> {
    println!("{} messages each way over {} connections", args.count, args.connections);
    if args.json {
        let more = json!({ "connections": args.connections, "count": args.count });
        report("ucmatose", side, node, more)?;
    }
    linger(&args.device);
    Ok(())
}
