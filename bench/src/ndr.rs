//! Zero-loss rates: the highest load that loses nothing, and the highest that loses a given share.
//!
//! ```text
//!   for each service and size
//!     closed loop ──► first load ──► search ── trial ◄──► load ──► the stack ──► loss
//!                                        │ again and again: box statistics
//!     bare port, testpmd, wire ──────────┤ beside
//!     latency over load ─────────────────┘ at shares of the rate that was found (RC)
//! ```
//!
//! [`search`] is the method, [`shape`] what is offered, [`crate::load`] how it is offered and what
//! counts as lost. A search starts a little above the rate of a closed loop. That is near the limit
//! where the stack is the limit, and may be far below one in the network: a closed loop fills a
//! queue there until it drops, and sends again.
//!
//! Invariants
//! - All points are measured by the same rules, which the output states.
//! - A point that cannot be, such as a datagram longer than the path MTU, has a line that says so.
//! - The bare port is measured in the same run on the same CPUs, while the stack rests.

mod report;
pub(crate) mod search;
pub(crate) mod shape;
pub(crate) mod statistics;
mod testpmd;

use crate::cli::{NdrArgs, Role};
use crate::error::BenchError;
use crate::limits::{self, RawPort, frame_rate, take_frames};
use crate::load::{self, Client, Log, Offer, Setting};
use crate::node::Node;
use crate::perf::measure::{Latency, median};
use crate::perf::plan::Service;
use crate::pin::Side;
use crate::rendezvous::{Link, Listener, connect, pause};
use report::{AtLoad, Beside, Point, Report};
use search::{Rules, search};
use serde::{Deserialize, Serialize};
use shape::{FCS, Shape};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use uroce_engine::eal::Eal;

/// Version of the exchange. Two ends must have the same.
const VERSION: u32 = 2;
/// Trials in a closed loop before a search, and their best rate's share at which it starts.
const CLOSED: u32 = 3;
const START: f64 = 1.2;
/// Messages per second at which it starts if no closed loop has ended.
const START_LOW: f64 = 1000.0;
/// Trials at most, of which one counts: another is made if an end was kept from running and
/// messages were lost.
const REPEATS: u32 = 8;
/// Measurements of the bare port for each length of frames; the median counts.
const BARE_RUNS: u32 = 3;

/// What the client wants from the server.
#[derive(Debug, Serialize, Deserialize)]
enum Call {
    /// What both ends must have in common.
    Hello(Terms),
    /// A session of trials.
    Session(Setting),
    /// Frames over the bare port.
    Bare,
    /// No more.
    End,
}

/// What both ends must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Terms {
    /// The version of the exchange, the same in all versions.
    version: u32,
    /// Path MTU in bytes.
    mtu: u32,
    /// A bare port is measured beside.
    bare: bool,
}

impl Terms {
    fn of(args: &NdrArgs, bare: Option<&RawPort>) -> Self {
        Self { version: VERSION, mtu: args.mtu, bare: bare.is_some() }
    }

