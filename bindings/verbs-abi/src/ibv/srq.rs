//! `ibv_srq`: shared receive queues.
//!
//! Not here: posting ([`super::post`]).

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;

use super::{event, query};
use crate::abi::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD,
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC, IBV_SRQT_XRC, ibv_context, ibv_pd, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::acks::Acks;
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object};
use crate::objects::context::{self, Context};
use crate::objects::cq::{self, Cq};
use crate::objects::pd;
use crate::objects::srq::Srq;
use crate::objects::xrcd::Xrcd;
use crate::{room, runtime};

/// The attributes of an XRC queue.
const XRC: u32 = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

/// Creates a shared receive queue, one of an XRC domain if there is `xrc`. `attr.srq_limit` is
/// ignored, as the manual page says.
fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &ibv_srq_attr,
    xrc: Option<(Held<Xrcd>, Held<Cq>)>,
) -> Result<Arc<Entry<Srq>>, Errno> {
    let its_pd = pd::hold(pd)?;
    let place = query::admit_srq(its_pd.context.device)?;
    let max_sge = attr.max_sge.max(1);
    let max_wr = room::rounded(attr.max_wr);
    room::check(room::of_recvs(max_wr, max_sge))?;
    let domain = its_pd.domain()?;
    let srq = match &xrc {
        None => domain.create_srq(max_wr, max_sge)?,
        Some((xrcd, cq)) => domain.create_xrc_srq(&xrcd.domain.engine, &cq.cq, max_wr, max_sge)?,
    };
    let context = Context::registry().get(its_pd.context.public())?;
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut public: ibv_srq = unsafe { std::mem::zeroed() };
    public.context = context::context_of(context.public());
    public.srq_context = srq_context;
    public.pd = pd;
    let value = Srq { srq, max_sge, events: Acks::default(), context, pd: its_pd, xrc, place };
    Ok(Srq::registry().insert(public, value))
}

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let init = unsafe { entry::read(attr) }?;
        let srq = create(pd, init.srq_context, &init.attr, None)?;
        // SAFETY: not NULL, as it was read above.
        unsafe { (*attr).attr = srq.sizes() };
        Ok(srq.public())
    })
}

/// Reads the attributes that `comp_mask` announces, as far as they are used; the others are zero.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `attr` is NULL or points to attributes that no other thread writes during the call.
pub(crate) unsafe fn read_ex(
    attr: *const ibv_srq_init_attr_ex,
) -> Result<ibv_srq_init_attr_ex, Errno> {
    const LEAST: usize = offset_of!(ibv_srq_init_attr_ex, srq_type);
    let len = |attr: &ibv_srq_init_attr_ex| match attr.comp_mask {
        0 => LEAST,
        IBV_SRQ_INIT_ATTR_TYPE => offset_of!(ibv_srq_init_attr_ex, pd),
        mask if mask & XRC == 0 => offset_of!(ibv_srq_init_attr_ex, xrcd),
        _ => offset_of!(ibv_srq_init_attr_ex, tm_cap),
    };
    // SAFETY: the caller passes NULL or attributes that are as long as their mask says; zeros are
    // valid for the rest.
    unsafe { entry::read_announced(attr, LEAST, len) }
}

/// The domain and the completion queue of an XRC shared receive queue.
fn xrc_of(
    init: &ibv_srq_init_attr_ex,
    context: &Entry<Context>,
) -> Result<(Held<Xrcd>, Held<Cq>), Errno> {
    if init.comp_mask & XRC != XRC {
        return Err(Errno::EINVAL);
    }
    let (xrcd, cq) = (Xrcd::registry().hold(init.xrcd)?, cq::hold(init.cq)?);
    let is_its = [xrcd.context.public(), cq.context.public()] == [context.public(); 2];
    if is_its { Ok((xrcd, cq)) } else { Err(Errno::EINVAL) }
}

/// `verbs_context.get_srq_num`. EINVAL if the queue is not of an XRC domain.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    entry::code(|| {
        let found = Srq::registry().get(srq)?.srq.xrc_number().ok_or(Errno::EINVAL)?;
        // SAFETY: the program passes NULL or room for a number.
        unsafe { entry::write(number, found.value()) }
    })
}

/// `verbs_context.create_srq_ex`. Basic and XRC queues are supported.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let init = unsafe { read_ex(attr) }?;
        let mask = init.comp_mask;
        let is_basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || init.srq_type == IBV_SRQT_BASIC;
        let is_xrc = !is_basic && init.srq_type == IBV_SRQT_XRC;
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | if is_xrc { XRC } else { 0 };
        if mask & !known != 0 || !(is_basic || is_xrc) {
            return Err(Errno::EOPNOTSUPP);
        }
        let its = context::get(context)?;
        let is_of_it = pd::get(init.pd)?.context.public() == its.public();
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 || !is_of_it {
            return Err(Errno::EINVAL);
        }
        let xrc = is_xrc.then(|| xrc_of(&init, &its)).transpose()?;
        let srq = create(init.pd, init.srq_context, &init.attr, xrc)?;
        // SAFETY: not NULL, as it was read above.
        unsafe { (*attr).attr = srq.sizes() };
        Ok(srq.public())
    })
}

/// `ibv_modify_srq`: arms the limit. A queue's size cannot be changed.
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    entry::code(|| {
        runtime::usable()?;
        let srq = Srq::registry().get(srq)?;
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(attr) }?;
        let mask = mask.cast_unsigned();
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::EINVAL);
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            srq.srq.arm_limit(attr.srq_limit)?;
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    entry::code(|| {
        let srq = Srq::registry().get(srq)?;
        // SAFETY: the program passes NULL or room for attributes.
        unsafe { entry::write(attr, srq.sizes()) }
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    entry::code(|| {
        let found = Srq::registry().get(srq)?;
        if found.is_busy() {
            return Err(Errno::EBUSY);
        }
        found.events.close()?;
        found.events.wait();
        // Fails if meanwhile a queue pair was made that uses the shared receive queue.
        if let Err(error) = Srq::registry().remove(srq) {
            found.events.reopen();
            return Err(error);
        }
        if runtime::is_orphaned() {
            // Taking its number back would wait for lcores.
            runtime::dispose(found);
            return Ok(());
        }
        event::forget::<Srq>(&found.context, srq);
        Ok(())
    })
}
