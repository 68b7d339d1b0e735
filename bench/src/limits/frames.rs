//! Frames without contents, sent as fast as the device accepts them, and one frame to and fro.
//!
//! The EtherType is reserved by IEEE 802 for local experiments; the destination is broadcast.

use super::memory::PAYLOAD;
use super::{RawPort, doze};
use crate::error::{BenchError, Step};
use crate::perf::measure::Latency;
use crate::pin::Side;
use crate::rendezvous::Link;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::{Duration, Instant};
use uroce_engine::clock::Clock;
use uroce_engine::mbuf::MbufBatch;

/// Broadcast, a local source, EtherType 0x88b5.
const HEADER: [u8; 14] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5];
/// Place of the number in a frame that goes to and fro.
const NUMBER: Range<usize> = HEADER.len()..HEADER.len() + size_of::<u64>();
/// Time after which a frame that has not come back is lost.
const LOST: Duration = Duration::from_millis(100);
/// Number of frames lost in a row after which the other end counts as absent.
const LOST_MAX: u32 = 20;
/// Time in which the device delivers the frames sent last.
const SETTLE: Duration = Duration::from_millis(20);
/// Frames that are sent at least, if the device takes them in [`PATIENCE`]: on a busy machine a
/// thread may not run in the whole of a short time.
const LEAST: usize = 1024;
/// Longest time beyond the asked one for them.
const PATIENCE: Duration = Duration::from_secs(2);
/// Iterations before the measured ones, unless they take half of the time.
const WARM_UP: u64 = 200;

/// Messages between the ends.
#[derive(Serialize, Deserialize)]
enum Word {
    /// The server polls its port.
    Ready,
    /// The client has sent its last frame.
    Stop,
    /// Number of frames that the server has counted, and the time in ns.
    Counted { frames: u64, ns: u64 },
}

/// Sends for `time`, and until [`LEAST`] frames are sent. Returns the frames per second that the
/// other end received. `fill` writes each frame.
pub(super) fn source(
    raw: &mut RawPort,
    link: &mut Link,
    frame: usize,
    time: Duration,
    mut fill: impl FnMut(&mut [u8]),
) -> Result<f64, BenchError> {
    let _registered = raw.register_thread()?;
    wait_ready(link)?;
    let (clock, mut batch) = (Clock::new(), MbufBatch::new());
    let end = clock.now() + time.as_nanos() as u64;
    let (last, mut sent) = (end + PATIENCE.as_nanos() as u64, 0);
    while clock.now() < if sent < LEAST { last } else { end } {
        let had = batch.len();
        if raw.pool.alloc_burst(&mut batch, usize::MAX).is_ok() {
            for mbuf in &mut batch.as_mut_slice()[had..] {
                mbuf.set_len_aligned(PAYLOAD, frame).step("a frame")?;
                fill(mbuf.as_mut_slice());
            }
        }
        let accepted = raw.queue.tx_burst(&mut batch);
        sent += accepted;
        if accepted == 0 {
            std::hint::spin_loop();
        }
    }
    link.send(&Word::Stop)?;
    match link.receive("waiting for the count of frames", doze)? {
        Word::Counted { frames: 0, .. } => {
            Err(BenchError::Peer("it received none of our frames".to_owned()))
        }
        Word::Counted { frames, ns } => Ok(frames as f64 * 1e9 / ns.max(1) as f64),
        _ => Err(BenchError::Peer("it sent an unexpected message".to_owned())),
    }
}

/// Writes only the Ethernet header.
pub(super) fn address(frame: &mut [u8]) {
    if let Some(header) = frame.first_chunk_mut() {
        *header = HEADER;
    }
}

/// Receives until the other end has stopped, and sends it the number of frames. `take` is called
/// with each frame.
pub(super) fn sink(
    raw: &mut RawPort,
    link: &mut Link,
    mut take: impl FnMut(&[u8]),
) -> Result<(), BenchError> {
    let _registered = raw.register_thread()?;
    be_ready(raw, link)?;
    let (clock, mut batch) = (Clock::new(), MbufBatch::new());
    let (mut frames, mut first, mut last, mut look) = (0u64, 0, 0, 0);
    let mut stopped = None;
    loop {
        let received = raw.queue.rx_burst(&mut batch);
        batch.as_slice().iter().for_each(|mbuf| take(mbuf.as_slice()));
        batch.clear();
        let now = clock.now();
        if received > 0 {
            if frames == 0 {
                // The first burst starts the clock and is not counted.
                first = now;
                frames = 1;
            } else {
                frames += received as u64;
            }
            last = now;
        } else if now > look {
            look = now + 100_000;
            if stopped.is_none() && link.try_receive::<Word>()?.is_some() {
                stopped = Some(now);
            }
            if stopped.is_some_and(|at| now - at > SETTLE.as_nanos() as u64) {
                break;
            }
        }
    }
    link.send(&Word::Counted { frames: frames.saturating_sub(1), ns: last - first })
}

