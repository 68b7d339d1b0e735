//! `ibv_qp_ex`: work requests that are built with several calls.
//!
//! ```text
//!   wr_start ── (wr_send … ── set_sge …)* ──> wr_complete, wr_abort
//! ```
//!
//! `wr_start` locks the send queue for the calling thread until `wr_complete` or `wr_abort`.
//! `wr_complete` posts all requests or none ([`crate::objects::batch`]).

use std::ffi::{c_int, c_void};

use uroce::raw::{Ah, Placement, Selectivity, SendOp, Sge};
use uroce::{Lkey, Qkey, QpType, Qpn, Rkey, Srqn, Va};

use crate::abi::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_INV, ibv_ah,
    ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::fast;
use crate::ibv::mw;
use crate::ibv::post::{self, imm_of};
use crate::objects::ah;
use crate::objects::batch::Batch;
use crate::objects::qp::{Public, Qp};
use crate::runtime;

/// Supported operations of UD.
const DATAGRAM: u32 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
/// Supported operations of UC.
const CONNECTED: u32 = DATAGRAM
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW;
/// Supported operations of an XRC initiator.
const EXTENDED: u32 = CONNECTED
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV;
/// Supported operations of RC.
const RELIABLE: u32 = EXTENDED | IBV_QP_EX_WITH_ATOMIC_WRITE | WITH_FLUSH;
/// `IBV_QP_EX_WITH_FLUSH` of newer headers.
const WITH_FLUSH: u32 = 1 << 11;

/// Whether `ops` has an operation that queue pairs of this type do not support.
pub(crate) fn unknown(ops: u64, qp_type: QpType) -> bool {
    let known = match qp_type {
        QpType::Rc => RELIABLE,
        QpType::XrcSend => EXTENDED,
        // libibverbs has no RD.
        QpType::XrcRecv | QpType::Rd | QpType::Eec => 0,
        QpType::Uc => CONNECTED,
        QpType::Ud | QpType::Gsi => DATAGRAM,
        QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => IBV_QP_EX_WITH_SEND,
    };
    ops & !u64::from(known) != 0
}

/// The queue pair that a program's pointer refers to.
#[inline]
fn of<'a>(qp: *mut ibv_qp_ex) -> Option<&'a Qp> {
    // SAFETY: the program passes NULL or one of our queue pairs, and does not destroy it now.
    unsafe { fast::<Qp>(qp.cast()) }.map(|entry| &**entry)
}

/// Calls `work` with the batch that this thread has begun. Sets `errno` to EINVAL if it has begun
/// none.
#[inline]
fn build(qp: *mut ibv_qp_ex, work: impl FnOnce(&mut Batch, &Qp)) {
    entry::nothing(|| {
        let qp = of(qp).ok_or(Errno::EINVAL)?;
        qp.sq.held(|sq| work(&mut sq.batch, qp)).ok_or(Errno::EINVAL)
    });
}

/// Adds a work request with the number and flags that the program has set in the public structure.
#[inline]
fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    begin_with(qp, || Ok(op));
}

/// Adds a work request with the operation that `op` computes. An error of `op` fails the batch.
#[inline]
fn begin_with(qp: *mut ibv_qp_ex, op: impl FnOnce() -> Result<SendOp, Errno>) {
    build(qp, |batch, its| {
        // SAFETY: the slot is live and never freed; programs write this field only between their
        // calls.
        let wr_id = unsafe { (*qp).wr_id };
        // SAFETY: the slot is live and never freed; programs write this field only between their
        // calls.
        let flags = unsafe { (*qp).wr_flags };
        match op().and_then(|op| post::request_of(its, wr_id, op, flags)) {
            Ok(wr) => batch.begin(wr),
            Err(error) => batch.fail(error),
        }
    });
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    entry::nothing(|| {
        runtime::usable()?;
        let qp = of(qp).ok_or(Errno::EINVAL)?;
        // A second `wr_start` discards the requests of the first.
        let _ = qp.sq.acquire();
        qp.sq.held(|sq| sq.batch.clear()).ok_or(Errno::EINVAL)
    });
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    entry::code(|| {
        runtime::usable()?;
        let qp = of(qp).ok_or(Errno::EINVAL)?;
        let posted = qp.sq.release(|sq| {
            let posted = sq.post(qp.control.qp_type());
            sq.batch.clear();
            posted
        });
        posted.unwrap_or(Err(Errno::EINVAL))
    })
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    entry::nothing(|| {
        let qp = of(qp).ok_or(Errno::EINVAL)?;
        qp.sq.release(|sq| sq.batch.clear()).ok_or(Errno::EINVAL)
    });
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    begin(qp, SendOp::Send { imm: None });
}

/// `wr_send` of a raw packet queue pair.
unsafe extern "C" fn wr_send_frame(qp: *mut ibv_qp_ex) {
    begin(qp, post::FRAME);
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    begin(qp, SendOp::Send { imm: Some(imm_of(imm)) });
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    begin(qp, SendOp::SendWithInvalidate { rkey: Rkey(rkey) });
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, va: u64) {
    begin(qp, SendOp::Write { va: Va(va), rkey: Rkey(rkey), imm: None });
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, va: u64, imm: u32) {
    begin(qp, SendOp::Write { va: Va(va), rkey: Rkey(rkey), imm: Some(imm_of(imm)) });
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, va: u64) {
    begin(qp, SendOp::Read { va: Va(va), rkey: Rkey(rkey) });
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    compare: u64,
    swap: u64,
) {
    begin(qp, SendOp::CompareSwap { va: Va(va), rkey: Rkey(rkey), compare, swap });
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, va: u64, add: u64) {
    begin(qp, SendOp::FetchAdd { va: Va(va), rkey: Rkey(rkey), add });
}

