//! Claim: the number of a member, held by a lock that ends with the process; and the reservation of
//! a number before there is a member.
//!
//! Invariants
//! - A number has one member: the process that has locked its byte. Locks are the process's own, so
//!   a forked child has none, and they end with the process even if children have its descriptors.
//! - A process opens the file of locks once for each directory, since closing any descriptor of a
//!   file gives back all locks of the process on it. Its members share the open file, which also
//!   knows the numbers of this process: a process's locks do not exclude itself.
//! - `N.sock` is made or removed only with byte 128 + N locked. It is removed only if no process
//!   has byte N, and made only by the process that has it; so a living member's socket stays.

use crate::board::{bit, numbers};
use crate::directory::Directory;
use crate::system::{Locked, lock_of, set_lock};
use crate::{Holder, JoinError, MEMBERS_MAX};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::ops::{Deref, RangeInclusive};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uroce_shared::sync::seqpacket;

/// First of the bytes that give the right to a socket's name.
const NAMES: u8 = 128;
/// Number of attempts to get the right to a name, and the pause between them. Other processes have
/// the right for microseconds.
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The locks of this process in one directory.
#[derive(Debug)]
struct Locks {
    file: OwnedFd,
    /// Device and inode number of the file.
    identity: (u64, u64),
    directory: (u64, u64),
    /// The process that opened the file. A forked child has none of its locks.
    pid: u32,
    /// The lock also keeps the process's threads apart where they use the rights to names.
    own: Mutex<Own>,
}

/// The numbers of this process, as bits.
#[derive(Clone, Copy, Default, Debug)]
struct Own {
    /// Numbers of members.
    joined: u64,
    /// Reserved numbers; a member may have one of them.
    reserved: u64,
}

impl Own {
    fn has(self, number: u8) -> bool {
        (self.joined | self.reserved) & bit(number) != 0
    }
}

/// The locks of this process, by directory.
static OPEN: Mutex<Vec<Arc<Locks>>> = Mutex::new(Vec::new());

/// A user of the locks. The file is closed with its last user, while no thread can open it.
#[derive(Debug)]
struct Handle(Option<Arc<Locks>>);

impl Deref for Handle {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        self.0.as_ref().expect("it is taken by drop only")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // Closing the parent's descriptor here would give back this process's own locks.
            std::mem::forget(self.0.take());
            return;
        }
        if !self.is_open() {
            // The program has closed the descriptor; its number may be a file of the program.
            std::mem::forget(self.0.take());
            return;
        }
        let mut open = lock(&OPEN);
        self.0 = None;
        open.retain(|locks| Arc::strong_count(locks) > 1);
    }
}

