//! Congestion control: one stream against a reference, and many through a bottleneck.

mod flood;
mod incast;
mod life;
mod reference;
mod share;
mod slow_restart;
mod stream;
