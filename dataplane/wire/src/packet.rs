//! A RoCEv2 packet from BTH to the end of the pad: the only parser and the only builder.
//!
//! Read first: IBA 9.2 and 9.3.
//!
//! Parsing checks every length rule that needs no queue pair: room for the headers of the opcode's
//! row, a pad within the payload, and [`PayloadRule`]. The transport checks what depends on the
//! path MTU, and answers an empty last packet or a wrong ATOMIC WRITE with a NAK.
//!
//! Not here: the invariant CRC (see [`mod@crate::icrc`]), which [`Datagram::packet`] checks first.
//!
//! [`Datagram::packet`]: crate::Datagram::packet

use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, ExtHeaders, Feth, Header, Ieth, ImmDt, OpCode,
    OpInfo, ParseError, PayloadRule, Rdeth, Reth, Xrceth, opcode::is_bitmap_len,
};

/// A parsed packet; the payload is borrowed from the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// The opcode's row in the table.
    pub op: &'static OpInfo,
    /// Extended headers; those in `op.headers` are meaningful, the others zero.
    pub ext: ExtHeaders,
    /// Payload, without the pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses `transport`, the bytes from BTH to the end of the pad, without the invariant CRC.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], [`ParseError::TransportVersion`],
    /// [`ParseError::ReservedOpcode`], [`ParseError::Padding`] or
    /// [`ParseError::PayloadLength`], the first that applies in this order.
    #[inline]
    pub fn parse(transport: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (bth, rest) = transport.split_first_chunk().ok_or(ParseError::Truncated)?;
        let bth = Bth::parse(bth)?;
        let op = bth.opcode.info().ok_or(ParseError::ReservedOpcode)?;
        let (ext, padded) = parse_ext(op, rest).ok_or(ParseError::Truncated)?;
        let payload = strip_pad(op, bth.pad_count, padded)?;
        Ok(Packet { bth, op, ext, payload })
    }
}

/// Reads the headers of the opcode's row; returns them and the bytes that follow.
#[inline]
fn parse_ext<'a>(op: &OpInfo, mut rest: &'a [u8]) -> Option<(ExtHeaders, &'a [u8])> {
    #[inline(always)]
    fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
        let (head, tail) = rest.split_first_chunk()?;
        *rest = tail;
        Some(head)
    }
    let mut ext = ExtHeaders::default();
    for header in op.headers {
        match header {
            Header::Rdeth => ext.rdeth = Rdeth::parse(take(&mut rest)?),
            Header::Deth => ext.deth = Deth::parse(take(&mut rest)?),
            Header::Xrceth => ext.xrceth = Xrceth::parse(take(&mut rest)?),
            Header::Feth => ext.feth = Feth::parse(take(&mut rest)?),
            Header::Reth => ext.reth = Reth::parse(take(&mut rest)?),
            Header::AtomicEth => ext.atomic = AtomicEth::parse(take(&mut rest)?),
            Header::Aeth => ext.aeth = Aeth::parse(take(&mut rest)?),
            Header::AtomicAckEth => ext.atomic_ack = AtomicAckEth::parse(take(&mut rest)?),
            Header::ImmDt => ext.imm = ImmDt::parse(take(&mut rest)?),
            Header::Ieth => ext.ieth = Ieth::parse(take(&mut rest)?),
        }
    }
    Some((ext, rest))
}

/// Checks payload and pad against the opcode; returns the payload without the pad.
#[inline]
fn strip_pad<'a>(op: &OpInfo, pad_count: u8, padded: &'a [u8]) -> Result<&'a [u8], ParseError> {
    //= check E6 — payload and pad together are whole words, and the pad is not longer than both.
    let payload_len = padded
        .len()
        .checked_sub(pad_count as usize)
        .filter(|_| padded.len().is_multiple_of(4))
        .ok_or(ParseError::Padding)?;
    let may_pad =
        matches!(op.payload, PayloadRule::OneToMtu | PayloadRule::UpToMtu | PayloadRule::Word);
    if pad_count != 0 && !may_pad {
        return Err(ParseError::Padding);
    }
    let possible = match op.payload {
        PayloadRule::Empty => payload_len == 0,
        PayloadRule::Reserved16 => payload_len == 16,
        PayloadRule::Bitmap => is_bitmap_len(payload_len),
        // A responder compares these with its path MTU, or with a word, and answers with a NAK.
        PayloadRule::FullMtu | PayloadRule::OneToMtu | PayloadRule::UpToMtu | PayloadRule::Word => {
            true
        }
    };
    if possible { Ok(&padded[..payload_len]) } else { Err(ParseError::PayloadLength) }
}

/// Length of BTH and extended headers in bytes, 12..=52; `None` for a reserved opcode.
#[inline]
pub fn headers_len(opcode: OpCode) -> Option<usize> {
    opcode.info().map(OpInfo::headers_len)
}

/// Writes BTH and the extended headers of its opcode to the front of `out`; returns their length.
///
/// `None` if the opcode is reserved or `out` is too short; `out` may then be partly written.
#[inline]
pub fn emit_headers(bth: &Bth, ext: &ExtHeaders, out: &mut [u8]) -> Option<usize> {
    #[inline(always)]
    fn take<'a, const N: usize>(rest: &mut &'a mut [u8]) -> Option<&'a mut [u8; N]> {
        let (head, tail) = core::mem::take(rest).split_first_chunk_mut()?;
        *rest = tail;
        Some(head)
    }
    let op = bth.opcode.info()?;
    let mut rest = out;
    bth.emit(take(&mut rest)?);
    for header in op.headers {
        match header {
            Header::Rdeth => ext.rdeth.emit(take(&mut rest)?),
            Header::Deth => ext.deth.emit(take(&mut rest)?),
            Header::Xrceth => ext.xrceth.emit(take(&mut rest)?),
            Header::Feth => ext.feth.emit(take(&mut rest)?),
            Header::Reth => ext.reth.emit(take(&mut rest)?),
            Header::AtomicEth => ext.atomic.emit(take(&mut rest)?),
            Header::Aeth => ext.aeth.emit(take(&mut rest)?),
            Header::AtomicAckEth => ext.atomic_ack.emit(take(&mut rest)?),
            Header::ImmDt => ext.imm.emit(take(&mut rest)?),
            Header::Ieth => ext.ieth.emit(take(&mut rest)?),
        }
    }
    Some(op.headers_len())
}

#[cfg(test)]
mod tests;
