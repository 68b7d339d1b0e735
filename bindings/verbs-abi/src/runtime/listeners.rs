//! The ports at which the processes of the local fabric listen. To the programs of a machine its
//! processes are one host: a connection to an address of the host reaches the process that listens.
//!
//! Each listening port of a process has a file in the run directory, with the process's addresses,
//! which is locked as long as the process listens. A file without a lock was left by a process that
//! has died.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use uroce::cm::raw::PortSpace;
use uroce::config::{Ethdev, PortConfig};

use super::place;
use super::problem::Problem;

/// Name of the directory with the files.
const DIRECTORY: &str = "listeners";
/// Longest file that is read, in bytes: 32 addresses fit.
const LEN_MAX: u64 = 2048;

/// A port at which this process listens, known to the others. The entry goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    _lock: File,
    /// The process that has made it: a forked child removes nothing.
    process: u32,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Tells the other processes of the local fabric that this one listens. `None` if the port is not
/// one of the local fabric.
///
/// # Errors
///
/// [`Problem`] if the file cannot be written.
pub(crate) fn announce(
    port: &PortConfig,
    space: PortSpace,
    number: u16,
) -> Result<Option<Listener>, Problem> {
    let (Ethdev::Local(fabric), Some(member)) = (&port.ethdev, port.member) else {
        return Ok(None);
    };
    let path =
        place::sub_dir(DIRECTORY)?.join(format!("{}{member}", prefix(fabric, space, number)));
    let problem = |error| Problem::File { path: path.clone(), error };
    let addresses = port.ip.iter().map(|ip| format!("{}\n", ip.address()));
    let lock = write(&path, &addresses.collect::<String>()).map_err(problem)?;
    Ok(Some(Listener { path, _lock: lock, process: std::process::id() }))
}

/// Writes a locked file. It has another name until it is complete.
fn write(path: &Path, text: &str) -> io::Result<File> {
    let new = place::unfinished(path);
    let mut file = File::create(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)?;
    Ok(file)
}

/// The address of another process that listens at a port, of the IP version of `at`. Files of
/// processes that have died are removed.
pub(crate) fn find(port: &PortConfig, space: PortSpace, at: SocketAddr) -> Option<IpAddr> {
    let Ethdev::Local(fabric) = &port.ethdev else { return None };
    let prefix = prefix(fabric, space, at.port());
    let is_own = |ip: &IpAddr| port.ip.iter().any(|own| own.address() == *ip);
    let entries = fs::read_dir(place::sub_dir(DIRECTORY).ok()?).ok()?.flatten();
    let matching = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    let mut paths: Vec<PathBuf> = matching.map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .flat_map(|path| addresses(path))
        .find(|ip| ip.is_ipv4() == at.is_ipv4() && !is_own(ip))
}

/// The addresses in a file. None if it was left by a process that has died; then it is removed.
fn addresses(path: &Path) -> Vec<IpAddr> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        let _ = fs::remove_file(path);
        return Vec::new();
    }
    let mut text = String::new();
    let _ = file.take(LEN_MAX).read_to_string(&mut text);
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// First part of the names of the files of a port.
fn prefix(fabric: &Path, space: PortSpace, port: u16) -> String {
    let space = match space {
        PortSpace::Tcp => "tcp",
        PortSpace::Udp => "udp",
    };
    format!("{:016x}-{space}-{port}-", place::digest(&fabric.to_string_lossy()))
}
