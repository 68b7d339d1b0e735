//! The way to a peer: `rdma_resolve_addr`, `rdma_resolve_route`.
//!
//! On RoCE there is nothing to ask about a route: it is known with the address.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Duration;

use uroce::cm::raw::{BindOptions, PathSpec, ResolvedPath};
use uroce::{AddressVector, PathMtu, RequestError};

use super::channel::Happening;
use super::event::Draft;
use super::id::{self, Id, Stage, State};
use super::{address, listen, sync};
use crate::abi::{RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, rdma_cm_id, sockaddr};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::ibv::port;
use crate::runtime::{self, Device};

/// Local ACK timeout code where the program asks for none, as in [`uroce::cm::ConnectParam`].
const ACK_TIMEOUT: u8 = 14;

/// What a program is told of an error in an event.
pub(crate) fn errno(error: &RequestError) -> Errno {
    Errno::from(*error)
}

/// The packet life time, one way, that an ACK timeout stands for.
pub(crate) fn one_way(ack_timeout: u8) -> u8 {
    ack_timeout.saturating_sub(1)
}

fn resolve_address(
    id: &Entry<Id>,
    source: Option<SocketAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> Result<(), Errno> {
    let mut state = id.state();
    if !matches!(state.stage, Stage::Idle | Stage::Bound) || to.ip().is_unspecified() {
        return Err(Errno::EINVAL);
    }
    if source.is_some_and(|source| source.is_ipv4() != to.is_ipv4()) {
        return Err(Errno::EINVAL);
    }
    if let Some(source) = source
        && state.stage == Stage::Idle
        && !(source.ip().is_unspecified() && source.port() == 0)
    {
        listen::bind(id, &mut state, source)?;
    }
    runtime::pick(None, Some(to.ip()))?;
    state.peer = Some(to);
    id.show_addresses(&state);
    match begin(id, &mut state, to, timeout) {
        Ok(()) => state.stage = Stage::Resolving,
        // That there is no way is told as everything else that is found out.
        Err(error) => {
            let draft = Draft::failed(RDMA_CM_EVENT_ADDR_ERROR, error);
            id.mailbox.send(Happening::Made(draft));
        }
    }
    Ok(())
}

/// Asks the devices, in order, until one knows a way out.
fn begin(
    id: &Entry<Id>,
    state: &mut State,
    to: SocketAddr,
    timeout: Duration,
) -> Result<(), Errno> {
    let source = state.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
    let vector =
        AddressVector { traffic_class: state.options.tos.unwrap_or(0), ..AddressVector::default() };
    let path = PathSpec { source, destination: to.ip(), vector };
    let devices = match state.device {
        Some(device) => std::slice::from_ref(device),
        None => runtime::devices()?,
    };
    // A device of this process answers when it runs.
    if let Ok((own, _)) = listen::find(to.ip()) {
        own.context()?;
    }
    let mut refusal = Errno::ENODEV;
    for device in devices {
        let manager = device.context()?.connection_manager();
        match manager.resolve(&id.post(device), path, timeout) {
            Ok(cm) => {
                state.look_up = Some((manager, cm));
                return Ok(());
            }
            Err(error) => refusal = errno(&error),
        }
    }
    Err(refusal)
}

/// The way is known: the id is bound to its device and to an address and port there.
pub(crate) fn resolved(
    id: &Entry<Id>,
    state: &mut State,
    device: &'static Device,
    path: ResolvedPath,
) -> Result<(), Errno> {
    let port = port::find(device, path.port.into())?;
    let path_mtu = port.max_path_mtu.unwrap_or(PathMtu::B256);
    let local = match state.local {
        Some(local) => SocketAddr::new(path.source, local.port()),
        None => {
            let manager = device.context()?.connection_manager();
            let any = SocketAddr::new(path.source, 0);
            let post = id.post(device);
            let (cm, local) = manager.bind(&post, id.space, any, BindOptions::default())?;
            state.bound.push((device, manager, cm));
            local
        }
    };
    id.show_device(device, path.port)?;
    state.device = Some(device);
    state.local = Some(local);
    state.path = Some(path);
    state.stage = Stage::AddressResolved;
    id.show_addresses(state);
    let timeout = state.options.ack_timeout.unwrap_or(ACK_TIMEOUT);
    id.show_path(address::path_record(&path, path_mtu, one_way(timeout)));
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: what programs pass is an address of theirs or NULL.
        let to = unsafe { address::read(dst_addr) }?;
        let source = match src_addr.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { address::read(src_addr) }?),
        };
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        resolve_address(&id, source, to, timeout)?;
        sync::complete(&id)
    })
}

pub(crate) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    _timeout_ms: c_int,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        {
            let mut state = id.state();
            if state.stage != Stage::AddressResolved {
                return Err(Errno::EINVAL);
            }
            state.stage = Stage::RouteResolved;
            id.show_route();
        }
        id.mailbox.send(Happening::Made(Draft::plain(RDMA_CM_EVENT_ROUTE_RESOLVED)));
        sync::complete(&id)
    })
}
