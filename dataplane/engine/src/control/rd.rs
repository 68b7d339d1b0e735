//! Reliable datagram domains: the RD QPs of a domain use the EECs of the same domain.
//!
//! Invariants
//! - All RD QPs and EECs of a domain are on one lcore, its home: an EEC works on the RD QPs.

use crate::control::ControlError;
use crate::control::engine::Engine;
use uroce_shared::sync::Ordering;
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
    /// Makes a reliable datagram domain. Its home is the next lcore in turn.
    pub fn open_rd_domain(&self) -> RdDomain {
        let before = self.shared.rd_domains.fetch_add(1, Ordering::Relaxed);
        self.rd_domain_at(before as usize % self.lcores())
    }

    /// Makes a reliable datagram domain with this home.
    ///
    /// # Errors
    /// [`ControlError::NoSuchLcore`].
    pub fn open_rd_domain_on(&self, lcore: usize) -> Result<RdDomain, ControlError> {
        match lcore < self.lcores() {
            true => Ok(self.rd_domain_at(lcore)),
            false => Err(ControlError::NoSuchLcore(lcore)),
        }
    }

    fn rd_domain_at(&self, home: usize) -> RdDomain {
        RdDomain { number: Rdd(self.next_number()), home }
    }
}
