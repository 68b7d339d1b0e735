//! DPDK's telemetry: the answers of the control socket, as flat dictionaries, for
//! `dpdk-telemetry.py` and other readers of DPDK's socket.
//!
//! ```text
//!   reader ── question ──> thread of DPDK ── jobs ──> control-plane thread of each device
//!          <─── JSON ─────        └───────── reads ──> counters and tables of the engine
//! ```
//!
//! The values are those of the typed answers, with their JSON names. If a client of the control
//! socket clears counters, the values here still count from the start.
//!
//! EAL opens the socket only if it is started with `--telemetry`. The socket costs each process a
//! file and a thread, and a process does not start if it cannot make the socket's directory.
//!
//! Invariants
//! - A question takes at most [`PATIENCE`], and then the job that is waited for at that time
//!   ([`Stalled`](crate::call::RequestError::Stalled)). It delays only its own reader.
//! - Devices are looked up for each question. A process without devices, or a forked child, has no
//!   answers about any.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value as Json;
use uroce_command::answer::DropCount;
use uroce_command::{Answer, Reply, Request, Select, SelectCm, Show, ShowPort};
use uroce_engine::telemetry::{self, Value};

use super::answer::{Kept, Work};
use super::served;

/// Largest number of entries in a list.
const LIST_MAX: usize = 512;
/// Time after which no further part of an answer is made.
const PATIENCE: Duration = Duration::from_secs(5);

/// The commands, with their help.
const COMMANDS: [(&str, &str); 20] = [
    ("/uroce/info", "Returns the process. Takes no parameters"),
    ("/uroce/device", "Returns the names of devices, or a device. Parameters: [device]"),
    ("/uroce/port/list", "Returns the numbers of ports. Takes no parameters"),
    ("/uroce/port/info", "Returns a port. Parameters: port number"),
    ("/uroce/port/stats", "Returns the counters of a port. Parameters: port number"),
    ("/uroce/qp/list", "Returns up to 512 QP numbers. Parameters: [[device,]skip]"),
    ("/uroce/qp/info", "Returns a QP's attributes. Parameters: [device,]QP number"),
    ("/uroce/qp/stats", "Returns a QP's counters. Parameters: [device,]QP number"),
    ("/uroce/pd/count", "Returns the PDs of each device. Parameters: [device]"),
    ("/uroce/cq/count", "Returns the CQs of each device. Parameters: [device]"),
    ("/uroce/mr/count", "Returns the MRs of each device. Parameters: [device]"),
    ("/uroce/mw/count", "Returns the MWs of each device. Parameters: [device]"),
    ("/uroce/srq/count", "Returns the SRQs of each device. Parameters: [device]"),
    ("/uroce/ah/count", "Returns the AHs of each device. Parameters: [device]"),
    ("/uroce/cm/list", "Returns up to 512 connections. Parameters: [[device,]skip]"),
    ("/uroce/cm/info", "Returns a connection. Parameters: [device,]its number"),
    ("/uroce/errors", "Returns dropped frames by reason. Parameters: [device]"),
    ("/uroce/counters", "Returns sums over devices, or one. Parameters: [device]"),
    ("/uroce/lcore/list", "Returns lcores for /uroce/runtime. Parameters: [device]"),
    ("/uroce/runtime", "Returns cycles, measured for 10 s. Parameters: [device,]lcore"),
];

/// Lists that are answered by their length. Other commands list the objects.
const COUNTED: [&str; 2] = ["devices", "ports"];

/// Registers the commands. If DPDK has no room for one, that one and all after it are missing.
pub(super) fn register() {
    if let Err(error) = telemetry::register(&COMMANDS, answer) {
        tracing::warn!(%error, "not all telemetry commands are registered");
    }
}

