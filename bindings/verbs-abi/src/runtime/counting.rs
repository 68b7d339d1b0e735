//! Writes the counters of ports and engine to the files of the tree that Linux has for them.
//!
//! ```text
//!   ports/1/counters/port_xmit_data      all frames of the port, as its driver counts them
//!   hw_counters/rdma_tx_packets          the engine's counters, summed over all ports
//! ```
//!
//! The process that runs the engine writes the files if the path shim shows a tree. A thread writes
//! those with changed counters once a second, and once more when the process exits. Afterwards the
//! files keep their last values.
//!
//! Invariants
//! - A reader finds a complete number, the old or the new one.
//! - The files are written with file descriptors that the program cannot close: it may close all
//!   numbers at any time, and open files of its own that get them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use uroce::Context;

use super::{place, start};

/// Interval between two updates of the files.
const PERIOD: Duration = Duration::from_secs(1);

/// Path of the tree that the path shim shows.
fn shown() -> MutexGuard<'static, Option<PathBuf>> {
    static SHOWN: Mutex<Option<PathBuf>> = Mutex::new(None);
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the tree in which the files are updated from now on.
pub(super) fn show(tree: &Path) {
    *shown() = Some(tree.to_owned());
}

/// All counters of a device, by file path below the device's directory.
fn counts(engine: &Context) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for port in engine.ports() {
        let Ok(status) = engine.port_status(port.number) else { continue };
        let path = |name| format!("ports/{}/counters/{name}", port.number);
        all.extend(status.stats.linux().map(|(name, value)| (path(name), value)));
    }
    let own = engine.counters().unwrap_or_default();
    all.extend(own.iter().map(|count| (format!("hw_counters/{}", count.name), count.value)));
    all
}

/// The counter files of one device.
struct Files {
    directory: PathBuf,
    /// Temporary name of a file that is being written.
    draft: PathBuf,
    /// Last written value of each file.
    said: HashMap<String, u64>,
}

impl Files {
    fn new(tree: &Path, device: &str) -> Files {
        let directory = tree.join("class/infiniband").join(device);
        Files { directory, draft: place::unfinished(&tree.join(device)), said: HashMap::new() }
    }

    /// Writes the counters that have changed. A failed write, for example in a full file system, is
    /// repeated at the next update.
    fn say(&mut self, mut counts: Vec<(String, u64)>) {
        counts.retain(|(name, value)| self.said.get(name) != Some(value));
        if !counts.is_empty() {
            with_own_descriptors(|| counts.into_iter().for_each(|count| self.write(count)));
        }
    }

    fn write(&mut self, (name, value): (String, u64)) {
        let written = std::fs::write(&self.draft, format!("{value}\n"))
            .and_then(|()| std::fs::rename(&self.draft, self.directory.join(&name)));
        if written.is_ok() {
            self.said.insert(name, value);
        }
    }
}

/// Runs `work` on a thread that has a table of file descriptors of its own, empty at first. On
/// Linux before 5.9 the thread has the program's. Does nothing if no thread can be started.
fn with_own_descriptors(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let own = move || {
            let (first, last) = (0_u32, u32::MAX);
            let flags = libc::CLOSE_RANGE_UNSHARE;
            // SAFETY: the call gives this thread a table of its own and closes descriptors in that
            // table only. No value that owns a descriptor is on this thread.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
            work();
        };
        let _ = thread::Builder::new().name("uroce-counts".into()).spawn_scoped(scope, own);
    });
}

/// A device and its files.
struct Kept {
    device: String,
    engine: Context,
    /// The tree of `files`.
    tree: PathBuf,
    files: Files,
}

/// All devices of the process with files.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

impl Kept {
    fn update(&mut self) {
        if let Some(new) = shown().as_ref().filter(|new| **new != self.tree) {
            self.tree.clone_from(new);
            self.files = Files::new(&self.tree, &self.device);
        }
        self.files.say(counts(&self.engine));
    }
}

/// Writes the counters that have changed, of all devices. Called once a second, and when the
/// process exits.
pub(super) fn update() {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(Kept::update);
}

/// Keeps a device's files up to date from now on, by a thread of the process. Does nothing if no
/// tree is shown.
pub(super) fn keep(device: &str, engine: Context) {
    let Some(tree) = shown().clone() else { return };
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let files = Files::new(&tree, device);
    kept.push(Kept { device: device.to_owned(), engine, tree, files });
    if kept.len() == 1 {
        // If the thread cannot be started the files keep their values; the engine works without
        // them.
        let _ = start::spawn("uroce-counts", || {
            loop {
                update();
                std::thread::sleep(PERIOD);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce::PortStats;

    #[test]
    fn counter_files_have_the_last_values() {
        let tree = std::env::temp_dir().join(format!("uroce-counting-{}", std::process::id()));
        let directory = tree.join("class/infiniband/uroce0/ports/1/counters");
        std::fs::create_dir_all(&directory).unwrap();
        let mut files = Files::new(&tree, "uroce0");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let say = |files: &mut Files, stats: &PortStats| {
            let path = |(name, value)| (format!("ports/1/counters/{name}"), value);
            files.say(stats.linux().map(path).to_vec());
        };
        let mut stats = PortStats { tx_bytes: 4096, rx_packets: 7, ..PortStats::default() };
        say(&mut files, &stats);
        assert_eq!(
            (read("port_xmit_data"), read("port_rcv_packets")),
            ("1024\n".into(), "7\n".into())
        );
        stats.rx_packets = 12;
        say(&mut files, &stats);
        assert_eq!(read("port_rcv_packets"), "12\n");
        // A missing directory is not an error.
        std::fs::remove_dir_all(&tree).unwrap();
        stats.rx_packets = 13;
        say(&mut files, &stats);
    }
}
