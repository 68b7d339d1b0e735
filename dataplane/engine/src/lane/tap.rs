//! A tap: copies of a port's frames, in and out, for a capture.
//!
//! ```text
//!   lcore: rx_burst ─▶ take ─┐                       ┌─▶ TapReader (a thread that is no lcore)
//!          tx frame ─▶ take ─┴▶ ring of bytes, SPSC ─┘
//! ```
//!
//! Received frames are taken as they come from the port, before injected faults; frames that are
//! sent, when they are queued for it, after injected faults. So a tap sees what is on the wire.
//! Looped frames are taken twice, as sent and as received.
//!
//! Invariants
//! - The lcore copies into a ring that was allocated beforehand. If the ring is full, the frame is
//!   counted as missed; the frame itself is handled as any other.
//! - A port without a tap pays nothing beyond the branches for injected faults.
//!
//! A tap may also note which of the taken frames the lcore has dropped, and why. These notes are
//! written where a drop is counted, so that frames that are not dropped cost nothing more.
//!
//! Not here: files and their formats.

use std::sync::Arc;
use std::time::Duration;
use uroce_shared::sync::{AtomicBool, AtomicU64, Consumer, Ordering, Producer, RingBuffer};
use uroce_transport::{DropReason, Instant};
use uroce_wire::{Frame, Qpn};

/// Bytes of a record before the frame's.
const HEADER: usize = 24;
/// Least bytes of a ring: a few of the longest frames.
const RING_MIN: usize = 1 << 18;
/// Largest number of bytes of a dropped frame that are copied again, to name it: up to the end of
/// BTH.
const NAMED: usize = 80;

/// Meaning of a record in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    Received,
    Sent,
    Dropped(DropReason),
}

impl Record {
    /// Returns the two bytes by which a ring represents the record.
    fn to_bytes(self) -> [u8; 2] {
        match self {
            Record::Received => [0, 0],
            Record::Sent => [1, 0],
            // There are fewer reasons than a byte can count.
            Record::Dropped(reason) => [2, reason as u8],
        }
    }
}

/// The parameters of a tap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapSpec {
    /// Largest number of bytes of a frame that are copied.
    pub snaplen: u16,
    /// The QP of which frames are taken; `None` for all frames of the port.
    pub qp: Option<Qpn>,
    /// Bytes of each lcore's ring, at least 256 KiB.
    pub ring: usize,
    /// Whether to note the frames that the lcore drops after they were taken.
    pub drops: bool,
}

/// One lcore's end of a tap.
#[derive(Debug)]
pub(crate) struct Tap {
    qp: Option<Qpn>,
    drops: bool,
    snaplen: usize,
    ring: Producer<u8>,
    /// Frames that were not copied since the last one that was.
    missed: u32,
    state: Arc<State>,
}

/// State that both ends of a tap share.
#[derive(Debug, Default)]
struct State {
    /// Frames that found the ring full. Written by the lcore only.
    missed: AtomicU64,
    /// The reader takes no more.
    is_over: AtomicBool,
}

/// The reading end of one lcore's tap.
#[derive(Debug)]
pub struct TapReader {
    ring: Consumer<u8>,
    state: Arc<State>,
}

/// A copied frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapFrame {
    /// Time of [`Clock`](crate::clock::Clock) at which the turn that took the frame began.
    pub time: Duration,
    /// Whether the frame was sent; otherwise it was received.
    pub is_sent: bool,
    /// Why the lcore has dropped the frame, which was taken before. The bytes are its first ones.
    pub dropped: Option<DropReason>,
    /// Length of the frame in bytes.
    pub len: u32,
    /// Number of frames directly before this one that were not copied, because the ring was full.
    pub missed: u32,
    /// The bytes that were copied.
    pub bytes: Vec<u8>,
}

