//! `monitor`: asks again and again, and prints what has changed.
//!
//! It ends after a number of lines, when its object has gone, or at a terminal by Ctrl-C or `q`,
//! which then is a key and not a signal: the prompt goes on.
//!
//! Rates are of this program's own: what others show or clear meanwhile does not change them.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use uroce_command::answer::{Counter, Event};
use uroce_command::tree::{Monitor, Pace};
use uroce_command::{Answer, Request, Select, Show, ShowPort, render};

use crate::pager;
use crate::session::{Outcome, Session};

/// Events of each device that are asked for.
const EVENTS: u32 = 256;
/// Lines after which the titles are printed again.
const TITLES: u32 = 20;

/// Carries the command out.
pub(crate) fn run(session: &mut Session, monitor: Monitor) -> Outcome {
    let keys = Keys::watch();
    let outcome = match monitor {
        Monitor::Events { pace } => events(session, pace, &keys),
        Monitor::Port { port, pace } => {
            let port = Select::One(port);
            let request = Request::Show(Show::Counters { qp: None, port: Some(port) });
            let others = Request::Show(Show::Port(ShowPort::Summary { port }));
            rates(session, [request, others], pace, &keys)
        }
        Monitor::Qp { qp, pace } => {
            let qp = Select::One(qp);
            let request = Request::Show(Show::Counters { qp: Some(qp), port: None });
            rates(session, [request, Request::Show(Show::Qp { qp })], pace, &keys)
        }
    };
    drop(keys);
    outcome.unwrap_or_else(|end| end)
}

/// Keys of a terminal, which are read one by one while this exists.
struct Keys {
    /// The terminal's settings before; `None` without a terminal, and in the background, where its
    /// keys are for others and a change of its settings would stop this program.
    before: Option<Termios>,
}

impl Keys {
    fn watch() -> Keys {
        let stdin = io::stdin();
        let before = Some(&stdin).filter(|stdin| stdin.is_terminal());
        let before = before.filter(|stdin| is_in_foreground(stdin));
        let before = before.and_then(|stdin| tcgetattr(stdin).ok());
        let set = |before: &Termios| {
            tcsetattr(&stdin, OptionalActions::Drain, &pager::by_key(before)).is_ok()
        };
        Keys { before: before.filter(set) }
    }

    /// Waits until this time. Returns false if a key ends the wait.
    fn wait_until(&self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            if self.before.is_none() {
                std::thread::sleep(left);
                continue;
            }
            let stdin = io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            let timeout = Timespec::try_from(left).ok();
            if poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0) && is_end(&stdin) {
                return false;
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // An error means that the terminal has gone.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
    }
}

/// Returns whether the terminal's keys are for this program.
fn is_in_foreground(terminal: &io::Stdin) -> bool {
    // Only the terminal of its own session can stop a program; of another one there is an error.
    tcgetpgrp(terminal).map_or(true, |group| group == rustix::process::getpgrp())
}

/// Reads keys. Returns whether one of them is Ctrl-C or `q`, or there are no more.
fn is_end(stdin: &io::Stdin) -> bool {
    let mut bytes = [0; 16];
    match rustix::io::read(stdin, &mut bytes) {
        Ok(len) => len == 0 || bytes[..len].iter().any(|key| [3, b'q', b'Q'].contains(key)),
        Err(error) => error != rustix::io::Errno::INTR,
    }
}

/// Prints the events that happen from now on. The error is the outcome too.
fn events(session: &mut Session, pace: Pace, keys: &Keys) -> Result<Outcome, Outcome> {
    let request = Request::Show(Show::Events { count: EVENTS });
    let mut seen = Seen::default();
    seen.news(ask_events(session, &request)?);
    let mut due = Instant::now();
    let mut left = pace.count.unwrap_or(u32::MAX);
    loop {
        due = next(due, pace);
        if !keys.wait_until(due) {
            return Ok(Outcome::Done);
        }
        let mut news = seen.news(ask_events(session, &request)?);
        news.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if pace.count.is_some() {
            left -= news.len() as u32;
        }
        if !news.is_empty() {
            done(print_events(session, news))?;
        }
        if left == 0 {
            return Ok(Outcome::Done);
        }
    }
}

