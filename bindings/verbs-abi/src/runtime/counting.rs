//! What ports and the engine count, in the files of the tree where Linux has such counts.
//!
//! ```text
//!   ports/1/counters/port_xmit_data      frames of the port, of whatever kind, as its driver counts them
//!   hw_counters/rdma_tx_packets          what the engine counts, of all ports together
//! ```
//!
//! The process that has the engine writes them, once a second as far as they have changed, where the
//! path shim shows a tree: a thread that sleeps. It begins with those of a new engine. When it is gone
//! they stay as they were.
//!
//! Invariant: a reader finds a whole number, the old one or the new one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uroce::{Context, PortStats};

use super::{place, start, tree};

/// The time from one look to the next.
const PERIOD: Duration = Duration::from_secs(1);

/// The tree that is shown.
fn shown() -> MutexGuard<'static, Option<PathBuf>> {
    static SHOWN: Mutex<Option<PathBuf>> = Mutex::new(None);
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts in this tree from now on.
pub(super) fn show(tree: &Path) {
    *shown() = Some(tree.to_owned());
}

/// The counts of a port by the names that their files have. Data are counted in words of four bytes,
/// and nothing distinguishes groups from hosts.
fn of_port(stats: &PortStats) -> [(&'static str, u64); tree::PORT_COUNTERS.len()] {
    let values = [
        stats.tx_bytes / 4,
        stats.rx_bytes / 4,
        stats.tx_packets,
        stats.rx_packets,
        stats.rx_errors,
        stats.tx_errors,
    ];
    std::array::from_fn(|at| (tree::PORT_COUNTERS[at], values[at]))
}

/// All counts of a device, by the paths of their files below the device's directory.
fn counts(engine: &Context) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for port in engine.ports() {
        let Ok(status) = engine.port_status(port.number) else { continue };
        let path = |name| format!("ports/{}/counters/{name}", port.number);
        all.extend(of_port(&status.stats).map(|(name, value)| (path(name), value)));
    }
    let own = engine.counters().unwrap_or_default();
    all.extend(own.into_iter().map(|(name, _, value)| (format!("hw_counters/{name}"), value)));
    all
}

/// The files of a device, and what they say.
struct Files {
    directory: PathBuf,
    /// Where a file is written before it gets its place.
    draft: PathBuf,
    said: HashMap<String, u64>,
}

impl Files {
    fn new(tree: &Path, device: &str) -> Files {
        let directory = tree.join("class/infiniband").join(device);
        Files { directory, draft: place::unfinished(&tree.join(device)), said: HashMap::new() }
    }

    /// Writes what has changed. What cannot be written, as in a full file system, is left for the next
    /// time: whoever counts goes on.
    fn say(&mut self, counts: Vec<(String, u64)>) {
        for (name, value) in counts {
            if self.said.get(&name) == Some(&value) {
                continue;
            }
            let written = std::fs::write(&self.draft, format!("{value}\n"))
                .and_then(|()| std::fs::rename(&self.draft, self.directory.join(&name)));
            if written.is_ok() {
                self.said.insert(name, value);
            }
        }
    }
}

/// Keeps the files of a device up to date for as long as the process lives, if they are shown.
pub(super) fn keep(device: &str, engine: Context) {
    let Some(mut tree) = shown().clone() else { return };
    let device = device.to_owned();
    let mut files = Files::new(&tree, &device);
    // Without the thread they stay as they are: nobody is to do without the engine for that.
    let _ = start::spawn("uroce-counts", move || {
        loop {
            if let Some(new) = shown().as_ref().filter(|new| **new != tree) {
                tree.clone_from(new);
                files = Files::new(&tree, &device);
            }
            files.say(counts(&engine));
            std::thread::sleep(PERIOD);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_what_was_counted_last() {
        let tree = std::env::temp_dir().join(format!("uroce-counting-{}", std::process::id()));
        let directory = tree.join("class/infiniband/uroce0/ports/1/counters");
        std::fs::create_dir_all(&directory).unwrap();
        let mut files = Files::new(&tree, "uroce0");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let say = |files: &mut Files, stats: &PortStats| {
            let path = |(name, value)| (format!("ports/1/counters/{name}"), value);
            files.say(of_port(stats).map(path).to_vec());
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
        // A directory that is gone is nobody's trouble.
        std::fs::remove_dir_all(&tree).unwrap();
        stats.rx_packets = 13;
        say(&mut files, &stats);
    }
}
