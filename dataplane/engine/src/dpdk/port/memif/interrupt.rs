//! Interrupts of a memif link's receive rings, which DPDK's driver leaves masked.
//!
//! A ring has a flag in the shared memory by which its receiver masks the interrupt, and an eventfd
//! that the sender writes to after each burst while the interrupt is not masked. DPDK's driver
//! always polls. The link thread sees the memory and the eventfds in the handshake, and maps the
//! flags a second time:
//!
//! ```text
//!   Offer: regions and rings of the handshake ──connect──▶ Interrupts ◀──arm, disarm── queue pairs
//! ```
//!
//! Invariants
//! - A queue that is armed while no peer is connected is woken when one connects.
//! - Memory is mapped only if its owner has sealed it against shrinking, so no access can fault.
//!
//! Not here: protection from a peer that breaks the protocol; the driver has none either.

use super::channel::Message;
use crate::dpdk::eal::lock;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use uroce_shared::sync::wakers::Wakers;
use uroce_shared::sync::{AtomicU16, Mutex, Ordering};
use uroce_shared::wake::bed::Bed;
use uroce_shared::wake::bell::Bell;

/// The first word of a memif ring.
const COOKIE: u32 = 0x03e3_1f20;
/// Offset of a ring's flags, and the flag that masks its interrupt.
const FLAGS_AT: usize = 4;
const MASKED: u16 = 1;
/// Bytes of a ring's head that are mapped.
const HEAD_LEN: u64 = 8;

/// The regions and rings that a handshake has offered.
#[derive(Debug, Default)]
pub(super) struct Offer {
    regions: Vec<(u16, OwnedFd)>,
    rings: Vec<RingOffer>,
}

#[derive(Debug)]
struct RingOffer {
    /// Whether frames go from the client to the server.
    is_to_server: bool,
    index: u16,
    region: u16,
    offset: u32,
    event: OwnedFd,
}

/// The interrupts of a port's receive queues.
#[derive(Debug)]
pub(in crate::dpdk::port) struct Interrupts(Mutex<State>);

#[derive(Debug)]
struct State {
    peer: Peer,
    /// For each queue, the bed of the owner's thread and the bell that also wakes it.
    beds: Vec<Option<(Arc<Wakers>, Arc<Bell>)>>,
}

/// The source that wakes an armed queue.
#[derive(Debug)]
enum Peer {
    /// No peer is connected.
    None,
    /// The queues have to be polled: the peer is leaving, or has offered no interrupts.
    Polled,
    /// The receive rings by queue number; `None` for a queue without a ring.
    Rings(Vec<Option<Ring>>),
}

/// The mapped head of a ring.
#[derive(Debug)]
struct Ring {
    map: NonNull<u8>,
    len: usize,
    flags: NonNull<AtomicU16>,
    event: OwnedFd,
}

// SAFETY: the pointers are to shared memory that is accessed by atomics only; it stays mapped until
// the value is dropped, on any thread.
unsafe impl Send for Ring {}

impl Offer {
    /// Records a message of the handshake.
    pub(super) fn note(&mut self, message: &Message) {
        let Some(Ok(fd)) = message.fd().map(OwnedFd::try_clone) else { return };
        let short = |at| u16::from_ne_bytes(message.number(at));
        match message.kind() {
            Message::ADD_REGION => self.regions.push((short(2), fd)),
            Message::ADD_RING => self.rings.push(RingOffer {
                is_to_server: short(2) & 1 == 1,
                index: short(4),
                region: short(6),
                offset: u32::from_ne_bytes(message.number(8)),
                event: fd,
            }),
            _ => {}
        }
    }

    /// Returns the rings that this end receives from; `None` if one of them cannot wake a thread.
    fn into_rings(self, is_server: bool, queues: usize) -> Option<Vec<Option<Ring>>> {
        let mut rings: Vec<_> = (0..queues).map(|_| None).collect();
        let mut any = false;
        for ring in self.rings.into_iter().filter(|ring| ring.is_to_server == is_server) {
            let place = rings.get_mut(usize::from(ring.index))?;
            let (_, memory) = self.regions.iter().find(|(index, _)| *index == ring.region)?;
            *place = Some(Ring::map(memory, ring.offset, ring.event)?);
            any = true;
        }
        any.then_some(rings)
    }
}

