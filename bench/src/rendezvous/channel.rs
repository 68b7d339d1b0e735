//! A byte stream to the other end, read without blocking, and its creation.

use crate::error::BenchError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// Longest time for which a client tries to reach its server.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Calls of the caller's function between two checks of the socket.
const TURNS_PER_LOOK: u32 = 64;
/// Longest sleep of a thread before it checks for a timeout.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A byte stream to the other end.
trait Stream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Stream for T {}

/// The stream of one end, with a buffer of bytes that were read ahead.
pub(crate) struct Channel {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// Both ends are known to be on one machine.
    is_local: bool,
}

/// Listening socket of a server. Clients can connect once it exists.
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// Listens on all addresses.
    pub(crate) fn bind(port: u16) -> Result<Self, BenchError> {
        let listener = TcpListener::bind(("::", port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
            .map_err(|error| BenchError::io(format!("listening on TCP port {port}"), error))?;
        Ok(Self(listener))
    }

    /// Waits for a client, without a limit.
    pub(crate) fn accept(&self) -> Result<TcpStream, BenchError> {
        let accepted = self.0.accept();
        let (stream, _) = accepted.map_err(|error| BenchError::io("accepting", error))?;
        no_delay(&stream)?;
        Ok(stream)
    }

    /// Returns the port, which the system has chosen if 0 was given.
    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        self.0.local_addr().map_or(0, |address| address.port())
    }
}

/// Connects to a server, which may still be starting.
pub(crate) fn connect(host: &str, port: u16) -> Result<TcpStream, BenchError> {
    let what = format!("connecting to {host}, TCP port {port}");
    let deadline = Instant::now() + CONNECT_PATIENCE;
    loop {
        match try_connect(host, port) {
            Ok(stream) => {
                no_delay(&stream)?;
                return Ok(stream);
            }
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(BenchError::io(what, error)),
        }
    }
}

fn try_connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = (host, port).to_socket_addrs()?;
    first(addresses.map(|address| TcpStream::connect_timeout(&address, CONNECT_PATIENCE)))
}

/// Returns the first success. Of several errors a refused connection is returned first: the server
/// may still be starting at that address, whatever is wrong with the host's other addresses.
fn first<T>(attempts: impl Iterator<Item = io::Result<T>>) -> io::Result<T> {
    let mut cause = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for attempt in attempts {
        match attempt {
            Ok(stream) => return Ok(stream),
            Err(error) if cause.kind() != io::ErrorKind::ConnectionRefused => cause = error,
            Err(_) => (),
        }
    }
    Err(cause)
}

fn no_delay(stream: &TcpStream) -> Result<(), BenchError> {
    stream.set_nodelay(true).map_err(|error| BenchError::io("TCP_NODELAY", error))
}

impl Channel {
    /// Creates a channel over a TCP connection.
    pub(crate) fn tcp(stream: TcpStream) -> Result<Self, BenchError> {
        stream.set_nonblocking(true).map_err(|error| BenchError::io("O_NONBLOCK", error))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new(), is_local: false })
    }

    /// Creates two connected channels inside one process.
    pub(crate) fn pair() -> Result<(Self, Self), BenchError> {
        let (left, right) =
            UnixStream::pair().map_err(|error| BenchError::io("a socket pair", error))?;
        Ok((Self::unix(left)?, Self::unix(right)?))
    }

    /// Waits for a client at a socket in the file system.
    pub(crate) fn accept_at(path: &Path) -> Result<Self, BenchError> {
        let what = |error| BenchError::io(format!("listening at {}", path.display()), error);
        let (stream, _) = UnixListener::bind(path).and_then(|l| l.accept()).map_err(what)?;
        Self::unix(stream)
    }

    /// Connects to a socket in the file system, which may not exist yet.
    pub(crate) fn connect_to(path: &Path) -> Result<Self, BenchError> {
        let deadline = Instant::now() + CONNECT_PATIENCE;
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Self::unix(stream),
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => {
                    let what = format!("connecting to {}", path.display());
                    return Err(BenchError::io(what, error));
                }
            }
        }
    }

    fn unix(stream: UnixStream) -> Result<Self, BenchError> {
        stream.set_nonblocking(true).map_err(|error| BenchError::io("O_NONBLOCK", error))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new(), is_local: true })
    }

    /// Tells whether both ends are known to be on one machine. Ends joined by TCP may be, too.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Writes all bytes, waiting for room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let (mut rest, deadline) = (bytes, Instant::now() + PATIENCE);
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_not_yet(&error) && Instant::now() < deadline => {
                    std::thread::yield_now();
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Returns the bytes that were read and not taken yet.
    pub(super) fn received(&self) -> &[u8] {
        &self.received
    }

    /// Takes the first `count` bytes that were read.
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        self.received.drain(..count).collect()
    }

    /// Reads the available bytes, up to about `most`; false if the other end has closed and nothing
    /// arrived.
    pub(super) fn read_some(&mut self, most: usize) -> Result<bool, BenchError> {
        let mut buffer = [0; 4096];
        let before = self.received.len();
        while self.received.len() < most {
            match self.stream.read(&mut buffer) {
                // Bytes sent before the end closed are still used.
                Ok(0) => return Ok(self.received.len() > before),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if is_not_yet(&error) => break,
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(true)
    }

    /// Sleeps until there is something to read, or [`SLEEP`] has passed.
    pub(super) fn sleep(&self) -> Result<(), BenchError> {
        let mut readable = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut readable, Some(&SLEEP)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(broken(error.into())),
        }
    }
}

/// Calls `attempt` until it returns a value, and `turn` in between, for at most `limit`.
pub(super) fn wait_for<T>(
    waiting: &'static str,
    limit: Duration,
    mut turn: impl FnMut(),
    mut attempt: impl FnMut() -> Result<Option<T>, BenchError>,
) -> Result<T, BenchError> {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt()? {
            return Ok(value);
        }
        if begin.elapsed() > limit {
            return Err(BenchError::TimedOut { waiting, limit });
        }
        (0..TURNS_PER_LOOK).for_each(|_| turn());
    }
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn broken(error: io::Error) -> BenchError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => BenchError::PeerGone,
        _ => BenchError::io("the exchange with the other end", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_outweighs_what_is_wrong_with_other_addresses() {
        use io::ErrorKind::{ConnectionRefused, NetworkUnreachable, NotFound};
        let of = |kinds: &[io::ErrorKind]| {
            first::<()>(kinds.iter().map(|&kind| Err(kind.into()))).expect_err("none").kind()
        };
        assert_eq!(of(&[]), NotFound);
        assert_eq!(of(&[NetworkUnreachable]), NetworkUnreachable);
        assert_eq!(of(&[ConnectionRefused, NetworkUnreachable]), ConnectionRefused);
        assert_eq!(of(&[NetworkUnreachable, ConnectionRefused]), ConnectionRefused);
        let found = first([Err(ConnectionRefused.into()), Ok(7)].into_iter());
        assert_eq!(found.expect("connects"), 7);
    }
}
