//! Ports of RDMA CM port spaces that the processes of a local fabric have bound.
//!
//! To programs, all processes of a machine are one host: a port has one listener, and a connection
//! to a loopback address reaches the process that listens at the port.
//!
//! Each bound id has a file, a [`Notice`], in the fabric's directory. The file has the id's
//! address, and is locked while the id is bound. A file that is not locked was left by a process
//! that has died. The next process with the same member number removes it.
//!
//! ```text
//!   FABRIC/ports/lock                        held while files are compared and one is made
//!   FABRIC/ports/tcp-7471-m2-812-4026-0      port, member, process, PID namespace, serial number
//! ```
//!
//! Some programs, such as qperf, bind a port, tell their client the number, and listen only then.
//! So a port that is bound without a listener ([`Reached::Soon`]) differs from one that is not
//! bound ([`Reached::Free`]).
//!
//! Invariants
//! - Ids of two processes have conflicting addresses only if one of the ids has no notice, because
//!   its process may not write to the directory.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use uroce::cm::raw::{PortSpace, is_own_node};
use uroce::config::{Ethdev, PortConfig};

use super::place;
use super::problem::Problem;
use crate::errno::Errno;

/// Name of the directory with the files, in the fabric's directory.
const DIRECTORY: &str = "ports";
/// Name of the file that is locked while a port is taken.
const LOCK: &str = "lock";
/// The line of a file which says that the id receives requests.
const HEARD: &str = "heard";
/// Number of bytes that are read of a file at most; 32 addresses fit.
const LEN_MAX: u64 = 2048;
/// Longest wait for the lock. Other processes hold it for less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(1);

/// The address to which an id is bound, and with which other ids it may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) space: PortSpace,
    /// The address that the program asked for, with the port that it was given.
    pub(crate) at: SocketAddr,
    /// Other ids may be bound to the address, too, until one of them listens.
    pub(crate) reuse: bool,
    /// A wildcard stands for addresses of its own IP version only.
    pub(crate) one_version: bool,
    pub(crate) listens: bool,
}

/// A binding of an id of this process, published to the other processes until this is dropped.
#[derive(Debug)]
pub(crate) struct Notice {
    binding: Binding,
    /// Addresses of the member that this process is.
    own: Vec<IpAddr>,
    path: PathBuf,
    /// The file. It is locked while it is open.
    file: File,
    /// Number of the process that made the file. A forked child does not remove it.
    process: u32,
}

impl Drop for Notice {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds an id of this process and publishes the binding. The result is `Ok(Ok(None))` if the
/// device's port does not belong to a local fabric.
///
/// # Errors
///
/// The outer error is a [`Problem`]: the file cannot be written. The inner one means that an id of
/// another process is in the way: EADDRINUSE if it has the same address, and, as on Linux,
/// EADDRNOTAVAIL if either address is a wildcard.
pub(crate) fn take(
    port: &PortConfig,
    binding: Binding,
) -> Result<Result<Option<Notice>, Errno>, Problem> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let (Ethdev::Local(fabric), Some(member)) = (&port.ethdev, port.member) else {
        return Ok(Ok(None));
    };
    let directory = place::dir_in(fabric, DIRECTORY)?;
    let owner = owner();
    let _lock = lock(&directory)?;
    sweep(&directory, member, &owner);
    let own: Vec<IpAddr> = port.ip.iter().map(|ip| ip.address()).collect();
    if let Err(error) = check(&directory, &binding, &own) {
        return Ok(Err(error));
    }
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let service = service(binding.space, binding.at.port());
    let path = directory.join(format!("{service}-m{member}{owner}{serial}"));
    let file = write(&path, &binding, &own)?;
    Ok(Ok(Some(Notice { binding, own, path, file, process: std::process::id() })))
}

impl Notice {
    /// Returns the bound address.
    pub(crate) fn at(&self) -> SocketAddr {
        self.binding.at
    }

