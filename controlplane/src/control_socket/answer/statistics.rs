//! Answers about counters, drops, and the cycles of the lcores' turns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_command::answer::{
    Counter, DropCount, LcoreRuntime, QpGroup, QpTraffic, Scraped, StageRuntime,
};
use uroce_command::{Answer, Clear, Request, Scrape, Select};
use uroce_engine::port::PortStats;
use uroce_engine::{Counters, LcoreProfile, RoundTripDistribution, Stage};
use uroce_transport::DropReason;

use super::super::Served;
use super::port::{self, PortMarks};
use super::{Part, device, latency, qp};
use crate::call::RequestError;

/// Time for which lcores measure their turns after `show runtime`.
const MEASURED: Duration = Duration::from_secs(10);
/// Time for which lcores measure their turns after a scrape: longer than the usual interval of
/// scrapes.
const MEASURED_FOR_SCRAPES: Duration = Duration::from_secs(120);
/// Largest number of QPs of a device that a scrape lists.
const TOP_MAX: usize = 1000;

/// Values of each device, by its key, at the time at which they were cleared.
#[derive(Debug, Default)]
pub(super) struct Cleared {
    counters: HashMap<u64, HashMap<String, u64>>,
    /// For each lcore, its counters.
    errors: HashMap<u64, Vec<Counters>>,
    /// For each lcore, the profile of its turns.
    runtime: HashMap<u64, Vec<LcoreProfile>>,
    pub(super) round_trips: HashMap<u64, RoundTripDistribution>,
}

impl Cleared {
    /// Drops the values of devices that are closed.
    pub(super) fn keep(&mut self, devices: &[Arc<Served>]) {
        let is_open = |key: &u64| devices.iter().any(|served| served.key == *key);
        self.counters.retain(|key, _| is_open(key));
        self.errors.retain(|key, _| is_open(key));
        self.runtime.retain(|key, _| is_open(key));
        self.round_trips.retain(|key, _| is_open(key));
    }
}

/// Clears counters: later answers count from now.
pub(super) fn clear(
    served: &Served,
    request: &Request,
    cleared: &mut Cleared,
) -> Result<Answer, RequestError> {
    match request {
        Request::Clear(Clear::Counters) => {
            let all = all_counters(served)?.into_iter();
            let values = all.filter(|counter| !counter.is_level());
            let values = values.map(|counter| (counter.name, counter.value)).collect();
            cleared.counters.insert(served.key, values);
        }
        Request::Clear(Clear::Errors) => {
            cleared.errors.insert(served.key, lcores(served).collect());
        }
        Request::Clear(Clear::Runtime) => {
            cleared.runtime.insert(served.key, profiles(served).collect());
        }
        _ => {}
    }
    Ok(Answer::Done)
}

/// Answers with the counters of a device.
pub(super) fn counters(served: &Served, cleared: &Cleared) -> Result<Answer, RequestError> {
    let mut counters = all_counters(served)?;
    if let Some(before) = cleared.counters.get(&served.key) {
        for counter in &mut counters {
            let before = before.get(&counter.name).copied().unwrap_or(0);
            counter.value = counter.value.saturating_sub(before);
        }
    }
    Ok(Answer::Counters(counters))
}

fn all_counters(served: &Served) -> Result<Vec<Counter>, RequestError> {
    let of_engine = served.engine.counters();
    let of_thread = served.calls.call(|thread| Ok(thread.count()))?;
    let of_thread = of_thread.into_iter().map(|count| (count.name, count.description, count.value));
    let all = of_engine.iter().chain(of_thread);
    Ok(all.map(|(name, meaning, value)| counter(served, "", name, value, meaning)).collect())
}

fn counter(served: &Served, object: &str, name: &str, value: u64, meaning: &str) -> Counter {
    Counter {
        device: served.config.name.clone(),
        object: object.to_owned(),
        name: name.to_owned(),
        value,
        meaning: meaning.to_owned(),
    }
}

