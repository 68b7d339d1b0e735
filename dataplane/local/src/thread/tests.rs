//! Processes that do not keep to the rules, seen by a member. They are played by this process: it
//! holds their numbers, and speaks for them through sockets of its own.

use crate::board::{Board, bit, board_len};
use crate::claim::Claim;
use crate::directory::Directory;
use crate::hello::{Hello, Kind};
use crate::link::{LinkEnd, Sides};
use crate::memory::Memory;
use crate::{FRAME_MAX, Member, MemberConfig, Queue, Sent, mac_of};
use fastrand::Rng;
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering as StdOrdering};
use std::time::{Duration, Instant};
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::sync::{Ordering, seqpacket};
use uroce_transport::Instant as Turn;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, StdOrdering::Relaxed);
        let name = format!("uroce-rogue-{}-{number}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn join(directory: &Path) -> Member {
    let directory = directory.to_owned();
    Member::join(MemberConfig { directory, number: None, queues: 1, frame_max: 2000 }).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A process with a number that speaks for itself.
struct Rogue {
    claim: Claim,
    listener: OwnedFd,
    board: OwnedFd,
    memory: Memory,
    event: EventFd,
}

impl Rogue {
    fn new(directory: &Path) -> Rogue {
        let (claim, listener) = Claim::take(Directory::open(directory).unwrap(), None).unwrap();
        let (board, memory) = Memory::create(board_len(1)).unwrap();
        let event = EventFd::new(EventfdFlags::NONBLOCK).unwrap();
        Rogue { claim, listener, board, memory, event }
    }

    fn hello(&self, kind: Kind) -> Hello {
        Hello { kind, number: self.claim.number(), queues: 1, frame_max: 2000, life: 1 }
    }

    fn connect(&self, to: u8) -> OwnedFd {
        let socket = seqpacket::socket(SocketFlags::empty()).unwrap();
        rustix::net::connect(&socket, &self.claim.directory().address(to).unwrap()).unwrap();
        socket
    }

    /// Sends a message and returns the answer, with its descriptors; `None` if it was refused.
    fn ask(&self, to: u8, bytes: &[u8], fds: &[&dyn AsFd]) -> Option<Answer> {
        let socket = self.connect(to);
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        seqpacket::send(&socket, bytes, &fds).unwrap();
        let mut answer = [0; 64];
        let (len, fds) = seqpacket::receive(&socket, &mut answer).ok()?;
        Some(Answer { hello: Hello::parse(&answer[..len])?, fds, socket })
    }

    /// Makes a link as the rules are.
    fn link(&self, to: u8) -> Option<Linked> {
        let hello = self.hello(Kind::Link).emit();
        let mut answer = self.ask(to, &hello, &[&self.board, &self.event])?;
        assert_eq!(answer.hello.kind, Kind::Welcome);
        let sides = Sides { is_higher: self.claim.number() > to, own_queues: 1, peer_queues: 1 };
        let memory = Memory::adopt(&answer.fds.remove(0), sides.layout().len()).unwrap();
        let board = Memory::adopt(&answer.fds.remove(0), board_len(1)).unwrap();
        Some(Linked { memory, board, sides, socket: answer.socket })
    }
}

struct Answer {
    hello: Hello,
    fds: Vec<OwnedFd>,
    socket: OwnedFd,
}

struct Linked {
    memory: Memory,
    /// The other member's board.
    board: Memory,
    sides: Sides,
    socket: OwnedFd,
}

impl Linked {
    /// Returns whether the other member has closed the link.
    fn is_closed(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        !matches!(rustix::net::recv(&self.socket, &mut [0; 1], flags), Err(Errno::AGAIN))
    }

    /// Writes something somewhere, now and then to where it hurts most.
    fn scribble(&self, rng: &mut Rng) {
        let layout = self.sides.layout();
        let ring = layout.ring(rng.bool(), 0);
        let value = match rng.u8(..7) {
            0 => u32::MAX,
            1 => rng.u32(..32) * 64,
            2 => rng.u32(..2100),
            3 => 1 << rng.u32(..32),
            4 => self.memory.word(ring.tail_at).load(Ordering::Relaxed).wrapping_add(64),
            5 => self.memory.word(ring.head_at).load(Ordering::Relaxed),
            _ => rng.u32(..),
        };
        match rng.u16(..200) {
            0 => self.memory.word(ring.tail_at).store(value, Ordering::Release),
            1 => self.memory.word(ring.head_at).store(value, Ordering::Release),
            2..20 => self.board.word(rng.usize(..32) * 4).store(value, Ordering::Relaxed),
            _ => {
                let at = ring.ring_at + rng.usize(..ring.ring_len / 64) * 64;
                self.memory.word(at).store(value, Ordering::Relaxed);
            }
        }
    }
}

fn frame(from: u8, to: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![from; 200];
    frame[..6].copy_from_slice(&mac_of(to).0);
    frame[6..12].copy_from_slice(&mac_of(from).0);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends numbered frames to member `to` as long as there is room; checks those that come from it.
/// What comes from others may be anything.
struct Honest {
    queue: Queue,
    own: u8,
    to: u8,
    sent: u32,
    received: u32,
}

impl Honest {
    fn new(member: &Member, to: u8) -> Honest {
        let queue = member.queue(0).unwrap();
        Honest { queue, own: member.number(), to, sent: 0, received: 0 }
    }

    fn turn(&mut self, now: Turn, rogue: Option<u8>) {
        self.queue.begin(now);
        let mut bytes = [0; 2000];
        let (received, to) = (&mut self.received, self.to);
        self.queue.receive(32, |frame| {
            assert!((14..=2000).contains(&frame.len()));
            let len = frame.copy_to(&mut bytes);
            // A rogue may pretend to be another member; the true ones fill their frames.
            if len == 200 && bytes[6..12] == mac_of(to).0 && bytes[18..200] == [to; 182] {
                let number = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
                assert_eq!(number, *received, "a frame of {to} is lost or doubled");
                *received += 1;
            }
            true
        });
        while self.queue.send(&frame(self.own, self.to, self.sent)) == Sent::Taken {
            self.sent += 1;
            if self.sent.is_multiple_of(16) {
                break;
            }
        }
        if let Some(rogue) = rogue {
            self.queue.send(&frame(self.own, rogue, 0));
        }
        self.queue.flush();
    }
}

/// Another member writes rubbish into all that it shares, in every order, all the time, and makes a
/// new link when its own was closed.
#[test]
fn rubbish_in_shared_memory_costs_the_own_link_only() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let scratch = Scratch::new();
    // Where both ask at once, the lower number's connection counts, so the rogue is always heard.
    let rogue = Rogue::new(&scratch.0);
    let [one, two] = [join(&scratch.0), join(&scratch.0)];
    let begin = Instant::now();
    let time = || begin.elapsed().as_nanos() as u64 + 1;
    let is_over = || begin.elapsed() > Duration::from_millis(1500);
    let mut ends = [Honest::new(&one, 3), Honest::new(&two, 2)];
    std::thread::scope(|scope| {
        for (end, member) in ends.iter_mut().zip([&one, &two]) {
            let rogue = (end.own == 2).then_some(1);
            scope.spawn(move || {
                while !is_over() {
                    member.forget(member.take_ended());
                    end.turn(Turn::from_nanos(time()), rogue);
                    std::thread::yield_now();
                }
            });
        }
        let mut rng = Rng::with_seed(seed);
        let mut links = 0;
        while !is_over() {
            let Some(linked) = rogue.link(2) else { continue };
            links += 1;
            while !linked.is_closed() && !is_over() {
                (0..rng.u32(1..200)).for_each(|_| linked.scribble(&mut rng));
                // Its own board is where the other one looks whether to wake it.
                rogue.memory.word(rng.usize(..32) * 4).store(rng.u32(..), Ordering::Relaxed);
                std::thread::yield_now();
            }
        }
        assert!(links > 2, "seed {seed}: {links} links");
    });
    // What is under way arrives.
    let [mut a, mut b] = ends;
    until("all frames of the honest", || {
        a.turn_without_sending(Turn::from_nanos(time()));
        b.turn_without_sending(Turn::from_nanos(time()));
        a.received == b.sent && b.received == a.sent
    });
    assert!(a.sent > 1000 && b.sent > 1000, "seed {seed}: {} and {}", a.sent, b.sent);
    assert!(one.counters().malformed > 2, "seed {seed}: {:?}", one.counters());
    assert_eq!(two.counters().malformed, 0);
}

impl Honest {
    fn turn_without_sending(&mut self, now: Turn) {
        let (sent, to) = (self.sent, self.to);
        // No member has number 64, so nothing is sent.
        self.to = 64;
        self.queue.begin(now);
        self.to = to;
        let received = &mut self.received;
        self.queue.receive(32, |frame| {
            let mut bytes = [0; 2000];
            let len = frame.copy_to(&mut bytes);
            *received += u32::from(len == 200 && bytes[18..200] == [to; 182]);
            true
        });
        assert_eq!(self.sent, sent);
    }
}

#[test]
fn strangers_and_unsound_messages_have_no_effect() {
    let scratch = Scratch::new();
    let one = join(&scratch.0);
    let rogue = Rogue::new(&scratch.0);
    let sound = rogue.hello(Kind::Link);
    let fds: &[&dyn AsFd] = &[&rogue.board, &rogue.event];
    let refused = |what, bytes: &[u8], fds: &[&dyn AsFd]| {
        assert!(rogue.ask(1, bytes, fds).is_none(), "{what}");
        assert_eq!(one.linked(), 0, "{what}");
    };
    refused("a number that no process has", &Hello { number: 9, ..sound }.emit(), fds);
    refused("the member's own number", &Hello { number: 1, ..sound }.emit(), fds);
    refused("more queues than eventfds", &Hello { queues: 2, ..sound }.emit(), fds);
    refused("an answer to no question", &rogue.hello(Kind::Welcome).emit(), fds);
    refused("no descriptors", &sound.emit(), &[]);
    refused("no eventfd", &sound.emit(), &[&rogue.board]);
    refused("another file as eventfd", &sound.emit(), &[&rogue.board, &rogue.board]);
    refused("an eventfd as board", &sound.emit(), &[&rogue.event, &rogue.event]);
    refused("a message that is cut off", &sound.emit()[..31], fds);
    refused("a longer one", &[0; 60], fds);
    refused("an empty one", &[], &[]);
    let (large, _memory) = Memory::create(2 * board_len(1)).unwrap();
    refused("a board of another size", &sound.emit(), &[&large, &rogue.event]);
    let mut other_version = sound.emit();
    other_version[8] ^= 1;
    refused("another version", &other_version, fds);
    let _linked = rogue.link(1).expect("the sound one is not");
    until("the link is noted", || one.linked() == 0b10);
}

/// More silent connections than a member keeps, and a listener that is flooded with them.
#[test]
fn silent_connections_keep_no_one_from_connecting() {
    let scratch = Scratch::new();
    let [one, two] = [join(&scratch.0), join(&scratch.0)];
    let rogue = Rogue::new(&scratch.0);
    let begin = Instant::now();
    let silent: Vec<_> = (0..200)
        .map(|_| {
            std::thread::sleep(Duration::from_micros(100));
            rogue.connect(1)
        })
        .collect();
    let mut ends = [Honest::new(&one, 2), Honest::new(&two, 1)];
    until("frames", || {
        for end in &mut ends {
            end.turn(Turn::from_nanos(begin.elapsed().as_nanos() as u64 + 1), None);
        }
        ends.iter().all(|end| end.received > 10)
    });
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
    // All are given up in time.
    for socket in silent {
        let mut byte = [0; 1];
        let received = rustix::net::recv(&socket, &mut byte, RecvFlags::empty());
        assert_eq!(received.map(|(_, len)| len), Ok(0));
    }
    assert!(begin.elapsed() < Duration::from_secs(5));
}

/// Both ask at the same time, and the member answers the rogue, which has the lower number.
#[test]
fn a_member_takes_its_question_back_before_it_answers_one() {
    for round in 0..200 {
        let scratch = Scratch::new();
        let rogue = Rogue::new(&scratch.0);
        let two = join(&scratch.0);
        let mut queue = two.queue(0).unwrap();
        let accept = || {
            let mut accepted = None;
            until("the member connects", || {
                accepted = rustix::net::accept_with(&rogue.listener, SocketFlags::CLOEXEC).ok();
                accepted.is_some()
            });
            let socket = accepted.unwrap();
            let mut bytes = [0; Hello::LEN];
            let (len, _fds) = seqpacket::receive(&socket, &mut bytes).unwrap();
            (socket, Hello::parse(&bytes[..len]).unwrap().kind)
        };
        let (_told, kind) = accept();
        assert_eq!(kind, Kind::Present);
        queue.begin(Turn::from_nanos(1));
        assert_eq!(queue.send(&frame(2, 1, 0)), Sent::Full);
        let (asked, kind) = accept();
        assert_eq!(kind, Kind::Link);
        let socket = rogue.connect(2);
        let hello = rogue.hello(Kind::Link).emit();
        seqpacket::send(&socket, &hello, &[rogue.board.as_fd(), rogue.event.as_fd()]).unwrap();
        // The rogue looks all the time, to see the member between two of its steps.
        let peek = |socket| {
            let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
            rustix::net::recv(socket, &mut [0; 1], flags).map(|(_, len)| len)
        };
        let begin = Instant::now();
        while peek(&socket) == Err(Errno::AGAIN) {
            assert!(begin.elapsed() < Duration::from_secs(10), "round {round}: no answer");
        }
        assert_eq!(peek(&socket), Ok(1), "round {round}: a Welcome");
        assert_eq!(peek(&asked), Ok(0), "round {round}: the question is still open");
    }
}

/// A member that has claimed its number and never answers.
#[test]
fn a_member_that_never_answers_is_given_up() {
    let scratch = Scratch::new();
    let one = join(&scratch.0);
    let rogue = Rogue::new(&scratch.0);
    let mut queue = one.queue(0).unwrap();
    let begin = Instant::now();
    let mut send = || {
        queue.begin(Turn::from_nanos(begin.elapsed().as_nanos() as u64 + 1));
        queue.send(&frame(1, 2, 0))
    };
    assert_eq!(send(), Sent::Full);
    until("it is given up", || send() == Sent::Lost);
    let time = begin.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(3)).contains(&time), "{time:?}");
    assert_eq!(send(), Sent::Lost, "at once from then on");
    drop(rogue);
    assert_eq!(one.take_ended(), 0, "there was no link");
    // A member that answers is reached under the same number.
    let two = join(&scratch.0);
    assert_eq!(two.number(), 2);
    until("a link", || send() == Sent::Taken);
}