    /// Publishes whether the id listens or is about to. An id that listens does not share its
    /// address.
    ///
    /// # Errors
    ///
    /// The errors of [`take`]. After an inner error nothing has changed.
    pub(crate) fn set_listening(&mut self, listens: bool) -> Result<Result<(), Errno>, Problem> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let _lock = lock(directory)?;
        let binding = Binding { listens, ..self.binding.clone() };
        if listens && let Err(error) = check(directory, &binding, &self.own) {
            return Ok(Err(error));
        }
        self.file = write(&self.path, &binding, &self.own)?;
        self.binding = binding;
        Ok(Ok(()))
    }

    /// Publishes that the id, which listens, receives requests from now on.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the file cannot be written.
    pub(crate) fn announce(&mut self) -> Result<(), Problem> {
        let written = writeln!(self.file, "{HEARD}");
        written.map_err(|error| Problem::File { path: self.path.clone(), error })
    }
}

/// Where a connection to an address of the host leads. The addresses in it are those of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// A process listens, and can be reached at this address of its member.
    Listener(IpAddr),
    /// Another process has bound the port, but does not receive requests yet. It will be reached at
    /// this address of its member.
    Soon(IpAddr),
    /// No process listens, and no other process has bound the port.
    Free,
}

/// Finds the listener for a connection to `to`, an address of the host. The address in the result
/// has the IP version of `to`. The listener may be one of this port's member.
///
/// A listener that is bound to `to` itself is preferred, then one that is bound to a wildcard, then
/// one that is bound to an address of its member; among equal ones, a listener of this port's
/// member. If there is no listener, other members that have bound the port are searched by the same
/// rules.
///
/// `is_heard` tells whether an id of this port's member listens at the member's address. That id is
/// preferred if it has no notice.
pub(crate) fn find(port: &PortConfig, space: PortSpace, to: SocketAddr, is_heard: bool) -> Reached {
    let Ethdev::Local(fabric) = &port.ethdev else { return Reached::Free };
    let own: Vec<IpAddr> = port.ip.iter().map(|ip| ip.address()).collect();
    let all = all(&fabric.join(DIRECTORY), space, to.port());
    let is_own = |other: &Other| other.own.iter().any(|ip| own.contains(ip));
    let best = |is_eligible: &dyn Fn(&Other) -> bool| {
        let reached = all.iter().filter(|other| is_eligible(other)).filter_map(|other| {
            let (rank, ip) = other.reached_by(to.ip())?;
            Some(((rank, !is_own(other)), other.is_heard, ip))
        });
        reached.min_by_key(|(order, ..)| *order)
    };
    if is_heard && !all.iter().any(|other| other.binding.listens && is_own(other)) {
        let like = own.iter().find(|ip| ip.is_ipv4() == to.is_ipv4());
        return like.map_or(Reached::Free, |ip| Reached::Listener(*ip));
    }
    match best(&|other| other.binding.listens) {
        Some(((_, is_other), false, ip)) if is_other => Reached::Soon(ip),
        Some((_, _, ip)) => Reached::Listener(ip),
        None => match best(&|other| !is_own(other)) {
            Some((_, _, ip)) => Reached::Soon(ip),
            None => Reached::Free,
        },
    }
}

/// Returns whether the member with the address of `to` has bound the port, there or at a wildcard,
/// but does not receive requests yet. An id of this port's member is not waited for, as in
/// [`find`].
pub(crate) fn is_coming(port: &PortConfig, space: PortSpace, to: SocketAddr) -> bool {
    let Ethdev::Local(fabric) = &port.ethdev else { return false };
    if port.ip.iter().any(|own| own.address() == to.ip()) {
        return false;
    }
    let mut all = all(&fabric.join(DIRECTORY), space, to.port());
    all.retain(|other| {
        let has_it = other.binding.at.ip() == to.ip() || other.binding.covers(to.ip());
        other.own.contains(&to.ip()) && has_it
    });
    !all.is_empty() && !all.iter().any(|other| other.is_heard)
}

