//! `load alt path`, `rearm`, `migrate`, and the links of ports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::request::{AltPath, LinkOf, LogLevel, Migrate, Rearm, Set};
use uroce_transport::{PathMigState, QpChange};
use uroce_wire::{Gid, Pkey};

use super::modify::begin_modify;
use super::ports::fixed;
use super::{Begun, Console, Failure, FoundQp, Served, find_port};
use crate::log;
use crate::path::{AddressVector, AlternateVector};

/// Longest wait until the peer of a QP is armed, too.
const PATIENCE: Duration = Duration::from_secs(2);

impl Console {
    pub(super) fn load_alt_path(
        &mut self,
        path: &AltPath,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        let found = self.find_qp(path.qp, devices)?;
        let attr = &found.info.attr;
        let primary = &attr.path.encap;
        let vector = AddressVector {
            sgid_index: path.sgid_index.unwrap_or(0),
            traffic_class: path.tclass.unwrap_or(primary.traffic_class),
            flow_label: path.flow_label.unwrap_or(primary.flow_label),
            hop_limit: path.hop_limit.unwrap_or(primary.hop_limit),
            ..AddressVector::to(path.dgid.map_or(primary.dst, Gid::from))
        };
        let alternate = AlternateVector {
            vector,
            port: path.port,
            pkey: path.pkey.map_or(attr.pkey, Pkey),
            timeout: path.timeout.unwrap_or(attr.timeout),
        };
        begin_modify(&found, QpChange::default(), None, Some(alternate))
    }

    pub(super) fn rearm(
        &mut self,
        rearm: &Rearm,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        let Rearm::Qp { qp } = *rearm;
        begin_modify(&self.find_qp(qp, devices)?, to(PathMigState::Rearm), None, None)
    }

    pub(super) fn migrate(
        &mut self,
        migrate: &Migrate,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        match *migrate {
            Migrate::Qp { qp, force } => {
                let found = self.find_qp(qp, devices)?;
                match force && found.info.attr.path_mig_state != PathMigState::Armed {
                    true => Ok(arm_and_migrate(found)),
                    false => begin_modify(&found, to(PathMigState::Migrated), None, None),
                }
            }
            Migrate::Port { port } => {
                let (served, number) = find_port(port, devices)?;
                let count = served.calls.call(move |thread| thread.migrate_port(number))?;
                Ok(Begun::Over(Answer::Text(format!("{count} QPs have migrated"))))
            }
        }
    }
}

fn to(state: PathMigState) -> QpChange {
    QpChange { path_mig_state: Some(state), ..QpChange::default() }
}

/// Rearms a QP, waits until the peer is armed, too, and migrates.
fn arm_and_migrate(found: FoundQp) -> Begun {
    let end = Instant::now() + PATIENCE;
    let state = found.info.attr.path_mig_state;
    let mut step = (state == PathMigState::Migrated).then_some(PathMigState::Rearm);
    let mut under_way: Option<Begun> = None;
    Begun::Later(Box::new(move |console, devices| {
        match &mut under_way {
            Some(Begun::Later(later)) => {
                let outcome = later(console, devices)?;
                under_way = None;
                if outcome.is_err() || step == Some(PathMigState::Migrated) {
                    return Some(outcome);
                }
                step = None;
            }
            Some(Begun::Over(_)) | None => {}
        }
        if step.is_none() {
            match console.find_qp(found.qpn.value(), devices) {
                Ok(qp) if qp.info.attr.path_mig_state == PathMigState::Armed => {
                    step = Some(PathMigState::Migrated);
                }
                Ok(_) if Instant::now() >= end => {
                    let cause = "the peer did not arm its alternate path";
                    let remedy = "load an alternate path at the peer, too, and rearm it";
                    return Some(Err(Failure::new(Errno::TIMEDOUT, cause, remedy)));
                }
                Ok(_) => return None,
                Err(failure) => return Some(Err(failure)),
            }
        }
        match begin_modify(&found, to(step?), None, None) {
            Ok(begun) => under_way = Some(begun),
            Err(failure) => return Some(Err(failure)),
        }
        None
    }))
}

