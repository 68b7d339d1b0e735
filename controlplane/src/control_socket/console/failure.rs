//! Failures of commands: the cause, Linux's error number, and the remedy.

use rustix::io::Errno;
use uroce_command::Refusal;
use uroce_engine::{CqError, MrError, SrqError};
use uroce_transport::{AttrMask, ModifyError};

use crate::call::RequestError;
use crate::errno::AsErrno;
use crate::path::PathError;
use crate::rdma_cm::ConnError;

/// The reason for which a command was not carried out, or not completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::control_socket) struct Failure {
    errno: Errno,
    cause: String,
    remedy: String,
}

impl Failure {
    pub(super) fn new(errno: Errno, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Failure { errno, cause: cause.into(), remedy: remedy.into() }
    }

    /// Creates the failure of a command that names an object which does not exist.
    pub(super) fn absent(object: &str, number: &str, list: &str) -> Failure {
        let remedy = format!("`{list}` lists those that exist");
        Failure::new(Errno::NOENT, format!("no {object} {number}"), remedy)
    }

    /// Creates the failure of a command that would harm an object of the program.
    pub(super) fn harmful(what: &str) -> Failure {
        let remedy = "add --force if that is meant: the program will see its object fail";
        Failure::new(Errno::PERM, format!("{what} is the program's"), remedy)
    }

    /// Creates a failure from an error, with the error's number and text.
    pub(super) fn of(error: &(impl AsErrno + std::fmt::Display), remedy: &str) -> Failure {
        Failure::caused(error, error.to_string(), remedy)
    }

    /// Creates a failure from an error, with the error's number and another text.
    pub(super) fn caused(error: &impl AsErrno, cause: String, remedy: &str) -> Failure {
        Failure::new(error.errno(), cause, remedy)
    }
}

impl From<Failure> for Refusal {
    fn from(Failure { errno, cause, remedy }: Failure) -> Refusal {
        Refusal::Command { cause, errno: name(errno).to_owned(), remedy }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        if let RequestError::Modify(error) = error {
            return of_modify(&error);
        }
        let remedy = match error {
            RequestError::Path(PathError::NoAnswer { .. }) => {
                "check the address, and the link by `show port info all` and `show neigh`"
            }
            RequestError::Path(PathError::Route(_) | PathError::NoAddress(_)) => {
                "`show gid` has the own addresses"
            }
            RequestError::Path(PathError::NoPort(_)) => "`show device` has the ports, from 1",
            RequestError::Path(PathError::NoGid { .. }) => "`show gid` has the indices",
            RequestError::Path(_) => "`help modify qp` has the ranges",
            RequestError::Gone => "the device is being closed; `show process` lists the others",
            RequestError::Stalled => "`show config cores` tells whether its lcores turn",
            RequestError::Connection(ConnError::AddressInUse(_) | ConnError::PortInUse(_)) => {
                "choose another port; `show cm listen` has those in use"
            }
            RequestError::Connection(ConnError::NoSuchAddress(_)) => {
                "`show gid` has the own addresses"
            }
            RequestError::Connection(_) => "`show cm` lists the connections",
            _ => "`show device` has the limits and what is in use",
        };
        Failure::of(&error, remedy)
    }
}

fn of_modify(error: &ModifyError) -> Failure {
    let (cause, remedy) = match error {
        ModifyError::Missing(mask) => {
            let names = names(*mask);
            (format!("the change needs {names}"), format!("add: {names}"))
        }
        ModifyError::NotAllowed(mask) => {
            let names = names(*mask);
            (format!("the change does not take {names}"), format!("leave out: {names}"))
        }
        ModifyError::OutOfRange(mask) => {
            let cause = format!("out of range: {}", names(*mask));
            (cause, "`help modify qp` has the ranges".to_owned())
        }
        other => {
            let remedy = match other {
                ModifyError::NoAlternatePath => "load one first: load alt path qp N port P",
                ModifyError::NotArmed(_) => {
                    "rearm both ends and wait until `show qp N` says ARMED, or add --force"
                }
                ModifyError::Draining => "wait until its outstanding sends have completed",
                _ => "`query qp N` has its state; it goes from RESET over INIT and RTR to RTS",
            };
            (other.to_string(), remedy.to_owned())
        }
    };
    Failure::new(Errno::INVAL, cause, remedy)
}

/// Returns the words of `modify qp` for these attributes.
fn names(mask: AttrMask) -> String {
    let name = |bit: AttrMask| match bit {
        AttrMask::CUR_STATE => "cur_state".to_owned(),
        AttrMask::AV => "dest_gid".to_owned(),
        AttrMask::ALT_PATH => "load alt path".to_owned(),
        AttrMask::MAX_QP_RD_ATOMIC => "max_rd_atomic".to_owned(),
        AttrMask::EN_SQD_ASYNC_NOTIFY => "sqd_notify".to_owned(),
        AttrMask::KEEPALIVE_MS => "keepalive".to_owned(),
        bit => bit.iter_names().map(|(name, _)| name.to_lowercase()).collect(),
    };
    mask.iter().map(name).collect::<Vec<_>>().join(" ")
}

impl From<CqError> for Failure {
    fn from(error: CqError) -> Failure {
        Failure::of(&error, "`show device` has the limits; choose a depth from 1")
    }
}

impl From<SrqError> for Failure {
    fn from(error: SrqError) -> Failure {
        Failure::of(&error, "`show device` has the limits; choose a depth from 1")
    }
}

impl From<MrError> for Failure {
    fn from(error: MrError) -> Failure {
        let remedy = match error {
            MrError::NeedsLocalWrite => "add local_write to the rights",
            MrError::Busy => "unbind or destroy the windows first",
            _ => "`show mr` has the number of regions and the limit",
        };
        Failure::of(&error, remedy)
    }
}

/// Returns the name of an error number.
fn name(errno: Errno) -> &'static str {
    match errno {
        Errno::ADDRINUSE => "EADDRINUSE",
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL",
        Errno::AGAIN => "EAGAIN",
        Errno::BUSY => "EBUSY",
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::EXIST => "EEXIST",
        Errno::FAULT => "EFAULT",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::MSGSIZE => "EMSGSIZE",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::NODEV => "ENODEV",
        Errno::NOENT => "ENOENT",
        Errno::NOMEM => "ENOMEM",
        Errno::NOSPC => "ENOSPC",
        Errno::NOTCONN => "ENOTCONN",
        Errno::NOTUNIQ => "ENOTUNIQ",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::PERM => "EPERM",
        Errno::TIMEDOUT => "ETIMEDOUT",
        _ => "EIO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_words_that_set_them() {
        let mask = AttrMask::AV | AttrMask::DEST_QPN | AttrMask::MAX_QP_RD_ATOMIC;
        let failure = of_modify(&ModifyError::Missing(mask));
        assert_eq!(failure.remedy, "add: dest_gid dest_qpn max_rd_atomic");
        let refusal = Refusal::from(failure).to_string();
        let text = "the change needs dest_gid dest_qpn max_rd_atomic (EINVAL)\n\
                    add: dest_gid dest_qpn max_rd_atomic";
        assert_eq!(refusal, text);
    }
}
