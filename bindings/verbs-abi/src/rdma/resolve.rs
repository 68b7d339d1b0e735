//! Resolving the path to a peer: `rdma_resolve_addr`, `rdma_resolve_route`.
//!
//! On RoCE a route needs no query: it is known when the address is resolved.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Duration;

use uroce::AddressVector;
use uroce::cm::raw::PathSpec;

use super::{address, host, listen, path, sync};
use crate::abi::{RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, rdma_cm_id, sockaddr};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::objects::id::channel::Happening;
use crate::objects::id::draft::Draft;
use crate::objects::id::{self, Id, Stage, State};
use crate::runtime;

fn resolve_address(
    id: &Entry<Id>,
    source: Option<SocketAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> Result<(), Errno> {
    let mut state = id.state();
    if !matches!(state.stage, Stage::Idle | Stage::Bound) {
        return Err(Errno::EINVAL);
    }
    if source.or(state.local).is_some_and(|source| source.is_ipv4() != to.is_ipv4()) {
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
        // A missing path is reported by an event, like other results.
        Err(error) => {
            let draft = Draft::failed(RDMA_CM_EVENT_ADDR_ERROR, error);
            id.mailbox.send(Happening::Made(draft));
        }
    }
    Ok(())
}

/// Starts the resolution at the first device that has a route to the address.
fn begin(
    id: &Entry<Id>,
    state: &mut State,
    to: SocketAddr,
    timeout: Duration,
) -> Result<(), Errno> {
    let source = state.local.map(|local| local.ip()).filter(|ip| !host::is_host(*ip));
    let destination = match host::is_host(to.ip()) {
        true => host::loopback(to.ip()),
        false => to.ip(),
    };
    let vector =
        AddressVector { traffic_class: state.options.tos.unwrap_or(0), ..AddressVector::default() };
    let spec = PathSpec { source, destination, vector };
    let devices = match state.device {
        Some(device) => std::slice::from_ref(device),
        None => runtime::devices()?,
    };
    // If the address is one of this process, its device must have started to answer.
    if let Ok((own, _)) = listen::find(to.ip()) {
        own.context()?;
    }
    let mut refusal = Errno::ENODEV;
    for device in devices {
        let manager = device.context()?.connection_manager();
        match manager.resolve(&id.post(device), spec, timeout) {
            Ok(cm) => {
                state.look_up = Some((manager, cm));
                return Ok(());
            }
            Err(error) => refusal = path::errno(&error),
        }
    }
    Err(refusal)
}

pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: the program passes NULL or a valid address.
        let to = unsafe { address::read(dst_addr) }?;
        let source = match src_addr.is_null() {
            true => None,
            // SAFETY: not NULL, so it is a valid address of the program.
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
