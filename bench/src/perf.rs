//! perftest's tests from the command line: roles and output.
//!
//! [`plan`] has what both ends agree on, [`traffic`] the messages, [`measure`] the figures,
//! [`report`] their form, [`print`] the output.

mod counters;
mod cpu;
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
use print::Printer;
use traffic::{Event, Outcome};

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
    let mut printer = Printer::new(args, node)?;
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
    let (far, near) = Channel::pair()?;
    let serving = move || session(args, &server, far, &mut |_| ());
    crate::both_ends(serving, move || one(args, &client, near))
}
