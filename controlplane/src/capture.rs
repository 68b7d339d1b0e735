//! Captures: the frames of a port, written to a file as pcapng.
//!
//! ```text
//!   lcores ── taps (rings) ──> thread of the capture ── pcapng ──> file of the client
//! ```
//!
//! The client opens the file, with its own rights and in its own name space, and sends the
//! descriptor with the request. So no path is resolved here, and a capture goes on when its client
//! has gone.
//!
//! Invariants
//! - Neither lcores nor the control-plane thread touch the file. A file that takes no bytes costs
//!   its capture frames, which are counted.
//! - A capture ends: by its count, at [`FILE_MAX`] bytes, at the first error, with the device, or
//!   when it is told to.
//! - Memory is bounded: the rings of all lcores together have [`RINGS`] bytes, as long as there are
//!   few lcores.
//!
//! Not here: copying frames (`uroce-engine`), the format ([`file`]).

mod file;
pub(crate) mod merge;

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uroce_engine::TapReader;
use uroce_engine::clock::Clock;
use uroce_engine::eal::block_signals;

use crate::control_socket::own::Own;
pub(crate) use file::Interface;
use file::Pcapng;
use merge::Merged;

/// Bytes of the rings of all lcores together.
pub(crate) const RINGS: usize = 16 << 20;
/// Longest file, in bytes.
const FILE_MAX: u64 = 1 << 32;
/// Pause of the thread after it has found no frame.
const PAUSE: Duration = Duration::from_millis(2);
/// Frames after which the file is written, though there are more.
const BATCH: u64 = 1024;

/// The parameters of a capture.
#[derive(Clone, Debug)]
pub(crate) struct CaptureSpec {
    /// DPDK's number of the port.
    pub(crate) id: u16,
    /// Name of the file, for people.
    pub(crate) file: String,
    pub(crate) qp: Option<u32>,
    pub(crate) snaplen: u16,
    /// Frames after which it ends.
    pub(crate) count: Option<u64>,
}

/// Progress of a capture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Frames in the file.
    pub(crate) frames: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Frames that found a ring full.
    pub(crate) missed: u64,
    /// Why it has ended, if it has.
    pub(crate) end: Option<String>,
    is_stopping: bool,
}

/// A capture, running or ended.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The port's number at the device, from 1.
    pub(crate) port: u8,
    pub(crate) spec: CaptureSpec,
    progress: Arc<Mutex<Progress>>,
    /// Closed when the file is complete.
    done: Arc<Mutex<Receiver<()>>>,
}

impl Capture {
    /// Starts the thread of a capture of port number `port` of the device. It calls `ended` when
    /// it has ended by itself.
    ///
    /// # Errors
    ///
    /// No thread can be started, or the file cannot be used.
    pub(crate) fn start(
        port: u8,
        spec: CaptureSpec,
        interface: Interface,
        taps: Vec<TapReader>,
        file: File,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Capture> {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let (sender, done) = channel();
        let writer = Writer {
            frames: Merged::new(taps.into_iter().map(|tap| (port, tap))),
            out: Pcapng::new(&interface),
            file: Own::new(file)?,
            count: spec.count,
            progress: Arc::clone(&progress),
            wall: wall_offset(),
        };
        let body = move || {
            block_signals();
            let told = writer.run();
            // The file is complete, and closed.
            drop(sender);
            if !told {
                ended();
            }
        };
        std::thread::Builder::new().name("uroce-capture".into()).spawn(body)?;
        Ok(Capture { port, spec, progress, done: Arc::new(Mutex::new(done)) })
    }

    /// Returns how far it is.
    pub(crate) fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Tells the thread to write what is in the rings and to end. Returns the way to wait for that.
    pub(crate) fn stop(&self) -> Ending {
        lock(&self.progress).is_stopping = true;
        Ending { done: Arc::clone(&self.done), progress: Arc::clone(&self.progress) }
    }
}

impl Drop for Capture {
    /// Ends the capture. A file that takes no bytes is not waited for.
    fn drop(&mut self) {
        let _ = self.stop().wait(Duration::from_secs(1));
    }
}

/// A capture that was told to end.
#[derive(Debug)]
pub(crate) struct Ending {
    done: Arc<Mutex<Receiver<()>>>,
    progress: Arc<Mutex<Progress>>,
}

impl Ending {
    /// Waits until the file is complete. `None` if that takes longer than `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Progress> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = done.recv_timeout(patience);
        let progress = lock(&self.progress);
        progress.end.is_some().then(|| progress.clone())
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time of day at the epoch of the engine's clock.
fn wall_offset() -> Duration {
    let now = Duration::from_nanos(Clock::new().now());
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wall.saturating_sub(now)
}

struct Writer {
    frames: Merged,
    out: Pcapng,
    file: Own<File>,
    count: Option<u64>,
    progress: Arc<Mutex<Progress>>,
    wall: Duration,
}

impl Writer {
    /// Writes frames until the capture ends. Returns whether it was told to.
    fn run(mut self) -> bool {
        loop {
            // Before the frames, so that none that was copied before the order is left.
            let is_stopping = lock(&self.progress).is_stopping;
            let batch = self.batch(is_stopping);
            let progress = self.progress();
            let is_counted = self.count.is_some_and(|count| progress.frames >= count);
            let end = if is_counted {
                Some(format!("has all {} frames", progress.frames))
            } else if progress.bytes + self.out.pending() > FILE_MAX {
                Some(format!("the file has {} GiB", FILE_MAX >> 30))
            } else if is_stopping && batch == 0 {
                Some("stopped".to_owned())
            } else {
                None
            };
            if end.is_some() {
                self.frames.close();
                self.out.statistics(progress.frames, progress.missed, self.now());
            }
            let end = self.write().err().map(|error| error.to_string()).or(end);
            let is_over = end.is_some();
            lock(&self.progress).end = end;
            if is_over {
                return is_stopping;
            }
            if batch < BATCH {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Takes frames, in the order of their times. Returns how many.
    fn batch(&mut self, is_stopping: bool) -> u64 {
        let mut room = BATCH;
        if let Some(count) = self.count {
            room = room.min(count.saturating_sub(self.out.frames()));
        }
        let Writer { frames, out, wall, .. } = self;
        frames.take(room, is_stopping, |_, frame| out.frame(frame, *wall + frame.time))
    }

    fn progress(&self) -> Progress {
        let mut progress = lock(&self.progress);
        progress.frames = self.out.frames();
        progress.missed = self.frames.missed();
        progress.clone()
    }

    fn now(&self) -> Duration {
        self.wall + self.frames.now()
    }

    /// Writes to the file what was taken.
    fn write(&mut self) -> io::Result<()> {
        let closed = || io::Error::other("the program has closed the file's descriptor");
        let file = self.file.get().ok_or_else(closed)?;
        let len = self.out.write(file)?;
        lock(&self.progress).bytes += len;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
