//! A queue: the sockets that one thread uses, one at each address.

use crate::counters::Counters;
use crate::endpoint::EndpointConfig;
use crate::peers::Peers;
use crate::receive::{Received, Receiving};
use crate::send::Sending;
use crate::socket::Socket;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// For each queue of an endpoint, whether it is taken.
pub(crate) type Taken = Mutex<Vec<bool>>;

/// The sockets of an endpoint that one thread uses, one at each address. Dropping it gives it back.
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
        config: &EndpointConfig,
        counters: &Arc<Counters>,
        peers: &Arc<Peers>,
        taken: Arc<Taken>,
    ) -> Queue {
        let sending = Sending::new(Arc::clone(&sockets), Arc::clone(counters), Arc::clone(peers));
        let receiving =
            Receiving::new(Arc::clone(&sockets), config, Arc::clone(counters), Arc::clone(peers));
        Queue { index, sockets, sending, receiving, taken }
    }

    /// Sends frames. Stops at the first frame for which the kernel has no room now. Returns how
    /// many frames were taken, from the first on: those sent, and those dropped and counted because
    /// they cannot be sent.
    pub fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
        self.sending.send(frames)
    }

    /// Passes received frames to `take`, at most `max` of them. Stops when there are no more, or
    /// when `take` returns false; that frame is passed again by the next call. A datagram that is
    /// too long for a frame is passed over and counts towards `max`. Returns how many frames were
    /// taken.
    pub fn receive(&mut self, max: usize, take: impl FnMut(&Received<'_>) -> bool) -> usize {
        self.receiving.receive(max, take)
    }

    /// Returns the queue's number, counted from 0.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Returns the sockets' descriptors, which become readable when a datagram arrives.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(Socket::descriptor)
    }

    /// Looks at all sockets, and returns whether frames may wait. If not, the
    /// [descriptors](Queue::descriptors) report what arrives from now on.
    pub fn has_frames(&mut self) -> bool {
        self.receiving.has_frames()
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
