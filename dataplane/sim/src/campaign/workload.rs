//! Random work: connections of two ends each, which post sends of all kinds and receives.
//!
//! Each end can access the other's expectations, so the result of a request is known when it is
//! posted. Two rules keep that exact. A WRITE is not posted to a range that an outstanding READ of
//! the same connection covers, because the READ may be executed again. Each connection writes a
//! region of its own, except for words that all connections only add to.
//!
//! Invariants
//! - All expectations are entered when a work request is posted, before its first packet can
//!   arrive.
//!
//! Not here: receives (`receives`), random choices (`draw`).

use core::time::Duration;
use std::collections::VecDeque;

use fastrand::Rng;
use uroce_wire::{ImmDt, Placement, Qkey, Rkey, Selectivity, Srqn, Va};

use crate::campaign::chunks::{Chunk, Chunks};
use crate::campaign::inject::Excuses;
use crate::campaign::pieces::Pieces;
use crate::campaign::plan::{Connection, End, Role};
use crate::world::World;
use crate::world::memory::Mr;
use crate::world::names::At;
use crate::world::node::Happened;
use uroce_transport::{PostError, RdAddress, SendOp, SendWr, Sge, WcOpcode};

/// Length of the region that all SENDs and WRITEs of a node are gathered from, in bytes.
pub(crate) const SOURCE_LEN: u32 = 1 << 18;

/// Number of words of each end that only its peer changes.
pub(crate) const WORDS: usize = 4;

/// A send work request that has not been checked as done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedSend {
    pub(crate) wr_id: u64,
    pub(crate) is_signaled: bool,
    pub(crate) opcode: WcOpcode,
    pub(crate) work: Work,
}

/// Expected result of a send work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Send,
    /// The peer's range equals its shadow, unless it is written again.
    Write {
        offset: u32,
        len: u32,
    },
    /// The buffer holds the content of the peer's range.
    Read {
        offset: u32,
        len: u32,
        chunk: Chunk,
    },
    /// The peer's range is as durable as this FLUSH asked for, except for what is written later.
    Flush {
        offset: u32,
        len: u32,
        placement: Placement,
    },
    /// The buffer holds this former value.
    Atomic {
        chunk: Chunk,
        former: u64,
    },
    /// The buffer holds some former value of a word that other connections add to too.
    SharedAdd {
        chunk: Chunk,
        word: usize,
        add: u64,
    },
    /// The request fails.
    Doomed,
}

/// A receive work request that has not completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedRecv {
    pub(crate) wr_id: u64,
    pub(crate) chunk: Chunk,
    /// The XRC shared receive queue that it was posted to.
    pub(crate) srqn: Srqn,
}

/// A message in flight that will consume a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// `wr_id` of the sender's work request.
    pub(crate) wr_id: u64,
    /// The XRC shared receive queue that the work request names.
    pub(crate) srqn: Srqn,
    pub(crate) len: u32,
    pub(crate) imm: Option<ImmDt>,
    pub(crate) solicited: bool,
    /// SEND: the sender's bytes. WRITE: the place in the target.
    pub(crate) content: Content,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Source(Pieces),
    Target { offset: u32 },
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) at: At,
    pub(crate) end: End,
    pub(crate) peer: usize,
    /// Region that SENDs and WRITEs are gathered from.
    pub(crate) source: Mr,
    /// Region that the peer writes and reads; `shadow` is its content once all is done.
    pub(crate) target: Mr,
    pub(crate) shadow: Vec<u8>,
    pub(crate) words: Mr,
    pub(crate) shadow_words: [u64; WORDS],
    /// Buffers of READ data and ATOMIC results.
    pub(crate) landing: Chunks,
    pub(crate) inbox: Chunks,
    /// The XRC shared receive queues of a target; the receives of the second use `second_inbox`.
    pub(crate) queues: Vec<Srqn>,
    pub(crate) second_inbox: Option<Chunks>,
    /// End that is the EEC of an RD QP; the end itself otherwise.
    pub(crate) carrier: usize,
    pub(crate) sends: VecDeque<PostedSend>,
    pub(crate) recvs: VecDeque<PostedRecv>,
    pub(crate) expected: VecDeque<Expected>,
    pub(crate) next_wr_id: u64,
    /// The QP has failed; the connection's data is no longer checked.
    pub(crate) has_failed: bool,
    pub(crate) is_dead: bool,
    /// Strikes that explain errors.
    pub(crate) excuses: Excuses,
    /// Number of times in a row that the send queue was full.
    pub(crate) patience: u32,
    /// An alarm to post receives is set.
    pub(crate) receiver_is_awake: bool,
}

