//! Work requests that were built through `ibv_qp_ex` and are posted together, all or none.

use uroce::raw::{MAX_MESSAGE_LEN, SendData, SendOp, SendWr, Sge};
use uroce::{QpCaps, QpType, SendQueue, Srqn};

use crate::errno::Errno;

/// Largest number of work requests for which a new batch allocates room.
const ROOM: u32 = 128;

/// The work requests that a thread has built since `wr_start`.
pub(crate) struct Batch {
    requests: Vec<Pending>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The first error since `wr_start`. `wr_complete` returns it.
    error: Option<Errno>,
    pub(crate) caps: QpCaps,
}

/// A work request and the position of its data.
#[derive(Clone, Copy)]
struct Pending {
    wr: SendWr,
    data: Data,
}

#[derive(Clone, Copy)]
enum Data {
    /// A range of the batch's `sges`.
    Sges { begin: usize, count: usize },
    /// A range of the batch's `inline`.
    Inline { begin: usize, len: usize },
}

impl Batch {
    /// A batch for a send queue of this size. Allocates room if `ops`, the program's operations of
    /// `ibv_qp_ex`, is not 0.
    pub(crate) fn new(caps: &QpCaps, ops: u64) -> Batch {
        let room = if ops == 0 { 0 } else { caps.max_send_wr.min(ROOM) as usize };
        Batch {
            requests: Vec::with_capacity(room),
            sges: Vec::with_capacity(room),
            inline: Vec::with_capacity(room.min(1) * caps.max_inline_data as usize),
            error: None,
            caps: *caps,
        }
    }

    /// Discards all requests and the error.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }

    /// Records an error, unless there is one already. The batch is then not posted.
    pub(crate) fn fail(&mut self, error: Errno) {
        self.error.get_or_insert(error);
    }

    /// Adds a request without data. Records ENOMEM if the send queue cannot hold so many requests.
    #[inline]
    pub(crate) fn begin(&mut self, wr: SendWr) {
        if self.requests.len() >= self.caps.max_send_wr as usize {
            return self.fail(Errno::ENOMEM);
        }
        self.requests.push(Pending { wr, data: Data::Sges { begin: 0, count: 0 } });
    }

    /// The operation of the last request, for setters to change. Records EINVAL if there is no
    /// request.
    #[inline]
    pub(crate) fn op(&mut self) -> Option<&mut SendOp> {
        self.last().map(|last| &mut last.wr.op)
    }

    /// Sets the shared receive queue that the last request names. Records EINVAL if there is no
    /// request.
    pub(crate) fn set_srqn(&mut self, srqn: Srqn) {
        if let Some(last) = self.last() {
            last.wr.srqn = srqn;
        }
    }

    #[inline]
    fn last(&mut self) -> Option<&mut Pending> {
        if self.requests.is_empty() {
            self.fail(Errno::EINVAL);
        }
        self.requests.last_mut()
    }

    /// Sets the scatter/gather list of the last request. Records EINVAL if there is no request, or
    /// if the list is too long.
    #[inline]
    pub(crate) fn set_sges(&mut self, sges: impl ExactSizeIterator<Item = Sge>) {
        let (begin, count) = (self.sges.len(), sges.len());
        if count > self.caps.max_send_sge as usize {
            return self.fail(Errno::EINVAL);
        }
        if let Some(last) = self.last() {
            last.data = Data::Sges { begin, count };
            self.sges.extend(sges);
        }
    }

    /// Sets the inline data of the last request. Records EINVAL if there is no request, or if the
    /// data is too long.
    ///
    /// # Safety
    ///
    /// Each of `pieces` is readable memory.
    #[inline]
    pub(crate) unsafe fn set_inline(&mut self, pieces: impl Iterator<Item = (*const u8, usize)>) {
        let begin = self.inline.len();
        for (bytes, len) in pieces {
            let used = self.inline.len() - begin;
            if len > self.caps.max_inline_data as usize - used {
                return self.fail(Errno::EINVAL);
            }
            self.inline.reserve(len);
            let place = self.inline.spare_capacity_mut().as_mut_ptr().cast();
            // SAFETY: `bytes` has `len` readable bytes, and as many were reserved at `place`.
            unsafe { std::ptr::copy_nonoverlapping(bytes, place, len) };
            let end = self.inline.len() + len;
            // SAFETY: the bytes up to `end` were written by the copy above.
            unsafe { self.inline.set_len(end) };
        }
        let len = self.inline.len() - begin;
        if let Some(last) = self.last() {
            last.data = Data::Inline { begin, len };
        }
    }

    /// Posts all requests of the batch, or none.
    ///
    /// # Errors
    ///
    /// The first error since the batch was begun, or why a request is refused.
    pub(crate) fn post(&self, queue: &mut SendQueue, qp_type: QpType) -> Result<(), Errno> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // Everything for which the queue may refuse a request is checked before the first is
        // pushed.
        for Pending { wr, data } in &self.requests {
            match *data {
                Data::Sges { begin, count } => {
                    let sges = &self.sges[begin..begin + count];
                    let len = sges.iter().map(|sge| u64::from(sge.len)).sum();
                    wr.op.check(qp_type, count, len)?;
                    if len > u64::from(MAX_MESSAGE_LEN) {
                        return Err(Errno::EINVAL);
                    }
                }
                Data::Inline { len, .. } => wr.op.check_inline(qp_type, len)?,
            }
        }
        if self.requests.len() > queue.room() as usize {
            return Err(Errno::ENOMEM);
        }
        let mut posted = queue.batch()?;
        for Pending { wr, data } in &self.requests {
            posted.push(
                wr,
                match *data {
                    Data::Sges { begin, count } => SendData::Sges(&self.sges[begin..begin + count]),
                    Data::Inline { begin, len } => {
                        SendData::Inline(&self.inline[begin..begin + len])
                    }
                },
            )?;
        }
        Ok(())
    }
}
