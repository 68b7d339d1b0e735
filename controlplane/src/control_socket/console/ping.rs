//! `ping`: asks the connection manager of a peer for signs of life.
//!
//! Each request is a SIDR_REQ to QP 1 for port 0, a service ID with which nothing can listen. Every
//! RoCE connection manager, Linux's included, answers it at once. It keeps no state for that and
//! needs no program at the peer. The time from a request to its answer is that of the packets and
//! of both control planes. All requests have the fixed length of a SIDR_REQ.
//!
//! Invariants
//! - No request is repeated: the wait for its answer ends before the CM would repeat it.
//! - A request is given up when its client has disconnected.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::answer;
use uroce_command::request::{PING_INTERVAL_MAX, PING_TIMEOUT_MAX, PINGS_MAX, Ping, WAIT_MAX};

use super::objects::device_named;
use super::{Begun, Console, Failure, Served};
use crate::rdma_cm::{CmId, CmSink, ConnEvent, ConnParam, ConnectSpec, PathSpec, PortSpace};

/// Outcome of one request, and the time at which it was known.
#[derive(Debug, Default)]
struct Outcome(Mutex<Option<(Instant, ConnEvent)>>);

impl CmSink for Outcome {
    fn give(&self, _id: CmId, event: ConnEvent) {
        let mut outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.get_or_insert((Instant::now(), event));
    }

    fn forget(&self, _id: CmId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    fn take_of(&self, _id: CmId) -> Vec<ConnEvent> {
        let outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.map(|(_, event)| event).into_iter().collect()
    }
}

/// A request that is not answered yet. Dropping it gives it up.
struct Asked {
    served: Arc<Served>,
    id: CmId,
    begin: Instant,
    outcome: Arc<Outcome>,
}

impl Asked {
    fn begin(served: &Arc<Served>, path: PathSpec) -> Result<Asked, Failure> {
        let outcome = Arc::new(Outcome::default());
        let sink: Arc<dyn CmSink> = outcome.clone();
        let spec = ConnectSpec {
            space: PortSpace::Udp,
            port: 0,
            source_port: 0,
            path,
            alternate: None,
            qp: None,
            param: ConnParam::default(),
        };
        let (begin, id) = served.calls.call(move |thread| {
            let begin = Instant::now();
            let id = thread.with_connections(|cm, context| cm.connect(sink, spec, context))?;
            Ok((begin, id))
        })?;
        Ok(Asked { served: Arc::clone(served), id, begin, outcome })
    }

    /// Returns the round-trip time of the request; `None` if no answer has come.
    ///
    /// # Errors
    ///
    /// There is no path to the peer.
    fn answer(&self) -> Result<Option<Duration>, Failure> {
        let outcome = self.outcome.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*outcome {
            // The process of the peer has ended.
            None | Some((_, ConnEvent::Unreachable)) => Ok(None),
            Some((_, ConnEvent::ConnectError(error))) => Err((*error).into()),
            // An answer with any status is a sign of life.
            Some((end, _)) => Ok(Some(end.saturating_duration_since(self.begin))),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let id = self.id;
        // This fails only if the device is being closed.
        let _ = self.served.calls.send(move |thread| {
            let _ = thread.with_connections(|cm, context| cm.destroy(id, context));
        });
    }
}

/// A `ping` in progress.
struct Pinging {
    served: Arc<Served>,
    path: PathSpec,
    left: u32,
    interval: Duration,
    timeout: Duration,
    /// Time at which the next request is due.
    next: Instant,
    asked: Option<Asked>,
    /// The reason for which the last request was not sent.
    failure: Option<Failure>,
    told: answer::Ping,
}

impl Pinging {
    /// Takes the next step. Returns the outcome after the last one.
    fn step(&mut self, now: Instant) -> Option<Result<Answer, Failure>> {
        if let Some(asked) = &self.asked {
            match asked.answer() {
                Ok(Some(rtt)) if rtt <= self.timeout => {
                    let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
                    self.told.rtt_ns.push(rtt);
                }
                Ok(None) if now.saturating_duration_since(asked.begin) < self.timeout => {
                    return None;
                }
                Ok(_) => {}
                Err(failure) => self.failure = Some(failure),
            }
            self.asked = None;
        }
        if self.left == 0 {
            return Some(self.end());
        }
        if now < self.next {
            return None;
        }
        self.left -= 1;
        self.next = now + self.interval;
        self.told.sent += 1;
        match Asked::begin(&self.served, self.path) {
            Ok(asked) => self.asked = Some(asked),
            Err(failure) => return Some(Err(failure)),
        }
        None
    }

    fn end(&mut self) -> Result<Answer, Failure> {
        let answer::Ping { peer, sent, rtt_ns, .. } = &self.told;
        if !rtt_ns.is_empty() {
            return Ok(Answer::Ping(self.told.clone()));
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let cause = format!("{peer}: {sent} requests, 0 answered, 100 % loss");
        let remedy = "check that the peer runs and `show neigh` has it; or wait longer: timeout MS";
        Err(Failure::new(Errno::TIMEDOUT, cause, remedy))
    }
}

impl Console {
    pub(super) fn ping(ping: &Ping, devices: &[Arc<Served>]) -> Result<Begun, Failure> {
        let served = device_named(ping.device.as_deref(), devices)?;
        if ping.count.saturating_mul(ping.interval.max(ping.timeout)) > WAIT_MAX {
            let cause = format!("{} requests take longer than {WAIT_MAX} ms", ping.count);
            let remedy = "fewer requests: count N; or a shorter pause: interval MS";
            return Err(Failure::new(Errno::INVAL, cause, remedy));
        }
        let ms = |ms: u32, max: u32| Duration::from_millis(ms.min(max).into());
        let mut pinging = Pinging {
            served: Arc::clone(served),
            path: PathSpec { source: ping.source, ..PathSpec::to(ping.gid) },
            left: ping.count.clamp(1, PINGS_MAX),
            interval: ms(ping.interval, PING_INTERVAL_MAX),
            timeout: ms(ping.timeout, PING_TIMEOUT_MAX),
            next: Instant::now(),
            asked: None,
            failure: None,
            told: answer::Ping {
                device: served.config.name.clone(),
                peer: ping.gid,
                sent: 0,
                rtt_ns: Vec::new(),
            },
        };
        Ok(Begun::Later(Box::new(move |_, _| pinging.step(Instant::now()))))
    }
}
