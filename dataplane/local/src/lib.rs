//! The local fabric: up to 64 processes of one machine exchange Ethernet frames through shared
//! memory, without root, hugepages or a daemon.
//!
//! ```text
//!   process                        directory                        process
//!   Member ── lock of its number ─▶ members, N.sock ◀─ lock ──────── Member
//!     thread ◀──── hello: eventfds, memory of the link ────▶ thread
//!     │ links                                                  │ links
//!   Queue 0 ── frames ─▶ [ring] ─▶ one memfd per pair ─▶ [ring] ── frames ─▶ Queue 0
//!   Queue 1                        of members                                Queue 1
//! ```
//!
//! A process [joins](Member::join) and becomes the member of the smallest free number of
//! 1..=64, which it holds until it ends. The number is the last byte of its address, so a sender
//! finds a frame's receiver in the frame. Two members are linked when the first of them has a frame
//! for the other one. No member is special: a process that ends, in whatever way, takes its own
//! links with it and nothing else.
//!
//! Each lcore of a process owns a [`Queue`]. A turn of an lcore:
//!
//! ```text
//!   queue.begin(now)
//!   queue.receive(64, |frame| …)      frames of all members, fairly
//!   queue.send(&frame) …              written into rings, not visible yet
//!   queue.flush()                     visible; sleeping receivers are woken
//! ```
//!
//! An lcore without work sleeps: [`Queue::arm`], then a wait for [`Queue::event_fd`], then
//! [`Queue::disarm`].
//!
//! Invariants
//! - On a [`Queue`] no call allocates, locks, waits or enters the kernel, except to wake a sleeping
//!   thread. Links come to it, and go from it, through rings.
//! - All that another process can write is hostile: it is read once, checked, and then used. What
//!   is out of range closes the link to that process and is counted.
//! - Memory that another process has made is mapped only if it is sealed against shrinking, so no
//!   access to it faults.
//! - Frames arrive in the order in which one queue has sent them to one member. A frame that was
//!   [`Taken`](Sent::Taken) arrives unless the receiver ends, or closes the link.
//! - A member that has taken a number over receives no frame that was meant for its predecessor.
//!
//! Not here: what frames mean, IP addresses, ports (`uroce-engine`).

#![deny(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "models use a part of it"))]

mod board;
#[cfg(not(loom))]
mod claim;
#[cfg(not(loom))]
mod directory;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod hello;
mod layout;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod member;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "memory/model.rs"]
mod memory;
#[cfg(loom)]
pub mod models;
#[cfg(not(loom))]
mod queue;
mod ring;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use claim::Reservation;
#[cfg(not(loom))]
pub use error::{Holder, JoinError, QueueError};
#[cfg(not(loom))]
pub use member::{Member, MemberConfig};
#[cfg(not(loom))]
pub use queue::{Counters, Frame, Queue, Sent};

use uroce_wire::Mac;

/// Largest number of members of a directory; their numbers are 1 to 64.
pub const MEMBERS_MAX: u8 = 64;
/// Largest number of queues of a member.
pub const QUEUES_MAX: u16 = 32;
/// Longest frame in bytes, from the destination address on, without the checksum: that of DPDK.
pub const FRAME_MAX: usize = 16_128;
/// Shortest frame in bytes: an Ethernet header.
pub const FRAME_MIN: usize = 14;

/// Bytes that begin the addresses of all members.
const PREFIX: [u8; 5] = [0x02, 0x75, 0x72, 0x6f, 0x63];

/// Returns the address of the member with this number.
pub const fn mac_of(number: u8) -> Mac {
    let [a, b, c, d, e] = PREFIX;
    Mac([a, b, c, d, e, number])
}

/// Returns the number of the member with this address; `None` if it is no member's address.
pub fn number_of(mac: Mac) -> Option<u8> {
    let [prefix @ .., number] = mac.0;
    (prefix == PREFIX && (1..=MEMBERS_MAX).contains(&number)).then_some(number)
}