/// Answers with the counters of QPs.
pub(super) fn of_qps(served: &Served, select: Select, at: u32) -> Result<Part, RequestError> {
    let (page, next) = qp::page(served, select, at)?;
    let is_found = !page.is_empty();
    let of_qp = |(qpn, info): &(uroce_wire::Qpn, uroce_engine::QpInfo)| {
        let object = format!("QP {:#08x}", qpn.value());
        let traffic = info.traffic;
        let migrations = u64::from(info.migration.count);
        [
            ("tx_packets", traffic.tx_packets, "A packet sent."),
            ("tx_bytes", traffic.tx_bytes, "Bytes sent, Ethernet headers included."),
            ("rx_packets", traffic.rx_packets, "A packet received."),
            ("rx_bytes", traffic.rx_bytes, "Bytes received, Ethernet headers included."),
            ("migrations", migrations, "A migration to the other path since it left RESET."),
        ]
        .map(|(name, value, meaning)| counter(served, &object, name, value, meaning))
    };
    Ok(Part { answer: Answer::Counters(page.iter().flat_map(of_qp).collect()), is_found, next })
}

/// Answers with the counters that the drivers of ports keep.
pub(super) fn of_ports(served: &Served, select: Select) -> Result<Part, RequestError> {
    let ports = port::seen(served, select)?;
    let of_port = |port: &crate::thread::PortSeen| {
        let object = format!("port {}", port.id);
        let PortStats {
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_missed,
            rx_errors,
            tx_errors,
            rx_no_mbuf,
            ..
        } = port.stats;
        [
            ("rx_packets", rx_packets, "A frame received."),
            ("rx_bytes", rx_bytes, "Bytes received."),
            ("rx_missed", rx_missed, "A frame dropped for want of a descriptor or of a ring slot."),
            ("rx_errors", rx_errors, "A frame received in error."),
            ("rx_nombuf", rx_no_mbuf, "A received frame for which there was no buffer."),
            ("tx_packets", tx_packets, "A frame sent."),
            ("tx_bytes", tx_bytes, "Bytes sent."),
            ("tx_errors", tx_errors, "A frame that could not be sent."),
        ]
        .map(|(name, value, meaning)| counter(served, &object, name, value, meaning))
    };
    let answer = Answer::Counters(ports.iter().flat_map(of_port).collect());
    Ok(Part { answer, is_found: !ports.is_empty(), next: None })
}

/// Returns the counters of each lcore.
fn lcores(served: &Served) -> impl Iterator<Item = Counters> {
    (0..served.engine.lcores()).filter_map(|lcore| served.engine.lcore_counters(lcore))
}

/// Answers with the drops of a device.
pub(super) fn errors(served: &Served, cleared: &Cleared) -> Answer {
    let before = cleared.errors.get(&served.key).map_or(&[][..], Vec::as_slice);
    Answer::Errors(drops(served, before))
}

/// Returns how often each reason was counted since the readings in `before`, one for each lcore.
fn drops(served: &Served, before: &[Counters]) -> Vec<DropCount> {
    let since = |(lcore, now): (usize, Counters)| match before.get(lcore) {
        Some(before) => now.since(before),
        None => now,
    };
    let of_lcores: Vec<_> = lcores(served).enumerate().map(since).collect();
    let drop = |reason: &DropReason| DropCount {
        device: served.config.name.clone(),
        reason: reason.name().to_owned(),
        lcores: of_lcores.iter().map(|counters| counters.dropped(*reason)).collect(),
        meaning: reason.description().to_owned(),
    };
    DropReason::ALL.iter().map(drop).collect()
}

/// Returns the profile of each lcore.
fn profiles(served: &Served) -> impl Iterator<Item = LcoreProfile> {
    (0..served.engine.lcores()).filter_map(|lcore| served.engine.profile(lcore))
}

