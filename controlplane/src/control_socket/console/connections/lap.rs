//! `cm lap`: agrees with the peer on another alternate path of a connection.

use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::request::{Cm, Lap};

use super::State;
use crate::control_socket::Served;
use crate::control_socket::console::traffic::end_of;
use crate::control_socket::console::{Begun, Console, Failure};
use crate::rdma_cm::{AlternateFailure, PathSpec};

impl Console {
    pub(in crate::control_socket::console) fn cm(
        &mut self,
        cm: &Cm,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        let Cm::Lap(lap) = cm;
        let found = self.find_cm(&lap.of, devices)?;
        let (key, id) = (found.key(), found.id);
        let Some(conn) = self.connections.connections.get_mut(&key) else {
            let owner = if found.is_ours { "a listener" } else { "the program's" };
            let cause = format!("CM {} is {owner}", id.0);
            let remedy = "a QP of the program gets an alternate path by `load alt path`";
            return Err(Failure::new(Errno::PERM, cause, remedy));
        };
        match &conn.state {
            State::Over(failure, _) => return Err(failure.clone()),
            State::Connecting => {
                let cause = format!("CM {} is not established", id.0);
                let remedy = format!("wait for it: wait cm {} established", id.0);
                return Err(Failure::new(Errno::NOTCONN, cause, remedy));
            }
            State::Established => conn.lap = None,
        }
        let Lap { alt, source, timeout, .. } = *lap;
        let path = PathSpec { source, ..PathSpec::to(alt) };
        found.served.calls.call(move |thread| {
            thread.with_connections(|cm, context| {
                cm.call(id, |it, common| it.load_alternate(&path, common, context))
            })
        })?;
        let end = end_of(timeout);
        Ok(Begun::Later(Box::new(move |console, _| {
            let conn = console.connections.connections.get(&key);
            let (lap, peer) = match conn {
                Some(conn) => match &conn.state {
                    State::Over(failure, _) => return Some(Err(failure.clone())),
                    _ => (conn.lap, conn.peer),
                },
                None => {
                    let cause = "the connection has been disconnected";
                    return Some(Err(Failure::new(Errno::NOTCONN, cause, "connect again")));
                }
            };
            match lap {
                Some(Ok(())) => Some(Ok(Answer::Done)),
                Some(Err(failure)) => Some(Err(of_alternate(failure))),
                None if Instant::now() < end => None,
                None => {
                    let cause = format!("{peer} has not answered within {timeout} ms");
                    let remedy = "wait longer: timeout MS";
                    Some(Err(Failure::new(Errno::TIMEDOUT, cause, remedy)))
                }
            }
        })))
    }
}

fn of_alternate(failure: AlternateFailure) -> Failure {
    let (errno, remedy) = match failure {
        AlternateFailure::Local(error) => return error.into(),
        AlternateFailure::Refused(_) => {
            (Errno::CONNREFUSED, "name an address of the peer other than the one in use")
        }
        _ => (Errno::TIMEDOUT, "load the paths at both ends: load alt path, rearm"),
    };
    Failure::new(errno, failure.to_string(), remedy)
}
