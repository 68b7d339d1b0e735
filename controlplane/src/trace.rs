//! Trace: the next packets of a queue pair, a line each with what became of it.
//!
//! ```text
//!   lcores ── taps of all ports (rings) ──> thread of the trace ──> packets, until enough
//! ```
//!
//! A packet's verdict is read from the packet itself and from those before it, except that an lcore
//! reports the packets that it has dropped and why. So a QP that is not traced pays nothing, and
//! one that is traced pays for copies.
//!
//! Invariants
//! - Any bytes can be in a frame: none of them ends the trace or the thread.
//! - Memory is bounded by the number of packets; the frames themselves are not kept.
//!
//! Not here: copying frames (`uroce-engine`), the order of several lcores' ([`Merged`]).

mod packet;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uroce_command::answer::Trace as Told;
use uroce_engine::TapReader;
use uroce_engine::eal::block_signals;

use crate::capture::merge::Merged;
use packet::Packets;

/// Pause of the thread after it has found few packets.
const PAUSE: Duration = Duration::from_millis(2);
/// Packets that are read while a question for them waits.
const BATCH: u64 = 128;
/// Turns of the thread for which it waits for the drops of the last packets.
const LATE: u32 = 3;

/// The trace of a queue pair, running or ended.
#[derive(Debug)]
pub(crate) struct Trace {
    qp: u32,
    state: Arc<Mutex<State>>,
}

/// Progress of a trace.
#[derive(Debug, Default)]
struct State {
    packets: Packets,
    missed: u64,
    /// Why it has ended, if it has.
    end: Option<String>,
    is_stopping: bool,
}

impl Trace {
    /// Starts the thread of a trace of `count` packets. The thread calls `ended` when it has ended
    /// by itself.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(crate) fn start(
        qp: u32,
        count: usize,
        taps: Vec<(u8, TapReader)>,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Trace> {
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, frames) = (Arc::clone(&state), Merged::new(taps));
        let body = move || {
            block_signals();
            if !follow(frames, count, &shared) {
                ended();
            }
        };
        std::thread::Builder::new().name("uroce-trace".into()).spawn(body)?;
        Ok(Trace { qp, state })
    }

    /// Returns whether packets are still waited for.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.state).end.is_none()
    }

    /// Returns what is known so far, for the device of this name.
    pub(crate) fn told(&self, device: &str) -> Told {
        let state = lock(&self.state);
        Told {
            device: device.to_owned(),
            qp: self.qp,
            end: state.end.clone(),
            missed: state.missed,
            packets: state.packets.told().to_vec(),
        }
    }
}

impl Drop for Trace {
    /// Tells the thread to end. It is not waited for.
    fn drop(&mut self) {
        lock(&self.state).is_stopping = true;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads packets until there are enough. Returns whether the thread was told to end.
fn follow(mut frames: Merged, count: usize, state: &Mutex<State>) -> bool {
    let mut turns_left = LATE;
    loop {
        let taken = {
            let mut state = lock(state);
            if state.is_stopping {
                return true;
            }
            let is_ending = turns_left < LATE;
            let packets = &mut state.packets;
            let taken =
                frames.take(BATCH, is_ending, |port, frame| packets.add(port, frame, count));
            state.missed = frames.missed();
            if state.packets.told().len() >= count {
                turns_left -= 1;
            }
            if turns_left == 0 {
                frames.close();
                state.end = Some(format!("has all {count} packets"));
                return false;
            }
            taken
        };
        if taken < BATCH {
            std::thread::sleep(PAUSE);
        }
    }
}
