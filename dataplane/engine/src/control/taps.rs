//! Taps: copies of the frames of a port, for a capture.

use super::{Control, ControlError};
use crate::lane::tap::{TapReader, TapSpec, tap};
use crate::lcore::command::SetTap;

impl Control {
    /// Makes copies of the frames that a port, counted from 1, receives and sends. Returns the end
    /// of each lcore. A tap that the port had before gets no more frames.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], [`ControlError::UnknownQp`], or the error of an lcore that
    /// does not answer; then no lcore copies frames.
    pub fn set_tap(&mut self, port: u8, spec: &TapSpec) -> Result<Vec<TapReader>, ControlError> {
        self.binding(port)?;
        if let Some(qpn) = spec.qp {
            self.record(qpn)?;
        }
        let mut readers = Vec::new();
        for lcore in 0..self.lcores.len() {
            let (tap, reader) = tap(spec);
            let command = SetTap { port: usize::from(port) - 1, tap: Some(tap) };
            let told = self.call(lcore, command);
            match told.and_then(|former| former.ok_or(ControlError::NoSuchPort(port))) {
                Ok(former) => drop(former),
                Err(error) => {
                    // An lcore that takes its tap late finds that its reader has gone.
                    drop(readers);
                    let _ = self.clear_tap(port);
                    return Err(error);
                }
            }
            readers.push(reader);
        }
        Ok(readers)
    }

    /// Ends the copying of frames of a port, counted from 1. When this returns, the lcores have put
    /// their last copies into the rings.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], or the error of the last lcore that does not answer.
    pub fn clear_tap(&mut self, port: u8) -> Result<(), ControlError> {
        self.binding(port)?;
        let mut result = Ok(());
        for lcore in 0..self.lcores.len() {
            match self.call(lcore, SetTap { port: usize::from(port) - 1, tap: None }) {
                Ok(former) => drop(former),
                Err(error) => result = Err(error),
            }
        }
        result
    }
}