impl Ring {
    /// Maps the head of a ring at `offset` of a region.
    fn map(memory: &OwnedFd, offset: u32, event: OwnedFd) -> Option<Ring> {
        let offset = u64::from(offset);
        let is_sealed =
            fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let size = u64::try_from(fstat(memory).ok()?.st_size).ok()?;
        if !is_sealed || offset % 4 != 0 || offset + HEAD_LEN > size {
            return None;
        }
        let page = rustix::param::page_size() as u64;
        let begin = offset / page * page;
        let (within, len) = ((offset - begin) as usize, (offset - begin + HEAD_LEN) as usize);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so the mapping overlaps no other.
        let map =
            unsafe { mmap(std::ptr::null_mut(), len, rights, MapFlags::SHARED, memory, begin) };
        let map = NonNull::new(map.ok()?.cast::<u8>())?;
        // SAFETY: `within` is less than `len`, the length of the mapping.
        let head = unsafe { map.add(within) };
        // SAFETY: `within + FLAGS_AT` is inside the `len` bytes of the mapping, and even: a mapping
        // begins at a page, and the offset is a multiple of 4.
        let flags = unsafe { head.add(FLAGS_AT) }.cast::<AtomicU16>();
        let ring = Ring { map, len, flags, event };
        // SAFETY: the `HEAD_LEN` bytes at `head` are mapped, and `head` is aligned to 4.
        let cookie = unsafe { head.cast::<u32>().read_volatile() };
        (cookie == COOKIE).then_some(ring)
    }

    /// Masks the interrupt, or lets the sender write to the eventfd after each burst.
    fn set_masked(&self, is_masked: bool) {
        // SAFETY: the flags are mapped as long as `self`, and the file behind them is sealed
        // against shrinking. Only this end writes the flags of a ring that it receives from.
        let flags = unsafe { self.flags.as_ref() };
        flags.store(if is_masked { MASKED } else { 0 }, Ordering::Relaxed);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length, and nothing refers to it any more.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.len) };
    }
}

impl Interrupts {
    /// Makes the interrupts of a port to which no peer is connected.
    pub(super) fn new(queues: u16) -> Interrupts {
        let beds = (0..queues).map(|_| None).collect();
        Interrupts(Mutex::new(State { peer: Peer::None, beds }))
    }

    /// Called when the queue's owner will sleep in this bed from now on.
    ///
    /// # Errors
    /// The system is out of memory.
    pub(in crate::dpdk::port) fn listen(&self, queue: u16, bed: &Bed) -> io::Result<()> {
        let mut state = lock(&self.0);
        let at = usize::from(queue);
        if let Some(ring) = state.ring(at) {
            bed.wakers().add(&ring.event)?;
        }
        state.beds[at] = Some((Arc::clone(bed.wakers()), Arc::clone(bed.bell())));
        Ok(())
    }

    /// Arms the queue: frames wake its owner from now on. Returns false if the queue has to be
    /// polled.
    pub(in crate::dpdk::port) fn arm(&self, queue: u16) -> bool {
        let state = lock(&self.0);
        if let Some(ring) = state.ring(usize::from(queue)) {
            ring.set_masked(false);
        }
        !matches!(state.peer, Peer::Polled)
    }

    /// Disarms the queue: it is polled again.
    pub(in crate::dpdk::port) fn disarm(&self, queue: u16) {
        if let Some(ring) = lock(&self.0).ring(usize::from(queue)) {
            ring.set_masked(true);
        }
    }

    /// Called after a handshake has connected the driver; takes over the rings that it offered.
    pub(super) fn connect(&self, offer: Offer, is_server: bool) {
        let mut state = lock(&self.0);
        let rings = offer.into_rings(is_server, state.beds.len());
        let is_awake = |rings: &Vec<Option<Ring>>| {
            let mut pairs = rings.iter().zip(&state.beds);
            pairs.all(|pair| match pair {
                (Some(ring), Some((wakers, _))) => wakers.add(&ring.event).is_ok(),
                _ => true,
            })
        };
        let peer = rings.filter(is_awake).map_or(Peer::Polled, Peer::Rings);
        state.turn_to(peer);
    }

    /// Called when the peer has left: the frames in the rings have to be polled.
    pub(super) fn disconnect(&self) {
        lock(&self.0).turn_to(Peer::Polled);
    }

    /// Called when nothing more can arrive until a peer connects again.
    pub(super) fn end(&self) {
        lock(&self.0).turn_to(Peer::None);
    }
}

impl State {
    fn ring(&self, queue: usize) -> Option<&Ring> {
        match &self.peer {
            Peer::Rings(rings) => rings.get(queue)?.as_ref(),
            _ => None,
        }
    }

    /// Changes to another peer, or none, and wakes all owners: their queues may be armed for the
    /// peer before.
    fn turn_to(&mut self, peer: Peer) {
        let before = std::mem::replace(&mut self.peer, peer);
        if let Peer::Rings(rings) = before {
            for (ring, bed) in rings.into_iter().zip(&self.beds) {
                if let (Some(ring), Some((wakers, _))) = (ring, bed) {
                    wakers.remove(&ring.event);
                }
            }
        }
        self.beds.iter().flatten().for_each(|(_, bell)| bell.ring());
    }
}
