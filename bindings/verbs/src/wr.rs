//! Work requests: what is posted to a queue pair.

use uroce_engine::{SendBatch, SendData};
use uroce_transport::{AccessFlags, MAX_INLINE_DATA, PostError, SendOp};
use uroce_wire::{ImmDt, Lkey, Qkey, Qpn, Rkey, Va};

use crate::ah::AddressHandle;
use crate::mr::{MemorySlice, RemoteBuffer};
use crate::mw::MemoryWindow;

/// A send work request. Its number is 0 and it gives no completion on success unless asked.
///
/// A list of up to the QP's `max_send_sge` slices is gathered in order (SEND, WRITE) or scattered
/// to (READ, ATOMIC); an empty list makes a message without payload. The memory of the slices is
/// the request's until it has completed.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    pub(crate) wr: uroce_transport::SendWr,
    pub(crate) sges: &'a [MemorySlice<'a>],
    pub(crate) inline: bool,
}

impl<'a> SendWr<'a> {
    fn new(op: SendOp, sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        let (signaled, solicited, fence) = (false, false, false);
        let wr = uroce_transport::SendWr { wr_id: 0, op, signaled, solicited, fence };
        SendWr { wr, sges, inline: false }
    }

    /// SEND, into a receive that the peer has posted.
    pub fn send(sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        SendWr::new(SendOp::Send { imm: None }, sges)
    }