    /// Compares the terms of this end with those of the other.
    ///
    /// # Errors
    ///
    /// What differs, and what to do about it.
    fn agree(self, theirs: Self) -> Result<(), BenchError> {
        let text = if self.version != theirs.version {
            format!("exchange version {} here, {} there", self.version, theirs.version)
        } else if self.mtu != theirs.mtu {
            format!("path MTU {} here, {} there: give both the same -m", self.mtu, theirs.mtu)
        } else if self.bare != theirs.bare {
            "only one end has a bare port: give --bare to both or to none".to_owned()
        } else {
            return Ok(());
        };
        Err(BenchError::Disagree(text))
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &NdrArgs) -> Result<(), BenchError> {
    let args = args.clone().checked()?;
    let device = &args.ends.device;
    match args.ends.role() {
        Role::Both => {
            let [server, client] = Node::open_both(device, Some(args.mtu), 0)?;
            let bare = bare_pair(&args, &client)?;
            let (ours, theirs) = bare.unzip();
            let (mut far, mut near) = Link::pair()?;
            let terms = Terms::of(&args, theirs.as_ref());
            let serve = move || serve(&server, terms, theirs, &mut far);
            crate::both_ends(serve, move || ask(&args, &client, ours, &mut near))
        }
        Role::Server => {
            let listener = Listener::bind(args.port)?;
            let node = Node::open(device, Side::Server, Some(args.mtu), 0)?;
            let bare = bare_port(&args)?;
            eprintln!("waiting for a client on TCP port {}", args.port);
            let terms = Terms::of(&args, bare.as_ref());
            serve(&node, terms, bare, &mut Link::tcp(listener.accept()?)?)
        }
        Role::Client { host } => {
            let node = Node::open(device, Side::Client, Some(args.mtu), 0)?;
            let bare = bare_port(&args)?;
            ask(&args, &node, bare, &mut Link::tcp(connect(&host, args.port)?)?)
        }
    }
}

fn bare_setting(args: &NdrArgs) -> limits::Setting {
    let time = Duration::from_millis(args.time_ms);
    limits::Setting { size: args.mtu, mtu: args.mtu, time }
}

/// Makes the bare ports beside two devices that are joined by rings.
fn bare_pair(args: &NdrArgs, node: &Node) -> Result<Option<(RawPort, RawPort)>, BenchError> {
    if node.device != "net_ring" {
        return Ok(None);
    }
    RawPort::ring_pair("bare", &bare_setting(args)).map(Some)
}

/// Opens the second device of an end, if there is one.
fn bare_port(args: &NdrArgs) -> Result<Option<RawPort>, BenchError> {
    let Some(device) = &args.bare else { return Ok(None) };
    let eal = Eal::running().ok_or_else(|| {
        BenchError::usage("--bare needs a first device that DPDK drives: give --vdev or --pci")
    })?;
    RawPort::open_on(eal, device.clone(), &bare_setting(args)).map(Some)
}

/// Serves a client until it is done.
fn serve(
    node: &Node,
    terms: Terms,
    bare: Option<RawPort>,
    link: &mut Link,
) -> Result<(), BenchError> {
    let result = serve_inner(node, terms, bare, link);
    result.inspect_err(|error| link.send_failure(error))
}

fn serve_inner(
    node: &Node,
    terms: Terms,
    mut bare: Option<RawPort>,
    link: &mut Link,
) -> Result<(), BenchError> {
    loop {
        // A client may search for longer than any wait lasts, but only within a session.
        match link.receive("waiting for the client's next point", pause)? {
            Call::Hello(theirs) => {
                link.send(&Call::Hello(terms))?;
                terms.agree(theirs)?;
            }
            Call::Session(setting) => load::serve(node, link, &setting)?,
            Call::Bare => {
                let Some(raw) = &mut bare else { return Err(unexpected()) };
                // Attached to this thread, the lcore of the stack is idle meanwhile.
                let _resting = node.drive()?;
                raw.wait_for_link()?;
                take_frames(raw, link)?;
            }
            Call::End => return Ok(()),
        }
    }
}

/// Measures all points as the client, and prints them.
fn ask(
    args: &NdrArgs,
    node: &Node,
    bare: Option<RawPort>,
    link: &mut Link,
) -> Result<(), BenchError> {
    let terms = Terms::of(args, bare.as_ref());
    link.send(&Call::Hello(terms))?;
    match link.receive("waiting for the server's terms", pause)? {
        Call::Hello(theirs) => terms.agree(theirs)?,
        _ => return Err(unexpected()),
    }
    let mut report = Report::new(args, &node.device);
    let mut measuring = Measuring { args, node, bare, link, frames: BTreeMap::new() };
    let result = measuring.all(&mut report);
    if let Err(error) = &result {
        measuring.link.send_failure(error);
    }
    // What has been measured before an error is kept. The first error is the one to tell.
    let written = report.finish(result.as_ref().err());
    result.and(written)
}

fn unexpected() -> BenchError {
    BenchError::Peer("it sent an unexpected message".to_owned())
}

/// The client's means.
struct Measuring<'a> {
    args: &'a NdrArgs,
    node: &'a Node,
    bare: Option<RawPort>,
    link: &'a mut Link,
    /// Frames per second of the bare port, by their length.
    frames: BTreeMap<u32, f64>,
}

