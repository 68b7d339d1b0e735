//! The trace of one of the device's queue pairs: at most one.

use uroce_engine::{TapReader, TapSpec};
use uroce_wire::Qpn;

use super::Thread;
use crate::call::Calls;
use crate::capture::RINGS;
use crate::trace::Trace;

/// The trace of a device.
#[derive(Debug, Default)]
pub(super) struct Traces {
    /// The last one.
    trace: Option<Trace>,
    /// Number of the last one, which no other has had.
    made: u64,
}

impl Thread {
    /// Traces the next `count` packets of a QP at all ports. The former trace is forgotten.
    ///
    /// # Errors
    ///
    /// A text for people that says what is wrong.
    pub(crate) fn start_trace(
        &mut self,
        qp: Qpn,
        count: usize,
        calls: Calls,
    ) -> Result<(), String> {
        if let Some(port) = self.captured_port() {
            return Err(format!("port {port} is captured; end that first: capture stop {port}"));
        }
        self.clear_trace();
        let taps = self.trace_taps(qp)?;
        self.traces.made += 1;
        let number = self.traces.made;
        let ended = move || {
            // An error means that the device is closed.
            let _ = calls.send(move |thread| thread.trace_ended(number));
        };
        match Trace::start(qp.value(), count, taps, ended) {
            Ok(trace) => {
                self.traces.trace = Some(trace);
                Ok(())
            }
            Err(error) => {
                self.clear_taps();
                Err(format!("no trace: {error}"))
            }
        }
    }

    /// Returns whether a trace takes packets at the ports.
    pub(super) fn is_traced(&self) -> bool {
        self.traces.trace.as_ref().is_some_and(Trace::is_running)
    }

    /// Returns the trace, if there is one.
    pub(crate) fn trace_seen(&self, device: &str) -> Option<uroce_command::answer::Trace> {
        self.traces.trace.as_ref().map(|trace| trace.told(device))
    }

    /// Ends the trace, and forgets it.
    pub(crate) fn clear_trace(&mut self) {
        // One that has ended by itself may not have told of it yet.
        if self.traces.trace.take().is_some() {
            self.clear_taps();
        }
    }

    /// Ends the copying of frames for a trace that has ended by itself.
    fn trace_ended(&mut self, number: u64) {
        if self.traces.made == number && self.traces.trace.is_some() {
            self.clear_taps();
        }
    }

    /// Taps all ports for a QP. If that fails, none is tapped.
    fn trace_taps(&mut self, qp: Qpn) -> Result<Vec<(u8, TapReader)>, String> {
        let ports: Vec<u8> = self.ports.numbers().collect();
        let lanes = self.control.qps_of_lcores().count().max(1) * ports.len().max(1);
        let spec = TapSpec { snaplen: u16::MAX, qp: Some(qp), ring: RINGS / lanes, drops: true };
        let mut taps = Vec::new();
        for port in ports {
            match self.control.set_tap(port, &spec) {
                Ok(readers) => taps.extend(readers.into_iter().map(|reader| (port, reader))),
                Err(error) => {
                    self.clear_taps();
                    return Err(error.to_string());
                }
            }
        }
        Ok(taps)
    }

    /// Removes the taps of all ports but those that a capture has.
    fn clear_taps(&mut self) {
        let captured = self.captured_ports();
        for port in self.ports.numbers().filter(|port| !captured.contains(port)) {
            // An error means that the lcore has died.
            let _ = self.control.clear_tap(port);
        }
    }
}
