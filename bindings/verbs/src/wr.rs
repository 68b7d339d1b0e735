//! Work requests: what is posted to a queue pair.

use uroce_transport::SendOp;
use uroce_wire::ImmDt;

use crate::mr::{MemorySlice, RemoteBuffer};

/// A send work request. Its number is 0 and it gives no completion on success unless asked.
///
/// A list of up to the QP's `max_send_sge` slices is gathered in order (SEND, WRITE) or scattered
/// to (READ, ATOMIC); an empty list makes a message without payload. The memory of the slices is
/// the request's until it has completed.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    pub(crate) wr: uroce_transport::SendWr,
    pub(crate) sges: &'a [MemorySlice<'a>],
}

impl<'a> SendWr<'a> {
    fn new(op: SendOp, sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        let (signaled, solicited, fence) = (false, false, false);
        let wr = uroce_transport::SendWr { wr_id: 0, op, signaled, solicited, fence };
        SendWr { wr, sges }
    }

    /// SEND, into a receive that the peer has posted.
    pub fn send(sges: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        SendWr::new(SendOp::Send { imm: None }, sges)
    }

    /// SEND with immediate data for the peer's completion.
    pub fn send_with_imm(sges: &'a [MemorySlice<'a>], imm: ImmDt) -> SendWr<'a> {
        SendWr::new(SendOp::Send { imm: Some(imm) }, sges)
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

    /// Raises a solicited event at the peer (SEND, WRITE with immediate).
    pub fn solicited(mut self) -> SendWr<'a> {
        self.wr.solicited = true;
        self
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