impl Measuring<'_> {
    fn all(&mut self, report: &mut Report<'_>) -> Result<(), BenchError> {
        for &service in &self.args.connection {
            for size in self.args.sizes() {
                let shape = match Shape::new(size, service, self.args.mtu) {
                    Ok(shape) => shape,
                    Err(error) => {
                        report.add(Point::impossible(service, size, error.to_string()));
                        continue;
                    }
                };
                let mut point = Point::new(service, size, shape, &self.args.loss);
                let result = self.point(&mut point, &mut report.log);
                // What the searches before an error have found is kept.
                if result.is_ok() || point.has_result() {
                    report.add(point);
                }
                result?;
            }
        }
        self.link.send(&Call::End)
    }

    /// Makes the measurements of a point.
    fn point(&mut self, point: &mut Point, log: &mut Log) -> Result<(), BenchError> {
        let args = self.args;
        let setting = Setting {
            service: point.service,
            messages: point.messages().to_vec(),
            mtu: args.mtu,
            rx_depth: args.rx_depth,
            seed: args.ends.device.seed.unwrap_or(0),
        };
        self.link.send(&Call::Session(setting.clone()))?;
        let mut client = Client::open(self.node, self.link, setting)?;
        let start = closed(args, &mut client, point)?;
        let rules = Rules {
            goals: args.loss.iter().map(|percent| percent / 100.0).collect(),
            width: args.width / 100.0,
            trials: args.trials as usize,
        };
        let time = Duration::from_millis(args.time_ms);
        for _ in 0..args.searches {
            let (found, loads) = search(&rules, start, &mut |rate| {
                let offer = Offer { rate: Some(rate), time, stages: false };
                trial(&mut client, &offer, point)
            })?;
            point.add(&found, &loads);
        }
        let all_out = Offer { rate: None, time, stages: true };
        point.set_stages(&client.trial(&all_out, None)?);
        if point.service == Service::Rc {
            for percent in args.loads() {
                at_load(args, &mut client, point, percent, log)?;
            }
        }
        client.close()?;
        point.bare = self.bare(point)?;
        point.testpmd = match args.testpmd {
            true => Some(testpmd::measure(point, &args.ends.device)),
            false => None,
        };
        Ok(())
    }

    /// Measures what the bare port carries of a point's frames.
    fn bare(&mut self, point: &Point) -> Result<Beside, BenchError> {
        let Some(raw) = &mut self.bare else {
            let text = "not here: this device has no bare port beside it, see --bare";
            return Ok(Beside::Not(text.to_owned()));
        };
        let time = Duration::from_millis(self.args.time_ms);
        let _resting = self.node.drive()?;
        raw.wait_for_link()?;
        for &frame in point.lengths() {
            if self.frames.contains_key(&frame) {
                continue;
            }
            let mut rates = Vec::new();
            for _ in 0..BARE_RUNS {
                self.link.send(&Call::Bare)?;
                rates.push(frame_rate(raw, self.link, (frame - FCS) as usize, time)?);
            }
            self.frames.insert(frame, median(&rates));
        }
        Ok(Beside::Rate(point.at_frame_rates(|frame| self.frames[&frame])))
    }
}

/// Makes a trial, and returns its share of loss. One that was disturbed and has lost something is
/// made again. If all are, the one with the least loss counts, and the output says so: on a machine
/// that is always busy, the median measures what the machine does to the ends, not the stack.
fn trial(client: &mut Client<'_>, offer: &Offer, point: &mut Point) -> Result<f64, BenchError> {
    let mut least: f64 = 1.0;
    for _ in 0..REPEATS {
        let sample = client.trial(offer, None)?;
        let loss = sample.loss(point.frames());
        if loss == 0.0 || !sample.is_disturbed() {
            return Ok(loss);
        }
        least = least.min(loss);
        point.disturbed += 1;
    }
    point.only_disturbed += 1;
    Ok(least)
}

/// Measures the rate of a closed loop, and returns the load at which a search starts.
fn closed(args: &NdrArgs, client: &mut Client<'_>, point: &mut Point) -> Result<f64, BenchError> {
    let time = Duration::from_millis(args.time_ms);
    let offer = Offer { rate: None, time, stages: false };
    let mut best: f64 = 0.0;
    for _ in 0..CLOSED {
        let sample = client.trial(&offer, None)?;
        best = best.max(sample.sent_rate());
        point.closed.push(sample.rate());
    }
    Ok((best * START).max(START_LOW))
}

/// Measures the latency at a share of the rate with the least loss.
fn at_load(
    args: &NdrArgs,
    client: &mut Client<'_>,
    point: &mut Point,
    percent: f64,
    log: &mut Log,
) -> Result<(), BenchError> {
    let Some(rate) = point.least_loss_rate().filter(|rate| *rate > 0.0) else { return Ok(()) };
    let rate = rate * percent / 100.0;
    let time = Duration::from_millis(args.load_time_ms);
    let (mut latency, begin) = (Latency::new(), SystemTime::now());
    let offer = Offer { rate: Some(rate), time, stages: false };
    let sample = client.trial(&offer, Some(&mut latency))?;
    let loss = sample.loss(point.frames());
    let quantiles = (!sample.broken).then(|| latency.quantiles(1.0));
    point.loads.push(AtLoad { percent, rate, loss, quantiles });
    if !sample.broken {
        let tag = format!("{}-{}-{percent}%", point.service.name(), point.size);
        log.add(&tag, begin, time, latency);
    }
    Ok(())
}
