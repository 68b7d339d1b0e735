//! A queue of events for the program, with a descriptor that is readable while it has events.
//!
//! Invariant: the descriptor counts the events in the queue ([`Tokens`]). An event is taken after
//! reading the descriptor. This library does not change the descriptor's flags, so the read blocks,
//! is interrupted or fails with EAGAIN as the program has set it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uroce::raw::Tokens;

use crate::errno::Errno;
use crate::runtime;

/// A queue of events.
pub(crate) struct EventQueue<T> {
    tokens: Tokens,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE if no file descriptor is left.
    pub(crate) fn new() -> Result<EventQueue<T>, Errno> {
        Ok(EventQueue { tokens: Tokens::new()?, waiting: Mutex::default() })
    }

    /// The descriptor on which the program waits.
    pub(crate) fn fd(&self) -> RawFd {
        self.tokens.as_fd().as_raw_fd()
    }

    /// The descriptor, for a read that takes the token of an event.
    ///
    /// # Errors
    ///
    /// EBADF: the program has closed the descriptor. Its number may be another file's.
    pub(crate) fn readable_fd(&self) -> Result<RawFd, Errno> {
        if self.tokens.are_gone() { Err(Errno::EBADF) } else { Ok(self.fd()) }
    }

    /// Takes the oldest event. Waits for one, unless the program has made the descriptor
    /// non-blocking.
    ///
    /// # Errors
    ///
    /// EAGAIN if the descriptor is non-blocking and there is no event; EINTR if a signal interrupts
    /// the wait.
    pub(crate) fn take(&self) -> Result<T, Errno> {
        loop {
            self.tokens.read()?;
            if let Some(event) = self.taken() {
                return Ok(event);
            }
        }
    }

    /// Takes the event that the descriptor was read for. `None` if it was withdrawn in the
    /// meantime.
    pub(crate) fn taken(&self) -> Option<T> {
        self.lock().pop_front()
    }

    /// Adds an event. In a forked child it does nothing: the descriptor counts the parent's events.
    pub(crate) fn push(&self, event: T) {
        if runtime::is_orphaned() {
            return;
        }
        let mut waiting = self.lock();
        waiting.push_back(event);
        self.tokens.add();
    }

    /// Withdraws and returns the pending events for which `is_one` is true. In a forked child they
    /// are the parent's, and there are none.
    pub(crate) fn take_back(&self, is_one: impl Fn(&T) -> bool) -> Vec<T> {
        if runtime::is_orphaned() {
            return Vec::new();
        }
        let mut waiting = self.lock();
        let (taken, left): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_one);
        *waiting = left.into();
        for _ in &taken {
            // A thread that has read the token already finds no event, and reads again.
            let _ = self.tokens.take();
        }
        taken
    }

    /// The number of pending events.
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

    /// Emulates Linux before 5.8, where `preadv2` cannot test an eventfd without blocking.
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
        // SAFETY: the filter is valid, and applies to the calling thread only.
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
            // SAFETY: `readable` is one valid `pollfd`.
            assert_eq!(unsafe { libc::poll(&raw mut readable, 1, 0) }, 0);
        });
        one.join().unwrap();
    }
}
