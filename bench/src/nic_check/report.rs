//! The report, as text and as JSON.

use super::checks::Check;
use super::port::PortReport;
use super::trial::Sending;
use crate::error::BenchError;
use crate::machine::Machine;
use serde::Serialize;
use std::fmt;

/// The form of the report: 2 lists the port's features by what provides them, 3 has the budget and
/// the packets by receive queue, 4 whether RSS is by UDP ports.
pub(super) const FORMAT: u32 = 4;

/// Result of all checks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Version of the report's own form.
    pub(super) format: u32,
    /// Machine and versions of the client's end.
    pub(super) machine: Machine,
    /// What the client's driver says of its port.
    pub(super) port: Option<PortReport>,
    /// Reason for which it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port_fault: Option<String>,
    /// Results of the checks, in their order.
    pub(super) checks: Vec<Finding>,
    /// Duration of the whole run.
    pub(super) seconds: f64,
    /// The longest that it may take.
    pub(super) budget_seconds: f64,
}

/// Whether a NIC has a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Yes,
    No,
    NotRun,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// Name of the check.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) what: &'static str,
    /// Whether the NIC has the property.
    pub(super) verdict: Verdict,
    /// The reason, or what else was seen; often empty.
    pub(super) note: String,
    /// What to do without the property.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
    /// Packets that came by each receive queue, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) received_by_queue: Vec<u64>,
    /// What was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) figure: Option<Figure>,
    /// Duration.
    pub(super) seconds: f64,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) value: f64,
    pub(super) unit: String,
}

impl Finding {
    /// Makes the result of a check, without figure and duration.
    pub(super) fn of(check: &Check, verdict: Verdict, note: impl Into<String>) -> Finding {
        Finding {
            name: check.name,
            what: check.what,
            verdict,
            note: note.into(),
            remedy: (verdict == Verdict::No).then(|| check.remedy.to_owned()),
            received_by_queue: Vec::new(),
            figure: None,
            seconds: 0.0,
        }
    }
}

impl Finding {
    /// Makes the result of a check of all queues: a queue by which nothing came is told with the
    /// number of queues that work.
    pub(super) fn of_queues(check: &Check, received: Vec<u64>, note: &str) -> Finding {
        let counts: Vec<_> = received.iter().map(u64::to_string).collect();
        let counts = format!("packets by receive queue: {}", counts.join(", "));
        let notes = [&*counts, note].into_iter().filter(|text| !text.is_empty());
        let notes = notes.collect::<Vec<_>>().join("; ");
        let finding = match received.iter().position(|&packets| packets == 0) {
            None if received.is_empty() => {
                Finding::of(check, Verdict::No, "the packets of the queues were not counted")
            }
            None => Finding::of(check, Verdict::Yes, notes),
            Some(silent) => Finding {
                remedy: Some(format!("use `lcores = {}`", silent.max(1))),
                ..Finding::of(
                    check,
                    Verdict::No,
                    format!("QUEUE {silent} RECEIVES NOTHING; {notes}"),
                )
            },
        };
        Finding { received_by_queue: received, ..finding }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Yes => "yes",
            Verdict::No => "NO",
            Verdict::NotRun => "not run",
        };
        write!(f, "{:<12} {verdict:<8} {}", self.name, self.what)?;
        if let Some(Figure { value, unit }) = &self.figure {
            write!(f, ": {value:.2} {unit}")?;
        }
        if !self.note.is_empty() {
            write!(f, " ({})", self.note)?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "\n{:<22}{remedy}", ""),
            None => Ok(()),
        }
    }
}

