//! Eventfds, which wake threads: ours, or at least never something of the program's.
//!
//! Programs close descriptors that they do not own (`closefrom`, `daemon`), and open files of their
//! own, which get the numbers. Eight bytes written there would be damage, and so would a `close`.
//!
//! Invariants
//! - Before each use of the number the file behind it is looked at: that is one system call that
//!   waits for nothing. What the mark is on belongs to the open file, so it is the same in a forked
//!   child and under any number.
//! - Between the look and the use another thread may still close the number and open it again:
//!   nothing keeps a program from closing a descriptor under a write.

#![allow(unsafe_code)]

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::fstat;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What marks an eventfd: the signal that it would raise with `O_ASYNC`, which eventfds do not know.
/// A file has none unless a program says so, and hardly this one.
const MARK: i32 = 63;

/// Of fcntl(2), the same on all of Linux's architectures; the `libc` crate has neither.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// An eventfd that is known again.
#[derive(Debug)]
pub struct EventFd {
    fd: ManuallyDrop<OwnedFd>,
    known_by: KnownBy,
}

#[derive(Debug)]
enum KnownBy {
    Mark,
    /// By its file system and inode, which all files without a name share: where files cannot be
    /// marked.
    Inode(u64, u64),
}

impl EventFd {
    /// One whose value is 0.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new(flags: EventfdFlags) -> io::Result<EventFd> {
        let fd = eventfd(0, flags | EventfdFlags::CLOEXEC)?;
        // SAFETY: a descriptor of ours; the call takes and gives numbers only.
        let is_marked = unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, MARK) } == 0;
        let known_by = match is_marked {
            true => KnownBy::Mark,
            false => inode(&fd).map(|(device, inode)| KnownBy::Inode(device, inode))?,
        };
        Ok(EventFd { fd: ManuallyDrop::new(fd), known_by })
    }

    /// Is its number still the eventfd's, and not a file of the program's?
    pub(crate) fn is_ours(&self) -> bool {
        match self.known_by {
            // SAFETY: as in `new`, whatever file the number is now.
            KnownBy::Mark => unsafe { libc::fcntl(self.fd.as_raw_fd(), F_GETSIG) == MARK },
            KnownBy::Inode(device, inode_) => {
                inode(&self.fd).is_ok_and(|found| found == (device, inode_))
            }
        }
    }

    /// Adds 1, which wakes who waits. False: the number is not the eventfd's any more.
    pub fn signal(&self) -> bool {
        // Fails only if 2^64 − 2 were added and not taken.
        self.is_ours() && {
            let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
            true
        }
    }

    /// Takes what `read` takes of it; false if that is nothing, or it is not ours any more. Of one
    /// that blocks it waits for something.
    pub fn drain(&self) -> bool {
        self.is_ours() && rustix::io::read(&*self.fd, &mut [0; 8]).is_ok()
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped here only, and not used after.
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

    /// Has the program close the number and open a file of its own, which gets it.
    fn taken_over(event: &EventFd, by: &impl AsFd) {
        let mut number = ManuallyDrop::new({
            // SAFETY: that this is not ours is what is tried; the wrapper does not close it.
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
        // Nor is it closed.
        let number = event.fd.as_raw_fd();
        drop(event);
        // SAFETY: a number of this test's, which is closed here.
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
}
