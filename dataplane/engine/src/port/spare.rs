//! Empty mbufs of a queue that copies the frames that it receives.

use crate::dpdk::mbuf::{Mbuf, MbufBatch, Mempool};

/// Number of mbufs that are taken from the mempool at a time.
const BURST: usize = 32;

/// Empty mbufs, and the mempool that they come from.
#[derive(Debug)]
pub(super) struct Spare {
    pool: Mempool,
    mbufs: MbufBatch,
}

impl Spare {
    pub(super) fn of(pool: &Mempool) -> Spare {
        Spare { pool: pool.clone(), mbufs: MbufBatch::new() }
    }

    /// Adds a frame of `len` bytes to a batch with room for it; `write` writes the bytes. A frame
    /// that is longer than an mbuf is left out. Returns false if there is no mbuf now.
    #[inline]
    pub(super) fn receive(
        &mut self,
        batch: &mut MbufBatch,
        len: usize,
        write: impl FnOnce(&mut Mbuf),
    ) -> bool {
        if self.mbufs.is_empty() {
            // A nearly empty mempool may have one mbuf but not a batch of them.
            let Self { pool, mbufs } = self;
            let filled = pool.take_burst(mbufs, BURST).or_else(|_| pool.take_burst(mbufs, 1));
            if filled.is_err() {
                return false;
            }
        }
        let Some(mut mbuf) = self.mbufs.pop() else { return false };
        mbuf.reset();
        if mbuf.set_len(len).is_ok() {
            write(&mut mbuf);
            let pushed = batch.push(mbuf);
            debug_assert!(pushed.is_ok(), "no more frames were asked for than fit");
        }
        true
    }
}
