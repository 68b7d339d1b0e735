//! The message that request packets are in the middle of: what RC and UC check and do alike.
//!
//! A check says yes or no; what a no means is the service's: a NAK with RC, a message dropped with
//! UC.

use uroce_wire::{OpInfo, Operation, Packet, PathMtu, Rkey, Va};

use crate::attr::AccessFlags;
use crate::env::{Access, Accessor, Key, Memory, MemoryFault, Region};
use crate::wqe::MAX_MESSAGE_LEN;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Message {
    #[default]
    None,
    /// A SEND into the oldest receive WQE.
    Send { received: u32 },
    /// A WRITE: where the next byte goes, and how many are still to come.
    Write { va: Va, rkey: Rkey, total: u32, left: u32 },
}

impl Message {
    /// Do first, middle and last packets follow one another?
    #[inline]
    pub(crate) fn is_followed_by(&self, op: &OpInfo) -> bool {
        match self {
            //= check E1 — Middle or Last without First
            Message::None => op.position.is_first(),
            //= check E2 — a message begins before the last one ended
            //= check E3 — a SEND goes on as a WRITE
            Message::Send { .. } => !op.position.is_first() && op.operation == Operation::Send,
            Message::Write { .. } => !op.position.is_first() && op.operation == Operation::Write,
        }
    }

    /// Bytes of the SEND that have come.
    #[inline]
    pub(crate) fn received(&self) -> u32 {
        match self {
            Message::Send { received } => *received,
            _ => 0,
        }
    }

    /// Does a WRITE bring exactly the bytes that its RETH announces, and not too many at all?
    //= check E5 — a WRITE brings exactly the bytes its RETH announces
    #[inline]
    pub(crate) fn fits_write(&self, packet: &Packet<'_>) -> bool {
        let len = packet.payload.len() as u32;
        let left = match self {
            Message::Write { left, .. } => *left,
            _ => packet.ext.reth.dma_len,
        };
        let fits = if packet.op.position.is_last() { len == left } else { len < left };
        left <= MAX_MESSAGE_LEN && (fits || seeded!(WriteLengthUnchecked))
    }

    /// Executes a packet of a WRITE that has passed all checks. After the last one the message is
    /// over: gives its length.
    #[inline]
    pub(crate) fn write(
        &mut self,
        packet: &Packet<'_>,
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Result<Option<u32>, MemoryFault> {
        let reth = &packet.ext.reth;
        let (va, rkey, total, left) = match *self {
            Message::Write { va, rkey, total, left } => (va, rkey, total, left),
            _ => (reth.va, reth.rkey, reth.dma_len, reth.dma_len),
        };
        let len = packet.payload.len() as u32;
        if len > 0 {
            memory.write(by, Region { key: Key::Remote(rkey), va, len }, packet.payload)?;
        }
        if packet.op.position.is_last() {
            *self = Message::None;
            return Ok(Some(total));
        }
        let va = Va(va.0.wrapping_add(u64::from(len)));
        *self = Message::Write { va, rkey, total, left: left - len };
        Ok(None)
    }
}

/// Does the payload's length suit the packet's place in its message?
//= check E4 — First and Middle are full, Last is not empty, none is over the path MTU
#[inline]
pub(crate) fn fits_position(packet: &Packet<'_>, path_mtu: PathMtu) -> bool {
    packet.op.payload.allows(packet.payload.len(), path_mtu)
}

/// Does the packet need a receive WQE?
#[inline]
pub(crate) fn needs_receive(packet: &Packet<'_>) -> bool {
    match packet.op.operation {
        Operation::Send => true,
        Operation::Write => packet.op.has(uroce_wire::Header::ImmDt),
        _ => false,
    }
}

/// What the QP must allow for the operation; `None`: there is no such operation.
#[inline]
pub(crate) fn access_needed(operation: Operation) -> Option<AccessFlags> {
    Some(match operation {
        Operation::Send => AccessFlags::empty(),
        Operation::Write => AccessFlags::REMOTE_WRITE,
        Operation::ReadRequest => AccessFlags::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        _ => return None,
    })
}

/// Does the R_Key open the whole range?
//= check C16 — no bytes, no R_Key check
#[inline]
pub(crate) fn check_range(
    rkey: Rkey,
    va: Va,
    len: u32,
    access: Access,
    by: Accessor,
    memory: &impl Memory,
) -> Result<(), MemoryFault> {
    if len == 0 && !seeded!(ZeroLengthKeyCheck) {
        return Ok(());
    }
    memory.check(by, Region { key: Key::Remote(rkey), va, len }, access)
}
