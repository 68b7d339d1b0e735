//! Error numbers for C programs.

use uroce::cm::{CmError, raw};
use uroce::{
    AhError, AsErrno, ChannelError, ControlError, CqError, MrError, PathError, PostError,
    RegisterError, RequestError, SrqError,
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

macro_rules! numbered {
    ($($error:ty)*) => {
        $(impl From<$error> for Errno {
            fn from(error: $error) -> Errno {
                error.errno().into()
            }
        })*
    };
}

numbered! {
    AhError ControlError CqError MrError PathError PostError RequestError SrqError raw::ConnError
}

impl From<RegisterError> for Errno {
    fn from(error: RegisterError) -> Errno {
        match error {
            RegisterError::Engine(error) => error.into(),
            _ => Errno::ENOMEM,
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

impl From<CmError> for Errno {
    fn from(error: CmError) -> Errno {
        match error {
            CmError::TimedOut => Errno::ETIMEDOUT,
            _ => Errno::EINVAL,
        }
    }
}
