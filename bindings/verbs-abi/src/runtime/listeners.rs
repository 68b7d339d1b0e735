//! The ports at which the processes of the local fabric listen. To the programs of a machine its
//! processes are one host: a connection to a loopback address reaches the process that listens.
//!
//! Each listening id has a file in the run directory, with the addresses at which it listens. The
//! file is locked as long as it does. A file without a lock was left by a process that has died;
//! the next process with its member's number removes it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use uroce::cm::raw::{PortSpace, is_own_node};
use uroce::config::{Ethdev, PortConfig};

use super::place;
use super::problem::Problem;

/// Name of the directory with the files.
const DIRECTORY: &str = "listeners";
/// Line of a listener at an unspecified or a loopback address.
const ANY: &str = "any\n";
/// Longest file that is read, in bytes: 32 addresses fit.
const LEN_MAX: u64 = 2048;

/// An entry of this process, known to the others. It goes when this is dropped.
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

/// Tells the other processes of the local fabric that this one listens at `at`. `None` if the port
/// is not one of the local fabric. If `one_version`, the unspecified IPv6 address does not stand
/// for IPv4 addresses too.
///
/// # Errors
///
/// [`Problem`] if the file cannot be written.
pub(crate) fn announce(
    port: &PortConfig,
    space: PortSpace,
    at: SocketAddr,
    one_version: bool,
) -> Result<Option<Listener>, Problem> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let (Ethdev::Local(fabric), Some(member)) = (&port.ethdev, port.member) else {
        return Ok(None);
    };
    let directory = place::sub_dir(DIRECTORY)?;
    let owner = format!("-m{member}-{}-{}-", std::process::id(), pid_namespace());
    sweep(&directory, fabric, member, &owner);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}{}{owner}{serial}", fabric_of(fabric), service(space, at.port()));
    let path = directory.join(name);
    let is_any = is_own_node(at.ip());
    let covers =
        |ip: &IpAddr| if is_any { stands_for(at, *ip, one_version) } else { *ip == at.ip() };
    let addresses = port.ip.iter().map(|ip| ip.address()).filter(covers);
    let any = if is_any { ANY } else { "" }.to_owned();
    let text: String = std::iter::once(any).chain(addresses.map(|ip| format!("{ip}\n"))).collect();
    let lock = write(&path, &text).map_err(|error| Problem::File { path: path.clone(), error })?;
    Ok(Some(Listener { path, _lock: lock, process: std::process::id() }))
}

/// Writes a locked file. Nothing looks at it until it has its name.
fn write(path: &Path, text: &str) -> io::Result<File> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}"));
    let mut file = File::create(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)?;
    Ok(file)
}

/// Removes what former processes with this member's number have left.
fn sweep(directory: &Path, fabric: &Path, member: u8, owner: &str) {
    let (fabric, member) = (fabric_of(fabric), format!("-m{member}-"));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = name.trim_start_matches('.').starts_with(&fabric) && name.contains(&member);
        if is_ours && !name.contains(owner) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The address of another process that listens at the port of `at`, of the IP version of `at`.
pub(crate) fn find(port: &PortConfig, space: PortSpace, at: SocketAddr) -> Option<IpAddr> {
    let Ethdev::Local(fabric) = &port.ethdev else { return None };
    let is_own = |ip: &IpAddr| port.ip.iter().any(|own| own.address() == *ip);
    let files = files(fabric, space, at.port());
    let mut addresses = files.iter().flat_map(|file| addresses(&file.text));
    addresses.find(|ip| ip.is_ipv4() == at.is_ipv4() && !is_own(ip))
}

/// Whether another process listens at the port of `at`, an unspecified or a loopback address, on
/// any address of an IP version that `at` stands for.
pub(crate) fn is_taken(
    port: &PortConfig,
    space: PortSpace,
    at: SocketAddr,
    one_version: bool,
) -> bool {
    let Ethdev::Local(fabric) = &port.ethdev else { return false };
    let own = format!("-{}-{}-", std::process::id(), pid_namespace());
    files(fabric, space, at.port()).iter().any(|file| {
        let is_any = file.text.starts_with(ANY) && !file.name.contains(&own);
        is_any && addresses(&file.text).any(|ip| stands_for(at, ip, one_version))
    })
}

/// Whether an unspecified or a loopback address stands for addresses of the version of `ip`.
fn stands_for(at: SocketAddr, ip: IpAddr, one_version: bool) -> bool {
    ip.is_ipv4() == at.is_ipv4() || at.is_ipv6() && !one_version
}

/// A listener's file that is locked.
struct Announced {
    name: String,
    text: String,
}

/// The files of the listeners at a port, in the order of their names.
fn files(fabric: &Path, space: PortSpace, port: u16) -> Vec<Announced> {
    let Ok(directory) = place::sub_dir(DIRECTORY) else { return Vec::new() };
    let prefix = format!("{}{}-", fabric_of(fabric), service(space, port));
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with(&prefix) && !has_ended(name));
    names.sort();
    let read = |name: String| Some(Announced { text: read(&directory.join(&name))?, name });
    names.into_iter().filter_map(read).collect()
}

