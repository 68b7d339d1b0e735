//! `ibv_qp`: creating and destroying queue pairs.
//!
//! Not here: states and attributes ([`super::modify`]); posting ([`super::post`],
//! [`super::qp_ex`]).

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uroce::raw::MAX_INLINE_DATA;
use uroce::{
    ControlError, QpCaps, QpChange, QpControl, QpInit, QpState, QpType, RecvQueue, RequestError,
};

use super::{event, qp_ex};
use crate::abi::{
    IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_INIT_ATTR_XRCD, IBV_QPS_UNKNOWN, IBV_QPT_DRIVER, IBV_QPT_RAW_PACKET, IBV_QPT_RC,
    IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_context, ibv_pd, ibv_qp,
    ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_type,
};
use crate::acks::Acks;
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object};
use crate::objects::batch::Batch;
use crate::objects::context::{self, Context};
use crate::objects::cq::{self, Cq};
use crate::objects::lock::Locked;
use crate::objects::pd::{self, Pd};
use crate::objects::qp::{Public, Qp, Sq, get};
use crate::objects::srq::{self, Srq};
use crate::objects::xrcd::{Share, Xrcd};
use crate::room;
use crate::runtime::{self, check_raw, say};

/// Least number of bytes of inline data that every queue pair gets per scatter/gather element. As
/// in Soft-RoCE, it is the size of an element.
const INLINE_PER_SGE: u32 = 16;
/// Least number of bytes of inline data that every queue pair gets.
const INLINE: u32 = 64;

/// Longest time to wait for datagrams to be sent when a queue pair is destroyed.
const LEAVE: Duration = Duration::from_millis(100);
/// Interval at which a queue pair that is being destroyed is checked for unsent datagrams.
const LOOK: Duration = Duration::from_micros(50);

