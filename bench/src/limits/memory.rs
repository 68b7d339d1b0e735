//! What a core needs at least for a payload byte: to copy it and to check it.
//!
//! The message lies in memory of the application's, the frames in mbufs of the port's, whole
//! packets with their headers: what the stack works on. All of it fits the cache of a core, as
//! it does in a bandwidth test.

use super::{PACKET_OVERHEAD, RawPort, Setting};
use crate::error::{BenchError, Step};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;
use uroce_engine::clock::Clock;
use uroce_engine::mbuf::{BATCH, MbufBatch};
use uroce_wire::{Bth, Encap, ExtHeaders, Gid, OpCode, emit_headers};

/// Rates of one core, payload, Gb/s.
pub(super) struct Rates {
    pub(super) copy_gbps: f64,
    pub(super) icrc_gbps: f64,
    pub(super) copy_icrc_gbps: f64,
}

/// Where the IP header and the payload of our packets start.
const L3: usize = 14;
const PAYLOAD: usize = PACKET_OVERHEAD - 4;

/// Measures all three, each a third of the setting's time.
pub(super) fn measure(raw: &mut RawPort, setting: &Setting) -> Result<Rates, BenchError> {
    let message: Vec<u8> = (0..setting.size).map(|index| (index % 251) as u8).collect();
    let mut frames = frames(raw, setting)?;
    let mtu = setting.mtu as usize;
    let time = setting.time / 3;
    let copy = |payload: &[u8], frame: &mut [u8]| {
        frame[PAYLOAD..PAYLOAD + mtu].copy_from_slice(payload);
    };
    let icrc = |frame: &mut [u8]| {
        let _sealed = uroce_wire::seal(&mut frame[L3..]);
    };
    let mut rate = |work: &mut dyn FnMut(&[u8], &mut [u8])| {
        gbps(&message, frames.as_mut_slice(), mtu, time, work)
    };
    Ok(Rates {
        copy_gbps: rate(&mut |payload, frame| copy(payload, frame)),
        icrc_gbps: rate(&mut |_, frame| icrc(frame)),
        copy_icrc_gbps: rate(&mut |payload, frame| {
            copy(payload, frame);
            icrc(frame);
        }),
    })
}

/// A batch of packets, headers written.
fn frames(raw: &RawPort, setting: &Setting) -> Result<MbufBatch, BenchError> {
    let template = Encap {
        src: Gid::from(Ipv4Addr::new(198, 18, 0, 1)),
        dst: Gid::from(Ipv4Addr::new(198, 18, 0, 2)),
        hop_limit: 64,
        src_port: 0xc000,
        ..Encap::default()
    }
    .template();
    let bth = Bth { opcode: OpCode::RC_RDMA_WRITE_MIDDLE, ..Bth::default() };
    let mut frames = MbufBatch::new();
    raw.pool.alloc_burst(&mut frames, BATCH).step("mbufs")?;
    for mbuf in frames.as_mut_slice() {
        mbuf.set_len(setting.frame()).step("a frame")?;
        let bytes = mbuf.as_mut_slice();
        bytes.fill(0);
        let at = template.emit(bytes, setting.frame() - usize::from(template.len));
        emit_headers(&bth, &ExtHeaders::default(), &mut bytes[at..]);
    }
    Ok(frames)
}

/// Does `work` on payload after payload and frame after frame.
fn gbps(
    message: &[u8],
    frames: &mut [uroce_engine::mbuf::Mbuf],
    mtu: usize,
    time: Duration,
    work: &mut dyn FnMut(&[u8], &mut [u8]),
) -> f64 {
    let mut pass = || {
        let payloads = message.chunks_exact(mtu).cycle();
        for (payload, frame) in payloads.zip(frames.iter_mut()) {
            work(black_box(payload), black_box(frame.as_mut_slice()));
        }
        frames.len() as u64
    };
    // The first passes fill the caches.
    (0..8).for_each(|_| {
        pass();
    });
    let clock = Clock::new();
    let (start, mut now, mut done) = (clock.now(), 0, 0);
    let limit = time.as_nanos() as u64;
    while now < limit {
        done += pass();
        now = clock.now() - start;
    }
    (done * mtu as u64 * 8) as f64 / now as f64
}