    /// SEND with immediate data for the peer's completion.
    pub fn send_with_imm(sges: &'a [MemorySlice<'a>], imm: ImmDt) -> SendWr<'a> {
        SendWr::new(SendOp::Send { imm: Some(imm) }, sges)
    }

    /// SEND that has the peer invalidate one of its memory windows' keys (RC).
    pub fn send_with_invalidate(sges: &'a [MemorySlice<'a>], rkey: Rkey) -> SendWr<'a> {
        SendWr::new(SendOp::SendWithInvalidate { rkey }, sges)
    }

    /// SEND of one datagram to a QP, or to the QPs of a group with [`Qpn::MULTICAST`] (UD). The
    /// receiver's Q_Key must be `qkey`, or if that has its highest bit set, our own.
    pub fn send_to(
        sges: &'a [MemorySlice<'a>],
        way: &'a AddressHandle,
        dest_qpn: Qpn,
        qkey: Qkey,
    ) -> SendWr<'a> {
        SendWr::new(SendOp::SendTo { ah: way.ah, dest_qpn, qkey, imm: None }, sges)
    }

    /// The same with immediate data for the receiver's completion.
    pub fn send_to_with_imm(
        sges: &'a [MemorySlice<'a>],
        way: &'a AddressHandle,
        dest_qpn: Qpn,
        qkey: Qkey,
        imm: ImmDt,
    ) -> SendWr<'a> {
        SendWr::new(SendOp::SendTo { ah: way.ah, dest_qpn, qkey, imm: Some(imm) }, sges)
    }

    /// Binds a memory window to a part of a region: once it has completed, peers reach those bytes
    /// by [`MemoryWindow::remote`] with these remote rights. A type-2 window is the QP's then, and
    /// must have been invalidated before.
    pub fn bind_mw(
        window: &mut MemoryWindow,
        slice: &MemorySlice<'_>,
        access: AccessFlags,
    ) -> SendWr<'a> {
        let (rkey, new_rkey) = window.advance(Some(slice));
        let (lkey, va, len) = (slice.lkey(), slice.va(), slice.len() as u64);
        SendWr::new(SendOp::BindMw { rkey, new_rkey, lkey, va, len, access }, &[])
    }

    /// Takes a type-1 window its meaning, until it is bound again.
    pub fn unbind_mw(window: &mut MemoryWindow) -> SendWr<'a> {
        let (rkey, new_rkey) = window.advance(None);
        let (lkey, va, access) = (Lkey(0), Va(0), AccessFlags::empty());
        SendWr::new(SendOp::BindMw { rkey, new_rkey, lkey, va, len: 0, access }, &[])
    }

    /// Takes the key of a type-2 window of this QP its meaning, until the window is bound again.
    pub fn local_invalidate(rkey: Rkey) -> SendWr<'a> {
        SendWr::new(SendOp::LocalInvalidate { rkey }, &[])
    }

    /// RDMA WRITE to the start of `remote`.
    pub fn write(sges: &'a [MemorySlice<'a>], remote: RemoteBuffer) -> SendWr<'a> {
        SendWr::new(SendOp::Write { va: remote.va, rkey: remote.rkey, imm: None }, sges)
    }

    /// RDMA WRITE which then takes a receive of the peer's and completes it with immediate data.
    pub fn write_with_imm(
        sges: &'a [MemorySlice<'a>],
        remote: RemoteBuffer,
        imm: ImmDt,
    ) -> SendWr<'a> {
        SendWr::new(SendOp::Write { va: remote.va, rkey: remote.rkey, imm: Some(imm) }, sges)
    }

    /// RDMA READ from the start of `remote`, as many bytes as the slices have.
    pub fn read(sges: &'a [MemorySlice<'a>], remote: RemoteBuffer) -> SendWr<'a> {
        SendWr::new(SendOp::Read { va: remote.va, rkey: remote.rkey }, sges)
    }

    /// ATOMIC compare and swap on the aligned word at the start of `remote`. Its former value
    /// lands in `result`, 8 bytes.
    pub fn compare_swap(
        result: &'a [MemorySlice<'a>],
        remote: RemoteBuffer,
        compare: u64,
        swap: u64,
    ) -> SendWr<'a> {
        let RemoteBuffer { va, rkey, .. } = remote;
        SendWr::new(SendOp::CompareSwap { va, rkey, compare, swap }, result)
    }

    /// ATOMIC fetch and add on the aligned word at the start of `remote`. Its former value lands
    /// in `result`, 8 bytes.
    pub fn fetch_add(result: &'a [MemorySlice<'a>], remote: RemoteBuffer, add: u64) -> SendWr<'a> {
        SendWr::new(SendOp::FetchAdd { va: remote.va, rkey: remote.rkey, add }, result)
    }

    /// With the number that its completion will carry.
    pub fn id(mut self, wr_id: u64) -> SendWr<'a> {
        self.wr.wr_id = wr_id;
        self
    }

    /// Gives a completion on success too.
    pub fn signaled(mut self) -> SendWr<'a> {
        self.wr.signaled = true;
        self
    }

    /// Copies the payload when the request is posted, so that the memory is free at once: up to the
    /// QP's `max_inline_data` bytes (SEND, WRITE).
    pub fn inline(mut self) -> SendWr<'a> {
        self.inline = true;
        self
    }

    /// Begins only once all READs and ATOMICs posted before have completed (RC).
    pub fn fenced(mut self) -> SendWr<'a> {
        self.wr.fence = true;
        self
    }

    /// Raises a solicited event at the peer (SEND, WRITE with immediate).
    pub fn solicited(mut self) -> SendWr<'a> {
        self.wr.solicited = true;
        self
    }
}

impl SendWr<'_> {
    /// Posts it as one of a list.
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
}

/// A receive work request: memory for one message. The memory is the request's until it has
/// completed.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    pub(crate) wr: uroce_transport::RecvWr,
    pub(crate) sges: &'a [MemorySlice<'a>],
}

impl<'a> RecvWr<'a> {
    /// Memory for a message of up to the slices' length.
    pub fn new(sges: &'a [MemorySlice<'a>]) -> RecvWr<'a> {
        RecvWr { wr: uroce_transport::RecvWr { wr_id: 0 }, sges }
    }

    /// With the number that its completion will carry.
    pub fn id(mut self, wr_id: u64) -> RecvWr<'a> {
        self.wr.wr_id = wr_id;
        self
    }
}
