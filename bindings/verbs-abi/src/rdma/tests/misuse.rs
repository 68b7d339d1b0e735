//! Calls that programs must not make, and their errors.

use std::ptr::{null, null_mut};
use std::time::Duration;

use uroce::cm::raw::MAX_INIT_RD_ATOMIC;
use uroce::cm::{CmError, ConnectParam, Connection, RejectReason};

use super::lab::{
    ack, bind, channel, close, destroy, errno, expect, expect_nothing, id, listener, next, param,
    resolve_addr, routed,
};
use crate::abi::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_OPTION_IB,
    RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, RDMA_PS_IPOIB, RDMA_PS_TCP, rdma_cm_id,
};
use crate::rdma::attr::rdma_init_qp_attr;
use crate::rdma::channel::rdma_destroy_event_channel;
use crate::rdma::connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
};
use crate::rdma::event::{rdma_ack_cm_event, rdma_get_cm_event};
use crate::rdma::id::{rdma_create_id, rdma_destroy_id, rdma_get_dst_port, rdma_get_src_port};
use crate::rdma::listen::{rdma_bind_addr, rdma_listen};
use crate::rdma::migrate::rdma_migrate_id;
use crate::rdma::option::rdma_set_option;
use crate::rdma::resolve::{rdma_resolve_addr, rdma_resolve_route};

/// Checks that calls return -1 and set this error number.
macro_rules! refused {
    ($number:ident: $($call:expr),* $(,)?) => {
        $(
            // SAFETY: all arguments are valid, or are refused.
            let code = unsafe { $call };
            assert_eq!((code, errno()), (-1, libc::$number), stringify!($call));
        )*
    };
}

#[test]
fn an_invalid_id_is_refused_by_every_call() {
    let near = channel();
    let gone = id(near);
    destroy(gone);
    let mut foreign = 0u64;
    for bad in [null_mut(), (&raw mut foreign).cast::<rdma_cm_id>(), gone] {
        let mut to = super::lab::address("192.0.2.2:1");
        let to = (&raw mut to).cast();
        let (mut attr, mut mask, mut tos) = ([0u8; 256], 0, 0u8);
        refused!(EINVAL:
            rdma_destroy_id(bad),
            rdma_bind_addr(bad, to),
            rdma_listen(bad, 1),
            rdma_resolve_addr(bad, null_mut(), to, 1),
            rdma_resolve_route(bad, 1),
            rdma_connect(bad, &mut param(1, b"")),
            rdma_accept(bad, &mut param(1, b"")),
            rdma_reject(bad, null(), 0),
            rdma_establish(bad),
            rdma_notify(bad, 4),
            rdma_disconnect(bad),
            rdma_migrate_id(bad, near),
            rdma_set_option(bad, 0, 0, (&raw mut tos).cast(), 1),
            rdma_init_qp_attr(bad, attr.as_mut_ptr().cast(), &raw mut mask),
        );
        // SAFETY: the id is refused.
        assert_eq!(unsafe { (rdma_get_src_port(bad), rdma_get_dst_port(bad)) }, (0, 0));
    }
    close(near);
}

#[test]
fn null_places_and_invalid_addresses_are_refused() {
    let near = channel();
    let one = id(near);
    let mut mask = 0;
    refused!(EINVAL:
        rdma_create_id(near, null_mut(), null_mut(), RDMA_PS_TCP),
        rdma_create_id(near, &mut null_mut(), null_mut(), 77),
        rdma_create_id(near.wrapping_add(1), &mut null_mut(), null_mut(), RDMA_PS_TCP),
        rdma_bind_addr(one, null_mut()),
        rdma_resolve_addr(one, null_mut(), null_mut(), 1),
        rdma_get_cm_event(near, null_mut()),
        rdma_get_cm_event(null_mut(), &mut null_mut()),
        rdma_ack_cm_event(null_mut()),
        rdma_init_qp_attr(one, null_mut(), &raw mut mask),
        rdma_init_qp_attr(one, null_mut(), null_mut()),
        rdma_migrate_id(one, near.wrapping_add(1)),
    );
    refused!(EOPNOTSUPP: rdma_create_id(near, &mut null_mut(), null_mut(), RDMA_PS_IPOIB));
    destroy(one);
    close(near);
}

#[test]
fn calls_out_of_turn_are_refused() {
    let near = channel();
    let one = id(near);
    refused!(EINVAL:
        rdma_resolve_route(one, 1),
        rdma_connect(one, &mut param(1, b"")),
        rdma_accept(one, &mut param(1, b"")),
        rdma_reject(one, null(), 0),
        rdma_establish(one),
        rdma_disconnect(one),
    );
    assert_eq!(resolve_addr(one, "192.0.2.2:9", 5000), 0);
    refused!(EINVAL: rdma_resolve_route(one, 1), rdma_listen(one, 1));
    assert_eq!(bind(one, "192.0.2.1:0"), -1);
    assert_eq!(resolve_addr(one, "192.0.2.2:9", 5000), -1);
    expect(near, RDMA_CM_EVENT_ADDR_RESOLVED);
    destroy(one);
    close(near);
}

