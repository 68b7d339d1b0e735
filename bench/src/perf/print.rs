//! Output of one end: the table, and the files.

use super::counters::Counters;
use super::cpu::Ticks;
use super::measure::Bandwidth;
use super::plan::{self, Amount, Measure, Plan};
use super::report::{
    Connection, Record, Report, Row, Table, Title, Units, bandwidth_header, bandwidth_row,
    cpu_column, cpu_header, latencies, latency_duration_header, latency_duration_row,
    latency_header, latency_row, line, quantiles,
};
use super::traffic::{Connected, End, Event, Outcome, by_queue};
use crate::cli::PerfArgs;
use crate::error::BenchError;
use crate::node::Node;
use uroce::{Context, Gid};

/// Prints the progress of a session and writes its files.
pub(super) struct Printer<'a> {
    args: &'a PerfArgs,
    context: &'a Context,
    device: &'a str,
    units: Units,
    counters: Counters,
    csv: Option<Table>,
    mtu: u32,
    /// CPU time at the beginning of the measurement.
    begun: Option<Ticks>,
    cpu_util: Option<f64>,
    directions: Option<[Bandwidth; 2]>,
    records: Vec<Record>,
    /// First error of a file or counter, which does not stop the test.
    failure: Option<BenchError>,
}

impl<'a> Printer<'a> {
    /// Creates the files.
    pub(super) fn new(
        args: &'a PerfArgs,
        node: &'a Node,
        counters: Counters,
    ) -> Result<Self, BenchError> {
        let common = &args.common;
        Ok(Self {
            args,
            context: &node.context,
            device: &node.device,
            units: Units::new(common.report_gbits, args.view.cycles),
            counters,
            csv: common.csv_file().map(|path| Table::create(&path)).transpose()?,
            mtu: 0,
            begun: None,
            cpu_util: None,
            directions: None,
            records: Vec::new(),
            failure: None,
        })
    }

