//! The protocol's checks: each is a small scene between two QPs, with its packets as evidence.
//!
//! End 0 is the requester and end 1 the responder, unless a test states otherwise. Both run the
//! real core. Rules cause the faults on the way; packets that no peer would send are crafted.

mod acks;
mod atomic;
mod bare;
mod completions;
mod congestion;
mod control;
mod credits;
mod datagrams;
mod events;
mod frames;
mod go_back_n;
mod gone;
mod headers;
mod integrity;
mod keepalive;
mod many;
mod memory;
mod migration;
mod opcodes;
mod placement;
mod raw;
mod read;
mod requests;
mod scene;
mod selective;
mod sequence;
mod services;
mod shared;
mod strangers;
mod timers;
mod uc;
mod ud;
mod windows;
mod xrc;