/// Returns the address to which the sender of a request is bound. `from` is the address of the
/// sender's member, with the sender's port. `None` if the sender is bound to no address or to a
/// wildcard.
pub(crate) fn bound_at(port: &PortConfig, space: PortSpace, from: SocketAddr) -> Option<IpAddr> {
    let Ethdev::Local(fabric) = &port.ethdev else { return None };
    let all = all(&fabric.join(DIRECTORY), space, from.port());
    let theirs = all.into_iter().filter(|other| other.own.contains(&from.ip()));
    theirs.map(|other| other.binding.at.ip()).find(|ip| !is_own_node(*ip))
}

impl Binding {
    /// Returns whether the bound address is a wildcard that stands for `ip`.
    fn covers(&self, ip: IpAddr) -> bool {
        is_own_node(self.at.ip()) && (ip.is_ipv4() == self.at.is_ipv4() || !self.one_version)
    }

    /// Checks that this binding does not conflict with `other`, by the rules of Linux's `rdma_cm`.
    /// `own` has the addresses of this binding's member. No wildcard of the host stands for the
    /// address of a member.
    ///
    /// # Errors
    ///
    /// The inner errors of [`take`].
    fn check(&self, own: &[IpAddr], other: &Other) -> Result<(), Errno> {
        let theirs = &other.binding;
        let shares = self.reuse && theirs.reuse && !self.listens && !theirs.listens;
        let (here, there) = (self.at.ip(), theirs.at.ip());
        let is_apart = here.is_ipv4() != there.is_ipv4() && self.one_version && theirs.one_version;
        if shares || is_apart {
            return Ok(());
        }
        if here == there && !is_own_node(here) {
            return Err(Errno::EADDRINUSE);
        }
        let is_members = own.contains(&here) || other.own.contains(&there);
        let is_wide = is_own_node(here) || is_own_node(there);
        if is_wide && !is_members { Err(Errno::EADDRNOTAVAIL) } else { Ok(()) }
    }

    fn text(&self, own: &[IpAddr]) -> String {
        let mut text = format!("at {}\n", self.at.ip());
        for (is_set, word) in
            [(self.reuse, "reuse"), (self.one_version, "one-version"), (self.listens, "listens")]
        {
            if is_set {
                let _ = writeln!(text, "{word}");
            }
        }
        own.iter().for_each(|ip| {
            let _ = writeln!(text, "own {ip}");
        });
        text
    }
}

/// A binding that was read from a file.
#[derive(Debug)]
struct Other {
    binding: Binding,
    /// Addresses of the member that has the binding.
    own: Vec<IpAddr>,
    /// The binding is one of this process.
    is_ours: bool,
    /// The id listens and receives requests.
    is_heard: bool,
}

impl Other {
    /// Returns how a connection to `to`, an address of the host, reaches the bound id: how well the
    /// bound address fits (0 is best), and the member's address to connect to. `None` if it does
    /// not reach the id.
    fn reached_by(&self, to: IpAddr) -> Option<(u8, IpAddr)> {
        let at = self.binding.at.ip();
        let is_like = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        if self.own.contains(&at) {
            return is_like(&at).then_some((2, at));
        }
        let ip = self.own.iter().copied().find(is_like)?;
        match at == to {
            true => Some((0, ip)),
            false => self.binding.covers(to).then_some((1, ip)),
        }
    }
}

/// Parses the text of a file. `None` if this version does not write such a text.
fn parse(text: &str, space: PortSpace, port: u16, is_ours: bool) -> Option<Other> {
    let value = |key: &str| {
        let values = text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '));
        values.filter_map(|ip| ip.parse().ok()).collect::<Vec<IpAddr>>()
    };
    let is_set = |word: &str| text.lines().any(|line| line == word);
    let binding = Binding {
        space,
        at: SocketAddr::new(*value("at").first()?, port),
        reuse: is_set("reuse"),
        one_version: is_set("one-version"),
        listens: is_set("listens"),
    };
    Some(Other { binding, own: value("own"), is_ours, is_heard: is_set(HEARD) })
}

