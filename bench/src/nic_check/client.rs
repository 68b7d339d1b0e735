//! The client's end: runs the checks in turn and makes the report.

use super::checks::{Check, Kind, Needs};
use super::port::{self, PortReport};
use super::report::{FORMAT, Figure, Finding, Report, Verdict};
use super::serve::words;
use super::test::{Ended, LIMIT, Test, commands};
use super::trial::Sending;
use super::{Call, Reply};
use crate::cli::NicArgs;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::perf::traffic::BY_QUEUE;
use crate::pin::{Side, cpus};
use crate::rendezvous::{Link, pause};
use std::path::Path;
use std::time::{Duration, Instant};

/// Largest number of lcores that the check of several uses.
const LCORES_MAX: usize = 16;
/// Traffic before the process is killed.
const TRAFFIC: Duration = Duration::from_millis(1500);
/// Longest that the whole run may take.
const BUDGET: Duration = Duration::from_secs(300);
/// Reason of a check that has not begun within [`BUDGET`].
const OVER: &str = "the five minutes are over";
/// Reason of a check that has not ended within [`BUDGET`].
const CUT: &str = "the five minutes were over before its end";
/// Time for an answer after the other end's test has had its own, and tells the reason.
const GRACE: Duration = Duration::from_secs(30);
/// Packets received by each other queue, on average, after which one without any is silent. A test
/// has three times as many.
const EVIDENCE: u64 = 100;
/// Reason of a check that virtual devices are left out of.
const NO_NIC: &str = "only a NIC is reset: name one with --pci";
/// Reason of a check that gives commands to its test.
const NO_COMMANDS: &str = "`uroce` is not beside this program";
/// Last line before a test's messages.
const HEADER: &str = "#bytes";

/// The client's end.
pub(super) struct Client<'a> {
    nic: &'a NicArgs,
    host: &'a str,
    port: u16,
    link: Link,
    /// When the run began.
    begin: Instant,
    /// The longest that it may take.
    budget: Duration,
}

impl<'a> Client<'a> {
    /// Greets the server. The run begins.
    pub(super) fn new(
        nic: &'a NicArgs,
        host: &'a str,
        port: u16,
        link: Link,
    ) -> Result<Self, BenchError> {
        let mut client = Client { nic, host, port, link, begin: Instant::now(), budget: BUDGET };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        match client.call(&Call::Hello { version })? {
            Some(fault) => Err(BenchError::Peer(fault)),
            None => Ok(client),
        }
    }

    /// Runs the checks.
    pub(super) fn run(mut self, checks: &[&'static Check]) -> Report {
        let described = port::ask(self.nic, self.deadline());
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
            seconds: self.begin.elapsed().as_secs_f64(),
            budget_seconds: self.budget.as_secs_f64(),
        }
    }

    /// Returns the time that a test may take from now on: [`LIMIT`], within the budget.
    fn limit(&self) -> Duration {
        self.budget.saturating_sub(self.begin.elapsed()).min(LIMIT)
    }

    /// Returns the end of [`limit`](Self::limit).
    fn deadline(&self) -> Instant {
        Instant::now() + self.limit()
    }

