//! `ibv_post_send`, `ibv_post_recv` and `ibv_post_srq_recv`: posting lists of work requests.
//!
//! The first request that is refused ends the list: the requests before it are posted, and `bad_wr`
//! points to it. Nothing here allocates, or makes a system call except to wake a sleeping lcore.
//! Each queue has a lock, which is contended only if several threads post to it.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;

use uroce::raw::{MAX_INLINE_DATA, MAX_SGE, RecvWr, SendBatch, SendData, SendOp, SendWr, Sge};
use uroce::{ImmDt, Lkey, PostError, Qkey, QpType, Qpn, Rkey, Srqn, StaticRate, Va};

use crate::abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_IP_CSUM, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_mw, ibv_mw_bind, ibv_qp, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::fast;
use crate::ibv::mw;
use crate::objects::ah;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::runtime;

const FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// Room for a scatter/gather list in the engine's type.
struct SgeList {
    sges: [MaybeUninit<Sge>; MAX_SGE as usize],
}

impl SgeList {
    #[inline]
    fn new() -> SgeList {
        SgeList { sges: [const { MaybeUninit::uninit() }; MAX_SGE as usize] }
    }

    /// Converts a list of the program.
    ///
    /// # Errors
    ///
    /// EINVAL if the list is NULL with `count > 0`, or longer than any queue allows.
    ///
    /// # Safety
    ///
    /// `list` is NULL or points to `count` elements.
    #[inline]
    unsafe fn take(&mut self, list: *const ibv_sge, count: usize) -> Result<&[Sge], Errno> {
        let places = self.sges.get_mut(..count).ok_or(Errno::EINVAL)?;
        if list.is_null() && count > 0 {
            return Err(Errno::EINVAL);
        }
        for (at, place) in places.iter_mut().enumerate() {
            // SAFETY: `list` is not NULL and has `count` elements, and `at < count`.
            let sge = unsafe { list.wrapping_add(at).read() };
            place.write(Sge { va: Va(sge.addr), len: sge.length, lkey: Lkey(sge.lkey) });
        }
        // SAFETY: the loop has written all `count` elements.
        Ok(unsafe { std::slice::from_raw_parts(places.as_ptr().cast(), count) })
    }
}

/// A buffer for inline data.
struct Inline {
    bytes: [MaybeUninit<u8>; MAX_INLINE_DATA as usize],
    len: usize,
}

impl Inline {
    #[inline]
    fn new() -> Inline {
        Inline { bytes: [const { MaybeUninit::uninit() }; MAX_INLINE_DATA as usize], len: 0 }
    }

    /// Copies the memory that a list of the program names.
    ///
    /// # Safety
    ///
    /// `list` is NULL or points to `count` elements, each of which names readable memory.
    #[inline]
    unsafe fn take(&mut self, list: *const ibv_sge, count: usize) -> Result<&[u8], Errno> {
        if list.is_null() && count > 0 {
            return Err(Errno::EINVAL);
        }
        for at in 0..count {
            // SAFETY: `list` is not NULL and has `count` elements, and `at < count`.
            let sge = unsafe { list.wrapping_add(at).read() };
            let len = sge.length as usize;
            let end = self.len + len;
            let places = self.bytes.get_mut(self.len..end).ok_or(Errno::EINVAL)?;
            let bytes = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            // SAFETY: the element names `len` readable bytes, which do not overlap this buffer;
            // `places` has `len` bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes, places.as_mut_ptr().cast(), len) };
            self.len = end;
        }
        // SAFETY: the loop has written the first `self.len` bytes.
        Ok(unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) })
    }
}

/// Converts a count from C's `int`.
#[inline]
fn count_of(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::EINVAL)
}

/// Converts immediate data from network byte order.
#[inline]
pub(crate) fn imm_of(word: u32) -> ImmDt {
    ImmDt(u32::from_be(word))
}

