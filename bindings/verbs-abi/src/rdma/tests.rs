//! Ids, channels and events, as a program has them: two devices of this process, joined by a ring.

mod endpoints;
mod groups;
mod lab;
mod life;
mod misuse;
mod own_qp;
mod sync;
