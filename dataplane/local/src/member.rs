//! Membership of a process: its number, its thread, its queues.

use crate::board::{Board, board_len};
use crate::claim::Claim;
use crate::directory::Directory;
use crate::memory::Memory;
use crate::queue::{Cells, Core, Home, Parts};
use crate::shared::Shared;
use crate::system::block_signals;
use crate::thread::{Keeper, QueueWire};
use crate::{
    Counters, FRAME_MAX, FRAME_MIN, Holder, JoinError, MEMBERS_MAX, QUEUES_MAX, Queue, QueueError,
    mac_of,
};
use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::wake::waker::Waker;
use uroce_wire::Mac;

/// Slots of the rings between the thread and a queue: news about all members, and more.
const NEWS: usize = 256;

/// The parameters with which a process joins a fabric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberConfig {
    /// The directory in which members of a fabric meet. It is made, with mode 0700, if it does not
    /// exist.
    pub directory: PathBuf,
    /// The number to take; the smallest free one if `None`.
    pub number: Option<u8>,
    /// Number of queues, 1 to [`QUEUES_MAX`].
    pub queues: u16,
    /// Length of the longest frame to receive, in bytes, at most [`FRAME_MAX`].
    pub frame_max: usize,
}

/// A member of the fabric. Dropping it ends its links and gives its number back. Its queues may be
/// dropped before or after it; without it they send and receive nothing new.
///
/// In a forked child a member is none any more: it holds no number, and dropping it changes nothing
/// for the parent.
#[derive(Debug)]
pub struct Member {
    claim: Arc<Claim>,
    pub(crate) shared: Arc<Shared>,
    queues: Box<[QueueSeat]>,
    thread: Option<JoinHandle<()>>,
}

/// A queue from the member's view.
#[derive(Debug)]
struct QueueSeat {
    home: Arc<Home>,
    counters: Arc<Cells>,
}

impl Member {
    /// Takes a number and starts the member's thread.
    ///
    /// # Errors
    /// [`JoinError`]; nothing is left behind then.
    pub fn join(config: MemberConfig) -> Result<Member, JoinError> {
        let MemberConfig { directory, number, queues, frame_max } = config;
        if let Some(number) = number.filter(|number| !(1..=MEMBERS_MAX).contains(number)) {
            return Err(JoinError::Number(number));
        }
        let is_possible =
            (1..=QUEUES_MAX).contains(&queues) && (FRAME_MIN..=FRAME_MAX).contains(&frame_max);
        if !is_possible {
            return Err(JoinError::Size { queues, frame_max });
        }
        let (claim, listener) = Claim::take(Directory::open(&directory)?, number)?;
        let claim = Arc::new(claim);
        let system = |step, error: io::Error| JoinError::System {
            directory: directory.clone(),
            step,
            error,
        };
        let shared = Shared::new().map_err(|error| system("no eventfd", error))?;
        let shared = Arc::new(shared);
        let (board_file, board) = make_board(queues).map_err(|error| system("no memory", error))?;
        let board = Arc::new(board);
        let (seats, wires) = (0..queues)
            .map(|index| seat(claim.number(), index, frame_max, &board, &shared))
            .collect::<(Vec<_>, Vec<_>)>();
        let life = getrandom::u64()
            .map_err(|_| system("no random numbers", io::ErrorKind::Unsupported.into()))?;
        let keeper = Keeper {
            claim: Arc::clone(&claim),
            shared: Arc::clone(&shared),
            board,
            board_file,
            listener,
            queues: wires,
            frame_max,
            life,
            peers: Default::default(),
        };
        let body = move || {
            block_signals();
            keeper.run();
        };
        let thread = std::thread::Builder::new().name("uroce-local".into()).spawn(body);
        let thread = Some(thread.map_err(|error| system("no thread", error))?);
        Ok(Member { claim, shared, queues: seats.into(), thread })
    }

    /// Returns the member's number, 1 to 64.
    pub fn number(&self) -> u8 {
        self.claim.number()
    }

    /// Returns the member's address: 02:75:72:6f:63:NN, where NN is its number.
    pub fn mac(&self) -> Mac {
        mac_of(self.number())
    }

    /// Returns the number of queues.
    pub fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    /// Takes queue `index`. Dropping it gives it back.
    ///
    /// # Errors
    /// There is no such queue, or it is taken.
    pub fn queue(&self, index: u16) -> Result<Queue, QueueError> {
        let seat = self.queues.get(usize::from(index));
        let seat = seat.ok_or(QueueError::OutOfRange { index, queues: self.queues() })?;
        Queue::take(&seat.home).ok_or(QueueError::Taken { index })
    }

    /// Returns the members that have ended, or were replaced by another process, since the last
    /// call: bit *n* − 1 for number *n*. All that such a member has sent was received then, unless
    /// a queue was not polled for 100 ms. Only members with which there was a link are reported;
    /// one that has broken the rules of the shared memory is reported too, as its link was closed.
    pub fn take_ended(&self) -> u64 {
        self.shared.take_ended()
    }

    /// Tells that the owner keeps nothing of these members that have ended, as
    /// [`take_ended`](Member::take_ended) gave them. Only then the next members with their numbers
    /// are linked, so that what an owner ends for a dead member is never its successor's. A
    /// successor waits for 100 ms at most.
    pub fn forget(&self, members: u64) {
        self.shared.forget(members);
    }

    /// Returns the members to which there is a link: bit *n* − 1 for number *n*.
    pub fn linked(&self) -> u64 {
        self.shared.linked()
    }

    /// Sets the waker that is used when a link has begun or ended, and when
    /// [`take_ended`](Member::take_ended) has something new.
    pub fn set_waker(&self, waker: Option<Arc<Waker>>) {
        self.shared.set_waker(waker);
    }

    /// Returns all members of the directory, this one included, in order of their numbers. Asks the
    /// system.
    pub fn members(&self) -> Vec<Holder> {
        self.claim.holders()
    }

    /// Returns the sum of the counters of all queues.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.queues.iter().for_each(|seat| sum.add(&seat.counters.read()));
        sum
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.claim.is_of_this_process() {
            // The thread is the parent's.
            std::mem::forget(thread);
            return;
        }
        self.shared.end();
        if let Some(Err(panic)) = thread.map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

fn make_board(queues: u16) -> io::Result<(std::os::fd::OwnedFd, Board)> {
    let (file, memory) = Memory::create(board_len(queues))?;
    let event = |_| EventFd::new(EventfdFlags::NONBLOCK);
    let events: io::Result<Box<[EventFd]>> = (0..queues).map(event).collect();
    Ok((file, Board::new(memory, events?)))
}

/// Makes a queue: what the member keeps of it, and what its thread does.
fn seat(
    number: u8,
    index: u16,
    frame_max: usize,
    board: &Arc<Board>,
    shared: &Arc<Shared>,
) -> (QueueSeat, QueueWire) {
    let (news, news_end) = rtrb::RingBuffer::new(NEWS);
    let (back_end, back) = rtrb::RingBuffer::new(NEWS);
    let counters = Arc::new(Cells::default());
    let core = Core::new(Parts {
        number,
        index,
        frame_max,
        board: Arc::clone(board),
        shared: Arc::clone(shared),
        news: news_end,
        back: back_end,
        counters: Arc::clone(&counters),
    });
    let home = Arc::new(Mutex::new(Some(Box::new(core))));
    let wire = QueueWire { news, back, home: Arc::clone(&home), late: VecDeque::new() };
    (QueueSeat { home, counters }, wire)
}
