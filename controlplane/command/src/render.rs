//! Texts of answers, for people. Answers to commands of testpmd have its layout; others are tables.
//!
//! Invariants
//! - Control characters in text of a process are not printed, so that a hostile process cannot
//!   control the terminal.

mod bench;
mod capture;
mod device;
mod fault;
mod latency;
mod objects;
mod paths;
mod ping;
mod port;
mod qp;
mod statistics;
mod table;
mod trace;

use crate::answer::{Answer, Core, DropCount, Event, Gid, Neighbour, ObjectCount, Process};
use table::Table;

/// Returns the text of an answer; each line ends with a newline.
pub fn text(answer: &Answer) -> String {
    let text = match answer {
        Answer::Done => String::new(),
        Answer::Process(process) => of_process(process),
        Answer::PortInfo(ports) => ports.iter().map(port::info).collect(),
        Answer::PortSummary(ports) => port::summary(ports),
        Answer::PortStats(ports) => ports.iter().map(port::stats).collect(),
        Answer::PortXstats(ports) => ports.iter().map(port::xstats).collect(),
        Answer::PortCap(ports) => ports.iter().map(port::capabilities).collect(),
        Answer::PortReta(ports) => ports.iter().map(port::reta).collect(),
        Answer::QueueInfo(queue) => port::queue(queue),
        Answer::Device(devices) => devices.iter().map(device::device).collect(),
        Answer::Gid(gids) => of_gids(gids),
        Answer::Qp(qps) => qp::list(qps),
        Answer::QpDetail(qps) => qps.iter().map(qp::detail).collect(),
        Answer::Path(paths) => qp::paths(paths),
        Answer::Migration(qps) => paths::migrations(qps),
        Answer::Rate(qps) => paths::rates(qps),
        Answer::Cm(connections) => paths::connections(connections),
        Answer::Mcast(groups) => paths::groups(groups),
        Answer::Route(routes) => paths::routes(routes),
        Answer::Count(counts) => of_counts(counts),
        Answer::Neigh(neighbours) => of_neighbours(neighbours),
        Answer::Cores(cores) => of_cores(cores),
        Answer::Settings(devices) => {
            devices.iter().map(|of| pairs(&of.device, &of.settings)).collect()
        }
        Answer::ConfigFile(text) => text.clone(),
        Answer::Dump(text) => text.replace('\t', "    "),
        Answer::Counters(counters) => statistics::counters(counters),
        Answer::Errors(drops) => of_drops(drops),
        Answer::Latency(qps) => latency::list(qps),
        Answer::Distribution(devices) => latency::distributions(devices),
        Answer::Events(events) => of_events(events),
        Answer::Capture(captures) => capture::list(captures),
        Answer::Trace(traces) => traces.iter().map(trace::packets).collect(),
        Answer::Fault(faults) => fault::list(faults),
        Answer::Made(made) => objects::made(made),
        Answer::Memory(memory) => objects::memory(memory),
        Answer::Completions(completions) => objects::completions(completions),
        Answer::Fwd(ports) => objects::forwarded(ports),
        Answer::Ping(of) => ping::ping(of),
        Answer::Bench(of) => bench::bench(of),
        Answer::Connected(of) => objects::connected(of),
        Answer::Text(text) => format!("{text}\n"),
        Answer::Runtime(lcores) => lcores.iter().map(statistics::runtime).collect(),
        Answer::Scraped(devices) => devices.iter().map(statistics::scraped).collect(),
    };
    harmless(&text)
}

/// Returns the text of `uroce ps`: one line for each device. The line of a process that does not
/// answer has only the process's number.
pub fn processes(processes: &[Result<Process, u32>]) -> String {
    let mut table = Table::new(&["PID", "UID", "Program", "Device", "Addresses", "QPs", "State"]);
    for process in processes {
        let process = match process {
            Ok(process) => process,
            Err(pid) => {
                let dash = || "-".to_owned();
                let state = "does not answer".to_owned();
                table.row([pid.to_string(), dash(), dash(), dash(), dash(), dash(), state]);
                continue;
            }
        };
        for device in &process.devices {
            let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
            table.row([
                process.pid.to_string(),
                process.uid.to_string(),
                process.program.clone(),
                device.name.clone(),
                addresses.join(","),
                device.qps.to_string(),
                state_of(device.running).to_owned(),
            ]);
        }
    }
    harmless(&table.text())
}