    /// Returns whether the budget is used up.
    fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.budget
    }

    /// Returns a finding for each check. After an error, such as the loss of the other end, and
    /// after the end of the budget no further check is run.
    fn findings(&mut self, checks: &[&'static Check], port: Option<&PortReport>) -> Vec<Finding> {
        let mut findings = Vec::with_capacity(checks.len());
        let mut has_ended = false;
        for check in checks {
            let began = Instant::now();
            let not_run = |reason| Ok(Finding::of(check, Verdict::NotRun, reason));
            let finding = match (has_ended, self.is_over()) {
                (true, _) => not_run("an earlier check ended the run"),
                (false, true) => not_run(OVER),
                (false, false) => self.finding(check, port),
            };
            has_ended |= finding.is_err();
            let finding = finding.unwrap_or_else(|error| match self.is_over() {
                true => Finding::of(check, Verdict::NotRun, format!("{CUT}: {error}")),
                false => Finding::of(check, Verdict::No, error.to_string()),
            });
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
            && let Some(failed) = self.interrupted(check)?
        {
            return Ok(self.failure(check, &failed));
        }
        let ended = match check.kind {
            Kind::Disturbed { needs: Needs::Nic, .. } if self.nic.pci.is_none() => {
                return Ok(Finding::of(check, Verdict::NotRun, NO_NIC));
            }
            Kind::Disturbed { steps, .. } => match commands() {
                Some(uroce) => self.disturbed(check, steps, &uroce)?,
                None => return Ok(Finding::of(check, Verdict::NotRun, NO_COMMANDS)),
            },
            _ => self.test(check, lcores, |_| None)?,
        };
        if ended.fault.is_some() {
            return Ok(self.failure(check, &ended));
        }
        let Kind::Figure { key, unit } = check.kind else {
            return Ok(verified(check, &ended));
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

    /// Tells why a test has failed. The end of the budget says nothing of the NIC.
    fn failure(&self, check: &'static Check, ended: &Ended) -> Finding {
        if ended.is_late && self.is_over() {
            return Finding::of(check, Verdict::NotRun, CUT);
        }
        let fault = ended.fault.as_deref().unwrap_or_default();
        let received = received(&ended.said);
        match tells_silence(&received) {
            true => Finding::of_queues(check, received, fault),
            false => Finding::of(check, Verdict::No, fault),
        }
    }

    /// Runs a test at both ends, and takes these steps amid its traffic.
    fn disturbed(
        &mut self,
        check: &Check,
        steps: &[(&str, &str)],
        uroce: &Path,
    ) -> Result<Ended, BenchError> {
        self.test(check, 1, |test| {
            if !test.says(HEADER) {
                return None;
            }
            std::thread::sleep(TRAFFIC);
            steps.iter().find_map(|(request, command)| {
                if !request.is_empty() {
                    eprintln!("{request}");
                }
                test.command(uroce, command)
            })
        })
    }

    /// Runs a test at both ends. `amid` acts on the client's end while it runs, and returns the
    /// reason if that fails.
    fn test(
        &mut self,
        check: &Check,
        lcores: u16,
        amid: impl FnOnce(&mut Test) -> Option<String>,
    ) -> Result<Ended, BenchError> {
        if let Some(fault) = self.call_to_start(check, lcores)? {
            return Ok(failed(fault));
        }
        let mut test = self.start(check, lcores)?;
        let fault = amid(&mut test);
        let mut ended = test.finish();
        // Where the test has ended by itself, it knows better than the command that found it gone.
        ended.fault = match ended.is_late {
            true => fault.or(ended.fault),
            false => ended.fault.or(fault),
        };
        let theirs = self.call(&Call::End { killed: ended.is_late })?;
        if ended.fault.is_none() {
            ended.fault = theirs.map(|fault| format!("the other end: {fault}"));
        }
        Ok(ended)
    }

    /// Kills both ends of a test amid traffic. Returns the test if there was none.
    fn interrupted(&mut self, check: &Check) -> Result<Option<Ended>, BenchError> {
        if let Some(fault) = self.call_to_start(check, 0)? {
            return Ok(Some(failed(fault)));
        }
        let mut test = self.start(check, 0)?;
        let failed = match test.says(HEADER) {
            true => {
                std::thread::sleep(TRAFFIC);
                None
            }
            false => Some(test.finish()),
        };
        self.call(&Call::End { killed: true })?;
        Ok(failed)
    }

    /// Has the other end start its test. Returns the reason if it failed.
    fn call_to_start(&mut self, check: &Check, lcores: u16) -> Result<Option<String>, BenchError> {
        // At most 90000.
        let limit_ms = self.limit().as_millis() as u64;
        let fault = self.call(&Call::Start { check: check.name.to_owned(), lcores, limit_ms })?;
        Ok(fault.map(|fault| format!("the other end: {fault}")))
    }

    /// Starts the client's end of a test.
    fn start(&self, check: &Check, lcores: u16) -> Result<Test, BenchError> {
        let mut words = words(check, self.port, lcores)?;
        words.push(self.host.to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Test::start(self.nic, Side::Client, check.setting, lcores.max(1), &words, self.deadline())
    }

    /// Makes a call. Returns the reason if it failed.
    fn call(&mut self, call: &Call) -> Result<Option<String>, BenchError> {
        let limit = self.limit() + GRACE;
        self.link.send(call)?;
        let begin = Instant::now();
        loop {
            if let Some(Reply { fault }) = self.link.try_receive()? {
                return Ok(fault);
            }
            if begin.elapsed() > limit {
                let waiting = "waiting for the other end";
                return Err(BenchError::TimedOut { waiting, limit });
            }
            pause();
        }
    }
}

/// Returns what is left of a test that the other end has not started in its time.
fn failed(fault: String) -> Ended {
    Ended { fault: Some(fault), is_late: true, said: String::new(), json: None }
}

/// Tells the result of a test that has verified its bytes.
fn verified(check: &'static Check, ended: &Ended) -> Finding {
    let notes = notes(&ended.said);
    match (ended.said.contains("verified:"), check.kind) {
        (false, _) => Finding::of(check, Verdict::No, "the bytes were not verified"),
        (true, Kind::Lcores) => Finding::of_queues(check, received(&ended.said), &notes),
        (true, _) => Finding::of(check, Verdict::Yes, notes),
    }
}

/// Returns the packets that came by each receive queue, which a test of several lcores tells also
/// when it fails.
fn received(said: &str) -> Vec<u64> {
    let counts = said.lines().find_map(|line| line.strip_prefix(BY_QUEUE));
    counts.into_iter().flat_map(|counts| counts.split(", ")).flat_map(str::parse).collect()
}

/// Tells whether the packets of a test that has failed show that a queue is silent: there are
/// enough by the others.
fn tells_silence(received: &[u64]) -> bool {
    let others = received.iter().filter(|&&packets| packets > 0).count();
    let enough = EVIDENCE * others as u64;
    (1..received.len()).contains(&others) && received.iter().sum::<u64>() >= enough
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
    if !port.rss_ports {
        return Err("the NIC spreads packets by addresses only: one peer's come by one queue");
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
    use super::super::checks::{self, CHECKS};
    use super::*;
    use crate::perf::traffic::by_queue;

    #[test]
    fn several_lcores_need_a_described_port_that_spreads_packets_over_queues_and_cpus() {
        let port = |rss, queue_pairs| PortReport {
            rss,
            rss_ports: rss,
            queue_pairs,
            ..PortReport::default()
        };
        assert_eq!(several(None, 4), Err("the port could not be described"));
        assert_eq!(several(Some(&port(false, 8)), 4), Err("the NIC spreads no packets"));
        assert_eq!(several(Some(&port(true, 1)), 4), Err("the NIC has one queue pair"));
        assert_eq!(several(Some(&port(true, 8)), 1), Err("one CPU"));
        assert_eq!(several(Some(&port(true, 8)), 4), Ok(4));
        assert_eq!(several(Some(&port(true, 64)), 64), Ok(LCORES_MAX as u16));
        let by_addresses = PortReport { rss_ports: false, ..port(true, 8) };
        assert!(several(Some(&by_addresses), 4).expect_err("refused").contains("addresses only"));
        let silent = |queue| PortReport { sending: Sending::Silent(queue), ..port(true, 8) };
        assert_eq!(several(Some(&silent(2)), 4), Ok(2));
        assert_eq!(several(Some(&silent(1)), 4), Err("only the first queue sends"));
    }

    #[test]
    fn several_lcores_pass_only_if_each_queue_receives() {
        let lcores = checks::named("lcores").expect("is there");
        let of = |check, said: &str, counts: &[u64]| {
            let said = said.to_owned() + &by_queue(counts).unwrap_or_default();
            let ended = Ended { fault: None, is_late: false, said, json: None };
            verified(check, &ended).verdict
        };
        let said = " verified: 1 bytes\n 4 of 9 packets were handed over from lcore to lcore\n";
        assert_eq!(of(lcores, said, &[5, 4]), Verdict::Yes);
        assert_eq!(of(lcores, said, &[9, 0]), Verdict::No);
        assert_eq!(of(lcores, "", &[5, 4]), Verdict::No);
        assert_eq!(of(&CHECKS[0], said, &[9]), Verdict::Yes, "one queue");
    }

    #[test]
    fn a_test_that_fails_for_a_silent_queue_tells_the_number_that_works() {
        let lcores = checks::named("lcores").expect("is there");
        answered(None, |client| {
            let finding = |counts: &[u64]| {
                let said = by_queue(counts).expect("several");
                client.failure(lcores, &Ended { said, ..failed("RETRY_EXC_ERR".into()) })
            };
            let silent = finding(&[900, 800, 0, 0]);
            assert_eq!(silent.remedy, Some("use `lcores = 2`".into()));
            assert!(silent.note.ends_with("RETRY_EXC_ERR"), "{silent}");
            for counts in [&[0, 0][..], &[3, 0], &[900, 800]] {
                let other = finding(counts);
                assert_eq!((other.verdict, &*other.note), (Verdict::No, "RETRY_EXC_ERR"));
            }
        });
    }

    #[test]
    fn packets_that_took_another_way_are_noted() {
        let said = " verified: 1 bytes\n 3 packets were sent again\n \
                    4 of 9 packets were handed over from lcore to lcore\n";
        let all = "3 packets were sent again; 4 of 9 packets were handed over from lcore to lcore";
        assert_eq!(notes(said), all);
        assert_eq!(notes(" verified: 1 bytes\n"), "");
    }

    /// Uses a client, with another end that answers each call with this fault.
    fn answered(fault: Option<&'static str>, use_it: impl FnOnce(&mut Client<'_>)) {
        let (mut far, near) = Link::pair().expect("a pair");
        let server = std::thread::spawn(move || {
            far.receive::<Call>("waiting for a greeting", pause).expect("a greeting");
            far.send(&Reply { fault: None }).expect("a client");
            while far.receive::<Call>("waiting for a call", pause).is_ok() {
                far.send(&Reply { fault: fault.map(str::to_owned) }).expect("a client");
            }
        });
        let nic = NicArgs::default();
        let mut client = Client::new(&nic, "127.0.0.1", 1, near).expect("greets");
        use_it(&mut client);
        drop(client);
        server.join().expect("no panic");
    }

    #[test]
    fn no_check_begins_after_the_five_minutes() {
        answered(None, |client| {
            client.budget = Duration::ZERO;
            let findings = client.findings(&[&CHECKS[0], &CHECKS[1]], None);
            for finding in findings {
                assert_eq!((finding.verdict, &*finding.note), (Verdict::NotRun, OVER));
                assert_eq!(finding.remedy, None);
            }
        });
    }

    #[test]
    fn what_the_end_of_the_five_minutes_cuts_is_no_fault_of_the_nic() {
        let late = |is_late| Ended { is_late, ..failed("it does not come to an end".into()) };
        let verdict = |client: &Client<'_>, is_late| {
            let finding = client.failure(&CHECKS[0], &late(is_late));
            (finding.verdict, finding.note)
        };
        answered(Some("no link"), |client| {
            let fault = "it does not come to an end".to_owned();
            assert_eq!(verdict(client, true), (Verdict::No, fault.clone()), "90 s were over");
            client.budget = Duration::ZERO;
            assert_eq!(verdict(client, true), (Verdict::NotRun, CUT.to_owned()));
            assert_eq!(verdict(client, false), (Verdict::No, fault), "it has ended by itself");
        });
    }

    #[test]
    fn a_test_has_ninety_seconds_and_no_more_than_is_left() {
        answered(Some("no link"), |client| {
            assert_eq!(client.limit(), LIMIT);
            client.budget = client.begin.elapsed() + Duration::from_secs(10);
            assert!(client.limit() <= Duration::from_secs(10) && !client.is_over());
            let findings = client.findings(&[&CHECKS[0]], None);
            assert_eq!(findings[0].note, "the other end: no link");
        });
    }

    /// Uses a client, with another end that is lost some time after the first check has begun.
    fn lost(after: Duration, use_it: impl FnOnce(&mut Client<'_>)) {
        let (mut far, near) = Link::pair().expect("a pair");
        let server = std::thread::spawn(move || {
            far.receive::<Call>("waiting for a greeting", pause).expect("a greeting");
            far.send(&Reply { fault: None }).expect("a client");
            far.receive::<Call>("waiting for a check", pause).expect("a check");
            std::thread::sleep(after);
        });
        let nic = NicArgs::default();
        let mut client = Client::new(&nic, "127.0.0.1", 1, near).expect("greets");
        use_it(&mut client);
        server.join().expect("no panic");
    }

    #[test]
    fn the_loss_of_the_other_end_is_a_finding_and_ends_the_checks() {
        lost(Duration::ZERO, |client| {
            let findings = client.findings(&[&CHECKS[0], &CHECKS[1]], None);
            let verdicts: Vec<_> = findings.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, [Verdict::No, Verdict::NotRun]);
            assert!(findings[0].note.contains("the other end is gone"), "{findings:?}");
        });
    }

    #[test]
    fn the_loss_of_the_other_end_after_the_five_minutes_is_no_fault_of_the_nic() {
        lost(Duration::from_secs(1), |client| {
            client.budget = client.begin.elapsed() + Duration::from_millis(500);
            let findings = client.findings(&[&CHECKS[0]], None);
            assert_eq!(findings[0].verdict, Verdict::NotRun);
            assert!(findings[0].note.starts_with(CUT), "{findings:?}");
            assert!(findings[0].note.contains("the other end is gone"), "{findings:?}");
        });
    }
}
