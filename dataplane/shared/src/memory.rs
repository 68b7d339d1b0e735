//! Registered memory: regions and windows by their keys, and the copies that they allow.

pub mod mr_table;
pub mod mw;
#[cfg(not(loom))]
pub mod resolve;
