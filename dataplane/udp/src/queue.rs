//! A queue: the sockets of one thread.

use crate::counters::Counters;
use crate::receive::{Received, Receiving};
use crate::send::Sending;
use crate::socket::Socket;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use uroce_wire::Mac;

/// Which queues of an endpoint are taken.
pub(crate) type Taken = Mutex<Vec<bool>>;

/// A socket at each address of the endpoint. It is used by one thread.
#[derive(Debug)]
pub struct Queue {
    index: u16,
    sockets: Arc<[Socket]>,
    sending: Sending,
    receiving: Receiving,
    taken: Arc<Taken>,
}

impl Queue {
    pub(crate) fn new(
        index: u16,
        sockets: Arc<[Socket]>,
        mac: Mac,
        counters: &Arc<Counters>,
        taken: Arc<Taken>,
    ) -> Queue {
        let sending = Sending::new(Arc::clone(&sockets), Arc::clone(counters));
        let receiving = Receiving::new(Arc::clone(&sockets), mac, Arc::clone(counters));
        Queue { index, sockets, sending, receiving, taken }
    }

    /// Sends frames, up to the first that has to wait because the kernel takes no more. Returns how
    /// many were taken: sent, or dropped and counted, since there is no way to send them.
    pub fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
        self.sending.send(frames)
    }

    /// Gives on received frames, at most `max`, until there are no more or `take` refuses one,
    /// which then comes again. Returns how many were taken.
    pub fn receive(&mut self, max: usize, take: impl FnMut(&Received<'_>) -> bool) -> usize {
        self.receiving.receive(max, take)
    }

    /// Returns its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Returns the descriptors that are readable when something has come.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(Socket::descriptor)
    }

    /// Returns whether received frames wait that no descriptor tells of.
    pub fn has_frames(&self) -> bool {
        self.receiving.has_rest()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = taken.get_mut(usize::from(self.index)) {
            *taken = false;
        }
    }
}
