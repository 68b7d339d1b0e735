//! `ibv_poll_cq` and `ibv_req_notify_cq`, which programs call most often. Taking a completion
//! allocates nothing and makes no system call. It locks only the list of completions that
//! `Cq::purge` has set aside.
//!
//! If pollers drive the device (`driver = "poller"`), a poll that finds no completion runs a turn
//! of the lcores and tries again. If there is still none, it may yield the CPU.

use std::ffi::c_int;

use uroce::raw::{Cqe, Grh};
use uroce::{Arm, WcOpcode, WcStatus};

use crate::abi::{
    IBV_WC_ATOMIC_WRITE, IBV_WC_BAD_RESP_ERR, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD,
    IBV_WC_GRH, IBV_WC_INV_EEC_STATE_ERR, IBV_WC_INV_EECN_ERR, IBV_WC_LOC_EEC_OP_ERR,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_RDD_VIOL_ERR,
    IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ABORT_ERR, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_RD_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR,
    IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV,
    IBV_WC_WR_FLUSH_ERR, ibv_cq, ibv_wc, ibv_wc__bindgen_ty_1, ibv_wc_opcode, ibv_wc_status,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::fast;
use crate::objects::cq::Cq;
use crate::runtime;

/// C's number of a status.
#[inline]
pub(crate) fn status_of(status: WcStatus) -> ibv_wc_status {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocLenErr => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocQpOpErr => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocProtErr => IBV_WC_LOC_PROT_ERR,
        WcStatus::WrFlushErr => IBV_WC_WR_FLUSH_ERR,
        WcStatus::MwBindErr => IBV_WC_MW_BIND_ERR,
        WcStatus::BadRespErr => IBV_WC_BAD_RESP_ERR,
        WcStatus::RemInvReqErr => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemInvRdReqErr => IBV_WC_REM_INV_RD_REQ_ERR,
        WcStatus::RemAccessErr => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemOpErr => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExcErr => IBV_WC_RETRY_EXC_ERR,
        WcStatus::RnrRetryExcErr => IBV_WC_RNR_RETRY_EXC_ERR,
        WcStatus::LocEecOpErr => IBV_WC_LOC_EEC_OP_ERR,
        WcStatus::LocRddViolErr => IBV_WC_LOC_RDD_VIOL_ERR,
        WcStatus::RemAbortErr => IBV_WC_REM_ABORT_ERR,
        WcStatus::InvEecnErr => IBV_WC_INV_EECN_ERR,
        WcStatus::InvEecStateErr => IBV_WC_INV_EEC_STATE_ERR,
    }
}

/// `IBV_WC_FLUSH` of newer headers.
const IBV_WC_FLUSH: ibv_wc_opcode = 8;

/// C's number of an opcode.
#[inline]
pub(crate) fn opcode_of(opcode: WcOpcode) -> ibv_wc_opcode {
    match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        WcOpcode::Flush => IBV_WC_FLUSH,
        WcOpcode::LocalInv => IBV_WC_LOCAL_INV,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// The flags and data that C's completion has beside the byte count: immediate data in network byte
/// order, or the invalidated key.
#[inline]
pub(crate) fn extras_of(cqe: &Cqe) -> (u32, ibv_wc__bindgen_ty_1) {
    let grh = if cqe.grh.is_some() { IBV_WC_GRH } else { 0 };
    match (cqe.imm, cqe.invalidated()) {
        (Some(imm), _) => (grh | IBV_WC_WITH_IMM, ibv_wc__bindgen_ty_1 { imm_data: imm.0.to_be() }),
        (None, Some(rkey)) => {
            (grh | IBV_WC_WITH_INV, ibv_wc__bindgen_ty_1 { invalidated_rkey: rkey.0 })
        }
        (None, None) => (grh, ibv_wc__bindgen_ty_1 { imm_data: 0 }),
    }
}

/// The value of C's service level field. As Ethernet has no service levels, the field holds the
/// kind of a datagram's network header, encoded as by ConnectX NICs. UCX reads the kind only here,
/// and takes 0 for RoCE v1.
#[inline]
pub(crate) fn sl_of(cqe: &Cqe) -> u8 {
    const IPV6: u8 = 1;
    const IPV4: u8 = 2;
    match cqe.grh {
        None => 0,
        Some(Grh::Ipv6) => IPV6,
        Some(Grh::Ipv4) => IPV4,
    }
}

/// Converts a completion to C's structure. LID, path bits and P_Key index are 0, as Ethernet has no
/// LIDs and there is one partition; `vendor_err` is 0, because uroce has no vendor error codes.
#[inline]
fn wc_of(cqe: &Cqe) -> ibv_wc {
    let (wc_flags, extra) = extras_of(cqe);
    ibv_wc {
        wr_id: cqe.wr_id,
        status: status_of(cqe.status),
        opcode: opcode_of(cqe.opcode),
        vendor_err: 0,
        byte_len: cqe.byte_len,
        __bindgen_anon_1: extra,
        qp_num: cqe.qpn.value(),
        src_qp: cqe.src_qpn.value(),
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: sl_of(cqe),
        dlid_path_bits: 0,
    }
}

/// `ibv_context.ops.poll_cq`: returns the number of completions, or a negative error number.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, places: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program passes NULL or one of our queues, and does not destroy it now.
    let cq = unsafe { fast::<Cq>(cq.cast()) };
    let polled = entry::run(|| {
        let cq = cq.ok_or(Errno::EINVAL)?;
        if wc.is_null() && places > 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program passes room for `places` entries.
        let mut taken = unsafe { take(cq, places, wc) }?;
        if taken.0 == 0
            && places > 0
            && let Some(turn) = cq.cq.drive()
        {
            // SAFETY: the program passes room for `places` entries.
            taken = unsafe { take(cq, places, wc) }?;
            if taken.0 == 0 {
                cq.cq.rest(turn);
            }
        }
        if let (_, Some(last)) = taken {
            cq.cq.drive_after(last);
        }
        Ok(taken.0)
    });
    polled.unwrap_or_else(|error| -error.code())
}

/// Takes up to `places` completions. Returns their number and the opcode of the last one.
///
/// # Safety
///
/// `wc` points to room for `places` entries.
#[inline]
unsafe fn take(
    cq: &Cq,
    places: c_int,
    wc: *mut ibv_wc,
) -> Result<(c_int, Option<WcOpcode>), Errno> {
    let (mut count, mut last) = (0, None);
    while count < places {
        let cqe = match cq.take() {
            Ok(Some(cqe)) => cqe,
            Ok(None) => break,
            Err(error) if count == 0 => return Err(error),
            Err(_) => break,
        };
        // `count` is not negative.
        let place = wc.wrapping_add(count as usize);
        // SAFETY: `count < places`, and the caller passes room for `places` entries.
        unsafe { place.write(wc_of(&cqe)) };
        (count, last) = (count + 1, Some(cqe.opcode));
    }
    Ok((count, last))
}

/// `ibv_context.ops.req_notify_cq`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes NULL or one of our queues, and does not destroy it now.
    let Some(cq) = (unsafe { fast::<Cq>(cq.cast()) }) else { return Errno::EINVAL.code() };
    entry::code(|| {
        runtime::usable()?;
        cq.cq.arm(if solicited_only != 0 { Arm::Solicited } else { Arm::Next });
        Ok(())
    })
}
