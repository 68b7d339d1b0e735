//! Private data: bytes for the other side's consumer, carried by nearly every CM message.

use core::fmt;

/// Private data of a message that has room for `MAX` bytes.
///
/// The wire carries no length: received private data always has `MAX` bytes, with zeros after the
/// bytes that the sender gave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const MAX: usize>(pub [u8; MAX]);

/// Error of [`PrivateData::new`]: more private data than the message has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Bytes given.
    pub len: usize,
    /// Bytes that the message has room for.
    pub max: usize,
}

impl<const MAX: usize> PrivateData<MAX> {
    /// Bytes that the message has room for.
    pub const MAX: usize = MAX;

    /// Private data of `bytes`, padded with zeros to `MAX` bytes.
    ///
    /// # Errors
    /// [`TooLong`] if `bytes` has more than `MAX` bytes.
    pub fn new(bytes: &[u8]) -> Result<PrivateData<MAX>, TooLong> {
        //= check J6 — each message takes exactly the amount of private data that it has room for.
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

/// Prints the bytes up to the last that is not zero, in hexadecimal.
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