/// The operation of a work request for a connected queue pair.
///
/// # Safety
///
/// The active members of the unions are those of the opcode.
#[inline(always)]
unsafe fn op_of(wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    // SAFETY: both members of the union are four bytes, for which any value is valid.
    let word = unsafe { wr.__bindgen_anon_1.imm_data };
    let (imm, key) = (imm_of(word), Rkey(word));
    // SAFETY: the member has only numbers, for which any value is valid; it is used if the opcode
    // has it.
    let rdma = unsafe { wr.wr.rdma };
    // SAFETY: the member has only numbers, for which any value is valid; it is used if the opcode
    // has it.
    let atomic = unsafe { wr.wr.atomic };
    let (va, rkey) = (Va(rdma.remote_addr), Rkey(rdma.rkey));
    let at = (Va(atomic.remote_addr), Rkey(atomic.rkey));
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send { imm: None },
        IBV_WR_SEND_WITH_IMM => SendOp::Send { imm: Some(imm) },
        IBV_WR_SEND_WITH_INV => SendOp::SendWithInvalidate { rkey: key },
        IBV_WR_RDMA_WRITE => SendOp::Write { va, rkey, imm: None },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write { va, rkey, imm: Some(imm) },
        IBV_WR_RDMA_READ => SendOp::Read { va, rkey },
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (compare, swap) = (atomic.compare_add, atomic.swap);
            SendOp::CompareSwap { va: at.0, rkey: at.1, compare, swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            SendOp::FetchAdd { va: at.0, rkey: at.1, add: atomic.compare_add }
        }
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate { rkey: key },
        IBV_WR_BIND_MW => {
            // SAFETY: `bind_mw` is the active member for this opcode.
            let bind = unsafe { &wr.__bindgen_anon_2.bind_mw };
            mw::binding(bind.mw, bind.rkey, &bind.bind_info)?.into()
        }
        _ => return Err(Errno::EINVAL),
    })
}

/// The operation of a work request for a UD queue pair.
///
/// # Safety
///
/// The active members of the unions are those of the opcode.
#[inline]
unsafe fn datagram_of(wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    // SAFETY: the members of the union are four bytes, for which any value is valid.
    let imm = unsafe { wr.__bindgen_anon_1.imm_data };
    let imm = match wr.opcode {
        IBV_WR_SEND => None,
        IBV_WR_SEND_WITH_IMM => Some(imm_of(imm)),
        _ => return Err(Errno::EINVAL),
    };
    // SAFETY: `ud` is the active member for a send on a UD queue pair.
    let ud = unsafe { wr.wr.ud };
    Ok(SendOp::SendTo {
        ah: {
            // SAFETY: the program passes NULL or one of our handles, and does not destroy it now.
            unsafe { ah::way_of(ud.ah) }?
        },
        dest_qpn: Qpn::new(ud.remote_qpn),
        qkey: Qkey(ud.remote_qkey),
        imm,
    })
}

/// The operation of a work request for an XRC initiator, and the shared receive queue that it
/// names.
///
/// # Safety
///
/// The active members of the unions are those of the opcode and of XRC.
#[cold]
unsafe fn named_of(wr: &ibv_send_wr) -> Result<(SendOp, Srqn), Errno> {
    // SAFETY: four bytes, for which any value is valid.
    let number = unsafe { wr.qp_type.xrc.remote_srqn };
    // SAFETY: the caller passes members as the opcode requires.
    Ok((unsafe { op_of(wr) }?, Srqn::new(number)))
}

/// A frame that is sent as it is.
pub(crate) const FRAME: SendOp = SendOp::Frame { rate: StaticRate::MAX, checksums: false };

/// The operation of a work request for a raw packet queue pair.
#[cold]
fn frame_of(wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    if wr.opcode == IBV_WR_SEND { Ok(FRAME) } else { Err(Errno::EINVAL) }
}

