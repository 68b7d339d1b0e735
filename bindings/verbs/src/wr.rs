//! Work requests, which are posted to a queue pair.

use uroce_engine::{SendBatch, SendData};
use uroce_transport::{AccessFlags, MAX_INLINE_DATA, PostError, RdAddress, SendOp, StaticRate};
use uroce_wire::{ImmDt, Lkey, Mac, Placement, Qkey, Qpn, Rkey, Selectivity, Srqn, Va};

use crate::ah::AddressHandle;
use crate::mr::{MemorySlice, RemoteBuffer};
use crate::mw::MemoryWindow;

/// A send work request. By default its `wr_id` is 0, and it gives a completion only if it fails.
///
/// SEND, WRITE and ATOMIC WRITE gather the payload from up to `max_send_sge` slices in order; READ
/// and ATOMIC scatter the result to them. An empty list makes a message without payload. The
/// application must not use the memory of the slices until the request has completed.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    pub(crate) wr: uroce_transport::SendWr,
    pub(crate) sges: &'a [MemorySlice<'a>],
    pub(crate) inline: bool,
}

impl<'a> SendWr<'a> {
    fn new(op: SendOp, sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        let (signaled, solicited, fence, srqn) = (false, false, false, Srqn::default());
        let wr = uroce_transport::SendWr { wr_id: 0, op, signaled, solicited, fence, srqn };
        SendWr { wr, sges, inline: false }
    }

    /// SEND: a message into a receive that the peer has posted.
    pub fn send(sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        SendWr::new(SendOp::Send { imm: None }, sges)
    }

