//! Queue pairs of ids, which their connections drive.

use std::ptr::null_mut;

use super::lab::{
    ack, channel, data, destroy, errno, expect, id, listener, next, param, read, routed,
};
use crate::abi::{
    IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, rdma_cm_id,
};
use crate::ibv::modify::{ibv_modify_qp, ibv_query_qp};
use crate::objects::id::LINUX_RNR_TIMER;
use crate::objects::qp;
use crate::rdma::attr::rdma_init_qp_attr;
use crate::rdma::connect::{rdma_accept, rdma_connect, rdma_disconnect, rdma_establish};
use crate::rdma::qp::{rdma_create_qp, rdma_destroy_qp};

fn init() -> ibv_qp_init_attr {
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = 4;
    init.cap.max_recv_wr = 4;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init
}

/// Creates an id's queue pair with the default domain and queues.
fn create_qp(id: *mut rdma_cm_id) {
    let mut init = init();
    // SAFETY: the id is valid, and `init` is a local.
    unsafe {
        assert_eq!(rdma_create_qp(id, null_mut(), &raw mut init), 0, "{}", errno());
        assert_eq!((*(*id).qp).state, IBV_QPS_INIT);
        assert!(!(*id).send_cq.is_null() && !(*id).recv_cq_channel.is_null());
        assert_eq!(((*(*id).qp).pd, init.send_cq), ((*id).pd, (*id).send_cq));
    }
}

fn state(id: *mut rdma_cm_id) -> u32 {
    // SAFETY: the id is valid and has a queue pair.
    unsafe { (*(*id).qp).state }
}

/// The attributes that Query QP returns.
fn queried(id: *mut rdma_cm_id) -> ibv_qp_attr {
    // SAFETY: C structures of numbers and nullable pointers, for which zeros are valid.
    let (mut attr, mut init) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let mask = IBV_QP_STATE.cast_signed();
    // SAFETY: the id is valid and has a queue pair; the places are locals.
    assert_eq!(unsafe { ibv_query_qp((*id).qp, &raw mut attr, mask, &raw mut init) }, 0);
    attr
}

#[test]
fn a_connection_takes_the_ids_own_queue_pairs_to_rts_and_to_err() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    create_qp(client);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(0, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        create_qp(peer);
        assert_eq!(rdma_accept(peer, null_mut()), 0);
        assert_eq!(state(peer), IBV_QPS_RTS, "as soon as it has accepted");
        assert_eq!(expect(near, RDMA_CM_EVENT_ESTABLISHED), client);
        assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), peer);
        assert_eq!((state(client), state(peer)), (IBV_QPS_RTS, IBV_QPS_RTS));
        // The client lets its peer retry six times, the peer without limit.
        let timers = [queried(client).min_rnr_timer, queried(peer).min_rnr_timer];
        assert_eq!(timers, [LINUX_RNR_TIMER, 12]);
        assert_eq!(rdma_disconnect(peer), 0);
        assert_eq!(state(peer), IBV_QPS_ERR);
        assert_eq!(expect(near, RDMA_CM_EVENT_DISCONNECTED), client);
        assert_eq!(
            queried(client).qp_state,
            IBV_QPS_RTS,
            "what has come is not flushed by the peer's wish"
        );
        assert_eq!(rdma_disconnect(client), 0);
        assert_eq!((state(client), queried(client).qp_state), (IBV_QPS_ERR, IBV_QPS_ERR));
        for id in [client, peer] {
            rdma_destroy_qp(id);
            assert!((*id).qp.is_null() && (*id).send_cq.is_null());
        }
        [client, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn a_queue_pair_needs_a_device_and_is_the_only_one() {
    let near = channel();
    let (unbound, bound) = (id(near), routed(near, "192.0.2.1:9"));
    // SAFETY: the ids are valid, and the places are locals.
    unsafe {
        let refused = rdma_create_qp(unbound, null_mut(), &mut init());
        assert_eq!((refused, errno()), (-1, libc::EINVAL));
        assert_eq!((rdma_create_qp(bound, null_mut(), null_mut()), errno()), (-1, libc::EINVAL));
        create_qp(bound);
        let again = rdma_create_qp(bound, null_mut(), &mut init());
        assert_eq!((again, errno()), (-1, libc::EINVAL));
        // A queue pair that was destroyed without the id is refused.
        crate::ibv::qp::ibv_destroy_qp((*bound).qp);
        assert_eq!((rdma_connect(bound, null_mut()), errno()), (-1, libc::EINVAL));
    }
    destroy(unbound);
    destroy(bound);
}

#[test]
fn disconnecting_before_the_connection_is_established_stops_the_queue_pair() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    create_qp(client);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(0, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        create_qp(peer);
        for id in [client, peer] {
            assert_eq!(rdma_disconnect(id), 0, "{}", errno());
            assert_eq!((state(id), queried(id).qp_state), (IBV_QPS_ERR, IBV_QPS_ERR));
            rdma_destroy_qp(id);
        }
        [client, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn accepting_too_late_stops_the_queue_pair() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        create_qp(peer);
        // A listener or a peer that has gone has an equal effect.
        let (manager, cm) = crate::objects::id::get(peer).unwrap().state().connection().unwrap();
        manager.destroy(cm).unwrap();
        assert_eq!((rdma_accept(peer, null_mut()), errno()), (-1, libc::EINVAL));
        assert_eq!((state(peer), queried(peer).qp_state), (IBV_QPS_ERR, IBV_QPS_ERR));
        rdma_destroy_qp(peer);
        [client, peer, server].into_iter().for_each(destroy);
    }
}

/// Whether the queue pair uses selective repeat, which C's attributes do not tell.
fn selective_repeat(pointer: *mut ibv_qp) -> bool {
    let qp = qp::get(pointer).expect("a queue pair of this library");
    qp.engine().unwrap().query().unwrap().attr.selective_repeat
}

/// Connects two ids with queue pairs that the connection drives, and with private data of these
/// lengths. Returns whether each queue pair uses selective repeat.
fn joined(lens: [usize; 2]) -> [bool; 2] {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    create_qp(client);
    let (asked, answer) = (vec![7; lens[0]], vec![8; lens[1]]);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(0, &asked)), 0);
        let request = next(far);
        let peer = read(request).id;
        assert_eq!(data(request), [asked, vec![0; 56 - lens[0]]].concat());
        ack(request);
        create_qp(peer);
        assert_eq!(rdma_accept(peer, &mut param(0, &answer)), 0);
        let established = next(near);
        assert_eq!(data(established), [answer, vec![0; 196 - lens[1]]].concat());
        ack(established);
        assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), peer);
        let uses = [selective_repeat((*client).qp), selective_repeat((*peer).qp)];
        for id in [client, peer] {
            assert_eq!(rdma_disconnect(id), 0);
            rdma_destroy_qp(id);
        }
        [client, peer, server].into_iter().for_each(destroy);
        uses
    }
}

