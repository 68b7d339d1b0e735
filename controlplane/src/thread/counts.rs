//! What the thread itself counts: frames of the slow path, and neighbours asked in vain.

use super::Thread;
use crate::path::neighbour::{Ignored, Neighbours};
use crate::request::Count;

macro_rules! counts {
    ($($field:ident $name:literal $doc:literal)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct Counts { $(pub(super) $field: u64,)* }

        impl Counts {
            pub(super) fn list(&self) -> Vec<Count> {
                vec![$(($name, $doc, self.$field),)*]
            }
        }
    };
}

counts! {
    frames_in "slow_rx_frames" "A frame that is not RoCE, received."
    frames_out "slow_tx_frames" "A frame that is not RoCE, sent."
    frames_lost "slow_tx_errors" "A frame that is not RoCE, which could not be sent."
    unresolved "slow_unresolved" "A path asked for whose neighbour did not answer."
}

impl Thread {
    /// Everything that is counted here and in the parts that the thread runs.
    pub(super) fn count(&self) -> Vec<Count> {
        let mut counts = self.counts.list();
        counts.extend(Ignored::ALL.iter().map(|reason| {
            let of_port = |port: &Neighbours| port.ignored(*reason);
            let value = self.ports.neighbours.iter().map(of_port).sum();
            (reason.name(), reason.description(), value)
        }));
        counts
    }
}
