//! Counts events that were delivered and not yet acknowledged; their object cannot be destroyed
//! before.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use crate::runtime;

/// The counts of one object's events.
#[derive(Default)]
pub(crate) struct Acks {
    counts: Mutex<Counts>,
    acknowledged: Condvar,
}

#[derive(Default)]
struct Counts {
    delivered: u64,
    acknowledged: u64,
    /// Set while the object is being destroyed. No event is delivered then.
    closed: bool,
}

impl Acks {
    /// Counts an event that is about to be delivered. False if it must not be delivered, because
    /// the object is being destroyed.
    pub(crate) fn deliver(&self) -> bool {
        let mut counts = self.lock();
        counts.delivered += u64::from(!counts.closed);
        !counts.closed
    }

    /// Adds to the number of acknowledged events.
    pub(crate) fn acknowledge(&self, events: u32) {
        self.lock().acknowledged += u64::from(events);
        self.acknowledged.notify_all();
    }

    /// Ends the delivery of events, before the object is destroyed.
    ///
    /// # Errors
    ///
    /// EINVAL if another thread is already destroying the object.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        let mut counts = self.lock();
        if counts.closed {
            return Err(Errno::EINVAL);
        }
        counts.closed = true;
        Ok(())
    }

    /// Blocks until all delivered events are acknowledged. In a forked child it returns at once, as
    /// the thread that has an event may be the parent's.
    pub(crate) fn wait(&self) {
        if runtime::is_orphaned() {
            return;
        }
        let mut counts = self.lock();
        while counts.acknowledged < counts.delivered {
            let woken = self.acknowledged.wait(counts);
            counts = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Resumes delivery after [`close`](Acks::close), because the object was not destroyed.
    pub(crate) fn reopen(&self) {
        self.lock().closed = false;
    }

    /// Whether the object is being destroyed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn destroying_waits_for_the_last_acknowledgement() {
        let acks = Arc::new(Acks::default());
        assert!(acks.deliver() && acks.deliver());
        acks.close().unwrap();
        let (sender, receiver) = channel();
        let waiter = {
            let acks = Arc::clone(&acks);
            std::thread::spawn(move || {
                acks.wait();
                sender.send(()).unwrap();
            })
        };
        acks.acknowledge(1);
        let soon = std::time::Duration::from_millis(20);
        assert!(receiver.recv_timeout(soon).is_err());
        acks.acknowledge(1);
        receiver.recv().unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn nothing_is_delivered_of_what_is_being_destroyed() {
        let acks = Acks::default();
        acks.close().unwrap();
        assert!(!acks.deliver());
        assert_eq!(acks.close(), Err(Errno::EINVAL));
        acks.wait();
        acks.reopen();
        assert!(acks.deliver());
    }
}
