//! Poll-mode lcores, ports, tables and queues under the transport.

#![deny(unsafe_code)]

pub mod clock;
pub mod eal;
pub mod mbuf;
pub mod port;
