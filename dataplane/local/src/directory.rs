//! The directory in which members meet.
//!
//! ```text
//!   members   empty; byte n is locked by the member with number n, byte 128 + n by the process
//!             that is about to make or remove N.sock
//!   N.sock    socket on which the member with number N listens
//! ```
//!
//! Not here: which number is taken ([`crate::claim`]).

use crate::JoinError;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::net::SocketAddrUnix;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Name of the file of locks.
const LOCKS: &str = "members";
/// Longest path of a Unix socket, in bytes.
const SOCKET_PATH_MAX: usize = 107;

/// An open directory of this user, to which no other user can write.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// Device and inode number.
    identity: (u64, u64),
}

impl Directory {
    /// Opens a directory; makes it if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be made or opened, belongs to another user, or others can write to it.
    pub(crate) fn open(path: &Path) -> Result<Directory, JoinError> {
        let fail = |step| {
            move |error: io::Error| JoinError::System { directory: path.to_owned(), step, error }
        };
        let path = std::path::absolute(path).map_err(fail("the path"))?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(fail("the directory cannot be made"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let fd = opened.map_err(|error| fail("the directory cannot be opened")(error.into()))?;
        let stat = fstat(&fd).map_err(|error| fail("the directory")(error.into()))?;
        let own = rustix::process::geteuid().as_raw();
        let problem = if stat.st_uid != own {
            format!("the directory belongs to user {}, this process to user {own}", stat.st_uid)
        } else if stat.st_mode & 0o022 != 0 {
            String::from("other users can write to the directory; use one of mode 0700")
        } else {
            return Ok(Directory { path, fd, identity: (stat.st_dev, stat.st_ino) });
        };
        Err(JoinError::Directory { directory: path, problem })
    }

    /// Returns the absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what tells the directory from all others.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Makes an error that names the directory.
    pub(crate) fn error(&self, step: &'static str, error: impl Into<io::Error>) -> JoinError {
        JoinError::System { directory: self.path.clone(), step, error: error.into() }
    }

    /// Opens the file of locks.
    ///
    /// # Errors
    /// The file system is full or read-only, or something else has the file's name.
    pub(crate) fn locks(&self) -> Result<OwnedFd, JoinError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.fd, LOCKS, flags, Mode::RUSR | Mode::WUSR);
        opened.map_err(|error| self.error("the file `members` cannot be opened", error))
    }

    fn name(number: u8) -> String {
        format!("{number}.sock")
    }

    /// Returns the address of a member's socket.
    ///
    /// # Errors
    /// The path is too long, and /proc is not there to make it shorter.
    pub(crate) fn address(&self, number: u8) -> rustix::io::Result<SocketAddrUnix> {
        let name = Directory::name(number);
        let path = self.path.join(&name);
        match path.as_os_str().as_bytes().len() {
            ..=SOCKET_PATH_MAX => SocketAddrUnix::new(path),
            _ => SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd())),
        }
    }

    /// Removes a member's socket, if there is one.
    ///
    /// # Errors
    /// Something else than a file has its name.
    pub(crate) fn remove(&self, number: u8) -> rustix::io::Result<()> {
        let flags = rustix::fs::AtFlags::empty();
        match rustix::fs::unlinkat(&self.fd, Directory::name(number), flags) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            result => result,
        }
    }

    /// Returns the numbers for which there is a socket.
    pub(crate) fn sockets(&self) -> Vec<u8> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let number = |entry: std::fs::DirEntry| {
            let name = entry.file_name();
            let number: u8 = name.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            (1..=crate::MEMBERS_MAX).contains(&number).then_some(number)
        };
        entries.filter_map(number).collect()
    }
}