/// Converts a work request with flags that only frames can have: the checksums are to be filled in.
#[cold]
fn frame_request_of(qp: &Qp, wr_id: u64, op: SendOp, flags: c_uint) -> Result<SendWr, Errno> {
    match op {
        SendOp::Frame { rate, .. } if flags & !(FLAGS | IBV_SEND_IP_CSUM) == 0 => {
            let op = SendOp::Frame { rate, checksums: true };
            request_of(qp, wr_id, op, flags & FLAGS)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Converts a work request's number, operation and flags.
#[inline]
pub(crate) fn request_of(qp: &Qp, wr_id: u64, op: SendOp, flags: c_uint) -> Result<SendWr, Errno> {
    if flags & !FLAGS != 0 {
        return frame_request_of(qp, wr_id, op, flags);
    }
    Ok(SendWr {
        wr_id,
        op,
        signaled: qp.signals_all || flags & IBV_SEND_SIGNALED != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
        fence: flags & IBV_SEND_FENCE != 0,
        srqn: Srqn::default(),
    })
}

/// Posts one work request.
///
/// # Safety
///
/// `wr` is a valid work request: its unions and lists are as its opcode requires.
#[inline]
unsafe fn push(qp: &Qp, batch: &mut SendBatch<'_>, wr: &ibv_send_wr) -> Result<(), Errno> {
    let (op, srqn) = match qp.control.qp_type() {
        // SAFETY: the caller passes a valid work request.
        QpType::Ud | QpType::Gsi => (unsafe { datagram_of(wr) }?, Srqn::default()),
        // SAFETY: the caller passes a valid work request.
        QpType::Rc | QpType::Uc => (unsafe { op_of(wr) }?, Srqn::default()),
        // SAFETY: the caller passes a valid work request.
        QpType::XrcSend | QpType::XrcRecv => unsafe { named_of(wr) }?,
        // libibverbs has no RD.
        QpType::Rd | QpType::Eec => return Err(Errno::EINVAL),
        QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => {
            (frame_of(wr)?, Srqn::default())
        }
    };
    let request = SendWr { srqn, ..request_of(qp, wr.wr_id, op, wr.send_flags)? };
    let count = if op.is_local() { 0 } else { count_of(wr.num_sge)? };
    if wr.send_flags & IBV_SEND_INLINE != 0 && op.takes_inline() {
        let mut inline = Inline::new();
        // SAFETY: the caller passes a valid work request with a list that names readable memory.
        let bytes = unsafe { inline.take(wr.sg_list, count) }?;
        return batch.push(&request, SendData::Inline(bytes)).map_err(Errno::from);
    }
    let mut list = SgeList::new();
    // SAFETY: the caller passes a valid work request with a list of `count` elements.
    let sges = unsafe { list.take(wr.sg_list, count) }?;
    batch.push(&request, SendData::Sges(sges)).map_err(Errno::from)
}

/// Posts a list of send requests. The error has a pointer to the request that was refused.
///
/// # Safety
///
/// `first` is NULL or the first of a list of valid work requests.
#[inline]
unsafe fn post_list(qp: &Qp, first: *mut ibv_send_wr) -> Result<(), (Errno, *mut ibv_send_wr)> {
    let posted = qp.sq.with(|sq| {
        let mut batch = sq.queue.batch().map_err(|error| (error.into(), first))?;
        let mut wr = first;
        while !wr.is_null() {
            // SAFETY: not NULL, so it points to a work request of the list.
            let request = unsafe { &*wr };
            // SAFETY: the caller passes a list of valid work requests.
            unsafe { push(qp, &mut batch, request) }.map_err(|error| (error, wr))?;
            wr = request.next;
        }
        Ok(())
    });
    posted.unwrap_or_else(|error| Err((error, first)))
}

/// `ibv_context.ops.post_send`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program passes NULL or one of our queue pairs, and does not destroy it now.
    let qp = unsafe { fast::<Qp>(qp.cast()) };
    finish(bad_wr, wr, || {
        let qp = qp.ok_or((Errno::EINVAL, wr))?;
        // SAFETY: the program passes a list of valid work requests.
        unsafe { post_list(qp, wr) }
    })
}

/// Posts a list of receives with `push`. The error has a pointer to the request that was refused.
///
/// # Safety
///
/// `first` is NULL or the first of a list of valid work requests.
#[inline]
unsafe fn post_receives(
    first: *mut ibv_recv_wr,
    mut push: impl FnMut(&RecvWr, &[Sge]) -> Result<(), PostError>,
) -> Result<(), (Errno, *mut ibv_recv_wr)> {
    let mut list = SgeList::new();
    let mut wr = first;
    while !wr.is_null() {
        // SAFETY: not NULL, so it points to a work request of the list.
        let request = unsafe { &*wr };
        let count = count_of(request.num_sge).map_err(|error| (error, wr))?;
        // SAFETY: the caller passes valid work requests, with lists of `num_sge` elements.
        let sges = unsafe { list.take(request.sg_list, count) }.map_err(|error| (error, wr))?;
        push(&RecvWr { wr_id: request.wr_id }, sges).map_err(|error| (error.into(), wr))?;
        wr = request.next;
    }
    Ok(())
}

/// `ibv_context.ops.bind_mw`, for windows of type 1: posts a request that binds the window with its
/// next key.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    window: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    entry::code(|| {
        runtime::usable()?;
        // SAFETY: the program passes NULL or one of our queue pairs, and does not destroy it now.
        let qp = unsafe { fast::<Qp>(qp.cast()) }.ok_or(Errno::EINVAL)?;
        // SAFETY: the program passes NULL or a valid structure.
        let bind = unsafe { entry::read(bind) }?;
        let rkey = mw::next_key_of_type_1(window)?;
        let op = mw::binding(window, rkey, &bind.bind_info)?.into();
        let request = request_of(qp, bind.wr_id, op, bind.send_flags)?;
        let nothing = SendData::Sges(&[]);
        qp.sq.with(|sq| sq.queue.batch()?.push(&request, nothing))??;
        // SAFETY: `next_key_of_type_1` has found the window, and no other thread may bind it
        // meanwhile.
        unsafe { (*window).rkey = rkey };
        Ok(())
    })
}

