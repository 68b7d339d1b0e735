//! Events that wait for a program, and the descriptor that tells it.
//!
//! Invariant: the descriptor counts the events in the queue ([`Tokens`]). Who takes one reads it
//! first, without our setting its flags; so it blocks, is interrupted or says EAGAIN as the program
//! has it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uroce::raw::Tokens;

use crate::errno::Errno;

/// A queue of events.
pub(crate) struct EventQueue<T> {
    tokens: Tokens,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub(crate) fn new() -> Result<EventQueue<T>, Errno> {
        Ok(EventQueue { tokens: Tokens::new()?, waiting: Mutex::default() })
    }

    /// The descriptor, which is the program's to wait on.
    pub(crate) fn fd(&self) -> RawFd {
        self.tokens.as_fd().as_raw_fd()
    }

    /// Takes the oldest event; waits for one unless the program has made the descriptor
    /// non-blocking.
    ///
    /// # Errors
    ///
    /// EAGAIN, EINTR.
    pub(crate) fn take(&self) -> Result<T, Errno> {
        loop {
            self.tokens.read()?;
            if let Some(event) = self.taken() {
                return Ok(event);
            }
        }
    }

    /// The event that the descriptor was read for; none if it was taken back meanwhile.
    pub(crate) fn taken(&self) -> Option<T> {
        self.lock().pop_front()
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        let mut waiting = self.lock();
        waiting.push_back(event);
        self.tokens.add();
    }

    /// Takes events back that wait.
    pub(crate) fn take_back(&self, is_one: impl Fn(&T) -> bool) -> Vec<T> {
        let mut waiting = self.lock();
        let (taken, left): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_one);
        *waiting = left.into();
        for _ in &taken {
            // Who has read it already finds nothing in the queue, and reads on.
            let _ = self.tokens.take();
        }
        taken
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_while_an_event_waits() {
        let queue = EventQueue::new().unwrap();
        rustix::io::ioctl_fionbio(&queue.tokens, true).unwrap();
        assert_eq!(queue.take(), Err(Errno::EAGAIN));
        [1, 2, 3].into_iter().for_each(|event| queue.push(event));
        assert_eq!(queue.take_back(|event| event % 2 == 1), [1, 3]);
        assert_eq!((queue.take(), queue.take()), (Ok(2), Err(Errno::EAGAIN)));
    }

    /// Linux before 5.8: `preadv2` cannot say at once that an eventfd has nothing.
    fn become_an_older_kernel() {
        let step = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let (load, compare) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        );
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP.cast_unsigned();
        let mut steps = [
            step(load, 0, 0, 0),
            step(compare, 0, 1, libc::SYS_preadv2 as u32),
            step(libc::BPF_RET, 0, 0, refuse),
            step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: a program of ours, for this thread alone.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    #[test]
    fn an_older_kernel_counts_what_is_taken_back_too() {
        let one = std::thread::spawn(|| {
            become_an_older_kernel();
            let queue = EventQueue::new().unwrap();
            queue.push(1);
            assert_eq!(queue.take_back(|_| true), [1]);
            let mut readable = libc::pollfd { fd: queue.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: a place of ours.
            assert_eq!(unsafe { libc::poll(&raw mut readable, 1, 0) }, 0);
        });
        one.join().unwrap();
    }
}
