//! `set fwd`, `start`, `stop`, `show fwd`, `show config fwd`: testpmd's forwarding.
//!
//! A port that forwards gives no frame to QPs. So it has to be meant where a device serves a
//! program or has QPs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::answer::{FwdStats, Settings};
use uroce_command::request::{FwdMode, Start};
use uroce_engine::Forward;
use uroce_engine::port::PortStats;

use super::{Begun, Console, Failure, Served};
use crate::thread::PortSeen;

/// Frames in a burst of `start tx_first`, as in testpmd.
const BURST: u32 = 32;

/// Longest wait for ports that take no frames.
const PATIENCE: Duration = Duration::from_secs(10);

/// What commands have set of forwarding.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    mode: FwdMode,
    /// Keys of the devices that were started; none while forwarding is stopped.
    started: Vec<u64>,
    /// Counters of each port at the start, or when they were cleared, by device and port.
    marks: BTreeMap<(u64, u8), Counted>,
}

/// What a port has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    stats: PortStats,
    unforwarded: u64,
}

impl Forwarding {
    fn is_on(&self) -> bool {
        !self.started.is_empty()
    }

    /// Checks that QPs get their packets.
    pub(super) fn check_endpoint(&self) -> Result<(), Failure> {
        match self.is_on() && self.mode != FwdMode::Endpoint {
            true => {
                let cause = "the ports forward what they receive, and QPs would get no packet";
                Err(Failure::new(Errno::BUSY, cause, "stop first"))
            }
            false => Ok(()),
        }
    }

    fn check_stopped(&self) -> Result<(), Failure> {
        match self.is_on() {
            true => {
                Err(Failure::new(Errno::BUSY, "Packet forwarding already started", "stop first"))
            }
            false => Ok(()),
        }
    }

    /// Drops what belongs to devices that have closed.
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
        self.forwarding.check_stopped()?;
        let mode = self.forwarding.mode;
        if mode != FwdMode::Endpoint && !start.force {
            devices.iter().try_for_each(check_harmless)?;
        }
        self.clear_fwd(devices)?;
        self.forwarding.started = devices.iter().map(|served| served.key).collect();
        if let Err(failure) = set(mode, devices) {
            self.give_up(devices);
            return Err(failure);
        }
        let mut left = if start.tx_first { start.bursts } else { 0 };
        let end = Instant::now() + PATIENCE;
        Ok(Begun::Later(Box::new(move |console, devices| {
            match console.send_bursts(&mut left, devices) {
                Ok(true) => {
                    let text = format!("{} packet forwarding started", word(mode));
                    Some(Ok(Answer::Text(text)))
                }
                Ok(false) if Instant::now() < end => None,
                Ok(false) => {
                    console.give_up(devices);
                    let remedy = "`show port info all` has the links";
                    let cause = "the ports do not take the frames";
                    Some(Err(Failure::new(Errno::AGAIN, cause, remedy)))
                }
                Err(failure) => {
                    console.give_up(devices);
                    Some(Err(failure))
                }
            }
        })))
    }

    /// Sends the bursts of `start tx_first` that are left. Returns false if ports have to send
    /// earlier ones first.
    fn send_bursts(&self, left: &mut u32, devices: &[Arc<Served>]) -> Result<bool, Failure> {
        while *left > 0 {
            if !self.forwarding.is_on() {
                let cause = "forwarding was stopped meanwhile";
                return Err(Failure::new(Errno::AGAIN, cause, "start again"));
            }
            // All of them, or one would send more bursts than another.
            for served in devices {
                if !served.calls.call(|thread| Ok(thread.frames_have_left()))? {
                    return Ok(false);
                }
            }
            for served in devices {
                let sent = served.calls.call(|thread| Ok(thread.send_burst(BURST)))?;
                sent.map_err(|error| {
                    let remedy = "`show config rxtx` has the packet buffers";
                    Failure::new(Errno::AGAIN, format!("of `tx_first`, {error}"), remedy)
                })?;
            }
            *left -= 1;
        }
        Ok(true)
    }

    /// Ends what `start` has begun.
    fn give_up(&mut self, devices: &[Arc<Served>]) {
        // An lcore that does not answer forwards nothing.
        let _ = set(FwdMode::Endpoint, devices);
        self.forwarding.started.clear();
    }

    pub(super) fn stop(&mut self, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        if !self.forwarding.is_on() {
            let remedy = "start it first: start";
            return Err(Failure::new(Errno::INVAL, "Packet forwarding not started", remedy));
        }
        set(FwdMode::Endpoint, devices)?;
        self.forwarding.started.clear();
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
        let mut marks = BTreeMap::new();
        for served in devices {
            for (port, unforwarded) in counted(served)? {
                let mark = Counted { stats: port.stats, unforwarded };
                marks.insert((served.key, port.number), mark);
            }
        }
        self.forwarding.marks = marks;
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

/// Checks that forwarding takes packets from no program and no QP.
fn check_harmless(served: &Arc<Served>) -> Result<(), Failure> {
    let name = &served.config.name;
    let remedy = "add --force if that is meant; or `set fwd endpoint`";
    if !served.config.forwards {
        let cause = format!("{name} serves a program, which would get no packet");
        return Err(Failure::new(Errno::PERM, cause, remedy));
    }
    let qps: u32 = served.calls.call(|thread| Ok(thread.qps_of_lcores()))?.iter().sum();
    match qps {
        0 => Ok(()),
        _ => {
            let cause = format!("{name} has {qps} QPs, which would get no packet");
            Err(Failure::new(Errno::BUSY, cause, remedy))
        }
    }
}

/// Returns the ports of a device, each with the number of frames that it has not forwarded.
fn counted(served: &Arc<Served>) -> Result<Vec<(PortSeen, u64)>, Failure> {
    let counts = served.calls.call(|thread| thread.unforwarded())?;
    let ports = served.calls.call(|thread| Ok(thread.ports_seen()))?;
    Ok(ports.into_iter().zip(counts).collect())
}

/// Sets what the ports do with received frames. Those of a device are paired as testpmd pairs them:
/// 0 with 1, 2 with 3; one that is left over with itself.
fn set(mode: FwdMode, devices: &[Arc<Served>]) -> Result<(), Failure> {
    for served in devices {
        // A device has at most 255 ports.
        let count = served.config.ports.len() as u8;
        for port in 0..count {
            let pair = if port ^ 1 < count { port ^ 1 } else { port };
            let forward = match mode {
                FwdMode::Endpoint => None,
                FwdMode::Io => Some(Forward::Io { to: pair + 1 }),
                FwdMode::Echo => Some(Forward::Echo),
                FwdMode::Rxonly => Some(Forward::RxOnly),
            };
            served.calls.call(move |thread| thread.set_forward(port + 1, forward))?;
        }
    }
    Ok(())
}

fn word(mode: FwdMode) -> &'static str {
    match mode {
        FwdMode::Endpoint => "endpoint",
        FwdMode::Io => "io",
        FwdMode::Echo => "echo",
        FwdMode::Rxonly => "rxonly",
    }
}
