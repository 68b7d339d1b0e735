//! Frames that are not RoCEv2: from the lcores to the control plane and back.

use super::{Control, PoolEmpty, SlowFrame};

/// Why a frame was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendFrameError {
    /// The engine has no port of this number; ports count from 1.
    #[error("no port {0}")]
    NoSuchPort(u8),
    /// The frame is empty or longer than the port's mbufs.
    #[error("a frame of {0} bytes cannot be sent")]
    Length(usize),
    /// The port's mempool is empty.
    #[error(transparent)]
    NoMbuf(#[from] PoolEmpty),
    /// Earlier frames of the port still wait for it.
    #[error("earlier frames have not been sent yet")]
    Full,
}

impl Control {
    /// A received frame that is not RoCEv2, if there is one. To be polled: up to 256 wait, further
    /// ones are dropped and counted.
    pub fn recv_frame(&mut self) -> Option<SlowFrame> {
        self.exits.slow_path.pop()
    }

    /// Sends a complete Ethernet frame, without FCS, by a port, counted from 1.
    ///
    /// # Errors
    /// See [`SendFrameError`].
    pub fn send_frame(&mut self, port: u8, frame: &[u8]) -> Result<(), SendFrameError> {
        let binding = self.binding(port).map_err(|_| SendFrameError::NoSuchPort(port))?;
        let mut mbuf = binding.pool.alloc()?;
        let fits = !frame.is_empty() && mbuf.set_len(frame.len()).is_ok();
        if !fits {
            return Err(SendFrameError::Length(frame.len()));
        }
        mbuf.as_mut_slice().copy_from_slice(frame);
        let pushed = self.inject[usize::from(port) - 1].push(mbuf);
        pushed.map_err(|_| SendFrameError::Full)?;
        // The control plane's frames leave by lcore 0.
        self.lcores[0].doorbell.wake();
        Ok(())
    }

    /// Are the frames that were sent with their ports?
    pub fn frames_have_left(&self) -> bool {
        let mut rings = self.inject.iter();
        let taken = rings.all(|ring| ring.slots() == ring.buffer().capacity());
        if taken {
            // What an lcore has taken is with the port when its turn ends.
            self.shared.regions.turns().wait();
        }
        taken
    }
}
