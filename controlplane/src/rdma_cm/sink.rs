//! Receiver of the events of listeners and connections.

use std::fmt::Debug;

use super::{CmId, ConnEvent};

/// Receiver of the events of listeners and connections: a [`CmChannel`](super::CmChannel) or an
/// application's own type.
///
/// The control-plane thread calls it. No function may block or call the device.
pub trait CmSink: Debug + Send + Sync {
    /// Takes over an event of an id. For [`ConnEvent::ConnectRequest`], `id` is that of the new
    /// connection.
    fn give(&self, id: CmId, event: ConnEvent);

    /// Drops the undelivered events of an id. Returns whether there were any.
    fn forget(&self, id: CmId) -> bool;

    /// Removes and returns the undelivered events of an id, to move them to another sink.
    fn take_of(&self, id: CmId) -> Vec<ConnEvent>;
}
