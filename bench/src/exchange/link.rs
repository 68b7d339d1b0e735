//! The exchange between two ends that are both uroce: one JSON value a line.

use super::PATIENCE;
use super::channel::{Channel, wait_for};
use crate::error::BenchError;
use crate::pin::Side;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A longer line is no exchange of ours.
const LINE_MAX: usize = 1 << 20;
/// How often two ends on one machine wake each other: for 0.2 s where a virtual CPU has to be woken.
const WAKES: u32 = 3000;
/// No longer than this, wherever else their CPUs are needed.
const WAKING: Duration = Duration::from_millis(500);

/// One end of the exchange.
pub(crate) struct Link {
    channel: Channel,
}

/// A line: a value, or why there is none.
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
    /// Over a TCP connection.
    pub(crate) fn tcp(stream: TcpStream) -> Result<Self, BenchError> {
        Channel::tcp(stream).map(Self::from)
    }

    /// Two ends inside one process, the server's first.
    pub(crate) fn pair() -> Result<(Self, Self), BenchError> {
        let (server, client) = Channel::pair()?;
        Ok((server.into(), client.into()))
    }

    /// Waits for a client at a socket in the file system.
    pub(crate) fn accept_at(path: &Path) -> Result<Self, BenchError> {
        Channel::accept_at(path).map(Self::from)
    }

    /// Connects to a socket in the file system, which may be just being made.
    pub(crate) fn connect_to(path: &Path) -> Result<Self, BenchError> {
        Channel::connect_to(path).map(Self::from)
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
        self.channel.write(&bytes)
    }

    /// Waits for what the other end says next; `turn` is called meanwhile.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        waiting: &'static str,
        turn: impl FnMut(),
    ) -> Result<T, BenchError> {
        wait_for(waiting, PATIENCE, turn, || self.try_receive())
    }

    /// Two ends on one machine wake each other, again and again; others do nothing. To be called by
    /// both, by the threads that measure, when nothing else is on its way.
    ///
    /// A hypervisor moves virtual CPUs as it likes, and those that share no cache pass lines five
    /// times as slowly as those that do. One that another wakes it places near that one; while both
    /// are busy it leaves them where they are. So this brings them together, for as long as a
    /// measurement takes. Where each has its place it takes some milliseconds, and changes nothing.
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

    /// What the other end said, if it has. Also notices that it is gone.
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
    BenchError::Peer(format!("it does not speak our exchange: {reason}"))
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
        assert!(error.contains("does not speak our exchange"), "{error}");
    }
}
