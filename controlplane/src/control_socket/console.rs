//! The console: commands that change something in this process, and the objects that they make.
//!
//! The objects remain until a command destroys them or their device closes, whichever connection
//! the commands come over. They do not keep the device open.
//!
//! Invariants
//! - A command that waits does not hold up the server thread: it is tried again later.
//! - A command that would harm the program's own objects is refused unless it has `--force`.
//!
//! Not here: answers without effects ([`super::answer`]), effects on a QP (`uroce-transport`).

mod class;
mod connections;
mod dump;
mod failure;
mod forward;
mod migration;
mod modify;
mod objects;
mod ping;
mod ports;
mod trace;
mod traffic;
mod ways;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use uroce_command::request::Fwd;
use uroce_command::{Answer, Clear, Modify, Request, Show, ShowConfig};
use uroce_engine::{CompletionQueue, OwnedRegion, Poller, RecvQueueEnd, SendQueueEnd};
use uroce_engine::{QpInfo, RdDomain, SharedReceiveQueue};
use uroce_transport::Pd;
use uroce_wire::Qpn;

use super::{Served, Shared, or_nothing};
use crate::call::Pending;
use connections::Connections;
pub(super) use failure::Failure;
use forward::Forwarding;

/// Pause before a command that waits is tried again.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// A command in progress: returns its outcome, or `None` if it has to be tried again.
pub(super) type Later =
    Box<dyn FnMut(&mut Console, &[Arc<Served>]) -> Option<Result<Answer, Failure>> + Send>;

/// The state of a command after its first step.
pub(super) enum Begun {
    /// It is complete.
    Over(Answer),
    /// It is in progress.
    Later(Later),
}

/// Objects that commands have made. Each has the key of its device.
#[derive(Debug, Default)]
pub(super) struct Console {
    pds: BTreeMap<u32, PdObject>,
    cqs: BTreeMap<u32, CqObject>,
    srqs: BTreeMap<u32, SrqObject>,
    rdds: BTreeMap<u32, RddObject>,
    /// By QP number and key of the device.
    qps: HashMap<(u32, u64), QpObject>,
    /// By R_Key. No two of them have the same.
    mrs: BTreeMap<u32, MrObject>,
    connections: Connections,
    forwarding: Forwarding,
    /// `wr_id` of the next work request.
    wr_id: u64,
}

#[derive(Debug)]
struct PdObject {
    device: u64,
    pd: Pd,
}

#[derive(Debug)]
struct CqObject {
    device: u64,
    cq: Arc<CompletionQueue>,
    /// Runs those lcores that have no thread of their own.
    poller: Option<Poller>,
}

#[derive(Debug)]
struct SrqObject {
    device: u64,
    pd: u32,
    srq: Arc<SharedReceiveQueue>,
}

#[derive(Debug)]
struct RddObject {
    device: u64,
    rdd: Arc<RdDomain>,
}

/// A queue pair or EE context.
#[derive(Debug)]
struct QpObject {
    pd: u32,
    scq: u32,
    rcq: u32,
    srq: Option<u32>,
    rdd: Option<u32>,
    sq: SendQueueEnd,
    rq: RecvQueueEnd,
}

#[derive(Debug)]
struct MrObject {
    device: u64,
    pd: u32,
    region: OwnedRegion,
}

/// A queue pair that a command names.
#[derive(Clone, Debug)]
struct FoundQp {
    served: Arc<Served>,
    qpn: Qpn,
    info: QpInfo,
    /// Whether a command has made the QP.
    is_ours: bool,
}

impl Console {
    /// Creates a console. Events of its connections wake the server.
    pub(super) fn new(server: Arc<Shared>) -> Console {
        Console { connections: Connections::new(server), ..Console::default() }
    }