fn ask_events(session: &mut Session, request: &Request) -> Result<Vec<Event>, Outcome> {
    match session.answer(request)? {
        Answer::Events(events) => Ok(events),
        // There is no event yet.
        Answer::Done => Ok(Vec::new()),
        _ => Err(session.failed("the process does not tell its events")),
    }
}

/// For each device, the number of its next event.
#[derive(Default)]
struct Seen(HashMap<String, u64>);

impl Seen {
    /// Returns the events that were not seen before.
    fn news(&mut self, mut events: Vec<Event>) -> Vec<Event> {
        let mut last: HashMap<String, u64> = HashMap::new();
        for event in &events {
            let of = last.entry(event.device.clone()).or_default();
            *of = (*of).max(event.number.saturating_add(1));
        }
        for (device, next) in &last {
            // A device that was opened again counts anew.
            if self.0.get(device).is_some_and(|seen| seen > next) {
                self.0.remove(device);
            }
        }
        events.retain(|event| self.0.get(&event.device).is_none_or(|next| event.number >= *next));
        self.0.extend(last);
        events
    }
}

fn print_events(session: &Session, events: Vec<Event>) -> Outcome {
    if session.is_json() {
        return print_json(session, &serde_json::json!(Answer::Events(events)));
    }
    let line = |event: &Event| {
        let Event { device, number, object, event, meaning, .. } = event;
        format!("{device} {number}: {object} {event}: {meaning}\n")
    };
    session.print_on(&render::harmless(&events.iter().map(line).collect::<String>()))
}

fn print_json(session: &Session, value: &serde_json::Value) -> Outcome {
    match render::json(value) {
        Ok(text) => session.print_on(&(text + "\n")),
        Err(error) => session.failed(&error.to_string()),
    }
}

/// Prints what the counters of an object grow by in each interval. The requests are for its
/// counters and its state.
fn rates(
    session: &mut Session,
    [counters, state]: [Request; 2],
    pace: Pace,
    keys: &Keys,
) -> Result<Outcome, Outcome> {
    let mut before = ask_counters(session, &counters)?;
    let mut asked = Instant::now();
    let mut due = asked;
    for line in 0..pace.count.unwrap_or(u32::MAX) {
        due = next(due, pace);
        if !keys.wait_until(due) {
            break;
        }
        let now = ask_counters(session, &counters)?;
        let time = asked.elapsed();
        asked = Instant::now();
        let state = state_of(session.answer(&state)?);
        let rates = Rates::between(&before, &now, time);
        before = now;
        done(print_rates(session, &state, &rates, line))?;
    }
    Ok(Outcome::Done)
}

fn ask_counters(session: &mut Session, request: &Request) -> Result<Vec<Counter>, Outcome> {
    match session.answer(request)? {
        Answer::Counters(counters) => Ok(counters),
        _ => Err(session.failed("the object has gone")),
    }
}

/// Returns the state of a port or a QP in a word.
fn state_of(answer: Answer) -> String {
    match answer {
        Answer::PortSummary(ports) => match ports.first() {
            Some(port) if port.up => "up".to_owned(),
            _ => "down".to_owned(),
        },
        Answer::QpDetail(qps) => qps.first().map_or("-".to_owned(), |qp| qp.state.clone()),
        _ => "-".to_owned(),
    }
}

/// What an object has received and sent in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    rx_packets: u64,
    rx_bits: u64,
    tx_packets: u64,
    tx_bits: u64,
}