/// Checks that a binding does not conflict with those of other processes.
fn check(directory: &Path, binding: &Binding, own: &[IpAddr]) -> Result<(), Errno> {
    let all = all(directory, binding.space, binding.at.port());
    let mut others = all.iter().filter(|other| !other.is_ours);
    others.try_for_each(|other| binding.check(own, other))
}

/// Returns the bindings of all processes at a port, ordered by the names of their files.
fn all(directory: &Path, space: PortSpace, port: u16) -> Vec<Other> {
    let (prefix, owner) = (format!("{}-", service(space, port)), owner());
    let mut names = names(directory);
    names.retain(|name| name.starts_with(&prefix) && !has_ended(name));
    names.sort();
    let read =
        |name: String| parse(&read(&directory.join(&name))?, space, port, name.contains(&owner));
    names.into_iter().filter_map(read).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The lock of a directory. Dropping it unlocks the directory, even if a child that was forked
/// meanwhile has the file open.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the kernel unlocks the file when its last descriptor is closed.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks the directory against other threads and processes that bind ids.
///
/// # Errors
///
/// [`Problem::File`] if it cannot be locked within [`PATIENCE`].
fn lock(directory: &Path) -> Result<Lock, Problem> {
    let path = directory.join(LOCK);
    let problem = |error| Problem::File { path: path.clone(), error };
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(problem)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(RETRY),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(problem(io::Error::other("another process does not give it back")));
            }
            Err(error) => return Err(problem(error.into())),
        }
    }
}

/// Writes a new, locked file in place of a former one. Other processes do not read the file before
/// it has its name.
fn write(path: &Path, binding: &Binding, own: &[IpAddr]) -> Result<File, Problem> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}"));
    let make = || {
        let mut file = File::create(&new)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(binding.text(own).as_bytes())?;
        fs::rename(&new, path)?;
        Ok(file)
    };
    make().map_err(|error| {
        let _ = fs::remove_file(&new);
        Problem::File { path: path.to_owned(), error }
    })
}

/// Removes the files that former processes with this member number have left.
fn sweep(directory: &Path, member: u8, owner: &str) {
    let member = format!("-m{member}-");
    for name in names(directory) {
        if name.contains(&member) && !name.contains(owner) {
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

/// Returns the text of a file. `None` if the file is not locked or cannot belong to an id.
fn read(path: &Path) -> Option<String> {
    // A pipe must not block this thread, and a link is not followed: neither belongs to an id.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).ok()?);
    let is_locked = || {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    };
    if !file.metadata().ok()?.is_file() || !is_locked() {
        return None;
    }
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns whether the process that made a file is known to have ended. The lock does not show
/// this, because children of the process may hold it.
fn has_ended(name: &str) -> bool {
    let mut parts = name.rsplit('-').skip(1);
    let (namespace, process) = (parts.next(), parts.next());
    let is_near = namespace == Some(&pid_namespace().to_string());
    is_near && process.is_some_and(|process| !Path::new("/proc").join(process).exists())
}

/// Returns the part that the names of all files of this process have in common.
fn owner() -> String {
    format!("-{}-{}-", std::process::id(), pid_namespace())
}

/// Returns the first part of a file's name: port space and port.
fn service(space: PortSpace, port: u16) -> String {
    let space = match space {
        PortSpace::Tcp => "tcp",
        PortSpace::Udp => "udp",
        PortSpace::Ib => "ib",
    };
    format!("{space}-{port}")
}

/// Returns the inode number of this process's PID namespace.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

#[cfg(test)]
#[path = "ports/tests.rs"]
mod tests;
