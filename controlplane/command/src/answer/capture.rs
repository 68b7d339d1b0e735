//! Answers about captures.

use serde::{Deserialize, Serialize};

/// A capture, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Number of the port.
    pub port: u32,
    /// RoCE device.
    pub device: String,
    /// Name of the file, as the client has named it.
    pub file: String,
    /// The QP of which frames are taken, if not all are.
    pub qp: Option<u32>,
    /// Most bytes of each frame.
    pub snaplen: u16,
    /// Frames in the file.
    pub frames: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Frames that are not in the file, since the capture could not follow.
    pub missed: u64,
    /// Why it has ended; `None` while it runs.
    pub end: Option<String>,
}