/// A number that this process holds, until it is dropped, and the socket that listens for it.
#[derive(Debug)]
pub(crate) struct Claim {
    directory: Directory,
    locks: Handle,
    number: u8,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Locks {
    fn of(directory: &Directory) -> Result<Handle, JoinError> {
        let mut open = lock(&OPEN);
        let pid = std::process::id();
        let is_usable = |locks: &&Arc<Locks>| {
            locks.directory == directory.identity() && locks.pid == pid && locks.is_linked()
        };
        if let Some(locks) = open.iter().find(is_usable) {
            return Ok(Handle(Some(Arc::clone(locks))));
        }
        let file = directory.locks()?;
        let stat = rustix::fs::fstat(&file);
        let stat = stat.map_err(|error| directory.error("the file `members`", error))?;
        let locks = Arc::new(Locks {
            file,
            identity: (stat.st_dev, stat.st_ino),
            directory: directory.identity(),
            pid,
            own: Mutex::default(),
        });
        open.push(Arc::clone(&locks));
        Ok(Handle(Some(locks)))
    }

    /// Returns the file's number of links; `None` if the program has closed the descriptor.
    fn links(&self) -> Option<u64> {
        let stat = rustix::fs::fstat(&self.file).ok()?;
        ((stat.st_dev, stat.st_ino) == self.identity).then_some(stat.st_nlink)
    }

    fn is_open(&self) -> bool {
        self.links().is_some()
    }

    fn is_linked(&self) -> bool {
        self.links().is_some_and(|links| links > 0)
    }

    /// Locks a byte of a name; waits while another process has it. Returns false after a second.
    fn lock_name(&self, number: u8) -> bool {
        for _ in 0..ATTEMPTS {
            match set_lock(&self.file, NAMES + number, true) {
                Ok(true) => return true,
                Ok(false) => std::thread::sleep(PAUSE),
                Err(_) => return false,
            }
        }
        false
    }

    /// Locks a number that this process does not have. Returns false if it has it, or if another
    /// process has it.
    fn lock_number(&self, directory: &Directory, own: Own, number: u8) -> Result<bool, JoinError> {
        let locked = !own.has(number)
            && set_lock(&self.file, number, true)
                .map_err(|error| directory.error("no lock can be had", error))?;
        Ok(locked)
    }

    /// Makes the error for a number, or all numbers, that are taken.
    fn none_free(&self, directory: &Directory, own: Own, asked: Option<u8>) -> JoinError {
        let mut holders = holders(self, own);
        match asked {
            // It may have become free in the meantime; it was taken when it mattered.
            Some(number) => JoinError::Taken(
                holders.extract_if(.., |holder| holder.number == number).next().unwrap_or(Holder {
                    number,
                    pid: 0,
                    program: String::new(),
                }),
            ),
            None => JoinError::Full { directory: directory.path().to_owned(), holders },
        }
    }

    fn unlock(&self, byte: u8) {
        // Unlocking what the process has locked does not fail.
        let _ = set_lock(&self.file, byte, false);
    }

    /// Returns the process that has a number.
    fn holder(&self, own: Own, number: u8) -> Option<u32> {
        if own.has(number) {
            return Some(self.pid);
        }
        match lock_of(&self.file, number) {
            Locked::No => None,
            Locked::By(pid) => Some(pid),
        }
    }
}

impl Claim {
    /// Takes the asked number, or the smallest free one, and listens for it.
    ///
    /// # Errors
    /// [`JoinError`]; no number is held then.
    pub(crate) fn take(
        directory: Directory,
        asked: Option<u8>,
    ) -> Result<(Claim, OwnedFd), JoinError> {
        let locks = Locks::of(&directory)?;
        let candidates = asked.map_or(1..=MEMBERS_MAX, |number| number..=number);
        let mut own = lock(&locks.own);
        for number in candidates {
            let is_reserved = asked.is_some() && own.reserved & bit(number) != 0;
            let is_taken = own.joined & bit(number) != 0
                || !is_reserved && !locks.lock_number(&directory, *own, number)?;
            if is_taken {
                continue;
            }
            match listen(&directory, &locks, number) {
                Ok(listener) => {
                    own.joined |= bit(number);
                    drop(own);
                    let claim = Claim { directory, locks, number };
                    claim.sweep();
                    return Ok((claim, listener));
                }
                Err(error) => {
                    if !is_reserved {
                        locks.unlock(number);
                    }
                    return Err(directory.error("the member's socket cannot be made", error));
                }
            }
        }
        let own = *own;
        Err(locks.none_free(&directory, own, asked))
    }

    /// Returns the member's number.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Returns the directory.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns whether this process made the claim; a forked child has none.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.locks.pid == std::process::id()
    }

    /// Returns the process that has a number, as a process number, or 0 if it is out of sight.
    pub(crate) fn holder(&self, number: u8) -> Option<u32> {
        let own = *lock(&self.locks.own);
        self.locks.holder(own, number)
    }

    /// Returns the other members: bit *n* − 1 for number *n*.
    pub(crate) fn others(&self) -> u64 {
        let own = *lock(&self.locks.own);
        let is_held = |&number: &u8| self.locks.holder(own, number).is_some();
        let held = (1..=MEMBERS_MAX).filter(is_held).map(bit).fold(0, |all, bit| all | bit);
        held & !bit(self.number)
    }