/// Returns the text with `?` in place of control characters, except newlines.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if is_harmful(c) { '?' } else { c }).collect()
}

/// Returns the JSON text of a value. Control characters in it are escaped, so that a terminal can
/// show it.
///
/// # Errors
///
/// The value has a map with keys that are not text.
pub fn json<T: serde::Serialize>(value: &T) -> serde_json::Result<String> {
    let mut safe = String::new();
    for c in serde_json::to_string_pretty(value)?.chars() {
        match is_harmful(c) {
            // Each such character has at most four hexadecimal digits, and occurs in strings only.
            true => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => safe.push(c),
        }
    }
    Ok(safe)
}

/// Returns whether a terminal acts on a character instead of showing it, or shows the text around
/// it in another order.
fn is_harmful(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && c != '\n'
}

/// Returns names and values as a list below a title.
fn pairs(title: &str, pairs: &[(String, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 1;
    let line = |(name, value): &(String, String)| {
        let name = format!("{name}:");
        format!("    {name:<width$} {value}\n")
    };
    format!("{title}\n{}", pairs.iter().map(line).collect::<String>())
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn state_of(running: bool) -> &'static str {
    if running { "running" } else { "dead" }
}

fn of_process(process: &Process) -> String {
    let mut text = format!(
        "{} (process {}, user {}), uroce {}\n",
        process.program, process.pid, process.uid, process.version
    );
    for device in &process.devices {
        let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
        let (state, addresses) = (state_of(device.running), addresses.join(" "));
        text.push_str(&format!("    {} {state}, {} QPs: {addresses}\n", device.name, device.qps));
    }
    text
}

fn of_gids(gids: &[Gid]) -> String {
    let mut table = Table::new(&["Port", "Device", "Index", "GID", "Address", "Type"]);
    for gid in gids {
        table.row([
            gid.port.to_string(),
            format!("{}/{}", gid.device, gid.number),
            gid.index.to_string(),
            gid.gid.clone(),
            gid.address.to_string(),
            "RoCE v2".to_owned(),
        ]);
    }
    table.text()
}

fn of_counts(counts: &[ObjectCount]) -> String {
    let mut table = Table::new(&["Device", "Object", "Count", "Limit"]);
    for count in counts {
        let limit = or_dash(count.max);
        table.row([count.device.clone(), count.object.clone(), count.count.to_string(), limit]);
    }
    table.text()
}

fn of_neighbours(neighbours: &[Neighbour]) -> String {
    let mut table = Table::new(&["Device", "Address", "Ethernet address", "State"]);
    for neighbour in neighbours {
        table.row([
            format!("{}/{}", neighbour.device, neighbour.port),
            neighbour.address.to_string(),
            or_dash(neighbour.mac.as_deref()),
            neighbour.state.clone(),
        ]);
    }
    table.text()
}

fn of_cores(cores: &[Core]) -> String {
    let mut table = Table::new(&["Device", "Lcore", "CPU", "Idle", "Driver", "QPs", "Turns"]);
    for core in cores {
        table.row([
            core.device.clone(),
            core.lcore.to_string(),
            core.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            core.idle.clone(),
            core.driver.clone(),
            core.qps.to_string(),
            core.turns.to_string(),
        ]);
    }
    table.text()
}

fn of_drops(drops: &[DropCount]) -> String {
    let mut table = Table::new(&["Device", "Reason", "Count", "Lcores", "Meaning"]);
    for drop in drops {
        let counted = drop.lcores.iter().enumerate().filter(|(_, count)| **count > 0);
        let lcores: Vec<String> =
            counted.map(|(lcore, count)| format!("{lcore}:{count}")).collect();
        let lcores = if lcores.is_empty() { "-".to_owned() } else { lcores.join(" ") };
        table.row([
            drop.device.clone(),
            drop.reason.clone(),
            drop.total().to_string(),
            lcores,
            drop.meaning.clone(),
        ]);
    }
    table.text()
}

fn of_events(events: &[Event]) -> String {
    let mut table = Table::new(&["Device", "Number", "Age", "Object", "Event", "Meaning"]);
    for event in events {
        table.row([
            event.device.clone(),
            event.number.to_string(),
            format!("{}.{:03} s", event.age_ms / 1000, event.age_ms % 1000),
            event.object.clone(),
            event.event.clone(),
            event.meaning.clone(),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests;
