//! `ibv_cq_ex`: completions read field by field.
//!
//! ```text
//!   start_poll ── (read_* ── next_poll)* ──> end_poll
//! ```
//!
//! `start_poll` locks the queue's cursor for the calling thread, so that all fields it reads are of
//! one completion. If there is no completion it unlocks the cursor again.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::OnceLock;
use std::time::SystemTime;

use uroce::raw::{Cqe, clock_now};

use crate::abi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID,
    IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::fast;
use crate::ibv::cq::{self, Spec};
use crate::ibv::poll::{extras_of, opcode_of, sl_of, status_of};
use crate::objects::cq::Cq;
use crate::objects::{context, pd};
use crate::runtime;

/// The fields of a completion that a program may ask for.
const FIELDS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// The completion queue that a program's pointer refers to.
#[inline]
fn of<'a>(cq: *mut ibv_cq_ex) -> Result<&'a Cq, Errno> {
    // SAFETY: the program passes NULL or one of our queues, and does not destroy it now.
    unsafe { fast::<Cq>(cq) }.map(|entry| &**entry).ok_or(Errno::EINVAL)
}

/// Moves the cursor to the next completion. ENOENT if there is none.
#[inline]
fn advance(cq: *mut ibv_cq_ex, its: &Cq, cursor: &mut Option<Cqe>) -> Result<(), Errno> {
    let cqe = its.take()?.ok_or(Errno::ENOENT)?;
    *cursor = Some(cqe);
    // SAFETY: a slot is never freed, and programs read this field only between their calls.
    unsafe { (*cq).status = status_of(cqe.status) };
    // SAFETY: a slot is never freed, and programs read this field only between their calls.
    unsafe { (*cq).wr_id = cqe.wr_id };
    Ok(())
}

/// Moves the cursor to the first completion. If there is no completion and pollers drive the
/// device, runs a turn of the lcores and tries again.
#[inline]
fn begin(cq: *mut ibv_cq_ex, its: &Cq, cursor: &mut Option<Cqe>) -> Result<(), Errno> {
    match advance(cq, its, cursor) {
        Err(Errno::ENOENT) => {
            let turn = its.cq.drive().ok_or(Errno::ENOENT)?;
            advance(cq, its, cursor).inspect_err(|_| its.cq.rest(turn))
        }
        result => result,
    }?;
    if let Some(first) = cursor {
        its.cq.drive_after(first.opcode);
    }
    Ok(())
}

/// A field of the completion at this thread's cursor. Zero if there is no such completion.
#[inline]
fn read<R: Default>(cq: *mut ibv_cq_ex, field: impl FnOnce(&Cqe) -> R) -> R {
    let cursor = of(cq).ok().and_then(|its| its.cursor.held(|cursor| *cursor)).flatten();
    cursor.as_ref().map(field).unwrap_or_default()
}

/// Converts a result to an error number without setting `errno`, because an empty queue is not a
/// failure.
#[inline]
fn number(result: Result<Result<(), Errno>, Errno>) -> c_int {
    result.unwrap_or_else(Err).map_or_else(Errno::code, |()| 0)
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    number(entry::run(|| {
        let its = of(cq)?;
        // SAFETY: the program passes NULL or a valid structure.
        if unsafe { entry::read(attr) }?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        runtime::usable()?;
        its.cursor.acquire()?;
        let started = its.cursor.held(|cursor| begin(cq, its, cursor));
        let started = started.unwrap_or(Err(Errno::EINVAL));
        if started.is_err() {
            its.cursor.release(|cursor| *cursor = None);
        }
        Ok(started)
    }))
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    number(entry::run(|| {
        let its = of(cq)?;
        its.cursor.held(|cursor| advance(cq, its, cursor)).ok_or(Errno::EINVAL)
    }))
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let ended = entry::run(|| Ok(of(cq)?.cursor.release(|cursor| *cursor = None)));
    // Without a successful `start_poll` there is nothing to end.
    let _ = ended;
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |cqe| opcode_of(cqe.opcode))
}

/// `read_vendor_err`: always 0, because uroce has no vendor error codes.
unsafe extern "C" fn read_vendor_err(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |cqe| extras_of(cqe).0)
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |cqe| cqe.byte_len)
}

/// `read_imm_data`: immediate data in network byte order, or the invalidated key.
unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: any four bytes are a valid `imm_data`.
    read(cq, |cqe| unsafe { extras_of(cqe).1.imm_data })
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |cqe| cqe.qpn.value())
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |cqe| cqe.src_qpn.value())
}

