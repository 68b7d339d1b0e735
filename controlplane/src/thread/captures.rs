//! Captures of the device's ports: at most one of each.

use std::fs::File;

use uroce_engine::TapSpec;
use uroce_wire::Qpn;

use super::Thread;
use crate::call::Calls;
use crate::capture::{Capture, CaptureSpec, Ending, Interface, Progress, RINGS};

/// The captures of a device.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// Each with its number, which no other has had.
    all: Vec<(u64, Capture)>,
    made: u64,
}

/// A capture at one moment.
#[derive(Clone, Debug)]
pub(crate) struct CaptureSeen {
    pub(crate) spec: CaptureSpec,
    pub(crate) progress: Progress,
}

impl Thread {
    /// Captures a port into a file. A capture of the port that has ended is forgotten.
    ///
    /// # Errors
    ///
    /// A text for people that says what is wrong.
    pub(crate) fn start_capture(
        &mut self,
        port: u8,
        spec: CaptureSpec,
        interface: Interface,
        file: File,
        calls: Calls,
    ) -> Result<(), String> {
        let mut of_port = self.captures.all.iter().filter(|(_, capture)| capture.port == port);
        if let Some((_, running)) = of_port.find(|(_, of)| of.progress().end.is_none()) {
            let Capture { spec: CaptureSpec { id, file, .. }, .. } = running;
            return Err(format!("port {id} is captured already, into {file}; see `capture stop`"));
        }
        if self.is_traced() {
            let id = spec.id;
            return Err(format!("a QP is traced at port {id}; end that first: clear trace"));
        }
        self.captures.all.retain(|(_, capture)| capture.port != port);
        let qp = spec.qp.map(Qpn::new);
        if qp.is_some_and(|qp| Some(qp.value()) != spec.qp) {
            return Err(format!("no QP {:#08x}", spec.qp.unwrap_or_default()));
        }
        let ring = RINGS / self.control.qps_of_lcores().count().max(1);
        let tap = TapSpec { snaplen: spec.snaplen, qp, ring, drops: false };
        let taps = self.control.set_tap(port, &tap).map_err(|error| error.to_string())?;
        let number = self.captures.made;
        self.captures.made += 1;
        let ended = move || {
            // An error means that the device is closed.
            let _ = calls.send(move |thread| thread.capture_ended(number));
        };
        match Capture::start(port, spec, interface, taps, file, ended) {
            Ok(capture) => {
                self.captures.all.push((number, capture));
                Ok(())
            }
            Err(error) => {
                let _ = self.control.clear_tap(port);
                Err(format!("no capture: {error}"))
            }
        }
    }

    /// Ends the copying of frames for a capture that has ended by itself.
    fn capture_ended(&mut self, number: u64) {
        if self.is_traced() {
            // The taps are a trace's by now.
            return;
        }
        let captures = &self.captures.all;
        if let Some((_, capture)) = captures.iter().find(|(of, _)| *of == number) {
            // An error means that the lcore has died.
            let _ = self.control.clear_tap(capture.port);
        }
    }

    /// Ends the running captures of these ports, numbered from 1. Returns the way to wait until
    /// their files are complete.
    pub(crate) fn stop_captures(&mut self, ports: &[u8]) -> Vec<Ending> {
        let mut endings = Vec::new();
        for (_, capture) in &self.captures.all {
            if ports.contains(&capture.port) && capture.progress().end.is_none() {
                let _ = self.control.clear_tap(capture.port);
                endings.push(capture.stop());
            }
        }
        endings
    }

    /// Returns the captures of the device's ports, those that have ended too.
    pub(crate) fn captures_seen(&self) -> Vec<CaptureSeen> {
        let seen = |capture: &Capture| CaptureSeen {
            spec: capture.spec.clone(),
            progress: capture.progress(),
        };
        self.captures.all.iter().map(|(_, capture)| seen(capture)).collect()
    }

    /// Returns the numbers of the ports that are captured now, from 1.
    pub(super) fn captured_ports(&self) -> Vec<u8> {
        let running = |capture: &&Capture| capture.progress().end.is_none();
        let all = self.captures.all.iter().map(|(_, capture)| capture);
        all.filter(running).map(|capture| capture.port).collect()
    }

    /// Returns DPDK's number of a port that is captured now.
    pub(super) fn captured_port(&self) -> Option<u16> {
        let all = self.captures.all.iter().map(|(_, capture)| capture);
        all.filter(|capture| capture.progress().end.is_none()).map(|capture| capture.spec.id).next()
    }

    /// Completes the files of all captures, as far as the system lets it.
    pub(super) fn end_captures(&mut self) {
        let ports: Vec<u8> = self.ports.numbers().collect();
        self.stop_captures(&ports);
        self.captures.all.clear();
    }
}
