//! Responder resources: accepted requests with a response of their own (READ, ATOMIC, ATOMIC WRITE,
//! FLUSH), kept to be answered and to be answered again.
//!
//! Read first: IBA 9.7.4 and 9.7.5.
//!
//! Invariants
//! - The newest `max_dest_rd_atomic` requests (rounded up to a power of two, because some peers
//!   round theirs up) can be replayed. An older request makes room for a new one once it is
//!   answered.
//! - FLUSHes do not count, since some peers do not count them. While there are any, all sixteen
//!   records are used, so that they take neither room nor a record from what counts.
//! - An ATOMIC is kept with its result: it is replayed, never executed twice.
//! - Answers are sent in the order of the requests. Only the oldest answer that is due may be
//!   partly sent; all others begin at their first packet.

use uroce_wire::{Psn, Reth, Rkey, Va};

use crate::attr::MAX_RD_ATOMIC;
use crate::context::packets;

/// Operation that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum PendingAnswer {
    Read { va: Va, rkey: Rkey, len: u32 },
    Atomic { original: u64 },
}

/// A request that was executed when it came, and has an empty response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placed {
    AtomicWrite,
    Flush,
}

/// One accepted request. Every QP has sixteen of them, so they are packed.
#[derive(Clone, Copy, Default, Debug)]
struct Record {
    /// Address of a READ or result of an ATOMIC, high half first.
    value: [u32; 2],
    rkey: u32,
    len: u32,
    /// First PSN in the low 24 bits, flags above it.
    psn: u32,
}

const _: () = assert!(size_of::<Record>() == 20);

impl Record {
    const IS_ATOMIC: u32 = 1 << 24;
    /// The whole answer has been sent once.
    const IS_ANSWERED: u32 = 1 << 25;
    /// The answer, or a repetition of it, is due.
    const IS_OWED: u32 = 1 << 26;
    /// An ATOMIC WRITE or FLUSH: the answer is that of a READ of no bytes.
    const IS_ATOMIC_WRITE: u32 = 1 << 27;
    const IS_FLUSH: u32 = 1 << 28;

    fn new(asked: PendingAnswer, first_psn: Psn) -> Record {
        let (value, rkey, len, kind) = match asked {
            PendingAnswer::Read { va, rkey, len } => (va.0, rkey.0, len, 0),
            PendingAnswer::Atomic { original } => (original, 0, 0, Record::IS_ATOMIC),
        };
        let value = [(value >> 32) as u32, value as u32];
        Record { value, rkey, len, psn: first_psn.value() | kind | Record::IS_OWED }
    }

    fn flag_of(placed: Placed) -> u32 {
        match placed {
            Placed::AtomicWrite => Record::IS_ATOMIC_WRITE,
            Placed::Flush => Record::IS_FLUSH,
        }
    }

    fn asked(&self) -> PendingAnswer {
        let value = u64::from(self.value[0]) << 32 | u64::from(self.value[1]);
        match self.has(Record::IS_ATOMIC) {
            true => PendingAnswer::Atomic { original: value },
            false => PendingAnswer::Read { va: Va(value), rkey: Rkey(self.rkey), len: self.len },
        }
    }

    fn has(&self, flag: u32) -> bool {
        self.psn & flag != 0
    }

    fn first_psn(&self) -> Psn {
        Psn::new(self.psn)
    }
}

/// Progress of the answer that is being sent.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// Position of the record.
    at: u8,
    /// No packet of the answer has been sent.
    is_fresh: bool,
    /// Index of the next packet to send.
    next: u32,
    /// Index after the last packet.
    end: u32,
    /// Offset in the READ at which the answer ends, in bytes.
    end_offset: u32,
}

/// One packet of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) asked: PendingAnswer,
    pub(super) psn: Psn,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// Offset in the READ at which the packet's payload begins, in bytes.
    pub(super) offset: u32,
    pub(super) len: u32,
    cursor: Cursor,
}

impl Reply {
    /// Place of the request that is answered.
    pub(super) fn place(&self) -> u8 {
        self.cursor.at
    }
}

#[derive(Debug)]
pub(super) struct Resources {
    slots: Box<[Record; MAX_RD_ATOMIC as usize]>,
    /// Position of the oldest record; positions wrap at 2^8.
    head: u8,
    count: u8,
    depth: u8,
    /// Number of records with a due answer.
    owed: u8,
    /// Number of records with an answer that was never sent whole, FLUSHes left out.
    open: u8,
    /// Number of records of FLUSHes.
    flushes: u8,
    cursor: Option<Cursor>,
}

impl Resources {
    pub(super) fn new() -> Resources {
        Resources {
            slots: Box::default(),
            head: 0,
            count: 0,
            depth: 0,
            owed: 0,
            open: 0,
            flushes: 0,
            cursor: None,
        }
    }

