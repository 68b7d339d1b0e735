//! `uroce-perf`: perftest-style tests over uroce, beside the limits they are measured against.
//!
//! ```text
//!   cli ──► perf: plan ──► traffic ──► measure ──► report    perftest's options and columns
//!                            │  rendezvous: TCP connection on which both ends agree
//!                            └► node: a device; the thread that posts and polls drives its lcore
//!   pingpong           the same verbs, ibv_*_pingpong's exchange and messages
//!   rping              rdmacm-utils' rping: queue pairs connected by the connection manager
//!   placement          WRITE, FLUSH and ATOMIC WRITE, checked at the peer
//!   limits             the same ports with no protocol: frames, copy, ICRC, bare ping-pong
//!   nic_check          each property of a NIC, by the tests above in processes of their own
//!   modify             Modify QP's round trip
//!   rate               accuracy of rate limits
//!   ndr                highest rate without loss, and with little; load: open-loop generator
//!   loss               goodput against the probability of loss; plot: pictures of throughput
//!   report             plans of many of these: one page with plots, and what changed since
//!   connect            connection set-ups per second; progress: operations awaited in any order
//!   flood              a healthy queue pair beside bad frames
//!   cost               a fixed amount of work, for `deploy/cost` to count the instructions of
//!   demo               path migration when a link is cut; all figures, between processes
//! ```
//!
//! Invariants
//! - A value in a column of perftest has perftest's meaning: payload only, 10⁹ bits, half a round
//!   trip for SEND and WRITE, a whole one for READ and atomics.
//! - An option that has no effect is not accepted.
//! - Every wait is bounded, except a server's wait for its client.
//!
//! Not here: protocol. No other crate depends on this one.

mod cli;
mod connect;
mod cost;
mod demo;
mod error;
mod flood;
mod limits;
mod load;
mod loss;
mod machine;
mod modify;
mod ndr;
mod nic_check;
mod node;
mod pattern;
mod perf;
mod pin;
mod pingpong;
mod placement;
mod plot;
mod progress;
mod qp_maker;
mod rate;
mod rendezvous;
mod report;
mod rping;
mod scale;

use clap::Parser;
use cli::{Cli, Command};
use error::BenchError;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;

/// Runs the command line and prints its results.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    end_with_parent();
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            let test = args.get(1).and_then(|word| word.to_str()).unwrap_or_default();
            if let Some(reason) = cli::refusal(&error, test) {
                eprintln!("uroce-perf: {reason}");
                return ExitCode::from(2);
            }
            // Help and version are "errors" that go to standard output. It may be closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            eprintln!("uroce-perf: {}", uroce::explained(&text).unwrap_or(text));
            ExitCode::from(if error.is_of_setup() { 2 } else { 1 })
        }
    }
}

/// Makes this process end with its parent, if the variable of that name has the parent's number:
/// the prompt of `uroce` starts tests in this way.
fn end_with_parent() {
    let parent = std::env::var("UROCE_PERF_ENDS_WITH").ok().and_then(|pid| pid.parse::<i32>().ok());
    let Some(parent) = parent else { return };
    // An error leaves a server that waits for its client on its own, as one that a shell starts is.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent) {
        // The parent has ended before.
        std::process::exit(1);
    }
}

fn dispatch(command: Command) -> Result<(), BenchError> {
    match command {
        Command::Perftest(test) => perf::run(&test.args()?),
        Command::RcPingpong(args) => pingpong::run(&args, pingpong::Service::Rc),
        Command::UcPingpong(args) => pingpong::run(&args, pingpong::Service::Uc),
        Command::UdPingpong(args) => pingpong::run(&args, pingpong::Service::Ud),
        Command::Rping(args) => rping::run(&args),
        Command::Placement(args) => placement::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::NicCheck(args) => nic_check::run(&args),
        Command::NicCheckPort(nic) => nic_check::run_port(&nic),
        Command::Flood(args) => flood::run(&args),
        Command::Modify(args) => modify::run(&args),
        Command::Rate(args) => rate::run(&args),
        Command::Loss(args) => loss::run(&args),
        Command::Ndr(args) => ndr::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Failover(args) => demo::failover::run(&args),
        Command::Connect(args) => connect::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Quickstart(args) => demo::quickstart::run(&args),
        Command::QuickstartNode(args) => demo::quickstart::run_node(&args),
    }
}

/// Runs both ends, each on its own thread. Returns the client's result.
fn both_ends<S: Send, C: Send>(
    server: impl FnOnce() -> Result<S, BenchError> + Send,
    client: impl FnOnce() -> Result<C, BenchError> + Send,
) -> Result<C, BenchError> {
    std::thread::scope(|scope| {
        let (server, client) = (scope.spawn(server), scope.spawn(client));
        first_cause(joined(client), joined(server))
    })
}

/// Returns the client's result, or the error that caused the others: one that does not report the
/// other end's failure.
fn first_cause<S, C>(
    client: Result<C, BenchError>,
    server: Result<S, BenchError>,
) -> Result<C, BenchError> {
    match (client, server) {
        (Err(BenchError::Peer(_) | BenchError::PeerGone) | Ok(_), Err(cause)) => Err(cause),
        (client, _) => client,
    }
}

/// Waits for a thread and returns its result. A panic of the thread is propagated.
fn joined<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    match handle.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_named_not_its_echo() {
        let echo = || Err::<(), _>(BenchError::PeerGone);
        let cause = || Err::<(), _>(BenchError::usage("cause"));
        let text = |client, server| first_cause(client, server).expect_err("one").to_string();
        assert_eq!(text(echo(), cause()), "cause");
        assert_eq!(text(cause(), echo()), "cause");
        assert_eq!(text(Ok(()), cause()), "cause");
        assert_eq!(text(cause(), Ok(())), "cause");
        assert_eq!(both_ends(|| Ok("server"), || Ok("client")).expect("both end well"), "client");
    }
}
