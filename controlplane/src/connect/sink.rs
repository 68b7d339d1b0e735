//! Where events of connections go.

use std::fmt::Debug;

use super::{CmEvent, CmId};

/// Where the events of listeners and connections go: a [`CmChannel`](super::CmChannel), or what an
/// application has instead.
///
/// The control-plane thread calls it, so nothing in it may wait, or ask the device for anything.
pub trait CmSink: Debug + Send + Sync {
    /// Something happened.
    fn give(&self, event: CmEvent);

    /// Takes an id's events away that nobody has seen; says whether there were any.
    fn forget(&self, id: CmId) -> bool;

    /// The same, for another sink.
    fn take_of(&self, id: CmId) -> Vec<CmEvent>;
}
