//! The protocol's checks, each a small scene between two QPs with its packets as evidence.
//!
//! End 0 is the requester and end 1 the responder unless a test says otherwise. Both run the real
//! core; what goes wrong on the way is said by a rule, what no peer would send is crafted.

#![cfg(feature = "sim")]

mod acks;
mod atomic;
mod bare;
mod completions;
mod control;
mod credits;
mod datagrams;
mod events;
mod frames;
mod go_back_n;
mod gone;
mod headers;
mod integrity;
mod many;
mod memory;
mod migration;
mod opcodes;
mod read;
mod requests;
mod scene;
mod sequence;
mod services;
mod shared;
mod strangers;
mod timers;
mod uc;
mod ud;
mod windows;