    pub(super) fn start(&mut self, max_dest_rd_atomic: u8) {
        self.clear();
        self.set_depth(max_dest_rd_atomic);
    }

    pub(super) fn set_depth(&mut self, max_dest_rd_atomic: u8) {
        let depth = max_dest_rd_atomic;
        self.depth = if depth == 0 { 0 } else { depth.next_power_of_two() };
    }

    pub(super) fn clear(&mut self) {
        (self.count, self.owed, self.cursor) = (0, 0, None);
        (self.open, self.flushes) = (0, 0);
    }

    /// Returns whether a peer that counts its requests, FLUSHes left out, may send one more.
    //= check C14 — with max_dest_rd_atomic 0 it may never
    pub(super) fn allows(&self, is_flush: bool) -> bool {
        self.depth > 0 && (is_flush || self.open < self.depth)
    }

    /// Returns whether there is room for one more request that is allowed.
    pub(super) fn has_room(&self, is_flush: bool) -> bool {
        self.count < self.limit(is_flush) || self.oldest_is_answered()
    }

    /// Number of records that are kept.
    fn limit(&self, is_flush: bool) -> u8 {
        if is_flush || self.flushes > 0 { MAX_RD_ATOMIC } else { self.depth }
    }

    /// Place of the next request that is stored; places wrap at 2^8.
    pub(super) fn next_place(&self) -> u8 {
        self.head.wrapping_add(self.count)
    }

    /// Stores a request with an answer that begins with `first_psn`. [`has_room`] was true.
    ///
    /// [`has_room`]: Resources::has_room
    pub(super) fn push(&mut self, asked: PendingAnswer, first_psn: Psn) {
        self.keep(Record::new(asked, first_psn));
    }

    /// Stores a request that has been executed and has an empty response. [`has_room`] was true.
    ///
    /// [`has_room`]: Resources::has_room
    //= check P2 — the answer is a READ response without data, in its turn among the answers
    pub(super) fn push_placed(&mut self, placed: Placed, psn: Psn) {
        let empty = PendingAnswer::Read { va: Va(0), rkey: Rkey(0), len: 0 };
        let mut record = Record::new(empty, psn);
        record.psn |= Record::flag_of(placed);
        self.keep(record);
    }

    #[inline]
    fn keep(&mut self, record: Record) {
        let is_flush = record.has(Record::IS_FLUSH);
        while self.count >= self.limit(is_flush) && self.oldest_is_answered() {
            self.forget_oldest();
        }
        self.open += u8::from(!is_flush);
        self.flushes += u8::from(is_flush);
        let at = self.next_place();
        *self.record_mut(at) = record;
        self.count += 1;
        self.owed += 1;
    }

    /// The next answer packet that is due.
    #[inline]
    pub(super) fn next_reply(&self, mtu: u32) -> Option<Reply> {
        if self.owed == 0 {
            return None;
        }
        // An answer that is partly sent is the oldest that is due.
        let cursor = match self.cursor {
            Some(cursor) => cursor,
            None => {
                let at = self.oldest_owed()?;
                let Record { len, .. } = *self.record(at);
                Cursor { at, is_fresh: true, next: 0, end: packets(len, mtu), end_offset: len }
            }
        };
        let record = self.record(cursor.at);
        let offset = cursor.next * mtu;
        Some(Reply {
            asked: record.asked(),
            psn: record.first_psn().plus(cursor.next),
            is_first: cursor.is_fresh,
            is_last: cursor.next + 1 == cursor.end,
            offset,
            len: cursor.end_offset.saturating_sub(offset).min(mtu),
            cursor,
        })
    }

    /// Notes that the reply was sent.
    #[inline]
    pub(super) fn sent(&mut self, reply: &Reply) {
        if !reply.is_last {
            self.cursor =
                Some(Cursor { is_fresh: false, next: reply.cursor.next + 1, ..reply.cursor });
            return;
        }
        let record = self.record_mut(reply.cursor.at);
        let is_closed = record.has(Record::IS_ANSWERED | Record::IS_FLUSH);
        record.psn |= Record::IS_ANSWERED;
        record.psn &= !Record::IS_OWED;
        self.open -= u8::from(!is_closed);
        self.owed -= 1;
        self.cursor = None;
    }

    /// Gives up an answer that cannot be repeated. Returns false if the peer has never had all of
    /// it.
    pub(super) fn give_up(&mut self, reply: &Reply) -> bool {
        let record = self.record_mut(reply.cursor.at);
        if !record.has(Record::IS_ANSWERED) {
            return false;
        }
        record.psn &= !Record::IS_OWED;
        self.owed -= 1;
        self.cursor = None;
        true
    }

