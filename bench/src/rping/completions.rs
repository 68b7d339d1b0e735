//! Completions of one queue pair, separated into sends and receives.

use crate::error::{BenchError, Step};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use uroce::{CompletionQueue, WcOpcode, WcStatus, WorkCompletion};

/// Completions polled at a time.
const BATCH: usize = 16;
/// Longest wait before the deadline is checked again.
const LOOK: Duration = Duration::from_millis(100);

/// Separates completions of sends from those of receives. Every send is signaled.
pub(super) struct Completions {
    cq: CompletionQueue,
    received: VecDeque<WorkCompletion>,
    sent: u64,
    /// The queue pair is in ERR; no request of it will succeed any more.
    ended: bool,
}

impl Completions {
    pub(super) fn of(cq: CompletionQueue) -> Self {
        Self { cq, received: VecDeque::new(), sent: 0, ended: false }
    }

    /// Waits for the next message; `None` if the connection has ended.
    pub(super) fn receive(
        &mut self,
        limit: Duration,
    ) -> Result<Option<WorkCompletion>, BenchError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(message) = self.received.pop_front() {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            self.look(end, limit, "waiting for the other end's message")?;
        }
    }

    /// Waits until `count` sends in all have completed; false if the connection has ended before.
    pub(super) fn sent(&mut self, count: u64, limit: Duration) -> Result<bool, BenchError> {
        let end = Instant::now() + limit;
        while self.sent < count {
            if self.ended {
                return Ok(false);
            }
            self.look(end, limit, "waiting for messages to be acknowledged")?;
        }
        Ok(true)
    }

    fn look(
        &mut self,
        end: Instant,
        limit: Duration,
        waiting: &'static str,
    ) -> Result<(), BenchError> {
        match self.cq.wait(LOOK).step("polling a CQ")? {
            Some(first) => {
                self.sort(&first)?;
                let mut more = [WorkCompletion::default(); BATCH];
                let count = self.cq.poll(&mut more).step("polling a CQ")?;
                more[..count].iter().try_for_each(|completion| self.sort(completion))
            }
            None if Instant::now() >= end => Err(BenchError::TimedOut { waiting, limit }),
            None => Ok(()),
        }
    }

    fn sort(&mut self, completion: &WorkCompletion) -> Result<(), BenchError> {
        match (completion.status, completion.opcode) {
            (WcStatus::Success, WcOpcode::Recv) => self.received.push_back(*completion),
            (WcStatus::Success, _) => self.sent += 1,
            (WcStatus::WrFlushErr, _) => self.ended = true,
            (status, _) => {
                return Err(BenchError::Completion { operation: "the connection", status });
            }
        }
        Ok(())
    }
}
