//! Multicast groups of ids.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Duration;

use super::lab::{ack, address, bind, channel, close, destroy, errno, id, next, read};
use crate::abi::{
    RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, RDMA_PS_UDP, ibv_qp_init_attr, rdma_cm_id,
    rdma_cm_join_mc_attr_ex, rdma_event_channel,
};
use crate::ibv::mcast::{ibv_attach_mcast, ibv_detach_mcast};
use crate::ibv::qp;
use crate::rdma::id::rdma_create_id;
use crate::rdma::mcast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
use crate::rdma::qp::{rdma_create_qp, rdma_destroy_qp};

const GROUP: &str = "239.1.2.3:0";

/// A UD id, bound to the left device.
fn bound(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { rdma_create_id(channel, &mut id, null_mut(), RDMA_PS_UDP) }, 0);
    assert_eq!(bind(id, "192.0.2.1:0"), 0, "{}", errno());
    id
}

fn with_qp(id: *mut rdma_cm_id) {
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.cap.max_send_wr = 4;
    init.cap.max_recv_wr = 4;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init.qp_type = crate::abi::IBV_QPT_UD;
    // SAFETY: the id and the attributes are valid.
    assert_eq!(unsafe { rdma_create_qp(id, null_mut(), &raw mut init) }, 0, "{}", errno());
}

fn join(id: *mut rdma_cm_id, group: &str, context: *mut c_void) -> i32 {
    let mut group = address(group);
    // SAFETY: `group` is a valid address.
    unsafe { rdma_join_multicast(id, (&raw mut group).cast(), context) }
}

fn leave(id: *mut rdma_cm_id, group: &str) -> i32 {
    let mut group = address(group);
    // SAFETY: `group` is a valid address.
    unsafe { rdma_leave_multicast(id, (&raw mut group).cast()) }
}

/// The number of groups that an id's queue pair is attached to.
fn groups(id: *mut rdma_cm_id) -> usize {
    // SAFETY: the id is valid.
    let qp = crate::objects::qp::get(unsafe { (*id).qp }).unwrap();
    qp.groups.lock().unwrap().len()
}

#[test]
fn joining_reports_the_path_to_the_group_and_attaches_the_queue_pair() {
    let near = channel();
    let one = bound(near);
    with_qp(one);
    let mut mine = 7u32;
    let context = (&raw mut mine).cast();
    assert_eq!(join(one, GROUP, context), 0, "{}", errno());
    assert_eq!(groups(one), 0, "it comes in when the event is taken");
    let event = next(near);
    let it = read(event);
    assert_eq!((it.event, it.status, it.id), (RDMA_CM_EVENT_MULTICAST_JOIN, 0, one));
    // SAFETY: the event has parameters of datagrams.
    let ud = unsafe { it.param.ud };
    assert_eq!((ud.qp_num, ud.qkey), (0xff_ffff, 0x0123_4567));
    assert_eq!(ud.private_data.addr(), context.addr());
    assert_eq!((ud.ah_attr.is_global, ud.ah_attr.port_num, ud.ah_attr.grh.hop_limit), (1, 1, 64));
    // SAFETY: the union's members are bytes, for which any value is valid.
    let dgid = unsafe { ud.ah_attr.grh.dgid.raw };
    assert_eq!(dgid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3]);
    assert_eq!(groups(one), 1);
    ack(event);
    assert_eq!(leave(one, GROUP), 0);
    assert_eq!(groups(one), 0);
    assert_eq!((leave(one, GROUP), errno()), (-1, libc::EADDRNOTAVAIL));
    // SAFETY: the id is valid.
    unsafe { rdma_destroy_qp(one) };
    destroy(one);
    close(near);
}

