//! net_virtio_user: a port on a vhost-user switch, such as Open vSwitch with DPDK.
//!
//! The port and the switch meet at a socket, on which either may listen. [`open`] chooses the role:
//!
//! | at the path | the port |
//! | --- | --- |
//! | a switch that listens | connects; when the switch goes, its link stays down |
//! | nothing, or the socket of a process that has ended | listens; the switch may come and go |
//! | another kind of file, such as /dev/vhost-net | is left to the driver |
//!
//! A socket is one port's: a second one is refused at once ([`claim`]).
//!
//! The driver waits without limit for a listening switch's answers, and for a switch to connect. So
//! a listener has to answer one question first, and a wait for the switch ends after
//! [`WAIT`].
//!
//! Not here: the switch's own settings. Frames that are longer than its port's MTU are lost there
//! without being counted.

pub(super) mod claim;

use super::PortError;
use super::vdev::value;
use claim::Claim;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// DPDK's name of the driver.
const DRIVER: &str = "net_virtio_user";
/// Longest wait for a switch to connect. Open vSwitch tries once a second.
const WAIT: Duration = Duration::from_secs(10);
/// Longest wait for the answer of a switch that listens.
const ANSWER: Duration = Duration::from_secs(5);
/// Number of looks at a socket on which no process listens, and the pause between them: a process
/// that has just made the socket may be about to listen.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Entries of a ring, where the device string has none. The driver's default of 256 is less than
/// what one large message sends at once.
const RING: u32 = 1024;

/// The first message of vhost-user: VHOST_USER_GET_FEATURES, version 1, no payload. Numbers are in
/// the machine's byte order.
const GET_FEATURES: [u32; 3] = [1, 1, 0];
/// Flag of an answer.
const REPLY: u32 = 1 << 2;

/// Returns whether a device string names this driver.
pub(super) fn is_virtio_user(device: &str) -> bool {
    device.starts_with(DRIVER)
}

/// Creates the device with `probe`, which gets the device string with the role and the rings.
/// Returns what `probe` does, and the claim on the socket, which the port keeps.
///
/// # Errors
///
/// [`PortError::SwitchTaken`] if another port uses the socket, [`PortError::Switch`] if there is no
/// switch at the socket or the socket cannot be used, else the error of `probe`.
pub(super) fn open(
    device: &str,
    probe: impl FnOnce(&str) -> Result<u16, PortError>,
) -> Result<(u16, Option<Claim>), PortError> {
    let mut fitted = device.to_owned();
    if value(device, "queue_size").is_none() {
        fitted.push_str(&format!(",queue_size={RING}"));
    }
    let Some(socket) = value(device, "path").map(Path::new) else {
        return Ok((probe(&fitted)?, None));
    };
    // Many processes may use a file of another kind.
    let claim = if is_file(socket) { Ok(None) } else { Claim::take(socket) };
    let claim = claim.map_err(|holder| PortError::SwitchTaken { socket: socket.into(), holder })?;
    let refuse = |reason, error| {
        let socket = socket.to_owned();
        PortError::Switch { socket, reason, error }
    };
    let listens = match (value(device, "server"), look(socket)) {
        (Some(role), Ok(_)) => role == "1",
        (None, Ok(found)) => found == Found::Free,
        (_, Err((reason, error))) => return Err(refuse(reason, error)),
    };
    if !listens {
        return Ok((probe(&fitted)?, claim));
    }
    if value(device, "server").is_none() {
        fitted.push_str(",server=1");
    }
    let (result, is_over) = until_over(WAIT, socket, || probe(&fitted));
    match result {
        Err(_) if is_over => Err(refuse(ABSENT, Errno::TIMEDOUT.into())),
        result => Ok((result?, claim)),
    }
}

/// Whether there is something at the path that is no socket.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| is_other(file.file_type()))
}

fn is_other(kind: fs::FileType) -> bool {
    !kind.is_socket() && !kind.is_symlink()
}

const ABSENT: &str = "nothing listens on it, and no switch has connected to it within 10 seconds. \
                      Open vSwitch does with `ovs-vsctl add-port BRIDGE PORT -- set Interface PORT \
                      type=dpdkvhostuserclient options:vhost-server-path=SOCKET`";

/// The state of a socket's path.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Nothing: a server may make its socket there.
    Free,
    /// A switch, or a file that is no socket.
    Taken,
}

