//! Memory of all workers: one region that they share, or one for each (`--mr_per_qp`).
//!
//! Offsets are those in a worker's part.

use crate::error::{BenchError, Step};
use std::ops::Range;
use uroce::{AccessFlags, MemoryRegion, MemorySlice, ProtectionDomain, RemoteBuffer, Va};

/// Registered memory with a part for each worker.
pub(super) struct Memory {
    regions: Vec<MemoryRegion>,
    /// Bytes of a worker's part.
    part: usize,
}

impl Memory {
    /// Allocates and registers parts of `part` bytes.
    pub(super) fn allocate(
        pd: &ProtectionDomain,
        workers: usize,
        part: usize,
        region_per_worker: bool,
    ) -> Result<Self, BenchError> {
        let (count, len) = if region_per_worker { (workers, part) } else { (1, workers * part) };
        let region = |_| pd.allocate(len, AccessFlags::all()).step("registering memory");
        Ok(Self { regions: (0..count).map(region).collect::<Result<_, _>>()?, part })
    }

    /// Returns a worker's region, and the offset of its part in it.
    #[inline]
    fn of(&self, worker: usize) -> (&MemoryRegion, usize) {
        match self.regions.get(worker) {
            Some(region) if self.regions.len() > 1 => (region, 0),
            _ => (&self.regions[0], worker * self.part),
        }
    }

    /// Returns a slice of a worker's part.
    #[inline]
    pub(super) fn slice(
        &self,
        worker: usize,
        range: Range<usize>,
    ) -> Result<MemorySlice<'_>, BenchError> {
        let (region, base) = self.of(worker);
        region.slice(base + range.start..base + range.end).step("a slice of memory")
    }

    /// Returns a worker's part from `start` on, for the peer.
    pub(super) fn remote(&self, worker: usize, start: usize) -> RemoteBuffer {
        let (region, base) = self.of(worker);
        let RemoteBuffer { va, rkey, .. } = region.remote();
        RemoteBuffer { va: Va(va.0 + (base + start) as u64), rkey, len: (self.part - start) as u64 }
    }

    /// Fills all memory.
    pub(super) fn fill_all(&self, byte: u8) -> Result<(), BenchError> {
        self.regions.iter().try_for_each(|region| region.fill(.., byte).step("filling memory"))
    }

    /// Fills a range of a worker's part.
    pub(super) fn fill(
        &self,
        worker: usize,
        range: Range<usize>,
        byte: u8,
    ) -> Result<(), BenchError> {
        let (region, base) = self.of(worker);
        region.fill(base + range.start..base + range.end, byte).step("filling memory")
    }

    /// Copies bytes into a worker's part.
    pub(super) fn write_at(
        &self,
        worker: usize,
        place: usize,
        bytes: &[u8],
    ) -> Result<(), BenchError> {
        let (region, base) = self.of(worker);
        region.write_at(base + place, bytes).step("filling memory")
    }

    /// Copies bytes out of a worker's part.
    pub(super) fn read_at(
        &self,
        worker: usize,
        place: usize,
        bytes: &mut [u8],
    ) -> Result<(), BenchError> {
        let (region, base) = self.of(worker);
        region.read_at(base + place, bytes).step("reading memory")
    }

    /// Reads a word of a worker's part.
    pub(super) fn load_u64(&self, worker: usize, place: usize) -> Result<u64, BenchError> {
        let (region, base) = self.of(worker);
        region.load_u64(base + place).step("reading memory")
    }

    /// Reads a byte of a worker's part.
    #[inline]
    pub(super) fn load_u8(&self, worker: usize, place: usize) -> Result<u8, BenchError> {
        let (region, base) = self.of(worker);
        region.load_u8(base + place).step("polling memory")
    }

    /// Writes a byte of a worker's part.
    #[inline]
    pub(super) fn store_u8(&self, worker: usize, place: usize, byte: u8) -> Result<(), BenchError> {
        let (region, base) = self.of(worker);
        region.store_u8(base + place, byte).step("filling memory")
    }
}
