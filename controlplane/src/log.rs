//! Log of control paths, for human readers: off unless the environment variable `UROCE_LOG` asks
//! for it.
//!
//! `UROCE_LOG` is a filter in the syntax of `tracing-subscriber`'s `EnvFilter`, for example `debug`
//! or `info,uroce_controlplane::rdma_cm=debug`. Levels: `info` for devices, links and events of
//! ports; `debug` for Modify QP, path resolution and states of connections; `error` for faults of
//! uroce itself. Nothing is logged per packet.
//!
//! Invariants
//! - No subscriber is installed without `UROCE_LOG`, or if the program has one of its own. Without
//!   a subscriber, an event costs a comparison with a static level.
//! - Nothing here ends the program or a thread: errors of writing are ignored.
//! - A line is written to descriptor 2 only while the descriptor refers to the file that it
//!   referred to when the log began. The program may have closed its stderr and opened a file or
//!   socket in its place.
//!
//! Not here: messages to the user about errors, which need no `UROCE_LOG`.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::Once;

use rustix::fs::{Stat, fstat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use uroce_engine::ControlError;
use uroce_transport::QpChange;
use uroce_wire::Qpn;

/// Environment variable with the filter.
const VARIABLE: &str = "UROCE_LOG";

/// Starts the log if `UROCE_LOG` asks for it. Only the first call of a process has an effect.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let Some(text) = std::env::var_os(VARIABLE) else { return };
        match filter(&text) {
            Ok(None) => {}
            Ok(Some(filter)) => install(filter),
            Err(problem) => {
                // An error means that stderr is closed.
                let _ = writeln!(io::stderr(), "uroce: {VARIABLE} is ignored: {problem}");
            }
        }
    });
}

/// Parses a filter; `None` if it is empty or `off`: there is no log then.
fn filter(text: &OsStr) -> Result<Option<EnvFilter>, String> {
    let text = text.to_str().ok_or("it is not UTF-8")?.trim();
    if text.is_empty() || text == "off" {
        return Ok(None);
    }
    EnvFilter::builder().parse(text).map(Some).map_err(|error| error.to_string())
}

fn install(filter: EnvFilter) {
    let Ok(file) = fstat(io::stderr()) else { return };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Stderr { file: identity(&file) })
        .finish();
    // An error means that the program has a subscriber of its own, which gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writer to stderr, while that is the file that it was when the log began.
#[derive(Clone, Copy)]
struct Stderr {
    file: (u64, u64),
}

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        if fstat(&stderr).is_ok_and(|file| identity(&file) == self.file) {
            // The subscriber would report an error with `eprintln!`, which panics if stderr is
            // closed.
            let _ = stderr.write_all(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Stderr {
    type Writer = Stderr;

    fn make_writer(&self) -> Stderr {
        *self
    }
}

/// Returns device and inode number, which together no other open file has.
fn identity(file: &Stat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}

/// Logs a Modify QP and its result.
pub(crate) fn modify_qp(qpn: Qpn, change: &QpChange, result: &Result<(), ControlError>) {
    let (qpn, state) = (qpn.value(), change.state);
    match result {
        Ok(()) => tracing::debug!(qpn, ?state, mask = ?change.mask(), "Modify QP"),
        Err(error) => {
            tracing::debug!(qpn, ?state, mask = ?change.mask(), %error, "Modify QP refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_usual_syntax_and_off_or_nothing_means_no_log() {
        for text in ["debug", "info,uroce_controlplane::rdma_cm=trace", "uroce_controlplane=warn"] {
            assert!(matches!(filter(OsStr::new(text)), Ok(Some(_))), "{text}");
        }
        for text in ["", " ", "off"] {
            assert!(matches!(filter(OsStr::new(text)), Ok(None)), "{text}");
        }
        let bad = filter(OsStr::new("uroce=loud")).unwrap_err();
        assert!(bad.contains("expected one of"), "{bad}");
    }
}
