//! ImmDt, immediate data: four bytes that the receiver's completion reports.
//!
//! Read first: IBA 9.3.

/// Immediate data: the value of the big-endian word on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the word.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> ImmDt {
        ImmDt(u32::from_be_bytes(*b))
    }

    /// Writes the word.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        *b = self.0.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = ImmDt::LEN;

    fn parse(b: &[u8; LEN]) -> ImmDt {
        ImmDt::parse(b)
    }

    crate::testing::header_tests! {
        ImmDt(0x0123_4567),
        bytes: [0x01, 0x23, 0x45, 0x67],
        reserved: [0; LEN]
    }
}
