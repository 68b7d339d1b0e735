//! The control-plane thread: one per device.
//!
//! ```text
//!   requests ──> serve ──┬─> Control (commands to lcores) ──> reply
//!                        └─> waiting for a neighbour ── resolve ──> Control ──> reply
//!   slow frames ──> Neighbours ──> frames out
//! ```
//!
//! It is a state machine that never waits for a peer: a request that needs a neighbour's address
//! stands aside, and ARP, neighbour discovery and echo go on.
//!
//! Invariants
//! - Every request is answered once, also when the thread ends.
//! - It alone calls [`Control`].
//!
//! Not here: what the requests mean to a QP (the engine's and the transport's).

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use uroce_engine::eal::block_signals;
use uroce_engine::{Control, multicast_mac};
use uroce_transport::{AttrMask, Instant, QpChange, QpState, QpType, rule};
use uroce_wire::{Encap, Gid, Mac, Qpn};

use crate::config::{Config, DeviceConfig, Lcores};
use crate::path::neighbour::{Ignored, Neighbours, Resolution};
use crate::path::{AddressVector, PathError, Route};
use crate::request::{Count, Membership, ModifyQp, PortStatus, Reply, Request, RequestError};

/// Between two looks at the slow path when nothing happens.
const QUIET: Duration = Duration::from_millis(1);
/// The same while a neighbour is being asked for.
const ASKING: Duration = Duration::from_micros(200);
/// Frames taken before requests are looked at again.
const FRAMES: usize = 64;
/// Requests taken before frames are looked at again.
const REQUESTS: usize = 16;
/// Between two looks at the links.
const LINK_PERIOD: Duration = Duration::from_millis(250);

/// Starts the thread.
///
/// # Errors
///
/// The process may not have another thread.
pub(crate) fn start(
    control: Control,
    neighbours: Vec<Neighbours>,
    requests: Receiver<Request>,
    cpu: Option<usize>,
) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        block_signals();
        if let Some(id) = cpu {
            // A CPU that went away meanwhile is no reason not to run elsewhere.
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        let links = vec![false; neighbours.len()];
        let epoch = std::time::Instant::now();
        let counts = Counts::default();
        let thread =
            Thread { control, neighbours, links, waiting: Vec::new(), counts, epoch, ended: false };
        thread.run(&requests);
    };
    std::thread::Builder::new().name("uroce-control".into()).spawn(body)
}

/// The CPU for the thread: the configured one, or, where the lcores' CPUs are listed, the first
/// that none of the process's lcores has.
pub(crate) fn choose_cpu(config: &Config, device: &DeviceConfig) -> Option<usize> {
    if device.control_cpu.is_some() {
        return device.control_cpu;
    }
    let mut taken = Vec::new();
    for device in &config.devices {
        match &device.lcores {
            Lcores::Cpus(cpus) => taken.extend_from_slice(cpus),
            Lcores::Count(_) => return None,
        }
    }
    let ours = core_affinity::get_core_ids()?;
    ours.into_iter().map(|core| core.id).find(|cpu| !taken.contains(cpu))
}

/// A request that waits for a neighbour's address.
#[derive(Debug)]
struct Waiting {
    route: Route,
    then: Then,
}

#[derive(Debug)]
enum Then {
    Modify { modify: ModifyQp, dest_qpn: Qpn },
    Tell(Reply<Mac>),
    Handle(Reply<Encap>),
}

/// One of [`Route`]'s two ways to be found.
type FindRoute = fn(&AddressVector, u8, &[Gid], &Neighbours) -> Result<Route, PathError>;

macro_rules! counts {
    ($($field:ident $name:literal $doc:literal)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        struct Counts { $($field: u64,)* }

        impl Counts {
            fn list(&self) -> Vec<Count> {
                vec![$(($name, $doc, self.$field),)*]
            }
        }
    };
}

counts! {
    frames_in "slow_rx_frames" "A frame that is not RoCE, received."
    frames_out "slow_tx_frames" "A frame that is not RoCE, sent."
    frames_lost "slow_tx_errors" "A frame that is not RoCE, which could not be sent."
    unresolved "slow_unresolved" "A path asked for whose neighbour did not answer."
}

struct Thread {
    control: Control,
    neighbours: Vec<Neighbours>,
    /// Whether each link was up when last seen.
    links: Vec<bool>,
    waiting: Vec<Waiting>,
    counts: Counts,
    epoch: std::time::Instant,
    ended: bool,
}

