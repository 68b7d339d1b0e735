//! perftest's tests from the command line: roles and output.
//!
//! [`plan`] has what both ends agree on, [`traffic`] the messages, [`measure`] the figures,
//! [`report`] their output.

pub(crate) mod measure;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod traffic;

use crate::cli::{PerfArgs, Role};
use crate::error::BenchError;
use crate::node::Node;
use crate::pin::Side;
use crate::rendezvous::perftest::{Partner, greet};
use crate::rendezvous::{Channel, Listener, connect};
use plan::{Amount, Measure, Plan};
use report::{
    Connection, Report, Row, Title, bandwidth_header, bandwidth_row, latency_duration_header,
    latency_duration_row, latency_header, latency_row, line, quantiles,
};
use traffic::{Connected, End, Event, Outcome};
use uroce::Gid;

/// Runs a test in the role that the options choose.
pub(crate) fn run(args: &PerfArgs) -> Result<(), BenchError> {
    let common = &args.common;
    match common.ends.role() {
        Role::Both => both(args),
        Role::Server => {
            let listener = Listener::bind(common.port)?;
            let node =
                Node::open(&common.ends.device, Side::Server, args.plan.mtu, common.gid_index)?;
            println!("\n{}\n* Waiting for client to connect... *\n{}", stars(), stars());
            one(args, &node, Channel::tcp(listener.accept()?)?)
        }
        Role::Client { host } => {
            let node =
                Node::open(&common.ends.device, Side::Client, args.plan.mtu, common.gid_index)?;
            one(args, &node, Channel::tcp(connect(&host, common.port)?)?)
        }
    }
}

fn stars() -> String {
    "*".repeat(36)
}

/// Runs one end and prints its output.
fn one(args: &PerfArgs, node: &Node, channel: Channel) -> Result<(), BenchError> {
    let mut printer = Printer { args, device: &node.device };
    let outcome = session(args, node, channel, &mut |event| printer.print(event))?;
    printer.finish(&outcome)
}

/// Runs one end, with uroce-perf or a perftest program at the other.
fn session(
    args: &PerfArgs,
    node: &Node,
    channel: Channel,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, BenchError> {
    let common = &args.common;
    match greet(channel, node.side, common.perftest_exchange)? {
        Partner::Uroce(mut link) => traffic::run(node, &mut link, &args.plan, event),
        Partner::Perftest(talk) => {
            traffic::run_stock(node, talk, &args.plan, common.report_gbits, event)
        }
    }
}

/// Runs both ends, each on its own thread. The client prints.
fn both(args: &PerfArgs) -> Result<(), BenchError> {
    let common = &args.common;
    let [server, client] = Node::open_both(&common.ends.device, args.plan.mtu, common.gid_index)?;
    let (far, near) = Channel::pair()?;
    let serving = move || session(args, &server, far, &mut |_| ());
    crate::both_ends(serving, move || one(args, &client, near))
}

/// Prints the progress of a session.
struct Printer<'a> {
    args: &'a PerfArgs,
    device: &'a str,
}

impl Printer<'_> {
    fn print(&mut self, event: Event<'_>) {
        match event {
            Event::Connected(connected) => self.head(connected),
            Event::Row(row) => println!("{}", self.row(&row)),
        }
    }

    fn title(&self, mtu: u32) -> Title<'_> {
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
        match (self.args.plan.measure, self.args.plan.amount) {
            (Measure::Bandwidth, _) => {
                println!("{}", bandwidth_header(self.args.common.report_gbits));
            }
            (Measure::Latency, Amount::Iterations(_)) => println!("{}", latency_header()),
            (Measure::Latency, Amount::Duration(_)) => println!("{}", latency_duration_header()),
        }
    }

    fn row(&self, row: &Row) -> String {
        match (row, self.args.plan.amount) {
            (Row::Bandwidth(row), _) => bandwidth_row(row, self.args.common.report_gbits),
            (Row::Latency(size, row), Amount::Iterations(_)) => latency_row(*size, row),
            (Row::Latency(size, row), Amount::Duration(time)) => {
                latency_duration_row(*size, row, time.as_secs_f64())
            }
        }
    }

    /// Prints the lines below the table, and writes the JSON file.
    fn finish(&self, outcome: &Outcome) -> Result<(), BenchError> {
        println!("{}", line());
        if self.args.quantiles {
            for row in &outcome.rows {
                if let Row::Latency(size, row) = row {
                    println!(" {size} bytes,{}", quantiles(row));
                }
            }
        }
        if let Some(bytes) = outcome.verified_bytes {
            println!(" verified: {bytes} bytes of payload, each as it was sent");
        }
        if outcome.retransmissions > 0 {
            println!(" {} packets were sent again", outcome.retransmissions);
        }
        if outcome.lost_messages > 0 {
            println!(" {} messages did not arrive", outcome.lost_messages);
        }
        let Some(path) = self.args.common.json_file() else { return Ok(()) };
        Report {
            title: self.title(outcome.mtu),
            gbits: self.args.common.report_gbits,
            rows: &outcome.rows,
            verified: outcome.verified_bytes.map(|_| true),
            retransmissions: outcome.retransmissions,
            lost_messages: outcome.lost_messages,
            lost: outcome.lost,
        }
        .write(&path)
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
        gid: Gid(end.gid),
    }
}