impl Console {
    pub(super) fn set(&mut self, set: &Set, devices: &[Arc<Served>]) -> Result<Begun, Failure> {
        let (port, is_up) = match *set {
            Set::Qp { rate: None, class, .. } if class.is_empty() => {
                return Err(nothing("rate, tclass, dscp or vlan_pcp"));
            }
            Set::Qp { qp, rate, class } => {
                let change = QpChange { rate_limit: rate, ..QpChange::default() };
                if !class.is_empty() {
                    return self.set_class(qp, class, change, devices);
                }
                return begin_modify(&self.find_qp(qp, devices)?, change, None, None);
            }
            // These are answered where `show` is, in `control_socket::answer`.
            Set::Fault(_) | Set::XstatsHideZero { .. } => return Ok(Begun::Over(Answer::Done)),
            Set::Fwd { mode } => return self.set_fwd(mode).map(Begun::Over),
            Set::Verbose { level } => return logged(log::set_all(LogLevel::of(level))),
            Set::Log { ref part, level } => return logged(log::set_part(part, level)),
            Set::Burst(_) => {
                let remedy = "lcores take up to 64 frames at once, fewer if fewer wait";
                return Err(fixed("the length of a burst is set in the code", remedy));
            }
            Set::Idle(_) => {
                let remedy = "start again with `idle` of the device in the configuration file";
                return Err(fixed("what an idle lcore does is set at the start", remedy));
            }
            Set::Promisc(_) | Set::Allmulti(_) => {
                let remedy = "nothing is to be done: frames for others are dropped and counted";
                return Err(fixed("what a port receives is set when it is opened", remedy));
            }
            Set::LinkUp(LinkOf::Port { port }) => (port, true),
            Set::LinkDown(LinkOf::Port { port }) => (port, false),
            Set::Port { port, up, down, rate } if up || down || rate.is_some() => {
                let (served, number) = find_port(port, devices)?;
                if up && down {
                    return Err(only_one("link-up", "link-down"));
                }
                if let Some(kbits) = rate {
                    let rate = mbits(kbits)?;
                    served.calls.call(move |thread| thread.set_rate(number, rate))?;
                }
                if !(up || down) {
                    return Ok(Begun::Over(Answer::Done));
                }
                (port, up)
            }
            Set::Port { .. } => return Err(nothing("link-up, link-down or rate")),
            Set::StatsPeriod { .. } => {
                let cause = "statistics are shown by the program that is asked, which is `uroce`";
                let remedy = "set it at a prompt: uroce -s PID";
                return Err(Failure::new(Errno::OPNOTSUPP, cause, remedy));
            }
        };
        let (served, number) = find_port(port, devices)?;
        served.calls.call(move |thread| thread.set_link(number, is_up))?;
        Ok(Begun::Over(Answer::Done))
    }
}

/// Returns a port's rate in Mbit/s, rounded; `None` for that of its link, which is 0 kbit/s.
fn mbits(kbits: u32) -> Result<Option<u32>, Failure> {
    match kbits {
        0 => Ok(None),
        1..1000 => {
            let cause = format!("a port's rate is at least 1 Mbit/s, and this is {kbits} kbit/s");
            Err(Failure::new(Errno::INVAL, cause, "choose 0.001 Gbit/s or more"))
        }
        _ => Ok(Some(kbits / 1000 + u32::from(kbits % 1000 >= 500))),
    }
}

/// Makes the failure of a command with both of two words that exclude each other: the grammar
/// refuses them, but a program may send them.
pub(super) fn only_one(one: &str, other: &str) -> Failure {
    Failure::new(Errno::INVAL, format!("{one} and {other} exclude each other"), "give one of them")
}

/// Makes the failure of a command without one of these words.
fn nothing(words: &str) -> Failure {
    Failure::new(Errno::INVAL, "nothing is to be set", format!("add {words}"))
}

/// Answers with what is logged from now on.
fn logged(outcome: Result<String, log::LogError>) -> Result<Begun, Failure> {
    match outcome {
        Ok(filter) => Ok(Begun::Over(Answer::Text(format!("log: {filter}")))),
        Err(error @ log::LogError::NoPart(_)) => {
            let parts = log::parts().collect::<Vec<_>>().join(", ");
            let remedy = format!("the parts are: global, {parts}");
            Err(Failure::new(Errno::INVAL, error.to_string(), remedy))
        }
        Err(error @ log::LogError::NotOurs) => {
            let remedy = "set the level of uroce_controlplane in the program's own log, or start \
                          it with UROCE_LOG and an open stderr";
            Err(Failure::new(Errno::OPNOTSUPP, error.to_string(), remedy))
        }
    }
}