    /// Begins a command that is not a `show` or `clear`.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(super) fn begin(
        &mut self,
        request: &Request,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        self.forget_closed(devices);
        match request {
            Request::Dump(what) => dump::dump(*what),
            Request::Create(create) => self.create(create, devices),
            Request::Reg(reg) => self.register(reg, devices),
            Request::Dereg(dereg) => self.deregister(dereg),
            Request::Destroy(destroy) => self.destroy(destroy, devices),
            Request::Modify(Modify::Qp(modify)) => return self.modify(modify, devices),
            Request::Query(query) => self.query(query, devices),
            Request::LoadAltPath(path) => return self.load_alt_path(path, devices),
            Request::Rearm(rearm) => return self.rearm(rearm, devices),
            Request::Migrate(migrate) => return self.migrate(migrate, devices),
            Request::Set(set) => return self.set(set, devices),
            Request::Post(post) => self.post(post),
            Request::Port(port) => self.port(port, devices),
            Request::Ip(ip) => Console::ip(*ip, devices),
            Request::Route(route) => Console::route(*route, devices),
            Request::Neigh(neigh) => Console::neigh(*neigh, devices),
            Request::Show(Show::Rxq(queue)) => self.queue(*queue, false, devices),
            Request::Show(Show::Txq(queue)) => self.queue(*queue, true, devices),
            Request::Trace(trace) => self.trace(trace, devices),
            Request::Poll(poll) => return self.poll(poll),
            Request::Wait(wait) => return traffic::wait(wait, devices),
            Request::Ping(ping) => return Console::ping(ping, devices),
            Request::Listen(listen) => self.listen(listen, devices),
            Request::Connect(connect) => return self.connect(connect, devices),
            Request::Disconnect(disconnect) => self.disconnect(disconnect, devices),
            Request::Cm(cm) => return self.cm(cm, devices),
            Request::Start(start) => return self.start(start, devices),
            Request::Stop => self.stop(devices),
            Request::Show(Show::Fwd(Fwd::Stats { .. })) => self.fwd_stats(devices),
            Request::Clear(Clear::Fwd(Fwd::Stats { .. })) => self.clear_fwd(devices),
            Request::Show(Show::Config(ShowConfig::Fwd)) => Ok(self.fwd_config(devices)),
            Request::Show(_) | Request::Clear(_) | Request::Capture(_) | Request::Scrape(_) => {
                Ok(Answer::Done)
            }
        }
        .map(Begun::Over)
    }

    /// Drops objects of devices that have closed.
    pub(super) fn forget_closed(&mut self, devices: &[Arc<Served>]) {
        let is_open = |key: u64| devices.iter().any(|served| served.key == key);
        self.connections.forget_closed(is_open);
        self.qps.retain(|(_, device), _| is_open(*device));
        self.mrs.retain(|_, mr| is_open(mr.device));
        self.srqs.retain(|_, srq| is_open(srq.device));
        self.rdds.retain(|_, rdd| is_open(rdd.device));
        self.cqs.retain(|_, cq| is_open(cq.device));
        self.pds.retain(|_, pd| is_open(pd.device));
        self.forwarding.forget_closed(is_open);
    }

    /// Finds a QP by its number, at any device.
    fn find_qp(&self, number: u32, devices: &[Arc<Served>]) -> Result<FoundQp, Failure> {
        let mut found = Vec::new();
        for served in devices {
            let found_here = served.calls.call(move |thread| thread.one_qp(number));
            if let Some((qpn, info)) = or_nothing(found_here)? {
                let is_ours = self.qps.contains_key(&(number, served.key));
                found.push(FoundQp { served: Arc::clone(served), qpn, info, is_ours });
            }
        }
        match found.len() {
            0 => Err(Failure::absent("QP", &format!("{number:#08x}"), "show qp")),
            1 => Ok(found.remove(0)),
            _ => Err(ambiguous(number)),
        }
    }
}

fn ambiguous(qp: u32) -> Failure {
    Failure::new(
        rustix::io::Errno::NOTUNIQ,
        format!("several devices have a QP {qp:#08x}"),
        "destroy one of them, if a command has made it, and create another",
    )
}

/// Finds a port by DPDK's number. Returns its device and its number at the device.
fn find_port(number: u16, devices: &[Arc<Served>]) -> Result<(Arc<Served>, u8), Failure> {
    for served in devices {
        let ports = or_nothing(served.calls.call(|thread| Ok(thread.ports_seen())))?;
        if let Some(port) = ports.iter().find(|port| port.id == number) {
            return Ok((Arc::clone(served), port.number));
        }
    }
    Err(Failure::absent("port", &number.to_string(), "show port summary all"))
}

/// Waits for the reply to a call on a control-plane thread.
fn when_done(pending: Pending<()>, answer: Answer) -> Begun {
    let mut answer = Some(answer);
    Begun::Later(Box::new(move |_, _| {
        let done = pending.poll()?;
        Some(done.map_err(Failure::from).map(|()| answer.take().unwrap_or(Answer::Done)))
    }))
}
