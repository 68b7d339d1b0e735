//! An input, read as a row of choices.

use std::collections::BTreeSet;

/// Bytes that a target takes its choices from. Past the end there are zeros.
#[derive(Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    reached: BTreeSet<u64>,
}

impl<'a> Input<'a> {
    /// From the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, reached: BTreeSet::new() }
    }

    /// Have all bytes been taken?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let len = N.min(self.bytes.len());
        let (head, tail) = self.bytes.split_at(len);
        array[..len].copy_from_slice(head);
        self.bytes = tail;
        array
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// A choice among `count` at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// The input has come to the place `what`, with `detail`. Inputs that reach what none did
    /// before are worth mutating.
    pub fn reach(&mut self, what: u32, detail: u32) {
        self.reached.insert(u64::from(what) << 32 | u64::from(detail));
    }

    /// All that has been reached.
    pub fn reached(self) -> BTreeSet<u64> {
        self.reached
    }
}
