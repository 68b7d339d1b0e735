//! Private data: bytes between the two consumers, in nearly every message.

use core::fmt;

/// Private data of a message that has room for `MAX` bytes.
///
/// There is no length on the wire: what is received has `MAX` bytes, zeros behind what was meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const MAX: usize>(pub [u8; MAX]);

/// More private data than the message has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Bytes there were.
    pub len: usize,
    /// Bytes there may be.
    pub max: usize,
}

impl<const MAX: usize> PrivateData<MAX> {
    /// Bytes there is room for.
    pub const MAX: usize = MAX;

    /// `bytes` and zeros behind them.
    ///
    /// # Errors
    /// [`TooLong`] for more than `MAX` bytes.
    pub fn new(bytes: &[u8]) -> Result<PrivateData<MAX>, TooLong> {
        //= check J6 — each message takes exactly as much private data as it has room for.
        let mut data = [0; MAX];
        let room = data.get_mut(..bytes.len()).ok_or(TooLong { len: bytes.len(), max: MAX })?;
        room.copy_from_slice(bytes);
        Ok(PrivateData(data))
    }
}

impl<const MAX: usize> Default for PrivateData<MAX> {
    fn default() -> PrivateData<MAX> {
        PrivateData([0; MAX])
    }
}

impl<const MAX: usize> AsRef<[u8]> for PrivateData<MAX> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Up to the last byte that is not zero, in hexadecimal.
impl<const MAX: usize> fmt::Debug for PrivateData<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        write!(f, "{MAX}:")?;
        self.0[..len].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of private data, the message has room for {}", self.len, self.max)
    }
}

impl core::error::Error for TooLong {}
