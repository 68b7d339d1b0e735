//! The port of a process to all others of its machine that share a directory: frames go through
//! shared memory, without a device.
//!
//! Invariants
//! - The frames to one peer stay in their order. Frames that wait for a peer without room do not
//!   hold up frames to other peers, as long as not more than [`PARKED`] wait.
//!
//! Not here: membership, links and rings ([`uroce_local`]).

use super::spare::Spare;
use super::{Capabilities, FRAME_OVERHEAD, Link, PortStats, QueueError};
use crate::dpdk::eal::lock;
use crate::dpdk::mbuf::{BATCH, Mbuf, MbufBatch, Mempool};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use uroce_local::{Member, MemberConfig, Queue, Sent};
use uroce_shared::sync::{AtomicBool, AtomicU64, Ordering};
use uroce_shared::wake::bed::Bed;
use uroce_shared::wake::waker::Waker;
use uroce_transport::Instant;
use uroce_wire::Mac;

/// Largest number of frames that wait for peers without room, beside those in the batch: the
/// batches of four such peers.
const PARKED: usize = 4 * BATCH;
/// The link rate that is reported to programs, in Mb/s: about that of shared memory. Some programs
/// choose their paths by it.
const SPEED_MBPS: u32 = 100_000;
/// Largest MTU that uroce supports.
const MTU_MAX: u16 = 9000;

/// Reason for which a process could not join the others of its machine.
pub type LocalError = uroce_local::JoinError;

/// The configuration of [`Port::join`](super::Port::join).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalConfig {
    /// Directory that the processes share. It is made, for this user alone, if it does not exist.
    pub directory: PathBuf,
    /// Number of this process, 1 to 64; `None` for the smallest that is free.
    pub member: Option<u8>,
    /// Pairs of a receive and a transmit queue, 1 to 32.
    pub queue_pairs: u16,
    /// Largest Ethernet payload in bytes, up to 9000.
    pub mtu: u16,
}

/// A process's port to the others of its machine.
#[derive(Debug)]
pub struct LocalPort {
    member: Arc<Member>,
    mtu: u16,
    pool: Mempool,
    capabilities: Capabilities,
    /// Whether the link is set down.
    is_down: AtomicBool,
    /// Whether the link was set down or up since [`take_link_moved`](LocalPort::take_link_moved)
    /// was called last.
    has_moved: AtomicBool,
    /// Peers that have ended and are yet to be reported: bit *n* − 1 for member *n*.
    ended: AtomicU64,
    /// The peer that was last reported, as a bit, until the report is over.
    reported: AtomicU64,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl LocalPort {
    /// Joins the processes that share the directory.
    pub(super) fn join(config: LocalConfig, pool: &Mempool) -> Result<LocalPort, LocalError> {
        let LocalConfig { directory, member, queue_pairs, mtu } = config;
        let frame_max =
            usize::from(mtu.min(MTU_MAX) + FRAME_OVERHEAD).min(usize::from(pool.room()));
        let config = MemberConfig { directory, number: member, queues: queue_pairs, frame_max };
        let member = Member::join(config)?;
        let capabilities = Capabilities {
            name: format!("local{}", member.number()),
            driver: "local".to_owned(),
            max_queue_pairs: uroce_local::QUEUES_MAX,
            max_mtu: Some(MTU_MAX),
            rss: false,
            rss_ports: false,
            steering: false,
            rx_checksum: false,
            tx_checksum: false,
            vlan_strip: false,
            vlan_insert: false,
            tx_segments: false,
            has_link_interrupt: false,
            link_interrupt: false,
            numa_node: None,
        };
        Ok(LocalPort {
            member: Arc::new(member),
            mtu,
            pool: pool.clone(),
            capabilities,
            is_down: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            waker: Mutex::new(None),
        })
    }

    pub(super) fn queue_pair(&self, index: u16) -> Result<LocalQueues, QueueError> {
        let queue = self.member.queue(index).map_err(|error| match error {
            uroce_local::QueueError::OutOfRange { index, queues } => {
                QueueError::OutOfRange { index, pairs: queues.into() }
            }
            uroce_local::QueueError::Taken { index } => QueueError::Taken { index },
        })?;
        Ok(LocalQueues {
            queue,
            index,
            spare: Spare::of(&self.pool),
            parked: VecDeque::with_capacity(PARKED),
            waiting: Waiting::default(),
            _member: Arc::clone(&self.member),
        })
    }

    pub(super) fn queue_pairs(&self) -> u16 {
        self.member.queues()
    }

    pub(super) fn member(&self) -> u8 {
        self.member.number()
    }

    pub(super) fn mac(&self) -> Mac {
        self.member.mac()
    }

    pub(super) fn mtu(&self) -> u16 {
        self.mtu
    }

    pub(super) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub(super) fn link(&self) -> Link {
        Link { up: !self.is_down.load(Ordering::Acquire), speed_mbps: Some(SPEED_MBPS) }
    }

    pub(super) fn set_link(&self, up: bool) {
        self.is_down.store(!up, Ordering::Release);
        self.has_moved.store(true, Ordering::Release);
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake();
        }
    }

