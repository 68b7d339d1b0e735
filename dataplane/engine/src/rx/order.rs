//! Order in a burst: an acknowledgement that follows requests for the same QP is taken before them.
//!
//! A peer may send its answer to a SEND before the acknowledgement of that SEND. If both are in
//! one burst, the SEND is completed first. Programs with one completion queue for both expect this.
//!
//! An acknowledgement concerns the QP's requester, and a request its responder. Each of the two
//! gets its packets in the order of the wire. A network may change the order of packets in the same
//! way.
//!
//! Not here: responses with data, and packets that another lcore has handed over.

use super::frames::HEADERS_AHEAD;
use crate::dpdk::mbuf::Mbuf;
use uroce_wire::{Frame, OpCode, Qpn};

/// How many frames before its turn a frame is looked at, which is after its headers were fetched.
/// An acknowledgement passes at most as many requests.
const WINDOW: usize = HEADERS_AHEAD / 2;
/// How many bytes before its end an acknowledgement has its opcode: BTH, AETH and ICRC.
const TAIL: usize = 12 + 4 + 4;
/// Length of the longest acknowledgement: Ethernet with a VLAN tag, IPv6, UDP, and the tail.
const LONGEST: usize = 14 + 4 + 40 + 8 + TAIL;

/// Looks at the first frames of a burst, before the first of its [`come_to`].
#[inline]
pub(super) fn begin(burst: &mut [Mbuf]) {
    for at in 1..WINDOW.min(burst.len()) {
        look(at, 0, burst);
    }
}

/// Looks at the frame [`WINDOW`] places behind `at`, which is the place of the frame to be received
/// now.
#[inline]
pub(super) fn come_to(at: usize, burst: &mut [Mbuf]) {
    look(at + WINDOW, at, burst);
}

/// Moves the frame at a place before the requests that it may pass, to the place `first` at most.
#[inline]
fn look(at: usize, first: usize, burst: &mut [Mbuf]) {
    if burst.get(at).is_some_and(has_form) {
        pass(at, first, burst);
    }
}

/// Whether a frame has the length of an acknowledgement and the opcode in its place. This is a few
/// instructions, and false for most other frames.
#[inline]
fn has_form(mbuf: &Mbuf) -> bool {
    let len = mbuf.len();
    let opcode = || mbuf.as_slice().get(len.wrapping_sub(TAIL));
    len <= LONGEST && opcode() == Some(&OpCode::RC_ACKNOWLEDGE.0)
}

#[cold]
fn pass(mut at: usize, first: usize, burst: &mut [Mbuf]) {
    let Some(qpn) = acknowledged(&burst[at]) else { return };
    while at > first && is_request_to(&burst[at - 1], qpn) {
        burst.swap(at - 1, at);
        at -= 1;
    }
}

/// The destination QPN of a frame that is an acknowledgement without data.
fn acknowledged(mbuf: &Mbuf) -> Option<Qpn> {
    let bth = Frame::likely_bth(mbuf.as_slice())?;
    (bth.opcode == OpCode::RC_ACKNOWLEDGE).then_some(bth.dest_qpn)
}

fn is_request_to(mbuf: &Mbuf, qpn: Qpn) -> bool {
    let Some(bth) = Frame::likely_bth(mbuf.as_slice()) else { return false };
    bth.dest_qpn == qpn && bth.opcode.info().is_some_and(|op| op.is_request())
}
