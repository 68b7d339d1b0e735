//! Receiver of the events of listeners and connections.

use std::fmt::Debug;

use super::{CmEvent, CmId};

/// Receiver of the events of listeners and connections: a [`CmChannel`](super::CmChannel) or an
/// application's own type.
///
/// The control-plane thread calls it. No function may block or call the device.
pub trait CmSink: Debug + Send + Sync {
    /// Takes over an event.
    fn give(&self, event: CmEvent);

    /// Drops the undelivered events of an id. Returns whether there were any.
    fn forget(&self, id: CmId) -> bool;

    /// Removes and returns the undelivered events of an id, to move them to another sink.
    fn take_of(&self, id: CmId) -> Vec<CmEvent>;
}
