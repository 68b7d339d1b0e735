//! Answers about processes, devices, their objects and counters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use uroce_command::answer::{
    Core, Device, Event, Gid, InUse, Neighbour, ObjectCount, Process, ProcessDevice, Settings,
};
use uroce_command::{Answer, Refusal, Reply, Show};

use super::super::Served;
use super::{Part, ShowConfig, detail, paths, port, word};
use crate::call::RequestError;
use crate::config::{Config, Lcores, PortConfig};
use crate::thread::{About, Happened};

/// Describes this process. The number of QPs is 0 for a device that does not answer.
pub(super) fn process(devices: &[Arc<Served>]) -> Process {
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let device = |served: &Arc<Served>| {
        let zero = uroce_wire::Gid::default();
        let gids = served.ports.all().into_iter().flat_map(|port| port.gids);
        ProcessDevice {
            name: served.config.name.clone(),
            addresses: gids.filter(|gid| *gid != zero).map(|gid| gid.to_ip()).collect(),
            qps: qps(served).map_or(0, |of_lcores| of_lcores.iter().sum()),
            running: served.engine.is_running(),
        }
    };
    Process {
        pid: std::process::id(),
        program: comm.trim_end().to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        devices: devices.iter().map(device).collect(),
    }
}

/// Answers requests that need one part for each device.
pub(super) fn show(served: &Served, show: Show) -> Result<Answer, RequestError> {
    Ok(match show {
        Show::Device { detail } => Answer::Device(vec![device(served, detail)?]),
        Show::Gid => Answer::Gid(gids(served)?),
        Show::Pd | Show::Cq | Show::Mr | Show::Mw | Show::Srq | Show::Ah => {
            let all = objects(served);
            let at = match show {
                Show::Pd => 0,
                Show::Cq => 1,
                Show::Mr => 2,
                Show::Mw => 3,
                Show::Srq => 4,
                _ => 5,
            };
            Answer::Count(vec![all[at].clone()])
        }
        Show::Mcast => paths::groups(served)?,
        Show::Route => paths::routes(served)?,
        Show::Config(ShowConfig::Cores) => Answer::Cores(cores(served)?),
        Show::Config(ShowConfig::Roce) => Answer::Settings(vec![roce(served)]),
        Show::Config(ShowConfig::Rxtx) => Answer::Settings(vec![rxtx(served)]),
        // These are answered elsewhere.
        Show::Process
        | Show::Fwd(_)
        | Show::Config(ShowConfig::Fwd | ShowConfig::File)
        | Show::Port(_)
        | Show::Rxq(_)
        | Show::Txq(_)
        | Show::Events { .. }
        | Show::Qp { .. }
        | Show::Path { .. }
        | Show::Migration { .. }
        | Show::Rate { .. }
        | Show::Cm { .. }
        | Show::Neigh
        | Show::Counters { .. }
        | Show::Errors
        | Show::Runtime
        | Show::Latency { .. }
        | Show::Capture
        | Show::Trace
        | Show::Fault => Answer::Done,
    })
}

/// Returns the configuration file that would start these devices again.
pub(super) fn file(devices: &[Arc<Served>]) -> Reply {
    let config = Config {
        // All devices use the EAL that the first one has started.
        eal: devices.first().map(|served| served.eal.clone()).unwrap_or_default(),
        devices: devices.iter().map(|served| served.config.clone()).collect(),
    };
    match config.to_toml() {
        Ok(text) => Reply::Last(Answer::ConfigFile(text)),
        Err(error) => Reply::Refused(Refusal::Failed(error.to_string())),
    }
}

/// Returns the number of QPs of each lcore.
fn qps(served: &Served) -> Result<Vec<u32>, RequestError> {
    served.calls.call(|thread| Ok(thread.qps_of_lcores()))
}

fn device(served: &Served, has_detail: bool) -> Result<Device, RequestError> {
    let (config, objects) = (&served.config, served.engine.objects());
    Ok(Device {
        name: config.name.clone(),
        guid: guid(served.guid),
        lcores: served.engine.lcores() as u32,
        running: served.engine.is_running(),
        qps: InUse { count: qps(served)?.iter().sum(), max: config.max_qps },
        mrs: InUse { count: objects.mrs, max: config.max_mrs },
        ahs: InUse { count: objects.ahs, max: config.max_ahs },
        ports: port::all_infos(served)?,
        detail: has_detail.then(|| detail::of(served)),
    })
}

/// Returns a GUID in the form of `ibv_devinfo`: four groups of four digits.
pub(super) fn guid(guid: u64) -> String {
    let digits = format!("{guid:016x}");
    [&digits[..4], &digits[4..8], &digits[8..12], &digits[12..]].join(":")
}

fn gids(served: &Served) -> Result<Vec<Gid>, RequestError> {
    let ports = served.calls.call(|thread| Ok(thread.ports_seen()))?;
    let zero = uroce_wire::Gid::default();
    let of_port = |port: crate::thread::PortSeen| {
        let gids = served.ports.port(port.number).map_or(Vec::new(), |attr| attr.gids);
        let entries = gids.into_iter().enumerate().filter(move |(_, gid)| *gid != zero);
        entries.map(move |(index, gid)| Gid {
            port: port.id.into(),
            device: served.config.name.clone(),
            number: port.number,
            index: index as u32,
            gid: gid.to_string(),
            address: gid.to_ip(),
        })
    };
    Ok(ports.into_iter().flat_map(of_port).collect())
}

