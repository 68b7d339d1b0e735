//! The extended transport headers between BTH and payload, as one plain value.
//!
//! [`Header`] names each of them; the opcode's table row says which are present and in which
//! order. Only [`crate::packet`] walks that order.

use crate::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Rdeth, Reth, Xrceth};

/// One kind of extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Header {
    /// [`Rdeth`].
    Rdeth,
    /// [`Deth`].
    Deth,
    /// [`Xrceth`].
    Xrceth,
    /// [`Reth`].
    Reth,
    /// [`AtomicEth`].
    AtomicEth,
    /// [`Aeth`].
    Aeth,
    /// [`AtomicAckEth`].
    AtomicAckEth,
    /// [`ImmDt`].
    ImmDt,
    /// [`Ieth`].
    Ieth,
}

impl Header {
    /// Bytes on the wire, 4..=28.
    #[inline]
    pub const fn wire_len(self) -> usize {
        match self {
            Header::Rdeth => Rdeth::LEN,
            Header::Deth => Deth::LEN,
            Header::Xrceth => Xrceth::LEN,
            Header::Reth => Reth::LEN,
            Header::AtomicEth => AtomicEth::LEN,
            Header::Aeth => Aeth::LEN,
            Header::AtomicAckEth => AtomicAckEth::LEN,
            Header::ImmDt => ImmDt::LEN,
            Header::Ieth => Ieth::LEN,
        }
    }
}

/// All extended transport headers; a field means something only where the opcode's row lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtHeaders {
    /// Reliable datagrams.
    pub rdeth: Rdeth,
    /// Datagrams.
    pub deth: Deth,
    /// XRC requests.
    pub xrceth: Xrceth,
    /// First or only WRITE, READ request.
    pub reth: Reth,
    /// Atomic requests.
    pub atomic: AtomicEth,
    /// Acknowledgements and READ responses.
    pub aeth: Aeth,
    /// Atomic results.
    pub atomic_ack: AtomicAckEth,
    /// Last or only packet with immediate data.
    pub imm: ImmDt,
    /// Last or only packet of SEND with Invalidate.
    pub ieth: Ieth,
}