    /// Handles a repeated READ: answers again from `psn` on, if the READ lies within a stored
    /// request.
    //= check C5 — a repeated READ is answered from memory again, with the same PSNs
    //= check C6 — a larger range, a lower address or another key is not answered
    pub(super) fn replay_read(&mut self, psn: Psn, reth: &Reth, mtu: u32) -> bool {
        let Some(at) = self.find(psn, mtu) else { return false };
        let record = *self.record(at);
        let PendingAnswer::Read { va, rkey, len } = record.asked() else { return false };
        if record.has(Record::IS_ATOMIC_WRITE | Record::IS_FLUSH) {
            return false;
        }
        let from = psn.distance_from(record.first_psn()) as u32;
        let offset = from * mtu;
        let is_inside = reth.rkey == rkey
            && reth.va == Va(va.0.wrapping_add(u64::from(offset)))
            && reth.dma_len <= len.saturating_sub(offset);
        if !is_inside {
            return false;
        }
        let (end, end_offset) = (from + packets(reth.dma_len, mtu), offset + reth.dma_len);
        let again = Cursor { at, is_fresh: true, next: from, end, end_offset };
        self.replay(&record, again);
        true
    }

    /// Handles a repeated ATOMIC: sends the stored result again.
    //= check D1 — the original value is replayed, memory is not accessed again
    //= check D2 — whether or not the word has changed since
    //= check D3 — the repetition's operands are not used
    pub(super) fn replay_atomic(&mut self, psn: Psn, mtu: u32) -> bool {
        let Some(at) = self.find(psn, mtu) else { return false };
        let record = *self.record(at);
        if !record.has(Record::IS_ATOMIC) {
            return false;
        }
        self.replay(&record, Cursor { at, is_fresh: true, next: 0, end: 1, end_offset: 0 });
        true
    }

    /// Handles a repeated ATOMIC WRITE or FLUSH: sends its empty response again.
    //= check P7 — whatever has been written since
    pub(super) fn replay_placed(&mut self, placed: Placed, psn: Psn, mtu: u32) -> bool {
        let Some(at) = self.find(psn, mtu) else { return false };
        let record = *self.record(at);
        if !record.has(Record::flag_of(placed)) {
            return false;
        }
        self.replay(&record, Cursor { at, is_fresh: true, next: 0, end: 1, end_offset: 0 });
        true
    }

    /// Makes the answer `again` due, or the whole answer of its record if an older answer goes
    /// first.
    fn replay(&mut self, record: &Record, again: Cursor) {
        let is_owed = record.has(Record::IS_OWED);
        let comes_anyway = match self.cursor {
            Some(now) if now.at == again.at => now.next <= again.next && again.end <= now.end,
            // An answer that waits for another one begins at its first packet.
            _ => is_owed,
        };
        if comes_anyway {
            return;
        }
        self.record_mut(again.at).psn |= Record::IS_OWED;
        self.owed += u8::from(!is_owed);
        if self.oldest_owed() == Some(again.at) {
            self.cursor = Some(again);
        }
    }

    /// Returns whether the oldest request was answered once. A peer within its limit sends one more
    /// request only after it has the oldest answer; a repetition of that answer may be left
    /// unfinished.
    fn oldest_is_answered(&self) -> bool {
        self.count > 0 && self.record(self.head).has(Record::IS_ANSWERED)
    }

    fn oldest_owed(&self) -> Option<u8> {
        self.positions().find(|at| self.record(*at).has(Record::IS_OWED))
    }

    fn forget_oldest(&mut self) {
        let record = *self.record(self.head);
        self.owed -= u8::from(record.has(Record::IS_OWED));
        self.flushes -= u8::from(record.has(Record::IS_FLUSH));
        if self.cursor.is_some_and(|cursor| cursor.at == self.head) {
            self.cursor = None;
        }
        self.head = self.head.wrapping_add(1);
        self.count -= 1;
    }

    /// The newest request that contains `psn`; after 2^24 packets an older one may contain it too.
    //= check D5 — a record is found by its PSNs, never by its place
    pub(super) fn find(&self, psn: Psn, mtu: u32) -> Option<u8> {
        let holds = |at: &u8| {
            let record = self.record(*at);
            let index = psn.distance_from(record.first_psn());
            index >= 0 && (index as u32) < packets(record.len, mtu)
        };
        self.positions().rev().find(holds)
    }

    /// PSN after the answer to the request at place `at`.
    pub(super) fn end_of(&self, at: u8, mtu: u32) -> Psn {
        let record = self.record(at);
        record.first_psn().plus(packets(record.len, mtu))
    }

    fn positions(&self) -> impl DoubleEndedIterator<Item = u8> + use<> {
        let head = self.head;
        (0..self.count).map(move |index| head.wrapping_add(index))
    }

    fn record(&self, at: u8) -> &Record {
        &self.slots[usize::from(at % MAX_RD_ATOMIC)]
    }

    fn record_mut(&mut self, at: u8) -> &mut Record {
        &mut self.slots[usize::from(at % MAX_RD_ATOMIC)]
    }
}

#[cfg(test)]
mod tests;
