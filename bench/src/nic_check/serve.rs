//! The server's end: runs the other end of each test that the client names.

use super::checks::{self, ENDLESS};
use super::test::{LIMIT, Test};
use super::{Call, Reply};
use crate::cli::NicArgs;
use crate::error::BenchError;
use crate::pin::Side;
use crate::rendezvous::Link;
use std::time::{Duration, Instant};

/// Longest time between two calls of a client, which runs a test in between.
const SILENCE: Duration = Duration::from_secs(180);
/// Longest time from the end of the client's test to that of the server's.
const FAREWELL: Duration = Duration::from_secs(10);
/// Largest number of lcores that a client may name.
const LCORES_MAX: u16 = 16;
/// Queue pairs of each lcore. Where their packets are spread by their hash alone, each queue gets
/// some: that one of 16 queues gets none happens once in a million runs.
const QPS: u16 = 16;

/// Serves a client until it has no more checks.
pub(super) fn run(nic: &NicArgs, port: u16, mut link: Link) -> Result<(), BenchError> {
    let mut running: Option<Test> = None;
    loop {
        let fault = match next(&mut link)? {
            Call::Hello { version } if version == env!("CARGO_PKG_VERSION") => None,
            Call::Hello { version } => {
                let own = env!("CARGO_PKG_VERSION");
                Some(format!("the server has version {own} and the client {version}: use one"))
            }
            Call::Start { check, lcores, limit_ms } => {
                drop(running.take());
                let deadline = Instant::now() + Duration::from_millis(limit_ms).min(LIMIT);
                match listening(nic, port, (&check, lcores), deadline) {
                    Ok(test) => {
                        running = Some(test);
                        None
                    }
                    Err(fault) => Some(fault),
                }
            }
            Call::End { killed } => match running.take() {
                Some(test) if !killed => test.finish_by(Instant::now() + FAREWELL).fault,
                _ => None,
            },
            Call::Bye => return Ok(()),
        };
        link.send(&Reply { fault })?;
    }
}

/// Returns the client's next call.
fn next(link: &mut Link) -> Result<Call, BenchError> {
    let begin = Instant::now();
    loop {
        if let Some(call) = link.try_receive()? {
            return Ok(call);
        }
        if begin.elapsed() > SILENCE {
            return Err(BenchError::TimedOut { waiting: "waiting for a check", limit: SILENCE });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts the server's end of a check's test. Returns it when it listens, or the reason why
/// not. `check` is the check's name, with the lcores of the client's end.
fn listening(
    nic: &NicArgs,
    port: u16,
    check: (&str, u16),
    deadline: Instant,
) -> Result<Test, String> {
    let mut test = start(nic, port, check, deadline).map_err(|error| error.to_string())?;
    if test.says("Waiting for client") {
        return Ok(test);
    }
    Err(test.finish().fault.unwrap_or_else(|| "its test ended at once".to_owned()))
}

fn start(
    nic: &NicArgs,
    port: u16,
    (check, lcores): (&str, u16),
    deadline: Instant,
) -> Result<Test, BenchError> {
    let Some(check) = checks::named(check) else {
        return Err(BenchError::usage(format!("there is no check {check:?}")));
    };
    let words = words(check, port, lcores)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Test::start(nic, Side::Server, check.setting, 1, &words, deadline)
}

/// Returns the command line of a check's test, which is the same at both ends. 0 lcores stand for a
/// test that lasts until it is killed.
pub(super) fn words(
    check: &checks::Check,
    port: u16,
    lcores: u16,
) -> Result<Vec<String>, BenchError> {
    if lcores > LCORES_MAX {
        return Err(BenchError::usage(format!("{lcores} lcores; at most {LCORES_MAX}")));
    }
    let mut words: Vec<String> =
        if lcores == 0 { ENDLESS } else { check.words }.iter().map(|&word| word.into()).collect();
    words.extend(["-p".to_owned(), (port + 1).to_string()]);
    if check.kind == checks::Kind::Lcores {
        words.extend(["-q".to_owned(), (QPS * lcores).to_string()]);
    }
    Ok(words)
}
