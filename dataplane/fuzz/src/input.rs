//! An input of a target, read as a sequence of choices.

use std::collections::BTreeSet;

/// Bytes from which a target takes its choices. After the last byte it reads zeros.
#[derive(Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    reached: BTreeSet<u64>,
}

impl<'a> Input<'a> {
    /// An input that begins with the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, reached: BTreeSet::new() }
    }

    /// Returns whether all bytes have been taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Takes the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let len = N.min(self.bytes.len());
        let (head, tail) = self.bytes.split_at(len);
        array[..len].copy_from_slice(head);
        self.bytes = tail;
        array
    }

    /// Takes the next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Takes the next two bytes, big-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// Takes the next four bytes, big-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Takes the next eight bytes, big-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// A number below `count`, from one byte; `count` is at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Notes that the input has reached the place `what` with `detail`. The driver mutates inputs
    /// that reach something new.
    pub fn reach(&mut self, what: u32, detail: u32) {
        self.reached.insert(u64::from(what) << 32 | u64::from(detail));
    }

    /// All places and details that were reached.
    pub fn reached(self) -> BTreeSet<u64> {
        self.reached
    }
}
