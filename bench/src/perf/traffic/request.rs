//! Work requests of a plan's operation, and their completions.

use super::layout::Layout;
use crate::error::{BenchError, Step};
use crate::perf::plan::{Operation, Plan};
use uroce::{
    AddressHandle, CompletionQueue, ImmDt, MemorySlice, Qkey, Qpn, RemoteBuffer, SendWr, Srqn,
    WorkCompletion,
};

/// Q_Key of datagrams, the same as perftest's, and of RD's first queue pair.
pub(super) const QKEY: Qkey = Qkey(0x1111_1111);
/// Completions polled at once.
pub(super) const POLL_BATCH: usize = 64;

/// Destination that each request of a worker names.
pub(super) enum Way {
    /// Queue pair of a worker's datagrams.
    Datagram {
        /// Its port.
        handle: AddressHandle,
        /// Its number.
        qpn: Qpn,
    },
    /// Shared receive queue of XRC requests.
    Queue(Srqn),
}

/// Builds the work request of a datagram.
#[inline]
fn datagram<'a>(
    local: &'a [MemorySlice<'a>; 1],
    handle: &'a AddressHandle,
    qpn: Qpn,
    immediate: Option<ImmDt>,
) -> SendWr<'a> {
    match immediate {
        Some(data) => SendWr::send_to_with_imm(local, handle, qpn, QKEY, data),
        None => SendWr::send_to(local, handle, qpn, QKEY),
    }
}

/// Values of a work request beside its places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Operands {
    /// Immediate data, of a plan that has them.
    pub(super) immediate: u32,
    /// Value at which CMP_SWAP swaps.
    pub(super) compare: u64,
    /// Value that FETCH_ADD adds, or CMP_SWAP writes.
    pub(super) value: u64,
}

/// Builds the work request of a plan's operation. RC, UC and RD have no `way`.
#[inline]
pub(super) fn work_request<'a>(
    plan: &Plan,
    local: &'a [MemorySlice<'a>; 1],
    remote: RemoteBuffer,
    way: Option<&'a Way>,
    operands: Operands,
) -> SendWr<'a> {
    let Operands { immediate, compare, value } = operands;
    let data = plan.immediate.then_some(ImmDt(immediate));
    let request = match (plan.operation, way) {
        (Operation::Write, _) => match data {
            Some(data) => SendWr::write_with_imm(local, remote, data),
            None => SendWr::write(local, remote),
        },
        (Operation::Read, _) => SendWr::read(local, remote),
        (Operation::Send, Some(Way::Datagram { handle, qpn })) => {
            datagram(local, handle, *qpn, data)
        }
        (Operation::Send, _) => match data {
            Some(data) => SendWr::send_with_imm(local, data),
            None => SendWr::send(local),
        },
        (Operation::FetchAdd, _) => SendWr::fetch_add(local, remote, value),
        (Operation::CompareSwap, _) => SendWr::compare_swap(local, remote, compare, value),
    };
    let request = match way {
        Some(Way::Queue(number)) => request.to_srq(*number),
        _ => request,
    };
    let copied = local[0].len() <= plan.inline as usize;
    match plan.operation {
        Operation::Write | Operation::Send if copied && plan.inline > 0 => request.inline(),
        _ => request,
    }
}

/// Polls completions. The first with an error is returned as the error.
#[inline]
pub(super) fn poll<'a>(
    cq: &CompletionQueue,
    completions: &'a mut [WorkCompletion],
    operation: Operation,
) -> Result<&'a [WorkCompletion], BenchError> {
    let count = cq.poll(completions).step("polling a CQ")?;
    let polled = &completions[..count];
    for completion in polled {
        if let Err(status) = completion.ok() {
            return Err(BenchError::Completion { operation: operation.name(), status });
        }
    }
    Ok(polled)
}

/// Returns the part of the peer's memory with its target slot `index`.
pub(super) fn remote_slot(
    layout: &Layout,
    remote: &RemoteBuffer,
    index: u32,
    size: u32,
) -> Result<RemoteBuffer, BenchError> {
    let start = layout.receive(index, size).start - layout.targets();
    remote.slice(start as u64, u64::from(size)).step("the peer's memory")
}