/// Answers a command; `None` if there is no such object or the parameters are wrong.
fn answer(command: &str, parameters: Option<&str>) -> Option<telemetry::Answer> {
    let name = command.strip_prefix("/uroce/")?;
    match (name, parameters) {
        ("info", None) => row(Show::Process, None, 0),
        ("device", _) => device(parameters),
        ("port/list", None) => {
            let show = Show::Port(ShowPort::Summary { port: Select::All });
            list(show, "port", None, 0)
        }
        ("pd/count", of) => objects(Show::Pd, of),
        ("mw/count", of) => objects(Show::Mw, of),
        ("cq/count", of) => objects(Show::Cq, of),
        ("mr/count", of) => objects(Show::Mr, of),
        ("srq/count", of) => objects(Show::Srq, of),
        ("ah/count", of) => objects(Show::Ah, of),
        ("errors", of) => {
            let drops = match ask(Show::Errors, of)? {
                Answer::Errors(drops) => drops,
                _ => Vec::new(),
            };
            Some(sums(drops.iter().map(|drop| (drop.reason.as_str(), DropCount::total(drop)))))
        }
        ("counters", of) => Some(counters(ask(Show::Counters { qp: None, port: None }, of)?)),
        ("lcore/list", of) => {
            let lcores = rows(ask(Show::Runtime, of)?).len() as u64;
            Some(telemetry::Answer::Numbers((0..lcores).collect()))
        }
        ("qp/list", None) => list(Show::Qp { qp: Select::All }, "qpn", None, 0),
        ("cm/list", None) => list(Show::Cm { cm: SelectCm::All }, "id", None, 0),
        (_, Some(parameters)) => of_number(name, parameters),
        (_, None) => None,
    }
}

/// Answers a command that takes a number, or a device and a number.
fn of_number(name: &str, parameters: &str) -> Option<telemetry::Answer> {
    let (device, number) = match parameters.rsplit_once(',') {
        Some((device, number)) => (Some(device.trim()), number),
        None => (None, parameters),
    };
    let Ok(Select::One(number)) = number.trim().parse() else { return None };
    let (one, at) = (Select::One(number), number as usize);
    match name {
        "port/info" if device.is_none() => row(Show::Port(ShowPort::Info { port: one }), None, 0),
        "port/stats" if device.is_none() => {
            Some(counters(ask(Show::Counters { qp: None, port: Some(one) }, None)?))
        }
        "qp/list" => list(Show::Qp { qp: Select::All }, "qpn", device, at),
        "qp/info" => row(Show::Qp { qp: one }, device, 0),
        "qp/stats" => {
            let answer = ask(Show::Counters { qp: Some(one), port: None }, device)?;
            Some(counters(of_first_device(answer)))
        }
        "cm/list" => list(Show::Cm { cm: SelectCm::All }, "id", device, at),
        "cm/info" => row(Show::Cm { cm: SelectCm::One(number) }, device, 0),
        "runtime" => row(Show::Runtime, device, at),
        _ => None,
    }
}

/// Asks all devices of this process, or the one named, and joins the parts of the answer.
fn ask(show: Show, device: Option<&str>) -> Option<Answer> {
    let mut all = Answer::Done;
    let mut is_one = true;
    each(show, device, |part| {
        is_one = all.join(part);
        is_one
    })?;
    is_one.then_some(all)
}

/// Asks all devices of this process, or the one named, and passes the parts of the answer to `take`
/// until it returns false or there are no more. `None` if there is no answer.
fn each(show: Show, device: Option<&str>, mut take: impl FnMut(Answer) -> bool) -> Option<()> {
    let (mut devices, mut kept) = (served(), Kept::default());
    if let Some(name) = device {
        devices.retain(|served| served.config.name == name);
        if devices.is_empty() {
            return None;
        }
    }
    let mut work = Work::new(Request::Show(show), None);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let (part, is_last) = match work.step(&devices, &mut kept)? {
            Reply::More(part) => (part, false),
            Reply::Last(part) => (part, true),
            Reply::Refused(_) => return None,
        };
        if !take(part) || is_last {
            return Some(());
        }
    }
    None
}