impl Endpoint {
    /// The buffers of receives in this queue.
    pub(crate) fn inbox_of(&mut self, srqn: Srqn) -> &mut Chunks {
        match &mut self.second_inbox {
            Some(second) if self.queues.get(1) == Some(&srqn) => second,
            _ => &mut self.inbox,
        }
    }
}

/// Largest number of times that the pace of an end with a full send queue is doubled.
const MAX_PATIENCE: u32 = 8;

/// A word of a node that all connections add to.
#[derive(Debug)]
pub(crate) struct SharedWord {
    pub(crate) node: u16,
    pub(crate) mr: Mr,
    pub(crate) initial: u64,
    /// Former value and addend of each addition that is done.
    pub(crate) done: Vec<(u64, u64)>,
    /// Some addition may or may not have been executed.
    pub(crate) is_uncertain: bool,
}

/// Work and expectations of one run.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) world: World,
    pub(crate) ends: Vec<Endpoint>,
    /// Index in `ends` of each QP, by node and slot.
    pub(crate) by_slot: Vec<Vec<usize>>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) shared: Vec<SharedWord>,
    pub(crate) rng: Rng,
    pub(crate) messages: u64,
    pub(crate) rd_messages: u64,
    pub(crate) xrc_messages: u64,
    pub(crate) bytes: u64,
    pub(crate) dead: u64,
    /// Number of control operations that were carried out.
    pub(crate) operations: u64,
    pub(crate) sges: Vec<Sge>,
    /// Buffer of the events that are judged.
    pub(crate) happened: Vec<Happened>,
}

impl Traffic {
    /// Sets the first alarms. Tokens: for each end an even one for sends and an odd one for
    /// receives, then one for each connection's strikes, then one for each connection's control
    /// operations.
    pub(crate) fn start(&mut self) {
        let first_strike = 2 * self.ends.len() as u32;
        for token in 0..first_strike {
            self.world.wake(self.world.now(), token);
        }
        let count = self.connections.len() as u32;
        for (index, connection) in self.connections.iter().enumerate() {
            let token = first_strike + index as u32;
            if let Some(peace) = connection.peace {
                self.world.wake(self.world.now() + peace, token);
            }
            if let Some(pace) = connection.control_pace {
                self.world.wake(self.world.now() + pace, token + count);
            }
        }
    }

    /// Handles an alarm of an end or a connection.
    pub(crate) fn wake(&mut self, token: u32, is_posting: bool) -> Result<(), String> {
        let index = token as usize / 2;
        if let Some(beyond) = (token as usize).checked_sub(2 * self.ends.len()) {
            return match beyond.checked_sub(self.connections.len()) {
                Some(connection) => self.control(connection, token, is_posting),
                None if is_posting => self.strike(beyond, token),
                None => Ok(()),
            };
        }
        if self.connections[index / 2].role == Role::Context {
            return Ok(());
        }
        if token % 2 == 1 {
            self.post_recvs(index)?;
            self.wake_receiver(index);
            return Ok(());
        }
        let me = &self.ends[index];
        let is_target = !me.queues.is_empty();
        if !is_posting || me.is_dead || is_target || me.excuses.doomed.is_some() {
            return Ok(());
        }
        let is_full = self.post_sends(index)?;
        let me = &mut self.ends[index];
        me.patience = if is_full { (me.patience + 1).min(MAX_PATIENCE) } else { 0 };
        let pace = (me.end.pace.as_nanos() as u64) << me.patience;
        let lag = Duration::from_nanos(self.rng.u64(1..=2 * pace));
        self.world.wake(self.world.now() + lag, token);
        Ok(())
    }

    /// Posts up to eight sends at an end. Returns whether the queue is full.
    fn post_sends(&mut self, index: usize) -> Result<bool, String> {
        for _ in 0..self.rng.u32(1..=8) {
            let me = &self.ends[index];
            if self.world.qp(me.at).send_wrs() == me.end.caps.max_send_wr {
                self.post_to_full_queue(index)?;
                return Ok(true);
            }
            self.post_send(index)?;
        }
        Ok(false)
    }

    /// Checks that a post to a full queue is refused.
    fn post_to_full_queue(&mut self, index: usize) -> Result<(), String> {
        let wr = SendWr {
            wr_id: u64::MAX,
            op: SendOp::Send { imm: None },
            signaled: true,
            solicited: false,
            fence: false,
            srqn: Srqn::default(),
        };
        let result = match self.address(index) {
            Some(to) => self.world.post_datagram(self.ends[index].at, &wr, &to, &[]),
            None => self.world.post_send(self.ends[index].at, &wr, &[]),
        };
        match result {
            Err(PostError::QueueFull) => Ok(()),
            other => Err(format!("a post to a full queue gave {other:?}")),
        }
    }

