//! The client's end: runs the checks in turn and makes the report.

use super::checks::{Check, Kind};
use super::port::{self, PortReport};
use super::report::{Figure, Finding, Report, Verdict};
use super::serve::words;
use super::test::{Ended, Test};
use super::{Call, Reply};
use crate::cli::NicArgs;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::pin::{Side, cpus};
use crate::rendezvous::{Link, pause};
use std::time::{Duration, Instant};

/// Largest number of lcores that the check of several uses.
const LCORES_MAX: usize = 16;
/// Traffic before the process is killed.
const TRAFFIC: Duration = Duration::from_millis(1500);
/// Last line before a test's messages.
const HEADER: &str = "#bytes";

/// The client's end.
pub(super) struct Client<'a> {
    nic: &'a NicArgs,
    host: &'a str,
    port: u16,
    link: Link,
}

impl<'a> Client<'a> {
    /// Greets the server.
    pub(super) fn new(
        nic: &'a NicArgs,
        host: &'a str,
        port: u16,
        link: Link,
    ) -> Result<Self, BenchError> {
        let mut client = Client { nic, host, port, link };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        match client.call(&Call::Hello { version })? {
            Some(fault) => Err(BenchError::Peer(fault)),
            None => Ok(client),
        }
    }

    /// Runs the checks.
    pub(super) fn run(mut self, checks: &[&'static Check]) -> Result<Report, BenchError> {
        let begin = Instant::now();
        let described = port::ask(self.nic);
        let mut findings = Vec::with_capacity(checks.len());
        for check in checks {
            let began = Instant::now();
            let finding = self.finding(check, described.as_ref().ok())?;
            let finding = Finding { seconds: began.elapsed().as_secs_f64(), ..finding };
            eprintln!("{finding}");
            findings.push(finding);
        }
        self.link.send(&Call::Bye)?;
        let (port, fault) = match described {
            Ok(port) => (Some(port), None),
            Err(fault) => (None, Some(fault)),
        };
        Ok(Report {
            machine: Machine::this(),
            port,
            port_fault: fault,
            checks: findings,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Runs one check.
    fn finding(
        &mut self,
        check: &'static Check,
        port: Option<&PortReport>,
    ) -> Result<Finding, BenchError> {
        let mut lcores = 1;
        if check.kind == Kind::Lcores {
            let spread = port.filter(|port| port.rss);
            let queues = spread.map_or(1, |port| usize::from(port.queue_pairs));
            lcores = queues.min(cpus().len()).min(LCORES_MAX) as u16;
            if lcores < 2 {
                let why = if queues < 2 { "the NIC spreads no packets" } else { "one CPU" };
                return Ok(Finding::of(check, Verdict::NotRun, why));
            }
        }
        if check.kind == Kind::Restart
            && let Some(fault) = self.interrupted(check)?
        {
            return Ok(Finding::of(check, Verdict::No, fault));
        }
        let ended = self.test(check, lcores)?;
        if let Some(fault) = ended.fault {
            return Ok(Finding::of(check, Verdict::No, fault));
        }
        let Kind::Figure { key, unit } = check.kind else {
            let verified = ended.said.contains("verified:");
            let again = ended.said.lines().find(|line| line.contains("sent again"));
            return Ok(match verified {
                true => Finding::of(check, Verdict::Yes, again.unwrap_or_default().trim()),
                false => Finding::of(check, Verdict::No, "the bytes were not verified"),
            });
        };
        let value = ended.json.as_ref().and_then(|json| json["results"][key].as_f64());
        Ok(match value {
            Some(value) => Finding {
                figure: Some(Figure { value, unit: unit.to_owned() }),
                ..Finding::of(check, Verdict::Yes, "")
            },
            None => Finding::of(check, Verdict::No, "the test gave no figure"),
        })
    }

    /// Runs a test at both ends.
    fn test(&mut self, check: &Check, lcores: u16) -> Result<Ended, BenchError> {
        let name = check.name.to_owned();
        if let Some(fault) = self.call(&Call::Start { check: name, lcores })? {
            return Ok(failed(format!("the other end: {fault}")));
        }
        let mut ended = self.start(check, lcores)?.finish();
        let theirs = self.call(&Call::End { killed: false })?;
        if ended.fault.is_none() {
            ended.fault = theirs.map(|fault| format!("the other end: {fault}"));
        }
        Ok(ended)
    }

    /// Kills both ends of a test amid traffic. Returns the reason if there was none.
    fn interrupted(&mut self, check: &Check) -> Result<Option<String>, BenchError> {
        if let Some(fault) = self.call(&Call::Start { check: check.name.to_owned(), lcores: 0 })? {
            return Ok(Some(format!("the other end: {fault}")));
        }
        let mut test = self.start(check, 0)?;
        let fault = match test.says(HEADER) {
            true => {
                std::thread::sleep(TRAFFIC);
                None
            }
            false => test.finish_by(Instant::now()).fault,
        };
        self.call(&Call::End { killed: true })?;
        Ok(fault)
    }

    /// Starts the client's end of a test.
    fn start(&self, check: &Check, lcores: u16) -> Result<Test, BenchError> {
        let mut words = words(check, self.port, lcores)?;
        words.push(self.host.to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Test::start(self.nic, Side::Client, check.setting, lcores.max(1), &words)
    }

    /// Makes a call. Returns the reason if it failed.
    fn call(&mut self, call: &Call) -> Result<Option<String>, BenchError> {
        self.link.send(call)?;
        let begin = Instant::now();
        loop {
            if let Some(Reply { fault }) = self.link.try_receive()? {
                return Ok(fault);
            }
            if begin.elapsed() > super::test::LIMIT {
                return Err(BenchError::TimedOut {
                    waiting: "waiting for the other end",
                    limit: super::test::LIMIT,
                });
            }
            pause();
        }
    }
}

fn failed(fault: String) -> Ended {
    Ended { fault: Some(fault), said: String::new(), json: None }
}
