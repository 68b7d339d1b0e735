//! The extended transport headers between BTH and payload, as one plain value.
//!
//! [`Header`] has a variant for each. An opcode's row in the table lists the headers present, in
//! wire order; only [`crate::packet`] walks that list.

use crate::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth};

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
    /// [`Feth`].
    Feth,
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
    /// Length on the wire in bytes, 4..=28.
    #[inline]
    pub const fn wire_len(self) -> usize {
        match self {
            Header::Rdeth => Rdeth::LEN,
            Header::Deth => Deth::LEN,
            Header::Xrceth => Xrceth::LEN,
            Header::Feth => Feth::LEN,
            Header::Reth => Reth::LEN,
            Header::AtomicEth => AtomicEth::LEN,
            Header::Aeth => Aeth::LEN,
            Header::AtomicAckEth => AtomicAckEth::LEN,
            Header::ImmDt => ImmDt::LEN,
            Header::Ieth => Ieth::LEN,
        }
    }
}

/// All extended transport headers. A field is meaningful only if the opcode's row lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtHeaders {
    /// Header of RD packets.
    pub rdeth: Rdeth,
    /// Header of RD requests and UD packets.
    pub deth: Deth,
    /// Header of XRC requests.
    pub xrceth: Xrceth,
    /// Header of FLUSH requests.
    pub feth: Feth,
    /// Header of first and only WRITE packets, and of READ, ATOMIC WRITE and FLUSH requests.
    pub reth: Reth,
    /// Header of atomic requests.
    pub atomic: AtomicEth,
    /// Header of acknowledgements and of READ responses, except middle packets.
    pub aeth: Aeth,
    /// Header of atomic acknowledgements: the result.
    pub atomic_ack: AtomicAckEth,
    /// Header of last and only packets with immediate data.
    pub imm: ImmDt,
    /// Header of last and only packets of SEND with Invalidate.
    pub ieth: Ieth,
}
