//! The least work of a core per payload byte: copying and checksumming it.
//!
//! The message is in the application's memory, the frames are whole packets with headers in mbufs
//! of the port, as in the stack. All of them fit into the cache of one core. Between two cores each
//! byte also moves from cache to cache; [`Packets`] sent over the device measure that.

use super::{PACKET_OVERHEAD, RawPort, Setting};
use crate::error::{BenchError, Step};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::ops::Range;
use uroce_engine::clock::Clock;
use uroce_engine::mbuf::{BATCH, Mbuf, MbufBatch};
use uroce_shared::copy::sum::{copy_summed, summed};
use uroce_wire::{Bth, Encap, ExtHeaders, Gid, ICRC_LEN, Icrc, Mac, OpCode, emit_headers};

/// Payload rates of one core, in Gb/s.
pub(super) struct Rates {
    pub(super) copy_gbps: f64,
    pub(super) icrc_gbps: f64,
    pub(super) copy_icrc_gbps: f64,
    pub(super) one_pass_gbps: f64,
}

/// Offsets of the IP header and of the payload in a packet.
const L3: usize = 14;
pub(super) const PAYLOAD: usize = PACKET_OVERHEAD - ICRC_LEN;

/// A message that is cut into packets in order, repeatedly.
pub(super) struct Packets {
    header: [u8; PAYLOAD],
    message: Vec<u8>,
    mtu: usize,
    next: usize,
}

impl Packets {
    /// Creates a message of the setting's size, for WRITE Middle packets over IPv4.
    pub(super) fn new(setting: &Setting) -> Self {
        let template = Encap {
            dst_mac: Mac::BROADCAST,
            src: Gid::from(Ipv4Addr::new(198, 18, 0, 1)),
            dst: Gid::from(Ipv4Addr::new(198, 18, 0, 2)),
            hop_limit: 64,
            src_port: 0xc000,
            ..Encap::default()
        }
        .template();
        let bth = Bth { opcode: OpCode::RC_RDMA_WRITE_MIDDLE, ..Bth::default() };
        let mut header = [0; PAYLOAD];
        let at = template.emit(&mut header, setting.frame() - usize::from(template.len));
        // The rest of the header has the length of the BTH.
        let _ = emit_headers(&bth, &ExtHeaders::default(), &mut header[at..]);
        let message = (0..setting.size).map(|index| (index % 251) as u8).collect();
        Self { header, message, mtu: setting.mtu as usize, next: 0 }
    }

    /// Returns the place of the next packet's payload in the message.
    #[inline]
    fn advance(&mut self) -> Range<usize> {
        let start = self.next;
        let end = start + self.mtu;
        self.next = if end + self.mtu <= self.message.len() { end } else { 0 };
        start..end
    }

    #[inline]
    fn write_header(&self, frame: &mut [u8]) {
        frame[..PAYLOAD].copy_from_slice(&self.header);
    }

    #[inline]
    fn copy_in(&mut self, frame: &mut [u8]) {
        let place = self.advance();
        frame[PAYLOAD..PAYLOAD + self.mtu].copy_from_slice(&self.message[place]);
    }

    /// Copies the payload behind the header and appends the ICRC, in one pass as the engine does.
    #[inline]
    fn copy_in_and_seal(&mut self, frame: &mut [u8]) {
        let place = self.advance();
        let (header, rest) = frame.split_at_mut(PAYLOAD);
        let (payload, icrc) = rest.split_at_mut(self.mtu);
        // The header has an ICRC, so that this succeeds.
        let Some(sum) = Icrc::of(&header[L3..]) else { return };
        let sum = copy_summed(&self.message[place], payload, sum);
        icrc.copy_from_slice(&sum.to_bytes());
    }

    /// Does a sender's work on a frame: header, payload, ICRC.
    #[inline]
    pub(super) fn fill(&mut self, frame: &mut [u8]) {
        self.write_header(frame);
        self.copy_in_and_seal(frame);
    }

