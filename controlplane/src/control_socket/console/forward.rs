//! `set fwd`, `start`, `stop`, `show fwd`, `show config fwd`: testpmd's forwarding.
//!
//! A port that forwards gives no frame to QPs. So `--force` is needed if a device serves a program
//! or has QPs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::answer::{FwdStats, Settings};
use uroce_command::request::{BURSTS_MAX, FwdMode, Start};
use uroce_engine::Forward;
use uroce_engine::port::PortStats;

use super::{Begun, Console, Failure, Served, or_nothing};
use crate::call::RequestError;
use crate::thread::PortSeen;

/// Frames in a burst of `start tx_first`, as in testpmd.
const BURST: u32 = 32;

/// Longest wait for ports that do not send their frames.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which the server thread serves other clients before it sends further bursts.
const STEP: Duration = Duration::from_millis(1);

/// The forwarding that commands have set.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    mode: FwdMode,
    /// Keys of the devices that may forward: forwarding was started on them and not stopped since.
    started: Vec<u64>,
    /// Counters of each port, by device and port, when forwarding was started or they were cleared.
    marks: BTreeMap<(u64, u8), Counted>,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    stats: PortStats,
    unforwarded: u64,
}

impl Forwarding {
    fn is_on(&self) -> bool {
        !self.started.is_empty()
    }

    /// Checks that QPs receive packets: forwarding is stopped, or its mode is `endpoint`.
    pub(super) fn check_endpoint(&self) -> Result<(), Failure> {
        match self.is_on() && self.mode != FwdMode::Endpoint {
            true => {
                let cause = "the ports forward what they receive, and QPs would get no packet";
                Err(Failure::new(Errno::BUSY, cause, "stop first"))
            }
            false => Ok(()),
        }
    }

    /// Checks that forwarding is not started.
    pub(super) fn check_stopped(&self) -> Result<(), Failure> {
        match self.is_on() {
            true => {
                Err(Failure::new(Errno::BUSY, "Packet forwarding already started", "stop first"))
            }
            false => Ok(()),
        }
    }

    /// Drops the state of devices that have closed.
    pub(super) fn forget_closed(&mut self, is_open: impl Fn(u64) -> bool) {
        self.started.retain(|key| is_open(*key));
        self.marks.retain(|(key, _), _| is_open(*key));
    }
}

impl Console {
    pub(super) fn set_fwd(&mut self, mode: FwdMode) -> Result<Answer, Failure> {
        self.forwarding.check_stopped()?;
        self.forwarding.mode = mode;
        Ok(Answer::Text(format!("Set {} packet forwarding mode", word(mode))))
    }

    pub(super) fn start(
        &mut self,
        start: &Start,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        let Start { tx_first, bursts, force } = *start;
        // The range is checked here, too: clients other than `uroce` may not check it.
        if !(1..=BURSTS_MAX).contains(&bursts) {
            let cause = format!("`tx_first` cannot send {bursts} bursts");
            let remedy = format!("choose 1 to {BURSTS_MAX}");
            return Err(Failure::new(Errno::INVAL, cause, remedy));
        }
        self.forwarding.check_stopped()?;
        let mode = self.forwarding.mode;
        if mode != FwdMode::Endpoint && !force {
            devices.iter().try_for_each(check_harmless)?;
        }
        let marks = marks(devices)?;
        if let (_, Err(failure)) = set(mode, devices) {
            self.give_up(devices);
            return Err(failure);
        }
        self.forwarding.marks = marks;
        self.forwarding.started = devices.iter().map(|served| served.key).collect();
        let (mut left, mut since) = (if tx_first { bursts } else { 0 }, Instant::now());
        Ok(Begun::Later(Box::new(move |console, devices| {
            let before = left;
            let sent = console.send_bursts(&mut left, devices);
            if left < before {
                since = Instant::now();
            }
            let failure = match sent {
                Ok(()) if left == 0 => {
                    let text = format!("{} packet forwarding started", word(mode));
                    return Some(Ok(Answer::Text(text)));
                }
                Ok(()) if since.elapsed() < PATIENCE => return None,
                Ok(()) => {
                    let remedy = "`show port info all` has the links";
                    Failure::new(Errno::AGAIN, "the ports do not take the frames", remedy)
                }
                Err(failure) => failure,
            };
            console.give_up(devices);
            Some(Err(failure))
        })))
    }

