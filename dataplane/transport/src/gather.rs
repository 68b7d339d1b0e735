//! The source of a packet's payload: a slice of a scatter/gather list, a range under an R_Key, or
//! inline data.

use crate::env::{Key, Region};
use crate::wqe::Sge;

/// A piece of a packet's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Registered memory, to be read when the packet is built.
    Region(Region),
    /// Inline data of the work request.
    Bytes(&'a [u8]),
}

impl Piece<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Piece::Region(region) => region.len,
            Piece::Bytes(bytes) => bytes.len() as u32,
        }
    }

    /// Returns whether the piece has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The pieces of one packet's payload, in order. An iterator; clone it to iterate more than once.
#[derive(Clone, Debug)]
pub struct Gather<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Region(Option<Region>),
    Bytes(&'a [u8]),
    Sges(Sges<'a>),
}

/// The regions of `remaining` bytes of a scatter/gather list, beginning `skip` bytes into its first
/// element.
#[derive(Clone, Debug)]
pub(crate) struct Sges<'a> {
    list: &'a [Sge],
    skip: u32,
    remaining: u32,
}

impl<'a> Gather<'a> {
    /// An empty payload.
    pub const EMPTY: Gather<'static> = Gather(Source::Region(None));

    /// A payload that is one region.
    pub fn region(region: Region) -> Gather<'static> {
        Gather(Source::Region((region.len > 0).then_some(region)))
    }

    /// A payload of inline data.
    pub(crate) fn bytes(bytes: &'a [u8]) -> Gather<'a> {
        Gather(Source::Bytes(bytes))
    }

    /// A payload of `len` bytes of a scatter/gather list from byte `offset` on; the list must have
    /// them.
    #[inline]
    pub(crate) fn sges(list: &'a [Sge], offset: u32, len: u32) -> Gather<'a> {
        Gather(Source::Sges(Sges::new(list, offset, len)))
    }

    /// Length of all pieces together, in bytes.
    pub fn len(&self) -> u32 {
        match &self.0 {
            Source::Region(region) => region.map_or(0, |region| region.len),
            Source::Bytes(bytes) => bytes.len() as u32,
            Source::Sges(sges) => sges.remaining,
        }
    }

    /// Returns whether the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Iterator for Gather<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        match &mut self.0 {
            Source::Region(region) => region.take().map(Piece::Region),
            Source::Bytes(bytes) => {
                let bytes = core::mem::take(bytes);
                (!bytes.is_empty()).then_some(Piece::Bytes(bytes))
            }
            Source::Sges(sges) => sges.next().map(Piece::Region),
        }
    }
}

impl<'a> Sges<'a> {
    /// `len` bytes of a scatter/gather list from byte `offset` on; the list must have them.
    #[inline]
    pub(crate) fn new(mut list: &'a [Sge], offset: u32, len: u32) -> Sges<'a> {
        let mut skip = offset;
        while let [first, rest @ ..] = list
            && skip >= first.len
            && len > 0
        {
            skip -= first.len;
            list = rest;
        }
        Sges { list, skip, remaining: len }
    }
}

//= check F14 — element by element, empty elements skipped, each byte once
impl Iterator for Sges<'_> {
    type Item = Region;

    #[inline]
    fn next(&mut self) -> Option<Region> {
        while self.remaining > 0 {
            let (sge, rest) = self.list.split_first().expect("the list has these bytes");
            let len = (sge.len - self.skip).min(self.remaining);
            let va = uroce_wire::Va(sge.va.0.wrapping_add(u64::from(self.skip)));
            self.list = rest;
            self.skip = 0;
            self.remaining -= len;
            if len > 0 {
                return Some(Region { key: Key::Local(sge.lkey), va, len });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::{Lkey, Va};

    fn list(lens: &[u32]) -> Vec<Sge> {
        let sge = |(index, len): (usize, &u32)| {
            let va = Va(1000 * index as u64);
            Sge { va, len: *len, lkey: Lkey(index as u32) }
        };
        lens.iter().enumerate().map(sge).collect()
    }

    fn bytes(gather: Gather<'_>) -> Vec<u64> {
        let regions = gather.map(|piece| match piece {
            Piece::Region(region) => region,
            Piece::Bytes(_) => panic!("a list has regions only"),
        });
        regions
            .flat_map(|region| (0..u64::from(region.len)).map(move |byte| region.va.0 + byte))
            .collect()
    }

    #[test] //= check F14 test
    fn every_slice_of_a_list_is_gathered_exactly() {
        let list = list(&[0, 3, 0, 0, 5, 1, 0]);
        let all: Vec<u64> = [1000..1003, 4000..4005, 5000..5001].into_iter().flatten().collect();
        for offset in 0..=all.len() {
            for len in 0..=all.len() - offset {
                let gather = Gather::sges(&list, offset as u32, len as u32);
                assert_eq!(gather.len() as usize, len);
                assert!(gather.clone().all(|piece| !piece.is_empty()));
                assert_eq!(bytes(gather), all[offset..offset + len]);
            }
        }
    }
}
