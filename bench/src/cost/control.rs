//! What the control plane does: Modify QP, and connections by the connection manager.

use super::valgrind::start_instrumentation;
use super::{CostCase, measured, nodes, while_parked};
use crate::connect::address_of;
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node, PORT};
use crate::qp_maker::QpMaker;
use std::net::SocketAddr;
use std::time::Duration;
use uroce::cm::{ConnEvent, ConnectParam, Connection, Destination, Listener};
use uroce::{ConnectOptions, QpChange, QpControl, QueuePair};

/// How long a step of a connection may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// RDMA port that the server listens at.
const RDMA_PORT: u16 = 18515;
/// Calls of the first count; the second has three times as many.
const MODIFIES: u64 = 100;
const CONNECTIONS: u64 = 20;

/// Modify QP: the minimum RNR timer of a connected queue pair, another value each time.
pub(super) fn modify() -> Result<(), BenchError> {
    let [server, client] = nodes()?;
    let drives = [client.drive()?, server.drive()?];
    let (ours, _theirs) = while_parked(|| connected(&server, &client))?;
    drives.iter().for_each(Drive::set_exclusive);
    let control = ours.control();
    while_parked(|| {
        start_instrumentation();
        changes(control, MODIFIES)?;
        for count in [MODIFIES, 3 * MODIFIES] {
            measured(CostCase::Modify, 1, count, &mut || changes(control, count))?;
        }
        Ok(())
    })
}

/// A queue pair of the client, connected to one of the server.
fn connected(server: &Node, client: &Node) -> Result<(QueuePair, QueuePair), BenchError> {
    let (ours, theirs) = (QpMaker::new(&client.context)?, QpMaker::new(&server.context)?);
    let (ours, theirs) = (ours.create()?, theirs.create()?);
    let there = theirs.endpoint(PORT, 0).step("the other end's address")?;
    ours.control().connect(&there, &ConnectOptions::default()).step("connecting")?;
    Ok((ours, theirs))
}

fn changes(control: &QpControl, count: u64) -> Result<(), BenchError> {
    for call in 0..count {
        let timer = Some(1 + (call % 30) as u8);
        let change = QpChange { min_rnr_timer: timer, ..QpChange::default() };
        control.modify(&change, None).step("Modify QP")?;
    }
    Ok(())
}

/// Connections one after the other, each created and destroyed at both ends.
pub(super) fn connect() -> Result<(), BenchError> {
    let [server, client] = nodes()?;
    let _drives = [client.drive()?, server.drive()?];
    while_parked(|| {
        let address = SocketAddr::new(address_of(&server.context)?, RDMA_PORT);
        let listener = Listener::bind(&server.context, address, 16).step("listening")?;
        let (ours, theirs) = (QpMaker::new(&client.context)?, QpMaker::new(&server.context)?);
        let cycles =
            |count: u64| (0..count).try_for_each(|_| cycle(&ours, &theirs, &listener, address));
        start_instrumentation();
        cycles(CONNECTIONS)?;
        for count in [CONNECTIONS, 3 * CONNECTIONS] {
            measured(CostCase::Connect, 1, count, &mut || cycles(count))?;
        }
        Ok(())
    })
}

/// One connection from its queue pairs' creation to their destruction.
fn cycle(
    ours: &QpMaker,
    theirs: &QpMaker,
    listener: &Listener,
    address: SocketAddr,
) -> Result<(), BenchError> {
    let (limit, param) = (PATIENCE, ConnectParam::default());
    let late = |waiting| BenchError::TimedOut { waiting, limit };
    let (active, passive) = (ours.create()?, theirs.create()?);
    let connecting = Connection::begin(&active, Destination::to(address), &param);
    let connecting = connecting.step("connecting")?;
    let request = listener.next(PATIENCE).ok_or_else(|| late("waiting for a request"))?;
    let accepted = request.accept(&passive, &param).step("accepting")?;
    connecting.wait_established(PATIENCE).step("connecting")?;
    accepted.wait_established(PATIENCE).step("accepting")?;
    connecting.disconnect().step("disconnecting")?;
    for connection in [&accepted, &connecting] {
        match connection.next_event(PATIENCE) {
            Some(ConnEvent::Disconnected { .. }) => {}
            Some(_) => return Err(BenchError::usage("an event that is no disconnection")),
            None => return Err(late("waiting for the disconnection")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modify_qp_completes() {
        modify().expect("modified");
    }

    #[test]
    fn connections_are_set_up_and_ended() {
        connect().expect("connected");
    }
}
