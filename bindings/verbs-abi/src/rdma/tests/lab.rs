//! Helpers of the tests.

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

/// A timeout in milliseconds that no test reaches.
pub(super) const SOON: i32 = 20_000;

fn configure() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let path = std::env::temp_dir().join(format!("uroce-cm-{}.toml", std::process::id()));
        std::fs::write(&path, CONFIG).unwrap();
        // SAFETY: no thread of this library runs yet, and the test runner does not read the
        // environment.
        unsafe { std::env::set_var("UROCE_CONFIG", &path) };
        crate::runtime::devices().unwrap();
        std::fs::remove_file(&path).unwrap();
    });
}

/// The `errno` of the last call.
pub(super) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

pub(super) fn address(text: &str) -> sockaddr_storage {
    crate::rdma::address::storage(text.parse().unwrap())
}

pub(super) fn channel() -> *mut rdma_event_channel {
    configure();
    // SAFETY: the call has no arguments.
    let channel = unsafe { rdma_create_event_channel() };
    assert!(!channel.is_null());
    channel
}

pub(super) fn close(channel: *mut rdma_event_channel) {
    // SAFETY: the channel is valid.
    unsafe { rdma_destroy_event_channel(channel) };
    // SAFETY: a slot is never freed, so the destroyed channel is refused.
    assert_eq!(unsafe { rdma_get_cm_event(channel, &mut null_mut()) }, -1, "it is gone");
}

pub(super) fn id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    configure();
    let mut id = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { rdma_create_id(channel, &mut id, null_mut(), RDMA_PS_TCP) }, 0);
    id
}

pub(super) fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_destroy_id(id) }, 0);
}

pub(super) fn bind(id: *mut rdma_cm_id, at: &str) -> i32 {
    let mut at = address(at);
    // SAFETY: `at` is a valid address.
    unsafe { rdma_bind_addr(id, (&raw mut at).cast()) }
}

pub(super) fn listener(channel: *mut rdma_event_channel, at: &str) -> *mut rdma_cm_id {
    backlogged(channel, at, 8)
}

/// Makes a listener with this backlog.
pub(super) fn backlogged(
    channel: *mut rdma_event_channel,
    at: &str,
    backlog: i32,
) -> *mut rdma_cm_id {
    let id = id(channel);
    assert_eq!(bind(id, at), 0, "{}", errno());
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_listen(id, backlog) }, 0);
    id
}

pub(super) fn resolve_addr(id: *mut rdma_cm_id, to: &str, timeout: i32) -> i32 {
    let mut to = address(to);
    // SAFETY: `to` is a valid address.
    unsafe { rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), timeout) }
}

/// Waits for the channel's next event.
pub(super) fn next(channel: *mut rdma_event_channel) -> *mut rdma_cm_event {
    let mut event = null_mut();
    // SAFETY: the channel is valid, and `event` is a local.
    assert_eq!(unsafe { rdma_get_cm_event(channel, &mut event) }, 0, "{}", errno());
    event
}

/// Waits until the channel has an event, without taking it.
pub(super) fn await_one(channel: *mut rdma_event_channel) {
    // SAFETY: the channel is valid.
    let fd = unsafe { (*channel).fd };
    let mut readable = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the place is a local.
    assert_eq!(unsafe { libc::poll(&raw mut readable, 1, SOON) }, 1);
}

/// Checks that the channel has no event for the program. Makes the channel non-blocking.
pub(super) fn expect_nothing(channel: *mut rdma_event_channel) {
    // SAFETY: the channel is valid, and the place for the event is a local.
    unsafe {
        assert_eq!(libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        assert_eq!((rdma_get_cm_event(channel, &mut null_mut()), errno()), (-1, libc::EAGAIN));
    }
}

/// A copy of an event.
pub(super) fn read(event: *mut rdma_cm_event) -> rdma_cm_event {
    // SAFETY: the event is valid.
    unsafe { event.read() }
}

pub(super) fn ack(event: *mut rdma_cm_event) {
    // SAFETY: the event is valid.
    assert_eq!(unsafe { rdma_ack_cm_event(event) }, 0);
}

/// Checks that the channel's next event is `event` without an error, acknowledges it, and returns
/// its id.
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

/// The private data of a connection event.
pub(super) fn data(event: *mut rdma_cm_event) -> Vec<u8> {
    // SAFETY: the event is valid and has parameters of a connection.
    let conn = unsafe { (*event).param.conn };
    if conn.private_data.is_null() {
        return Vec::new();
    }
    let (start, len) = (conn.private_data.cast::<u8>(), usize::from(conn.private_data_len));
    // SAFETY: the event has as many bytes as it says.
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

/// Makes an id with a resolved route to an address.
pub(super) fn routed(channel: *mut rdma_event_channel, to: &str) -> *mut rdma_cm_id {
    let id = id(channel);
    assert_eq!(resolve_addr(id, to, SOON), 0);
    assert_eq!(expect(channel, crate::abi::RDMA_CM_EVENT_ADDR_RESOLVED), id);
    // SAFETY: the id is valid.
    assert_eq!(unsafe { rdma_resolve_route(id, SOON) }, 0);
    assert_eq!(expect(channel, crate::abi::RDMA_CM_EVENT_ROUTE_RESOLVED), id);
    id
}