    fn post_send(&mut self, index: usize) -> Result<(), String> {
        let mix = self.ends[index].end.mix;
        let mut ticket = self.rng.u32(..mix.iter().sum::<u32>());
        let kind = mix.iter().position(|weight| match ticket.checked_sub(*weight) {
            Some(rest) => {
                ticket = rest;
                false
            }
            None => true,
        });
        match kind {
            Some(0) => self.send(index),
            Some(1) => self.write(index),
            Some(2) => self.read(index),
            Some(3) => self.atomic(index),
            Some(4) => self.atomic_write(index),
            _ => self.flush(index),
        }
    }

    fn send(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let len = self.length(index, self.ends[peer].end.max_recv_len);
        let pieces = self.gather(index, len);
        let imm = self.imm();
        let solicited = self.rng.bool();
        let content = Content::Source(pieces);
        let op = SendOp::Send { imm };
        let (wr_id, srqn) = self.post(index, op, solicited, WcOpcode::Send, Work::Send)?;
        self.ends[peer].expected.push_back(Expected { wr_id, srqn, len, imm, solicited, content });
        Ok(())
    }

    fn write(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let len = self.length(index, self.ends[index].end.max_len);
        let offset = self.rng.u32(..=self.ends[peer].target.len() - len);
        if self.is_being_read(index, offset, len) {
            return Ok(());
        }
        let pieces = self.gather(index, len);
        let imm = self.imm();
        let solicited = self.rng.bool();
        let target = self.ends[peer].target;
        let rkey = self.any_key_for_nothing(target, len);
        let op = SendOp::Write { va: target.va(u64::from(offset)), rkey, imm };
        let work = Work::Write { offset, len };
        let (wr_id, srqn) = self.post(index, op, solicited, WcOpcode::RdmaWrite, work)?;

        self.expect_written(index, offset, &pieces);
        if imm.is_some() {
            let content = Content::Target { offset };
            self.ends[peer].expected.push_back(Expected {
                wr_id,
                srqn,
                len,
                imm,
                solicited,
                content,
            });
        }
        Ok(())
    }

    /// Posts an ATOMIC WRITE, which has the effect of a WRITE of eight bytes.
    fn atomic_write(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let target = self.ends[peer].target;
        let offset = 8 * self.rng.u32(..target.len() / 8);
        if self.is_being_read(index, offset, 8) {
            return Ok(());
        }
        let pieces = self.gather(index, 8);
        let op = SendOp::AtomicWrite { va: target.va(u64::from(offset)), rkey: target.rkey() };
        let work = Work::Write { offset, len: 8 };
        self.post(index, op, false, WcOpcode::AtomicWrite, work)?;
        self.expect_written(index, offset, &pieces);
        Ok(())
    }

    /// Posts a FLUSH of any range of the peer's region, or of all of it.
    fn flush(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let target = self.ends[peer].target;
        let placement = Placement(self.rng.u8(1..=3));
        let is_whole = self.rng.u8(..4) == 0;
        let len = self.rng.u32(..=target.len());
        let offset = self.rng.u32(..=target.len() - len);
        let (va, rkey) = (target.va(u64::from(offset)), target.rkey());
        let (op, work) = if is_whole {
            // Address and length may be anything.
            let (va, len, selectivity) = (Va(!va.0), !len, Selectivity::Region);
            let op = SendOp::Flush { va, rkey, len, placement, selectivity };
            (op, Work::Flush { offset: 0, len: target.len(), placement })
        } else {
            let selectivity = Selectivity::Range;
            let op = SendOp::Flush { va, rkey, len, placement, selectivity };
            (op, Work::Flush { offset, len, placement })
        };
        self.sges.clear();
        self.post(index, op, false, WcOpcode::Flush, work).map(|_| ())
    }

