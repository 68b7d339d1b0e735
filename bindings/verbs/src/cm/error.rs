//! Errors of the connection manager.

use uroce_controlplane::RequestError;
use uroce_controlplane::rdma_cm::{ConnError, ConnEvent};
use uroce_wire::cm::{RejectReason, SidrStatus};

/// Why a connection was not established, or a call of the connection manager was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The connection manager refused the call. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] ConnError),
    /// The control plane refused the call: no path to the peer, or a Modify QP that is not allowed.
    #[error(transparent)]
    Request(RequestError),
    /// The peer's application or connection manager rejected the connection.
    #[error("the peer rejects the connection: {reason}")]
    Rejected {
        /// The reason. [`RejectReason::CONSUMER`] means that the peer's application rejected it.
        reason: RejectReason,
        /// Private data of the peer's application, with trailing zeros.
        private_data: Vec<u8>,
    },
    /// The peer refused to name a UD queue pair.
    #[error("the peer refuses to name a queue pair for datagrams: {status}")]
    NotResolved {
        /// The SIDR status of the answer.
        status: SidrStatus,
        /// Private data of the peer's application, with trailing zeros.
        private_data: Vec<u8>,
    },
    /// No answer arrived, with all retries used up.
    #[error("the peer does not answer")]
    Unreachable,
    /// The call's timeout has passed.
    #[error("not connected within the timeout")]
    TimedOut,
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
    /// The queue pair or EE context and the connection request belong to different devices.
    #[error("the queue pair belongs to another device")]
    OtherDevice,
    /// The process has no file descriptor left for the connection's events.
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
    /// Returns the error of an event that ends an attempt to connect; `None` for other events.
    pub fn of(event: ConnEvent) -> Option<CmError> {
        Some(match event {
            ConnEvent::Rejected { reason, private_data } => {
                CmError::Rejected { reason: RejectReason(reason), private_data }
            }
            ConnEvent::Unreachable => CmError::Unreachable,
            ConnEvent::ConnectError(error) => CmError::from(error),
            _ => return None,
        })
    }
}
