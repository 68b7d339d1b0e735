//! Connections of `rping`: made by the connection manager, ended, and reported.
//!
//! Invariants
//! - The lcore has its own thread, because threads that wait for the connection manager do not
//!   drive it.
//! - An end that has disconnected waits until the peer has answered or all retries are used up.
//!
//! Not here: measurements of connection set-up (`connect`).

use crate::cli::DeviceArgs;
use crate::error::{BenchError, Step};
use crate::node::Node;
use crate::pin::Side;
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use uroce::cm::{CmError, ConnEvent, ConnectParam, Connection};
use uroce::{AccessFlags, ConnectOptions};

/// Longest wait for the other end's next message.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a connection to be established or to end, with some messages lost.
pub(super) const SETUP: Duration = Duration::from_secs(90);
/// Time for which an end stays so that it can answer repeated messages, if frames are lost.
const LINGER: Duration = Duration::from_secs(2);
/// Local ACK timeout code, 268 ms, so that a peer on a busy machine is not given up.
const ACK_TIMEOUT: u8 = 16;
/// Path MTU for which the ports' MTU is chosen.
const PATH_MTU: u32 = 4096;

/// Opens the device. Its lcore has its own thread.
pub(super) fn open(args: &DeviceArgs, side: Side) -> Result<Node, BenchError> {
    let device = DeviceArgs { lcore_thread: true, ..args.clone() };
    Node::open(&device, side, Some(PATH_MTU), 0)
}

/// Returns the address on which a server listens: the unspecified one if none is given.
pub(super) fn place(address: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port)
}

/// Returns the parameters of our ends: one READ at a time and all retries, as in the stock program.
pub(super) fn param() -> ConnectParam {
    ConnectParam {
        responder_resources: 1,
        initiator_depth: 1,
        ack_timeout: ACK_TIMEOUT,
        ..ConnectParam::default()
    }
}

/// Returns the options for taking a queue pair to INIT.
pub(super) fn init() -> ConnectOptions {
    ConnectOptions { access: AccessFlags::all(), ..ConnectOptions::default() }
}

/// Waits until the connection has ended; an error after [`SETUP`].
pub(super) fn wait_until_ended(connection: &Connection) -> Result<(), BenchError> {
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
pub(super) fn disconnect(connection: &Connection) -> Result<(), BenchError> {
    connection.disconnect().step("disconnecting")?;
    wait_until_ended(connection)
}

/// Waits for a while if frames are lost, because the peer may repeat a message.
pub(super) fn linger(args: &DeviceArgs) {
    if args.loss_rx.is_some() || args.loss_tx.is_some() {
        std::thread::sleep(LINGER);
    }
}

/// Prints one JSON object: the common fields, and `more`.
pub(super) fn report(side: Side, node: &Node, more: Value) -> Result<(), BenchError> {
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
        "test": "rping",
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
