//! Answers about captures.

use serde::{Deserialize, Serialize};

/// A capture, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Number of the port.
    pub port: u32,
    /// RoCE device.
    pub device: String,
    /// Name of the file, as given by the client.
    pub file: String,
    /// The QP to which the captured frames belong; `None` if frames of all QPs are captured.
    pub qp: Option<u32>,
    /// Largest number of bytes kept of each frame.
    pub snaplen: u16,
    /// Frames in the file.
    pub frames: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Frames that are missing in the file, because the capture was too slow for them.
    pub missed: u64,
    /// The reason for which the capture has ended; `None` while it runs.
    pub end: Option<String>,
}
