//! Log of control paths, for human readers: off unless the environment variable `UROCE_LOG` or a
//! command of the console asks for it.
//!
//! `UROCE_LOG` is a filter in the syntax of `tracing-subscriber`'s `EnvFilter`, for example `debug`
//! or `info,uroce_controlplane::rdma_cm=debug`. Levels: `info` for devices, links and events of
//! ports; `debug` for Modify QP, path resolution and states of connections; `error` for faults of
//! uroce itself. Nothing is logged per packet.
//!
//! Invariants
//! - No subscriber is installed before one of them asks for it, or if the program has one of its
//!   own. Without a subscriber, an event costs a comparison with a static level.
//! - Nothing here ends the program or a thread: errors of writing are ignored.
//! - A line is written to descriptor 2 only while the descriptor refers to the file that it
//!   referred to when the log began. The program may have closed its stderr and opened a file or
//!   socket in its place.
//!
//! Not here: messages to the user about errors, which need no `UROCE_LOG`.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};

use rustix::fs::{Stat, fstat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use uroce_command::request::LogLevel;
use uroce_engine::ControlError;
use uroce_transport::QpChange;
use uroce_wire::Qpn;

/// Environment variable with the filter.
const VARIABLE: &str = "UROCE_LOG";
/// Name of the crate, with which the paths of its modules begin.
const CRATE: &str = env!("CARGO_CRATE_NAME");
/// Modules that write to the log. Those inside of them are named by their paths.
const MODULES: [&str; 18] = [
    "control_socket",
    "control_socket::telemetry",
    "device",
    "failover",
    "failover::load",
    "failover::receive",
    "log",
    "rdma_cm",
    "rdma_cm::connection",
    "rdma_cm::service",
    "rdma_cm::service::active",
    "rdma_cm::service::end",
    "rdma_cm::service::look_up",
    "rdma_cm::service::passive",
    "rdma_cm::service::resolve",
    "thread",
    "thread::ports",
    "thread::waiting",
];

/// The log, once it was asked for.
static LOG: Mutex<Option<Log>> = Mutex::new(None);

/// The log's filter.
struct Log {
    /// Its parts. A later one wins against an earlier one for the same module.
    parts: Vec<String>,
    /// Makes another filter the log's.
    set: Box<dyn Fn(EnvFilter) -> bool + Send>,
}

/// Reason for which the log is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogError {
    /// The program has a subscriber, or its stderr is closed.
    #[error("the program writes its own log, or has closed its stderr")]
    NotOurs,
    /// No module of this name writes to the log.
    #[error("{0:?} is no part of the log")]
    NoPart(String),
}

/// Sets the level of all parts of the log. Returns the filter.
///
/// # Errors
///
/// [`LogError::NotOurs`].
pub(crate) fn set_all(level: LogLevel) -> Result<String, LogError> {
    change(|parts| *parts = vec![level.name().to_owned()])
}

/// Returns the names of the log's parts, apart from `global` and without the modules inside them.
pub(crate) fn parts() -> impl Iterator<Item = &'static str> {
    MODULES.into_iter().filter(|module| !module.contains("::"))
}

/// Sets the level of one part of the log: a module, or `global`. Returns the filter.
///
/// # Errors
///
/// [`LogError`].
pub(crate) fn set_part(part: &str, level: LogLevel) -> Result<String, LogError> {
    let module = part.strip_prefix(CRATE).and_then(|rest| rest.strip_prefix("::"));
    let begin = match module.unwrap_or(part) {
        "global" if module.is_none() => String::new(),
        CRATE if module.is_none() => format!("{CRATE}="),
        module if MODULES.contains(&module) => format!("{CRATE}::{module}="),
        _ => return Err(LogError::NoPart(part.to_owned())),
    };
    change(|parts| {
        let is_other = |of: &String| match of.rsplit_once('=') {
            Some((name, _)) => begin.strip_suffix('=') != Some(name),
            None => !begin.is_empty(),
        };
        parts.retain(is_other);
        parts.push(format!("{begin}{}", level.name()));
    })
}

/// Changes the parts of the log's filter, and begins the log if there is none. Returns the filter.
fn change(change: impl FnOnce(&mut Vec<String>)) -> Result<String, LogError> {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let mut parts = log.as_ref().map_or(Vec::new(), |log| log.parts.clone());
    change(&mut parts);
    let text = parts.join(",");
    let filter = || EnvFilter::builder().parse(&text).map_err(|_| LogError::NoPart(text.clone()));
    if log.is_none() {
        *log = install(filter()?, Vec::new());
    }
    let log = log.as_mut().ok_or(LogError::NotOurs)?;
    if !(log.set)(filter()?) {
        return Err(LogError::NotOurs);
    }
    log.parts = parts;
    Ok(text)
}

/// Starts the log if `UROCE_LOG` asks for it. Only the first call of a process has an effect.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let Some(text) = std::env::var_os(VARIABLE) else { return };
        match filter(&text) {
            Ok(None) => {}
            Ok(Some(filter)) => {
                let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
                // A text that is not UTF-8 was refused.
                *log = install(filter, vec![text.to_string_lossy().into_owned()]);
            }
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

/// Begins the log. `None` if stderr is closed, or the program has a subscriber of its own, which
/// gets the events.
fn install(filter: EnvFilter, parts: Vec<String>) -> Option<Log> {
    let file = fstat(io::stderr()).ok()?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Stderr { file: identity(&file) })
        .with_filter_reloading();
    let handle = builder.reload_handle();
    tracing::subscriber::set_global_default(builder.finish()).ok()?;
    Some(Log { parts, set: Box::new(move |filter| handle.reload(filter).is_ok()) })
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
    use std::collections::BTreeSet;
    use std::path::Path;

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

    /// Adds the modules of a directory that have an event. `module` is the directory's path.
    fn find_modules(directory: &Path, module: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let inner = format!("{module}{name}");
            if path.is_dir() {
                find_modules(&path, &format!("{inner}::"), found);
            } else if std::fs::read_to_string(&path).unwrap().contains(&["tracing", "::"].concat())
            {
                found.insert(inner);
            }
        }
    }

    #[test]
    fn the_parts_of_the_log_are_the_modules_that_write_to_it() {
        let mut found = BTreeSet::new();
        find_modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut found);
        // Others have an event only in the modules inside them.
        let has_inner =
            |of: &&str| MODULES.iter().any(|module| module.starts_with(&format!("{of}::")));
        let listed = MODULES.into_iter().filter(|of| found.contains(*of) || !has_inner(of));
        assert_eq!(found, listed.map(str::to_owned).collect());
        for wrong in ["rdmacm", "gsi", "", "Loud!", "uroce_controlplane::", "rdma_cm::x"] {
            let refused = set_part(wrong, LogLevel::Debug);
            assert_eq!(refused, Err(LogError::NoPart(wrong.to_owned())));
        }
    }
}
