//! Frames: how requests and replies travel over a stream.
//!
//! A frame is a length, four bytes in network order, and a JSON text of that length. A client sends
//! requests. Each is answered by one or more replies; the last one is marked.
//!
//! Invariants
//! - A length above the limit is an error. Nothing of that size is allocated before.
//! - A text that is not understood is an error of its frame only. The next frame can be read.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest text of a request in bytes.
pub const REQUEST_MAX: usize = 4096;
/// Longest text of a reply in bytes.
pub const REPLY_MAX: usize = 1 << 20;

/// Reason for which a frame cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The text is longer than allowed. When reading, the stream cannot be used any more.
    #[error("a frame of {len} bytes, where {max} are allowed")]
    TooLong {
        /// Length of the text.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The text is not JSON, or not a value of the expected type.
    #[error("not understood: {0}")]
    Text(#[from] serde_json::Error),
}

/// Encodes a value as a frame.
///
/// # Errors
///
/// [`FrameError::TooLong`] if the value's text is longer than `max` bytes.
pub fn encode<T: Serialize>(value: &T, max: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, value)?;
    let len = bytes.len() - 4;
    let short = u32::try_from(len).ok().filter(|_| len <= max);
    let header = short.ok_or(FrameError::TooLong { len, max })?;
    bytes[..4].copy_from_slice(&header.to_be_bytes());
    Ok(bytes)
}

/// Received bytes, from which frames are decoded.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    max: usize,
}

impl Decoder {
    /// Creates a decoder of frames with texts of at most `max` bytes.
    pub fn new(max: usize) -> Decoder {
        Decoder { bytes: Vec::new(), max }
    }

    /// Appends received bytes. Call it when [`take`](Decoder::take) has returned `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next value; `None` if its frame is not complete yet.
    ///
    /// # Errors
    ///
    /// [`FrameError`]. After [`FrameError::Text`] the next value can still be read.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((header, rest)) = self.bytes.split_first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*header) as usize;
        if len > self.max {
            return Err(FrameError::TooLong { len, max: self.max });
        }
        let Some(text) = rest.get(..len) else { return Ok(None) };
        let value = serde_json::from_slice(text);
        self.bytes.drain(..4 + len);
        Ok(Some(value?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Select, Show};

    const REQUEST: Request = Request::Show(Show::Qp { qp: Select::One(7) });

    #[test]
    fn a_frame_is_read_whatever_pieces_it_comes_in() {
        let frame = encode(&REQUEST, REQUEST_MAX).unwrap();
        let stream = [frame.as_slice(), &frame, &frame].concat();
        for size in 1..stream.len() {
            let mut decoder = Decoder::new(REQUEST_MAX);
            let mut read = 0;
            for piece in stream.chunks(size) {
                decoder.push(piece);
                while let Some(request) = decoder.take::<Request>().unwrap() {
                    assert_eq!(request, REQUEST);
                    read += 1;
                }
            }
            assert_eq!(read, 3);
        }
    }

    #[test]
    fn rubbish_in_a_frame_costs_that_frame_and_a_long_one_the_stream() {
        let mut decoder = Decoder::new(REQUEST_MAX);
        decoder.push(&[0, 0, 0, 3, b'n', b'o', b'!']);
        decoder.push(&encode(&REQUEST, REQUEST_MAX).unwrap());
        assert!(matches!(decoder.take::<Request>(), Err(FrameError::Text(_))));
        assert_eq!(decoder.take::<Request>().unwrap(), Some(REQUEST));
        decoder.push(&u32::MAX.to_be_bytes());
        let error = decoder.take::<Request>().unwrap_err();
        assert_eq!(error.to_string(), "a frame of 4294967295 bytes, where 4096 are allowed");
    }

    #[test]
    fn a_long_value_is_not_written() {
        let error = encode(&"x".repeat(100), 50).unwrap_err();
        assert!(matches!(error, FrameError::TooLong { len: 102, max: 50 }));
    }

    #[test]
    fn random_bytes_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(27);
        for _ in 0..20_000 {
            let mut decoder = Decoder::new(64);
            let bytes: Vec<u8> = (0..random.usize(..100)).map(|_| random.u8(..)).collect();
            decoder.push(&[&[0, 0, 0, random.u8(..80)], bytes.as_slice()].concat());
            while let Ok(Some(_)) = decoder.take::<Request>() {}
        }
    }
}