/// Returns the rows of an answer, as JSON.
fn rows(answer: impl Serialize) -> Vec<Json> {
    // An answer is an object with one name, and a row or a list of rows.
    let Ok(Json::Object(answer)) = serde_json::to_value(answer) else { return Vec::new() };
    match answer.into_iter().next() {
        Some((_, Json::Array(rows))) => rows,
        Some((_, row)) => vec![row],
        None => Vec::new(),
    }
}

/// Returns row number `at` of an answer.
fn row(show: Show, device: Option<&str>, at: usize) -> Option<telemetry::Answer> {
    dictionary(rows(ask(show, device)?).get(at)?)
}

fn dictionary(row: &Json) -> Option<telemetry::Answer> {
    let mut pairs = Vec::new();
    flatten("", row, &mut pairs);
    (!pairs.is_empty()).then_some(telemetry::Answer::Dictionary(pairs))
}

/// Appends the values of an object. The name of an inner object, or of a stage of a turn, comes
/// before the names of its values. Lists of values become texts.
fn flatten(prefix: &str, value: &Json, pairs: &mut Vec<(String, Value)>) {
    let mut push = |value| pairs.push((prefix.to_owned(), value));
    match value {
        Json::Null => {}
        Json::Bool(is) => push(Value::Number((*is).into())),
        Json::Number(number) => match number.as_u64() {
            Some(number) => push(Value::Number(number)),
            None => push(Value::Text(number.to_string())),
        },
        Json::String(text) => push(Value::Text(text.clone())),
        Json::Object(fields) => {
            for (name, field) in fields {
                let underscore = if prefix.is_empty() { "" } else { "_" };
                flatten(&format!("{prefix}{underscore}{name}"), field, pairs);
            }
        }
        Json::Array(objects) if COUNTED.contains(&prefix) => {
            push(Value::Number(objects.len() as u64));
        }
        Json::Array(stages) if prefix == "stages" => {
            for stage in stages {
                if let Some(name) = stage.get("stage").and_then(Json::as_str) {
                    flatten(name, stage, pairs);
                }
            }
        }
        Json::Array(items) => {
            let text = |item: &Json| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            push(Value::Text(items.iter().map(text).collect::<Vec<_>>().join(",")));
        }
    }
}

/// Returns one field of all rows but the first `skip`. At most one part of the rows is in memory at
/// a time.
fn list(
    show: Show,
    field: &str,
    device: Option<&str>,
    mut skip: usize,
) -> Option<telemetry::Answer> {
    let mut listed = Vec::new();
    each(show, device, |part| {
        let rows = rows(part);
        for number in rows.iter().filter_map(|row| row.get(field)?.as_u64()) {
            match skip {
                0 if listed.len() < LIST_MAX => listed.push(number),
                0 => {}
                _ => skip -= 1,
            }
        }
        listed.len() < LIST_MAX
    })?;
    Some(telemetry::Answer::Numbers(listed))
}

fn device(name: Option<&str>) -> Option<telemetry::Answer> {
    let answer = ask(Show::Device { detail: false }, name)?;
    if name.is_some() {
        return dictionary(rows(answer).first()?);
    }
    let rows = rows(answer);
    let names = rows.iter().filter_map(|row| row.get("name")?.as_str());
    Some(telemetry::Answer::Texts(names.take(LIST_MAX).map(str::to_owned).collect()))
}

fn objects(show: Show, device: Option<&str>) -> Option<telemetry::Answer> {
    match ask(show, device)? {
        Answer::Count(counts) => {
            Some(sums(counts.iter().map(|count| (count.device.as_str(), count.count.into()))))
        }
        // There are no devices.
        _ => Some(telemetry::Answer::Dictionary(Vec::new())),
    }
}

/// Keeps the counters of one device only: QPs of two devices may have the same number.
fn of_first_device(answer: Answer) -> Answer {
    let Answer::Counters(mut counters) = answer else { return answer };
    if let Some(first) = counters.first().map(|counter| counter.device.clone()) {
        counters.retain(|counter| counter.device == first);
    }
    Answer::Counters(counters)
}

