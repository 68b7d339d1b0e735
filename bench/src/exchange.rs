//! The out-of-band exchange: what the two ends tell each other beside the RDMA connection.
//!
//! One JSON value a line over a TCP connection, or over a socket pair inside one process. A thread
//! that drives an lcore must not block, so waiting calls a function of the caller's again and
//! again.
//!
//! Invariants
//! - A closed connection and a silent peer end in an error that says so, never in a hang.
//! - A side that fails tells the other why ([`Link::send_failure`]), so both name the cause.
//!
//! Not here: what is said, see [`crate::session`]; ibv_rc_pingpong's own exchange, see
//! [`crate::pingpong`].

use crate::error::BenchError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long one end waits for the other's next word.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client tries to reach its server.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// A longer line is no exchange of ours.
const LINE_MAX: usize = 1 << 20;
/// Calls of the caller's function between two looks at the socket.
const TURNS_PER_LOOK: u32 = 64;

/// A byte stream to the other end.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One end of the exchange.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

/// A line: a value, or why there is none.
#[derive(Serialize, Deserialize)]
enum Line<T> {
    Value(T),
    Failure(String),
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
    fn port(&self) -> u16 {
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
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn no_delay(stream: &TcpStream) -> Result<(), BenchError> {
    stream.set_nodelay(true).map_err(|error| BenchError::io("TCP_NODELAY", error))
}

impl Link {
    /// Over a TCP connection.
    pub(crate) fn tcp(stream: TcpStream) -> Result<Self, BenchError> {
        stream.set_nonblocking(true).map_err(|error| BenchError::io("O_NONBLOCK", error))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new() })
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
        Ok(Self { stream: Box::new(stream), received: Vec::new() })
    }

    /// Says something.
    pub(crate) fn send<T: Serialize>(&mut self, value: &T) -> Result<(), BenchError> {
        self.write(&Line::Value(value))
    }

    /// Says why nothing more will come. That the other end may be gone too is no matter.
    pub(crate) fn send_failure(&mut self, error: &BenchError) {
        // What the other end said need not be told to it.
        if !matches!(error, BenchError::Peer(_) | BenchError::PeerGone) {
            let _ = self.write(&Line::<()>::Failure(error.to_string()));
        }
    }

    fn write<T: Serialize>(&mut self, line: &Line<T>) -> Result<(), BenchError> {
        let mut bytes = serde_json::to_vec(line)
            .map_err(|error| BenchError::io("writing JSON", error.into()))?;
        bytes.push(b'\n');
        let (mut rest, deadline) = (&bytes[..], Instant::now() + PATIENCE);
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

    /// Waits for what the other end says next; `turn` is called meanwhile.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        waiting: &'static str,
        mut turn: impl FnMut(),
    ) -> Result<T, BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = self.try_receive()? {
                return Ok(value);
            }
            if Instant::now() > deadline {
                return Err(BenchError::TimedOut { waiting, limit: PATIENCE });
            }
            (0..TURNS_PER_LOOK).for_each(|_| turn());
        }
    }

    /// What the other end said, if it has. Also notices that it is gone.
    pub(crate) fn try_receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BenchError> {
        if !self.received.contains(&b'\n') {
            self.read_some()?;
        }
        let Some(end) = self.received.iter().position(|&byte| byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.received.drain(..=end).collect();
        match serde_json::from_slice(&line) {
            Ok(Line::Value(value)) => Ok(Some(value)),
            Ok(Line::Failure(text)) => Err(BenchError::Peer(text)),
            Err(error) => Err(BenchError::Peer(format!("it does not speak our exchange: {error}"))),
        }
    }

    fn read_some(&mut self) -> Result<(), BenchError> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                // What it said before it left counts.
                Ok(0) if self.received.contains(&b'\n') => return Ok(()),
                Ok(0) => return Err(BenchError::PeerGone),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) => return Err(broken(error)),
            }
            if self.received.len() > LINE_MAX {
                return Err(BenchError::Peer("it does not speak our exchange".to_owned()));
            }
        }
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

    fn tcp_pair() -> (Link, Link) {
        let listener = Listener::bind(0).expect("a port");
        let port = listener.port();
        let client = std::thread::spawn(move || connect("localhost", port).expect("connects"));
        let server = listener.accept().expect("accepts");
        let client = client.join().expect("no panic");
        (Link::tcp(server).expect("server"), Link::tcp(client).expect("client"))
    }

    #[test]
    fn values_cross_in_order_and_both_ways() {
        let (local, tcp) = (Link::pair().expect("pair"), tcp_pair());
        for (mut left, mut right) in [local, tcp] {
            left.send(&1u32).expect("sends");
            left.send(&"two").expect("sends");
            right.send(&vec![3u8; 10_000]).expect("sends");
            assert_eq!(right.receive::<u32>("1", || ()).expect("receives"), 1);
            assert_eq!(right.receive::<String>("2", || ()).expect("receives"), "two");
            assert_eq!(left.receive::<Vec<u8>>("3", || ()).expect("receives"), [3; 10_000]);
        }
    }

    #[test]
    fn waiting_keeps_the_caller_going() {
        let (mut left, mut right) = Link::pair().expect("pair");
        let mut turns = 0;
        let got: u32 = left
            .receive("the value", || {
                turns += 1;
                if turns == 1000 {
                    right.send(&5u32).expect("sends");
                }
            })
            .expect("receives");
        assert_eq!(got, 5);
        assert!(turns >= 1000);
    }

    #[test]
    fn an_end_that_is_gone_is_noticed() {
        let (mut left, right) = Link::pair().expect("pair");
        assert!(matches!(left.try_receive::<u32>(), Ok(None)));
        drop(right);
        assert!(matches!(left.try_receive::<u32>(), Err(BenchError::PeerGone)));
        assert!(matches!(left.send(&1), Err(BenchError::PeerGone)));
    }

    #[test]
    fn the_last_word_of_an_end_that_is_gone_counts() {
        let (mut left, mut right) = Link::pair().expect("pair");
        right.send(&7u32).expect("sends");
        drop(right);
        assert_eq!(left.receive::<u32>("the last word", || ()).expect("receives"), 7);
        assert!(matches!(left.try_receive::<u32>(), Err(BenchError::PeerGone)));
    }

    #[test]
    fn a_failure_reaches_the_other_end_with_its_reason() {
        let (mut left, mut right) = Link::pair().expect("pair");
        left.send_failure(&BenchError::usage("no such GID"));
        let error = right.receive::<u32>("a value", || ()).expect_err("failure");
        assert_eq!(error.to_string(), "the other end failed: no such GID");
    }

    #[test]
    fn a_stranger_is_told_apart() {
        let (mut left, mut right) = Link::pair().expect("pair");
        right.stream.write_all(b"GET / HTTP/1.1\n").expect("writes");
        let error = left.try_receive::<u32>().expect_err("a stranger").to_string();
        assert!(error.contains("does not speak our exchange"), "{error}");
    }
}