    /// SEND with immediate data for the peer's completion.
    pub fn send_with_imm(sges: &'a [MemorySlice<'a>], imm: ImmDt) -> SendWr<'a> {
        SendWr::new(SendOp::Send { imm: Some(imm) }, sges)
    }

    /// SEND that also invalidates the R_Key of one of the peer's memory windows (RC).
    pub fn send_with_invalidate(sges: &'a [MemorySlice<'a>], rkey: Rkey) -> SendWr<'a> {
        SendWr::new(SendOp::SendWithInvalidate { rkey }, sges)
    }

    /// SEND of one datagram (UD) to a QP, or to all QPs of a multicast group with
    /// [`Qpn::MULTICAST`]. The Q_Key of the receiver must be `qkey`, or the sender's own Q_Key if
    /// the highest bit of `qkey` is set.
    pub fn send_to(
        sges: &'a [MemorySlice<'a>],
        way: &'a AddressHandle,
        dest_qpn: Qpn,
        qkey: Qkey,
    ) -> SendWr<'a> {
        SendWr::new(SendOp::SendTo { ah: way.ah, dest_qpn, qkey, imm: None }, sges)
    }

    /// SEND of one datagram like [`send_to`](SendWr::send_to), with immediate data for the
    /// receiver's completion.
    pub fn send_to_with_imm(
        sges: &'a [MemorySlice<'a>],
        way: &'a AddressHandle,
        dest_qpn: Qpn,
        qkey: Qkey,
        imm: ImmDt,
    ) -> SendWr<'a> {
        SendWr::new(SendOp::SendTo { ah: way.ah, dest_qpn, qkey, imm: Some(imm) }, sges)
    }

    /// A whole Ethernet frame, from its destination address on, without the check sequence (Raw
    /// packet, Raw EtherType). It is sent as it is.
    pub fn frame(sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        SendWr::new(SendOp::Frame { rate: StaticRate::MAX, checksums: false }, sges)
    }

    /// An IPv6 packet to the station with this Ethernet address (Raw IPv6).
    pub fn ipv6(sges: &'a [MemorySlice<'a>], to: Mac) -> SendWr<'a> {
        SendWr::new(SendOp::Ipv6 { to, rate: StaticRate::MAX }, sges)
    }

    /// Sets the static rate of a frame or IPv6 packet: the next one waits as long as this one takes
    /// at the rate. No effect on other requests.
    pub fn rate(mut self, limit: StaticRate) -> SendWr<'a> {
        if let SendOp::Frame { rate, .. } | SendOp::Ipv6 { rate, .. } = &mut self.wr.op {
            *rate = limit;
        }
        self
    }

    /// Fills in the checksums of a frame: of an IPv4 header, of UDP and of TCP, unless they are
    /// behind IPv6 extension headers, in a fragment, or behind more than one tag. No effect on
    /// other requests.
    pub fn with_checksums(mut self) -> SendWr<'a> {
        if let SendOp::Frame { checksums, .. } = &mut self.wr.op {
            *checksums = true;
        }
        self
    }

    /// Binds a memory window to a part of a region. After this has completed, peers can access the
    /// bytes with [`MemoryWindow::remote`] and these remote rights. A type-2 window then belongs to
    /// the QP, and must have been invalidated before.
    pub fn bind_mw(
        window: &mut MemoryWindow,
        slice: &MemorySlice<'_>,
        access: AccessFlags,
    ) -> SendWr<'a> {
        let (rkey, new_rkey) = window.advance(Some(slice));
        let (lkey, va, len) = (slice.lkey(), slice.va(), slice.len() as u64);
        SendWr::new(SendOp::BindMw { rkey, new_rkey, lkey, va, len, access }, &[])
    }

    /// Unbinds a type-1 window: its key is invalid until it is bound again.
    pub fn unbind_mw(window: &mut MemoryWindow) -> SendWr<'a> {
        let (rkey, new_rkey) = window.advance(None);
        let (lkey, va, access) = (Lkey(0), Va(0), AccessFlags::empty());
        SendWr::new(SendOp::BindMw { rkey, new_rkey, lkey, va, len: 0, access }, &[])
    }

    /// Invalidates the key of a type-2 window of this QP until the window is bound again.
    pub fn local_invalidate(rkey: Rkey) -> SendWr<'a> {
        SendWr::new(SendOp::LocalInvalidate { rkey }, &[])
    }

    /// RDMA WRITE to the start of `remote`.
    pub fn write(sges: &'a [MemorySlice<'a>], remote: RemoteBuffer) -> SendWr<'a> {
        SendWr::new(SendOp::Write { va: remote.va, rkey: remote.rkey, imm: None }, sges)
    }

    /// RDMA WRITE with immediate data, which also consumes a receive of the peer and completes it.
    pub fn write_with_imm(
        sges: &'a [MemorySlice<'a>],
        remote: RemoteBuffer,
        imm: ImmDt,
    ) -> SendWr<'a> {
        SendWr::new(SendOp::Write { va: remote.va, rkey: remote.rkey, imm: Some(imm) }, sges)
    }

    /// RDMA READ from the start of `remote`. The slices' total length is the number of bytes.
    pub fn read(sges: &'a [MemorySlice<'a>], remote: RemoteBuffer) -> SendWr<'a> {
        SendWr::new(SendOp::Read { va: remote.va, rkey: remote.rkey }, sges)
    }

    /// ATOMIC compare and swap on the aligned 8-byte word at the start of `remote`. The word's
    /// former value is written to `result`, which has 8 bytes.
    pub fn compare_swap(
        result: &'a [MemorySlice<'a>],
        remote: RemoteBuffer,
        compare: u64,
        swap: u64,
    ) -> SendWr<'a> {
        let RemoteBuffer { va, rkey, .. } = remote;
        SendWr::new(SendOp::CompareSwap { va, rkey, compare, swap }, result)
    }

    /// ATOMIC fetch and add on the aligned 8-byte word at the start of `remote`. The word's former
    /// value is written to `result`, which has 8 bytes.
    pub fn fetch_add(result: &'a [MemorySlice<'a>], remote: RemoteBuffer, add: u64) -> SendWr<'a> {
        SendWr::new(SendOp::FetchAdd { va: remote.va, rkey: remote.rkey, add }, result)
    }

    /// ATOMIC WRITE of the slices' eight bytes to the aligned word at the start of `remote`, which
    /// is written in one piece (RC). The peer grants it like a WRITE.
    pub fn atomic_write(sges: &'a [MemorySlice<'a>], remote: RemoteBuffer) -> SendWr<'a> {
        SendWr::new(SendOp::AtomicWrite { va: remote.va, rkey: remote.rkey }, sges)
    }

    /// FLUSH: completes once everything that was written to `remote` before is placed as
    /// `placement` says (RC). [`Placement::GLOBAL`] needs
    /// [`AccessFlags::FLUSH_GLOBAL`](crate::AccessFlags::FLUSH_GLOBAL) at the peer. uroce registers
    /// no memory that grants [`Placement::PERSISTENT`]; other peers may.
    pub fn flush(remote: RemoteBuffer, placement: Placement) -> SendWr<'a> {
        let RemoteBuffer { va, rkey, len } = remote;
        // A longer range than a FLUSH can have is refused by the post.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let selectivity = Selectivity::Range;
        SendWr::new(SendOp::Flush { va, rkey, len, placement, selectivity }, &[])
    }

    /// FLUSH of the whole region that `remote` is a part of; see [`flush`](SendWr::flush).
    pub fn flush_region(remote: RemoteBuffer, placement: Placement) -> SendWr<'a> {
        let RemoteBuffer { va, rkey, .. } = remote;
        let selectivity = Selectivity::Region;
        SendWr::new(SendOp::Flush { va, rkey, len: 0, placement, selectivity }, &[])
    }

    /// Sets the `wr_id` of the completion.
    pub fn id(mut self, wr_id: u64) -> SendWr<'a> {
        self.wr.wr_id = wr_id;
        self
    }

    /// Requests a completion on success too.
    pub fn signaled(mut self) -> SendWr<'a> {
        self.wr.signaled = true;
        self
    }

    /// Copies the payload when the request is posted, so that the memory can be reused at once
    /// (SEND, WRITE, ATOMIC WRITE). At most the QP's `max_inline_data` bytes.
    pub fn inline(mut self) -> SendWr<'a> {
        self.inline = true;
        self
    }

    /// Names the peer's shared receive queue. Every request of an XRC initiator must name one; the
    /// number is not used on other QPs.
    pub fn to_srq(mut self, number: Srqn) -> SendWr<'a> {
        self.wr.srqn = number;
        self
    }

    /// Delays the request until all earlier READs, ATOMICs, ATOMIC WRITEs and FLUSHes have
    /// completed (RC, XRC).
    pub fn fenced(mut self) -> SendWr<'a> {
        self.wr.fence = true;
        self
    }

    /// Requests a solicited event at the peer (SEND, WRITE with immediate data).
    pub fn solicited(mut self) -> SendWr<'a> {
        self.wr.solicited = true;
        self
    }
}

