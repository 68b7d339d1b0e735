//! Tables that lcores read without waiting while other threads change them.
//!
//! [`qsbr`] tells when no lcore can still read what was removed; [`published`] holds single values
//! that are replaced; [`key`] gives the numbers by which entries are found.

#[cfg(not(loom))]
pub mod ah_table;
#[cfg(not(loom))]
pub mod flows;
pub mod key;
#[cfg(not(loom))]
pub mod mcast;
pub mod published;
pub mod qp_table;
pub mod qsbr;
