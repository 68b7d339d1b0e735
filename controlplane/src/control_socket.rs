//! The control socket: commands of `uroce` to this process.
//!
//! ```text
//!   uroce ── requests ──> socket ──> server thread ── jobs ──> control-plane thread of each device
//!         <─ replies ────                     └─────── reads ──> counters and tables of the engine
//! ```
//!
//! A process that has an open device listens on a Unix socket in the run directory
//! (`control/PID-NAMESPACE.sock`). One thread serves it. The thread gets its answers from the
//! control-plane threads, as an application's calls do, and from counters that any thread may read.
//! It also keeps the objects that commands make ([`console`]). The environment variable
//! `UROCE_CONTROL=off` turns the socket off, and so does `control = false` in the configuration of
//! a device, for that device.
//!
//! Invariants
//! - Control-plane threads and lcores never read from or write to a client. A job for a request
//!   takes at most a fraction of a millisecond.
//! - A client costs only its own connection: its buffers and the number of clients are bounded, and
//!   the next part of an answer is made when the client has taken the last one.
//! - Only this user and root are answered.
//! - If there can be no socket, a device opens, works and closes all the same. A forked child
//!   neither serves its parent's socket nor removes it.
//!
//! Not here: grammar, requests, answers, frames (`uroce-command`).

mod answer;
mod client;
mod console;
#[cfg(test)]
mod fuzz;
pub(crate) mod own;
mod place;
mod server;
mod telemetry;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;
use uroce_command::run_dir;
use uroce_engine::{Engine, EventFd};

use crate::call::{Calls, RequestError};
use crate::config::{DeviceConfig, EalConfig};
use crate::port_watch::PortTable;
use place::Place;

/// Environment variable that turns the socket off.
const VARIABLE: &str = "UROCE_CONTROL";

/// A device that is served, with all that answers about it come from.
#[derive(Debug)]
pub(crate) struct Served {
    /// Key of the device: devices that are opened later have larger ones.
    key: u64,
    config: DeviceConfig,
    /// DPDK's environment, from the configuration with which the device was opened.
    eal: EalConfig,
    guid: u64,
    engine: Engine,
    ports: PortTable,
    calls: Calls,
}

/// Takes the answer of a device that is being closed as an empty one, so that the device does not
/// keep a command from the other devices.
fn or_nothing<T: Default>(answer: Result<T, RequestError>) -> Result<T, RequestError> {
    match answer {
        Err(RequestError::Gone) => Ok(T::default()),
        answer => answer,
    }
}

/// State that the server thread shares with the threads that open and close devices.
#[derive(Debug)]
struct Shared {
    /// Devices in the order of their keys.
    devices: Mutex<Vec<Arc<Served>>>,
    /// Wakes the server thread.
    wake: EventFd,
}

impl Shared {
    fn devices(&self) -> MutexGuard<'_, Vec<Arc<Served>>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server of this process, while it has one.
#[derive(Debug)]
struct Server {
    /// Number of the process that started the server. A forked child has a copy of this value, but
    /// no server.
    pid: u32,
    next_key: u64,
    shared: Arc<Shared>,
    /// The socket's name. It is removed when the server ends.
    _place: Place,
}

static SERVER: Mutex<Option<Server>> = Mutex::new(None);

fn server() -> MutexGuard<'static, Option<Server>> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a device until the returned value is dropped. `None` if that is turned off, or if there
/// can be no socket; in the latter case the log has the reason. The thread that serves the
/// process runs on the `cpu` of its first device, if one is given.
pub(crate) fn serve(
    config: &DeviceConfig,
    eal: &EalConfig,
    cpu: Option<usize>,
    guid: u64,
    engine: &Engine,
    ports: &PortTable,
    calls: &Calls,
) -> Option<Registration> {
    if !config.control || is_off() {
        return None;
    }
    let mut server = server();
    if server.as_ref().is_some_and(|server| server.pid != std::process::id()) {
        // The parent's socket is not ours to remove.
        std::mem::forget(server.take());
    }
    if server.is_none() {
        match start(cpu) {
            Ok(started) => *server = Some(started),
            Err(error) => {
                tracing::warn!(%error, "no control socket");
                return None;
            }
        }
    }
    let server = server.as_mut()?;
    let key = server.next_key;
    server.next_key += 1;
    server.shared.devices().push(Arc::new(Served {
        key,
        config: config.clone(),
        eal: eal.clone(),
        guid,
        engine: engine.clone(),
        ports: ports.clone(),
        calls: calls.clone(),
    }));
    Some(Registration { pid: server.pid, key })
}

/// Returns the devices that are served; none in a forked child.
fn served() -> Vec<Arc<Served>> {
    let server = server();
    let own = server.as_ref().filter(|server| server.pid == std::process::id());
    own.map_or_else(Vec::new, |server| server.shared.devices().clone())
}

fn start(cpu: Option<usize>) -> std::io::Result<Server> {
    let (place, listener) = Place::listen()?;
    let wake = EventFd::new(EventfdFlags::NONBLOCK)?;
    let shared = Arc::new(Shared { devices: Mutex::default(), wake });
    server::start(Arc::clone(&shared), listener, cpu)?;
    telemetry::register();
    Ok(Server { pid: std::process::id(), next_key: 0, shared, _place: place })
}

/// Returns whether the environment turns the socket off.
fn is_off() -> bool {
    let Some(value) = run_dir::variable(VARIABLE) else { return false };
    match value.to_str() {
        Some("off") => true,
        Some("on" | "") => false,
        _ => {
            tracing::warn!(?value, "{VARIABLE} is neither on nor off, and ignored");
            false
        }
    }
}

/// Keeps a device served as long as this exists. The socket is removed with the last device.
#[derive(Debug)]
pub(crate) struct Registration {
    pid: u32,
    key: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        let mut place = server();
        let Some(server) = place.as_ref() else { return };
        let is_last = {
            let mut devices = server.shared.devices();
            devices.retain(|served| served.key != self.key);
            devices.is_empty()
        };
        // The thread drops what commands have made at the device, and ends when no device is left.
        // It is not waited for, because it may be waiting for an lcore that has stopped.
        server.shared.wake.signal();
        if is_last {
            *place = None;
        }
    }
}
