//! Where processes listen.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uroce_command::answer::Process;
use uroce_command::{Answer, Request, Show, run_dir};

use crate::client::{Client, ClientError};

/// Longest wait for a process that is listed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for all of them. Those that are left then count as silent.
const BUDGET: Duration = Duration::from_secs(20);

/// Returns the socket of a process, by its number or by the socket's path, which contains a slash.
///
/// # Errors
///
/// [`ClientError::NoProcess`], [`ClientError::Denied`].
pub(crate) fn socket(target: &str) -> Result<PathBuf, ClientError> {
    if target.contains('/') {
        return Ok(PathBuf::from(target));
    }
    let no_process = |text: String| ClientError::NoProcess(text);
    let Ok(pid) = target.parse::<u32>() else {
        let text = format!("{target:?} is neither a process number nor a path with a slash");
        return Err(no_process(text));
    };
    let mut directories = run_dir::known();
    directories.extend(run_dir_of(pid));
    let mut found: Vec<PathBuf> =
        directories.iter().flat_map(|directory| sockets(directory)).collect();
    found.retain(|path| pid_of(path) == Some(pid));
    // Other containers may have processes of the same number.
    let own = format!("{pid}-{}.sock", namespace());
    found.sort_by_key(|path| path.file_name() != Some(own.as_ref()));
    if let Some(path) = found.into_iter().next() {
        return Ok(path);
    }
    let Ok(metadata) = fs::metadata(format!("/proc/{pid}")) else {
        return Err(no_process(format!(
            "there is no process {pid}; `uroce ps` lists those of uroce"
        )));
    };
    let user = rustix::process::geteuid();
    if metadata.uid() != user.as_raw() && !user.is_root() {
        let owner = metadata.uid();
        return Err(ClientError::Denied(format!("process {pid} is user {owner}'s")));
    }
    Err(no_process(format!(
        "process {pid} has no control socket: it has no open device of uroce, or UROCE_CONTROL=off \
         or its configuration turns the socket off; `uroce ps` lists the processes that have one"
    )))
}

/// Returns all processes with a socket of which this user may read the run directory, in order of
/// their numbers. Those that do not answer are
/// numbers.
pub(crate) fn processes() -> Vec<Result<Process, u32>> {
    let mut found = BTreeMap::new();
    let end = Instant::now() + BUDGET;
    for path in all_sockets() {
        let pid = pid_of(&path).unwrap_or(0);
        let patience = PATIENCE.min(end.saturating_duration_since(Instant::now()));
        match ask(&path, patience) {
            Ok(process) => {
                found.insert((pid, path), Ok(process));
            }
            Err(ClientError::Silent | ClientError::Strange(_)) => {
                found.insert((pid, path), Err(pid));
            }
            // It has ended, or is another user's.
            Err(_) => {}
        }
    }
    found.into_values().collect()
}

/// Returns the sockets of all processes of which this user may read the run directory.
pub(crate) fn all_sockets() -> Vec<PathBuf> {
    let mut directories: BTreeSet<PathBuf> = run_dir::known().into_iter().collect();
    directories.extend(running().filter_map(run_dir_of));
    directories.iter().flat_map(|directory| sockets(directory)).collect()
}

/// Returns a name of a process for people: its number, and its PID namespace's if that is another
/// one than this process's.
pub(crate) fn label_of(socket: &Path) -> String {
    let name = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match name.split_once('-') {
        Some((pid, of)) if of.parse() == Ok(namespace()) => pid.to_owned(),
        _ => name,
    }
}

/// Asks a process for its description. The user is the one that the system names: a process cannot
/// pose as another user's.
fn ask(path: &Path, patience: Duration) -> Result<Process, ClientError> {
    if patience.is_zero() {
        return Err(ClientError::Silent);
    }
    let mut client = Client::connect_for(path, patience)?;
    match client.ask(&Request::Show(Show::Process))? {
        Answer::Process(process) => Ok(Process { uid: client.peer().uid, ..process }),
        _ => Err(ClientError::Strange("not a process".to_owned())),
    }
}

/// Returns the sockets in a run directory.
fn sockets(run_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run_dir.join(run_dir::CONTROL)).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
}

/// Returns the number of the process from the name of its socket.
fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_name()?.to_str()?.split_once('-')?.0.parse().ok()
}

/// Returns the numbers of all processes.
fn running() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Returns the run directory that a process got from its environment.
fn run_dir_of(pid: u32) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let runtime = variables.find_map(|variable| variable.strip_prefix(b"XDG_RUNTIME_DIR="))?;
    Some(PathBuf::from(OsString::from_vec(runtime.to_vec())).join("uroce"))
}
