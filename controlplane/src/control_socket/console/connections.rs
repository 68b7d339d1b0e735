//! `listen`, `connect`, `disconnect`, `wait cm`, `cm lap`: connections that commands make.
//!
//! ```text
//!   listen ──> listener ── request ──> RC QP ── accept ──┐
//!   connect ──> RC QP ── cm_connect ──> peer's answer ───┴──> established ──> over: QP destroyed
//! ```
//!
//! The QP of a connection is an object of the console: `post`, `query qp` and other commands may
//! name it. When a listener ends, the connections that it has accepted remain.
//!
//! Invariants
//! - A connection that is over has neither a QP nor an id. The reason for its end is kept until
//!   [`OVER_MAX`] other connections have ended.
//! - The listeners of a device together have at most [`ACCEPTED_MAX`] connections at a time, and at
//!   most half of its QPs: peers cannot take all QPs of the program's device.
//! - An attempt to connect is given up when its client has disconnected.
//!
//! Not here: the program's own connections. Only `disconnect --force` affects one, by ending it.

mod events;
mod inbox;
mod lap;
mod queues;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::answer::Connected;
use uroce_command::request::{CmOf, Connect, Disconnect, Listen};
use uroce_wire::Qpn;

use super::objects::{device_named, device_of};
use super::traffic::end_of;
use super::{Begun, Console, Failure, Served, Shared, or_nothing};
use crate::call::RequestError;
use crate::rdma_cm::{
    AlternateFailure, BindOptions, CmId, CmSink, ConnSeen, ConnectSpec, PathSpec, PortSpace,
};
use inbox::Inbox;

/// Largest number of connections that the listeners of a device have at a time.
const ACCEPTED_MAX: usize = 256;
/// Largest number of ended connections with a reason that is kept.
const OVER_MAX: usize = 64;

/// Key of a device, and CM id at this device. Another device may have the same id.
type Key = (u64, CmId);

/// Listeners and connections that commands have made.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The server that events wake; `None` if there is none to wake.
    server: Option<Arc<Shared>>,
    /// By key of the device.
    inboxes: BTreeMap<u64, Arc<Inbox>>,
    listeners: BTreeMap<Key, ConnQueues>,
    connections: BTreeMap<Key, Conn>,
    /// Attempts to connect that have no waiting client any more. Some may have an outcome.
    left: Arc<Mutex<Vec<Key>>>,
    /// Number of connections that have ended.
    ended: u64,
}

/// Objects that the QPs of a listener or connection use.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnQueues {
    pub(super) pd: u32,
    pub(super) cq: u32,
    pub(super) depth: u32,
}

#[derive(Debug)]
struct Conn {
    qpn: Qpn,
    queues: ConnQueues,
    /// The listener that has accepted the connection.
    listener: Option<CmId>,
    peer: SocketAddr,
    state: State,
    /// Outcome of the last `cm lap`, once it is known.
    lap: Option<Result<(), AlternateFailure>>,
}

#[derive(Clone, Debug)]
enum State {
    /// It is being established.
    Connecting,
    Established,
    /// It has ended, or was not established, for this reason. The number orders the ends.
    Over(Failure, u64),
}

impl Conn {
    fn new(qpn: Qpn, queues: ConnQueues, listener: Option<CmId>, peer: SocketAddr) -> Conn {
        Conn { qpn, queues, listener, peer, state: State::Connecting, lap: None }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over(..))
    }
}

/// A CM id that a command names.
struct FoundCm {
    served: Arc<Served>,
    id: CmId,
    /// State of the id; `None` for a connection of a command that is over.
    seen: Option<ConnSeen>,
    /// Whether a command has made the id.
    is_ours: bool,
}

impl FoundCm {
    fn key(&self) -> Key {
        (self.served.key, self.id)
    }

    fn is_listener(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.peer.is_none())
    }
}

impl Connections {
    /// Creates an empty list. Events of its listeners and connections wake the server.
    pub(super) fn new(server: Arc<Shared>) -> Connections {
        Connections { server: Some(server), ..Connections::default() }
    }

    /// Returns the name of a listener with queues for which `is_it` is true.
    pub(super) fn listener_with(&self, is_it: impl Fn(&ConnQueues) -> bool) -> Option<String> {
        let mut users = self.listeners.iter().filter(|(_, queues)| is_it(queues));
        users.next().map(|((_, id), _)| format!("listener {}", id.0))
    }

