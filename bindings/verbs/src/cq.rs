//! Completion queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_engine::{Arm, CqError, EventChannel, Poller};
use uroce_transport::{Cqe, WcOpcode, WcStatus};
use uroce_wire::{ImmDt, Qpn, Rkey};

use crate::channel::CompletionChannel;
use crate::context::Context;

/// Polls without a completion before a waiting thread yields its CPU.
const SPINS: u32 = 1000;

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The `wr_id` of the work request.
    pub wr_id: u64,
    /// Success or the kind of error. After an error only `wr_id`, `status` and `qpn` are valid.
    pub status: WcStatus,
    /// The kind of work request.
    pub opcode: WcOpcode,
    /// Bytes received, for receives, READ and ATOMIC. For a datagram it includes
    /// [`GRH_LEN`](crate::GRH_LEN).
    pub byte_len: u32,
    /// Immediate data of the received message.
    pub imm: Option<ImmDt>,
    /// The local key that the received message has invalidated.
    pub invalidated: Option<Rkey>,
    /// Number of the local QP.
    pub qpn: Qpn,
    /// Number of the QP that sent the datagram. 0 except for UD receives.
    pub src_qpn: Qpn,
    /// Whether a network header precedes the datagram (UD receives).
    pub has_grh: bool,
}

impl WorkCompletion {
    /// Checks for success.
    ///
    /// # Errors
    ///
    /// The status, if it is not [`WcStatus::Success`].
    pub fn ok(&self) -> Result<(), WcStatus> {
        if self.status == WcStatus::Success { Ok(()) } else { Err(self.status) }
    }
}

impl Default for WorkCompletion {
    /// An empty entry for [`CompletionQueue::poll`] to overwrite.
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

/// Identifies a completion queue within the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId {
    /// Address of the device's channel for asynchronous events, which identifies the device.
    channel: usize,
    /// Number of the queue on that channel.
    number: u32,
}

impl CqId {
    pub(crate) fn of(cq: &uroce_engine::CompletionQueue) -> CqId {
        // Every queue made by this crate has an event source, so the default is not used.
        cq.events().map_or(CqId { channel: 0, number: 0 }, |events| {
            CqId::numbered(events.channel(), events.number())
        })
    }

    pub(crate) fn numbered(channel: &Arc<EventChannel>, number: u32) -> CqId {
        CqId { channel: Arc::as_ptr(channel).addr(), number }
    }
}

/// A completion queue. Clones are handles of the same queue. It exists as long as a handle or a QP
/// that completes to it.
///
/// Any thread may poll; each completion is given to one poll. If a completion does not fit, the
/// queue is in error for good, and the QPs of the completions that did not fit go to ERR.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    shared: Arc<CqShared>,
}

#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) cq: Arc<uroce_engine::CompletionQueue>,
    /// Drives the lcores if the device is configured with `driver = "poller"`.
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

    /// Takes completions, oldest first, until there is none left or `out` is full. Returns how many
    /// it took.
    ///
    /// On a device that pollers drive ([`Driver::Poller`](uroce_controlplane::config::Driver)), a
    /// poll that finds no completion runs a turn of the lcores and looks again. If there is still
    /// none, the turn had no work, and more threads poll than the process has CPUs, it yields the
    /// CPU.
    ///
    /// # Errors
    ///
    /// [`CqError::Overrun`] if the queue has overrun, after all completions from before the overrun
    /// were taken.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, CqError> {
        let mut count = self.take(out)?;
        if count == 0
            && !out.is_empty()
            && let Some(turn) = self.drive()
        {
            count = self.take(out)?;
            if count == 0 {
                self.rest(turn);
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

    /// Takes the oldest completion. `None` if there is none.
    ///
    /// # Errors
    ///
    /// The errors of [`poll`](CompletionQueue::poll).
    #[inline]
    pub fn poll_one(&self) -> Result<Option<WorkCompletion>, CqError> {
        let mut completion = [WorkCompletion::default()];
        let count = self.poll(&mut completion)?;
        Ok(completion.into_iter().take(count).next())
    }

    /// Polls until there is a completion or `timeout` has passed (`None`).
    ///
    /// A thread that has adopted an lcore must not use this, because it does not turn that lcore.
    ///
    /// # Errors
    ///
    /// The errors of [`poll`](CompletionQueue::poll).
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

    /// Requests one event on the queue's channel for the next new completion. Completions that are
    /// in the queue already cause no event, so poll once more after arming.
    pub fn arm(&self, on: Arm) {
        self.shared.cq.arm(on);
        if let Some(poller) = &self.shared.poller {
            poller.leave();
        }
    }

    /// Changes the queue's capacity to at least `capacity` completions. Completions may be added
    /// and polled meanwhile: each is given once, those of a queue pair in order. A smaller capacity
    /// does not free memory.
    ///
    /// # Errors
    ///
    /// [`CqError::Depth`] if `capacity` is 0 or too large; [`CqError::TooSmall`] if more
    /// completions than that are in the queue. The queue is unchanged.
    pub fn resize(&self, capacity: u32) -> Result<(), CqError> {
        self.shared.cq.resize(capacity)
    }

    /// The capacity that was asked for when the queue was created or resized.
    pub fn capacity(&self) -> u32 {
        self.shared.cq.depth()
    }

    /// The queue's identity in [`CompletionChannel::get_event`] and asynchronous events.
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