    /// Returns all members.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let own = *lock(&self.locks.own);
        holders(&self.locks, own)
    }

    /// Removes the sockets of members that have ended without doing so.
    fn sweep(&self) {
        let own = lock(&self.locks.own);
        for number in self.directory.sockets() {
            let is_locked = set_lock(&self.locks.file, NAMES + number, true).is_ok_and(|is| is);
            if is_locked {
                if self.locks.holder(*own, number).is_none() {
                    // What cannot be removed is in the way of its number's next member, which
                    // reports it.
                    let _ = self.directory.remove(number);
                }
                self.locks.unlock(NAMES + number);
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut own = lock(&self.locks.own);
        if self.locks.lock_name(self.number) {
            let _ = self.directory.remove(self.number);
            self.locks.unlock(NAMES + self.number);
        }
        own.joined &= !bit(self.number);
        if !own.has(self.number) {
            self.locks.unlock(self.number);
        }
        drop(own);
        self.sweep();
    }
}

/// A number that this process has before it is a member, for example to tell its address.
/// [`Member::join`](crate::Member::join) takes it when it is asked for that number.
///
/// The number is given back when this value and the member are dropped. A forked child has no
/// reservation of its parent's.
#[derive(Debug)]
pub struct Reservation {
    locks: Handle,
    number: u8,
}

impl Reservation {
    /// Reserves the asked number, or the smallest free one but `avoided`, in a directory. The
    /// directory is made, with mode 0700, if it does not exist.
    ///
    /// # Errors
    /// [`JoinError`]; no number is held then.
    pub fn take(
        directory: &Path,
        asked: Option<u8>,
        avoided: Option<u8>,
    ) -> Result<Reservation, JoinError> {
        let candidates = candidates(asked)?;
        let directory = Directory::open(directory)?;
        let locks = Locks::of(&directory)?;
        let mut own = lock(&locks.own);
        for number in candidates.filter(|&number| asked.is_some() || Some(number) != avoided) {
            if locks.lock_number(&directory, *own, number)? {
                own.reserved |= bit(number);
                drop(own);
                return Ok(Reservation { locks, number });
            }
        }
        let own = *own;
        Err(locks.none_free(&directory, own, asked))
    }

    /// Returns the number that [`take`](Reservation::take) would reserve now, other than these
    /// `avoided` ones, and reserves none: another process may have it the next moment.
    ///
    /// # Errors
    /// The errors of [`take`](Reservation::take).
    pub fn look(directory: &Path, asked: Option<u8>, avoided: &[u8]) -> Result<u8, JoinError> {
        let mut candidates = candidates(asked)?;
        let directory = Directory::open(directory)?;
        let locks = Locks::of(&directory)?;
        let own = *lock(&locks.own);
        let is_free =
            |number: &u8| !avoided.contains(number) && locks.holder(own, *number).is_none();
        candidates.find(is_free).ok_or_else(|| locks.none_free(&directory, own, asked))
    }

    /// Returns the number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns whether this process still has the number: not in a forked child, and not after the
    /// program has closed descriptors that are not its own.
    pub fn is_held(&self) -> bool {
        self.locks.pid == std::process::id() && self.locks.is_open()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_held() {
            return;
        }
        let mut own = lock(&self.locks.own);
        own.reserved &= !bit(self.number);
        if !own.has(self.number) {
            self.locks.unlock(self.number);
        }
    }
}

/// Returns the numbers from which one is chosen.
fn candidates(asked: Option<u8>) -> Result<RangeInclusive<u8>, JoinError> {
    match asked {
        Some(number) if !(1..=MEMBERS_MAX).contains(&number) => Err(JoinError::Number(number)),
        Some(number) => Ok(number..=number),
        None => Ok(1..=MEMBERS_MAX),
    }
}

/// Listens for a number that this process holds. What an ended member has left is replaced.
fn listen(directory: &Directory, locks: &Locks, number: u8) -> rustix::io::Result<OwnedFd> {
    let socket = seqpacket::socket(SocketFlags::NONBLOCK)?;
    let address = directory.address(number)?;
    if !locks.lock_name(number) {
        return Err(Errno::BUSY);
    }
    let bound = directory.remove(number).and_then(|()| rustix::net::bind(&socket, &address));
    let listening = bound.and_then(|()| rustix::net::listen(&socket, BACKLOG));
    locks.unlock(NAMES + number);
    listening?;
    Ok(socket)
}

fn holders(locks: &Locks, own: Own) -> Vec<Holder> {
    let holder = |number| {
        let pid = locks.holder(own, number)?;
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(Holder { number, pid, program: comm.trim_end().to_owned() })
    };
    numbers(u64::MAX).filter_map(holder).collect()
}
