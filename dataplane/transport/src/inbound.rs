//! The message that request packets are currently part of: checks and work that RC and UC share.
//!
//! Read first: IBA 9.7.4 (validation of inbound requests), 9.8 (unreliable services).
//!
//! A check only gives a verdict. The service decides the consequence of a failed check: RC sends a
//! NAK, UC drops the message.

use uroce_wire::{
    Feth, OpInfo, Operation, Packet, PathMtu, Placement, Reth, Rkey, Selectivity, Va,
};

use crate::attr::AccessFlags;
use crate::env::{AccessKind, Accessor, Flush, Key, Memory, MemoryFault, Region};
use crate::wqe::MAX_MESSAGE_LEN;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Message {
    #[default]
    None,
    /// A SEND into the oldest receive WQE, with the bytes received so far.
    Send { received: u32 },
    /// A WRITE: address of the next byte, and the number of bytes still to come.
    Write { va: Va, rkey: Rkey, total: u32, left: u32 },
}

impl Message {
    /// Returns whether a packet of this opcode may follow: checks the order of first, middle and
    /// last.
    #[inline]
    pub(crate) fn is_followed_by(&self, op: &OpInfo) -> bool {
        match self {
            //= check E1 — Middle or Last without First
            Message::None => op.position.is_first(),
            //= check E2 — a message begins before the last one ended
            //= check E3 — a SEND continues as a WRITE
            Message::Send { .. } => !op.position.is_first() && op.operation == Operation::Send,
            Message::Write { .. } => !op.position.is_first() && op.operation == Operation::Write,
        }
    }

    /// Bytes of the SEND received so far.
    #[inline]
    pub(crate) fn received(&self) -> u32 {
        match self {
            Message::Send { received } => *received,
            _ => 0,
        }
    }

    /// Returns whether the packet's payload agrees with the length in the WRITE's RETH, and that
    /// length is allowed.
    //= check E5 — a WRITE has exactly the number of bytes that its RETH states
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

    /// Executes a packet of a WRITE that has passed all checks. After the last packet the message
    /// ends: returns its length.
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

/// Returns whether the payload's length fits the packet's position in its message.
//= check E4 — First and Middle are full, Last is not empty, none exceeds the path MTU
#[inline]
pub(crate) fn fits_position(packet: &Packet<'_>, path_mtu: PathMtu) -> bool {
    packet.op.payload.allows(packet.payload.len(), path_mtu)
}

/// Returns whether the packet needs a receive WQE.
#[inline]
pub(crate) fn needs_receive(packet: &Packet<'_>) -> bool {
    match packet.op.operation {
        Operation::Send => true,
        Operation::Write => packet.op.has(uroce_wire::Header::ImmDt),
        _ => false,
    }
}

/// Returns whether a QP with these access flags allows the packet's operation; false if there is no
/// such request.
#[inline]
pub(crate) fn is_allowed(packet: &Packet<'_>, access: AccessFlags) -> bool {
    match packet.op.operation {
        Operation::Send => true,
        //= check P5 — an ATOMIC WRITE needs the right to write
        Operation::Write | Operation::AtomicWrite => access.contains(AccessFlags::REMOTE_WRITE),
        Operation::ReadRequest => access.contains(AccessFlags::REMOTE_READ),
        Operation::CompareSwap | Operation::FetchAdd => access.contains(AccessFlags::REMOTE_ATOMIC),
        Operation::Flush => flush_of(packet).is_some_and(|flush| access.contains(flush.needed())),
        _ => false,
    }
}

/// Returns whether the packet requests a response of its own.
pub(crate) fn asks(packet: &Packet<'_>) -> bool {
    use Operation as O;
    let op = packet.op.operation;
    matches!(op, O::ReadRequest | O::CompareSwap | O::FetchAdd | O::AtomicWrite | O::Flush)
}

/// What a FLUSH packet asks for; `None` if its placement type or selectivity level is reserved.
//= check P6 — the right to each placement type, and no reserved one
#[cold]
pub(crate) fn flush_of(packet: &Packet<'_>) -> Option<Flush> {
    let Feth { placement, selectivity } = packet.ext.feth;
    let Reth { va, rkey, dma_len } = packet.ext.reth;
    //= check P4 — for a whole region, address and length are not used
    let range = match selectivity {
        Selectivity::Range => Some((va, dma_len)),
        Selectivity::Region if seeded!(FlushRangeForRegion) => Some((va, dma_len)),
        Selectivity::Region => None,
        Selectivity::Reserved(_) => return None,
    };
    let visible = seeded!(FlushOnlyVisible) && placement.contains(Placement::GLOBAL);
    let reached = if visible { Placement::GLOBAL } else { placement };
    placement.is_defined().then_some(Flush { rkey, range, placement: reached })
}

/// Checks that the R_Key grants `access` to the whole range.
//= check C16 — without bytes the R_Key is not checked
#[inline]
pub(crate) fn check_range(
    rkey: Rkey,
    va: Va,
    len: u32,
    access: AccessKind,
    by: Accessor,
    memory: &impl Memory,
) -> Result<(), MemoryFault> {
    if len == 0 && !seeded!(ZeroLengthKeyCheck) {
        return Ok(());
    }
    memory.check(by, Region { key: Key::Remote(rkey), va, len }, access)
}
