//! State that a member's thread, its queues and its owner share.
//!
//! ```text
//!   queues ── wanted ──▶ thread ── present, refused ──▶ queues
//!                        thread ── linked, ended ─────▶ owner ── forgotten ──▶ thread
//! ```
//!
//! Each word has bit *n* − 1 for the member with number *n*.

use crate::board::bit;
use rustix::event::EventfdFlags;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::sync::{AtomicBool, AtomicU64, Ordering};
use uroce_shared::wake::waker::Waker;

/// State by which the parts of a member inform each other.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Members to which a queue has frames and no link.
    wanted: AtomicU64,
    /// Members that are there, as far as the thread has heard.
    present: AtomicU64,
    /// Members to which no link could be made.
    refused: AtomicU64,
    /// Members to which there is a link.
    linked: AtomicU64,
    /// Members that have ended and were not reported.
    ended: AtomicU64,
    /// Members that have ended and that the owner has not forgotten.
    known: AtomicU64,
    /// Whether the thread is to end.
    is_over: AtomicBool,
    /// Whether the bell was rung and the thread has not looked since.
    is_rung: AtomicBool,
    bell: EventFd,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl Shared {
    /// Makes the state of a member without links.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new() -> io::Result<Shared> {
        Ok(Shared {
            wanted: AtomicU64::new(0),
            present: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            linked: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            known: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_rung: AtomicBool::new(false),
            bell: EventFd::new(EventfdFlags::NONBLOCK)?,
            waker: Mutex::new(None),
        })
    }

    /// Queue: asks for links. Enters the kernel only if the thread was not called already.
    pub(crate) fn want(&self, members: u64) {
        self.wanted.fetch_or(members, Ordering::AcqRel);
        self.ring();
    }

    /// Calls the thread.
    pub(crate) fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            self.bell.signal();
        }
    }

    /// Thread: returns the descriptor that is readable after a call.
    pub(crate) fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Thread: takes a call. What was asked before it is seen after this.
    pub(crate) fn answer(&self) {
        self.bell.drain();
        self.is_rung.swap(false, Ordering::AcqRel);
    }

    /// Thread: takes the members to which links are asked for.
    pub(crate) fn take_wanted(&self) -> u64 {
        self.wanted.swap(0, Ordering::AcqRel)
    }

    /// Returns the members that are there.
    pub(crate) fn present(&self) -> u64 {
        self.present.load(Ordering::Acquire)
    }

    /// Returns the members to which no link could be made when it was last tried.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    /// Returns the members to which there is a link.
    pub(crate) fn linked(&self) -> u64 {
        self.linked.load(Ordering::Acquire)
    }

    /// Thread: a member is there.
    pub(crate) fn note_present(&self, members: u64) {
        self.present.fetch_or(members, Ordering::AcqRel);
        self.refused.fetch_and(!members, Ordering::AcqRel);
    }

    /// Thread: no link to a member can be made; `is_absent` if there is no such member.
    pub(crate) fn note_refused(&self, number: u8, is_absent: bool) {
        self.refused.fetch_or(bit(number), Ordering::AcqRel);
        if is_absent {
            self.present.fetch_and(!bit(number), Ordering::AcqRel);
        }
    }

    /// Thread: a link has begun.
    pub(crate) fn note_linked(&self, number: u8) {
        self.note_present(bit(number));
        self.linked.fetch_or(bit(number), Ordering::AcqRel);
        self.wake();
    }

    /// Thread: a link has ended; `is_absent` if its member has, too.
    pub(crate) fn note_unlinked(&self, number: u8, is_absent: bool) {
        self.linked.fetch_and(!bit(number), Ordering::AcqRel);
        if is_absent {
            self.present.fetch_and(!bit(number), Ordering::AcqRel);
        }
        self.wake();
    }

    /// Thread: all that a member has sent was received.
    pub(crate) fn note_ended(&self, number: u8) {
        self.known.fetch_or(bit(number), Ordering::AcqRel);
        self.ended.fetch_or(bit(number), Ordering::AcqRel);
        self.wake();
    }

    /// Returns the members that have ended and that the owner has not forgotten.
    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// Owner: keeps nothing of these members any more.
    pub(crate) fn forget(&self, members: u64) {
        self.known.fetch_and(!members, Ordering::AcqRel);
    }

    /// Owner: takes the members that have ended.
    pub(crate) fn take_ended(&self) -> u64 {
        match self.ended.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.ended.swap(0, Ordering::AcqRel),
        }
    }

    /// Owner: sets what is woken when a link has begun or ended.
    pub(crate) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake();
        }
    }

    /// Owner: tells the thread to end.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ring();
    }

    /// Returns whether the member has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Thread: there are no links any more, and no more will be made.
    pub(crate) fn close(&self) {
        self.linked.store(0, Ordering::Release);
        self.present.store(0, Ordering::Release);
        self.refused.store(u64::MAX, Ordering::Release);
    }
}
