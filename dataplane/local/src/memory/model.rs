//! The shared memory in models: words that loom explores. Bytes are written and read a word at a
//! time, without any order, which is what a copy of another process's memory may look like.

use uroce_shared::sync::{AtomicU32, AtomicU64, Ordering};

/// A few words of each size; an offset is one of both, and models use one of them.
#[derive(Debug)]
pub(crate) struct Memory {
    words: Box<[AtomicU32]>,
    longs: Box<[AtomicU64]>,
}

impl Memory {
    /// Makes `len` bytes of zeros.
    pub(crate) fn new(len: usize) -> Memory {
        Memory {
            words: (0..len / 4).map(|_| AtomicU32::new(0)).collect(),
            longs: (0..len / 8).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        &self.words[at / 4]
    }

    pub(crate) fn long(&self, at: usize) -> &AtomicU64 {
        &self.longs[at / 8]
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        for (place, bytes) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(at + 4 * place).store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        for (place, bytes) in bytes.chunks_mut(4).enumerate() {
            let word = self.word(at + 4 * place).load(Ordering::Relaxed).to_ne_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}
