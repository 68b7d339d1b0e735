//! The work requests that `ibv_qp_ex` has built and not posted yet. They are posted together: all or
//! none.

use uroce::raw::{MAX_MESSAGE_LEN, SendData, SendOp, SendWr, Sge};
use uroce::{QpCaps, QpType};

use crate::errno::Errno;
use crate::ibv::qp::Sq;

/// Work requests that a batch has room for from the beginning.
const ROOM: u32 = 128;

/// Work requests between `wr_start` and `wr_complete`.
pub(crate) struct Batch {
    requests: Vec<Pending>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The first thing that was wrong.
    error: Option<Errno>,
    pub(crate) caps: QpCaps,
}

/// A work request, and where its data are.
#[derive(Clone, Copy)]
struct Pending {
    wr: SendWr,
    data: Data,
}

#[derive(Clone, Copy)]
enum Data {
    /// In `sges`.
    Sges { begin: usize, count: usize },
    /// In `inline`.
    Inline { begin: usize, len: usize },
}

impl Batch {
    /// For a queue of this size; has room if the program is going to use it.
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

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }

    pub(crate) fn fail(&mut self, error: Errno) {
        self.error.get_or_insert(error);
    }

    #[inline]
    pub(crate) fn begin(&mut self, wr: SendWr) {
        if self.requests.len() >= self.caps.max_send_wr as usize {
            return self.fail(Errno::ENOMEM);
        }
        self.requests.push(Pending { wr, data: Data::Sges { begin: 0, count: 0 } });
    }

    /// What the request does that setters are about.
    #[inline]
    pub(crate) fn op(&mut self) -> Option<&mut SendOp> {
        self.last().map(|last| &mut last.wr.op)
    }

    #[inline]
    fn last(&mut self) -> Option<&mut Pending> {
        if self.requests.is_empty() {
            self.fail(Errno::EINVAL);
        }
        self.requests.last_mut()
    }

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

    /// # Safety
    ///
    /// Each of `pieces` is memory of the program's.
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
            // SAFETY: memory of the program's, by the caller's promise; there is room for it here.
            unsafe { std::ptr::copy_nonoverlapping(bytes, place, len) };
            let end = self.inline.len() + len;
            // SAFETY: written just now.
            unsafe { self.inline.set_len(end) };
        }
        let len = self.inline.len() - begin;
        if let Some(last) = self.last() {
            last.data = Data::Inline { begin, len };
        }
    }
}

impl Sq {
    /// Posts all that was built, or nothing.
    pub(crate) fn post(&mut self, qp_type: QpType) -> Result<(), Errno> {
        let Sq { queue, batch } = self;
        if let Some(error) = batch.error {
            return Err(error);
        }
        // Whatever the queue may refuse is looked at before it has any of them.
        for Pending { wr, data } in &batch.requests {
            match *data {
                Data::Sges { begin, count } => {
                    let sges = &batch.sges[begin..begin + count];
                    let len = sges.iter().map(|sge| u64::from(sge.len)).sum();
                    wr.op.check(qp_type, count, len)?;
                    if len > u64::from(MAX_MESSAGE_LEN) {
                        return Err(Errno::EINVAL);
                    }
                }
                Data::Inline { .. } => wr.op.check_inline(qp_type)?,
            }
        }
        if batch.requests.len() > queue.room() as usize {
            return Err(Errno::ENOMEM);
        }
        let mut posted = queue.batch()?;
        for Pending { wr, data } in &batch.requests {
            posted.push(
                wr,
                match *data {
                    Data::Sges { begin, count } => {
                        SendData::Sges(&batch.sges[begin..begin + count])
                    }
                    Data::Inline { begin, len } => {
                        SendData::Inline(&batch.inline[begin..begin + len])
                    }
                },
            )?;
        }
        Ok(())
    }
}
