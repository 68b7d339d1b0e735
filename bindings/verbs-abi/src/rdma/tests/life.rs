//! Complete connections of queue pairs that the program manages itself.

use std::ptr::null;

use uroce::cm::raw::ConnEvent;

use super::lab::{
    ack, await_one, backlogged, bind, channel, close, data, destroy, errno, expect, expect_nothing,
    id, listener, next, param, read, resolve_addr, routed,
};
use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_QP_PATH_MTU, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_REUSEADDR, ibv_ece, ibv_qp_attr, rdma_cm_id,
};
use crate::objects::id::LINUX_RNR_TIMER;
use crate::objects::id::channel::Happening;
use crate::rdma::attr::rdma_init_qp_attr;
use crate::rdma::connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
};
use crate::rdma::ece::{rdma_get_remote_ece, rdma_reject_ece, rdma_set_local_ece};
use crate::rdma::id::{rdma_get_dst_port, rdma_get_src_port};
use crate::rdma::listen::rdma_listen;
use crate::rdma::migrate::rdma_migrate_id;
use crate::rdma::option::rdma_set_option;

const SERVER: &str = "192.0.2.2:7471";

fn attr(id: *mut rdma_cm_id, state: u32) -> (ibv_qp_attr, u32) {
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = state;
    let mut mask = 0;
    // SAFETY: the id is valid; `attr` and `mask` are locals.
    assert_eq!(unsafe { rdma_init_qp_attr(id, &raw mut attr, &raw mut mask) }, 0);
    (attr, mask.cast_unsigned())
}

#[test]
fn two_ids_connect_with_queue_pairs_of_their_programs_and_disconnect() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let client = routed(near, SERVER);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!((*server).port_num, 1);
        assert!(!(*server).verbs.is_null() && !(*client).verbs.is_null());
        assert_eq!(u16::from_be(rdma_get_src_port(server)), 7471);
        assert_eq!(u16::from_be(rdma_get_dst_port(client)), 7471);
        assert!(u16::from_be(rdma_get_src_port(client)) >= 32768);
        assert_eq!((*client).route.num_paths, 1);
        let to = (*(*client).route.path_rec).dgid.raw;
        assert_eq!(to[12..], [192, 0, 2, 2]);
        let from = (*client).route.addr.addr.ibaddr.sgid.raw;
        assert_eq!(from[12..], [192, 0, 2, 1]);
        assert_eq!(rdma_connect(client, &mut param(0x1234, b"hello")), 0);
    }

    let request = next(far);
    let it = read(request);
    assert_eq!((it.event, it.listen_id), (RDMA_CM_EVENT_CONNECT_REQUEST, server));
    let peer = it.id;
    assert_eq!((data(request).len(), &data(request)[..6]), (56, &b"hello\0"[..]));
    // SAFETY: the event has parameters of a connection.
    let asked = unsafe { it.param.conn };
    assert_eq!((asked.responder_resources, asked.initiator_depth), (3, 4));
    assert_eq!((asked.retry_count, asked.rnr_retry_count, asked.qp_num), (5, 6, 0x1234));
    ack(request);
    let (rtr, mask) = attr(peer, IBV_QPS_RTR);
    assert_eq!((rtr.dest_qp_num, mask & IBV_QP_PATH_MTU), (0x1234, IBV_QP_PATH_MTU));
    assert_eq!((rtr.max_dest_rd_atomic, attr(peer, IBV_QPS_RTS).0.max_rd_atomic), (3, 4));
    assert_eq!(rtr.min_rnr_timer, LINUX_RNR_TIMER);
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_accept(peer, &mut param(0x5678, b"welcome")) }, 0);

    let response = next(near);
    let it = read(response);
    assert_eq!((it.event, it.id), (RDMA_CM_EVENT_CONNECT_RESPONSE, client));
    assert_eq!(&data(response)[..8], b"welcome\0");
    // SAFETY: the event has parameters of a connection.
    assert_eq!(unsafe { it.param.conn.qp_num }, 0x5678);
    ack(response);
    assert_eq!(attr(client, IBV_QPS_INIT).0.port_num, 1);
    let (ours, theirs) = (attr(client, IBV_QPS_RTR).0, attr(peer, IBV_QPS_RTS).0);
    assert_eq!((ours.dest_qp_num, ours.rq_psn), (0x5678, theirs.sq_psn));
    assert_eq!(attr(client, IBV_QPS_RTS).0.sq_psn, attr(peer, IBV_QPS_RTR).0.rq_psn);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_establish(client), 0);
        assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), peer);
        assert_eq!(rdma_disconnect(client), 0);
        assert_eq!(expect(far, RDMA_CM_EVENT_DISCONNECTED), peer);
        assert_eq!(rdma_disconnect(peer), 0);
    }
    assert_eq!(expect(near, RDMA_CM_EVENT_DISCONNECTED), client);
    assert_eq!(expect(near, RDMA_CM_EVENT_TIMEWAIT_EXIT), client);
    [client, peer, server].into_iter().for_each(destroy);
    close(near);
    close(far);
}

