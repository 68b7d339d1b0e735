//! Answers about ports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use uroce_command::answer::{
    self, FeatureBy, PortCap, PortFeature, PortInfo, PortReta, PortXstats,
};
use uroce_command::request::ShowRss;
use uroce_command::{Answer, Clear, ClearPort, Request, Select, Show, ShowPort};
use uroce_engine::port::{By, Feature, PortStats};

use super::super::Served;
use super::Part;
use crate::call::RequestError;
use crate::thread::PortSeen;

/// Counters of ports at the time at which they were shown or cleared, by the device's key and the
/// port's number at the device. Clearing changes nothing for other readers of the counters.
#[derive(Debug, Default)]
pub(super) struct PortMarks {
    marks: HashMap<(u64, u8), Mark>,
    /// Counters of the ports' drivers at the time at which they were cleared.
    xstats: HashMap<(u64, u8), HashMap<String, u64>>,
    /// Whether `show port xstats` leaves out counters that are zero.
    hides_zero: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    cleared: PortStats,
    shown: Option<(Instant, PortStats)>,
}

/// Returns the selection of ports in a request about ports.
pub(super) fn selected(request: &Request) -> Option<Select> {
    match *request {
        Request::Show(Show::Port(
            ShowPort::Info { port }
            | ShowPort::Summary { port }
            | ShowPort::Stats { port }
            | ShowPort::Xstats { port }
            | ShowPort::Cap { port }
            | ShowPort::Rss(ShowRss::Reta { port }),
        ))
        | Request::Clear(Clear::Port(ClearPort::Stats { port } | ClearPort::Xstats { port }))
        | Request::Show(Show::Counters { port: Some(port), .. }) => Some(port),
        _ => None,
    }
}

/// Answers with the ports of a device. Counters of drivers have a part for each port.
pub(super) fn show(
    served: &Served,
    show: ShowPort,
    at: u32,
    marks: &mut PortMarks,
) -> Result<Part, RequestError> {
    let request = Request::Show(Show::Port(show));
    let ports = seen(served, selected(&request).unwrap_or(Select::All))?;
    let mut next = None;
    let answer = match show {
        ShowPort::Info { .. } => Answer::PortInfo(infos(served, &ports)),
        ShowPort::Summary { .. } => Answer::PortSummary(infos(served, &ports)),
        ShowPort::Cap { .. } => Answer::PortCap(ports.iter().map(capabilities).collect()),
        ShowPort::Rss(ShowRss::Reta { .. }) => {
            let tables: Result<_, _> = ports.iter().map(|port| reta(served, port)).collect();
            Answer::PortReta(tables?)
        }
        ShowPort::Stats { .. } => {
            let now = Instant::now();
            let stats = |port: &PortSeen| marks.stats(served.key, port, now);
            Answer::PortStats(ports.iter().map(stats).collect())
        }
        ShowPort::Xstats { .. } => {
            let one = ports.get(at as usize);
            next = (at as usize + 1 < ports.len()).then_some(at + 1);
            Answer::PortXstats(
                one.map(|port| xstats(served, port, marks)).transpose()?.into_iter().collect(),
            )
        }
    };
    Ok(Part { answer, is_found: !ports.is_empty(), next })
}

/// Clears the counters of ports: later answers count from now.
pub(super) fn clear(
    served: &Served,
    clear: ClearPort,
    marks: &mut PortMarks,
) -> Result<Part, RequestError> {
    let (ClearPort::Stats { port: select } | ClearPort::Xstats { port: select }) = clear;
    let ports = seen(served, select)?;
    for port in &ports {
        let key = (served.key, port.number);
        match clear {
            ClearPort::Stats { .. } => {
                marks.marks.insert(key, Mark { cleared: port.stats, shown: None });
            }
            ClearPort::Xstats { .. } => {
                let number = port.number;
                let xstats = served.calls.call(move |thread| thread.port_xstats(number))?;
                marks.xstats.insert(key, xstats.into_iter().collect());
            }
        }
    }
    Ok(Part { answer: Answer::Done, is_found: !ports.is_empty(), next: None })
}

/// Returns the selected ports of a device.
pub(super) fn seen(served: &Served, select: Select) -> Result<Vec<PortSeen>, RequestError> {
    let mut ports = served.calls.call(|thread| Ok(thread.ports_seen()))?;
    ports.retain(|port| select.has(u32::from(port.id)));
    Ok(ports)
}

/// Returns the attributes of all ports of a device.
pub(super) fn all_infos(served: &Served) -> Result<Vec<PortInfo>, RequestError> {
    Ok(infos(served, &seen(served, Select::All)?))
}

pub(super) fn infos(served: &Served, ports: &[PortSeen]) -> Vec<PortInfo> {
    ports.iter().filter_map(|port| info(served, port)).collect()
}

