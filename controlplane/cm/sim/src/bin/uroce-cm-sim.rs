//! Runs the simulator of connection management for a number of messages.

use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "uroce-cm-sim [--messages N] [--seed S]

  --messages N   number of messages to deliver (default 1000000)
  --seed S       seed of the first world (default: random); a failure prints how to repeat it";

fn main() -> ExitCode {
    let (mut messages, mut seed) = (1_000_000, fastrand::u64(..));
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse().ok());
        match (arg.as_str(), value) {
            ("--messages", Some(value)) => messages = value,
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let begin = Instant::now();
    println!("seed {seed}");
    let report = uroce_cm_sim::run(seed, messages);
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} messages in {} worlds: {} established ({} RD channels, {} uses of one), {} closed, \
         {} released, {} repeated, {} evicted, {} nodes killed; {:.0} messages/s",
        report.messages,
        report.worlds,
        report.established,
        report.channels,
        report.uses,
        report.closed,
        report.released,
        report.retransmitted,
        report.evicted,
        report.killed,
        report.messages as f64 / seconds,
    );
    println!("every connection ended in a legal state");
    ExitCode::SUCCESS
}
