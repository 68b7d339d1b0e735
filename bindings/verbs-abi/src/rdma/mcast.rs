//! Multicast groups of ids: `rdma_join_multicast`, `rdma_leave_multicast`.
//!
//! On RoCE no subnet manager has to permit a membership, so the event of a membership is queued at
//! once. When the program takes the event, the id's queue pair is attached to the group. The
//! control plane reports the port's groups to the network.
//!
//! Invariants
//! - The event of a membership that has ended is not delivered. If it was delivered before,
//!   `rdma_leave_multicast` waits until the program has acknowledged it.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};

use uroce::{AddressVector, Gid};

use super::{address, sync};
use crate::abi::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_CM_JOIN_MC_ATTR_RESERVED,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_RESERVED,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, RDMA_UDP_QKEY, rdma_cm_id, rdma_cm_join_mc_attr_ex,
    sockaddr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::ibv::path::same_version;
use crate::ibv::port;
use crate::objects::id::channel::Happening;
use crate::objects::id::draft::Ud;
use crate::objects::id::{self, Id, Stage, State, release_event};
use crate::objects::qp;

/// Destination QP number of multicast datagrams.
const GROUP_QPN: u32 = 0xff_ffff;
/// Hop limit of multicast datagrams, as on Linux.
const HOP_LIMIT: u8 = 64;

/// The path from an id to a group.
fn way(id: &Entry<Id>, state: &State, group: IpAddr, context: *mut c_void) -> Result<Ud, Errno> {
    let device = state.device.ok_or(Errno::EINVAL)?;
    let local = state.local.ok_or(Errno::EINVAL)?;
    let number = id.view().port_num;
    let port = port::find(device, number.into())?;
    let (own, dgid) = (Gid::from(local.ip()), Gid::from(group));
    let sgid_index = match port.gids.iter().position(|gid| *gid == own) {
        Some(at) if local.is_ipv4() == group.is_ipv4() => u8::try_from(at).ok(),
        // The group's IP version differs, so another address of the port is used.
        _ => same_version(&port.gids, dgid),
    };
    let vector = AddressVector {
        sgid_index: sgid_index.ok_or(Errno::EADDRNOTAVAIL)?,
        dgid,
        hop_limit: HOP_LIMIT,
        traffic_class: state.options.tos.unwrap_or(0),
        ..AddressVector::default()
    };
    let (qp_num, qkey) = (GROUP_QPN, RDMA_UDP_QKEY);
    Ok(Ud { vector, port: number, qp_num, qkey, context: context.expose_provenance() })
}

fn join(
    id: *const rdma_cm_id,
    group: SocketAddr,
    receives: bool,
    context: *mut c_void,
) -> Result<(), Errno> {
    let id = id::get(id)?;
    {
        let mut state = id.state();
        let is_bound = !matches!(state.stage, Stage::Idle | Stage::Listening | Stage::Resolving);
        if id.space.connects() || !is_bound || !group.ip().is_multicast() {
            return Err(Errno::EINVAL);
        }
        let way = way(&id, &state, group.ip(), context)?;
        let number = state.groups.add(group.ip(), receives, way);
        id.mailbox.send(Happening::Joined(number));
    }
    sync::complete(&id)
}

fn leave(id: *const rdma_cm_id, group: SocketAddr) -> Result<(), Errno> {
    let id = id::get(id)?;
    let member = {
        let mut state = id.state();
        let member = state.groups.remove(group.ip()).ok_or(Errno::EADDRNOTAVAIL)?;
        let is_it =
            |what: &Happening| matches!(what, Happening::Joined(it) if *it == member.number);
        id.mailbox.take_back(is_it);
        if member.attached && !state.groups.is_attached(member.address) && !id.qp().is_null() {
            // Fails if the program has destroyed the queue pair, which has removed it from its
            // groups.
            let _ = qp::get(id.qp()).and_then(|qp| qp.detach(member.way.vector.dgid));
        }
        member
    };
    // Acknowledges the event of the call that joined the group.
    if id.state().is_sync {
        release_event(&id);
    }
    member.acks.close()?;
    member.acks.wait();
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    entry::minus_one(|| {
        // SAFETY: the program passes NULL or a valid address.
        let group = unsafe { address::read(addr) }?;
        join(id, group, true, context)
    })
}

pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    entry::minus_one(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(mc_join_attr) }?;
        if attr.comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
            return Err(Errno::EOPNOTSUPP);
        }
        let flags = match attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS {
            0 => RDMA_MC_JOIN_FLAG_FULLMEMBER,
            _ => attr.join_flags,
        };
        if attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
            return Err(Errno::EINVAL);
        }
        if flags >= RDMA_MC_JOIN_FLAG_RESERVED {
            return Err(Errno::EOPNOTSUPP);
        }
        // SAFETY: the program passes NULL or a valid address.
        let group = unsafe { address::read(attr.addr) }?;
        join(id, group, flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context)
    })
}

pub(crate) unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    entry::minus_one(|| {
        // SAFETY: the program passes NULL or a valid address.
        let group = unsafe { address::read(addr) }?;
        leave(id, group)
    })
}