impl Rates {
    /// Returns the rates between two readings that are `time` apart.
    fn between(before: &[Counter], now: &[Counter], time: Duration) -> Rates {
        let value = |counters: &[Counter], name: &str| {
            let all = counters.iter().filter(|counter| counter.name == name);
            all.fold(0_u64, |sum, counter| sum.saturating_add(counter.value))
        };
        let rate = |name: &str| {
            let grown = value(now, name).saturating_sub(value(before, name));
            let micros = time.as_micros().max(1);
            u64::try_from(u128::from(grown) * 1_000_000 / micros).unwrap_or(u64::MAX)
        };
        Rates {
            rx_packets: rate("rx_packets"),
            rx_bits: rate("rx_bytes").saturating_mul(8),
            tx_packets: rate("tx_packets"),
            tx_bits: rate("tx_bytes").saturating_mul(8),
        }
    }
}

fn print_rates(session: &Session, state: &str, of: &Rates, line: u32) -> Outcome {
    if session.is_json() {
        let rates = serde_json::json!({ "monitor": {
            "state": state,
            "rx_pps": of.rx_packets,
            "rx_bps": of.rx_bits,
            "tx_pps": of.tx_packets,
            "tx_bps": of.tx_bits,
        } });
        return print_json(session, &rates);
    }
    let mut text = String::new();
    if line.is_multiple_of(TITLES) {
        text = format!(
            "{:<6} {:>12} {:>12} {:>12} {:>12}\n",
            "State", "RX-pps", "RX-Mbit/s", "TX-pps", "TX-Mbit/s"
        );
    }
    let mbits = |bits: u64| format!("{}.{:02}", bits / 1_000_000, bits % 1_000_000 / 10_000);
    text.push_str(&format!(
        "{state:<6} {:>12} {:>12} {:>12} {:>12}\n",
        of.rx_packets,
        mbits(of.rx_bits),
        of.tx_packets,
        mbits(of.tx_bits)
    ));
    session.print_on(&render::harmless(&text))
}

/// Returns the time of the look after the one at `due`. Looks that were missed are left out.
fn next(due: Instant, pace: Pace) -> Instant {
    let interval = Duration::from_millis(pace.interval.into());
    (due + interval).max(Instant::now())
}

fn done(outcome: Outcome) -> Result<(), Outcome> {
    if outcome == Outcome::Done { Ok(()) } else { Err(outcome) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(device: &str, number: u64) -> Event {
        Event {
            device: device.into(),
            number,
            age_ms: 0,
            object: "port 1".into(),
            event: "PortErr".into(),
            meaning: String::new(),
            withheld: false,
        }
    }

    #[test]
    fn an_event_is_news_once_and_a_device_may_begin_anew() {
        let mut seen = Seen::default();
        let news = |seen: &mut Seen, events: &[(&str, u64)]| {
            let events = events.iter().map(|(device, number)| event(device, *number)).collect();
            let news = seen.news(events);
            news.into_iter().map(|event| (event.device, event.number)).collect::<Vec<_>>()
        };
        assert_eq!(news(&mut seen, &[("a", 0), ("a", 1)]).len(), 2);
        assert_eq!(news(&mut seen, &[("a", 1), ("a", 2), ("b", 0)]).len(), 2);
        assert!(news(&mut seen, &[("a", 2), ("b", 0)]).is_empty());
        assert!(news(&mut seen, &[]).is_empty());
        assert_eq!(news(&mut seen, &[("a", 0)]), [("a".to_owned(), 0)], "opened again");
        assert_eq!(news(&mut seen, &[("a", u64::MAX)]).len(), 1);
    }

    #[test]
    fn rates_are_growth_by_time_and_never_below_zero() {
        let counters = |value: u64| {
            ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(|name| Counter {
                device: "d".into(),
                object: "port 0".into(),
                name: name.into(),
                value,
                meaning: String::new(),
            })
        };
        let half = Duration::from_millis(500);
        let rates = Rates::between(&counters(1000), &counters(1500), half);
        let expected = Rates { rx_packets: 1000, rx_bits: 8000, tx_packets: 1000, tx_bits: 8000 };
        assert_eq!(rates, expected);
        let backwards = Rates::between(&counters(7), &counters(0), Duration::ZERO);
        assert_eq!(backwards, Rates::default());
        let most = Rates::between(&counters(0), &counters(u64::MAX), Duration::ZERO);
        assert_eq!(most.rx_bits, u64::MAX);
    }
}