/// Makes both ends of one lcore's tap.
pub(crate) fn tap(spec: &TapSpec) -> (Box<Tap>, TapReader) {
    let (producer, consumer) = RingBuffer::new(spec.ring.max(RING_MIN));
    let state = Arc::new(State::default());
    let tap = Tap {
        qp: spec.qp,
        drops: spec.drops,
        snaplen: usize::from(spec.snaplen),
        ring: producer,
        missed: 0,
        state: Arc::clone(&state),
    };
    (Box::new(tap), TapReader { ring: consumer, state })
}

impl Tap {
    /// Takes a frame that was received `now`, if it is for the tap's QP.
    pub(super) fn take_received(&mut self, frame: &[u8], now: Instant) {
        if self.qp.is_none_or(|qp| Frame::likely_dest_qpn(frame) == Some(qp)) {
            self.take(frame, self.snaplen, Record::Received, now);
        }
    }

    /// Notes that a received frame, which was taken before, was dropped `now`.
    pub(super) fn take_dropped(&mut self, frame: &[u8], reason: DropReason, now: Instant) {
        let is_its = self.qp.is_none_or(|qp| Frame::likely_dest_qpn(frame) == Some(qp));
        if self.drops && is_its {
            self.take(frame, NAMED, Record::Dropped(reason), now);
        }
    }

    /// Takes a frame that is sent `now`, if it is of the tap's QP. `by` is the QP that sends it;
    /// `None` for frames of the control plane.
    pub(super) fn take_sent(&mut self, frame: &[u8], by: Option<Qpn>, now: Instant) {
        if self.qp.is_none_or(|qp| by == Some(qp)) {
            self.take(frame, self.snaplen, Record::Sent, now);
        }
    }

    fn take(&mut self, frame: &[u8], most: usize, record: Record, now: Instant) {
        if self.state.is_over.load(Ordering::Relaxed) {
            return;
        }
        let bytes = &frame[..frame.len().min(most)];
        if self.ring.slots() < HEADER + bytes.len() {
            self.missed = self.missed.saturating_add(1);
            let missed = &self.state.missed;
            missed.store(missed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        // An mbuf has less than 2^16 bytes.
        let (len, copied) = (frame.len() as u32, bytes.len() as u16);
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&now.as_nanos().to_ne_bytes());
        header[8..12].copy_from_slice(&len.to_ne_bytes());
        header[12..16].copy_from_slice(&self.missed.to_ne_bytes());
        header[16..18].copy_from_slice(&copied.to_ne_bytes());
        header[18..20].copy_from_slice(&record.to_bytes());
        let pushed = self.ring.push_entire_slice(&header).is_ok()
            && self.ring.push_entire_slice(bytes).is_ok();
        debug_assert!(pushed, "there was room, and this is the only producer");
        self.missed = 0;
    }
}

impl TapReader {
    /// Takes the next frame into `frame`. Returns false if there is none now.
    pub fn read(&mut self, frame: &mut TapFrame) -> bool {
        // A chunk that is not committed leaves its bytes in the ring.
        let Ok(chunk) = self.ring.read_chunk(HEADER) else { return false };
        let mut header = [0; HEADER];
        let (first, second) = chunk.as_slices();
        header[..first.len()].copy_from_slice(first);
        header[first.len()..].copy_from_slice(second);
        let of = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
        let copied = usize::from(u16::from_ne_bytes([header[16], header[17]]));
        if self.ring.slots() < HEADER + copied {
            return false;
        }
        let time = [0, 1, 2, 3, 4, 5, 6, 7].map(|byte: usize| header[byte]);
        frame.time = Duration::from_nanos(u64::from_ne_bytes(time));
        (frame.len, frame.missed, frame.is_sent) = (of(8), of(12), header[18] == 1);
        let reason = DropReason::ALL.get(usize::from(header[19]));
        frame.dropped = reason.copied().filter(|_| header[18] == 2);
        frame.bytes.resize(copied, 0);
        self.ring.pop_entire_slice(&mut header).is_ok()
            && self.ring.pop_entire_slice(&mut frame.bytes).is_ok()
    }

    /// Returns how many frames were not copied since the start, because the ring was full.
    pub fn missed(&self) -> u64 {
        self.state.missed.load(Ordering::Relaxed)
    }

