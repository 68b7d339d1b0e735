//! What the tests have in common.

use std::ptr::null_mut;
use std::sync::Once;

use crate::abi::{
    RDMA_PS_TCP, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, sockaddr_storage,
};
use crate::rdma::channel::{rdma_create_event_channel, rdma_destroy_event_channel};
use crate::rdma::event::{rdma_ack_cm_event, rdma_get_cm_event};
use crate::rdma::id::{rdma_create_id, rdma_destroy_id};
use crate::rdma::listen::{rdma_bind_addr, rdma_listen};
use crate::rdma::resolve::{rdma_resolve_addr, rdma_resolve_route};

const CONFIG: &str = r#"
[[device]]
name = "left"
[[device.port]]
ethdev = { ring = "cm" }
ip = ["192.0.2.1/24"]
[[device]]
name = "right"
[[device.port]]
ethdev = { ring = "cm" }
ip = ["192.0.2.2/24"]
"#;

/// Far more than anything here takes, in milliseconds.
pub(super) const SOON: i32 = 20_000;

fn configure() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let path = std::env::temp_dir().join(format!("uroce-cm-{}.toml", std::process::id()));
        std::fs::write(&path, CONFIG).unwrap();
        // SAFETY: before anything of ours runs, and the test runner reads no environment by then.
        unsafe { std::env::set_var("UROCE_CONFIG", &path) };
        crate::runtime::devices().unwrap();
        std::fs::remove_file(&path).unwrap();
    });
}

/// The error number of the last call.
pub(super) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

pub(super) fn address(text: &str) -> sockaddr_storage {
    crate::rdma::address::storage(text.parse().unwrap())
}

pub(super) fn channel() -> *mut rdma_event_channel {
    configure();
    // SAFETY: nothing is passed.
    let channel = unsafe { rdma_create_event_channel() };
    assert!(!channel.is_null());
    channel
}

pub(super) fn close(channel: *mut rdma_event_channel) {
    // SAFETY: one of ours.
    unsafe { rdma_destroy_event_channel(channel) };
    // SAFETY: a slot is never freed.
    assert_eq!(unsafe { rdma_get_cm_event(channel, &mut null_mut()) }, -1, "it is gone");
}

pub(super) fn id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    configure();
    let mut id = null_mut();
    // SAFETY: a place of ours.
    assert_eq!(unsafe { rdma_create_id(channel, &mut id, null_mut(), RDMA_PS_TCP) }, 0);
    id
}

pub(super) fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: one of ours.
    assert_eq!(unsafe { rdma_destroy_id(id) }, 0);
}

pub(super) fn bind(id: *mut rdma_cm_id, at: &str) -> i32 {
    let mut at = address(at);
    // SAFETY: an address of ours.
    unsafe { rdma_bind_addr(id, (&raw mut at).cast()) }
}

pub(super) fn listener(channel: *mut rdma_event_channel, at: &str) -> *mut rdma_cm_id {
    backlogged(channel, at, 8)
}

/// A listener with so much of a backlog.
pub(super) fn backlogged(
    channel: *mut rdma_event_channel,
    at: &str,
    backlog: i32,
) -> *mut rdma_cm_id {
    let id = id(channel);
    assert_eq!(bind(id, at), 0, "{}", errno());
    // SAFETY: one of ours.
    assert_eq!(unsafe { rdma_listen(id, backlog) }, 0);
    id
}

pub(super) fn resolve_addr(id: *mut rdma_cm_id, to: &str, timeout: i32) -> i32 {
    let mut to = address(to);
    // SAFETY: an address of ours.
    unsafe { rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), timeout) }
}

/// The channel's next event.
pub(super) fn next(channel: *mut rdma_event_channel) -> *mut rdma_cm_event {
    let mut event = null_mut();
    // SAFETY: one of ours, and a place of ours.
    assert_eq!(unsafe { rdma_get_cm_event(channel, &mut event) }, 0, "{}", errno());
    event
}

/// Waits until an event waits in the channel.
pub(super) fn await_one(channel: *mut rdma_event_channel) {
    // SAFETY: one of ours.
    let fd = unsafe { (*channel).fd };
    let mut readable = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: a place of ours.
    assert_eq!(unsafe { libc::poll(&raw mut readable, 1, SOON) }, 1);
}

/// The channel, which does not block from now on, has no event for the program.
pub(super) fn expect_nothing(channel: *mut rdma_event_channel) {
    // SAFETY: one of ours, and a place of ours.
    unsafe {
        assert_eq!(libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        assert_eq!((rdma_get_cm_event(channel, &mut null_mut()), errno()), (-1, libc::EAGAIN));
    }
}

/// A copy of an event.
pub(super) fn read(event: *mut rdma_cm_event) -> rdma_cm_event {
    // SAFETY: one of ours.
    unsafe { event.read() }
}

pub(super) fn ack(event: *mut rdma_cm_event) {
    // SAFETY: one of ours.
    assert_eq!(unsafe { rdma_ack_cm_event(event) }, 0);
}

/// The channel's next event is that one, without an error; its id.
pub(super) fn expect(
    channel: *mut rdma_event_channel,
    event: rdma_cm_event_type,
) -> *mut rdma_cm_id {
    let came = next(channel);
    let it = read(came);
    assert_eq!((it.event, it.status), (event, 0));
    ack(came);
    it.id
}

/// A private event's data.
pub(super) fn data(event: *mut rdma_cm_event) -> Vec<u8> {
    // SAFETY: one of ours, of a connection.
    let conn = unsafe { (*event).param.conn };
    if conn.private_data.is_null() {
        return Vec::new();
    }
    let (start, len) = (conn.private_data.cast::<u8>(), usize::from(conn.private_data_len));
    // SAFETY: what the event says that it has.
    unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
}

pub(super) fn param(qp_num: u32, data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u8,
        responder_resources: 4,
        initiator_depth: 3,
        flow_control: 1,
        retry_count: 5,
        rnr_retry_count: 6,
        srq: 0,
        qp_num,
    }
}

/// An id whose route to that address is resolved.
pub(super) fn routed(channel: *mut rdma_event_channel, to: &str) -> *mut rdma_cm_id {
    let id = id(channel);
    assert_eq!(resolve_addr(id, to, SOON), 0);
    assert_eq!(expect(channel, crate::abi::RDMA_CM_EVENT_ADDR_RESOLVED), id);
    // SAFETY: one of ours.
    assert_eq!(unsafe { rdma_resolve_route(id, SOON) }, 0);
    assert_eq!(expect(channel, crate::abi::RDMA_CM_EVENT_ROUTE_RESOLVED), id);
    id
}
