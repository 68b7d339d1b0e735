//! Execution of each request.

use std::sync::mpsc::{Receiver, TryRecvError};

use super::Thread;
use crate::path::PathError;
use crate::request::{PortStatus, Reply, Request, RequestError};

/// Requests handled before frames have their turn.
const REQUESTS: usize = 16;

impl Thread {
    pub(super) fn take_requests(&mut self, requests: &Receiver<Request>) -> bool {
        for taken in 0..REQUESTS {
            match requests.try_recv() {
                Ok(request) => self.serve(request),
                Err(TryRecvError::Empty) => return taken > 0,
                Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    return true;
                }
            }
        }
        true
    }

    pub(super) fn serve(&mut self, request: Request) {
        match request {
            Request::CreateQp { mut spec, reply } => {
                // A connection needs the QP's events.
                spec.notices = true;
                let result = self.control.create_qp(&spec).map_err(RequestError::from);
                if let Err(unwanted) = reply.send(result) {
                    // The caller has given up; no other reference to the QP exists.
                    if let Ok(handle) = unwanted.0 {
                        let _ = self.control.destroy_qp(handle.qpn);
                    }
                }
            }
            Request::ModifyQp(modify) => self.modify(modify),
            Request::QueryQp { qpn, reply } => {
                answer(&reply, self.control.query_qp(qpn).map_err(RequestError::from));
            }
            Request::ResizeQp { qpn, caps, reply } => {
                answer(&reply, self.control.resize_qp(qpn, caps).map_err(RequestError::from));
            }
            Request::DestroyQp { qpn, reply } => {
                answer(&reply, self.destroy_qp(qpn));
            }
            Request::Resolve { port, vector, reply } => self.resolve(port, &vector, reply),
            Request::ResolveHandle { port, vector, reply } => {
                self.resolve_handle(port, &vector, reply);
            }
            Request::Multicast { qpn, group, membership, reply } => {
                answer(&reply, self.change_membership(qpn, group, membership));
            }
            Request::PortStatus { port, reply } => {
                let port = self.control.port(port).ok_or(PathError::NoPort(port));
                let status = port.map(|p| PortStatus { link: p.link(), stats: p.stats() });
                answer(&reply, status.map_err(RequestError::from));
            }
            Request::Netdev { port, state } => self.follow_netdev(port, state),
            Request::SetLoss { port, loss, reply } => {
                let loss = uroce_engine::LossConfig { rx: loss.rx, tx: loss.tx, seed: loss.seed };
                answer(&reply, self.control.set_loss(port, loss).map_err(RequestError::from));
            }
            Request::SetLink { port, up, reply } => {
                answer(&reply, self.control.set_link(port, up).map_err(RequestError::from));
            }
            Request::Connection(request) => self.serve_connection(request),
            Request::SeeOff { reply } => self.see_off(reply),
            Request::Counts { reply } => answer(&reply, Ok(self.count())),
            Request::Shutdown { patience } => {
                self.patience = patience;
                self.ended = true;
            }
        }
    }
}

/// Sends a reply. The caller may have given up.
pub(super) fn answer<T>(reply: &Reply<T>, result: Result<T, RequestError>) {
    let _ = reply.send(result);
}