impl Thread {
    fn run(mut self, requests: &Receiver<Request>) {
        let (mut links_due, mut serve_due) = (Instant::ZERO, Instant::ZERO);
        while !self.ended {
            let now = self.now();
            if now >= links_due {
                self.watch_links();
                links_due = now + LINK_PERIOD;
            }
            // Seldom, however much there is to do: each turn of ours is in an adopter's way.
            if now >= serve_due {
                self.control.serve_adopted();
                serve_due = now + QUIET;
            }
            let mut busy = self.take_frames(now);
            self.ask_neighbours();
            self.resume();
            busy |= self.take_requests(requests);
            if !busy {
                self.wait(requests);
            }
        }
        for waiting in self.waiting.drain(..) {
            waiting.then.refuse(RequestError::Gone);
        }
        self.control.shutdown();
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until there is a request, or it is time to look at the slow path again.
    fn wait(&mut self, requests: &Receiver<Request>) {
        let pause = if self.waiting.is_empty() { QUIET } else { ASKING };
        match requests.recv_timeout(pause) {
            Ok(request) => self.serve(request),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.ended = true,
        }
    }

    fn take_requests(&mut self, requests: &Receiver<Request>) -> bool {
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

    fn serve(&mut self, request: Request) {
        match request {
            Request::CreateQp { spec, reply } => {
                let result = self.control.create_qp(&spec).map_err(RequestError::from);
                if let Err(unwanted) = reply.send(result) {
                    // Who asked has given up: nobody else knows the QP.
                    if let Ok(handle) = unwanted.0 {
                        let _ = self.control.destroy_qp(handle.qpn);
                    }
                }
            }
            Request::ModifyQp(modify) => self.modify(modify),
            Request::QueryQp { qpn, reply } => {
                answer(&reply, self.control.query_qp(qpn).map_err(RequestError::from));
            }
            Request::DestroyQp { qpn, reply } => {
                answer(&reply, self.control.destroy_qp(qpn).map_err(RequestError::from));
            }
            Request::Resolve { port, vector, reply } => match self.route(&vector, port) {
                Ok(route) => self.waiting.push(Waiting { route, then: Then::Tell(reply) }),
                Err(error) => answer(&reply, Err(error.into())),
            },
            Request::ResolveHandle { port, vector, reply } => {
                self.resolve_handle(port, &vector, reply);
            }
            Request::Multicast { qpn, group, membership, reply } => {
                let result = match membership {
                    Membership::Attach => self.control.attach_multicast(qpn, group),
                    Membership::Detach => self.control.detach_multicast(qpn, group),
                };
                answer(&reply, result.map_err(RequestError::from));
            }
            Request::PortStatus { port, reply } => {
                let port = self.control.port(port).ok_or(PathError::NoPort(port));
                let status = port.map(|p| PortStatus { link: p.link(), stats: p.stats() });
                answer(&reply, status.map_err(RequestError::from));
            }
            Request::Counts { reply } => answer(&reply, Ok(self.count())),
            Request::Shutdown => self.ended = true,
        }
    }

    fn modify(&mut self, modify: ModifyQp) {
        let Some(vector) = modify.vector else {
            return self.command(modify, None);
        };
        let (attr, qp_type) = match self.control.query_qp(modify.qpn) {
            Ok(info) => (info.attr, info.qp_type),
            Err(error) => return answer(&modify.reply, Err(error.into())),
        };
        if !may_take_path(qp_type, attr.state, &modify.change) {
            // The core refuses it, whatever the path is, and says why.
            return self.command(modify, Some(Encap::default()));
        }
        let port = modify.change.port.unwrap_or(attr.port);
        let dest_qpn = modify.change.dest_qpn.unwrap_or(attr.dest_qpn);
        match self.route(&vector, port) {
            Ok(route) => {
                self.waiting.push(Waiting { route, then: Then::Modify { modify, dest_qpn } });
            }
            Err(error) => answer(&modify.reply, Err(error.into())),
        }
    }

    /// A group's Ethernet address follows from its own; a host's is asked for.
    fn resolve_handle(&mut self, port: u8, vector: &AddressVector, reply: Reply<Encap>) {
        let Some(mac) = multicast_mac(vector.dgid) else {
            return match self.route(vector, port) {
                Ok(route) => self.waiting.push(Waiting { route, then: Then::Handle(reply) }),
                Err(error) => answer(&reply, Err(error.into())),
            };
        };
        let encap = self.find(vector, port, Route::to_group).map(|route| {
            let neighbours = &self.neighbours[usize::from(route.port) - 1];
            route.handle_encap(neighbours, mac)
        });
        answer(&reply, encap.map_err(RequestError::from));
    }

    fn command(&mut self, modify: ModifyQp, path: Option<Encap>) {
        let change = QpChange { path, ..*modify.change };
        let result = self.control.modify_qp(modify.qpn, &change);
        answer(&modify.reply, result.map_err(RequestError::from));
    }

    fn route(&self, vector: &AddressVector, port: u8) -> Result<Route, PathError> {
        self.find(vector, port, Route::find)
    }

    fn find(&self, vector: &AddressVector, port: u8, find: FindRoute) -> Result<Route, PathError> {
        let gids = self.control.addresses(port).map(|addresses| &addresses.gids);
        let at = usize::from(port).wrapping_sub(1);
        match (self.neighbours.get(at), gids) {
            (Some(neighbours), Some(gids)) => find(vector, port, gids, neighbours),
            _ => Err(PathError::NoPort(port)),
        }
    }

    /// Goes on with the requests whose neighbours are known by now, or will never be.
    fn resume(&mut self) {
        let now = self.now();
        for waiting in std::mem::take(&mut self.waiting) {
            let neighbours = &mut self.neighbours[usize::from(waiting.route.port) - 1];
            match neighbours.resolve(now, waiting.route.next_hop) {
                Resolution::Pending => self.waiting.push(waiting),
                Resolution::Failed => {
                    self.counts.unresolved += 1;
                    waiting.then.refuse(waiting.route.no_answer().into());
                }
                Resolution::Ready(mac) => self.resolved(waiting, mac),
            }
        }
        self.ask_neighbours();
    }

    fn resolved(&mut self, waiting: Waiting, mac: Mac) {
        let Waiting { route, then } = waiting;
        match then {
            Then::Tell(reply) => answer(&reply, Ok(mac)),
            Then::Handle(reply) => {
                let neighbours = &self.neighbours[usize::from(route.port) - 1];
                answer(&reply, Ok(route.handle_encap(neighbours, mac)));
            }
            Then::Modify { modify, dest_qpn } => {
                let neighbours = &self.neighbours[usize::from(route.port) - 1];
                let path = route.encap(neighbours, mac, modify.qpn, dest_qpn);
                self.command(modify, Some(path));
            }
        }
    }

    fn take_frames(&mut self, now: Instant) -> bool {
        for taken in 0..FRAMES {
            let Some(frame) = self.control.recv_frame() else { return taken > 0 };
            self.counts.frames_in += 1;
            let at = usize::from(frame.port).wrapping_sub(1);
            let Some(neighbours) = self.neighbours.get_mut(at) else { continue };
            let Self { control, counts, .. } = self;
            let mut emit = |bytes: &[u8]| send(control, counts, frame.port, bytes);
            // What it was ignored for is counted by reason.
            let _ = neighbours.handle_frame(now, frame.mbuf.as_slice(), &mut emit);
        }
        true
    }

    fn ask_neighbours(&mut self) {
        let now = self.now();
        let Self { control, counts, neighbours, .. } = self;
        for (neighbours, port) in neighbours.iter_mut().zip(1..) {
            if neighbours.next_timeout().is_some_and(|due| due <= now) {
                neighbours.handle_timeout(now, &mut |bytes| send(control, counts, port, bytes));
            }
        }
    }

    /// Announces a port's addresses when its link comes up.
    fn watch_links(&mut self) {
        let Self { control, counts, neighbours, links, .. } = self;
        for ((neighbours, was_up), port) in neighbours.iter().zip(links).zip(1..) {
            let is_up = control.port(port).is_some_and(|port| port.link().up);
            if is_up && !*was_up {
                neighbours.announce(&mut |bytes| send(control, counts, port, bytes));
            }
            *was_up = is_up;
        }
    }

    fn count(&self) -> Vec<Count> {
        let mut counts = self.counts.list();
        counts.extend(Ignored::ALL.iter().map(|reason| {
            let of_port = |port: &Neighbours| port.ignored(*reason);
            let value = self.neighbours.iter().map(of_port).sum();
            (reason.name(), reason.description(), value)
        }));
        counts
    }
}

impl Then {
    fn refuse(self, error: RequestError) {
        match self {
            Then::Modify { modify, .. } => answer(&modify.reply, Err(error)),
            Then::Tell(reply) => answer(&reply, Err(error)),
            Then::Handle(reply) => answer(&reply, Err(error)),
        }
    }
}

/// Whoever asked may have given up.
fn answer<T>(reply: &Reply<T>, result: Result<T, RequestError>) {
    let _ = reply.send(result);
}

fn send(control: &mut Control, counts: &mut Counts, port: u8, frame: &[u8]) {
    match control.send_frame(port, frame) {
        Ok(()) => counts.frames_out += 1,
        // As if the link had lost it: it is asked for or announced again.
        Err(_) => counts.frames_lost += 1,
    }
}

/// Whether a change that brings a path has all that its transition needs beside it.
fn may_take_path(qp_type: QpType, from: QpState, change: &QpChange) -> bool {
    let Some(rule) = rule(qp_type, from, change.state.unwrap_or(from)) else { return false };
    let given = change.mask() | AttrMask::AV;
    (rule.required | rule.optional).contains(given) && given.contains(rule.required)
}

#[cfg(test)]
mod tests;