/// The text of a file; `None` if it is not locked.
fn read(path: &Path) -> Option<String> {
    // A pipe or link is none of a listener's.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).ok()?);
    let is_locked =
        || flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    if !file.metadata().ok()?.is_file() || !is_locked() {
        return None;
    }
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn addresses(text: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(|line| line.parse().ok())
}

/// Whether the process that has made a file is known to have ended: its children may hold the lock.
fn has_ended(name: &str) -> bool {
    let mut parts = name.rsplit('-').skip(1);
    let (namespace, process) = (parts.next(), parts.next());
    let is_near = namespace == Some(&pid_namespace().to_string());
    is_near && process.is_some_and(|process| !Path::new("/proc").join(process).exists())
}

/// First part of the names of all files of a fabric.
fn fabric_of(fabric: &Path) -> String {
    format!("{:016x}-", place::digest(&fabric.to_string_lossy()))
}

/// Part of the name of a file that names the port.
fn service(space: PortSpace, port: u16) -> String {
    let space = match space {
        PortSpace::Tcp => "tcp",
        PortSpace::Udp => "udp",
    };
    format!("{space}-{port}")
}

/// Inode number of the process's PID namespace.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: PortSpace = PortSpace::Tcp;

    fn member(fabric: &str, number: u8) -> PortConfig {
        PortConfig::local(format!("/uroce-listeners-{}-{fabric}", std::process::id()))
            .as_member(number)
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn listen(port: &PortConfig, address: &str) -> Option<Listener> {
        announce(port, TCP, at(address), false).unwrap()
    }

    #[test]
    fn a_listener_is_found_by_others_at_its_addresses_and_until_it_ends() {
        let (one, two) = (member("found", 1), member("found", 2));
        let v4 = listen(&two, "0.0.0.0:7000").unwrap();
        assert_eq!(find(&one, TCP, at("192.0.2.1:7000")), Some("192.0.2.2".parse().unwrap()));
        assert_eq!(find(&one, TCP, at("[2001:db8::1]:7000")), None, "it listens by IPv4");
        assert_eq!(find(&one, TCP, at("192.0.2.1:7001")), None);
        assert_eq!(find(&one, PortSpace::Udp, at("192.0.2.1:7000")), None);
        assert_eq!(find(&two, TCP, at("192.0.2.2:7000")), None, "its own");
        assert_eq!(find(&member("other", 1), TCP, at("192.0.2.1:7000")), None);
        // A second id at the port goes without the first.
        drop(listen(&two, "[::]:7000"));
        assert!(find(&one, TCP, at("192.0.2.1:7000")).is_some());
        drop(v4);
        assert_eq!(find(&one, TCP, at("192.0.2.1:7000")), None);
    }

    #[test]
    fn what_the_dead_have_left_is_not_found_and_goes_with_the_next_of_their_number() {
        let (one, two) = (member("dead", 1), member("dead", 2));
        let dead = listen(&two, "0.0.0.0:7000").unwrap();
        let Ethdev::Local(fabric) = &two.ethdev else { panic!("local") };
        let left = dead.path.with_file_name(format!("{}tcp-7000-m2-1-7-0", fabric_of(fabric)));
        fs::write(&left, "192.0.2.2\n").unwrap();
        drop(dead);
        assert_eq!(find(&one, TCP, at("192.0.2.1:7000")), None);
        assert!(left.exists());
        drop(listen(&two, "0.0.0.0:7001"));
        assert!(!left.exists());
        // A pipe of this name: opening it would wait for a writer.
        let namespace = pid_namespace();
        let pipe = format!("{}tcp-7002-m9-{}-{namespace}-0", fabric_of(fabric), std::process::id());
        let pipe = left.with_file_name(pipe);
        let (here, kind) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(here, &pipe, kind, Mode::RWXU, 0).unwrap();
        assert_eq!(find(&one, TCP, at("192.0.2.1:7002")), None);
        fs::remove_file(&pipe).unwrap();
        let unused = format!("x-tcp-1-m1-{}-{}-0", u32::MAX, pid_namespace());
        assert!(has_ended(&unused) && !has_ended("x-tcp-1-m1-1-7-0"));
    }

    #[test]
    fn only_ports_of_the_local_fabric_tell_of_listeners() {
        let port = PortConfig::ring("r").ip("192.0.2.1/24").unwrap();
        assert!(listen(&port, "0.0.0.0:7000").is_none());
    }
}
