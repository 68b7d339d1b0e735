//! Protection domain: a group of objects that may work together.
//!
//! The calls that create objects in a domain stand beside the objects' types.

use std::sync::Arc;

use crate::context::Context;
use crate::core::PdShared;

/// A protection domain. A queue pair can only access memory regions of its own domain. Clones are
/// handles of the same domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    shared: Arc<PdShared>,
}

impl ProtectionDomain {
    pub(crate) fn shared(&self) -> &Arc<PdShared> {
        &self.shared
    }
}

impl Context {
    /// Creates a protection domain. Only memory regions and queue pairs of one domain work
    /// together.
    pub fn allocate_pd(&self) -> ProtectionDomain {
        ProtectionDomain { shared: PdShared::new(&self.device) }
    }
}