/// `ibv_context.ops.post_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes NULL or one of our queue pairs, and does not destroy it now.
    let qp = unsafe { fast::<Qp>(qp.cast()) };
    finish(bad_wr, wr, || {
        let qp = qp.ok_or((Errno::EINVAL, wr))?;
        let posted = qp.rq.with(|rq| {
            let mut batch = rq.batch().map_err(|error| (error.into(), wr))?;
            // SAFETY: the program passes a list of valid work requests.
            unsafe { post_receives(wr, |wr, sges| batch.push(wr, sges)) }
        });
        posted.unwrap_or_else(|error| Err((error, wr)))
    })
}

/// `ibv_context.ops.post_srq_recv`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes NULL or one of our queues, and does not destroy it now.
    let srq = unsafe { fast::<Srq>(srq) };
    finish(bad_wr, wr, || {
        let mut batch = srq.ok_or((Errno::EINVAL, wr))?.srq.batch();
        // SAFETY: the program passes a list of valid work requests.
        unsafe { post_receives(wr, |wr, sges| batch.push(wr, sges)) }
    })
}

/// Returns 0, or an error number with `bad_wr` set to the request that was refused.
#[inline]
fn finish<W>(
    bad_wr: *mut *mut W,
    first: *mut W,
    post: impl FnOnce() -> Result<(), (Errno, *mut W)>,
) -> c_int {
    let mut bad = first;
    let posted = entry::run(|| {
        runtime::usable()?;
        post().map_err(|(error, wr)| {
            bad = wr;
            error
        })
    });
    match posted {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: the program passes NULL or room for a pointer. The call fails only
            // for NULL, which is allowed.
            let _ = unsafe { entry::write(bad_wr, bad) };
            error.code()
        }
    }
}
