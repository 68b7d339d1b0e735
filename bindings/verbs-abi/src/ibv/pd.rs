//! `ibv_pd`: protection domains.

use std::ffi::c_int;

use uroce::raw::limits::MAX_PD;

use crate::abi::{ibv_context, ibv_pd};
use crate::entry;
use crate::handle::Object;
use crate::objects::context;
use crate::objects::pd::Pd;

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    entry::object(|| {
        let context = context::hold(context)?;
        let place = context.device.quotas.pds.take(MAX_PD)?;
        Ok(Pd::create(context, place))
    })
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    entry::code(|| Pd::registry().remove(pd).map(drop))
}
