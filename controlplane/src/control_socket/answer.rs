//! Answers to requests, in parts: one part for each device or port, or several for many QPs.
//!
//! Invariants
//! - A part fits into a frame, and the thread that makes it asks a control-plane thread at most a
//!   few questions.
//! - Devices may open and close between two parts. Each part is about a device that is open.

mod capture;
mod detail;
mod device;
mod fault;
mod latency;
mod paths;
mod port;
mod qp;
mod statistics;
mod trace;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use uroce_command::{
    Answer, Clear, Refusal, Reply, Request, Select, SelectCm, Set, Show, ShowConfig,
};

use super::console::{Begun, Console, Later};
use super::{Served, Shared};
use crate::call::RequestError;

pub(super) use qp::detail as qp_detail;

/// State that the server keeps between requests, for all clients.
#[derive(Debug, Default)]
pub(super) struct Kept {
    marks: Marks,
    console: Console,
}

impl Kept {
    /// Creates the state of a new server.
    pub(super) fn new(server: Arc<Shared>) -> Kept {
        Kept { console: Console::new(server), ..Kept::default() }
    }

    /// Handles events of connections that commands have made.
    pub(super) fn take_events(&mut self, devices: &[Arc<Served>]) {
        self.console.take_events(devices);
    }

    /// Drops the state of devices that are closed.
    pub(super) fn keep(&mut self, devices: &[Arc<Served>]) {
        self.marks.keep(devices);
        self.console.forget_closed(devices);
    }
}

/// Values at the time at which they were shown or cleared; later answers count from there. Other
/// readers of the counters do not notice.
#[derive(Debug, Default)]
struct Marks {
    ports: port::PortMarks,
    events: device::EventMarks,
    statistics: statistics::Cleared,
}

impl Marks {
    /// Drops the values of devices that are closed.
    fn keep(&mut self, devices: &[Arc<Served>]) {
        self.ports.keep(devices);
        self.events.keep(devices);
        self.statistics.keep(devices);
    }
}

/// A request and the progress of its answer.
pub(super) struct Work {
    request: Request,
    /// The descriptor that came with the request.
    file: Option<OwnedFd>,
    /// The command, if it is waiting for its outcome.
    doing: Option<Later>,
    /// The next part is about the first device with this key or a larger one.
    key: u64,
    /// The place in that device at which the next part begins.
    at: u32,
    /// Whether the object that the request names was found.
    is_found: bool,
    /// What a scrape has found out about the device's QPs so far.
    census: statistics::Census,
}

/// A part of an answer, about one device: its content, whether the request's object was found, and
/// the place at which the next part about the same device begins, if there is one.
struct Part {
    answer: Answer,
    is_found: bool,
    next: Option<u32>,
}

impl Part {
    /// Creates a part after which none follows about the same device.
    fn whole(answer: Answer) -> Part {
        Part { answer, is_found: true, next: None }
    }
}

impl Work {
    /// Begins to answer a request. `file` is the descriptor that came with it.
    pub(super) fn new(request: Request, file: Option<OwnedFd>) -> Work {
        let census = statistics::Census::default();
        Work { request, file, doing: None, key: 0, at: 0, is_found: false, census }
    }

    /// Makes the next reply; `None` if the command has to be tried again later.
    pub(super) fn step(&mut self, devices: &[Arc<Served>], kept: &mut Kept) -> Option<Reply> {
        let Kept { marks, console } = kept;
        match self.request {
            Request::Show(
                Show::Fwd(_) | Show::Rxq(_) | Show::Txq(_) | Show::Config(ShowConfig::Fwd),
            )
            | Request::Clear(Clear::Fwd(_)) => self.act(devices, console),
            Request::Show(_)
            | Request::Clear(_)
            | Request::Capture(_)
            | Request::Scrape(_)
            | Request::Set(Set::Fault(_) | Set::XstatsHideZero { .. }) => {
                Some(self.tell(devices, marks))
            }
            _ => self.act(devices, console),
        }
    }

    /// Begins the command, or continues it.
    fn act(&mut self, devices: &[Arc<Served>], console: &mut Console) -> Option<Reply> {
        let outcome = match &mut self.doing {
            Some(later) => later(console, devices)?,
            None => match console.begin(&self.request, devices) {
                Ok(Begun::Over(answer)) => Ok(answer),
                Ok(Begun::Later(later)) => {
                    self.doing = Some(later);
                    return None;
                }
                Err(failure) => Err(failure),
            },
        };
        Some(match outcome {
            Ok(answer) => Reply::Last(answer),
            Err(failure) => Reply::Refused(failure.into()),
        })
    }

    /// Makes the next part of the answer.
    fn tell(&mut self, devices: &[Arc<Served>], marks: &mut Marks) -> Reply {
        if self.request == Request::Show(Show::Process) {
            return Reply::Last(Answer::Process(device::process(devices)));
        }
        if let Request::Set(Set::XstatsHideZero { hide }) = self.request {
            marks.ports.hide_zero(hide.is_on());
            return Reply::Last(Answer::Done);
        }
        if let Some(reply) = self.at_once(devices) {
            let failed = |error: RequestError| Reply::Refused(Refusal::Failed(error.to_string()));
            return reply.unwrap_or_else(failed);
        }
        let mut open = devices.iter().filter(|served| served.key >= self.key);
        let Some(served) = open.next() else { return self.end() };
        let at = if served.key == self.key { self.at } else { 0 };
        let part = match &self.request {
            Request::Scrape(scrape) => statistics::scrape(served, *scrape, at, &mut self.census),
            request => part(served, request, at, marks),
        };
        let part = match part {
            Ok(part) => part,
            // The device is being closed. Its remaining parts are left out.
            Err(RequestError::Gone) => Part { is_found: false, ..Part::whole(Answer::Done) },
            Err(error) => return Reply::Refused(Refusal::Failed(error.to_string())),
        };
        self.is_found |= part.is_found;
        (self.key, self.at) = match part.next {
            Some(at) => (served.key, at),
            None => (served.key + 1, 0),
        };
        Reply::More(part.answer)
    }