    /// Sends bursts of `start tx_first` for about a [`STEP`], or until ports have to send earlier
    /// bursts first. `left` is the number of bursts that remain.
    fn send_bursts(&self, left: &mut u32, devices: &[Arc<Served>]) -> Result<(), Failure> {
        let begin = Instant::now();
        while *left > 0 && begin.elapsed() < STEP {
            if !self.forwarding.is_on() {
                let cause = "forwarding was stopped meanwhile";
                return Err(Failure::new(Errno::AGAIN, cause, "start again"));
            }
            let is_started = |served: &&Arc<Served>| self.forwarding.started.contains(&served.key);
            // All devices are ready, or one would send more bursts than another.
            for served in devices.iter().filter(is_started) {
                let have_left = served.calls.call(|thread| Ok(Some(thread.frames_have_left())));
                if or_nothing(have_left)? == Some(false) {
                    return Ok(());
                }
            }
            for served in devices.iter().filter(is_started) {
                let sent = served.calls.call(|thread| Ok(Some(thread.send_burst(BURST))));
                or_nothing(sent)?.transpose().map_err(|error| {
                    let remedy = "`show config rxtx` has the packet buffers";
                    Failure::new(Errno::AGAIN, format!("of `tx_first`, {error}"), remedy)
                })?;
            }
            *left -= 1;
        }
        Ok(())
    }

    /// Stops forwarding after a failed start. The failure is reported by the caller.
    fn give_up(&mut self, devices: &[Arc<Served>]) {
        let _ = self.end(devices);
    }

    /// Stops forwarding. A device that fails may still forward, because an lcore that was late for
    /// a command carries it out later. So the device counts as started, and another `stop` ends it
    /// when its lcores run again.
    fn end(&mut self, devices: &[Arc<Served>]) -> Result<(), Failure> {
        let (failed, outcome) = set(FwdMode::Endpoint, devices);
        self.forwarding.started = failed;
        outcome
    }

    pub(super) fn stop(&mut self, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        if !self.forwarding.is_on() {
            let remedy = "start it first: start";
            return Err(Failure::new(Errno::INVAL, "Packet forwarding not started", remedy));
        }
        self.end(devices)?;
        self.fwd_stats(devices)
    }

    /// Answers with what the ports have received and sent since the start.
    pub(super) fn fwd_stats(&self, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let mut all = Vec::new();
        for served in devices {
            for (port, unforwarded) in counted(served)? {
                let mark = self.forwarding.marks.get(&(served.key, port.number));
                let mark = mark.copied().unwrap_or_default();
                let since = |count: fn(&PortStats) -> u64| {
                    count(&port.stats).saturating_sub(count(&mark.stats))
                };
                all.push(FwdStats {
                    port: port.id.into(),
                    rx_packets: since(|stats| stats.rx_packets),
                    rx_dropped: since(|stats| stats.rx_missed),
                    tx_packets: since(|stats| stats.tx_packets),
                    tx_dropped: unforwarded.saturating_sub(mark.unforwarded),
                });
            }
        }
        Ok(Answer::Fwd(all))
    }

    pub(super) fn clear_fwd(&mut self, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        self.forwarding.marks = marks(devices)?;
        Ok(Answer::Done)
    }

    pub(super) fn fwd_config(&self, devices: &[Arc<Served>]) -> Answer {
        let of = |served: &Arc<Served>| {
            let is_on = self.forwarding.started.contains(&served.key);
            let is_on = if is_on { "started" } else { "stopped" };
            Settings {
                device: served.config.name.clone(),
                settings: vec![
                    ("mode".to_owned(), word(self.forwarding.mode).to_owned()),
                    ("forwarding".to_owned(), is_on.to_owned()),
                    ("ports".to_owned(), served.config.ports.len().to_string()),
                    ("lcores".to_owned(), served.engine.lcores().to_string()),
                ],
            }
        };
        Answer::Settings(devices.iter().map(of).collect())
    }
}

