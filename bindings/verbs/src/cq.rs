//! Completion queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_engine::{Arm, CqError};
use uroce_transport::{Cqe, WcOpcode, WcStatus};
use uroce_wire::{ImmDt, Qpn, Rkey};

use crate::channel::CompletionChannel;
use crate::context::Context;
use crate::core::{CqId, CqShared};

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
    /// Number of the QP that sent the datagram. 0 except for UD and RD receives.
    pub src_qpn: Qpn,
    /// RD receives: number of the local EE context that the message came by.
    pub eecn: Option<Qpn>,
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
            eecn: None,
            has_grh: false,
        }
    }
}

impl From<Cqe> for WorkCompletion {
    #[inline]
    fn from(cqe: Cqe) -> WorkCompletion {
        let Cqe { wr_id, status, opcode, byte_len, imm, .. } = cqe;
        let (invalidated, eecn) = (cqe.invalidated(), cqe.eecn());
        let Cqe { qpn, src_qpn, grh, .. } = cqe;
        let has_grh = grh.is_some();
        WorkCompletion {
            wr_id,
            status,
            opcode,
            byte_len,
            imm,
            invalidated,
            qpn,
            src_qpn,
            eecn,
            has_grh,
        }
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

impl CompletionQueue {
    pub(crate) fn shared(&self) -> &Arc<CqShared> {
        &self.shared
    }

    /// Takes completions, oldest first, until there is none left or `out` is full. Returns how many
    /// it took.
    ///
    /// On a device that pollers drive ([`Driver::Poller`](uroce_controlplane::config::Driver)), a
    /// poll that finds no completion runs a turn of the lcores and looks again. If there is still
    /// none, the turn did no work, and other threads of the program or the machine wait for the
    /// CPU, it yields the CPU.
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

    /// The queue's identity in [`CompletionChannel::next_event`] and asynchronous events.
    pub fn id(&self) -> CqId {
        CqId::of(&self.shared.cq)
    }
}

impl Context {
    /// Creates a completion queue with at least `capacity` entries.
    ///
    /// # Errors
    ///
    /// [`CqError::Depth`] if `capacity` is 0 or too large.
    pub fn create_cq(&self, capacity: u32) -> Result<CompletionQueue, CqError> {
        Ok(CompletionQueue { shared: CqShared::new(&self.device, capacity, None)? })
    }

    /// Creates a completion queue that sends an event to `channel` when it is armed and gets a
    /// completion.
    ///
    /// # Errors
    ///
    /// The errors of [`create_cq`](Context::create_cq), and [`CqError::ChannelFull`].
    pub fn create_cq_on(
        &self,
        capacity: u32,
        channel: &CompletionChannel,
    ) -> Result<CompletionQueue, CqError> {
        let shared = CqShared::new(&self.device, capacity, Some(channel.engine()))?;
        Ok(CompletionQueue { shared })
    }
}