/// `read_slid`: always 0, as Ethernet has no LIDs.
unsafe extern "C" fn read_slid(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    read(cq, sl_of)
}

/// `read_dlid_path_bits`: always 0, as Ethernet has no path bits.
unsafe extern "C" fn read_dlid_path_bits(_cq: *mut ibv_cq_ex) -> u8 {
    0
}

/// `read_completion_ts`: the completion's time in nanoseconds of the device's clock.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    read(cq, |cqe| cqe.at.as_nanos())
}

/// `read_completion_wallclock_ns`: the completion's time in nanoseconds since 1970.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    read(cq, |cqe| cqe.at.as_nanos().wrapping_add(wallclock_of_zero()))
}

/// The wall-clock time at which the device's clock was zero, in nanoseconds since 1970 modulo 2^64.
/// It is measured once per process, so reported times advance with the device's clock and never go
/// back, even if the system's clock is set.
fn wallclock_of_zero() -> u64 {
    /// Number of measurements. The shortest one counts, because the thread may lose its CPU between
    /// reading the two clocks.
    const TRIES: usize = 8;
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let tries = (0..TRIES).map(|_| {
            let before = clock_now();
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let took = clock_now().saturating_sub(before);
            // The nanoseconds fit into 64 bits until the year 2554.
            (took, (now.as_nanos() as u64).wrapping_sub(before + took / 2))
        });
        tries.min_by_key(|(took, _)| *took).map_or(0, |(_, zero)| zero)
    })
}

/// Fills in the functions for the fields that the program has asked for.
fn fill(cq: &mut ibv_cq_ex, fields: u32) {
    macro_rules! fields {
        ($($bit:ident => $slot:ident),*) => {
            $(if fields & $bit != 0 {
                cq.$slot = Some($slot);
            })*
        };
    }
    fields! {
        IBV_WC_EX_WITH_BYTE_LEN => read_byte_len,
        IBV_WC_EX_WITH_IMM => read_imm_data,
        IBV_WC_EX_WITH_QP_NUM => read_qp_num,
        IBV_WC_EX_WITH_SRC_QP => read_src_qp,
        IBV_WC_EX_WITH_SLID => read_slid,
        IBV_WC_EX_WITH_SL => read_sl,
        IBV_WC_EX_WITH_DLID_PATH_BITS => read_dlid_path_bits,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP => read_completion_ts,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK => read_completion_wallclock_ns
    }
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
}

/// Reads the attributes that `comp_mask` announces; the others are zero. Structures of older
/// headers end after the mask.
///
/// # Safety
///
/// `attr` is NULL or points to attributes that no other thread writes during the call.
unsafe fn read_attr(attr: *const ibv_cq_init_attr_ex) -> Result<ibv_cq_init_attr_ex, Errno> {
    const LEAST: usize = offset_of!(ibv_cq_init_attr_ex, flags);
    let len = |attr: &ibv_cq_init_attr_ex| match attr.comp_mask {
        0 => LEAST,
        IBV_CQ_INIT_ATTR_MASK_FLAGS => offset_of!(ibv_cq_init_attr_ex, parent_domain),
        _ => size_of::<ibv_cq_init_attr_ex>(),
    };
    // SAFETY: the caller passes NULL or attributes that are as long as their mask says; zeros are
    // valid for the rest. A mask with unknown bits belongs to a longer structure.
    unsafe { entry::read_announced(attr, LEAST, len) }
}

/// Checks what the program asks for, and returns the fields to provide.
fn check(attr: &ibv_cq_init_attr_ex) -> Result<u32, Errno> {
    let mask = attr.comp_mask;
    if mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
        return Err(Errno::EINVAL);
    }
    // A single-threaded queue has no advantage here, so the flag is accepted and ignored. Ignoring
    // overruns is not supported.
    let flags = if mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
    if flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 || attr.wc_flags & !u64::from(FIELDS) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    // All other bits are zero, so the value fits.
    Ok(attr.wc_flags as u32)
}

/// `verbs_context.create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { read_attr(attr) }?;
        let fields = check(&attr)?;
        if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
            let its = context::get(context)?;
            if pd::get(attr.parent_domain)?.context.public() != its.public() {
                return Err(Errno::EINVAL);
            }
        }
        let ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, .. } = attr;
        let spec = Spec { context, cqe, cq_context, channel, comp_vector };
        Ok(cq::create(&spec, |public| fill(public, fields))?.public())
    })
}