    /// Tells the lcore to copy no more frames.
    pub fn close(&self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: TapSpec = TapSpec { snaplen: 100, qp: None, ring: 0, drops: false };

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn frames_come_out_as_they_went_in_across_the_end_of_the_ring() {
        let (mut tap, mut reader) = tap(&SPEC);
        let mut frame = TapFrame::default();
        assert!(!reader.read(&mut frame));
        // The records do not divide the ring's size.
        for number in 0..10_000_u64 {
            let len = 60 + (number % 90) as usize;
            let bytes = vec![number as u8; len];
            let time = 1 << 40 | number;
            if number % 2 == 0 {
                tap.take_received(&bytes, at(time));
            } else {
                tap.take_sent(&bytes, None, at(time));
            }
            assert!(reader.read(&mut frame), "{number}");
            let expected = TapFrame {
                time: Duration::from_nanos(time),
                is_sent: number % 2 == 1,
                len: len as u32,
                missed: 0,
                dropped: None,
                bytes: vec![number as u8; len.min(100)],
            };
            assert_eq!(frame, expected);
        }
        assert!(!reader.read(&mut frame));
    }

    #[test]
    fn a_full_ring_loses_copies_and_counts_them() {
        let (mut tap, mut reader) = tap(&SPEC);
        let fit = RING_MIN / (HEADER + 100);
        for number in 0..fit + 7 {
            tap.take_received(&[1; 1500], at(number as u64));
        }
        assert_eq!(reader.missed(), 7);
        let mut frame = TapFrame::default();
        for _ in 0..fit {
            assert!(reader.read(&mut frame));
            assert_eq!((frame.missed, frame.len, frame.bytes.len()), (0, 1500, 100));
        }
        assert!(!reader.read(&mut frame));
        tap.take_received(&[1; 60], at(0));
        tap.take_received(&[1; 60], at(0));
        assert!(reader.read(&mut frame));
        assert_eq!(frame.missed, 7, "told with the next frame");
        assert!(reader.read(&mut frame));
        assert_eq!(frame.missed, 0, "and once");
        reader.close();
        tap.take_received(&[1; 60], at(0));
        assert!(!reader.read(&mut frame));
        assert_eq!(reader.missed(), 7, "frames after the end are not missed");
    }

    #[test]
    fn a_drop_is_noted_with_its_reason_if_the_tap_is_to() {
        let mut frame = TapFrame::default();
        for drops in [false, true] {
            let (mut tap, mut reader) = tap(&TapSpec { drops, ..SPEC });
            tap.take_received(&[7; 200], at(1));
            tap.take_dropped(&[7; 200], DropReason::AfterNak, at(2));
            assert!(reader.read(&mut frame));
            assert_eq!((frame.dropped, frame.bytes.len()), (None, 100));
            assert_eq!(reader.read(&mut frame), drops);
        }
        assert_eq!((frame.dropped, frame.is_sent), (Some(DropReason::AfterNak), false));
        assert_eq!((frame.len, frame.bytes.len()), (200, NAMED));
    }

    #[test]
    fn the_frames_of_one_qp_are_those_that_it_sends_and_those_to_it() {
        let qp = Qpn::new(0x11);
        let (mut tap, mut reader) = tap(&TapSpec { qp: Some(qp), ..SPEC });
        let to = |qpn: u8| {
            let mut frame = [0; 60];
            // IPv4 and UDP without more of their content, then BTH.
            frame[12] = 8;
            frame[42 + 7] = qpn;
            frame
        };
        let mut frame = TapFrame::default();
        tap.take_received(&to(0x12), at(0));
        tap.take_received(&[0; 60], at(0));
        tap.take_sent(&to(0x11), Some(Qpn::new(0x12)), at(0));
        tap.take_sent(&to(0x11), None, at(0));
        assert!(!reader.read(&mut frame));
        tap.take_received(&to(0x11), at(0));
        tap.take_sent(&to(0x12), Some(qp), at(0));
        assert!(reader.read(&mut frame) && !frame.is_sent);
        assert!(reader.read(&mut frame) && frame.is_sent);
    }
}
