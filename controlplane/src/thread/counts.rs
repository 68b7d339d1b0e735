//! Counters of the thread itself: slow-path frames, unresolved neighbours, changes of ports.

use super::Thread;
use crate::call::Count;
use crate::failover::Failover;
use crate::path::neighbour::{Ignored, Neighbours};

macro_rules! counts {
    ($($field:ident $name:literal $doc:literal)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct Counts { $(pub(super) $field: u64,)* }

        impl Counts {
            pub(super) fn list(&self) -> Vec<Count> {
                vec![$(Count::new($name, $doc, self.$field),)*]
            }
        }
    };
}

counts! {
    frames_in "slow_rx_frames" "A frame that is not RoCE, received."
    frames_out "slow_tx_frames" "A frame that is not RoCE, sent."
    frames_lost "slow_tx_errors" "A frame that is not RoCE, which could not be sent."
    unresolved "slow_unresolved" "A path that was not resolved: its neighbour did not answer."
    link_downed "link_downed" "A port's link went down."
    link_migrations "link_migrations" "A QP that migrated because its port's link went down."
    gid_changes "gid_changes" "A change of a port's addresses."
}

impl Thread {
    /// Returns the counters of the thread and of the parts that it runs.
    pub(crate) fn count(&self) -> Vec<Count> {
        let mut counts = self.counts.list();
        counts.extend(Ignored::ALL.iter().map(|reason| {
            let of_port = |port: &Neighbours| port.ignored(*reason);
            let value = self.ports.neighbours.iter().map(of_port).sum();
            Count::new(reason.name(), reason.description(), value)
        }));
        counts.extend(self.gsi.counts());
        counts.extend(self.service.counts());
        let of_failover = self.failover.iter().flat_map(Failover::counts);
        counts.extend(
            of_failover.map(|(what, value)| Count::new(what.name(), what.description(), value)),
        );
        counts
    }
}