#[test]
fn parameters_out_of_range_are_refused_and_nothing_is_asked() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    let too_deep = |depth| crate::abi::rdma_conn_param { initiator_depth: depth, ..param(1, b"") };
    let nowhere =
        crate::abi::rdma_conn_param { private_data: null(), private_data_len: 1, ..param(1, b"") };
    refused!(EINVAL:
        rdma_connect(client, null_mut()),
        rdma_connect(client, &mut param(1 << 24, b"")),
        rdma_connect(client, &mut param(1, &[0; 57])),
        rdma_connect(client, &mut too_deep(MAX_INIT_RD_ATOMIC + 1)),
        rdma_connect(client, &mut nowhere.clone()),
    );
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_connect(client, &mut param(1000, &[0; 56])) }, 0);
    let peer = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    refused!(EINVAL:
        rdma_accept(peer, &mut param(1, &[0; 197])),
        rdma_reject(peer, [0u8; 149].as_ptr().cast(), 149),
        rdma_reject(peer, null(), 1),
    );
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_accept(peer, &mut param(1001, &[0; 196])) }, 0);
    refused!(EINVAL: rdma_accept(peer, &mut param(1001, b"")));
    [client, peer, server].into_iter().for_each(destroy);
}

#[test]
fn options_of_wrong_sizes_and_unknown_ones_are_refused() {
    let one = id(null_mut());
    let mut value = [0u8; 8];
    let value = value.as_mut_ptr().cast();
    let big = [0xff_u8; 4];
    let big = big.as_ptr().cast_mut().cast();
    let ours = RDMA_OPTION_ID as i32;
    for option in [RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_ACK_TIMEOUT] {
        refused!(EINVAL:
            rdma_set_option(one, ours, option as i32, value, 4),
            rdma_set_option(one, ours, option as i32, null_mut(), 1),
        );
    }
    for option in [RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY] {
        refused!(EINVAL: rdma_set_option(one, ours, option as i32, value, 1));
    }
    refused!(EINVAL: rdma_set_option(one, ours, RDMA_OPTION_ID_ACK_TIMEOUT as i32, big, 1));
    refused!(ENOSYS:
        rdma_set_option(one, ours, 77, value, 1),
        rdma_set_option(one, 77, 0, value, 1),
    );
    let (ib, path) = (RDMA_OPTION_IB as i32, RDMA_OPTION_IB_PATH as i32);
    refused!(EOPNOTSUPP: rdma_set_option(one, ib, path, value, 8));
    assert_eq!(bind(one, "192.0.2.1:0"), 0);
    refused!(EINVAL: rdma_set_option(one, ours, RDMA_OPTION_ID_REUSEADDR as i32, value, 4));
    destroy(one);
}

#[test]
fn a_channel_stays_while_ids_use_it() {
    let near = channel();
    let one = id(near);
    // SAFETY: the channel is valid.
    unsafe { rdma_destroy_event_channel(near) };
    assert_eq!(errno(), libc::EBUSY);
    destroy(one);
    close(near);
}

#[test]
fn an_id_waits_for_its_unacknowledged_events() {
    let near = channel();
    let one = id(near);
    assert_eq!(resolve_addr(one, "192.0.2.2:9", 5000), 0);
    let event = next(near);
    let at = event.expose_provenance();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        ack(std::ptr::with_exposed_provenance_mut(at));
    });
    let began = std::time::Instant::now();
    destroy(one);
    assert!(began.elapsed() >= Duration::from_millis(90));
    later.join().unwrap();
    refused!(EINVAL: rdma_ack_cm_event(event));
}

#[test]
fn an_id_that_is_destroyed_leaves_no_event() {
    let (near, far) = (channel(), channel());
    let server = listener(far, "192.0.2.2:7471");
    let client = routed(near, "192.0.2.2:7471");
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_connect(client, &mut param(1000, b"")) }, 0);
    // The client is connecting, and its request waits at the listener.
    destroy(client);
    destroy(server);
    for channel in [near, far] {
        // SAFETY: the channel is valid.
        let fd = unsafe { (*channel).fd };
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        refused!(EAGAIN: rdma_get_cm_event(channel, &mut null_mut()));
        close(channel);
    }
}

#[test] //= check R45 test
fn a_request_of_an_ee_context_is_refused_without_an_event() {
    let far = channel();
    let server = listener(far, "192.0.2.2:7471");
    let peer = crate::runtime::devices().unwrap()[0].context().unwrap();
    let eec = peer.open_rd_domain().unwrap().create_eec().unwrap();
    let to: std::net::SocketAddr = "192.0.2.2:7471".parse().unwrap();
    let answer = Connection::connect(&eec, to, &ConnectParam::default(), Duration::from_secs(20));
    match answer {
        Err(CmError::Rejected { reason, .. }) => {
            assert_eq!(reason, RejectReason::INVALID_TRANSPORT_TYPE);
        }
        other => panic!("{other:?}"),
    }
    expect_nothing(far);
    destroy(server);
    close(far);
}
