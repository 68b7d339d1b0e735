//! Order in a burst: an acknowledgement that follows requests for the same QP is taken before them.
//!
//! A peer may send its answer to a SEND before the acknowledgement of that SEND. If both are in
//! one burst, the acknowledgement is taken first, so that our SEND completes before the receive of
//! the answer. Programs with one completion queue for both expect this.
//!
//! An acknowledgement concerns the QP's requester, and a request its responder. Each of the two
//! still gets its packets in the order of the wire. This is safe: a network, too, may let an
//! acknowledgement overtake requests.
//!
//! Not here: responses with data, and packets that another lcore has handed over.

use super::frames::HEADERS_AHEAD;
use crate::dpdk::mbuf::Mbuf;
use uroce_wire::{Frame, OpCode, Qpn};

/// Distance, in frames, from the frame that is handled now to the one that is looked at. The
/// headers of the latter have been prefetched by then. It is also the most requests that an
/// acknowledgement passes.
const WINDOW: usize = HEADERS_AHEAD / 2;
/// Distance of an acknowledgement's opcode from the frame's end, in bytes: the lengths of BTH, AETH
/// and ICRC. BTH begins with the opcode.
const TAIL: usize = 12 + 4 + 4;
/// Length of the longest acknowledgement: Ethernet with a VLAN tag, IPv6, UDP, and the tail.
const LONGEST: usize = 14 + 4 + 40 + 8 + TAIL;

/// Looks at the first frames of a burst. Call it before the burst's first [`come_to`].
#[inline]
pub(super) fn begin(burst: &mut [Mbuf]) {
    for at in 1..WINDOW.min(burst.len()) {
        look(at, 0, burst);
    }
}

/// Called before the frame at place `at` is handled: looks at the frame [`WINDOW`] places after it.
#[inline]
pub(super) fn come_to(at: usize, burst: &mut [Mbuf]) {
    look(at + WINDOW, at, burst);
}

/// Moves the frame at place `at`, if it is an acknowledgement, before the requests that it may
/// pass, but not before place `first`.
#[inline]
fn look(at: usize, first: usize, burst: &mut [Mbuf]) {
    if burst.get(at).is_some_and(has_form) {
        pass(at, first, burst);
    }
}

/// Returns whether a frame may be an acknowledgement: it is short enough, and has the opcode in the
/// right place. The test takes a few instructions, and most other frames fail it.
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

/// Returns the destination QPN of a frame if it is an acknowledgement without data.
fn acknowledged(mbuf: &Mbuf) -> Option<Qpn> {
    let bth = Frame::likely_bth(mbuf.as_slice())?;
    (bth.opcode == OpCode::RC_ACKNOWLEDGE).then_some(bth.dest_qpn)
}

fn is_request_to(mbuf: &Mbuf, qpn: Qpn) -> bool {
    let Some(bth) = Frame::likely_bth(mbuf.as_slice()) else { return false };
    bth.dest_qpn == qpn && bth.opcode.info().is_some_and(|op| op.is_request())
}
