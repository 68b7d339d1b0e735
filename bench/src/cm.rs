//! `rping`, `ucmatose`, `udaddy`, `cmtime`: the work of rdmacm-utils' programs of these names over
//! the connection manager. The other end may be one of these programs, or this one.
//!
//! ```text
//!   rping      pings over one RC connection: the server READs the client's memory and WRITEs back
//!   ucmatose   messages over RC connections, first the server's, then the client's
//!   udaddy     messages in datagrams, first the client's; the QPs are found by SIDR
//!   cmtime     connections made and ended: the time it takes
//! ```
//!
//! Invariants
//! - The lcore has its own thread, because threads that wait for the connection manager do not
//!   drive it.
//! - An end that has disconnected waits until the peer has answered or all retries are used up.
//!
//! Not here: measurements of connection set-up between two ends of ours (`connect`).

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
use uroce::cm::{CmError, ConnEvent, ConnectParam, Connection, Destination};
use uroce::{AccessFlags, ConnectOptions};

/// Longest wait for the other end's next message.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a connection to be established or to end, with some messages lost.
const SETUP: Duration = Duration::from_secs(90);
/// Time for which an end stays so that it can answer repeated messages, if frames are lost.
const LINGER: Duration = Duration::from_secs(2);
/// Local ACK timeout code, 268 ms, so that a peer on a busy machine is not given up.
const ACK_TIMEOUT: u8 = 16;
/// Path MTU for which the ports' MTU is chosen.
const PATH_MTU: u32 = 4096;

/// Opens the device. Its lcore has its own thread.
fn open(args: &DeviceArgs, side: Side) -> Result<Node, BenchError> {
    let device = DeviceArgs { lcore_thread: true, ..args.clone() };
    Node::open(&device, side, Some(PATH_MTU), 0)
}

/// Returns the address on which a server listens: the unspecified one if none is given.
fn place(address: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port)
}

/// Returns source and destination of a client's connection.
fn destination(server: IpAddr, port: u16, from: Option<IpAddr>) -> Destination {
    let to = Destination::to(SocketAddr::new(server, port));
    match from {
        Some(source) => to.from(source),
        None => to,
    }
}

/// Returns the parameters of our ends: one READ at a time and all retries, as in the stock
/// programs.
fn param() -> ConnectParam {
    ConnectParam {
        responder_resources: 1,
        initiator_depth: 1,
        ack_timeout: ACK_TIMEOUT,
        ..ConnectParam::default()
    }
}

/// Returns the options for taking a queue pair to INIT.
fn init() -> ConnectOptions {
    ConnectOptions { access: AccessFlags::all(), ..ConnectOptions::default() }
}

/// Waits until the connection has ended; an error after [`SETUP`].
fn wait_until_ended(connection: &Connection) -> Result<(), BenchError> {
    if ends_within(connection, SETUP)? {
        return Ok(());
    }
    Err(BenchError::TimedOut { waiting: "waiting for the connection to end", limit: SETUP })
}

/// Tells whether the connection ends within `wait`.
fn ends_within(connection: &Connection, wait: Duration) -> Result<bool, BenchError> {
    let end = Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match connection.next_event(left) {
            Some(ConnEvent::Disconnected { .. } | ConnEvent::TimewaitExit) => {
                return Ok(true);
            }
            Some(event) => {
                if let Some(error) = CmError::of(event) {
                    return Err(BenchError::Stack { step: "connecting", source: Box::new(error) });
                }
            }
            None => return Ok(false),
        }
    }
}

/// Ends a connection and waits for the peer's answer.
fn disconnect(connection: &Connection) -> Result<(), BenchError> {
    connection.disconnect().step("disconnecting")?;
    wait_until_ended(connection)
}

/// Waits for a while if frames are lost, because the peer may repeat a message.
fn linger(args: &DeviceArgs) {
    if args.loss_rx.is_some() || args.loss_tx.is_some() {
        std::thread::sleep(LINGER);
    }
}

/// Prints one JSON object: the common fields, and `more`.
fn report(test: &str, side: Side, node: &Node, more: Value) -> Result<(), BenchError> {
    let role = match side {
        Side::Client => "client",
        Side::Server => "server",
    };
    let mut counters = Map::new();
    for uroce::Count { name, value, .. } in node.context.counters().step("reading counters")? {
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
