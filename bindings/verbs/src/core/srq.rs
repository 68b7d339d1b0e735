//! State of a shared receive queue.

use std::sync::Arc;

use uroce_engine::{SrqError, XrcName};

use super::{CqShared, PdShared, XrcdShared};

/// A shared receive queue, which its handles and the QPs created with it keep alive.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) srq: Arc<uroce_engine::SharedReceiveQueue>,
    /// Its number, if it is of an XRC domain.
    pub(crate) name: Option<XrcName>,
    _xrc: Option<(Arc<XrcdShared>, Arc<CqShared>)>,
    _pd: Arc<PdShared>,
}

impl SrqShared {
    pub(crate) fn new(
        pd: &Arc<PdShared>,
        capacity: u32,
        max_sge: u32,
    ) -> Result<Arc<SrqShared>, SrqError> {
        let srq = pd.device.engine().create_srq(pd.pd, capacity, max_sge)?;
        Ok(Arc::new(SrqShared { srq, name: None, _xrc: None, _pd: Arc::clone(pd) }))
    }

    /// Makes a queue of an XRC domain, with a number.
    pub(crate) fn named(
        pd: &Arc<PdShared>,
        xrcd: &Arc<XrcdShared>,
        cq: &Arc<CqShared>,
        capacity: u32,
        max_sge: u32,
    ) -> Result<Arc<SrqShared>, SrqError> {
        if !(Arc::ptr_eq(&pd.device, &xrcd.pd.device) && cq.is_of(&pd.device)) {
            return Err(SrqError::OtherDevice);
        }
        let engine = pd.device.engine();
        let srq = engine.create_srq(pd.pd, capacity, max_sge)?;
        let name = Some(engine.name_srq(&xrcd.domain, &srq, &cq.cq)?);
        let _xrc = Some((Arc::clone(xrcd), Arc::clone(cq)));
        Ok(Arc::new(SrqShared { srq, name, _xrc, _pd: Arc::clone(pd) }))
    }
}

/// Identifies a shared receive queue of a device in an [`AsyncEvent`](crate::AsyncEvent).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqId(pub(crate) u32);
