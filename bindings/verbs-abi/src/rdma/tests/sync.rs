//! Synchronous ids.

use std::ptr::null_mut;

use super::lab::{SOON, bind, destroy, errno, id, param, resolve_addr};
use crate::abi::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
};
use crate::rdma::connect::{rdma_accept, rdma_connect, rdma_disconnect, rdma_establish};
use crate::rdma::event::{rdma_ack_cm_event, rdma_get_cm_event};
use crate::rdma::listen::rdma_listen;
use crate::rdma::resolve::rdma_resolve_route;

#[test]
fn calls_wait_for_their_results_and_leave_the_event() {
    let (server, client) = (id(null_mut()), id(null_mut()));
    // SAFETY: the ids are valid, and the places are locals.
    unsafe {
        assert_eq!(bind(server, "192.0.2.2:7471"), 0);
        assert_eq!(rdma_listen(server, 1), 0);
        assert_eq!(resolve_addr(client, "192.0.2.2:7471", SOON), 0);
        assert_eq!((*(*client).event).event, RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(rdma_resolve_route(client, SOON), 0);
        let there = server.addr();
        let far = std::thread::spawn(move || {
            let server = std::ptr::with_exposed_provenance_mut::<crate::abi::rdma_cm_id>(there);
            let mut event = null_mut();
            assert_eq!(rdma_get_cm_event((*server).channel, &raw mut event), 0);
            assert_eq!((*event).event, RDMA_CM_EVENT_CONNECT_REQUEST);
            let peer = (*event).id;
            assert_ne!((*peer).channel, (*server).channel);
            assert_eq!(rdma_ack_cm_event(event), 0);
            assert_eq!(rdma_accept(peer, &mut param(1001, b"")), 0);
            assert_eq!(rdma_disconnect(peer), 0);
            destroy(peer);
        });
        assert_eq!(rdma_connect(client, &mut param(1000, b"")), 0);
        assert_eq!((*(*client).event).event, RDMA_CM_EVENT_CONNECT_RESPONSE);
        assert_eq!(rdma_establish(client), 0);
        assert_eq!(rdma_disconnect(client), 0);
        far.join().unwrap();
        destroy(client);
        destroy(server);
    }
}

#[test]
fn a_synchronous_call_fails_with_the_errno_of_its_event() {
    let one = id(null_mut());
    assert_eq!((resolve_addr(one, "192.0.2.77:1", 50), errno()), (-1, libc::ETIMEDOUT));
    // SAFETY: the id is valid.
    unsafe {
        assert_eq!(resolve_addr(one, "192.0.2.2:9", SOON), 0);
        assert_eq!(rdma_resolve_route(one, SOON), 0);
        assert_eq!((rdma_connect(one, &mut param(1000, b"")), errno()), (-1, libc::ECONNREFUSED));
    }
    destroy(one);
}