/// Checks that forwarding takes no packet from a program or a QP.
fn check_harmless(served: &Arc<Served>) -> Result<(), Failure> {
    let name = &served.config.name;
    let remedy = "add --force if that is meant; or `set fwd endpoint`";
    if !served.config.forwards {
        let cause = format!("{name} serves a program, which would get no packet");
        return Err(Failure::new(Errno::PERM, cause, remedy));
    }
    let qps = or_nothing(served.calls.call(|thread| Ok(thread.qps_of_lcores())))?;
    let qps: u32 = qps.iter().sum();
    match qps {
        0 => Ok(()),
        _ => {
            let cause = format!("{name} has {qps} QPs, which would get no packet");
            Err(Failure::new(Errno::BUSY, cause, remedy))
        }
    }
}

/// Returns the present counters of all ports, by device and port.
fn marks(devices: &[Arc<Served>]) -> Result<BTreeMap<(u64, u8), Counted>, Failure> {
    let mut marks = BTreeMap::new();
    for served in devices {
        for (port, unforwarded) in counted(served)? {
            let mark = Counted { stats: port.stats, unforwarded };
            marks.insert((served.key, port.number), mark);
        }
    }
    Ok(marks)
}

/// Returns the ports of a device, each with the number of frames that it could not forward.
fn counted(served: &Arc<Served>) -> Result<Vec<(PortSeen, u64)>, Failure> {
    let counted = served.calls.call(|thread| {
        let counts = thread.unforwarded()?;
        Ok(thread.ports_seen().into_iter().zip(counts).collect())
    });
    Ok(or_nothing(counted)?)
}

/// Sets what the ports of all devices do with received frames. Returns the keys of the devices that
/// have failed, and the first failure.
fn set(mode: FwdMode, devices: &[Arc<Served>]) -> (Vec<u64>, Result<(), Failure>) {
    let (mut failed, mut outcome) = (Vec::new(), Ok(()));
    for served in devices {
        if let Err(error) = or_nothing(set_device(mode, served)) {
            failed.push(served.key);
            let remedy = "`show config fwd` tells which devices forward; `stop` ends it";
            let cause = format!("{}: {error}", served.config.name);
            outcome = outcome.and(Err(Failure::caused(&error, cause, remedy)));
        }
    }
    (failed, outcome)
}

/// Sets what all ports of a device do with received frames, even if one of them fails. The ports
/// are paired as in testpmd: 0 with 1, 2 with 3; a port without a partner is paired with itself.
fn set_device(mode: FwdMode, served: &Served) -> Result<(), RequestError> {
    // A device has at most 255 ports.
    let count = served.config.ports.len() as u8;
    let forward = move |port: u8| {
        let pair = if port ^ 1 < count { port ^ 1 } else { port };
        match mode {
            FwdMode::Endpoint => None,
            FwdMode::Io => Some(Forward::Io { to: pair + 1 }),
            FwdMode::Csum => Some(Forward::Csum { to: pair + 1 }),
            FwdMode::Echo => Some(Forward::Echo),
            FwdMode::Rxonly => Some(Forward::RxOnly),
        }
    };
    served.calls.call(move |thread| {
        let set = |port: u8| thread.set_forward(port + 1, forward(port));
        (0..count).map(set).fold(Ok(()), Result::and)
    })
}

fn word(mode: FwdMode) -> &'static str {
    match mode {
        FwdMode::Endpoint => "endpoint",
        FwdMode::Io => "io",
        FwdMode::Csum => "csum",
        FwdMode::Echo => "echo",
        FwdMode::Rxonly => "rxonly",
    }
}

#[cfg(test)]
mod tests;