fn counters(answer: Answer) -> telemetry::Answer {
    let counters = match answer {
        Answer::Counters(counters) => counters,
        _ => Vec::new(),
    };
    sums(counters.iter().map(|counter| (counter.name.as_str(), counter.value)))
}

/// Returns the sum of the values of each name, in the order in which the names first occur. For
/// names of largest values it is the largest value.
fn sums<'n>(values: impl Iterator<Item = (&'n str, u64)>) -> telemetry::Answer {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for (name, value) in values {
        match pairs.iter_mut().find(|(of, _)| of == name) {
            Some((_, Value::Number(largest))) if name.ends_with("_max") => {
                *largest = value.max(*largest);
            }
            Some((_, Value::Number(sum))) => *sum = sum.saturating_add(value),
            _ => pairs.push((name.to_owned(), Value::Number(value))),
        }
    }
    telemetry::Answer::Dictionary(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_become_flat_dictionaries() {
        let row = json!({
            "pid": 7, "up": true, "none": null, "text": "x", "list": [1, "a"],
            "use": { "count": 1, "max": 2 },
            "stages": [{ "stage": "receive", "calls": 3 }, { "other": 1 }],
            "ports": [{ "name": "a" }, { "name": "b" }], "devices": [], "empty": [],
        });
        let Some(telemetry::Answer::Dictionary(pairs)) = dictionary(&row) else { panic!("pairs") };
        let named = |name: &str| pairs.iter().find(|(of, _)| of == name).map(|(_, value)| value);
        assert_eq!(named("pid"), Some(&Value::Number(7)));
        assert_eq!(named("up"), Some(&Value::Number(1)));
        assert_eq!(named("list"), Some(&Value::Text("1,a".into())));
        assert_eq!(named("use_max"), Some(&Value::Number(2)));
        assert_eq!(named("receive_calls"), Some(&Value::Number(3)));
        assert_eq!(named("ports"), Some(&Value::Number(2)));
        assert_eq!(named("devices"), Some(&Value::Number(0)));
        assert_eq!(named("empty"), Some(&Value::Text(String::new())));
        assert_eq!(pairs.len(), 11);
    }

    #[test]
    fn a_process_without_devices_answers_and_wrong_parameters_are_refused() {
        assert!(matches!(answer("/uroce/info", None), Some(telemetry::Answer::Dictionary(_))));
        for list in ["/uroce/qp/list", "/uroce/cm/list", "/uroce/port/list", "/uroce/lcore/list"] {
            assert_eq!(answer(list, None), Some(telemetry::Answer::Numbers(vec![])), "{list}");
        }
        for dictionary in ["/uroce/cq/count", "/uroce/errors", "/uroce/counters"] {
            let none = Some(telemetry::Answer::Dictionary(vec![]));
            assert_eq!(answer(dictionary, None), none, "{dictionary}");
            assert_eq!(answer(dictionary, Some("x")), None, "{dictionary}");
        }
        let long = "9".repeat(2000);
        let wrong = ["x", "", "-1", "7", "all", ",", ",7", "x,7", "7,", "4294967296", &long];
        for command in [
            "/uroce/qp/info",
            "/uroce/qp/stats",
            "/uroce/cm/info",
            "/uroce/port/info",
            "/uroce/port/stats",
            "/uroce/runtime",
        ] {
            assert_eq!(answer(command, None), None, "{command}");
            for parameters in wrong {
                assert_eq!(answer(command, Some(parameters)), None, "{command},{parameters}");
            }
        }
        for command in ["/uroce/info", "/uroce/port/list", "/uroce/nothing", "/uroce/", "", "/"] {
            assert_eq!(answer(command, Some("7")), None, "{command}");
        }
    }

    #[test]
    fn dpdk_takes_the_names_and_the_help() {
        // The limits of all supported releases of DPDK, with the terminating zeros.
        assert!(COMMANDS.iter().all(|(name, help)| name.len() < 56 && help.len() < 64));
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '/';
        assert!(COMMANDS.iter().all(|(name, _)| name.chars().all(is_plain)));
    }
}
