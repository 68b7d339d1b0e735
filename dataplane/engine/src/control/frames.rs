//! Frames that are not RoCEv2: passed from the lcores to the control plane and back.

use super::{Control, PoolEmpty, SlowFrame};

/// The reason why a frame was not sent.
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
    /// Too many earlier frames of the port have not been sent yet.
    #[error("earlier frames have not been sent yet")]
    Full,
}

impl Control {
    /// Returns a received frame that is not RoCEv2, if there is one. To be polled: up to 256 wait;
    /// further ones are dropped and counted.
    pub fn recv_frame(&mut self) -> Option<SlowFrame> {
        self.exits.slow_path.pop()
    }

    /// Sends a complete Ethernet frame, without FCS, through a port, counted from 1.
    ///
    /// # Errors
    /// [`SendFrameError`].
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
        // Lcore 0 sends the control plane's frames.
        self.lcores[0].doorbell.wake();
        Ok(())
    }

    /// Returns whether the ports have taken all frames of [`send_frame`](Control::send_frame).
    pub fn frames_have_left(&self) -> bool {
        let mut rings = self.inject.iter();
        let taken = rings.all(|ring| ring.slots() == ring.buffer().capacity());
        if taken {
            // A frame that an lcore has taken is with the port at the end of its turn.
            self.shared.regions.turns().wait();
        }
        taken
    }
}
