//! The exchange between two ends of uroce: one JSON value per line.

use super::PATIENCE;
use super::channel::{Channel, wait_for};
use crate::error::BenchError;
use crate::pin::Side;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest line. A longer one does not come from uroce.
const LINE_MAX: usize = 1 << 20;
/// Wakes between two ends on one machine: 0.2 s where a virtual CPU has to be woken.
const WAKES: u32 = 3000;
/// Longest time for the wakes, if other programs use the CPUs.
const WAKING: Duration = Duration::from_millis(500);

/// One end of the exchange.
pub(crate) struct Link {
    channel: Channel,
}

/// A line: a value, or the reason for which there is none.
#[derive(Serialize, Deserialize)]
enum Line<T> {
    Value(T),
    Failure(String),
}

impl From<Channel> for Link {
    fn from(channel: Channel) -> Self {
        Self { channel }
    }
}

impl Link {
    /// Creates a link over a TCP connection.
    pub(crate) fn tcp(stream: TcpStream) -> Result<Self, BenchError> {
        Channel::tcp(stream).map(Self::from)
    }

    /// Creates two connected links inside one process, the server's first.
    pub(crate) fn pair() -> Result<(Self, Self), BenchError> {
        let (server, client) = Channel::pair()?;
        Ok((server.into(), client.into()))
    }

    /// Waits for a client at a socket in the file system.
    pub(crate) fn accept_at(path: &Path) -> Result<Self, BenchError> {
        Channel::accept_at(path).map(Self::from)
    }

    /// Connects to a socket in the file system, which may not exist yet.
    pub(crate) fn connect_to(path: &Path) -> Result<Self, BenchError> {
        Channel::connect_to(path).map(Self::from)
    }

    /// Sends a value.
    pub(crate) fn send<T: Serialize>(&mut self, value: &T) -> Result<(), BenchError> {
        self.write(&Line::Value(value))
    }

    /// Sends the reason for which no further value will come. An error of sending is ignored.
    pub(crate) fn send_failure(&mut self, error: &BenchError) {
        // An error that came from the other end is not sent back.
        if !matches!(error, BenchError::Peer(_) | BenchError::PeerGone) {
            let _ = self.write(&Line::<()>::Failure(error.to_string()));
        }
    }

    fn write<T: Serialize>(&mut self, line: &Line<T>) -> Result<(), BenchError> {
        let mut bytes = serde_json::to_vec(line)
            .map_err(|error| BenchError::io("writing JSON", error.into()))?;
        bytes.push(b'\n');
        self.channel.write(&bytes)
    }

    /// Waits for the other end's next value; `turn` is called meanwhile.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        waiting: &'static str,
        turn: impl FnMut(),
    ) -> Result<T, BenchError> {
        wait_for(waiting, PATIENCE, turn, || self.try_receive())
    }

    /// Makes two ends on one machine wake each other repeatedly; has no effect otherwise. Called at
    /// both ends, by the threads that measure, while no other value is in flight.
    ///
    /// A hypervisor places virtual CPUs freely, and two that share no cache transfer cache lines
    /// five times as slowly as two that do. It places a virtual CPU near the one that wakes it, and
    /// leaves both where they are while they are busy. The wakes bring the two together for the
    /// duration of a measurement. On a machine with fixed CPUs they take some milliseconds and
    /// change nothing.
    pub(crate) fn wake_each_other(&mut self, side: Side) -> Result<(), BenchError> {
        if !self.channel.is_local() {
            return Ok(());
        }
        match side {
            Side::Client => {
                let begin = Instant::now();
                for wake in 1..=WAKES {
                    let is_last = wake == WAKES || begin.elapsed() >= WAKING;
                    self.send(&is_last)?;
                    self.receive_asleep::<()>()?;
                    if is_last {
                        break;
                    }
                }
            }
            Side::Server => {
                let mut is_last = false;
                while !is_last {
                    is_last = self.receive_asleep()?;
                    self.send(&())?;
                }
            }
        }
        Ok(())
    }

    fn receive_asleep<T: DeserializeOwned>(&mut self) -> Result<T, BenchError> {
        wait_for(
            "waiting to be woken",
            PATIENCE,
            || (),
            || match self.try_receive()? {
                None => self.channel.sleep().map(|()| None),
                woken => Ok(woken),
            },
        )
    }

    /// Returns the other end's next value if it has arrived, or an error if that end has closed.
    pub(crate) fn try_receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BenchError> {
        let end_of_line = |bytes: &[u8]| bytes.iter().position(|&byte| byte == b'\n');
        if end_of_line(self.channel.received()).is_none() {
            let open = self.channel.read_some(LINE_MAX)?;
            let received = self.channel.received();
            if end_of_line(received).is_none() {
                return match (open, received.len() < LINE_MAX) {
                    (true, true) => Ok(None),
                    (true, false) => Err(stranger("a line too long")),
                    (false, _) => Err(BenchError::PeerGone),
                };
            }
        }
        let Some(end) = end_of_line(self.channel.received()) else { return Ok(None) };
        match serde_json::from_slice(&self.channel.take(end + 1)) {
            Ok(Line::Value(value)) => Ok(Some(value)),
            Ok(Line::Failure(text)) => Err(BenchError::Peer(text)),
            Err(error) => Err(stranger(error)),
        }
    }
}

fn stranger(reason: impl std::fmt::Display) -> BenchError {
    BenchError::Peer(format!("it does not use uroce-perf's exchange: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Listener, connect};
    use super::*;

    fn tcp_pair() -> (Link, Link) {
        let listener = Listener::bind(0).expect("a port");
        let port = listener.port();
        let client = std::thread::spawn(move || connect("localhost", port).expect("connects"));
        let server = listener.accept().expect("accepts");
        let client = client.join().expect("no panic");
        let link = |stream| Link::tcp(stream).expect("a stream");
        (link(server), link(client))
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
    fn ends_on_one_machine_wake_each_other_and_are_in_step_after_it() {
        let (mut server, mut client) = Link::pair().expect("pair");
        std::thread::scope(|scope| {
            scope.spawn(|| server.wake_each_other(Side::Server).expect("wakes"));
            client.wake_each_other(Side::Client).expect("wakes");
        });
        for link in [&mut server, &mut client] {
            assert!(matches!(link.try_receive::<()>(), Ok(None)));
        }
        drop(server);
        let alone = client.wake_each_other(Side::Client);
        assert!(matches!(alone, Err(BenchError::PeerGone)));
    }

    #[test]
    fn ends_that_are_slow_to_wake_do_so_less_often() {
        let (mut server, mut client) = Link::pair().expect("pair");
        std::thread::scope(|scope| {
            scope.spawn(|| client.wake_each_other(Side::Client).expect("wakes"));
            let mut wakes = 1;
            while !server.receive_asleep::<bool>().expect("a wake") {
                std::thread::sleep(WAKING / 10);
                server.send(&()).expect("answers");
                wakes += 1;
            }
            assert!(wakes <= 11, "{wakes}");
            server.send(&()).expect("answers");
        });
    }

    #[test]
    fn ends_that_may_be_on_two_machines_do_not_wait_for_each_other() {
        let (mut server, mut client) = tcp_pair();
        server.wake_each_other(Side::Server).expect("nothing to do");
        assert!(matches!(client.try_receive::<()>(), Ok(None)));
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
        right.channel.write(b"GET / HTTP/1.1\n").expect("writes");
        let error = left.try_receive::<u32>().expect_err("a stranger").to_string();
        assert!(error.contains("does not use uroce-perf's exchange"), "{error}");
    }
}
