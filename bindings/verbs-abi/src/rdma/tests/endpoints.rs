//! Endpoints, the list of devices, shared receive queues, vendor options.

use std::ptr::null_mut;

use super::lab::{bind, channel, close, destroy, errno, id};
use crate::abi::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_TCP, RDMA_PS_UDP, ibv_ece, ibv_pd,
    ibv_qp_init_attr, ibv_srq_init_attr, rdma_addrinfo, rdma_cm_id, rdma_port_space,
};
use crate::ibv::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::rdma::addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
use crate::rdma::connect::{rdma_accept, rdma_connect, rdma_disconnect};
use crate::rdma::devices::{rdma_free_devices, rdma_get_devices};
use crate::rdma::ece::{rdma_get_remote_ece, rdma_reject_ece, rdma_set_local_ece};
use crate::rdma::endpoint::{rdma_create_ep, rdma_destroy_ep, rdma_get_request};
use crate::rdma::listen::rdma_listen;
use crate::rdma::srq::{rdma_create_srq, rdma_destroy_srq};

const NODE: &std::ffi::CStr = c"192.0.2.2";
const SERVICE: &std::ffi::CStr = c"7471";

/// The address of `NODE` and `SERVICE` in port space TCP, for listening or connecting.
fn info(passive: bool) -> *mut rdma_addrinfo {
    info_in(RDMA_PS_TCP, passive)
}

/// The address of `NODE` and `SERVICE` in a port space, for listening or connecting.
fn info_in(space: rdma_port_space, passive: bool) -> *mut rdma_addrinfo {
    // Loads the configuration.
    close(channel());
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_port_space = space.cast_signed();
    hints.ai_flags = if passive { RAI_PASSIVE.cast_signed() } else { 0 };
    let mut info = null_mut();
    // SAFETY: the strings, the hints and `info` are valid.
    let code = unsafe {
        rdma_getaddrinfo(NODE.as_ptr(), SERVICE.as_ptr(), &raw const hints, &raw mut info)
    };
    assert_eq!(code, 0);
    info
}

fn attributes() -> ibv_qp_init_attr {
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.cap.max_send_wr = 2;
    init.cap.max_recv_wr = 2;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init
}

/// Makes an endpoint with attributes for queue pairs.
fn endpoint(passive: bool) -> *mut rdma_cm_id {
    endpoint_of(info(passive), null_mut())
}

/// Makes an endpoint with a protection domain. Frees `info`.
fn endpoint_of(info: *mut rdma_addrinfo, pd: *mut ibv_pd) -> *mut rdma_cm_id {
    let (mut init, mut id) = (attributes(), null_mut());
    // SAFETY: all arguments are valid.
    unsafe {
        let result = rdma_create_ep(&raw mut id, info, pd, &raw mut init);
        assert_eq!(result, 0, "{}", errno());
        rdma_freeaddrinfo(info);
    }
    id
}

