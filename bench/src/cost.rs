//! The work that `deploy/cost` counts: a fixed number of messages, and nothing that depends on
//! time.
//!
//! `deploy/cost` runs this under callgrind, which counts instructions and simulates caches. Both
//! ends are in this process, joined by rings. A message case is driven by one thread: it posts a
//! round of messages, makes turns of both lcores until all of them are complete, and repeats. In a
//! control case (Modify QP, connections) one thread calls and the control-plane thread of each
//! device works.
//!
//! Each case runs [`measured`] twice, with two numbers of messages: callgrind writes its counts
//! whenever that function returns, and the difference of the two is the cost of the messages alone.
//! A round that does not count comes first, so that caches, mempools and tables are warm; callgrind
//! looks from there on ([`valgrind`]).
//!
//! Invariants
//! - One line is printed for each call of [`measured`], in the order of the calls.
//! - A case that fails ends the program: there is no count of work that was not done.
//!
//! Not here: callgrind, and the difference of the counts (`deploy/lab/cost.py`).

mod control;
mod generator;
mod messages;
mod valgrind;

use crate::cli::{CostArgs, CostCase, DeviceArgs, Idle};
use crate::error::BenchError;
use crate::node::Node;
use clap::ValueEnum;

/// The subcommand.
pub(crate) fn run(args: &CostArgs) -> Result<(), BenchError> {
    match args.case {
        CostCase::Modify => control::modify(),
        CostCase::Connect => control::connect(),
        CostCase::List8 | CostCase::Paced8 => generator::run(args.case),
        case => messages::run(case, args.qps),
    }
}

/// Does `work` and says what it was: `CASE QPS UNITS`. callgrind knows this function by its name.
#[inline(never)]
fn measured(
    case: CostCase,
    qps: u32,
    units: u64,
    work: &mut dyn FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    work()?;
    let name = case.to_possible_value().map_or_else(String::new, |value| value.get_name().into());
    println!("{name} {qps} {units}");
    Ok(())
}

/// Opens both ends, joined by rings. The threads of lcores that are not taken over sleep when idle.
fn nodes() -> Result<[Node; 2], BenchError> {
    let device = DeviceArgs { idle: Some(Idle::Sleep), ..DeviceArgs::default() };
    Node::open_both(&device, None, 0)
}

/// Does `work` on a thread of its own, while the calling thread, which has taken the lcores over,
/// makes no turns. The control plane makes a turn for each of its commands to an lcore, and one
/// each millisecond unless a guard is exclusive. No thread polls for a time that differs from run
/// to run, and few turns are needed, which matters where the processor is simulated.
fn while_parked<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| crate::joined(scope.spawn(work)))
}