/// The engine gives a frame up that waits for a link.
#[test]
fn a_frame_that_was_given_up_elsewhere_costs_the_next_one_no_patience() {
    let scratch = Scratch::new();
    let _rogue = Rogue::new(&scratch.0);
    let two = join(&scratch.0);
    let mut queue = two.queue(0).unwrap();
    until("the rogue is known", || two.shared.present() == bit(1));
    let mut send_at = |ms: u64, to: &[u8; 6]| {
        queue.begin(Turn::from_nanos(ms * 1_000_000));
        let mut frame = frame(2, 1, 0);
        frame[..6].copy_from_slice(to);
        queue.send(&frame)
    };
    for to in [mac_of(1).0, [0xff; 6]] {
        assert_eq!([1, 40].map(|ms| send_at(ms, &to)), [Sent::Full; 2]);
        assert_eq!([10_000, 10_040].map(|ms| send_at(ms, &to)), [Sent::Full; 2]);
    }
    assert_eq!(send_at(10_080, &[0xff; 6]), Sent::Taken, "its own patience ends");
}

/// Frames of a member that has left, and the bits that it has set, are received to the last.
#[test]
fn what_was_sent_before_the_end_is_received() {
    let scratch = Scratch::new();
    let one = join(&scratch.0);
    let mut queue = one.queue(0).unwrap();
    let rogue = Rogue::new(&scratch.0);
    let linked = rogue.link(1).unwrap();
    let memory = Arc::new(linked.memory);
    let far = crate::link::Far {
        number: 1,
        id: 0,
        frame_max: FRAME_MAX,
        board: Arc::new(Board::new(linked.board, Box::default())),
    };
    let mut end = LinkEnd::new(&far, linked.sides, &memory, 0);
    for number in 0..100 {
        end.push(&frame(2, 1, number), Turn::ZERO).unwrap();
    }
    end.tx.publish();
    drop(linked.socket);
    until("the link ends", || one.linked() == 0);
    // Its bit was never set.
    end.push(&frame(2, 1, 100), Turn::ZERO).unwrap();
    end.tx.publish();
    let mut came = 0;
    until("the end is reported", || {
        let ended = one.take_ended();
        assert!(ended == 0 || came >= 100, "{came} came");
        came += queue.receive(7, |_| true);
        ended == bit(2)
    });
    assert!(came == 100 || came == 101, "{came}");
}
