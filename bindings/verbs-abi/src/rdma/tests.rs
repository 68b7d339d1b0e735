//! Tests of ids, channels and events through the C interface, with two devices of one process
//! joined by a ring.

mod endpoints;
mod groups;
mod lab;
mod life;
mod misuse;
mod own_qp;
mod sync;
