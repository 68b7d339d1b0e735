//! The Rust API over DPDK's virtual devices, one process per test. It is one program, because each
//! one has to be linked with DPDK.

#[path = "../common/mod.rs"]
mod common;

mod auto;
mod bottleneck;
mod channel;
mod connections;
mod datagrams;
mod events;
mod examples;
mod failover;
mod lifecycle;
mod link_down;
mod links;
mod linux;
mod local;
mod local_kill;
mod loopback;
mod loopback_connections;
mod loopback_datagrams;
mod loopback_soak;
mod migration;
mod misuse;
mod modify;
mod netdev;
mod operations;
mod paths;
mod raw;
mod raw_memory;
mod rd;
mod rd_connections;
mod resolve;
mod shared_receives;
mod shut_down;
mod sockets;
mod unreliable;
mod windows;
mod xrc;