    /// Handles an event of the session.
    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Connected(connected) => {
                self.mtu = connected.mtu;
                self.head(connected);
                // What connecting has counted is not of the test.
                let _ = self.counters.grown(self.context);
            }
            Event::Begin => self.begun = Ticks::now(),
            Event::End => self.end(),
            Event::Latencies(ns, parts) => self.latencies(ns, parts),
            Event::Directions(directions) => self.directions = Some(directions),
            Event::Lap(row) => {
                self.end();
                self.begun = Ticks::now();
                self.records.clear();
                self.record(row);
                let written = self.write_json(&Outcome { mtu: self.mtu, ..Outcome::default() });
                self.keep_failure(written);
            }
            Event::Row(row) => self.record(row),
        }
    }

    /// Notes the use of the CPUs since the beginning of the measurement.
    fn end(&mut self) {
        let percent = |begun: &Ticks| Some(Ticks::now()?.percent_since(begun));
        self.cpu_util = self.begun.as_ref().filter(|_| self.args.common.cpu_util).and_then(percent);
    }

    fn keep_failure(&mut self, result: Result<(), BenchError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    fn title(&self, mtu: u32) -> Title<'a> {
        let gid_index = self.args.common.gid_index;
        Title { plan: &self.args.plan, device: self.device, mtu, gid_index }
    }

    fn head(&self, connected: &Connected) {
        println!("{}", self.title(connected.mtu));
        let sides = [("local", &connected.local), ("remote", &connected.remote)];
        for (side, ends) in sides {
            for end in ends {
                println!("{}", connection(side, end, &self.args.plan));
            }
        }
        println!("{}", line());
        println!("{}", self.header());
    }

    fn header(&self) -> String {
        let plan = &self.args.plan;
        let header = match (plan.measure, plan.amount) {
            (Measure::Bandwidth, _) => bandwidth_header(&self.units),
            (Measure::Latency, Amount::Duration(_)) => latency_duration_header(&self.units),
            (Measure::Latency, _) => latency_header(&self.units),
        };
        header + if self.args.common.cpu_util { cpu_header() } else { "" }
    }

    /// Prints every latency, as it came or sorted, and the header of the row that follows.
    fn latencies(&self, ns: &[u64], parts: f64) {
        let view = &self.args.view;
        if view.unsorted {
            println!("{}", latencies(ns, parts, &self.units));
        }
        if view.histogram {
            let mut sorted = ns.to_vec();
            sorted.sort_unstable();
            println!("{}", latencies(&sorted, parts, &self.units));
        }
        println!("{}\n{}", line(), self.header());
    }

    /// Prints and keeps a row.
    fn record(&mut self, row: Row) {
        let cpu_util = self.cpu_util.take();
        println!("{}", self.row(&row, cpu_util));
        let grown = self.counters.grown(self.context);
        let counters = grown.unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            Vec::new()
        });
        for (name, growth) in &counters {
            println!("\t{name}={growth}");
        }
        let directions = self.directions.take();
        if let (true, Some([local, remote])) = (self.args.view.both, directions) {
            for (side, row) in [("Local", local), ("Remote", remote)] {
                println!("{}\n\n {side} results: \n{}", line(), line());
                println!("{}", bandwidth_header(&self.units));
                println!("{}", bandwidth_row(&row, &self.units));
            }
        }
        let title = self.title(self.mtu);
        if let Some(csv) = &mut self.csv {
            let written = csv.append(&title, &row, cpu_util, &self.units);
            self.keep_failure(written);
        }
        self.records.push(Record { row, cpu_util, directions, counters });
    }

    fn row(&self, row: &Row, cpu_util: Option<f64>) -> String {
        let units = &self.units;
        let columns = match (row, self.args.plan.measured()) {
            (Row::Bandwidth(row), _) => bandwidth_row(row, units),
            (Row::Latency(size, row), Some(measured)) => {
                latency_duration_row(*size, row, measured.as_secs_f64(), units)
            }
            (Row::Latency(size, row), _) => latency_row(*size, row, units),
        };
        columns + &cpu_util.map(cpu_column).unwrap_or_default()
    }

    /// Prints the lines below the table, writes the JSON file, and checks the limits.
    pub(super) fn finish(mut self, outcome: &Outcome) -> Result<(), BenchError> {
        println!("{}", line());
        if self.args.view.quantiles {
            for record in &self.records {
                if let Row::Latency(size, row) = &record.row {
                    println!(" {size} bytes,{}", quantiles(row, &self.units));
                }
            }
        }
        if let Some(bytes) = outcome.verified_bytes {
            println!(" verified: {bytes} bytes of payload, each as it was sent");
        }
        if outcome.retransmissions > 0 {
            println!(" {} packets were sent again", outcome.retransmissions);
        }
        if let (handed_over @ 1.., all) = outcome.handed_over {
            println!(" {handed_over} of {all} packets were handed over from lcore to lcore");
        }
        if let Some(line) = by_queue(&outcome.received_by_queue) {
            println!("{line}");
        }
        if outcome.lost_messages > 0 {
            println!(" {} messages did not arrive", outcome.lost_messages);
        }
        self.write_json(outcome)?;
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.check_limits(),
        }
    }

    fn write_json(&self, outcome: &Outcome) -> Result<(), BenchError> {
        let Some(path) = self.args.common.json_file() else { return Ok(()) };
        Report {
            title: self.title(outcome.mtu),
            units: self.units,
            records: &self.records,
            verified: outcome.verified_bytes.map(|_| true),
            retransmissions: outcome.retransmissions,
            lost_messages: outcome.lost_messages,
            lost: outcome.lost,
            counts: outcome.counts,
            received_by_queue: &outcome.received_by_queue,
        }
        .write(&path)
    }

    /// Checks `-w` and `-y`. Of several sizes one must reach a limit, as in perftest.
    fn check_limits(&self) -> Result<(), BenchError> {
        let view = &self.args.view;
        let best = |of: &dyn Fn(&Bandwidth) -> f64| {
            let value = |record: &Record| match &record.row {
                Row::Bandwidth(row) => Some(of(row)),
                Row::Latency(..) => None,
            };
            self.records.iter().filter_map(value).fold(0.0, f64::max)
        };
        let average = best(&|row| self.units.average(row));
        let rate = best(&|row| row.messages_per_second() / 1e6);
        for (what, measured, limit, unit) in [
            ("bandwidth", average, view.limit_bw, self.units.bandwidth_name()),
            ("message rate", rate, view.limit_msgrate, "Mpps"),
        ] {
            if let Some(limit) = limit.filter(|&limit| measured < limit) {
                return Err(BenchError::BelowLimit { what, measured, limit, unit });
            }
        }
        Ok(())
    }
}

/// Returns an end's parameters for printing. As in perftest, SEND tests do not show the memory.
fn connection(side: &'static str, end: &End, plan: &Plan) -> Connection {
    let one_sided = plan.operation != plan::Operation::Send;
    Connection {
        side,
        qpn: end.qpn,
        psn: end.psn,
        memory: one_sided.then_some((end.rkey, end.va)),
        srqn: (plan.service == plan::Service::Xrc).then_some(end.srqn),
        eecn: (plan.service == plan::Service::Rd).then_some(end.eecn),
        gid: Gid(end.gid),
    }
}
