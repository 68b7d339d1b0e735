//! `ibv_xrcd`: domains of extended reliable connections, and `ibv_open_qp`.
//!
//! A domain that is opened by a file is one domain for the whole process. As each process has an
//! engine of its own, each has its own domains: the same file gives another process another domain.
//! Programs that open the domain of a file at both ends of a connection, as `ibv_xsrq_pingpong`
//! does, need no common one. `ibv_open_qp` finds the targets of its own process.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rustix::fs::{Mode, OFlags, open as open_file};
use rustix::io::fcntl_dupfd_cloexec;

use super::qp;
use crate::abi::{
    IBV_QP_OPEN_ATTR_CONTEXT, IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_TYPE, IBV_QP_OPEN_ATTR_XRCD,
    IBV_QPT_XRC_RECV, IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_qp,
    ibv_qp_open_attr, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object};
use crate::objects::context::{self, Context};
use crate::objects::qp::Qp;
use crate::objects::xrcd::{Domain, File, Xrcd};
use crate::runtime::{self, say};

const NOT_HERE: &str = "ibv_open_xrcd: this process has opened no XRC domain by this file, and it \
    cannot open those of other processes. Pass O_CREAT, or open it in a thread of the process that \
    has made it";

/// A domain that can be opened again by its file.
struct Named {
    /// Address of its device.
    device: usize,
    domain: Arc<Domain>,
    /// Number of its handles that the program has not closed; never 0.
    handles: usize,
}

/// The domains that were opened by a file.
static NAMED: Mutex<Vec<Named>> = Mutex::new(Vec::new());

fn named() -> MutexGuard<'static, Vec<Named>> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `verbs_context.open_xrcd`.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    entry::object(|| {
        runtime::usable()?;
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(attr) }?;
        let needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !needed != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask != needed {
            return Err(Errno::EINVAL);
        }
        let its = context::hold(context)?;
        // As in Linux, the flags matter for a file only, and other flags are ignored.
        let domain = match attr.fd {
            -1 => open(&its, None)?,
            fd => open_by_file(&its, file_of(fd)?, attr.oflags)?,
        };
        Ok(Xrcd::registry().insert(ibv_xrcd { context }, Xrcd { domain, context: its }).public())
    })
}

/// The file of a program's descriptor. A second descriptor of its own keeps the file.
fn file_of(fd: c_int) -> Result<File, Errno> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // This one, unlike a duplicate, has no part in the locks on the file, nor in the end of a pipe.
    let path = format!("/proc/self/fd/{fd}");
    let pin = open_file(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    File::new(pin.or_else(|_| duplicate(fd))?)
}

/// Duplicates a descriptor, for a system without /proc.
fn duplicate(fd: c_int) -> rustix::io::Result<OwnedFd> {
    // SAFETY: the descriptor is not -1, and only used for a call that fails if it is not open.
    fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 0)
}

fn open(context: &Held<Context>, file: Option<File>) -> Result<Arc<Domain>, Errno> {
    let engine = context.device.context()?.open_xrc_domain()?;
    Ok(Arc::new(Domain { engine, file }))
}

/// Opens the domain of a file, or makes it. As in Linux, EAGAIN if there is none and the program
/// does not want it made, and EINVAL if there is one and it must be new.
fn open_by_file(context: &Held<Context>, file: File, oflags: c_int) -> Result<Arc<Domain>, Errno> {
    // Before the lock: a start takes long, and a thread may fork meanwhile.
    context.device.context()?;
    let device = std::ptr::from_ref(context.device).addr();
    let mut named = named();
    let is_it = |it: &&mut Named| {
        it.device == device && it.domain.file.as_ref().is_some_and(|its| its.id == file.id)
    };
    if let Some(found) = named.iter_mut().find(is_it) {
        if oflags & libc::O_EXCL != 0 {
            return Err(Errno::EINVAL);
        }
        found.handles += 1;
        return Ok(Arc::clone(&found.domain));
    }
    if oflags & libc::O_CREAT == 0 {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| say(NOT_HERE));
        return Err(Errno::EAGAIN);
    }
    let domain = open(context, Some(file))?;
    named.push(Named { device, domain: Arc::clone(&domain), handles: 1 });
    Ok(domain)
}

/// Closes a handle of a domain. After the last one the file has no domain, even if other threads
/// still use a handle that is being closed.
fn close(xrcd: *const ibv_xrcd) -> Result<(), Errno> {
    // A child has a copy of the lock, which another thread of the parent may have held.
    if runtime::is_orphaned() {
        return Xrcd::registry().remove(xrcd).map(runtime::dispose);
    }
    // Locked before, so that nothing is opened between the two steps.
    let mut named = named();
    let removed = Xrcd::registry().remove(xrcd)?;
    let is_it = |it: &Named| Arc::ptr_eq(&it.domain, &removed.domain);
    if let Some(at) = named.iter().position(is_it) {
        named[at].handles -= 1;
        if named[at].handles == 0 {
            named.swap_remove(at);
        }
    }
    Ok(())
}

/// `verbs_context.close_xrcd`.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    entry::code(|| close(xrcd))
}

/// `verbs_context.open_qp`: another handle of an XRC target of the process. The target exists until
/// each of its handles is destroyed, and each gets its events.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    entry::object(|| {
        runtime::usable()?;
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(attr) }?;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & !(needed | IBV_QP_OPEN_ATTR_CONTEXT) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask & needed != needed || attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(Errno::EINVAL);
        }
        let its = context::get(context)?;
        let xrcd = Xrcd::registry().hold(attr.xrcd)?;
        if xrcd.context.public() != its.public() {
            return Err(Errno::EINVAL);
        }
        let is_it = |qp: &Qp| {
            let is_of_it = |domain: &Arc<Domain>| Arc::ptr_eq(domain, &xrcd.domain);
            qp.control.qpn().value() == attr.qp_num
                && qp.share.as_ref().is_some_and(|share| is_of_it(&share.xrcd.domain))
        };
        let found = Qp::registry().find(is_it);
        let again = found.as_ref().and_then(|qp| qp.share.as_ref()?.another(xrcd));
        let (Some(target), Some(share)) = (found, again) else {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                say(&format!(
                    "ibv_open_qp: no XRC target of this process and domain has the number {:#08x}. \
                     Targets of other processes cannot be opened",
                    attr.qp_num
                ));
            });
            return Err(Errno::EINVAL);
        };
        let has_context = attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
        let qp_context = if has_context { attr.qp_context } else { std::ptr::null_mut() };
        Ok(qp::register_again(&target, its, share, qp_context).public().cast())
    })
}