fn info(served: &Served, port: &PortSeen) -> Option<PortInfo> {
    let attr = served.ports.port(port.number)?;
    let zero = uroce_wire::Gid::default();
    Some(PortInfo {
        port: port.id.into(),
        device: served.config.name.clone(),
        number: port.number,
        mac: attr.mac.to_string(),
        name: port.capabilities.name.clone(),
        driver: port.capabilities.driver.clone(),
        numa_node: port.capabilities.numa_node,
        up: port.link.up,
        speed_mbps: port.link.speed_mbps,
        full_duplex: port.negotiated.map(|link| link.full_duplex),
        autoneg: port.negotiated.map(|link| link.autoneg),
        pause: port.negotiated.and_then(|link| link.pause).map(|of| (of.rx, of.tx)),
        fec: port.negotiated.and_then(|link| link.fec).map(str::to_owned),
        mtu: attr.mtu,
        // A path MTU is at most 4096.
        path_mtu: attr.max_path_mtu.map(|mtu| mtu.bytes() as u16),
        vlan: attr.vlan,
        queue_pairs: port.queue_pairs,
        max_queue_pairs: port.capabilities.max_queue_pairs,
        tx_rate_mbps: port.bottleneck.map(|bottleneck| bottleneck.rate_mbps),
        addresses: attr.gids.iter().filter(|gid| **gid != zero).map(|gid| gid.to_ip()).collect(),
    })
}

fn capabilities(port: &PortSeen) -> PortCap {
    let of = &port.capabilities;
    PortCap {
        port: port.id.into(),
        max_mtu: of.max_mtu,
        max_queue_pairs: of.max_queue_pairs,
        rss: of.rss,
        rx_checksum: of.rx_checksum,
        tx_checksum: of.tx_checksum,
        link_interrupt: of.link_interrupt,
        features: port.features.iter().map(feature).collect(),
    }
}

fn feature(of: &Feature) -> PortFeature {
    let (by, device_could) = match of.by {
        By::Device => (FeatureBy::Device, true),
        By::Software { device_could } => (FeatureBy::Software, device_could),
        By::Nothing => (FeatureBy::Nothing, false),
    };
    PortFeature { name: of.name.to_owned(), by, device_could, why: of.why.to_owned() }
}

fn reta(served: &Served, port: &PortSeen) -> Result<PortReta, RequestError> {
    let number = port.number;
    let queues = served.calls.call(move |thread| thread.port_rss_table(number))?;
    Ok(PortReta { port: port.id.into(), driver: port.capabilities.driver.clone(), queues })
}

fn xstats(served: &Served, port: &PortSeen, marks: &PortMarks) -> Result<PortXstats, RequestError> {
    let number = port.number;
    let mut xstats = served.calls.call(move |thread| thread.port_xstats(number))?;
    if let Some(cleared) = marks.xstats.get(&(served.key, number)) {
        for (name, value) in &mut xstats {
            *value = value.saturating_sub(cleared.get(name).copied().unwrap_or(0));
        }
    }
    xstats.retain(|(_, value)| *value != 0 || !marks.hides_zero);
    Ok(PortXstats { port: port.id.into(), xstats })
}

impl PortMarks {
    /// Drops the values of devices that are closed.
    pub(super) fn keep(&mut self, devices: &[Arc<Served>]) {
        let is_open = |key: u64| devices.iter().any(|served| served.key == key);
        self.marks.retain(|(key, _), _| is_open(*key));
        self.xstats.retain(|(key, _), _| is_open(*key));
    }

    /// Sets whether `show port xstats` leaves out counters that are zero.
    pub(super) fn hide_zero(&mut self, hides: bool) {
        self.hides_zero = hides;
    }

    /// Returns a port's counters since they were cleared, and their rates since the last call.
    pub(super) fn stats(&mut self, key: u64, port: &PortSeen, now: Instant) -> answer::PortStats {
        let mark = self.marks.entry((key, port.number)).or_default();
        let (stats, cleared) = (port.stats, mark.cleared);
        let before = mark.shown.replace((now, stats));
        let rate = |count: fn(&PortStats) -> u64| {
            let Some((at, before)) = before else { return 0 };
            let nanos = now.duration_since(at).as_nanos().max(1);
            let more = u128::from(count(&stats).saturating_sub(count(&before)));
            u64::try_from(more * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
        };
        let since = |count: fn(&PortStats) -> u64| count(&stats).saturating_sub(count(&cleared));
        answer::PortStats {
            port: port.id.into(),
            rx_packets: since(|stats| stats.rx_packets),
            rx_missed: since(|stats| stats.rx_missed),
            rx_bytes: since(|stats| stats.rx_bytes),
            rx_errors: since(|stats| stats.rx_errors),
            rx_nombuf: since(|stats| stats.rx_no_mbuf),
            tx_packets: since(|stats| stats.tx_packets),
            tx_errors: since(|stats| stats.tx_errors),
            tx_bytes: since(|stats| stats.tx_bytes),
            rx_pps: rate(|stats| stats.rx_packets),
            rx_bps: rate(|stats| stats.rx_bytes).saturating_mul(8),
            tx_pps: rate(|stats| stats.tx_packets),
            tx_bps: rate(|stats| stats.tx_bytes).saturating_mul(8),
        }
    }
}
