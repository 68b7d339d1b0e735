//! The client's end: runs the checks in turn and makes the report.

use super::checks::{Check, Kind};
use super::port::{self, PortReport};
use super::report::{FORMAT, Figure, Finding, Report, Verdict};
use super::serve::words;
use super::test::{Ended, LIMIT, Test};
use super::trial::Sending;
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
/// Longest wait for an answer. The other end waits for its test as long as [`LIMIT`], and then
/// tells the reason.
const ANSWER: Duration = LIMIT.saturating_add(Duration::from_secs(30));
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
    pub(super) fn run(mut self, checks: &[&'static Check]) -> Report {
        let begin = Instant::now();
        let described = port::ask(self.nic);
        let findings = self.findings(checks, described.as_ref().ok());
        // An error means that the other end has gone, which a finding tells if it matters.
        let _ = self.link.send(&Call::Bye);
        let (port, fault) = match described {
            Ok(port) => (Some(port), None),
            Err(fault) => (None, Some(fault)),
        };
        Report {
            format: FORMAT,
            machine: Machine::this(),
            port,
            port_fault: fault,
            checks: findings,
            seconds: begin.elapsed().as_secs_f64(),
        }
    }

    /// Returns a finding for each check. After an error, such as the loss of the other end, no
    /// further check is run.
    fn findings(&mut self, checks: &[&'static Check], port: Option<&PortReport>) -> Vec<Finding> {
        let mut findings = Vec::with_capacity(checks.len());
        let mut is_over = false;
        for check in checks {
            let began = Instant::now();
            let finding = match is_over {
                true => Ok(Finding::of(check, Verdict::NotRun, "an earlier check ended the run")),
                false => self.finding(check, port),
            };
            is_over |= finding.is_err();
            let finding =
                finding.unwrap_or_else(|error| Finding::of(check, Verdict::No, error.to_string()));
            let finding = Finding { seconds: began.elapsed().as_secs_f64(), ..finding };
            eprintln!("{finding}");
            findings.push(finding);
        }
        findings
    }

    /// Runs one check.
    fn finding(
        &mut self,
        check: &'static Check,
        port: Option<&PortReport>,
    ) -> Result<Finding, BenchError> {
        let mut lcores = 1;
        if check.kind == Kind::Lcores {
            lcores = match several(port, cpus().len()) {
                Ok(lcores) => lcores,
                Err(reason) => return Ok(Finding::of(check, Verdict::NotRun, reason)),
            };
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
            return Ok(match verified {
                true => Finding::of(check, Verdict::Yes, notes(&ended.said)),
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
            if begin.elapsed() > ANSWER {
                let waiting = "waiting for the other end";
                return Err(BenchError::TimedOut { waiting, limit: ANSWER });
            }
            pause();
        }
    }
}

fn failed(fault: String) -> Ended {
    Ended { fault: Some(fault), said: String::new(), json: None }
}

/// Returns what a test tells of packets that took another way than they should.
fn notes(said: &str) -> String {
    let tells = |line: &&str| line.contains("sent again") || line.contains("handed over");
    said.lines().map(str::trim).filter(tells).collect::<Vec<_>>().join("; ")
}

/// Returns the number of lcores for the check of several, at least 2, or the reason for which there
/// cannot be several.
fn several(port: Option<&PortReport>, cpus: usize) -> Result<u16, &'static str> {
    let port = port.ok_or("the port could not be described")?;
    if !port.rss {
        return Err("the NIC spreads no packets");
    }
    if port.queue_pairs < 2 {
        return Err("the NIC has one queue pair");
    }
    let queues = match port.sending {
        Sending::Silent(1) => return Err("only the first queue sends"),
        Sending::Silent(queues) => queues,
        Sending::All(_) | Sending::NotTried => port.queue_pairs,
    };
    match usize::from(queues).min(cpus).min(LCORES_MAX) {
        0 | 1 => Err("one CPU"),
        lcores => Ok(lcores as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::CHECKS;
    use super::*;

    #[test]
    fn several_lcores_need_a_described_port_that_spreads_packets_over_queues_and_cpus() {
        let port = |rss, queue_pairs| PortReport { rss, queue_pairs, ..PortReport::default() };
        assert_eq!(several(None, 4), Err("the port could not be described"));
        assert_eq!(several(Some(&port(false, 8)), 4), Err("the NIC spreads no packets"));
        assert_eq!(several(Some(&port(true, 1)), 4), Err("the NIC has one queue pair"));
        assert_eq!(several(Some(&port(true, 8)), 1), Err("one CPU"));
        assert_eq!(several(Some(&port(true, 8)), 4), Ok(4));
        assert_eq!(several(Some(&port(true, 64)), 64), Ok(LCORES_MAX as u16));
        let silent = |queue| PortReport { sending: Sending::Silent(queue), ..port(true, 8) };
        assert_eq!(several(Some(&silent(2)), 4), Ok(2));
        assert_eq!(several(Some(&silent(1)), 4), Err("only the first queue sends"));
    }

    #[test]
    fn packets_that_took_another_way_are_noted() {
        let said = " verified: 1 bytes\n 3 packets were sent again\n \
                    4 of 9 packets were handed over from lcore to lcore\n";
        let all = "3 packets were sent again; 4 of 9 packets were handed over from lcore to lcore";
        assert_eq!(notes(said), all);
        assert_eq!(notes(" verified: 1 bytes\n"), "");
    }

    #[test]
    fn the_loss_of_the_other_end_is_a_finding_and_ends_the_checks() {
        let (mut far, near) = Link::pair().expect("a pair");
        let server = std::thread::spawn(move || {
            far.receive::<Call>("waiting for a greeting", pause).expect("a greeting");
            far.send(&Reply { fault: None }).expect("a client");
            far.receive::<Call>("waiting for a check", pause).expect("a check");
        });
        let nic = NicArgs::default();
        let mut client = Client::new(&nic, "127.0.0.1", 1, near).expect("greets");
        let findings = client.findings(&[&CHECKS[0], &CHECKS[1]], None);
        server.join().expect("no panic");
        let verdicts: Vec<_> = findings.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::No, Verdict::NotRun]);
        assert!(findings[0].note.contains("the other end is gone"), "{findings:?}");
    }
}
