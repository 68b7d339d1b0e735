//! Completion queue, as the application sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_engine::{Arm, CqError, EventChannel, Poller};
use uroce_transport::{Cqe, WcOpcode, WcStatus};
use uroce_wire::{ImmDt, Qpn, Rkey};

use crate::channel::CompletionChannel;
use crate::context::Context;

/// Polls before a waiting thread gives its CPU away.
const SPINS: u32 = 1000;

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The work request's number.
    pub wr_id: u64,
    /// How it ended; with an error only `wr_id`, `status` and `qpn` are meaningful.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received (receives, READ, ATOMIC); of a datagram [`GRH_LEN`](crate::GRH_LEN) more.
    pub byte_len: u32,
    /// Immediate data that came with the message.
    pub imm: Option<ImmDt>,
    /// The key of ours that the message has invalidated.
    pub invalidated: Option<Rkey>,
    /// The QP of this side.
    pub qpn: Qpn,
    /// The QP that has sent the datagram; 0 except for UD receives.
    pub src_qpn: Qpn,
    /// The datagram's network header stands in front of it (UD receives).
    pub has_grh: bool,
}

impl WorkCompletion {
    /// Whether it succeeded.
    ///
    /// # Errors
    ///
    /// The status, if it is not success.
    pub fn ok(&self) -> Result<(), WcStatus> {
        if self.status == WcStatus::Success { Ok(()) } else { Err(self.status) }
    }
}

impl Default for WorkCompletion {
    /// A place for [`CompletionQueue::poll`] to write to.
    fn default() -> WorkCompletion {
        WorkCompletion {
            wr_id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn: Qpn::default(),
            src_qpn: Qpn::default(),
            has_grh: false,
        }
    }
}

impl From<Cqe> for WorkCompletion {
    #[inline]
    fn from(cqe: Cqe) -> WorkCompletion {
        let Cqe { wr_id, status, opcode, byte_len, imm, .. } = cqe;
        let Cqe { invalidated, qpn, src_qpn, grh, .. } = cqe;
        let has_grh = grh.is_some();
        WorkCompletion { wr_id, status, opcode, byte_len, imm, invalidated, qpn, src_qpn, has_grh }
    }
}

/// Names a completion queue of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId {
    /// Where the channel of its device's asynchronous events is.
    channel: usize,
    /// Its number there.
    number: u32,
}

impl CqId {
    pub(crate) fn of(cq: &uroce_engine::CompletionQueue) -> CqId {
        // Every queue of ours gives events.
        cq.events().map_or(CqId { channel: 0, number: 0 }, |events| {
            CqId::numbered(events.channel(), events.number())
        })
    }

    pub(crate) fn numbered(channel: &Arc<EventChannel>, number: u32) -> CqId {
        CqId { channel: Arc::as_ptr(channel).addr(), number }
    }
}

/// A completion queue. Clones are handles of the same one; it lives as long as one of them or a
/// QP that completes to it.
///
/// Any thread may poll; each completion is given once. A queue that has no room for a completion is
/// in error for good, and the QPs whose completions did not fit are in ERR.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    shared: Arc<CqShared>,
}

#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) cq: Arc<uroce_engine::CompletionQueue>,
    /// Drives the lcores, where pollers do.
    pub(crate) poller: Option<Poller>,
    channel: Option<CompletionChannel>,
    _context: Context,
}

impl CompletionQueue {
    pub(crate) fn new(
        context: &Context,
        capacity: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, CqError> {
        let engine = context.device.engine();
        let cq = engine.create_cq(capacity, channel.map(CompletionChannel::engine))?;
        let (poller, channel) = (engine.poller(&cq), channel.cloned());
        let shared = CqShared { cq, poller, channel, _context: context.clone() };
        Ok(CompletionQueue { shared: Arc::new(shared) })
    }

    pub(crate) fn shared(&self) -> &Arc<CqShared> {
        &self.shared
    }

    /// Takes completions, oldest first, as many as there are and fit; gives their number.
    ///
    /// On a device that pollers drive ([`Driver::Poller`](uroce_controlplane::config::Driver)) a
    /// poll that finds none first does what its lcores have to do, and lets another thread go on if it
    /// still finds none and more threads poll than the process has processors.
    ///
    /// # Errors
    ///
    /// [`CqError::Overrun`] once everything from before the overrun has been taken.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, CqError> {
        let mut count = self.take(out)?;
        if count == 0 && !out.is_empty() && self.drive() {
            count = self.take(out)?;
            if count == 0 {
                self.rest();
            }
        }
        if let Some(last) = out[..count].last() {
            self.drive_after(last.opcode);
        }
        Ok(count)
    }

    #[inline]
    fn take(&self, out: &mut [WorkCompletion]) -> Result<usize, CqError> {
        let mut count = 0;
        for place in out.iter_mut() {
            match self.shared.cq.poll() {
                Ok(Some(cqe)) => *place = cqe.into(),
                Ok(None) => break,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            count += 1;
        }
        Ok(count)
    }

    /// Takes the oldest completion.
    ///
    /// # Errors
    ///
    /// As [`poll`](CompletionQueue::poll).
    #[inline]
    pub fn poll_one(&self) -> Result<Option<WorkCompletion>, CqError> {
        let mut completion = [WorkCompletion::default()];
        let count = self.poll(&mut completion)?;
        Ok(completion.into_iter().take(count).next())
    }

    /// Polls until there is a completion, which it gives, or the time is up (`None`).
    ///
    /// A thread that has adopted an lcore turns that itself instead; this does not.
    ///
    /// # Errors
    ///
    /// As [`poll`](CompletionQueue::poll).
    pub fn wait(&self, timeout: Duration) -> Result<Option<WorkCompletion>, CqError> {
        let begin = Instant::now();
        for round in 0u64.. {
            if let Some(completion) = self.poll_one()? {
                return Ok(Some(completion));
            }
            if round < u64::from(SPINS) {
                std::hint::spin_loop();
                continue;
            }
            if begin.elapsed() >= timeout {
                break;
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Asks for one event on the queue's channel, for a completion that comes from now on. Poll
    /// once more after arming: what is there already gives no event.
    pub fn arm(&self, on: Arm) {
        self.shared.cq.arm(on);
        if let Some(poller) = &self.shared.poller {
            poller.leave();
        }
    }

    /// Has the queue hold at least `capacity` completions from now on. Completions may come and be
    /// polled meanwhile: each is given once, those of a queue pair in their order. Asked for less,
    /// it keeps the memory that it has.
    ///
    /// # Errors
    ///
    /// [`CqError::Depth`]; [`CqError::TooSmall`] if more completions wait to be polled. The queue
    /// is as it was then.
    pub fn resize(&self, capacity: u32) -> Result<(), CqError> {
        self.shared.cq.resize(capacity)
    }

    /// Entries it was asked to hold.
    pub fn capacity(&self) -> u32 {
        self.shared.cq.depth()
    }

    /// What [`CompletionChannel::get_event`] and asynchronous events name it by.
    pub fn id(&self) -> CqId {
        CqId::of(&self.shared.cq)
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.engine().discard(&self.cq);
        }
    }
}