pub(crate) fn type_of(number: ibv_qp_type) -> Result<QpType, Errno> {
    match number {
        IBV_QPT_RC => Ok(QpType::Rc),
        IBV_QPT_UC => Ok(QpType::Uc),
        IBV_QPT_UD => Ok(QpType::Ud),
        IBV_QPT_XRC_SEND => Ok(QpType::XrcSend),
        IBV_QPT_XRC_RECV => Ok(QpType::XrcRecv),
        IBV_QPT_RAW_PACKET => check_raw().map(|()| QpType::RawPacket),
        IBV_QPT_DRIVER => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// The queue sizes that a program gets, computed from those that it asks for. A send queue has room
/// for at least one request. Numbers of work requests are rounded up to powers of two, and there is
/// always some room for inline data. NICs do the same, and programs rely on getting more than they
/// ask for.
fn caps_of(cap: &ibv_qp_cap, has_srq: bool) -> QpCaps {
    let max_send_sge = cap.max_send_sge.max(1);
    let least_inline = max_send_sge.saturating_mul(INLINE_PER_SGE).clamp(INLINE, MAX_INLINE_DATA);
    QpCaps {
        max_send_wr: room::rounded(cap.max_send_wr.max(1)),
        max_recv_wr: if has_srq { 0 } else { room::rounded(cap.max_recv_wr) },
        max_send_sge,
        max_recv_sge: if has_srq { 1 } else { cap.max_recv_sge.max(1) },
        max_inline_data: cap.max_inline_data.max(least_inline),
    }
}

fn create(
    pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    send_ops: u64,
) -> Result<Arc<Entry<Qp>>, Errno> {
    let ibv_qp_init_attr { send_cq, recv_cq, srq, .. } = *init;
    let qp_type = type_of(init.qp_type)?;
    if qp_type == QpType::XrcRecv {
        return Err(Errno::EINVAL);
    }
    let is_initiator = qp_type == QpType::XrcSend;
    let its_pd = pd::hold(pd)?;
    let its_send_cq = cq::hold(send_cq)?;
    // An initiator receives nothing, and programs leave its other queues out or not.
    let (recv_cq, srq) = if is_initiator { (null_mut(), null_mut()) } else { (recv_cq, srq) };
    let its_recv_cq = (!is_initiator).then(|| cq::hold(recv_cq)).transpose()?;
    let its_srq = (!srq.is_null()).then(|| srq::hold(srq)).transpose()?;
    let receives = its_recv_cq.as_ref().unwrap_or(&its_send_cq);
    let context = context_of(&its_pd, [&its_send_cq, receives])?;
    let is_fit = |srq: &Held<Srq>| srq.context.public() == context.public() && srq.xrc.is_none();
    if !its_srq.as_ref().is_none_or(is_fit) {
        return Err(Errno::EINVAL);
    }
    if qp_ex::unknown(send_ops, qp_type) {
        return Err(Errno::EOPNOTSUPP);
    }
    let caps = caps_of(&init.cap, its_srq.is_some() || is_initiator);
    let queues = QpInit { recv_cq: &receives.cq, qp_type, caps, ..QpInit::new(&its_send_cq.cq) };
    let queues = match &its_srq {
        Some(srq) => queues.srq(&srq.srq),
        None => queues,
    };
    check_room(&caps)?;
    let parts = its_pd.domain()?.create_qp(&queues).inspect_err(|error| {
        if let RequestError::Control(reason @ ControlError::NoFrames) = error {
            say(&format!("ibv_create_qp: {reason}"));
        }
    })?;
    let owned = Owned {
        context,
        pd: Some(its_pd),
        send_cq: Some(its_send_cq),
        recv_cq: its_recv_cq,
        srq: its_srq,
        share: None,
    };
    let (control, queue, rq) = parts.into_parts();
    let queues = Queues {
        sq: Locked::new(Sq { queue, batch: Batch::new(&caps, send_ops) }),
        rq: Locked::new(rq),
        caps,
        send_ops,
    };
    let named = ibv_qp_init_attr { recv_cq, srq, ..*init };
    Ok(register(control, queues, pd, &named, owned))
}

/// Creates an XRC target, which has neither a protection domain nor queues.
fn create_target(
    init: &ibv_qp_init_attr_ex,
    context: *mut ibv_context,
) -> Result<Arc<Entry<Qp>>, Errno> {
    runtime::usable()?;
    let xrcd = Xrcd::registry().hold(init.xrcd)?;
    let its = context::get(context)?;
    if xrcd.context.public() != its.public() {
        return Err(Errno::EINVAL);
    }
    let (control, ..) = xrcd.domain.engine.create_target()?.into_parts();
    Ok(register_target(control, its, Share::first(xrcd), init.qp_context))
}

/// Registers one more handle of an XRC target. As in Linux, its structure does not know the state.
pub(crate) fn register_again(
    target: &Qp,
    context: Arc<Entry<Context>>,
    share: Share,
    qp_context: *mut c_void,
) -> Arc<Entry<Qp>> {
    let again = register_target(target.control.clone(), context, share, qp_context);
    again.note_number_of_state(IBV_QPS_UNKNOWN);
    again
}

fn register_target(
    control: QpControl,
    context: Arc<Entry<Context>>,
    share: Share,
    qp_context: *mut c_void,
) -> Arc<Entry<Qp>> {
    // SAFETY: a C structure of numbers and of pointers that may be NULL, for which zeros are valid.
    let init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    let init = ibv_qp_init_attr { qp_context, qp_type: IBV_QPT_XRC_RECV, ..init };
    let owned =
        Owned { context, pd: None, send_cq: None, recv_cq: None, srq: None, share: Some(share) };
    let queues = Queues { sq: Locked::empty(), rq: Locked::empty(), caps: NO_CAPS, send_ops: 0 };
    register(control, queues, null_mut(), &init, owned)
}

/// The queues of an XRC target.
const NO_CAPS: QpCaps =
    QpCaps { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };

/// The queues of a queue pair, with their sizes and the operations of its `ibv_qp_ex`.
struct Queues {
    sq: Locked<Sq>,
    rq: Locked<RecvQueue>,
    caps: QpCaps,
    send_ops: u64,
}

/// The objects that a queue pair is made from.
struct Owned {
    context: Arc<Entry<Context>>,
    pd: Option<Held<Pd>>,
    send_cq: Option<Held<Cq>>,
    recv_cq: Option<Held<Cq>>,
    srq: Option<Held<Srq>>,
    share: Option<Share>,
}

/// Registers a queue pair.
fn register(
    control: QpControl,
    queues: Queues,
    pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    owned: Owned,
) -> Arc<Entry<Qp>> {
    let Queues { sq, rq, caps, send_ops } = queues;
    let ibv_qp_init_attr { send_cq, recv_cq, srq, .. } = *init;
    let Owned {
        context,
        pd: its_pd,
        send_cq: its_send_cq,
        recv_cq: its_recv_cq,
        srq: its_srq,
        share,
    } = owned;
    let qp_type = control.qp_type();
    let qpn = control.qpn().value();
    let mut public = Public::new();
    let base = &mut public.ex.qp_base;
    base.context = context::context_of(context.public());
    base.qp_context = init.qp_context;
    (base.pd, base.send_cq, base.recv_cq, base.srq) = (pd, send_cq, recv_cq, srq);
    (base.handle, base.qp_num, base.qp_type) = (qpn, qpn, init.qp_type);
    qp_ex::fill(&mut public, send_ops, qp_type);
    let value = Qp {
        control,
        sq,
        rq,
        caps,
        signals_all: init.sq_sig_all != 0,
        send_ops,
        groups: Mutex::default(),
        events: Acks::default(),
        context,
        pd: its_pd,
        send_cq: its_send_cq,
        recv_cq: its_recv_cq,
        srq: its_srq,
        share,
    };
    Qp::registry().insert(public, value)
}

fn check_room(caps: &QpCaps) -> Result<(), Errno> {
    let sends = room::of_sends(caps.max_send_wr, caps.max_send_sge, caps.max_inline_data);
    let recvs = room::of_recvs(caps.max_recv_wr, caps.max_recv_sge);
    room::check(sends.saturating_add(recvs))
}

/// The context of a queue pair's domain. EINVAL if a completion queue belongs to another context.
fn context_of(pd: &Pd, cqs: [&Cq; 2]) -> Result<Arc<Entry<Context>>, Errno> {
    let context = pd.context.public();
    if cqs.iter().any(|cq| cq.context.public() != context) {
        return Err(Errno::EINVAL);
    }
    Context::registry().get(context)
}

/// Destroys a queue pair, or one handle of an XRC target. Afterwards none of its work requests is
/// in progress, and none of its completions is left in a completion queue. What an XRC target has
/// received is left, as with NICs.
fn destroy(qp: *const ibv_qp) -> Result<(), Errno> {
    let found = get(qp)?;
    if found.is_busy() || found.is_in_group() {
        return Err(Errno::EBUSY);
    }
    // If several threads destroy the queue pair, only one of them gets past this line.
    found.events.close()?;
    found.events.wait();
    if let Err(error) = Qp::registry().remove(qp.cast()) {
        found.events.reopen();
        return Err(error);
    }
    if runtime::is_orphaned() {
        runtime::dispose(found);
        return Ok(());
    }
    event::forget::<Qp>(&found.context, qp.cast());
    if found.share.as_ref().is_some_and(|share| !share.end()) {
        return Ok(());
    }
    let_go(&found);
    // This fails only if the lcore is lost, and then the queue pair is inactive too.
    let _ = found.control.modify(&QpChange::to(QpState::Reset), None);
    found.purge();
    Ok(())
}

/// On a service without acknowledgements, waits until posted requests are sent, but not longer than
/// [`LEAVE`]. Programs send datagrams without asking for completions and destroy the queue pair at
/// once; a NIC has sent them by then.
fn let_go(qp: &Qp) {
    if qp.control.qp_type().is_reliable() {
        return;
    }
    let end = Instant::now() + LEAVE;
    let is_under_way = || {
        let info = qp.control.query();
        info.is_ok_and(|info| info.attr.state == QpState::Rts && info.sends > 0)
    };
    while is_under_way() && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
}

pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let init = unsafe { entry::read(attr) }?;
        let qp = create(pd, &init, 0)?;
        // SAFETY: not NULL, as it was read above.
        unsafe { (*attr).cap = qp.cap() };
        Ok(qp.public().cast())
    })
}

