//! State of a protection domain.

use std::sync::Arc;

use uroce_controlplane::Device;
use uroce_transport::Pd;

/// A protection domain, which its objects keep alive.
#[derive(Debug)]
pub(crate) struct PdShared {
    pub(crate) device: Arc<Device>,
    pub(crate) pd: Pd,
}

impl PdShared {
    pub(crate) fn new(device: &Arc<Device>) -> Arc<PdShared> {
        let pd = device.engine().alloc_pd();
        Arc::new(PdShared { device: Arc::clone(device), pd })
    }
}

impl Drop for PdShared {
    fn drop(&mut self) {
        self.device.engine().dealloc_pd(self.pd);
    }
}