#[test]
fn a_send_only_member_is_not_attached_to_the_group() {
    let near = channel();
    let one = bound(near);
    with_qp(one);
    let mut group = address(GROUP);
    let mut attr = rdma_cm_join_mc_attr_ex {
        comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        join_flags: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        addr: (&raw mut group).cast(),
    };
    // SAFETY: `attr` is valid.
    assert_eq!(unsafe { rdma_join_multicast_ex(one, &raw mut attr, null_mut()) }, 0);
    let event = next(near);
    assert_eq!(read(event).status, 0);
    assert_eq!(groups(one), 0);
    ack(event);
    assert_eq!(leave(one, GROUP), 0);
    for (comp_mask, join_flags, number) in [
        (0, 0, libc::EINVAL),
        (RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, 0, libc::EINVAL),
        (1 << 2, 0, libc::EOPNOTSUPP),
        (attr.comp_mask, 2, libc::EOPNOTSUPP),
    ] {
        let mut bad = rdma_cm_join_mc_attr_ex { comp_mask, join_flags, ..attr };
        // SAFETY: `bad` is a valid structure.
        let result = unsafe { rdma_join_multicast_ex(one, &raw mut bad, null_mut()) };
        assert_eq!((result, errno()), (-1, number));
    }
    // SAFETY: NULL is allowed, and the id is valid.
    unsafe {
        assert_eq!(rdma_join_multicast_ex(one, null_mut(), null_mut()), -1);
        rdma_destroy_qp(one);
    }
    destroy(one);
    close(near);
}

#[test]
fn a_membership_that_has_ended_has_no_event() {
    let near = channel();
    let one = bound(near);
    assert_eq!(join(one, GROUP, null_mut()), 0);
    assert_eq!(join(one, "239.1.2.4:0", null_mut()), 0);
    assert_eq!(leave(one, GROUP), 0);
    let event = next(near);
    // SAFETY: the event has parameters of datagrams.
    assert_eq!(unsafe { read(event).param.ud.ah_attr.grh.dgid.raw }[15], 4);
    // The other membership is not left before its event is acknowledged.
    let there = one.expose_provenance();
    let leaving = std::thread::spawn(move || {
        leave(std::ptr::with_exposed_provenance_mut(there), "239.1.2.4:0")
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!leaving.is_finished());
    ack(event);
    assert_eq!(leaving.join().unwrap(), 0);
    // Destroying the id ends its memberships.
    assert_eq!(join(one, GROUP, null_mut()), 0);
    destroy(one);
    close(near);
}

#[test]
fn joining_needs_a_group_address_and_a_bound_id() {
    let near = channel();
    let one = bound(near);
    for (group, number) in [
        ("192.0.2.7:0", libc::EINVAL),
        ("0.0.0.0:0", libc::EINVAL),
        // The port has no address of the group's IP version.
        ("[ff0e::1]:0", libc::EADDRNOTAVAIL),
    ] {
        assert_eq!((join(one, group, null_mut()), errno()), (-1, number), "{group}");
    }
    // SAFETY: NULL is allowed.
    unsafe {
        assert_eq!(rdma_join_multicast(one, null_mut(), null_mut()), -1);
        assert_eq!(rdma_leave_multicast(one, null_mut()), -1);
        assert_eq!(rdma_leave_multicast(null_mut(), null_mut()), -1);
    }
    destroy(one);
    assert_eq!((join(one, GROUP, null_mut()), errno()), (-1, libc::EINVAL));
    assert_eq!((leave(one, GROUP), errno()), (-1, libc::EINVAL));
    // An id for connections, and one that is not bound.
    let other = id(near);
    assert_eq!((join(other, GROUP, null_mut()), errno()), (-1, libc::EINVAL));
    destroy(other);
    close(near);
}

#[test]
fn a_queue_pair_in_a_group_is_busy() {
    let near = channel();
    let one = bound(near);
    with_qp(one);
    // SAFETY: the id is valid.
    let pair = unsafe { (*one).qp };
    let group = crate::abi::ibv_gid { raw: *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xef\x01\x02\x03" };
    let host = crate::abi::ibv_gid { raw: *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x03" };
    let nothing = std::ptr::null();
    // SAFETY: all arguments are valid, or are refused.
    unsafe {
        for gid in [&raw const host, nothing] {
            assert_eq!(ibv_attach_mcast(pair, gid, 0), libc::EINVAL);
            assert_eq!(ibv_detach_mcast(pair, gid, 0), libc::EINVAL);
        }
        assert_eq!(ibv_attach_mcast(null_mut(), &raw const group, 0), libc::EINVAL);
        assert_eq!(ibv_detach_mcast(pair, &raw const group, 0), libc::EINVAL);
        for _ in 0..2 {
            assert_eq!(ibv_attach_mcast(pair, &raw const group, 0), 0);
        }
        assert_eq!(qp::ibv_destroy_qp(pair), libc::EBUSY);
        assert_eq!(ibv_detach_mcast(pair, &raw const group, 0), 0);
        rdma_destroy_qp(one);
    }
    destroy(one);
    close(near);
}
