//! Why a connection did not come about, or a call about one was refused.

use uroce_controlplane::RequestError;
use uroce_controlplane::connect::{self, CmEventKind};
use uroce_wire::cm::{RejectReason, SidrStatus};

/// Why a connection did not come about, or a call about one was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The connection manager refused the call, which changed nothing.
    #[error(transparent)]
    Refused(#[from] connect::CmError),
    /// The control plane refused it: no path to the peer, or a Modify QP that is not allowed.
    #[error(transparent)]
    Request(RequestError),
    /// The peer, or its stack, does not want the connection.
    #[error("the peer rejects the connection: {reason}")]
    Rejected {
        /// Why; [`RejectReason::CONSUMER`] is the peer's application.
        reason: RejectReason,
        /// From the peer's application, with trailing zeros.
        private_data: Vec<u8>,
    },
    /// The peer gives no UD queue pair.
    #[error("the peer gives no queue pair for datagrams: {status}")]
    NotResolved {
        /// Why.
        status: SidrStatus,
        /// From the peer's application, with trailing zeros.
        private_data: Vec<u8>,
    },
    /// No answer came within all retries.
    #[error("the peer does not answer")]
    Unreachable,
    /// Not done within the time that the caller gave.
    #[error("no connection within the time given")]
    TimedOut,
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
    /// The queue pair belongs to another device than the request.
    #[error("the queue pair belongs to another device")]
    OtherDevice,
    /// The process has no file descriptor left for the events.
    #[error("no channel for the connection's events: {0}")]
    Channel(std::io::Error),
}

impl From<RequestError> for CmError {
    fn from(error: RequestError) -> CmError {
        match error {
            RequestError::Connection(refused) => CmError::Refused(refused),
            other => CmError::Request(other),
        }
    }
}

impl CmError {
    /// The end of an attempt, if this event is one. Of datagrams a rejection has SIDR's codes.
    pub(super) fn of(event: CmEventKind) -> Option<CmError> {
        Some(match event {
            CmEventKind::Rejected { reason, private_data } => {
                CmError::Rejected { reason: RejectReason(reason), private_data }
            }
            CmEventKind::Unreachable => CmError::Unreachable,
            CmEventKind::ConnectError(error) => CmError::from(error),
            _ => return None,
        })
    }
}