    /// Does a receiver's work on a frame: ICRC, payload. The payload of a wrong frame is not
    /// copied.
    #[inline]
    pub(super) fn take(&mut self, frame: &[u8]) {
        let Some((covered, sum)) = frame[L3..].split_last_chunk::<ICRC_LEN>() else { return };
        let Some((headers, payload)) = covered.split_at_checked(PAYLOAD - L3) else { return };
        let icrc = Icrc::of(headers).map(|sum| summed(payload, sum, &[]));
        if frame.len() == PACKET_OVERHEAD + self.mtu && icrc.map(Icrc::to_bytes) == Some(*sum) {
            let place = self.advance();
            self.message[place].copy_from_slice(&frame[PAYLOAD..PAYLOAD + self.mtu]);
        }
    }
}

#[inline]
fn seal(frame: &mut [u8]) {
    // The header has an ICRC, so that this succeeds.
    let _ = uroce_wire::seal(&mut frame[L3..]);
}

/// Measures all four rates, each for a quarter of the setting's time.
pub(super) fn measure(raw: &RawPort, setting: &Setting) -> Result<Rates, BenchError> {
    let mut packets = Packets::new(setting);
    let mut frames = MbufBatch::new();
    raw.pool.alloc_burst(&mut frames, BATCH).step("mbufs")?;
    for mbuf in frames.as_mut_slice() {
        mbuf.set_len_aligned(PAYLOAD, setting.frame()).step("a frame")?;
        packets.fill(mbuf.as_mut_slice());
    }
    let frames = frames.as_mut_slice();
    let mut rate = |work: &mut dyn FnMut(&mut [u8])| gbps(frames, setting, work);
    Ok(Rates {
        copy_gbps: rate(&mut |frame| packets.copy_in(frame)),
        icrc_gbps: rate(&mut |frame| seal(frame)),
        copy_icrc_gbps: rate(&mut |frame| {
            packets.copy_in(frame);
            seal(frame);
        }),
        one_pass_gbps: rate(&mut |frame| packets.copy_in_and_seal(frame)),
    })
}

/// Measures `work` on the frames in turn, for a quarter of the setting's time.
fn gbps(frames: &mut [Mbuf], setting: &Setting, work: &mut dyn FnMut(&mut [u8])) -> f64 {
    let mut pass = || {
        frames.iter_mut().for_each(|frame| work(black_box(frame.as_mut_slice())));
        frames.len() as u64
    };
    // The first passes fill the caches.
    (0..8).for_each(|_| {
        pass();
    });
    let clock = Clock::new();
    let (start, mut now, mut done) = (clock.now(), 0, 0);
    let limit = (setting.time / 4).as_nanos() as u64;
    while now < limit {
        done += pass();
        now = clock.now() - start;
    }
    (done * u64::from(setting.mtu) * 8) as f64 / now as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_filled_is_taken_and_what_is_damaged_is_not() {
        let setting = Setting { size: 10_000, mtu: 4096, time: Duration::from_millis(1) };
        let (mut source, mut sink) = (Packets::new(&setting), Packets::new(&setting));
        sink.message.fill(0);
        let mut frame = vec![0; setting.frame()];
        for _ in 0..2 {
            source.copy_in(&mut frame);
            source.write_header(&mut frame);
            seal(&mut frame);
            let in_two_passes = frame.clone();
            source.next = sink.next;
            source.fill(&mut frame);
            assert_eq!(frame, in_two_passes);
            sink.take(&frame);
        }
        assert_eq!(sink.message[..8192], source.message[..8192]);
        assert_eq!((source.next, sink.next), (0, 0));

        sink.message.fill(0);
        frame[PAYLOAD + 100] ^= 1;
        sink.take(&frame);
        assert!(sink.message.iter().all(|&byte| byte == 0));
    }
}