/// Returns the numbers of PDs, CQs, MRs including MWs, MWs alone, SRQs and AHs.
pub(super) fn objects(served: &Served) -> [ObjectCount; 6] {
    let (counts, config) = (served.engine.objects(), &served.config);
    let count = |object: &str, count, max| {
        let device = config.name.clone();
        ObjectCount { device, object: object.to_owned(), count, max }
    };
    [
        count("PD", counts.pds, None),
        count("CQ", counts.cqs, None),
        count("MR and MW", counts.mrs, Some(config.max_mrs)),
        count("MW", counts.mws, Some(config.max_mrs)),
        count("SRQ", counts.srqs, None),
        count("AH", counts.ahs, Some(config.max_ahs)),
    ]
}

/// Answers with the neighbours of one port; the next part is about the next port.
pub(super) fn neighbours(served: &Served, at: u32) -> Result<Part, RequestError> {
    let port = at as usize;
    let (entries, has_next) = served.calls.call(move |thread| Ok(thread.neighbours_of(port)))?;
    let mut rows: Vec<Neighbour> = entries
        .into_iter()
        .map(|(address, mac, reach)| Neighbour {
            device: served.config.name.clone(),
            // A device has at most 16 ports.
            port: at as u8 + 1,
            address,
            mac: mac.map(|mac| mac.to_string()),
            state: reach.name().to_owned(),
        })
        .collect();
    rows.sort_by_key(|row| row.address);
    let answer = Answer::Neigh(rows);
    Ok(Part { answer, is_found: true, next: has_next.then_some(at + 1) })
}

pub(super) fn cores(served: &Served) -> Result<Vec<Core>, RequestError> {
    let config = &served.config;
    let core = |(lcore, qps): (usize, u32)| Core {
        device: config.name.clone(),
        lcore: lcore as u32,
        cpu: match &config.lcores {
            Lcores::Cpus(cpus) => cpus.get(lcore).map(|cpu| *cpu as u32),
            Lcores::Count(_) => None,
        },
        idle: word(&config.idle),
        driver: word(&config.driver),
        qps,
        // The heartbeat grows by two in each turn.
        turns: served.engine.heartbeat(lcore).unwrap_or(0) / 2,
    };
    Ok(qps(served)?.into_iter().enumerate().map(core).collect())
}

fn roce(served: &Served) -> Settings {
    let config = &served.config;
    let congestion = &config.congestion;
    let settings = [
        ("congestion.algorithm", word(&congestion.algorithm)),
        ("congestion.cnp_dscp", congestion.cnp_dscp.to_string()),
        ("congestion.cnp_802p_prio", congestion.cnp_802p_prio.to_string()),
        ("congestion.min_time_between_cnps", congestion.min_time_between_cnps.to_string()),
        ("selective_repeat", word(&config.selective_repeat)),
        ("udp_source_ports", config.udp_source_ports.to_string()),
        ("max_qps", config.max_qps.to_string()),
        ("max_mrs", config.max_mrs.to_string()),
        ("max_ahs", config.max_ahs.to_string()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    Settings { device: config.name.clone(), settings: settings.into() }
}

fn rxtx(served: &Served) -> Settings {
    let config = &served.config;
    let of_port = |(port, number): (&PortConfig, usize)| {
        let descriptors = |count: u16| match port.ethdev.has_descriptors() {
            true => count.to_string(),
            false => "none".to_owned(),
        };
        let settings = [
            ("queues", config.lcores.count().to_string()),
            ("rx_descriptors", descriptors(port.rx_descriptors)),
            ("tx_descriptors", descriptors(port.tx_descriptors)),
            ("mbufs", port.mbufs.map_or_else(|| "default".to_owned(), |mbufs| mbufs.to_string())),
        ];
        settings.map(|(name, value)| (format!("port {number} {name}"), value))
    };
    let settings = config.ports.iter().zip(1..).flat_map(of_port).collect();
    Settings { device: config.name.clone(), settings }
}

/// For each device with cleared events, by its key: the number of the first event after that.
#[derive(Debug, Default)]
pub(super) struct EventMarks(HashMap<u64, u64>);

impl EventMarks {
    /// Drops devices that are closed.
    pub(super) fn keep(&mut self, devices: &[Arc<Served>]) {
        self.0.retain(|key, _| devices.iter().any(|served| served.key == *key));
    }
}

/// Clears the events that have happened so far: they are not shown any more.
pub(super) fn clear_events(
    served: &Served,
    marks: &mut EventMarks,
) -> Result<Answer, RequestError> {
    let last = served.calls.call(|thread| Ok(thread.last_events(1)))?;
    marks.0.insert(served.key, last.last().map_or(0, |event| event.number + 1));
    Ok(Answer::Done)
}

pub(super) fn events(
    served: &Served,
    count: u32,
    marks: &EventMarks,
) -> Result<Answer, RequestError> {
    let first = marks.0.get(&served.key).copied().unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let events = served.calls.call(move |thread| Ok(thread.last_events(count)))?;
    let now = Instant::now();
    let event = |happened: Happened| Event {
        device: served.config.name.clone(),
        number: happened.number,
        age_ms: now.saturating_duration_since(happened.at).as_millis() as u64,
        object: match happened.about {
            About::Qp(qpn) => format!("QP {qpn}"),
            About::Port(port) => format!("port {port}"),
            About::Device => "device".to_owned(),
        },
        event: format!("{:?}", happened.kind),
        meaning: match happened.is_withheld {
            false => happened.kind.to_string(),
            true => format!("{} Withheld from the program: another port is up.", happened.kind),
        },
        withheld: happened.is_withheld,
    };
    let events = events.into_iter().filter(|event| event.number >= first);
    Ok(Answer::Events(events.map(event).collect()))
}