impl Report {
    /// Returns how many properties the NIC lacks.
    pub(super) fn missing(&self) -> usize {
        self.count(Verdict::No)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Returns the report as one line of JSON.
    pub(super) fn json(&self) -> Result<String, BenchError> {
        serde_json::to_string(self).map_err(|error| BenchError::io("writing JSON", error.into()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { commit, version, dpdk, cpu, cpus, kernel } = &self.machine;
        writeln!(f, "uroce {version} ({commit}), {dpdk}, Linux {kernel}, {cpus} x {cpu}")?;
        match (&self.port, &self.port_fault) {
            (Some(port), _) => writeln!(f, "{port}")?,
            (None, fault) => writeln!(f, "port: {}", fault.as_deref().unwrap_or("unknown"))?,
        }
        writeln!(f)?;
        self.checks.iter().try_for_each(|finding| writeln!(f, "{finding}"))?;
        let (missing, not_run) = (self.missing(), self.count(Verdict::NotRun));
        let Self { checks, seconds, budget_seconds, .. } = self;
        writeln!(f, "\n{missing} of {} missing, {not_run} not run", checks.len())?;
        writeln!(f, "the run took {seconds:.0} s; it may take {budget_seconds:.0} s")
    }
}

impl fmt::Display for PortReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let negotiated = match self.autoneg {
            Some(true) => ", negotiated",
            Some(false) => ", not negotiated",
            None => "",
        };
        let fec = self.fec.as_ref().map_or_else(String::new, |fec| format!(", FEC {fec}"));
        let speed = self.speed_mbps.map_or("unknown rate".into(), |mbps| format!("{mbps} Mb/s"));
        let mtu = self.max_mtu.map_or("unknown".into(), |mtu| mtu.to_string());
        let numa = self.numa_node.map_or("unknown".into(), |node| node.to_string());
        writeln!(f, "driver {}, Ethernet address {}", self.driver, self.mac)?;
        writeln!(
            f,
            "link {} at {speed}{negotiated}{fec}, told by {}; NUMA node {numa}",
            if self.link_up { "up" } else { "DOWN" },
            if self.link_interrupt { "interrupt" } else { "asking" },
        )?;
        let sending = match self.sending {
            Sending::NotTried => "not tried".to_owned(),
            Sending::All(queues) => format!("the first {queues} send"),
            Sending::Silent(queue) => {
                format!("QUEUE {queue} SENDS NOTHING: use `lcores = {queue}`")
            }
        };
        writeln!(f, "queue pairs {} ({sending}), largest MTU {mtu}", self.queue_pairs)?;
        f.write_str(self.features().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::named;
    use super::*;

    #[test]
    fn a_queue_that_sends_nothing_is_told_with_its_remedy() {
        let text = |sending| PortReport { sending, ..PortReport::default() }.to_string();
        assert!(text(Sending::Silent(2)).contains("use `lcores = 2`"));
        assert!(text(Sending::NotTried).contains("(not tried)"));
    }

    #[test]
    fn a_queue_that_receives_nothing_is_told_with_the_number_that_works() {
        let of = |received: &[u64], note| {
            Finding::of_queues(named("lcores").expect("is there"), received.to_vec(), note)
        };
        let all = of(&[5, 1], "3 packets were sent again");
        assert_eq!((all.verdict, &all.remedy), (Verdict::Yes, &None));
        assert_eq!(all.note, "packets by receive queue: 5, 1; 3 packets were sent again");
        assert_eq!(all.received_by_queue, [5, 1]);
        for (received, works) in [(&[9, 0, 4, 0][..], 1), (&[9, 8, 7, 0], 3), (&[0, 6], 1)] {
            let finding = of(received, "");
            assert_eq!(finding.verdict, Verdict::No);
            assert!(finding.note.contains("RECEIVES NOTHING; packets by"), "{finding}");
            assert_eq!(finding.remedy, Some(format!("use `lcores = {works}`")));
            assert_eq!(finding.received_by_queue, received);
        }
        assert_eq!(of(&[], "").verdict, Verdict::No);
    }

    #[test]
    fn a_missing_property_has_its_reason_and_its_remedy() {
        let check = named("mtu-9000").expect("is there");
        let report = Report {
            format: FORMAT,
            machine: Machine::this(),
            port: None,
            port_fault: Some("no such device".into()),
            checks: vec![
                Finding::of(check, Verdict::No, "at most 1500"),
                Finding::of(named("lcores").expect("is there"), Verdict::NotRun, "one CPU"),
            ],
            seconds: 2.0,
            budget_seconds: 300.0,
        };
        assert_eq!(report.missing(), 1);
        let text = report.to_string();
        let ends = ["1 of 2 missing, 1 not run\n", "took 2 s; it may take 300 s\n"];
        for part in ["no such device", "(at most 1500)", check.remedy, ends[0], ends[1]] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&report.json().expect("writes")).expect("reads");
        assert_eq!(json["checks"][0]["verdict"], "no");
        assert_eq!(json["checks"][1]["verdict"], "not_run");
    }
}