    /// Drops listeners and connections of devices that have closed.
    pub(super) fn forget_closed(&mut self, is_open: impl Fn(u64) -> bool) {
        self.inboxes.retain(|device, _| is_open(*device));
        self.listeners.retain(|(device, _), _| is_open(*device));
        self.connections.retain(|(device, _), _| is_open(*device));
    }

    fn inbox(&mut self, served: &Served) -> Arc<Inbox> {
        let server = self.server.clone();
        let inbox = self.inboxes.entry(served.key);
        Arc::clone(inbox.or_insert_with(|| Arc::new(Inbox::new(server))))
    }

    /// Returns the value that a client holds while it waits for an attempt to connect.
    fn wait_for(&self, key: Key) -> Waits {
        Waits { key, left: Arc::clone(&self.left), server: self.server.clone() }
    }

    fn has(&self, key: Key) -> bool {
        self.listeners.contains_key(&key) || self.connections.contains_key(&key)
    }
}

/// Held while a client waits for the outcome of an attempt. If it is dropped, the attempt is given
/// up.
struct Waits {
    key: Key,
    left: Arc<Mutex<Vec<Key>>>,
    server: Option<Arc<Shared>>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        // The list is consistent even if a thread has panicked with the lock held.
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
        if let Some(server) = &self.server {
            server.wake.signal();
        }
    }
}

impl Console {
    pub(super) fn listen(
        &mut self,
        listen: &Listen,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        let (served, queues) = self.queues(&listen.queues, devices)?;
        let sink: Arc<dyn CmSink> = self.connections.inbox(&served);
        let ip = listen.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let (address, backlog) = (SocketAddr::new(ip, listen.port), listen.backlog);
        let (id, local) = served.calls.call(move |thread| {
            thread.with_connections(|cm, context| {
                cm.listen(sink, PortSpace::Tcp, address, BindOptions::default(), backlog, context)
            })
        })?;
        self.connections.listeners.insert((served.key, id), queues);
        let device = served.config.name.clone();
        let ConnQueues { pd, cq, .. } = queues;
        Ok(Answer::Connected(Connected { device, id: id.0, local, peer: None, qpn: None, pd, cq }))
    }

    pub(super) fn connect(
        &mut self,
        connect: &Connect,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        let (served, queues) = self.queues(&connect.queues, devices)?;
        let sink: Arc<dyn CmSink> = self.connections.inbox(&served);
        let qpn = self.create_rc(queues, &served)?;
        let peer = SocketAddr::new(connect.address, connect.port);
        let alternate = connect.alt.map(PathSpec::to);
        let spec = ConnectSpec { alternate, ..ConnectSpec::new(qpn, peer) };
        let begun = served.calls.call(move |thread| {
            thread.with_connections(|cm, context| cm.connect(sink, spec, context))
        });
        let id = match begun {
            Ok(id) => id,
            Err(error) => {
                self.drop_qp(qpn, &served);
                return Err(error.into());
            }
        };
        let key = (served.key, id);
        self.connections.connections.insert(key, Conn::new(qpn, queues, None, peer));
        let (timeout, end) = (connect.timeout, end_of(connect.timeout));
        let waits = self.connections.wait_for(key);
        Ok(Begun::Later(Box::new(move |console, devices| {
            // The closure captures the whole value, not only its key.
            let waits = &waits;
            let key = waits.key;
            let conn = match console.connections.connections.get(&key) {
                Some(conn) => conn,
                // Another client has disconnected it, or the device has closed.
                None => return Some(Err(ended(peer))),
            };
            match &conn.state {
                State::Established => return Some(console.connected(key, devices)),
                State::Over(failure, _) => return Some(Err(failure.clone())),
                State::Connecting if Instant::now() < end => return None,
                State::Connecting => {}
            }
            let cause = format!("{peer} has not answered within {timeout} ms");
            let remedy = "wait longer: timeout MS; or look at `show neigh` and `show cm`";
            let failure = Failure::new(Errno::TIMEDOUT, cause, remedy);
            if let Ok(served) = device_of(key.0, devices) {
                console.end_connection(key, failure.clone(), served);
            }
            Some(Err(failure))
        })))
    }

