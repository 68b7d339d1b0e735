//! `udaddy`: datagrams between queue pairs that are looked up by IP address and port, first the
//! client's, then the server's.

use super::messages::{Messages, Way};
use super::{SETUP, destination, linger, open, place, report};
use crate::cli::MessageArgs;
use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use crate::pin::Side;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use uroce::cm::{DatagramListener, resolve_datagram};
use uroce::{AddressVector, ConnectOptions, Gid, ProtectionDomain, Qkey, QpType};

/// Q_Key of all users of RDMA-CM's UDP port space.
const QKEY: Qkey = Qkey(0x0123_4567);

/// Default port of the server.
const SERVICE: u16 = 7174;
/// Clients that may wait.
const BACKLOG: u32 = 128;

/// A client's queue pair, as seen by the server.
struct Peer {
    messages: Messages,
    remote: SocketAddr,
    local: IpAddr,
}

/// Runs the subcommand.
pub(crate) fn run(args: &MessageArgs) -> Result<(), BenchError> {
    if args.size > super::PATH_MTU {
        return Err(BenchError::usage("-S must not be more than 4096: a datagram is one packet"));
    }
    match args.server {
        Some(server) => client(args, server),
        None => serve(args),
    }
}

fn client(args: &MessageArgs, server: IpAddr) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Client)?;
    let pd = node.context.allocate_pd();
    let mut pairs = Vec::new();
    for _ in 0..args.connections {
        let messages = prepare(&node, &pd, args)?;
        let to = destination(server, args.port.unwrap_or(SERVICE), args.bind);
        let found = resolve_datagram(&pd, to, &[], SETUP).step("asking for the queue pair")?;
        let way = Way { handle: found.ah, qpn: found.qpn, qkey: found.qkey };
        pairs.push((messages, way));
    }
    for (messages, way) in &mut pairs {
        messages.send(Some(way))?;
    }
    for (messages, _) in &mut pairs {
        messages.wait_until_sent()?;
    }
    for (messages, _) in &mut pairs {
        messages.receive()?;
    }
    finish(args, &node, Side::Client)
}

fn serve(args: &MessageArgs) -> Result<(), BenchError> {
    let node = open(&args.device, Side::Server)?;
    let pd = node.context.allocate_pd();
    let address = place(args.bind, args.port.unwrap_or(SERVICE));
    let listener = DatagramListener::bind(&node.context, address, BACKLOG).step("listening")?;
    println!("listening on {}", listener.local_addr());
    let mut peers = Vec::new();
    while peers.len() < args.connections as usize {
        let Some(request) = listener.next(SETUP) else { continue };
        let mut messages = prepare(&node, &pd, args)?;
        let (remote, local) = (request.peer_addr(), request.local_addr().ip());
        request.answer(messages.qp(), &[]).step("answering")?;
        peers.push(Peer { messages, remote, local });
    }
    // Without messages from a client the server sends none.
    if args.count > 0 {
        for peer in &mut peers {
            answer(&node, &pd, peer)?;
        }
    }
    finish(args, &node, Side::Server)
}

/// Receives a client's messages and sends as many back.
fn answer(node: &Node, pd: &ProtectionDomain, peer: &mut Peer) -> Result<(), BenchError> {
    let Some(qpn) = peer.messages.receive()? else {
        return Err(BenchError::Peer("it sent nothing".to_owned()));
    };
    let dgid = gid(peer.remote.ip());
    let vector =
        AddressVector { sgid_index: index_of(node, peer.local)?, ..AddressVector::to(dgid) };
    let handle = pd.create_ah(PORT, &vector).step("creating an address handle")?;
    let way = Way { handle, qpn, qkey: QKEY };
    peer.messages.send(Some(&way))?;
    peer.messages.wait_until_sent()
}

/// Returns the GID index of a local address.
fn index_of(node: &Node, address: IpAddr) -> Result<u8, BenchError> {
    let ports = node.context.ports();
    let gids = ports.first().map(|port| &port.gids[..]).unwrap_or_default();
    let index = gids.iter().position(|gid| gid.to_ip() == address);
    let index = index.and_then(|index| u8::try_from(index).ok());
    index.ok_or_else(|| BenchError::usage(format!("{address} is no address of ours")))
}

fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn prepare(node: &Node, pd: &ProtectionDomain, args: &MessageArgs) -> Result<Messages, BenchError> {
    let mut messages = Messages::new(&node.context, pd, QpType::Ud, args.count, args.size)?;
    let options = ConnectOptions::default();
    messages.qp().start_datagrams(QKEY, &options).step("starting the queue pair")?;
    messages.post_receives()?;
    Ok(messages)
}

fn finish(args: &MessageArgs, node: &Node, side: Side) -> Result<(), BenchError> {
    println!("{} datagrams each way for {} queue pairs", args.count, args.connections);
    if args.json {
        let more = json!({ "connections": args.connections, "count": args.count });
        report("udaddy", side, node, more)?;
    }
    linger(&args.device);
    Ok(())
}