    /// Returns the reply to a request that is not answered device by device.
    fn at_once(&mut self, devices: &[Arc<Served>]) -> Option<Result<Reply, RequestError>> {
        match &self.request {
            Request::Capture(request) => Some(capture::answer(request, self.file.take(), devices)),
            Request::Show(Show::Capture) => Some(capture::show(devices)),
            Request::Show(Show::Config(ShowConfig::File)) => Some(Ok(device::file(devices))),
            Request::Set(Set::Fault(change)) => Some(fault::set(change, devices)),
            Request::Show(Show::Fault) => Some(fault::show(devices)),
            Request::Clear(Clear::Faults) => Some(fault::clear(devices)),
            _ => None,
        }
    }

    /// Returns the reply after the last part.
    fn end(&self) -> Reply {
        match named(&self.request) {
            Some(object) if !self.is_found => Reply::Refused(Refusal::NoSuchObject(object)),
            _ => Reply::Last(Answer::Done),
        }
    }
}

/// Returns the refusal of a request that names an object which does not exist.
fn named(request: &Request) -> Option<String> {
    let port = port::selected(request);
    match (request, port) {
        (_, Some(Select::One(port))) => Some(format!("Invalid port {port}")),
        (
            Request::Show(
                Show::Qp { qp: Select::One(qpn) }
                | Show::Path { qp: Select::One(qpn) }
                | Show::Migration { qp: Select::One(qpn) }
                | Show::Rate { qp: Select::One(qpn) }
                | Show::Counters { qp: Some(Select::One(qpn)), .. }
                | Show::Latency { qp: Some(Select::One(qpn)), .. },
            ),
            _,
        ) => Some(format!("no QP {qpn:#08x}")),
        (Request::Show(Show::Cm { cm: SelectCm::One(id) }), _) => {
            Some(format!("no connection {id}"))
        }
        _ => None,
    }
}

fn part(
    served: &Served,
    request: &Request,
    at: u32,
    marks: &mut Marks,
) -> Result<Part, RequestError> {
    match *request {
        Request::Show(Show::Port(show)) => port::show(served, show, at, &mut marks.ports),
        Request::Clear(Clear::Port(clear)) => port::clear(served, clear, &mut marks.ports),
        Request::Show(Show::Qp { qp }) => qp::qps(served, qp, at),
        Request::Show(Show::Path { qp }) => qp::paths(served, qp, at),
        Request::Show(Show::Counters { qp: Some(qp), .. }) => statistics::of_qps(served, qp, at),
        Request::Show(Show::Counters { port: Some(port), .. }) => {
            statistics::of_ports(served, port)
        }
        Request::Show(Show::Counters { .. }) => {
            statistics::counters(served, &marks.statistics).map(Part::whole)
        }
        Request::Show(Show::Errors) => {
            Ok(Part::whole(statistics::errors(served, &marks.statistics)))
        }
        Request::Show(Show::Runtime) => {
            Ok(Part::whole(statistics::runtime(served, &marks.statistics)))
        }
        Request::Clear(Clear::Counters | Clear::Errors | Clear::Runtime) => {
            statistics::clear(served, request, &mut marks.statistics).map(Part::whole)
        }
        Request::Show(Show::Latency { qp: None, distribution: true }) => {
            let before = marks.statistics.round_trips.get(&served.key);
            let of_device = latency::distribution(served, before);
            Ok(Part::whole(Answer::Distribution(vec![of_device])))
        }
        Request::Show(Show::Latency { qp, .. }) => {
            latency::show(served, qp.unwrap_or(Select::All), at)
        }
        Request::Clear(Clear::Latency) => {
            if at == 0 {
                marks.statistics.round_trips.insert(served.key, served.engine.round_trips());
            }
            latency::clear(served, at)
        }
        Request::Show(Show::Migration { qp }) => paths::migrations(served, qp, at),
        Request::Show(Show::Rate { qp }) => paths::rates(served, qp, at),
        Request::Show(Show::Cm { cm }) => paths::connections(served, cm, at),
        Request::Show(Show::Events { count }) => {
            device::events(served, count, &marks.events).map(Part::whole)
        }
        Request::Clear(Clear::Events) => {
            device::clear_events(served, &mut marks.events).map(Part::whole)
        }
        Request::Show(Show::Neigh) => device::neighbours(served, at),
        Request::Show(Show::Trace) => trace::show(served).map(Part::whole),
        Request::Clear(Clear::Trace) => trace::clear(served).map(Part::whole),
        Request::Show(show) => device::show(served, show).map(Part::whole),
        // Captures and faults are answered at once; all other commands by the console.
        _ => Ok(Part::whole(Answer::Done)),
    }
}

/// Returns the word that a setting has in the configuration file.
fn word(setting: &impl std::fmt::Debug) -> String {
    format!("{setting:?}").to_lowercase()
}
