//! Connections by IP address and port between two devices. Each test runs in its own process.

mod addresses;
mod agreement;
mod alternate;
mod datagrams;
mod ee_contexts;
mod hostile;
mod keepalive;
mod lab;
mod log;
mod refused;
mod set_up;
