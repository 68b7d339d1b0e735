//! Queue pair of a worker, to which requests are posted.

use uroce::rd::{Address, RdQp};
use uroce::{PostError, PostListError, QueuePair, RecvWr, SendWr};

/// A queue pair.
pub(super) enum Qp {
    /// A queue pair of any service but RD.
    Plain(QueuePair),
    /// An RD queue pair, with the destination of all its requests.
    Rd(RdQp, Address),
}

impl Qp {
    #[inline]
    pub(super) fn post_send(&mut self, request: &SendWr<'_>) -> Result<(), PostError> {
        match self {
            Self::Plain(qp) => qp.post_send(request),
            Self::Rd(qp, to) => qp.post_send(request, to),
        }
    }

    #[inline]
    pub(super) fn post_sends<'a>(
        &mut self,
        requests: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), PostListError> {
        match self {
            Self::Plain(qp) => qp.post_sends(requests),
            Self::Rd(qp, to) => qp.post_sends(requests.map(|request| (request, *to))),
        }
    }

    #[inline]
    pub(super) fn post_recvs(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostListError> {
        match self {
            Self::Plain(qp) => qp.post_recvs(requests),
            Self::Rd(qp, _) => qp.post_recvs(requests),
        }
    }
}
