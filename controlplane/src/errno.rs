//! Linux's error numbers for the errors of the engine and the control plane: those that the verbs
//! of C return, and that commands show by name.

use rustix::io::Errno;
use uroce_engine::{AhError, ControlError, CqError, FlowError, MrError, SrqError};
use uroce_transport::PostError;

use crate::call::RequestError;
use crate::path::PathError;
use crate::rdma_cm::ConnError;

/// An error that has a number on Linux.
pub trait AsErrno {
    /// Returns the number.
    fn errno(&self) -> Errno;
}

impl AsErrno for MrError {
    fn errno(&self) -> Errno {
        match self {
            MrError::TableFull => Errno::NOMEM,
            MrError::Busy => Errno::BUSY,
            MrError::Wraps => Errno::FAULT,
            _ => Errno::INVAL,
        }
    }
}

impl AsErrno for CqError {
    fn errno(&self) -> Errno {
        match self {
            CqError::NoneLeft | CqError::ChannelFull => Errno::NOMEM,
            CqError::Overrun => Errno::IO,
            _ => Errno::INVAL,
        }
    }
}

impl AsErrno for SrqError {
    fn errno(&self) -> Errno {
        match self {
            SrqError::Depth(_) | SrqError::Sges(_) | SrqError::Limit { .. } => Errno::INVAL,
            _ => Errno::NOMEM,
        }
    }
}

impl AsErrno for PostError {
    fn errno(&self) -> Errno {
        match self {
            PostError::QueueFull => Errno::NOMEM,
            _ => Errno::INVAL,
        }
    }
}

impl AsErrno for AhError {
    fn errno(&self) -> Errno {
        Errno::NOMEM
    }
}

impl AsErrno for PathError {
    fn errno(&self) -> Errno {
        match self {
            PathError::NoAnswer { .. } => Errno::TIMEDOUT,
            PathError::Route(_) => Errno::NETUNREACH,
            PathError::NoAddress(_) => Errno::ADDRNOTAVAIL,
            _ => Errno::INVAL,
        }
    }
}

impl AsErrno for ControlError {
    fn errno(&self) -> Errno {
        match self {
            ControlError::NoQpLeft | ControlError::NoEventsLeft => Errno::NOMEM,
            ControlError::LcoreDied(_) | ControlError::LcoreStalled(_) => Errno::IO,
            ControlError::QpType(_) | ControlError::NoFrames => Errno::OPNOTSUPP,
            // As mlx5 answers both.
            ControlError::Flow(FlowError::Full | FlowError::Priority(_)) => Errno::NOMEM,
            _ => Errno::INVAL,
        }
    }
}

impl AsErrno for RequestError {
    fn errno(&self) -> Errno {
        match self {
            RequestError::Control(error) => error.errno(),
            RequestError::Path(error) => error.errno(),
            RequestError::Queue(error) => error.errno(),
            RequestError::Handle(error) => error.errno(),
            RequestError::Connection(error) => error.errno(),
            RequestError::Gone | RequestError::Stalled => Errno::IO,
            RequestError::NoMulticast => Errno::OPNOTSUPP,
            _ => Errno::INVAL,
        }
    }
}

impl AsErrno for ConnError {
    fn errno(&self) -> Errno {
        match self {
            ConnError::AddressInUse(_) => Errno::ADDRINUSE,
            ConnError::PortInUse(_) | ConnError::NoPortLeft | ConnError::NoSuchAddress(_) => {
                Errno::ADDRNOTAVAIL
            }
            ConnError::Unreachable(_) => Errno::NETUNREACH,
            ConnError::TooMany => Errno::NOMEM,
            _ => Errno::INVAL,
        }
    }
}