/// Returns the median of half the round trip of one frame, in ns.
pub(super) fn ping(
    raw: &mut RawPort,
    link: &mut Link,
    frame: usize,
    time: Duration,
) -> Result<f64, BenchError> {
    let _registered = raw.register_thread()?;
    drain(raw);
    wait_ready(link)?;
    let (clock, mut batch, mut latency) = (Clock::new(), MbufBatch::new(), Latency::new());
    let begin = clock.now();
    let (half, end) = (begin + time.as_nanos() as u64 / 2, begin + time.as_nanos() as u64);
    let (mut done, mut lost) = (0, 0);
    for number in 0u64.. {
        if batch.is_empty() {
            let mut mbuf = raw.pool.alloc().step("a frame")?;
            mbuf.set_len(frame).step("a frame")?;
            address(mbuf.as_mut_slice());
            // The batch is empty, so that this succeeds.
            drop(batch.push(mbuf));
        }
        if let [mbuf, ..] = batch.as_mut_slice() {
            mbuf.as_mut_slice()[NUMBER].copy_from_slice(&number.to_be_bytes());
        }
        let sent = clock.now();
        // On a busy machine one round trip may take longer than the measurement.
        if sent > end && latency.count() > 0 {
            break;
        }
        match round_trip(raw, &mut batch, number, &clock, sent) {
            Some(back) => {
                lost = 0;
                done += 1;
                if done > WARM_UP || sent > half {
                    latency.record(back - sent);
                }
            }
            None => lost += 1,
        }
        if lost == LOST_MAX {
            return Err(BenchError::Peer("our frames do not come back".to_owned()));
        }
    }
    link.send(&Word::Stop)?;
    Ok(latency.quantiles(2.0).p50)
}

/// Sends the only frame of the batch and waits until it is back; `None` if it is lost. A frame
/// given up earlier may arrive first and is dropped.
#[inline]
fn round_trip(
    raw: &mut RawPort,
    batch: &mut MbufBatch,
    number: u64,
    clock: &Clock,
    sent: u64,
) -> Option<u64> {
    let mut is_out = false;
    loop {
        if !is_out {
            is_out = raw.queue.tx_burst(batch) > 0;
        } else if raw.queue.rx_burst(batch) > 0 {
            let back = clock.now();
            if keep(batch, number) {
                return Some(back);
            }
        }
        if clock.now() - sent > LOST.as_nanos() as u64 {
            return None;
        }
    }
}

/// Drops all frames but the one with this number. Tells whether that is there.
#[inline]
fn keep(batch: &mut MbufBatch, number: u64) -> bool {
    while let Some(mbuf) = batch.pop() {
        if mbuf.as_slice().get(NUMBER) == Some(&number.to_be_bytes()[..]) {
            batch.clear();
            return batch.push(mbuf).is_ok();
        }
    }
    false
}

/// Sends received frames back until the other end has stopped.
pub(super) fn echo(raw: &mut RawPort, link: &mut Link) -> Result<(), BenchError> {
    let _registered = raw.register_thread()?;
    be_ready(raw, link)?;
    let mut batch = MbufBatch::new();
    let mut idle = 0u32;
    loop {
        if raw.queue.rx_burst(&mut batch) > 0 {
            idle = 0;
            raw.queue.tx_burst(&mut batch);
        } else {
            idle = idle.wrapping_add(1);
            if idle.is_multiple_of(4096) && link.try_receive::<Word>()?.is_some() {
                return Ok(());
            }
        }
    }
}

fn wait_ready(link: &mut Link) -> Result<(), BenchError> {
    match link.receive("waiting for the other end to poll", doze)? {
        Word::Ready => link.wake_each_other(Side::Client),
        _ => Err(BenchError::Peer("it sent an unexpected message".to_owned())),
    }
}

fn be_ready(raw: &mut RawPort, link: &mut Link) -> Result<(), BenchError> {
    drain(raw);
    link.send(&Word::Ready)?;
    link.wake_each_other(Side::Server)
}

/// Frees frames of an earlier measurement.
fn drain(raw: &mut RawPort) {
    let mut batch = MbufBatch::new();
    let deadline = Instant::now() + SETTLE;
    while raw.queue.rx_burst(&mut batch) > 0 && Instant::now() < deadline {
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Setting;

    /// Parameters of a measurement that is over at once.
    const AT_ONCE: Setting = Setting { size: 4096, mtu: 4096, time: Duration::ZERO };

    #[test]
    fn frames_are_counted_even_if_the_sender_has_not_run_in_its_time() {
        let (mut near, mut far) = RawPort::ring_pair("at-once", &AT_ONCE).expect("ports");
        let (mut ours, mut theirs) = Link::pair().expect("a link");
        let rate = std::thread::scope(|scope| {
            scope.spawn(move || sink(&mut far, &mut theirs, |_| ()).expect("a count"));
            source(&mut near, &mut ours, 64, AT_ONCE.time, address)
        });
        assert!(rate.expect("a rate") > 0.0);
    }

    #[test]
    fn a_late_frame_is_no_answer() {
        let (raw, _far) = RawPort::ring_pair("late", &AT_ONCE).expect("ports");
        let mut batch = MbufBatch::new();
        let fill = |batch: &mut MbufBatch, numbers: &[u64]| {
            for number in numbers {
                let mut mbuf = raw.pool.alloc().expect("a frame");
                mbuf.set_len(64).expect("a frame");
                mbuf.as_mut_slice()[NUMBER].copy_from_slice(&number.to_be_bytes());
                batch.push(mbuf).expect("room");
            }
        };
        fill(&mut batch, &[6]);
        assert!(!keep(&mut batch, 7) && batch.is_empty());
        fill(&mut batch, &[5, 7, 6]);
        assert!(keep(&mut batch, 7));
        assert_eq!(batch.len(), 1);
        assert_eq!(batch.as_slice()[0].as_slice()[NUMBER], 7u64.to_be_bytes());
    }
}
