//! Eventfds that wake threads, protected from programs that close descriptors which are not theirs.
//!
//! A program may close descriptors that it does not own (`closefrom`, `daemon`) and open files of
//! its own, which get the same numbers. Writing eight bytes to such a file, or closing it, would do
//! damage.
//!
//! Invariants
//! - Before each use of the number, the file behind it is checked, by one system call that does not
//!   block. The mark belongs to the open file, so it is the same in a forked child and under any
//!   number.
//! - Between the check and the use another thread may still close the number and open it again: no
//!   process can prevent that its descriptors are closed during a write.

#![allow(unsafe_code)]

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The mark of an eventfd: the signal number of `F_SETSIG`, which eventfds do not use. Other files
/// have none unless a program sets one, and hardly this one.
const MARK: i32 = 63;

/// Commands of fcntl(2), equal on all architectures of Linux; the `libc` crate lacks them.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// An eventfd that can be recognized.
#[derive(Debug)]
pub struct EventFd {
    fd: ManuallyDrop<OwnedFd>,
    known_by: KnownBy,
}

#[derive(Debug)]
enum KnownBy {
    Mark,
    /// Recognized by file system and inode, which all anonymous files share: used where files
    /// cannot be marked.
    Inode(u64, u64),
}

impl KnownBy {
    /// Returns whether the number is an eventfd of this kind.
    fn knows(&self, fd: &OwnedFd) -> bool {
        match *self {
            // SAFETY: F_GETSIG takes and returns numbers only, and changes nothing, whatever file
            // the number is.
            KnownBy::Mark => unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) == MARK },
            KnownBy::Inode(device, number) => inode(fd).is_ok_and(|is| is == (device, number)),
        }
    }
}

impl EventFd {
    /// Makes an eventfd with value 0.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new(flags: EventfdFlags) -> io::Result<EventFd> {
        let fd = eventfd(0, flags | EventfdFlags::CLOEXEC)?;
        // SAFETY: `fd` is open and ours; F_SETSIG takes and returns numbers only.
        let is_marked = unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, MARK) } == 0;
        let known_by = match is_marked {
            true => KnownBy::Mark,
            false => inode(&fd).map(|(device, inode)| KnownBy::Inode(device, inode))?,
        };
        Ok(EventFd { fd: ManuallyDrop::new(fd), known_by })
    }

    /// Takes over the eventfd that another process of the same kernel has made by
    /// [`new`](EventFd::new) and handed to this one. `None` if it is another file, or one that
    /// makes a writer wait: writing to it never blocks unless that process makes it so later.
    pub fn adopt(fd: OwnedFd) -> Option<EventFd> {
        let own = EventFd::new(EventfdFlags::empty()).ok()?;
        let (device, number) = inode(&fd).ok()?;
        // All anonymous files share one inode, and of these only eventfds take any eight bytes.
        let is_anonymous = inode(&own.fd).ok()? == (device, number);
        let waits_never = fcntl_getfl(&fd).ok()?.contains(OFlags::NONBLOCK);
        let known_by = match own.known_by {
            KnownBy::Mark => KnownBy::Mark,
            KnownBy::Inode(..) => KnownBy::Inode(device, number),
        };
        let is_one = is_anonymous && waits_never && known_by.knows(&fd);
        is_one.then(|| EventFd { fd: ManuallyDrop::new(fd), known_by })
    }

    /// Returns whether the number still is the eventfd, and not a file of the program.
    pub fn is_ours(&self) -> bool {
        self.known_by.knows(&self.fd)
    }

    /// Adds 1, which wakes waiting threads. Returns false if the number is not the eventfd any
    /// more.
    pub fn signal(&self) -> bool {
        // The write fails only if 2^64 − 2 were added and not taken.
        self.is_ours() && {
            let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
            true
        }
    }

    /// Reads the eventfd once; waits for a value if it is blocking. Returns false if there was
    /// nothing to read, or if the number is not the eventfd any more.
    pub fn drain(&self) -> bool {
        self.is_ours() && rustix::io::read(&*self.fd, &mut [0; 8]).is_ok()
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: this is the only place that drops it, and it is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn inode(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::FromRawFd;

    /// Closes the number as a program might, and opens a file that gets the number.
    fn taken_over(event: &EventFd, by: &impl AsFd) {
        let mut number = ManuallyDrop::new({
            // SAFETY: the test needs a handle of a number that it does not own; `ManuallyDrop` does
            // not close it.
            unsafe { OwnedFd::from_raw_fd(event.fd.as_raw_fd()) }
        });
        rustix::io::dup2(by, &mut number).unwrap();
    }

    fn scratch() -> File {
        let file = rustix::fs::memfd_create("scratch", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(file)
    }

    fn hostile(event: EventFd) {
        assert!(event.signal());
        assert!(event.is_ours() && event.drain() && !event.drain());
        let mut file = scratch();
        file.write_all(b"the program's own words").unwrap();
        file.rewind().unwrap();
        taken_over(&event, &file);
        assert!(!event.is_ours());
        assert!(!event.signal() && !event.drain());
        let mut words = String::new();
        file.read_to_string(&mut words).unwrap();
        assert_eq!(words, "the program's own words");
        // The program's file is not closed either.
        let number = event.fd.as_raw_fd();
        drop(event);
        // SAFETY: the number is open and owned by this test, which closes it here.
        let left = unsafe { OwnedFd::from_raw_fd(number) };
        assert!(fstat(&left).is_ok());
    }

    #[test]
    fn a_file_of_the_programs_is_neither_written_nor_read_nor_closed() {
        hostile(EventFd::new(EventfdFlags::NONBLOCK).unwrap());
    }

    #[test]
    fn where_files_cannot_be_marked_one_with_a_name_is_still_told_from_ours() {
        let mut event = EventFd::new(EventfdFlags::NONBLOCK).unwrap();
        let (device, number) = inode(&event.fd).unwrap();
        event.known_by = KnownBy::Inode(device, number);
        hostile(event);
    }

    #[test]
    fn an_eventfd_of_the_programs_is_not_ours_either() {
        let event = EventFd::new(EventfdFlags::NONBLOCK).unwrap();
        let other = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        taken_over(&event, &other);
        assert!(!event.signal());
        assert!(rustix::io::read(&other, &mut [0; 8]).is_err(), "it was written to");
    }

    #[test]
    fn only_an_eventfd_of_our_kind_is_taken_over() {
        let event = EventFd::new(EventfdFlags::NONBLOCK).unwrap();
        let adopted = EventFd::adopt(event.fd.try_clone().unwrap()).unwrap();
        assert!(adopted.signal() && event.drain());
        let blocking = EventFd::new(EventfdFlags::empty()).unwrap();
        assert!(EventFd::adopt(blocking.fd.try_clone().unwrap()).is_none());
        let foreign = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        assert!(EventFd::adopt(foreign).is_none(), "it has no mark");
        let (mut read, write) = std::io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
        // SAFETY: the descriptor is open; F_SETSIG takes and returns numbers only.
        unsafe { libc::fcntl(write.as_raw_fd(), F_SETSIG, MARK) };
        assert!(EventFd::adopt(write.into()).is_none(), "a marked pipe is no eventfd");
        assert_eq!(read.read(&mut [0; 1]).unwrap(), 0, "what is refused is closed");
    }
}
