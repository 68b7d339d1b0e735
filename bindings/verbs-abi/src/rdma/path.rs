//! The path of an id to its peer, once it is resolved.
//!
//! A loopback or unspecified address is the node's own, as with Linux's `rdma_cm`, and is resolved
//! at once. On Linux it leads to all processes of the node; here each process has its own device.
//! Which of the processes is meant is decided when the connection is made ([`destination`]),
//! because only then the listener must exist.

use std::net::{IpAddr, SocketAddr};

use uroce::cm::raw::{BindOptions, Manager, PortSpace, ResolvedPath, is_own_node};
use uroce::{PathMtu, RequestError};

use super::{address, host};
use crate::errno::Errno;
use crate::handle::Entry;
use crate::ibv::port;
use crate::objects::id::{Id, Stage, State};
use crate::runtime::Device;

/// Local ACK timeout code if the program sets none, the default of [`uroce::cm::ConnectParam`].
const ACK_TIMEOUT: u8 = 14;

/// The error number of an event for a control-plane error.
pub(crate) fn errno(error: &RequestError) -> Errno {
    Errno::from(*error)
}

/// The code of the packet life time in one direction, half of the ACK timeout.
pub(crate) fn one_way(ack_timeout: u8) -> u8 {
    ack_timeout.saturating_sub(1)
}

/// Binds the id to the device and address of the resolved path.
pub(crate) fn resolved(
    id: &Entry<Id>,
    state: &mut State,
    device: &'static Device,
    path: ResolvedPath,
) -> Result<(), Errno> {
    let port = port::find(device, path.port.into())?;
    let path_mtu = port.max_path_mtu.unwrap_or(PathMtu::B256);
    let ip = shown_source(state, &path);
    let local = match state.local {
        Some(local) => SocketAddr::new(ip, local.port()),
        None => {
            let manager = device.context()?.connection_manager();
            // An address of the machine stands for the device's own.
            let inner = if is_own_node(ip) { ip } else { path.source };
            let any = SocketAddr::new(inner, 0);
            let post = id.post(device);
            let (cm, bound) = manager.bind(&post, id.space, any, BindOptions::default())?;
            state.bound.push((device, manager, cm));
            SocketAddr::new(ip, bound.port())
        }
    };
    id.show_device(device, path.port)?;
    state.device = Some(device);
    let scope = state.peer.map_or(0, address::scope);
    state.local = Some(address::with_scope(local, scope));
    state.path = Some(path);
    state.stage = Stage::AddressResolved;
    id.show_addresses(state);
    show_path(id, state, &path, path_mtu);
    Ok(())
}

fn show_path(id: &Entry<Id>, state: &State, path: &ResolvedPath, path_mtu: PathMtu) {
    let timeout = state.options.ack_timeout.unwrap_or(ACK_TIMEOUT);
    id.show_path(address::path_record(path, path_mtu, one_way(timeout)));
}

/// The local address that an id shows. For a path to the node itself it is the loopback address or
/// the machine's address that was asked for, unless the id is bound to an address.
fn shown_source(state: &State, path: &ResolvedPath) -> IpAddr {
    let bound = state.local.map(|local| local.ip()).filter(|ip| !is_own_node(*ip));
    match (state.peer.map(|peer| peer.ip()), bound) {
        (Some(peer), None) if is_own_node(peer) => host::loopback(peer),
        // As on Linux, the source of a connection to one of the machine's addresses is that one.
        (Some(peer), None) if host::is_host(peer) => peer,
        (_, Some(bound)) if host::is_host(bound) => bound,
        (Some(peer), Some(bound)) if is_own_node(peer) => bound,
        _ => path.source,
    }
}

/// Port of a connection that is to be refused: no id is bound to it.
const REFUSED: u16 = 0;

/// Where a connection leads: the peer's address, if that is not the one of the resolved path, and
/// the port.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Finds where a connection to `to` over the resolved path leads. Waits up to half a second for a
/// process that is about to listen: no lock may be held.
///
/// It leads along the path, unless `to` is an address of the node itself. In that case it leads to
/// the process of this machine that listens there, if there is one: this process, if its listener
/// is bound to the address or a wildcard.
pub(crate) fn destination(
    space: PortSpace,
    device: &'static Device,
    manager: &Manager,
    path: &ResolvedPath,
    to: SocketAddr,
) -> Result<Destination, Errno> {
    if !host::is_host(to.ip()) {
        device.await_listener(space, to)?;
        return Ok(Destination { ip: None, port: to.port() });
    }
    let own = path.source;
    let is_heard = manager.is_heard(space, SocketAddr::new(own, to.port()))?;
    let (ip, port) = match device.listener(space, to, own, is_heard)? {
        Some(ip) => (ip, to.port()),
        // This process listens at another address of the machine. Like `to`, that address stands
        // for the device's own.
        None if is_heard => (own, REFUSED),
        None => (own, to.port()),
    };
    Ok(Destination { ip: Some(ip), port })
}

/// Returns the path to the destination of a connection, and shows it if it is not the one that was
/// resolved.
pub(crate) fn way_to(
    id: &Entry<Id>,
    state: &mut State,
    device: &'static Device,
    to: Destination,
) -> Result<ResolvedPath, Errno> {
    let mut path = state.path.ok_or(Errno::EINVAL)?;
    let dgid = to.ip.map_or(path.vector.dgid, Into::into);
    if path.vector.dgid != dgid {
        path.vector.dgid = dgid;
        state.path = Some(path);
        let port = port::find(device, path.port.into())?;
        show_path(id, state, &path, port.max_path_mtu.unwrap_or(PathMtu::B256));
    }
    Ok(path)
}