#[test]
fn two_endpoints_connect_with_queue_pairs_of_their_own() {
    let server = endpoint(true);
    // SAFETY: in this test all ids and places are valid.
    unsafe {
        assert!((*server).qp.is_null(), "that of each request is another");
        assert_eq!(rdma_listen(server, 1), 0);
    }
    let far = std::thread::spawn(|| {
        let client = endpoint(false);
        // SAFETY: the id is valid.
        unsafe {
            assert!(!(*client).qp.is_null() && !(*client).send_cq.is_null());
            assert_eq!(rdma_connect(client, null_mut()), 0, "{}", errno());
            assert_eq!(rdma_disconnect(client), 0);
            rdma_destroy_ep(client);
        }
    });
    // SAFETY: all ids and places are valid.
    unsafe {
        let mut request = null_mut();
        assert_eq!(rdma_get_request(server, &raw mut request), 0, "{}", errno());
        assert!(!(*request).qp.is_null());
        assert_eq!((*(*request).event).event, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(rdma_accept(request, null_mut()), 0, "{}", errno());
        far.join().unwrap();
        assert_eq!(rdma_disconnect(request), 0);
        rdma_destroy_ep(request);
        rdma_destroy_ep(server);
    }
}

#[test]
fn requests_of_an_endpoint_have_its_domain() {
    let near = channel();
    let of_device = id(near);
    assert_eq!(bind(of_device, "192.0.2.2:0"), 0);
    // SAFETY: in this test all ids and places are valid.
    let pd = unsafe { ibv_alloc_pd((*of_device).verbs) };
    assert!(!pd.is_null());
    let server = endpoint_of(info(true), pd);
    // SAFETY: the id is valid.
    unsafe {
        assert_eq!((*server).pd, pd);
        assert_eq!(rdma_listen(server, 1), 0);
    }
    let far = std::thread::spawn(|| {
        let client = endpoint(false);
        // SAFETY: the id is valid.
        unsafe {
            assert_eq!((rdma_connect(client, null_mut()), errno()), (-1, libc::ECONNREFUSED));
            rdma_destroy_ep(client);
        }
    });
    // SAFETY: all ids and places are valid.
    unsafe {
        let mut request = null_mut();
        assert_eq!(rdma_get_request(server, &raw mut request), 0, "{}", errno());
        assert_eq!(((*(*request).qp).pd, (*request).pd), (pd, pd));
        rdma_destroy_ep(request);
        rdma_destroy_ep(server);
        far.join().unwrap();
        assert_eq!(ibv_dealloc_pd(pd), 0);
    }
    destroy(of_device);
    close(near);
}

#[test]
fn a_listener_of_datagrams_ends_before_what_it_has_accepted() {
    let server = endpoint_of(info_in(RDMA_PS_UDP, true), null_mut());
    // SAFETY: in this test all ids and places are valid.
    unsafe { assert_eq!(rdma_listen(server, 1), 0) };
    let far = std::thread::spawn(|| {
        let client = endpoint_of(info_in(RDMA_PS_UDP, false), null_mut());
        // SAFETY: the id is valid.
        unsafe {
            assert_eq!(rdma_connect(client, null_mut()), 0, "{}", errno());
            rdma_destroy_ep(client);
        }
    });
    // SAFETY: all ids and places are valid.
    unsafe {
        let mut request = null_mut();
        assert_eq!(rdma_get_request(server, &raw mut request), 0, "{}", errno());
        assert_eq!(rdma_accept(request, null_mut()), 0, "{}", errno());
        assert!((*request).event.is_null(), "it is acknowledged");
        far.join().unwrap();
        rdma_destroy_ep(server);
        rdma_destroy_ep(request);
    }
}

#[test]
fn an_endpoint_that_cannot_be_created_leaves_nothing() {
    let info = info(false);
    let mut id = null_mut();
    // SAFETY: in this test all arguments are valid, or are refused.
    unsafe {
        assert_eq!(rdma_create_ep(null_mut(), info, null_mut(), null_mut()), -1);
        assert_eq!(rdma_create_ep(&raw mut id, null_mut(), null_mut(), null_mut()), -1);
        assert_eq!(errno(), libc::EINVAL);
        let mut odd = info.read();
        odd.ai_port_space = 77;
        assert_eq!(rdma_create_ep(&raw mut id, &raw mut odd, null_mut(), null_mut()), -1);
        assert_eq!(errno(), libc::EINVAL);
        odd = info.read();
        odd.ai_dst_addr = null_mut();
        assert_eq!(rdma_create_ep(&raw mut id, &raw mut odd, null_mut(), null_mut()), -1);
        assert_eq!(errno(), libc::EINVAL);
        odd = info.read();
        odd.ai_route_len = 8;
        assert_eq!(rdma_create_ep(&raw mut id, &raw mut odd, null_mut(), null_mut()), -1);
        assert_eq!(errno(), libc::EOPNOTSUPP);
        // The queue pair cannot be created, because there is no such domain.
        let (mut init, foreign) = (attributes(), (&raw mut odd).cast());
        assert_eq!(rdma_create_ep(&raw mut id, info, foreign, &raw mut init), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert!(id.is_null());
        rdma_freeaddrinfo(info);
        rdma_destroy_ep(null_mut());
        rdma_destroy_ep((&raw mut odd).cast());
    }
}

#[test]
fn requests_are_taken_of_listeners_that_wait_for_results_only() {
    let near = channel();
    let other = id(near);
    assert_eq!(bind(other, "192.0.2.2:0"), 0);
    let mut request = null_mut();
    // SAFETY: all arguments are valid, or are refused.
    unsafe {
        assert_eq!(rdma_listen(other, 1), 0);
        for bad in [other, null_mut()] {
            assert_eq!((rdma_get_request(bad, &raw mut request), errno()), (-1, libc::EINVAL));
        }
        let idle = endpoint(true);
        assert_eq!((rdma_get_request(idle, &raw mut request), errno()), (-1, libc::EINVAL));
        assert_eq!((rdma_get_request(idle, null_mut()), errno()), (-1, libc::EINVAL));
        rdma_destroy_ep(idle);
    }
    destroy(other);
    close(near);
}

#[test]
fn devices_are_listed_as_ids_show_them() {
    let near = channel();
    let one = id(near);
    assert_eq!(bind(one, "192.0.2.2:0"), 0);
    let mut count = 0;
    // SAFETY: all places and ids are valid, and the lists come from the call.
    unsafe {
        let list = rdma_get_devices(&raw mut count);
        assert_eq!(count, 2);
        assert_eq!(list.add(1).read(), (*one).verbs);
        assert!(list.add(2).read().is_null());
        rdma_free_devices(list);
        rdma_free_devices(list);
        rdma_free_devices(null_mut());
        rdma_free_devices(rdma_get_devices(null_mut()));
    }
    destroy(one);
    close(near);
}

#[test]
fn an_id_has_one_shared_receive_queue() {
    let near = channel();
    let one = id(near);
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut attr: ibv_srq_init_attr = unsafe { std::mem::zeroed() };
    attr.attr.max_wr = 8;
    attr.attr.max_sge = 1;
    // SAFETY: all arguments are valid, or are refused.
    unsafe {
        let mut create = |id| rdma_create_srq(id, null_mut(), &raw mut attr);
        assert_eq!((create(one), errno()), (-1, libc::EINVAL), "it is not bound");
        assert_eq!(bind(one, "192.0.2.2:0"), 0);
        assert_eq!(create(one), 0, "{}", errno());
        assert!(!(*one).srq.is_null());
        assert_eq!((create(one), errno()), (-1, libc::EINVAL), "it has one");
        assert_eq!((create(null_mut()), errno()), (-1, libc::EINVAL));
        rdma_destroy_srq(one);
        assert!((*one).srq.is_null());
        rdma_destroy_srq(one);
        rdma_destroy_srq(null_mut());
        assert_eq!(rdma_create_srq(one, null_mut(), null_mut()), -1);
    }
    destroy(one);
    close(near);
}

#[test]
fn no_vendor_has_options_here() {
    let near = channel();
    let one = id(near);
    let ece = |vendor_id, comp_mask| ibv_ece { vendor_id, options: 0, comp_mask };
    // SAFETY: all arguments are valid, or are refused.
    unsafe {
        assert_eq!(rdma_set_local_ece(one, &mut ece(0, 0)), 0);
        let refused = |id, mut ece: ibv_ece| (rdma_set_local_ece(id, &raw mut ece), errno());
        assert_eq!(refused(one, ece(0x15b3, 0)), (-1, libc::EOPNOTSUPP));
        assert_eq!(refused(one, ece(0, 1)), (-1, libc::EINVAL));
        assert_eq!(refused(null_mut(), ece(0, 0)), (-1, libc::EINVAL));
        assert_eq!(rdma_set_local_ece(one, null_mut()), -1);
        let mut told = ece(9, 9);
        assert_eq!(rdma_get_remote_ece(one, &raw mut told), 0);
        assert_eq!((told.vendor_id, told.options, told.comp_mask), (0, 0, 0));
        assert_eq!(rdma_get_remote_ece(one, null_mut()), -1);
        assert_eq!(rdma_get_remote_ece(null_mut(), &raw mut told), -1);
        assert_eq!((rdma_reject_ece(one, std::ptr::null(), 0), errno()), (-1, libc::EINVAL));
    }
    destroy(one);
    close(near);
}
