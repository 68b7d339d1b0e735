//! Error numbers for C programs.

use uroce::cm::{CmError, raw};
use uroce::{
    AhError, ChannelError, ControlError, CqError, MrError, PathError, PostError, RegisterError,
    RequestError, SrqError,
};

/// A positive error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(i32);

macro_rules! numbers {
    ($($name:ident)*) => {
        #[allow(dead_code, reason = "a complete list is easier to keep than one of those in use")]
        impl Errno {
            $(pub(crate) const $name: Errno = Errno(libc::$name);)*
        }
    };
}

numbers! {
    EACCES EADDRINUSE EADDRNOTAVAIL EAGAIN EBADF EBUSY ECONNREFUSED EEXIST EFAULT EHOSTUNREACH EINTR
    EINVAL EIO EMFILE EMSGSIZE ENETUNREACH ENODATA ENODEV ENOENT ENOMEM ENOSPC ENOSYS ENOTCONN
    EOPNOTSUPP EPERM EPROTO ERANGE ETIMEDOUT EISCONN
}

impl Errno {
    /// The error with this number.
    pub(crate) fn of(number: i32) -> Errno {
        Errno(number)
    }

    /// The calling thread's `errno`, set by the last system call that failed.
    pub(crate) fn last() -> Errno {
        std::io::Error::last_os_error().into()
    }

    /// The number in C.
    pub(crate) fn code(self) -> i32 {
        self.0
    }

    /// Sets the calling thread's `errno`.
    pub(crate) fn set(self) {
        // SAFETY: `__errno_location` has no preconditions.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: `place` is the calling thread's own `errno`, which no other thread writes.
        unsafe { place.write(self.0) }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}

impl From<MrError> for Errno {
    fn from(error: MrError) -> Errno {
        match error {
            MrError::TableFull => Errno::ENOMEM,
            MrError::Busy => Errno::EBUSY,
            MrError::Wraps => Errno::EFAULT,
            _ => Errno::EINVAL,
        }
    }
}

impl From<RegisterError> for Errno {
    fn from(error: RegisterError) -> Errno {
        match error {
            RegisterError::Engine(error) => error.into(),
            _ => Errno::ENOMEM,
        }
    }
}

impl From<CqError> for Errno {
    fn from(error: CqError) -> Errno {
        match error {
            CqError::NoneLeft | CqError::ChannelFull => Errno::ENOMEM,
            CqError::Overrun => Errno::EIO,
            _ => Errno::EINVAL,
        }
    }
}

impl From<ChannelError> for Errno {
    fn from(error: ChannelError) -> Errno {
        match error {
            ChannelError::System(error) => error.into(),
            _ => Errno::ETIMEDOUT,
        }
    }
}

impl From<SrqError> for Errno {
    fn from(error: SrqError) -> Errno {
        match error {
            SrqError::Depth(_) | SrqError::Sges(_) | SrqError::Limit { .. } => Errno::EINVAL,
            _ => Errno::ENOMEM,
        }
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Errno {
        match error {
            PostError::QueueFull => Errno::ENOMEM,
            _ => Errno::EINVAL,
        }
    }
}

impl From<AhError> for Errno {
    fn from(_: AhError) -> Errno {
        Errno::ENOMEM
    }
}

impl From<PathError> for Errno {
    fn from(error: PathError) -> Errno {
        match error {
            PathError::NoAnswer { .. } => Errno::ETIMEDOUT,
            PathError::Route(_) => Errno::ENETUNREACH,
            PathError::NoAddress(_) => Errno::EADDRNOTAVAIL,
            _ => Errno::EINVAL,
        }
    }
}

impl From<ControlError> for Errno {
    fn from(error: ControlError) -> Errno {
        match error {
            ControlError::NoQpLeft | ControlError::NoEventsLeft => Errno::ENOMEM,
            ControlError::LcoreDied(_) | ControlError::LcoreStalled(_) => Errno::EIO,
            ControlError::QpType(_) => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}

impl From<RequestError> for Errno {
    fn from(error: RequestError) -> Errno {
        match error {
            RequestError::Control(error) => error.into(),
            RequestError::Path(error) => error.into(),
            RequestError::Handle(error) => error.into(),
            RequestError::Connection(error) => error.into(),
            RequestError::Gone | RequestError::Stalled => Errno::EIO,
            _ => Errno::EINVAL,
        }
    }
}

impl From<raw::ConnError> for Errno {
    fn from(error: raw::ConnError) -> Errno {
        match error {
            raw::ConnError::AddressInUse(_) => Errno::EADDRINUSE,
            raw::ConnError::PortInUse(_)
            | raw::ConnError::NoPortLeft
            | raw::ConnError::NoSuchAddress(_) => Errno::EADDRNOTAVAIL,
            raw::ConnError::Unreachable(_) => Errno::ENETUNREACH,
            raw::ConnError::TooMany => Errno::ENOMEM,
            _ => Errno::EINVAL,
        }
    }
}

impl From<CmError> for Errno {
    fn from(error: CmError) -> Errno {
        match error {
            CmError::TimedOut => Errno::ETIMEDOUT,
            _ => Errno::EINVAL,
        }
    }
}