    /// Enters the bytes of a WRITE into the shadow of the peer's region.
    fn expect_written(&mut self, index: usize, offset: u32, pieces: &Pieces) {
        let me = &self.ends[index];
        let (node, source, peer) = (me.at.node, me.source, me.peer);
        let source = self.world.node(node).memory.bytes(source);
        let shadow = &mut self.ends[peer].shadow;
        let mut at = offset as usize;
        for slice in pieces.slices(source) {
            shadow[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
    }

    fn read(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let len = self.length(index, self.ends[index].end.max_len);
        let offset = self.rng.u32(..=self.ends[peer].target.len() - len);
        let Some(chunk) = self.land(index, len) else { return Ok(()) };
        let target = self.ends[peer].target;
        let rkey = self.any_key_for_nothing(target, len);
        let op = SendOp::Read { va: target.va(u64::from(offset)), rkey };
        let work = Work::Read { offset, len, chunk };
        self.post(index, op, false, WcOpcode::RdmaRead, work).map(|_| ())
    }

    /// The region's key, or any key if no byte is accessed, because then it is not checked.
    fn any_key_for_nothing(&mut self, target: Mr, len: u32) -> Rkey {
        if len == 0 && self.rng.bool() { Rkey(self.rng.u32(..)) } else { target.rkey() }
    }

    fn atomic(&mut self, index: usize) -> Result<(), String> {
        let peer = self.ends[index].peer;
        let Some(chunk) = self.land(index, 8) else { return Ok(()) };
        let is_shared = self.rng.u8(..4) == 0;
        let is_swap = self.rng.bool();
        let word = self.rng.usize(..WORDS);
        let former = self.ends[peer].shadow_words[word];
        let add = self.rng.u64(1..1 << 32);
        if is_shared {
            let word = usize::from(self.ends[peer].at.node);
            let mr = self.shared[word].mr;
            let op = SendOp::FetchAdd { va: mr.va(0), rkey: mr.rkey(), add };
            let work = Work::SharedAdd { chunk, word, add };
            return self.post(index, op, false, WcOpcode::FetchAdd, work).map(|_| ());
        }
        let mr = self.ends[peer].words;
        let (va, rkey) = (mr.va(8 * word as u64), mr.rkey());
        let work = Work::Atomic { chunk, former };
        let after = if is_swap {
            // Every second comparison fails.
            let compare = former ^ u64::from(self.rng.bool());
            let op = SendOp::CompareSwap { va, rkey, compare, swap: add };
            self.post(index, op, false, WcOpcode::CompSwap, work)?;
            if compare == former { add } else { former }
        } else {
            let op = SendOp::FetchAdd { va, rkey, add };
            self.post(index, op, false, WcOpcode::FetchAdd, work)?;
            former.wrapping_add(add)
        };
        self.ends[peer].shadow_words[word] = after;
        Ok(())
    }

    /// Destination of the requests of an end, if it is an RD QP.
    fn address(&self, index: usize) -> Option<RdAddress> {
        let connection = &self.connections[index / 2];
        let qpn = |end: usize| self.world.qp(self.ends[end].at).qpn();
        connection.is_carried().then(|| RdAddress {
            eecn: qpn(self.ends[index].carrier),
            dest_qpn: qpn(self.ends[index].peer),
            qkey: Qkey(connection.qkey),
        })
    }

    /// Posts a request with the scatter/gather list in `self.sges`, and enters its expected result.
    /// Returns its number and the XRC shared receive queue that it names.
    pub(crate) fn post(
        &mut self,
        index: usize,
        op: SendOp,
        solicited: bool,
        opcode: WcOpcode,
        work: Work,
    ) -> Result<(u64, Srqn), String> {
        let peer = self.ends[index].peer;
        let srqn = match self.ends[peer].queues.len() {
            0 => Srqn::default(),
            count => self.ends[peer].queues[self.rng.usize(..count)],
        };
        let to = self.address(index);
        let me = &mut self.ends[index];
        let wr_id = me.next_wr_id;
        me.next_wr_id += 1;
        // Buffers return when a signalled request has completed. One that takes the last buffer is
        // signalled, or an end that only reads would never post again.
        let is_last = !me.landing.has_room(me.end.max_len);
        let is_due = is_last && !me.sends.iter().any(|posted| posted.is_signaled);
        let is_signaled = self.rng.f64() < me.end.signaled_rate || is_due;
        let wr = SendWr { wr_id, op, signaled: is_signaled, solicited, fence: false, srqn };
        me.sends.push_back(PostedSend { wr_id, is_signaled, opcode, work });
        let (at, sges) = (me.at, &self.sges);
        self.world.note(|| format!("post {at:?} {wr:?} {sges:?}"));
        let result = match to {
            Some(to) => self.world.post_datagram(at, &wr, &to, &self.sges),
            None => self.world.post_send(at, &wr, &self.sges),
        };
        match result {
            Ok(()) => Ok((wr_id, srqn)),
            Err(error) => Err(format!("{wr:?} at {at:?} was refused: {error}")),
        }
    }
}
