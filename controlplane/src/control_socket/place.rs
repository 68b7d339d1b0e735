//! The socket's place in the run directory.
//!
//! The socket is bound under a temporary name, and renamed when it listens. So a socket that
//! refuses a connection is always dead. Each process removes the dead sockets that it finds.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uroce_command::peer::is_orphan;
use uroce_command::run_dir;

/// Age from which a socket with a temporary name is dead.
const MIN_AGE: Duration = Duration::from_secs(60);

/// The socket's name in the file system. Dropping it removes the name, unless another process has
/// taken it.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    identity: (u64, u64),
}

impl Place {
    /// Creates the socket, which listens without blocking, and removes dead ones.
    ///
    /// # Errors
    ///
    /// There is no run directory, or a system call has failed.
    pub(super) fn listen() -> io::Result<(Place, UnixListener)> {
        let directory = run_dir::sub_dir(run_dir::CONTROL).map_err(io::Error::other)?;
        sweep(&directory);
        Place::listen_in(&directory, &name())
    }

    fn listen_in(directory: &Path, name: &str) -> io::Result<(Place, UnixListener)> {
        let draft = directory.join(format!("{name}.new"));
        // A process with the same number may have been killed and have left a draft.
        let _ = fs::remove_file(&draft);
        let listener = UnixListener::bind(&draft)?;
        let finish = || {
            fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let path = directory.join(format!("{name}.sock"));
            fs::rename(&draft, &path)?;
            Ok(Place { identity: identity(&path)?, path })
        };
        match finish() {
            Ok(place) => Ok((place, listener)),
            Err(error) => {
                let _ = fs::remove_file(&draft);
                Err(error)
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|there| there == self.identity) {
            // If this fails, a later process removes the socket.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the name of this process's socket: the number of the process, and that of its PID
/// namespace, because containers may share the directory.
fn name() -> String {
    format!("{}-{}", std::process::id(), namespace())
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Tells whether a process with the number in a socket's name runs in this PID namespace. If it is
/// not the one that made the socket, the socket is removed after it has ended.
fn is_running(path: &Path) -> bool {
    let name = path.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some((pid, of)) = name.split_once('-') else { return false };
    let is_number = !pid.is_empty() && pid.bytes().all(|digit| digit.is_ascii_digit());
    is_number && of.parse() == Ok(namespace()) && Path::new("/proc").join(pid).exists()
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Removes the sockets that nothing serves.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        if !metadata.file_type().is_socket() {
            continue;
        }
        let is_draft = path.extension().is_some_and(|extension| extension == "new");
        let age = metadata.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
        if (!is_draft || age > MIN_AGE) && !is_running(&path) && is_dead(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Tells whether a socket is dead: it refuses connections, or the process that listened has ended
/// and only a forked child still has the descriptor.
fn is_dead(path: &Path) -> bool {
    // If this connects, the connection is closed at once.
    match connect(path) {
        Ok(stream) => is_orphan(&stream),
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    }
}

/// Connects without blocking.
fn connect(path: &Path) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = PathBuf::from(format!("/tmp/uroce-control-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_socket_is_its_owners_and_goes_with_it() {
        let base = scratch("place");
        let (place, listener) = Place::listen_in(&base, "1-2").unwrap();
        let path = base.join("1-2.sock");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(!is_dead(&path));
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
        drop(listener);
        drop(place);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        fs::remove_dir(&base).unwrap();
    }

    #[test]
    fn dead_sockets_are_removed_and_those_of_others_stay() {
        let base = scratch("sweep");
        let (dead, listener) = Place::listen_in(&base, "1-2").unwrap();
        drop(listener);
        std::mem::forget(dead);
        let (_alive, _listener) = Place::listen_in(&base, "2-2").unwrap();
        drop(UnixListener::bind(base.join("3-2.new")).unwrap());
        fs::write(base.join("4-2.sock"), "a file").unwrap();
        // The process in the socket's name runs, so the socket is not tried.
        let (own, listener) = Place::listen_in(&base, &name()).unwrap();
        drop(listener);
        sweep(&base);
        assert!(base.join(name()).with_extension("sock").exists());
        drop(own);
        let names = fs::read_dir(&base).unwrap().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["2-2.sock", "3-2.new", "4-2.sock"]);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_name_of_a_successor_is_not_removed() {
        let base = scratch("successor");
        let (former, _listener) = Place::listen_in(&base, "1-2").unwrap();
        let (_new, _second) = Place::listen_in(&base, "1-2").unwrap();
        drop(former);
        assert!(base.join("1-2.sock").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