    pub(super) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        self.member.set_waker(waker.clone());
        *lock(&self.waker) = waker;
    }

    pub(super) fn has_link_moved(&self) -> bool {
        self.gather_ended();
        self.has_moved.load(Ordering::Acquire) || self.ended.load(Ordering::Acquire) != 0
    }

    pub(super) fn take_link_moved(&self) -> bool {
        self.has_moved.swap(false, Ordering::AcqRel)
    }

    /// Returns a peer that has ended; `None` if there is no other. Call it when nothing refers to
    /// the peer of the call before: that peer is forgotten.
    pub(super) fn take_ended_peer(&self) -> Option<Mac> {
        self.member.forget(self.reported.swap(0, Ordering::AcqRel));
        self.gather_ended();
        let ended = self.ended.load(Ordering::Acquire);
        let at = ended.trailing_zeros();
        (ended != 0).then(|| {
            self.ended.fetch_and(!(1 << at), Ordering::AcqRel);
            self.reported.store(1 << at, Ordering::Release);
            uroce_local::mac_of(at as u8 + 1)
        })
    }

    fn gather_ended(&self) {
        let ended = self.member.take_ended();
        if ended != 0 {
            self.ended.fetch_or(ended, Ordering::AcqRel);
        }
    }

    pub(super) fn stats(&self) -> PortStats {
        let counters = self.member.counters();
        PortStats {
            rx_packets: counters.rx_frames,
            tx_packets: counters.tx_frames,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            tx_errors: counters.tx_stuck + counters.tx_no_member + counters.tx_length,
            ..PortStats::default()
        }
    }

    pub(super) fn xstats(&self) -> Vec<(String, u64)> {
        let counters = self.member.counters();
        counters.by_name().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A queue pair of a local port.
#[derive(Debug)]
pub(super) struct LocalQueues {
    queue: Queue,
    index: u16,
    spare: Spare,
    /// Frames that wait for peers without room. Those of one peer are in their order.
    parked: VecDeque<Mbuf>,
    /// Receivers of the frames in `parked`.
    waiting: Waiting,
    /// Keeps this process a member: otherwise the queue carries nothing.
    _member: Arc<Member>,
}

impl LocalQueues {
    pub(super) fn index(&self) -> u16 {
        self.index
    }

    #[inline]
    pub(super) fn begin(&mut self, now: Instant) {
        self.queue.begin(now);
    }

    #[inline]
    pub(super) fn rx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        let Self { queue, spare, .. } = self;
        queue.receive(batch.room(), |frame| {
            spare.receive(batch, frame.len(), |mbuf| {
                frame.copy_to(mbuf.as_mut_slice());
            })
        })
    }

    #[inline]
    pub(super) fn tx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        if !self.parked.is_empty() {
            self.send_parked();
        }
        let count = batch.len();
        let sent = if self.parked.is_empty() { self.send_all(batch.as_slice()) } else { 0 };
        if sent == count {
            batch.clear();
        } else {
            self.send_or_park(batch, sent);
        }
        self.queue.flush();
        count - batch.len()
    }

    /// Sends frames up to the first that has to wait. Returns their number.
    #[inline]
    fn send_all(&mut self, frames: &[Mbuf]) -> usize {
        let is_full = |mbuf: &Mbuf| self.queue.send(mbuf.as_slice()) == Sent::Full;
        frames.iter().position(is_full).unwrap_or(frames.len())
    }

    /// Sends the frames of a batch from place `first` on. Those that have to wait are parked, or
    /// stay if there are too many.
    #[cold]
    fn send_or_park(&mut self, batch: &mut MbufBatch, first: usize) {
        let mut rest = MbufBatch::new();
        let mut staying = Waiting::default();
        for mbuf in batch.drain().skip(first) {
            let must_wait = self.waiting.has(&mbuf) || staying.has(&mbuf);
            if !must_wait && self.queue.send(mbuf.as_slice()) != Sent::Full {
                continue;
            }
            if self.parked.len() < PARKED && !staying.has(&mbuf) {
                self.waiting.add(&mbuf);
                self.parked.push_back(mbuf);
            } else {
                staying.add(&mbuf);
                let pushed = rest.push(mbuf);
                debug_assert!(pushed.is_ok(), "both batches have the same capacity");
            }
        }
        *batch = rest;
    }

    /// Sends the parked frames for which there is room by now.
    #[cold]
    fn send_parked(&mut self) {
        let mut waiting = Waiting::default();
        for _ in 0..self.parked.len() {
            let Some(mbuf) = self.parked.pop_front() else { break };
            if waiting.has(&mbuf) || self.queue.send(mbuf.as_slice()) == Sent::Full {
                waiting.add(&mbuf);
                self.parked.push_back(mbuf);
            }
        }
        self.waiting = waiting;
    }

    /// Returns whether frames to this address have to wait.
    pub(super) fn is_waiting(&self, mac: Mac) -> bool {
        self.waiting.has_address(mac)
    }

    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Drops the parked frames; returns how many.
    pub(super) fn drop_parked(&mut self) -> usize {
        let count = self.parked.len();
        self.parked.clear();
        self.waiting = Waiting::default();
        count
    }

    pub(super) fn listen(&self, bed: &Bed) -> io::Result<()> {
        bed.wakers().add(self.queue.event_fd())
    }

    pub(super) fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    pub(super) fn disarm(&mut self) {
        self.queue.disarm();
    }

    pub(super) fn stuck_drops(&self) -> u64 {
        self.queue.counters().tx_stuck
    }
}

/// Receivers for which a frame waits: bit *n* − 1 for member *n*, and whether one to a group does.
/// Frames to groups and to single members may overtake each other.
#[derive(Clone, Copy, Default, Debug)]
struct Waiting {
    members: u64,
    has_group: bool,
}

impl Waiting {
    /// The member with an address, as a bit; 0 for a group and for no member.
    fn member(mac: Mac) -> u64 {
        uroce_local::number_of(mac).map_or(0, |number| 1 << (number - 1))
    }

    fn has_address(&self, mac: Mac) -> bool {
        self.members & Self::member(mac) != 0 || self.has_group && mac.is_multicast()
    }

    fn has(&self, mbuf: &Mbuf) -> bool {
        self.has_address(destination(mbuf))
    }

    fn add(&mut self, mbuf: &Mbuf) {
        let mac = destination(mbuf);
        self.members |= Self::member(mac);
        self.has_group |= mac.is_multicast();
    }
}

fn destination(mbuf: &Mbuf) -> Mac {
    mbuf.as_slice().first_chunk().map(|bytes| Mac(*bytes)).unwrap_or_default()
}
