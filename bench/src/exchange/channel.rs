//! A byte stream to the other end, read without blocking, and how it comes to be.

use crate::error::BenchError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// How long a client tries to reach its server.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Calls of the caller's function between two looks at the socket.
const TURNS_PER_LOOK: u32 = 64;
/// How long a thread sleeps at most before it looks whether the other end is silent for too long.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A byte stream to the other end.
trait Stream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Stream for T {}

/// One end's stream, and what has been read ahead of what was taken.
pub(crate) struct Channel {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// Whether both ends are certainly on one machine.
    is_local: bool,
}

/// A server's listening socket; clients reach it once this exists.
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// Listens on all addresses.
    pub(crate) fn bind(port: u16) -> Result<Self, BenchError> {
        let listener = TcpListener::bind(("::", port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
            .map_err(|error| BenchError::io(format!("listening on TCP port {port}"), error))?;
        Ok(Self(listener))
    }

    /// Waits for a client, without limit: that is what a server is for.
    pub(crate) fn accept(&self) -> Result<TcpStream, BenchError> {
        let accepted = self.0.accept();
        let (stream, _) = accepted.map_err(|error| BenchError::io("accepting", error))?;
        no_delay(&stream)?;
        Ok(stream)
    }

    /// The port, chosen by the system if 0 was asked for.
    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        self.0.local_addr().map_or(0, |address| address.port())
    }
}

/// Connects to a server, which may be just starting.
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

/// The first that succeeds; of the errors a refusal counts most: there the server may be just
/// starting, whatever is wrong with a host's other addresses.
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
    /// Over a TCP connection.
    pub(crate) fn tcp(stream: TcpStream) -> Result<Self, BenchError> {
        stream.set_nonblocking(true).map_err(|error| BenchError::io("O_NONBLOCK", error))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new(), is_local: false })
    }

    /// Two ends inside one process.
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

    /// Connects to a socket in the file system, which may be just being made.
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

    /// Whether both ends are certainly on one machine; two that TCP joins may be.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Writes all of it, waiting for room.
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

    /// What was read and not taken yet.
    pub(super) fn received(&self) -> &[u8] {
        &self.received
    }

    /// Takes the first `count` bytes of it.
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        self.received.drain(..count).collect()
    }

    /// Reads what there is; false if the other end has closed and nothing came.
    pub(super) fn read_some(&mut self, most: usize) -> Result<bool, BenchError> {
        let mut buffer = [0; 4096];
        let before = self.received.len();
        while self.received.len() < most {
            match self.stream.read(&mut buffer) {
                // What it said before it left counts.
                Ok(0) => return Ok(self.received.len() > before),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if is_not_yet(&error) => break,
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(true)
    }

    /// Sleeps until there is something to read, or a moment has passed.
    pub(super) fn sleep(&self) -> Result<(), BenchError> {
        let mut readable = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut readable, Some(&SLEEP)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(broken(error.into())),
        }
    }
}

/// Calls `attempt` until it gives something, and `turn` meanwhile; for `limit` at most.
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
