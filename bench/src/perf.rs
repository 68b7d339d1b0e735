//! perftest's tests from the command line: roles and output.
//!
//! [`plan`] has what both ends agree on, [`traffic`] the messages, [`measure`] the figures,
//! [`report`] their form, [`print`] the output.

mod counters;
mod cpu;
mod file;
pub(crate) mod measure;
pub(crate) mod plan;
mod print;
pub(crate) mod report;
pub(crate) mod traffic;

use crate::cli::{PerfArgs, Role};
use crate::error::BenchError;
use crate::node::Node;
use crate::pin::Side;
use crate::rendezvous::perftest::{Partner, greet};
use crate::rendezvous::{Channel, Listener, connect};
use counters::Counters;
use print::Printer;
use traffic::{Event, Outcome};

/// Runs a test in the role that the options choose.
pub(crate) fn run(args: &PerfArgs) -> Result<(), BenchError> {
    let common = &args.common;
    for file in [common.csv_file(), common.json_file()].into_iter().flatten() {
        file::check_writable(&file)?;
    }
    match common.ends.role() {
        Role::Both => both(args),
        Role::Server => {
            let listener = Listener::bind(common.port)?;
            one(args, Side::Server, || {
                println!("\n{}\n* Waiting for client to connect... *\n{}", stars(), stars());
                Channel::tcp(listener.accept()?)
            })
        }
        Role::Client { host } => {
            one(args, Side::Client, || Channel::tcp(connect(&host, common.port)?))
        }
    }
}

fn stars() -> String {
    "*".repeat(36)
}

/// Opens the device of one end, connects and runs it.
fn one(
    args: &PerfArgs,
    side: Side,
    connect: impl FnOnce() -> Result<Channel, BenchError>,
) -> Result<(), BenchError> {
    let common = &args.common;
    let node = Node::open(&common.ends.device, side, args.plan.mtu, common.gid_index)?;
    let counters = Counters::new(&node.context, &common.report_counters)?;
    printed(args, &node, counters, connect()?)
}

/// Runs one end and prints its output.
fn printed(
    args: &PerfArgs,
    node: &Node,
    counters: Counters,
    channel: Channel,
) -> Result<(), BenchError> {
    let mut printer = Printer::new(args, node, counters)?;
    let outcome = session(args, node, channel, &mut |event| printer.event(event))?;
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
    let counters = Counters::new(&client.context, &common.report_counters)?;
    let (far, near) = Channel::pair()?;
    let serving = move || session(args, &server, far, &mut |_| ());
    crate::both_ends(serving, move || printed(args, &client, counters, near))
}
