//! Z11: arbitrary bytes, in arbitrary pieces, on the connection of a client.
//!
//! Invariants
//! - No panic.
//! - Each frame has one last reply, in order. A wrong length is refused and ends the connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, Timespec, poll};
use uroce_command::frame::{self, Decoder};
use uroce_command::request::{
    Dump, Neigh, Network, Port, Route, RouteVia, ShowQueue, ShowRss, Switch,
};
use uroce_command::{
    Clear, ClearPort, Refusal, Reply, Request, Scrape, Select, Set, Show, ShowPort,
};
use uroce_fuzz::{Input, Target};

use super::answer::Kept;
use super::client::Client;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const REQUESTS: &[Request] = &[
    Request::Show(Show::Process),
    Request::Show(Show::Counters { qp: None, port: None }),
    Request::Show(Show::Runtime),
    Request::Scrape(Scrape { qps: 10, measure: false }),
    Request::Show(Show::Qp { qp: Select::One(7) }),
    Request::Show(Show::Port(ShowPort::Stats { port: Select::All })),
    Request::Clear(Clear::Port(ClearPort::Stats { port: Select::One(0) })),
    Request::Clear(Clear::Events),
    Request::Show(Show::Latency { qp: None, distribution: false }),
    Request::Show(Show::Latency { qp: None, distribution: true }),
    Request::Clear(Clear::Latency),
    Request::Show(Show::Rxq(ShowQueue::Info { port: 0, queue: 1 })),
    Request::Dump(Dump::LogTypes),
    Request::Show(Show::Port(ShowPort::Rss(ShowRss::Reta { port: Select::All }))),
    Request::Show(Show::Device { detail: true }),
    Request::Port(Port::Start { port: Select::All }),
    Request::Port(Port::Stop { port: Select::One(1), force: true }),
    Request::Port(Port::Reset { port: Select::All, force: true }),
    Request::Neigh(Neigh::Del { port: 0, address: HOST }),
    Request::Route(Route::Del(RouteVia { port: 0, to: Network::Default, via: HOST })),
    Request::Set(Set::XstatsHideZero { hide: Switch::On }),
    Request::Stop,
];

/// The client's end, the server's end, and the bytes between them.
struct Ends {
    near: UnixStream,
    far: Option<Client>,
    kept: Kept,
    /// Bytes that the connection has not taken yet.
    unsent: Vec<u8>,
    /// All bytes that were sent or are to be sent.
    stream: Vec<u8>,
    inbox: Decoder,
    /// For each last reply, whether it refuses its frame as not understood.
    replies: Vec<bool>,
    has_ended: bool,
}

impl Ends {
    fn new() -> Ends {
        let (near, far) = UnixStream::pair().expect("descriptors");
        near.set_nonblocking(true).expect("a socket");
        Ends {
            near,
            far: Some(Client::new(far, Instant::now()).expect("a socket")),
            kept: Kept::default(),
            unsent: Vec::new(),
            stream: Vec::new(),
            inbox: Decoder::new(frame::REPLY_MAX),
            replies: Vec::new(),
            has_ended: false,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.stream.extend_from_slice(bytes);
    }

    /// Moves bytes in all directions once. Returns whether any have moved.
    fn step(&mut self) -> bool {
        let mut any = self.send();
        if let Some(far) = &mut self.far {
            let (fd, flags) = far.waits_for().expect("an open descriptor");
            let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
            let at_once = Timespec::default();
            if poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0) {
                any = true;
                if !far.serve(Instant::now(), &[], &mut self.kept) {
                    self.far = None;
                }
            }
        }
        any | self.receive()
    }

    fn send(&mut self) -> bool {
        match self.near.write(&self.unsent) {
            Ok(len) => {
                self.unsent.drain(..len);
                len > 0
            }
            Err(error) => {
                let has_gone = error.kind() != ErrorKind::WouldBlock;
                if has_gone {
                    self.unsent.clear();
                }
                false
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let len = match self.near.read(&mut bytes) {
            Ok(0) => {
                self.has_ended = true;
                0
            }
            Ok(len) => len,
            // The server has closed the connection before it has read all bytes.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                self.has_ended = true;
                0
            }
            Err(_) => 0,
        };
        self.inbox.push(&bytes[..len]);
        while let Some(reply) = self.inbox.take().expect("replies are well formed") {
            match reply {
                Reply::More(_) => {}
                Reply::Refused(Refusal::NotUnderstood(_)) => self.replies.push(true),
                Reply::Last(_) | Reply::Refused(_) => self.replies.push(false),
            }
        }
        len > 0
    }
}

/// Returns, for each frame of a stream that is complete or has a wrong length, whether it must be
/// refused; and whether the last one has a wrong length.
fn frames(mut stream: &[u8]) -> (Vec<bool>, bool) {
    let mut frames = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk() {
        let len = u32::from_be_bytes(*header) as usize;
        if len > frame::REQUEST_MAX {
            frames.push(true);
            return (frames, true);
        }
        let Some((text, next)) = rest.split_at_checked(len) else { break };
        frames.push(serde_json::from_slice::<Request>(text).is_err());
        stream = next;
    }
    (frames, false)
}

fn run(input: &mut Input<'_>) {
    let mut ends = Ends::new();
    while !input.is_empty() {
        match input.below(4) {
            0 => {
                let len = input.below(64);
                let bytes: Vec<u8> = (0..len).map(|_| input.u8()).collect();
                ends.put(&bytes);
            }
            1 => {
                let request = &REQUESTS[input.below(REQUESTS.len())];
                ends.put(&frame::encode(request, frame::REQUEST_MAX).expect("short"));
            }
            2 => {
                let len = input.below(64);
                ends.put(&(len as u32).to_be_bytes());
                let text: Vec<u8> = (0..len).map(|_| input.u8()).collect();
                ends.put(&text);
            }
            _ => {
                ends.step();
            }
        }
    }
    while ends.step() {}
    let (frames, is_wrong) = frames(&ends.stream);
    input.reach(1, frames.len().min(64) as u32);
    input.reach(2, frames.iter().filter(|refused| **refused).count().min(64) as u32);
    input.reach(3, u32::from(is_wrong));
    // Bytes after a wrong length may reset the connection before the refusal has been read.
    let all = if is_wrong { ends.replies.len().max(frames.len() - 1) } else { frames.len() };
    assert_eq!(ends.replies, frames[..all]);
    assert_eq!(ends.far.is_none(), is_wrong);
    assert_eq!(ends.has_ended, is_wrong);
}

fn seeds() -> Vec<Vec<u8>> {
    let all = (0..REQUESTS.len() as u8).flat_map(|at| [1, at]);
    let long = [&[0, 8][..], &[0xff; 8], &[1, 0]].concat();
    vec![all.collect(), long, vec![2, 2, b'{', b'}', 3, 1, 0]]
}

#[test]
fn z11_control_socket() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    uroce_fuzz::fuzz(&Target { name: "control_socket", corpus, run, seeds });
}
