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
use crate::objects::id::{self, Id, Options, Stage, State};
use crate::runtime::ports::{Binding, Notice};
use crate::runtime::{self, Device};

/// Largest number of ports that are tried where the program leaves the choice.
const ATTEMPTS: u32 = 1000;
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
    let mut attempts = 0..ATTEMPTS;
    let mut bound = loop {
        match bind_at(id, state.options, devices, given, inner) {
            Ok(bound) => break bound,
            // The next call chooses a different port.
            Err(refusal) if refusal.is_chosen && attempts.next().is_some() => {}
            Err(refusal) => return Err(refusal.error),
        }
    };
    let port = bound.port;
    if let Some((device, number)) = found {
        id.show_device(device, number).inspect_err(|_| bound.release())?;
        state.device = Some(device);
    }
    (state.bound, state.notices) = (bound.devices, bound.notices);
    state.local = Some(address::with_scope(SocketAddr::new(ip, port), scope));
    state.stage = Stage::Bound;
    id.show_addresses(state);
    Ok(())
}

/// What an id is bound to at its devices.
struct Bound {
    devices: Vec<(&'static Device, Manager, CmId)>,
    notices: Vec<Notice>,
    port: u16,
}

impl Bound {
    fn release(&mut self) {
        self.notices.clear();
        for (_, manager, cm) in self.devices.drain(..) {
            let _ = manager.destroy(cm);
        }
    }
}

/// Why an id is not bound.
struct Refusal {
    error: Errno,
    /// The port was chosen here, and another one may be free.
    is_chosen: bool,
}

/// Binds an id at all these devices to one port. No id of this process or of another member of the
/// local fabric has the port. `given` is the program's address, `inner` the device's in its place.
/// If this fails, nothing is bound.
fn bind_at(
    id: &Entry<Id>,
    options: Options,
    devices: &'static [Device],
    given: SocketAddr,
    inner: IpAddr,
) -> Result<Bound, Refusal> {
    let mut bound = Bound { devices: Vec::new(), notices: Vec::new(), port: given.port() };
    let mut bind = |device: &'static Device| {
        let manager = device.context()?.connection_manager();
        let at = SocketAddr::new(inner, bound.port);
        let (cm, at) = manager.bind(&id.post(device), id.space, at, at_manager(options))?;
        bound.devices.push((device, manager, cm));
        bound.port = at.port();
        let binding = Binding {
            space: id.space,
            at: SocketAddr::new(given.ip(), at.port()),
            reuse: options.reuse,
            one_version: options.one_version.unwrap_or(given.is_ipv4()),
            listens: false,
        };
        bound.notices.extend(device.take_port(&binding)?);
        Ok(())
    };
    match devices.iter().try_for_each(&mut bind) {
        Ok(()) => Ok(bound),
        Err(error) => {
            let is_chosen = given.port() == 0 && bound.port != 0;
            bound.release();
            let is_in_use = matches!(error, Errno::EADDRINUSE | Errno::EADDRNOTAVAIL);
            Err(Refusal { error, is_chosen: is_chosen && is_in_use })
        }
    }
}

fn at_manager(options: Options) -> BindOptions {
    BindOptions { reuse: options.reuse, one_version: options.one_version, eecs: false }
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
    let inner = host::behind(local.ip())?.map_or(local.ip(), |(_, _, own)| own);
    let at = SocketAddr::new(inner, local.port());
    // Another process may have the address as well, and may listen since this one was bound.
    runtime::set_listening(&mut state.notices, true)?;
    begin(&id, &mut state, at, backlog.unwrap_or(BACKLOG_MAX)).inspect_err(|_| {
        // Fails only if the file cannot be written, as `set_listening` says.
        let _ = runtime::set_listening(&mut state.notices, false);
    })?;
    runtime::announce(&mut state.notices);
    state.stage = Stage::Listening;
    Ok(())
}

/// Lets a bound id listen at all its devices, or at none.
fn begin(id: &Entry<Id>, state: &mut State, at: SocketAddr, backlog: u32) -> Result<(), Errno> {
    let options = at_manager(state.options);
    for index in 0..state.bound.len() {
        let (begun, rest) = state.bound.split_at_mut(index);
        let (_, manager, cm) = &rest[0];
        let Err(error) = manager.listen(*cm, backlog) else { continue };
        // A connection manager can end listening only by binding anew.
        for (device, manager, cm) in begun {
            let _ = manager.destroy(*cm);
            if let Ok((new, _)) = manager.bind(&id.post(device), id.space, at, options) {
                *cm = new;
            }
        }
        return Err(error.into());
    }
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
