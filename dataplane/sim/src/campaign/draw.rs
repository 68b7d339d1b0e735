//! Random choices of the workload: lengths, immediate data, sources and targets of bytes.

use uroce_wire::ImmDt;

use crate::campaign::chunks::Chunk;
use crate::campaign::pieces::{MAX_PIECES, Pieces};
use crate::campaign::workload::{SOURCE_LEN, Traffic, Work};

impl Traffic {
    /// A length up to `max`: often small, around multiples of the path MTU, or zero.
    pub(crate) fn length(&mut self, index: usize, max: u32) -> u32 {
        let mtu = self.connections[index / 2].mtu.bytes();
        let rng = &mut self.rng;
        let len = match rng.u8(..16) {
            0 => 0,
            1..=7 => rng.u32(1..=64),
            8..=10 => rng.u32(1..=4 * mtu),
            11..=14 => (mtu * rng.u32(1..=4) + rng.u32(..=4)).saturating_sub(2),
            _ => rng.u32(1..=max),
        };
        len.min(max)
    }

    pub(crate) fn imm(&mut self) -> Option<ImmDt> {
        self.rng.bool().then(|| ImmDt(self.rng.u32(..)))
    }

    /// Chooses the pieces of the source region that `len` bytes are sent from.
    pub(crate) fn gather(&mut self, index: usize, len: u32) -> Pieces {
        let me = &self.ends[index];
        let count = self.rng.usize(1..=(me.end.caps.max_send_sge as usize).min(MAX_PIECES));
        let pieces = Pieces::anywhere(&mut self.rng, len, count, SOURCE_LEN);
        pieces.sges(me.source, &mut self.sges);
        pieces
    }

    /// Takes a buffer for `len` bytes of a READ or ATOMIC result, if there is room.
    pub(crate) fn land(&mut self, index: usize, len: u32) -> Option<Chunk> {
        let me = &mut self.ends[index];
        let count = self.rng.usize(1..=(me.end.caps.max_send_sge as usize).min(MAX_PIECES));
        let chunk = me.landing.take(&mut self.rng, len, count)?;
        chunk.pieces.sges(me.landing.mr, &mut self.sges);
        Some(chunk)
    }

    pub(crate) fn is_being_read(&self, index: usize, offset: u32, len: u32) -> bool {
        self.ends[index].sends.iter().any(|posted| match posted.work {
            Work::Read { offset: start, len: count, .. } => {
                offset < start + count && start < offset + len
            }
            _ => false,
        })
    }
}
