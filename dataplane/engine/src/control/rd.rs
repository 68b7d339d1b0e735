//! Reliable datagram domains: the RD QPs of a domain use the EECs of the same domain.
//!
//! Invariants
//! - All RD QPs and EECs of a domain are on one lcore, its home: an EEC works on the RD QPs.

use crate::control::engine::Engine;
use uroce_transport::Rdd;

/// A reliable datagram domain (RDD).
#[derive(Debug)]
pub struct RdDomain {
    number: Rdd,
    home: usize,
}

impl RdDomain {
    /// Returns the domain's number.
    pub fn number(&self) -> Rdd {
        self.number
    }

    /// Returns the lcore of its RD QPs and EECs.
    pub fn home(&self) -> usize {
        self.home
    }
}

impl Engine {
    /// Makes a reliable datagram domain. Its home lcore follows from its number, which is in turn
    /// with those of completion queues and other objects.
    pub fn open_rd_domain(&self) -> RdDomain {
        let number = self.next_number();
        RdDomain { number: Rdd(number), home: number as usize % self.lcores() }
    }
}
