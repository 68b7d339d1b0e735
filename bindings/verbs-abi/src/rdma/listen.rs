//! Binding and listening: `rdma_bind_addr`, `rdma_listen`; the addresses of a request.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustix::thread::CapabilitySet;
use uroce::cm::raw::{BindOptions, CmId, ConnectRequest, Manager, ResolvedPath, is_own_node};
use uroce::{AddressVector, Gid, Mac};

use super::{address, host, path};
use crate::abi::{rdma_cm_id, sockaddr};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::objects::id::{self, Id, Stage, State};
use crate::runtime::{self, Device};

/// Larger than any listener's backlog.
const BACKLOG_MAX: u32 = u32::MAX;
/// Lowest port that a process without `CAP_NET_BIND_SERVICE` may bind.
const UNPRIVILEGED: u16 = 1024;

/// The device and port with an address.
///
/// # Errors
///
/// EADDRNOTAVAIL if no device has it.
pub(crate) fn find(ip: IpAddr) -> Result<(&'static Device, u8), Errno> {
    for device in runtime::devices()? {
        if let Some(port) = port_of(device, ip)? {
            return Ok((device, port));
        }
    }
    Err(Errno::EADDRNOTAVAIL)
}

fn port_of(device: &'static Device, ip: IpAddr) -> Result<Option<u8>, Errno> {
    let ports = device.ports()?;
    let port = ports.iter().find(|port| port.gids.contains(&Gid::from(ip)));
    Ok(port.map(|port| port.number))
}

/// Whether this process may bind privileged ports.
fn may_bind_privileged() -> bool {
    // If the capabilities cannot be read, nothing is refused.
    rustix::thread::capabilities(None)
        .map_or(true, |sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
}

/// Binds an id to an address. The unspecified address and loopback addresses, which belong to no
/// port, stand for all addresses of all devices; an address of the machine for the member's own.
pub(crate) fn bind(id: &Entry<Id>, state: &mut State, given: SocketAddr) -> Result<(), Errno> {
    let (ip, scope) = (given.ip(), address::scope(given));
    if scope == 0 && matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return Err(Errno::EINVAL);
    }
    let mut inner = ip;
    let found = if is_own_node(ip) {
        runtime::pick(None, None)?;
        None
    } else {
        runtime::pick(Some(ip), None)?;
        Some(match host::behind(ip)? {
            Some((device, port, own)) => {
                inner = own;
                (device, port)
            }
            None => find(ip)?,
        })
    };
    if (1..UNPRIVILEGED).contains(&given.port()) && !may_bind_privileged() {
        return Err(Errno::EACCES);
    }
    let all = runtime::devices()?;
    let devices = match found {
        Some((device, _)) => std::slice::from_ref(device),
        None => all,
    };
    let (reuse, one_version) = (state.options.reuse, state.options.one_version);
    if !reuse {
        check_free(id, state, devices, SocketAddr::new(ip, given.port()))?;
    }
    let options = BindOptions { reuse, one_version };
    let mut bound = Vec::new();
    let mut at = SocketAddr::new(inner, given.port());
    for device in devices {
        match bind_at(id, device, at, options, inner != ip) {
            Ok((manager, cm, address)) => {
                at = address;
                bound.push((device, manager, cm));
            }
            Err(error) => {
                release(bound);
                return Err(error);
            }
        }
    }
    if let Some((device, port)) = found {
        id.show_device(device, port).inspect_err(|_| release(std::mem::take(&mut bound)))?;
        state.device = Some(device);
    }
    state.bound = bound;
    state.local = Some(address::with_scope(SocketAddr::new(ip, at.port()), scope));
    state.stage = Stage::Bound;
    id.show_addresses(state);
    Ok(())
}

/// Checks that no other process listens at the address, if it stands for all addresses of the host.
///
/// # Errors
///
/// EADDRINUSE if one does.
fn check_free(
    id: &Id,
    state: &State,
    devices: impl IntoIterator<Item = &'static Device>,
    at: SocketAddr,
) -> Result<(), Errno> {
    let one_version = state.options.one_version == Some(true);
    let mut devices = devices.into_iter();
    let is_taken = is_own_node(at.ip())
        && at.port() != 0
        && devices.any(|device| device.is_taken(id.space, at, one_version));
    if is_taken { Err(Errno::EADDRINUSE) } else { Ok(()) }
}

/// Binds an id at one device. A port that is chosen for an address of the machine is not one at
/// which another process listens.
fn bind_at(
    id: &Entry<Id>,
    device: &'static Device,
    at: SocketAddr,
    options: BindOptions,
    is_host: bool,
) -> Result<(Manager, CmId, SocketAddr), Errno> {
    let manager = device.context()?.connection_manager();
    loop {
        let (cm, address) = manager.bind(&id.post(device), id.space, at, options)?;
        let is_chosen = is_host && at.port() == 0;
        if !is_chosen || device.elsewhere(id.space, address)?.is_none() {
            return Ok((manager, cm, address));
        }
        // The next call chooses a different port.
        let _ = manager.destroy(cm);
    }
}

fn release(bound: Vec<(&'static Device, Manager, CmId)>) {
    for (_, manager, cm) in bound {
        let _ = manager.destroy(cm);
    }
}

/// Writes the addresses and the path of a request to its id.
pub(crate) fn show_request(
    id: &Entry<Id>,
    device: &'static Device,
    request: &ConnectRequest,
) -> Result<(), Errno> {
    let (port, vector) = match &request.agreed {
        Some(agreed) => (agreed.port, agreed.vector),
        None => {
            let port = port_of(device, request.local.ip())?.ok_or(Errno::EADDRNOTAVAIL)?;
            (port, AddressVector::to(Gid::from(request.peer.ip())))
        }
    };
    id.show_device(device, port)?;
    let resolved = ResolvedPath { port, source: request.local.ip(), vector, mac: Mac([0; 6]) };
    let timeout = request.agreed.map_or(0, |agreed| agreed.timeout);
    id.show_path(address::path_record(&resolved, request.path_mtu, path::one_way(timeout)));
    id.show_route();
    Ok(())
}

fn listen(id: *const rdma_cm_id, backlog: c_int) -> Result<(), Errno> {
    runtime::usable()?;
    let id = id::get(id)?;
    let mut state = id.state();
    if state.stage == Stage::Idle {
        bind(&id, &mut state, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    }
    if state.stage != Stage::Bound {
        return Err(Errno::EINVAL);
    }
    // A backlog of 0 or less means the largest one.
    let backlog = u32::try_from(backlog).ok().filter(|backlog| *backlog > 0);
    let local = state.local.ok_or(Errno::EINVAL)?;
    // Another process may listen since this one was bound.
    check_free(&id, &state, state.bound.iter().map(|(device, ..)| *device), local)?;
    let inner = host::behind(local.ip())?.map_or(local.ip(), |(_, _, own)| own);
    let at = SocketAddr::new(inner, local.port());
    let State { bound, announced, options, .. } = &mut *state;
    for (device, manager, cm) in bound {
        manager.listen(*cm, backlog.unwrap_or(BACKLOG_MAX))?;
        announced.extend(device.announce(id.space, at, options.one_version == Some(true)));
    }
    state.stage = Stage::Listening;
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: the program passes NULL or a valid address.
        let address = unsafe { address::read(addr) }?;
        let mut state = id.state();
        if state.stage != Stage::Idle {
            return Err(Errno::EINVAL);
        }
        bind(&id, &mut state, address)
    })
}

pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    entry::minus_one(|| listen(id, backlog))
}
