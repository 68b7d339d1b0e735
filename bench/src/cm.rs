//! `rping`, `ucmatose`, `udaddy`, `cmtime`: what rdmacm-utils' programs of these names do, over the
//! connection manager, with them or with itself at the other end.
//!
//! ```text
//!   rping      pings over one RC connection: the server READs the client's memory and WRITEs back
//!   ucmatose   messages over RC connections, first the server's, then the client's
//!   udaddy     the same in datagrams, first the client's; the QPs are found by SIDR
//!   cmtime     connections made and ended: how long it takes
//! ```
//!
//! Invariants
//! - The lcore has a thread of its own: threads that wait for the connection manager drive nothing.
//! - An end that has disconnected waits until the peer has heard of it, or will not.
//!
//! Not here: what an end does besides; `connect` measures connections between two of ours.

mod cmtime;
mod completions;
mod messages;
mod rping;
mod ucmatose;
mod udaddy;

pub(crate) use cmtime::run as cmtime;
pub(crate) use rping::run as rping;
pub(crate) use ucmatose::run as ucmatose;
pub(crate) use udaddy::run as udaddy;

use crate::cli::DeviceArgs;
use crate::error::{BenchError, Step};
use crate::node::Node;
use crate::pin::Side;
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use uroce::cm::{ConnectParam, Connection, ConnectionEvent, Destination};
use uroce::{AccessFlags, ConnectOptions};

/// How long an end waits for the other's next message.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may take to come about or to end, where some of its messages are lost.
const SETUP: Duration = Duration::from_secs(90);
/// How long an end stays for a peer whose last message was not answered, where frames are lost.
const LINGER: Duration = Duration::from_secs(2);
/// Local ACK timeout code, 268 ms: a peer on a busy machine stands still for a moment.
const ACK_TIMEOUT: u8 = 16;
/// The path MTU that ports are made to fit.
const PATH_MTU: u32 = 4096;

/// Opens the device with an lcore of its own.
fn open(args: &DeviceArgs, side: Side) -> Result<Node, BenchError> {
    let device = DeviceArgs { lcore_thread: true, ..args.clone() };
    Node::open(&device, side, Some(PATH_MTU), 0)
}

/// Where a server listens: at all addresses if none is given.
fn place(address: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port)
}

/// Where a client connects to, and from where.
fn destination(server: IpAddr, port: u16, from: Option<IpAddr>) -> Destination {
    let to = Destination::to(SocketAddr::new(server, port));
    match from {
        Some(source) => to.from(source),
        None => to,
    }
}

/// What our ends bring to a connection: as the stock programs, one READ at a time and all retries.
fn param() -> ConnectParam {
    ConnectParam {
        responder_resources: 1,
        initiator_depth: 1,
        ack_timeout: ACK_TIMEOUT,
        ..ConnectParam::default()
    }
}

/// How a queue pair gets to INIT, so that receives can be posted.
fn init() -> ConnectOptions {
    ConnectOptions { access: AccessFlags::all(), ..ConnectOptions::default() }
}

/// Waits until the peer has ended the connection, or has heard that we have.
fn wait_until_ended(connection: &Connection) -> Result<(), BenchError> {
    if ends_within(connection, SETUP)? {
        return Ok(());
    }
    Err(BenchError::TimedOut { waiting: "waiting for the connection to end", limit: SETUP })
}

/// Whether the peer ends the connection, or hears that we have, within so long.
fn ends_within(connection: &Connection, wait: Duration) -> Result<bool, BenchError> {
    let end = Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match connection.next_event(left) {
            Some(ConnectionEvent::Disconnected { .. } | ConnectionEvent::TimewaitExit) => {
                return Ok(true);
            }
            Some(ConnectionEvent::Failed(error)) => {
                return Err(BenchError::Stack { step: "connecting", source: Box::new(error) });
            }
            Some(_) => {}
            None => return Ok(false),
        }
    }
}

/// Ends a connection and waits for the peer's answer.
fn disconnect(connection: &Connection) -> Result<(), BenchError> {
    connection.disconnect().step("disconnecting")?;
    wait_until_ended(connection)
}

/// Stays where frames are lost: the peer may ask again for an answer that was.
fn linger(args: &DeviceArgs) {
    if args.loss_rx.is_some() || args.loss_tx.is_some() {
        std::thread::sleep(LINGER);
    }
}

/// Prints one JSON object: what is said, and what every end says.
fn report(test: &str, side: Side, node: &Node, more: Value) -> Result<(), BenchError> {
    let role = match side {
        Side::Client => "client",
        Side::Server => "server",
    };
    let mut counters = Map::new();
    for (name, _, value) in node.context.counters().step("reading counters")? {
        if value > 0 {
            let sum = counters.get(name).and_then(Value::as_u64).unwrap_or(0) + value;
            counters.insert(name.to_owned(), json!(sum));
        }
    }
    let mut object = json!({
        "test": test,
        "role": role,
        "lost": node.lost()?,
        "retransmissions": node.retransmissions()?,
        "counters": counters,
    });
    if let (Some(all), Value::Object(more)) = (object.as_object_mut(), more) {
        all.extend(more);
    }
    println!("{object}");
    Ok(())
}