/// Adds an ATOMIC WRITE. Its eight bytes are copied at once, like inline data.
unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, va: u64, word: *const c_void) {
    begin(qp, SendOp::AtomicWrite { va: Va(va), rkey: Rkey(rkey) });
    build(qp, |batch, _| {
        if word.is_null() {
            return batch.fail(Errno::EINVAL);
        }
        // SAFETY: the program passes eight readable bytes.
        unsafe { batch.set_inline(std::iter::once((word.cast(), 8))) }
    });
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    begin_with(qp, || {
        // 0 is `IBV_FLUSH_RANGE`, 1 is `IBV_FLUSH_MR`. `placement` has the bits of the wire.
        let (selectivity, len) = match level {
            0 => (Selectivity::Range, u32::try_from(len).map_err(|_| Errno::EINVAL)?),
            1 => (Selectivity::Region, 0),
            _ => return Err(Errno::EINVAL),
        };
        let (va, rkey, placement) = (Va(va), Rkey(rkey), Placement(placement));
        Ok(SendOp::Flush { va, rkey, len, placement, selectivity })
    });
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    begin(qp, SendOp::LocalInvalidate { rkey: Rkey(rkey) });
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    begin_with(qp, || {
        // SAFETY: the program passes NULL or a valid structure.
        let info = unsafe { entry::read(info) }?;
        mw::binding(window, rkey, &info).map(SendOp::from)
    });
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, va: u64, len: u32) {
    let sge = Sge { va: Va(va), len, lkey: Lkey(lkey) };
    build(qp, |batch, _| batch.set_sges(std::iter::once(sge)));
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    build(qp, |batch, _| {
        if list.is_null() && count > 0 || count > batch.caps.max_send_sge as usize {
            return batch.fail(Errno::EINVAL);
        }
        batch.set_sges((0..count).map(|at| {
            // SAFETY: the program's list has `count` elements, and `at < count`.
            let sge = unsafe { list.wrapping_add(at).read() };
            Sge { va: Va(sge.addr), len: sge.length, lkey: Lkey(sge.lkey) }
        }));
    });
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, bytes: *mut c_void, len: usize) {
    build(qp, |batch, _| {
        if bytes.is_null() && len > 0 {
            return batch.fail(Errno::EINVAL);
        }
        // SAFETY: the program passes `len` readable bytes.
        unsafe { batch.set_inline(std::iter::once((bytes.cast_const().cast(), len))) }
    });
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    build(qp, |batch, _| {
        if list.is_null() && count > 0 {
            return batch.fail(Errno::EINVAL);
        }
        let pieces = (0..count).map(|at| {
            // SAFETY: the program's list has `count` elements, and `at < count`.
            let piece = unsafe { list.wrapping_add(at).read() };
            (piece.addr.cast_const().cast(), piece.length)
        });
        // SAFETY: the program's list names readable memory.
        unsafe { batch.set_inline(pieces) }
    });
}

fn way_of(handle: *const ibv_ah) -> Result<Ah, Errno> {
    // SAFETY: the program passes NULL or one of our handles, and does not destroy it now.
    unsafe { ah::way_of(handle) }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    build(qp, |batch, _| match way_of(ah) {
        Err(error) => batch.fail(error),
        Ok(ah) => {
            let Some(op) = batch.op() else { return };
            let imm = match *op {
                SendOp::Send { imm } | SendOp::SendTo { imm, .. } => imm,
                _ => return batch.fail(Errno::EINVAL),
            };
            let (dest_qpn, qkey) = (Qpn::new(qpn), Qkey(qkey));
            *op = SendOp::SendTo { ah, dest_qpn, qkey, imm };
        }
    });
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    build(qp, |batch, _| batch.set_srqn(Srqn::new(number)));
}

/// Fills in the functions of the operations that the program has asked for.
pub(crate) fn fill(public: &mut Public, ops: u64, qp_type: QpType) {
    if ops == 0 {
        return;
    }
    let has = |bit: u32| ops & u64::from(bit) != 0;
    if has(WITH_FLUSH) {
        public.set_flush(wr_flush);
    }
    let qp = &mut public.ex;
    macro_rules! operations {
        ($($bit:ident => $slot:ident),*) => {
            $(if has($bit) {
                qp.$slot = Some($slot);
            })*
        };
    }
    operations! {
        IBV_QP_EX_WITH_SEND => wr_send,
        IBV_QP_EX_WITH_SEND_WITH_IMM => wr_send_imm,
        IBV_QP_EX_WITH_SEND_WITH_INV => wr_send_inv,
        IBV_QP_EX_WITH_RDMA_WRITE => wr_rdma_write,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM => wr_rdma_write_imm,
        IBV_QP_EX_WITH_RDMA_READ => wr_rdma_read,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP => wr_atomic_cmp_swp,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD => wr_atomic_fetch_add,
        IBV_QP_EX_WITH_ATOMIC_WRITE => wr_atomic_write,
        IBV_QP_EX_WITH_LOCAL_INV => wr_local_inv,
        IBV_QP_EX_WITH_BIND_MW => wr_bind_mw
    }
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    if qp_type == QpType::RawPacket && qp.wr_send.is_some() {
        qp.wr_send = Some(wr_send_frame);
    }
    if qp_type == QpType::Ud {
        qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    }
    if qp_type == QpType::XrcSend {
        qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    }
}