/// Answers with the profile of measured turns, and asks the lcores to measure their next ones.
pub(super) fn runtime(served: &Served, cleared: &Cleared) -> Answer {
    served.engine.measure(MEASURED);
    let before = cleared.runtime.get(&served.key).map_or(&[][..], Vec::as_slice);
    Answer::Runtime(runtimes(served, before))
}

fn runtimes(served: &Served, before: &[LcoreProfile]) -> Vec<LcoreRuntime> {
    let of_lcore = |(lcore, now): (usize, LcoreProfile)| {
        let of = before.get(lcore).map_or(now, |before| now.since(before));
        let stage = |(stage, of): (&Stage, &uroce_engine::StageProfile)| StageRuntime {
            stage: stage.name().to_owned(),
            calls: of.calls,
            packets: of.packets,
            cycles: of.cycles,
        };
        LcoreRuntime {
            device: served.config.name.clone(),
            lcore: lcore as u32,
            time_us: of.time().as_micros() as u64,
            cycles: of.cycles(),
            turns: of.turns,
            idle_turns: of.idle_turns,
            idle_cycles: of.idle_cycles,
            rest_cycles: of.rest_cycles,
            stages: Stage::ALL.iter().zip(&of.stages).map(stage).collect(),
        }
    };
    profiles(served).enumerate().map(of_lcore).collect()
}

/// What a scrape has found out about the QPs of a device so far.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Key of the device.
    key: u64,
    groups: Vec<QpGroup>,
    /// QPs with the most bytes.
    top: Vec<QpTraffic>,
}

impl Census {
    fn add(&mut self, qpn: uroce_wire::Qpn, info: &uroce_engine::QpInfo) {
        let (service, state) = (info.qp_type.to_string(), info.attr.state.to_string());
        let is_its = |group: &&mut QpGroup| group.service == service && group.state == state;
        match self.groups.iter_mut().find(is_its) {
            Some(group) => group.count += 1,
            None => self.groups.push(QpGroup { service, state, count: 1 }),
        }
        let of = info.traffic;
        self.top.push(QpTraffic {
            qpn: qpn.value(),
            tx_packets: of.tx_packets,
            tx_bytes: of.tx_bytes,
            rx_packets: of.rx_packets,
            rx_bytes: of.rx_bytes,
        });
    }

    fn keep(&mut self, most: u32) {
        self.top.sort_by_key(|qp| std::cmp::Reverse(qp.bytes()));
        self.top.truncate(usize::try_from(most).unwrap_or(TOP_MAX).min(TOP_MAX));
    }
}

/// Counts a page of QPs. After the last page, answers with all that a scrape reports of a device.
pub(super) fn scrape(
    served: &Served,
    scrape: Scrape,
    at: u32,
    census: &mut Census,
) -> Result<Part, RequestError> {
    if census.key != served.key || at == 0 {
        *census = Census { key: served.key, ..Census::default() };
    }
    if scrape.qps > 0 {
        let (page, next) = qp::page(served, Select::All, at)?;
        page.iter().for_each(|(qpn, info)| census.add(*qpn, info));
        census.keep(scrape.qps);
        if next.is_some() {
            return Ok(Part { answer: Answer::Done, is_found: true, next });
        }
    }
    if scrape.measure {
        served.engine.measure(MEASURED_FOR_SCRAPES);
    }
    let (ports, now) = (port::seen(served, Select::All)?, Instant::now());
    let census = std::mem::take(census);
    let marks = &mut PortMarks::default();
    Ok(Part::whole(Answer::Scraped(vec![Scraped {
        device: served.config.name.clone(),
        port_stats: ports.iter().map(|port| marks.stats(served.key, port, now)).collect(),
        ports: port::infos(served, &ports),
        counters: all_counters(served)?,
        errors: drops(served, &[]),
        cores: device::cores(served)?,
        runtime: runtimes(served, &[]),
        objects: device::objects(served).into(),
        qps: census.groups,
        top: census.top,
        round_trips: Some(latency::distribution(served, None)),
    }])))
}