    /// Returns the answer about an established connection.
    fn connected(&self, key: Key, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let served = device_of(key.0, devices)?;
        let seen = served.calls.call(move |thread| Ok(thread.connection_seen(key.1)))?;
        let conn = self.connections.connections.get(&key);
        let (Some(conn), Some(seen)) = (conn, seen) else { return Err(RequestError::Gone.into()) };
        let ConnQueues { pd, cq, .. } = conn.queues;
        Ok(Answer::Connected(Connected {
            device: served.config.name.clone(),
            id: key.1.0,
            local: seen.local,
            peer: Some(conn.peer),
            qpn: Some(conn.qpn.value()),
            pd,
            cq,
        }))
    }

    pub(super) fn disconnect(
        &mut self,
        disconnect: &Disconnect,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        let found = self.find_cm(&disconnect.of, devices)?;
        let (served, key, id) = (&found.served, found.key(), found.id);
        if self.connections.listeners.remove(&key).is_some() {
            destroy(id, served);
        } else if let Some(conn) = self.connections.connections.remove(&key) {
            if !conn.is_over() {
                destroy(id, served);
                self.drop_qp(conn.qpn, served);
            }
        } else if found.is_listener() {
            let cause = format!("CM {} is the program's listener", id.0);
            let remedy = "the program ends it; its connections can be ended one by one";
            return Err(Failure::new(Errno::PERM, cause, remedy));
        } else if disconnect.force {
            served.calls.call(move |thread| {
                thread.with_connections(|cm, context| {
                    cm.call(id, |it, common| it.disconnect(&[], common, context))
                })
            })?;
        } else {
            return Err(Failure::harmful(&format!("CM {}", id.0)));
        }
        Ok(Answer::Done)
    }

    /// Returns the state of a connection that is not established yet; `None` if it is.
    ///
    /// # Errors
    ///
    /// The reason for which the connection will never be established.
    pub(super) fn instead_of_established(
        &self,
        of: &CmOf,
        devices: &[Arc<Served>],
    ) -> Result<Option<String>, Failure> {
        let found = self.find_cm(of, devices)?;
        let conn = self.connections.connections.get(&found.key());
        if let Some(Conn { state: State::Over(failure, _), .. }) = conn {
            return Err(failure.clone());
        }
        if found.is_listener() {
            let remedy = "`show cm` has the connections that it has accepted";
            return Err(Failure::new(Errno::INVAL, format!("CM {} is a listener", of.cm), remedy));
        }
        match found.seen.map(|seen| seen.state) {
            Some("ESTABLISHED") => Ok(None),
            Some("DISCONNECTING" | "OVER") | None => {
                let cause = format!("CM {} has ended", of.cm);
                Err(Failure::new(Errno::NOTCONN, cause, "connect again"))
            }
            Some(state) => Ok(Some(format!("CM {} is in {state}", of.cm))),
        }
    }

    /// Finds an id by its number, at the named device or at any.
    fn find_cm(&self, of: &CmOf, devices: &[Arc<Served>]) -> Result<FoundCm, Failure> {
        let id = CmId(of.cm.into());
        if let Some(name) = &of.device {
            device_named(Some(name), devices)?;
        }
        let mut found = Vec::new();
        for served in devices {
            if of.device.as_ref().is_some_and(|name| *name != served.config.name) {
                continue;
            }
            let seen = or_nothing(served.calls.call(move |thread| Ok(thread.connection_seen(id))))?;
            let seen = seen.filter(|seen| !seen.is_orphan);
            let is_ours = self.connections.has((served.key, id));
            if is_ours || seen.is_some() {
                found.push(FoundCm { served: Arc::clone(served), id, seen, is_ours });
            }
        }
        match found.len() {
            0 => Err(Failure::absent("CM", &of.cm.to_string(), "show cm")),
            1 => Ok(found.remove(0)),
            _ => Err(Failure::new(
                Errno::NOTUNIQ,
                format!("several devices have a CM {}", of.cm),
                "add device NAME",
            )),
        }
    }
}

/// Ends a listener or connection at its device. This fails only if the device is being closed or
/// the id has already ended.
fn destroy(id: CmId, served: &Served) {
    let _ = served
        .calls
        .call(move |thread| thread.with_connections(|cm, context| cm.destroy(id, context)));
}

fn ended(peer: SocketAddr) -> Failure {
    let cause = format!("the connection to {peer} has been disconnected");
    Failure::new(Errno::NOTCONN, cause, "connect again")
}
