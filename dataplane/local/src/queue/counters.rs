//! Counters of a queue: written by its owner, read by any thread.

use uroce_shared::sync::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $about:literal])+ $name:ident,)*) => {
        /// Counters of frames. Bytes are those of the frames, from the destination address on.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counters {
            $($(#[doc = $about])+ pub $name: u64,)*
        }

        /// The counters of one queue.
        #[derive(Debug, Default)]
        pub(crate) struct Cells {
            $(pub(super) $name: Cell,)*
        }

        impl Cells {
            /// Returns the present values.
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }

        impl Counters {
            /// Returns all counters with their names.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds the counters of another queue.
            pub(crate) fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Frames given to the owner.
    rx_frames,
    /// Bytes of frames given to the owner.
    rx_bytes,
    /// Frames taken from the owner; one that goes to several members is counted once.
    tx_frames,
    /// Bytes of frames taken from the owner.
    tx_bytes,
    /// Frames that were lost because their receiver has taken nothing for a time.
    tx_stuck,
    /// Frames that were lost because no member has their address, or it could not be reached.
    tx_no_member,
    /// Frames that were lost because they are shorter than a header, or longer than their receiver
    /// takes.
    tx_length,
    /// Copies of a frame to a group that a member has missed because its ring was full.
    tx_missed,
    /// Links that were closed because the other end had broken the rules of the shared memory.
    malformed,
}

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(super) struct Cell(AtomicU64);

impl Cell {
    /// Adds to it. Only the queue's owner calls this, so no addition is lost.
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }
}
