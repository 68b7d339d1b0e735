//! Connections by IP address and port between two devices. One process a test.

mod addresses;
mod alternate;
mod datagrams;
mod hostile;
mod lab;
mod refused;
mod set_up;