impl SendWr<'_> {
    /// Posts this request as part of a list.
    #[inline]
    pub(crate) fn push_to(&self, batch: &mut SendBatch<'_>) -> Result<(), PostError> {
        if self.inline {
            return self.push_inline(batch);
        }
        batch.push(&self.wr, SendData::Sges(MemorySlice::sges(self.sges)))
    }

    //= check F13 — the payload is copied here; the memory may change from now on
    fn push_inline(&self, batch: &mut SendBatch<'_>) -> Result<(), PostError> {
        let mut data = [0; MAX_INLINE_DATA as usize];
        let len = MemorySlice::gather(self.sges, &mut data).ok_or(PostError::InlineTooLong)?;
        batch.push(&self.wr, SendData::Inline(&data[..len]))
    }

    /// Posts this request of an RD QP as part of a list.
    pub(crate) fn push_datagram_to(
        &self,
        batch: &mut SendBatch<'_>,
        to: &RdAddress,
    ) -> Result<(), PostError> {
        if !self.inline {
            return batch.push_datagram(&self.wr, to, SendData::Sges(MemorySlice::sges(self.sges)));
        }
        let mut data = [0; MAX_INLINE_DATA as usize];
        let len = MemorySlice::gather(self.sges, &mut data).ok_or(PostError::InlineTooLong)?;
        batch.push_datagram(&self.wr, to, SendData::Inline(&data[..len]))
    }
}

/// A receive work request: memory for one message. The application must not use the memory until
/// the request has completed.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    pub(crate) wr: uroce_transport::RecvWr,
    pub(crate) sges: &'a [MemorySlice<'a>],
}

impl<'a> RecvWr<'a> {
    /// A receive for a message of up to the slices' total length.
    pub fn new(sges: &'a [MemorySlice<'a>]) -> RecvWr<'a> {
        RecvWr { wr: uroce_transport::RecvWr { wr_id: 0 }, sges }
    }

    /// Sets the `wr_id` of the completion.
    pub fn id(mut self, wr_id: u64) -> RecvWr<'a> {
        self.wr.wr_id = wr_id;
        self
    }
}

/// An error in a list of work requests. The requests before it were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {posted} work requests: {error}")]
pub struct PostListError {
    /// Number of requests that were posted, from the start of the list.
    pub posted: usize,
    /// Why the next request was refused.
    pub error: PostError,
}

impl From<(usize, PostError)> for PostListError {
    fn from((posted, error): (usize, PostError)) -> PostListError {
        PostListError { posted, error }
    }
}
