//! Handling of events of the listeners and connections that commands have made.

use std::sync::{Arc, PoisonError};

use rustix::io::Errno;
use uroce_transport::QpType;
use uroce_wire::cm::RejectReason;

use super::{ACCEPTED_MAX, Conn, Key, OVER_MAX, State, destroy};
use crate::control_socket::Served;
use crate::control_socket::console::objects::device_of;
use crate::control_socket::console::{Console, Failure};
use crate::rdma_cm::{CmId, ConnEvent, ConnParam, ConnQp, ConnectRequest};

/// Largest number of events of a device that are handled before clients are served again: a peer
/// can cause any number of requests.
const EVENTS_MAX: usize = 32;

impl Console {
    /// Handles some events of listeners and connections. Wakes the server if others are left.
    pub(in crate::control_socket) fn take_events(&mut self, devices: &[Arc<Served>]) {
        self.give_up_left(devices);
        for served in devices {
            let Some(inbox) = self.connections.inboxes.get(&served.key).cloned() else { continue };
            for _ in 0..EVENTS_MAX {
                let Some((id, event)) = inbox.next() else { break };
                match event {
                    ConnEvent::ConnectRequest(request) => self.requested(id, &request, served),
                    event => self.happened((served.key, id), event, served),
                }
            }
            inbox.wake_if_any();
        }
    }

    /// Ends attempts to connect that have no client any more.
    fn give_up_left(&mut self, devices: &[Arc<Served>]) {
        let left = {
            let mut left = self.connections.left.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *left)
        };
        for key in left {
            let conn = self.connections.connections.get(&key);
            if !conn.is_some_and(|conn| matches!(conn.state, State::Connecting)) {
                continue;
            }
            let Some(conn) = self.connections.connections.remove(&key) else { continue };
            if let Ok(served) = device_of(key.0, devices) {
                destroy(key.1, served);
                self.drop_qp(conn.qpn, served);
            }
        }
    }

    /// Accepts a request with a QP of its own, or rejects it.
    fn requested(&mut self, id: CmId, request: &ConnectRequest, served: &Arc<Served>) {
        if let Err(reason) = self.accept(id, request, served) {
            // An error means that the peer has given up.
            let _ = served.calls.call(move |thread| {
                thread.with_connections(|cm, context| {
                    cm.call(id, |it, common| it.reject(reason, &[], common, context))
                })
            });
            // Nothing else ends the id, even if the peer has given up its request.
            destroy(id, served);
        }
    }

    fn accept(
        &mut self,
        id: CmId,
        request: &ConnectRequest,
        served: &Arc<Served>,
    ) -> Result<(), RejectReason> {
        let listener = request.listener;
        let queues = self.connections.listeners.get(&(served.key, listener)).copied();
        let queues = queues.ok_or(RejectReason::INVALID_SERVICE_ID)?;
        if request.qp_type != QpType::Rc {
            return Err(RejectReason::INVALID_TRANSPORT_TYPE);
        }
        let all = self.connections.connections.iter();
        let accepted = all.filter(|((device, _), conn)| {
            *device == served.key && conn.listener.is_some() && !conn.is_over()
        });
        let most = ACCEPTED_MAX.min(served.config.max_qps as usize / 2);
        if accepted.count() >= most {
            return Err(RejectReason::NO_RESOURCES);
        }
        let qpn = self.create_rc(queues, served).map_err(|_| RejectReason::NO_QP)?;
        let accepted = served.calls.call(move |thread| {
            thread.with_connections(|cm, context| {
                let (qp, param) = (ConnQp::Driven(qpn), ConnParam::default());
                cm.call(id, |it, common| it.accept(qp, param, common, context))
            })
        });
        if accepted.is_err() {
            self.drop_qp(qpn, served);
            return Err(RejectReason::NO_QP);
        }
        let conn = Conn::new(qpn, queues, Some(listener), request.peer);
        self.connections.connections.insert((served.key, id), conn);
        Ok(())
    }

    fn happened(&mut self, key: Key, event: ConnEvent, served: &Served) {
        let Some(conn) = self.connections.connections.get_mut(&key) else { return };
        if conn.is_over() {
            return;
        }
        let peer = conn.peer;
        let failure = match event {
            ConnEvent::Established { .. } => {
                conn.state = State::Established;
                return;
            }
            ConnEvent::AlternateLoaded(outcome) => {
                conn.lap = Some(outcome);
                return;
            }
            ConnEvent::Rejected { reason, .. } => {
                let (cause, remedy) = match RejectReason(reason) {
                    RejectReason::INVALID_SERVICE_ID => {
                        ("nothing listens there".to_owned(), "listen at the peer: listen PORT")
                    }
                    other => (format!("reason {other:?}"), "the peer's program has the details"),
                };
                Failure::new(Errno::CONNREFUSED, format!("{peer} refuses: {cause}"), remedy)
            }
            ConnEvent::Unreachable => {
                let remedy = "check the address and the link: show neigh, show port info all";
                Failure::new(Errno::HOSTUNREACH, format!("{peer} does not answer"), remedy)
            }
            ConnEvent::ConnectError(error) => error.into(),
            ConnEvent::Disconnected { .. } => super::ended(peer),
            _ => return,
        };
        self.end_connection(key, failure, served);
    }

    /// Ends a connection and destroys its QP. Keeps the reason.
    pub(super) fn end_connection(&mut self, key: Key, failure: Failure, served: &Served) {
        let Some(conn) = self.connections.connections.get_mut(&key) else { return };
        conn.state = State::Over(failure, self.connections.ended);
        self.connections.ended += 1;
        let qpn = conn.qpn;
        destroy(key.1, served);
        self.drop_qp(qpn, served);
        let of = |(key, conn): (&Key, &Conn)| match conn.state {
            State::Over(_, number) => Some((number, *key)),
            _ => None,
        };
        let mut over: Vec<(u64, Key)> =
            self.connections.connections.iter().filter_map(of).collect();
        // The reasons of the oldest ends are dropped.
        over.sort_unstable();
        over.truncate(over.len().saturating_sub(OVER_MAX));
        over.iter().for_each(|(_, key)| drop(self.connections.connections.remove(key)));
    }
}