/// Length in bytes of a program's attributes with this mask. Newer headers have a longer structure.
pub(crate) fn ex_len(comp_mask: u32) -> usize {
    let has = |field| comp_mask & field != 0;
    if has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
        size_of::<ibv_qp_init_attr_ex>()
    } else if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) {
        offset_of!(ibv_qp_init_attr_ex, max_tso_header)
    } else if has(IBV_QP_INIT_ATTR_XRCD) {
        offset_of!(ibv_qp_init_attr_ex, create_flags)
    } else if has(IBV_QP_INIT_ATTR_PD) {
        offset_of!(ibv_qp_init_attr_ex, xrcd)
    } else {
        offset_of!(ibv_qp_init_attr_ex, pd)
    }
}

/// Reads the attributes that `comp_mask` announces; the others are zero.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `attr` is NULL or points to attributes that no other thread writes during the call.
pub(crate) unsafe fn read_ex(
    attr: *const ibv_qp_init_attr_ex,
) -> Result<ibv_qp_init_attr_ex, Errno> {
    // SAFETY: the caller passes NULL or attributes that are as long as their mask says; zeros are
    // valid for the rest.
    unsafe { entry::read_announced(attr, ex_len(0), |init| ex_len(init.comp_mask)) }
}

/// `verbs_context.create_qp_ex`.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let init = unsafe { read_ex(attr) }?;
        let mask = init.comp_mask;
        let known =
            IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let is_target = init.qp_type == IBV_QPT_XRC_RECV;
        let known = if is_target { known | IBV_QP_INIT_ATTR_XRCD } else { known };
        if mask & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let has_flags = mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0;
        let has_ops = mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 && init.send_ops_flags != 0;
        if is_target {
            if mask & IBV_QP_INIT_ATTR_XRCD == 0 {
                return Err(Errno::EINVAL);
            }
            if has_flags || has_ops {
                return Err(Errno::EOPNOTSUPP);
            }
            let qp = create_target(&init, context)?;
            // SAFETY: not NULL, as it was read above.
            unsafe { (*attr).cap = qp.cap() };
            return Ok(qp.public().cast());
        }
        let is_its = |pd: &Entry<Pd>| pd.context.public() == context::verbs_of(context).cast_mut();
        if mask & IBV_QP_INIT_ATTR_PD == 0 || !is_its(&*pd::get(init.pd)?) {
            return Err(Errno::EINVAL);
        }
        if has_flags {
            return Err(Errno::EOPNOTSUPP);
        }
        // SAFETY: `init` is a local, and begins with the fields of `ibv_qp_init_attr`.
        let plain = unsafe { entry::read((&raw const init).cast::<ibv_qp_init_attr>()) }?;
        let qp = create(init.pd, &plain, if has_ops { init.send_ops_flags } else { 0 })?;
        // SAFETY: not NULL, as it was read above.
        unsafe { (*attr).cap = qp.cap() };
        Ok(qp.public().cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    entry::code(|| destroy(qp))
}

pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    entry::pointer(|| {
        let found = get(qp)?;
        if found.send_ops == 0 { Err(Errno::EOPNOTSUPP) } else { Ok(found.public().cast()) }
    })
}

/// `ibv_query_qp_data_in_order`: 0, as there is no guarantee about the order in which bytes are
/// written.
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    _opcode: u32,
    _flags: u32,
) -> c_int {
    entry::nothing(|| get(qp).map(|_| ()));
    0
}