/// Looks for a switch at the path. Removes a socket that no process has any more.
///
/// # Errors
///
/// The reason why the path cannot be used, and the system's error.
fn look(path: &Path) -> Result<Found, (&'static str, io::Error)> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let is_there = directory.is_none_or(Path::is_dir);
            return if is_there {
                Ok(Found::Free)
            } else {
                Err(("its directory is missing", error))
            };
        }
        Err(error) => return Err(("it cannot be used", error)),
        Ok(file) if is_other(file.file_type()) => return Ok(Found::Taken),
        Ok(_) => {}
    }
    for at in 1..=LOOKS {
        match reach(path) {
            Ok(stream) => match answers(stream) {
                Ok(true) => return Ok(Found::Taken),
                Ok(false) | Err(_) => {
                    let error = Errno::ADDRINUSE.into();
                    let reason = "what listens on it does not answer as a vhost-user switch does";
                    return Err((reason, error));
                }
            },
            Err(Errno::CONNREFUSED) if at > 1 && !is_bound(path) => {
                let removed = fs::remove_file(path).map(|()| Found::Free);
                let reason = "no process listens on it, and it cannot be removed";
                return removed.map_err(|error| (reason, error));
            }
            Err(Errno::CONNREFUSED) => thread::sleep(LOOK_AGAIN),
            Err(Errno::AGAIN) => {
                return Err(("its listener takes no connection", Errno::ADDRINUSE.into()));
            }
            Err(error) => return Err(("connecting to it failed", error.into())),
        }
    }
    Err(("a process has made it and does not listen on it", Errno::ADDRINUSE.into()))
}

/// Connects to a socket. A listener with a full queue is not waited for (EAGAIN).
fn reach(path: &Path) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    // This does not fail for a socket.
    let _ = stream.set_nonblocking(false);
    Ok(stream)
}

/// Whether a process of this network namespace has a socket that is bound to the path, even if it
/// does not listen.
fn is_bound(path: &Path) -> bool {
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let path = path.as_os_str().as_bytes();
    let name = |line: &[u8]| line.strip_suffix(path).is_some_and(|rest| rest.ends_with(b" "));
    sockets.split(|byte| *byte == b'\n').any(name)
}

/// Whether the listener answers the first message as a switch does.
fn answers(mut stream: UnixStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let message: Vec<u8> = GET_FEATURES.iter().flat_map(|word| word.to_ne_bytes()).collect();
    stream.write_all(&message)?;
    let mut header = [[0; 4]; 2];
    stream.read_exact(header.as_flattened_mut())?;
    let [request, flags] = header.map(u32::from_ne_bytes);
    Ok(request == GET_FEATURES[0] && flags & REPLY != 0)
}