#[test]
fn a_packet_of_the_peers_establishes_the_connection() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let client = routed(near, SERVER);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(rdma_notify(peer, IBV_EVENT_COMM_EST), -1, "before it is accepted");
        assert_eq!(rdma_accept(peer, &mut param(1001, b"")), 0);
        assert_eq!(expect(near, RDMA_CM_EVENT_CONNECT_RESPONSE), client);
        assert_eq!(rdma_notify(peer, IBV_EVENT_COMM_EST), 0);
        assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), peer);
        assert_eq!(rdma_notify(peer, IBV_EVENT_COMM_EST), 0, "it is so already");
        [client, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn a_rejection_has_its_reason_and_private_data() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let (client, unserved) = (routed(near, SERVER), routed(near, "192.0.2.2:9"));
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(unserved, &mut param(1000, b"")), 0);
        let event = next(near);
        assert_eq!((read(event).event, read(event).status), (RDMA_CM_EVENT_REJECTED, 8));
        ack(event);
        assert_eq!(rdma_connect(client, &mut param(1001, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(rdma_reject(peer, b"no".as_ptr().cast(), 2), 0);
        let event = next(near);
        assert_eq!((read(event).event, read(event).status), (RDMA_CM_EVENT_REJECTED, 28));
        assert_eq!((data(event).len(), &data(event)[..3]), (148, &b"no\0"[..]));
        ack(event);
        [client, unserved, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn a_rejection_may_be_for_a_vendors_options() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let client = routed(near, SERVER);
    // SAFETY: the ids are valid, and the places are locals.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        let mut ece = ibv_ece { vendor_id: 7, options: 7, comp_mask: 0 };
        assert_eq!((rdma_set_local_ece(peer, &raw mut ece), errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!(rdma_get_remote_ece(peer, &raw mut ece), 0);
        assert_eq!((ece.vendor_id, ece.options), (0, 0));
        assert_eq!(rdma_set_local_ece(peer, &raw mut ece), 0, "none is what there is");
        assert_eq!(rdma_reject_ece(peer, b"no".as_ptr().cast(), 2), 0);
        let event = next(near);
        assert_eq!((read(event).event, read(event).status), (RDMA_CM_EVENT_REJECTED, 35));
        assert_eq!(&data(event)[..3], b"no\0");
        ack(event);
        assert_eq!((rdma_reject_ece(peer, null(), 0), errno()), (-1, libc::EINVAL), "once");
        [client, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn a_request_to_a_listener_that_is_being_destroyed_is_rejected() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let client = routed(near, SERVER);
    // Another thread would do this to destroy the listener while this one takes its event.
    crate::objects::id::get(server).unwrap().acks.close().unwrap();
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_connect(client, &mut param(1000, b"")) }, 0);
    await_one(far);
    expect_nothing(far);
    let event = next(near);
    assert_eq!(read(event).event, RDMA_CM_EVENT_REJECTED);
    ack(event);
    destroy(client);
}

#[test]
fn a_wildcard_hears_all_devices_and_belongs_to_none() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "0.0.0.0:0");
    // SAFETY: the id is valid.
    let (verbs, port) = unsafe { ((*server).verbs, u16::from_be(rdma_get_src_port(server))) };
    assert!(verbs.is_null() && port >= 32768);
    for address in ["192.0.2.1", "192.0.2.2"] {
        let client = routed(near, &format!("{address}:{port}"));
        // SAFETY: the ids are valid.
        unsafe {
            assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
            let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
            assert!(!(*peer).verbs.is_null());
            destroy(peer);
        }
        destroy(client);
    }
    destroy(server);
}

#[test]
fn an_address_that_does_not_answer_is_an_error_event() {
    let near = channel();
    let id = id(near);
    for (to, status) in [("192.0.2.77:1", libc::ETIMEDOUT), ("203.0.113.1:1", libc::ENETUNREACH)] {
        assert_eq!(resolve_addr(id, to, 50), 0);
        let event = next(near);
        let it = read(event);
        assert_eq!((it.event, it.status), (RDMA_CM_EVENT_ADDR_ERROR, -status), "{to}");
        ack(event);
    }
    // Resolution can be tried again.
    assert_eq!(resolve_addr(id, SERVER, 5000), 0);
    expect(near, RDMA_CM_EVENT_ADDR_RESOLVED);
    destroy(id);
}

#[test]
fn an_id_moves_with_its_events() {
    let (near, other) = (channel(), channel());
    let id = id(near);
    assert_eq!(resolve_addr(id, "203.0.113.1:1", 50), 0);
    // SAFETY: the id is valid.
    unsafe {
        assert_eq!(rdma_migrate_id(id, other), 0);
        assert_eq!((*id).channel, other);
    }
    let event = next(other);
    assert_eq!(read(event).event, RDMA_CM_EVENT_ADDR_ERROR);
    ack(event);
    // No id uses the former channel any more.
    close(near);
    destroy(id);
}

#[test]
fn an_address_has_one_owner_unless_both_agree() {
    let near = channel();
    let (one, two) = (id(near), id(near));
    assert_eq!(bind(one, "192.0.2.1:5000"), 0);
    assert_eq!((bind(two, "192.0.2.1:5000"), errno()), (-1, libc::EADDRINUSE));
    assert_eq!((bind(two, "203.0.113.9:0"), errno()), (-1, libc::EADDRNOTAVAIL));
    assert_eq!((bind(one, "192.0.2.1:5001"), errno()), (-1, libc::EINVAL));
    destroy(one);
    assert_eq!(bind(two, "192.0.2.1:5000"), 0);
    destroy(two);
}

#[test]
fn an_id_that_cannot_listen_at_one_device_listens_at_none() {
    let near = channel();
    let (wide, there, here) = (id(near), id(near), id(near));
    for it in [wide, there, here] {
        let option = (RDMA_OPTION_ID as i32, RDMA_OPTION_ID_REUSEADDR as i32);
        let mut on = 1i32;
        // SAFETY: the id is valid, and the place is a local.
        unsafe {
            assert_eq!(rdma_set_option(it, option.0, option.1, (&raw mut on).cast(), 4), 0);
        }
    }
    assert_eq!((bind(wide, "0.0.0.0:5010"), bind(there, "192.0.2.2:5010")), (0, 0));
    // SAFETY: the id is valid.
    let listen = |id| unsafe { rdma_listen(id, 4) };
    assert_eq!((listen(wide), errno()), (-1, libc::EADDRNOTAVAIL));
    // It still shares the port at the first device, and may listen later.
    assert_eq!(bind(here, "192.0.2.1:5010"), 0);
    [there, here].into_iter().for_each(destroy);
    assert_eq!(listen(wide), 0);
    destroy(wide);
}

#[test]
fn an_ack_timeout_is_what_modify_qp_takes() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let client = routed(near, SERVER);
    let mut timeout = 21u8;
    let option = (RDMA_OPTION_ID as i32, RDMA_OPTION_ID_ACK_TIMEOUT as i32);
    // SAFETY: the ids are valid, and the places are locals.
    unsafe {
        assert_eq!(rdma_set_option(client, option.0, option.1, (&raw mut timeout).cast(), 1), 0);
        assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(attr(peer, IBV_QPS_RTS).0.timeout, 21);
        [client, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn a_request_that_the_peer_has_given_up_gives_no_event_and_cannot_be_accepted() {
    let (near, far) = (channel(), channel());
    let server = listener(far, SERVER);
    let client = routed(near, SERVER);
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
        let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        // A program that has not set its own context at the id yet would take the event for the
        // listener's.
        let one = crate::objects::id::get(peer).unwrap();
        let device = one.state().device.unwrap();
        let (_, id) = one.state().connection().unwrap();
        let event = ConnEvent::Rejected { reason: 4, private_data: Vec::new() };
        one.mailbox.send(Happening::Cm(device, id, event));
        expect_nothing(far);
        assert_eq!((rdma_accept(peer, &mut param(1001, b"")), errno()), (-1, libc::EINVAL));
        [client, peer, server].into_iter().for_each(destroy);
    }
}

#[test]
fn a_request_that_is_taken_is_its_listeners_no_more() {
    let (near, far) = (channel(), channel());
    let server = backlogged(far, SERVER, 1);
    let (first, second) = (routed(near, SERVER), routed(near, SERVER));
    // SAFETY: the ids are valid.
    unsafe {
        assert_eq!(rdma_connect(first, &mut param(1000, b"")), 0);
        let one = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(rdma_connect(second, &mut param(1001, b"")), 0);
        let other = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        destroy(server);
        for (client, peer, qpn) in [(first, one, 1002), (second, other, 1003)] {
            assert_eq!(rdma_accept(peer, &mut param(qpn, b"")), 0, "{}", errno());
            assert_eq!(expect(near, RDMA_CM_EVENT_CONNECT_RESPONSE), client);
            assert_eq!(rdma_establish(client), 0);
            assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), peer);
        }
        [first, second, one, other].into_iter().for_each(destroy);
    }
}