#[test] //= check A28 test
fn queue_pairs_of_ids_use_selective_repeat_if_private_data_leaves_room_to_agree() {
    assert_eq!(joined([0, 0]), [true; 2]);
    assert_eq!(joined([48, 188]), [true; 2]);
    assert_eq!(joined([49, 188]), [false; 2]);
    assert_eq!(joined([48, 189]), [false; 2]);
}

/// Takes a queue pair of the program's own to RTS, with the attributes of the id.
fn modify_to_rts(id: *mut rdma_cm_id, pointer: *mut ibv_qp) {
    for state in [IBV_QPS_RTR, IBV_QPS_RTS] {
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state;
        let mut mask = 0;
        // SAFETY: the id and the queue pair are valid; `attr` and `mask` are locals.
        unsafe {
            assert_eq!(rdma_init_qp_attr(id, &raw mut attr, &raw mut mask), 0);
            assert_eq!(ibv_modify_qp(pointer, &raw mut attr, mask), 0);
        }
    }
}

/// Makes the id's queue pair one of the program's own, which the id does not have.
fn take_qp(id: *mut rdma_cm_id) -> (*mut ibv_qp, u32) {
    create_qp(id);
    // SAFETY: the id is valid and has a queue pair.
    unsafe {
        let pointer = std::mem::replace(&mut (*id).qp, null_mut());
        (pointer, (*pointer).qp_num)
    }
}

#[test] //= check A28 test
fn a_program_that_modifies_its_queue_pair_after_the_answer_gets_the_attribute() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    let (own, number) = take_qp(client);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(number, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        create_qp(peer);
        assert_eq!(rdma_accept(peer, null_mut()), 0);
        assert_eq!(expect(near, RDMA_CM_EVENT_CONNECT_RESPONSE), client);
        modify_to_rts(client, own);
        assert_eq!(rdma_establish(client), 0);
        assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), peer);
        assert_eq!([selective_repeat(own), selective_repeat((*peer).qp)], [true; 2]);
        assert_eq!(rdma_disconnect(client), 0);
        assert_eq!(crate::ibv::qp::ibv_destroy_qp(own), 0);
        assert_eq!(rdma_disconnect(peer), 0);
        rdma_destroy_qp(peer);
    }
    [client, server].into_iter().for_each(destroy);
}

#[test] //= check A28 test
fn a_program_that_modifies_its_queue_pair_before_it_accepts_leaves_selective_repeat_off() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    create_qp(client);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(0, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        let (own, number) = take_qp(peer);
        modify_to_rts(peer, own);
        assert_eq!(rdma_accept(peer, &mut param(number, b"")), 0);
        assert_eq!(expect(near, RDMA_CM_EVENT_ESTABLISHED), client);
        assert_eq!([selective_repeat((*client).qp), selective_repeat(own)], [false; 2]);
        assert_eq!(rdma_disconnect(client), 0);
        rdma_destroy_qp(client);
        assert_eq!(crate::ibv::qp::ibv_destroy_qp(own), 0);
    }
    [client, server].into_iter().for_each(destroy);
}