/// Calls `wait`, in which the driver listens on the socket and waits for a connection. After
/// `limit` the socket gets a connection that is closed at once, which ends the driver's wait with
/// an error. Returns whether that happened, too.
fn until_over<T>(limit: Duration, socket: &Path, wait: impl FnOnce() -> T) -> (T, bool) {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let end = move || {
            let is_over = is_done.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            is_over && reach(socket).is_ok()
        };
        let over = thread::Builder::new().name("uroce-switch".into()).spawn_scoped(scope, end);
        let result = wait();
        drop(done);
        (result, over.is_ok_and(|over| over.join().unwrap_or(false)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    /// A path that no other test uses.
    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("uroce-switch-{}-{name}", std::process::id()))
    }

    /// The device strings with which the driver would be called, or the error.
    fn opened(device: &str) -> Result<String, String> {
        let mut seen = String::new();
        let probe = |fitted: &str| {
            seen = fitted.to_owned();
            Ok(0)
        };
        open(device, probe).map_err(|error| error.to_string())?;
        Ok(seen)
    }

    /// Makes a socket that is bound to a path and does not listen.
    fn bound(path: &Path) -> rustix::fd::OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        socket
    }

    /// Answers one connection with these words, or keeps it open without one until `stop`.
    fn switch(path: &Path, answer: &'static [u32]) -> thread::JoinHandle<()> {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = [0; 12];
            stream.read_exact(&mut message).unwrap();
            let words: Vec<u8> = answer.iter().flat_map(|word| word.to_ne_bytes()).collect();
            stream.write_all(&words).unwrap();
        })
    }

    #[test]
    fn the_port_listens_where_no_switch_does() {
        let path = path("free");
        let device = format!("net_virtio_user0,path={}", path.display());
        assert_eq!(opened(&device).unwrap(), format!("{device},queue_size=1024,server=1"));
        let given = format!("{device},server=1,queue_size=64");
        assert_eq!(opened(&given).unwrap(), given);
        // A socket of a process that was killed.
        drop(UnixListener::bind(&path).unwrap());
        assert!(opened(&device).unwrap().ends_with(",server=1"));
        assert!(!path.exists());
    }

    #[test]
    fn the_port_connects_to_a_switch_that_answers() {
        let path = path("switch");
        let device = format!("net_virtio_user0,queue_size=256,path={}", path.display());
        let switch = switch(&path, &[1, 5, 8, 0, 0]);
        assert_eq!(opened(&device).unwrap(), device);
        switch.join().unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_listener_of_another_kind_is_refused() {
        let path = path("other");
        let device = format!("net_virtio_user0,path={}", path.display());
        for answer in [&[9, 5, 0][..], &[1, 1, 8], &[]] {
            let other = switch(&path, answer);
            let said = opened(&device).unwrap_err();
            assert!(said.contains("does not answer as a vhost-user switch"), "{said}");
            other.join().unwrap();
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_path_that_cannot_be_used_is_named() {
        let said = opened("net_virtio_user0,path=/no/such/place/socket").unwrap_err();
        assert!(said.contains("/no/such/place/socket") && said.contains("directory"), "{said}");
        // Another kind of file is the driver's business.
        let kernel = "net_virtio_user0,path=/dev/null,queue_size=256";
        assert_eq!(opened(kernel).unwrap(), kernel);
        assert_eq!(
            opened("net_virtio_user0,queue_size=2").unwrap(),
            "net_virtio_user0,queue_size=2"
        );
    }

    #[test]
    fn a_driver_that_waits_gets_a_connection_when_the_time_is_over() {
        let path = path("late");
        let listener = UnixListener::bind(&path).unwrap();
        let (ended, is_over) = until_over(Duration::from_millis(50), &path, || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read(&mut [0; 1]).unwrap()
        });
        assert_eq!((ended, is_over), (0, true));
        assert_eq!(until_over(WAIT, &path, || 7), (7, false));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_socket_has_one_port_and_the_second_one_is_told_which_process_has_it() {
        let path = path("claimed");
        let device = format!("net_virtio_user0,path={}", path.display());
        let (_, claim) = open(&device, |_| Ok(0)).unwrap();
        // The first port listens, and its queue of connections is full.
        let first = bound(&path);
        rustix::net::listen(&first, 0).unwrap();
        let _queued = reach(&path).unwrap();
        let said = opened(&device).unwrap_err();
        let own = format!("(process {})", std::process::id());
        assert!(said.contains(&own) && said.contains("another port of the switch"), "{said}");
        assert!(path.exists());
        drop((claim, first));
        fs::remove_file(&path).unwrap();
        assert!(opened(&device).is_ok());
        assert!(!fs::exists(format!("{}.lock", path.display())).unwrap());
    }

    #[test]
    fn a_listener_whose_queue_is_full_is_not_waited_for() {
        let path = path("full");
        let full = bound(&path);
        rustix::net::listen(&full, 0).unwrap();
        let _queued = reach(&path).unwrap();
        let said = opened(&format!("net_virtio_user0,path={}", path.display())).unwrap_err();
        assert!(said.contains("takes no connection"), "{said}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_socket_whose_process_is_about_to_listen_stays() {
        let path = path("young");
        let socket = bound(&path);
        let device = format!("net_virtio_user0,path={}", path.display());
        let listens = thread::spawn(move || {
            thread::sleep(2 * LOOK_AGAIN);
            rustix::net::listen(&socket, 1).unwrap();
            let mut stream = UnixListener::from(socket).accept().unwrap().0;
            stream.read_exact(&mut [0; 12]).unwrap();
            let answer = [1_u32, 5, 8, 0, 0].map(u32::to_ne_bytes);
            stream.write_all(answer.as_flattened()).unwrap();
        });
        assert_eq!(opened(&device).unwrap(), format!("{device},queue_size=1024"));
        listens.join().unwrap();
        fs::remove_file(&path).unwrap();
        // One that never listens.
        let socket = bound(&path);
        let said = opened(&device).unwrap_err();
        assert!(said.contains("does not listen") && path.exists(), "{said}");
        drop(socket);
        fs::remove_file(&path).unwrap();
    }
}
