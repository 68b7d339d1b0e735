//! `ibv_xrcd`: domains of extended reliable connections, and `ibv_open_qp`.
//!
//! A domain that is opened by a file is one domain for the whole process. As each process has an
//! engine of its own, other processes cannot share it: they get a domain of their own if they ask
//! for a new one, as `ibv_xsrq_pingpong` does at both ends, otherwise EOPNOTSUPP and a text.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{
    IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_TYPE, IBV_QP_OPEN_ATTR_XRCD, IBV_QPT_XRC_RECV,
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_qp, ibv_qp_open_attr,
    ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object};
use crate::objects::context::{self, Context, FileId};
use crate::objects::qp::Qp;
use crate::objects::xrcd::{Domain, Named, Xrcd};
use crate::runtime::say;

const ELSEWHERE: &str = "another process has opened the XRC domain of this file. Each process has \
    its own XRC domains: open one with O_CREAT or with fd = -1, or use threads of one process";

/// The domains that were opened by a file.
static NAMED: Mutex<Vec<Named>> = Mutex::new(Vec::new());

/// `verbs_context.open_xrcd`.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(attr) }?;
        let needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !needed != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask != needed || attr.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
            return Err(Errno::EINVAL);
        }
        let its = context::hold(context)?;
        let domain = match attr.fd {
            -1 if attr.oflags & libc::O_CREAT != 0 => open(&its, None)?,
            -1 => return Err(Errno::EINVAL),
            fd => open_by_file(&its, file_of(fd)?, attr.oflags)?,
        };
        Ok(Xrcd::registry().insert(ibv_xrcd { context }, Xrcd { domain, context: its }).public())
    })
}

/// The file of a program's descriptor.
fn file_of(fd: c_int) -> Result<FileId, Errno> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the descriptor is only used for `fstat`, which fails if it is not open; -1 is
    // excluded.
    FileId::of(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn open(context: &Held<Context>, _claim: Option<UnixDatagram>) -> Result<Arc<Domain>, Errno> {
    let engine = context.device.context()?.open_xrc_domain()?;
    Ok(Arc::new(Domain { engine, _claim }))
}

/// Opens the domain of a file, or makes it. As in Linux, EAGAIN if there is none and the program
/// does not want it made, and EINVAL if there is one and it must be new. A domain of another
/// process cannot be opened; if the program also wants it made, it gets one of its own.
fn open_by_file(
    context: &Held<Context>,
    file: FileId,
    oflags: c_int,
) -> Result<Arc<Domain>, Errno> {
    let device = std::ptr::from_ref(context.device).addr();
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.retain(|it| it.domain.strong_count() > 0);
    let is_it = |it: &&Named| (it.device, it.file) == (device, file);
    if let Some(domain) = named.iter().find(is_it).and_then(|it| it.domain.upgrade()) {
        let must_be_new = oflags & libc::O_EXCL != 0;
        return if must_be_new { Err(Errno::EINVAL) } else { Ok(domain) };
    }
    let (creates, must_be_new) = (oflags & libc::O_CREAT != 0, oflags & libc::O_EXCL != 0);
    let claim = claim(context, file)?;
    match &claim {
        Some(_) if !creates => return Err(Errno::EAGAIN),
        None if !creates => {
            say(ELSEWHERE);
            return Err(Errno::EOPNOTSUPP);
        }
        None if must_be_new => return Err(Errno::EINVAL),
        _ => {}
    }
    let domain = open(context, claim)?;
    named.push(Named { device, file, domain: Arc::downgrade(&domain) });
    Ok(domain)
}

/// Claims a file of a device for this process. `None` if another process has a domain that it
/// opened by this file.
fn claim(context: &Held<Context>, file: FileId) -> Result<Option<UnixDatagram>, Errno> {
    let name = format!("uroce-xrcd-{}-{file}", context.device.name());
    let address = SocketAddr::from_abstract_name(name).map_err(|_| Errno::EINVAL)?;
    match UnixDatagram::bind_addr(&address) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `verbs_context.close_xrcd`.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    entry::code(|| Xrcd::registry().remove(xrcd).map(drop))
}

/// `verbs_context.open_qp`: another handle of an XRC target of the process. It is the target's own
/// pointer, and the target exists until each handle is destroyed.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    entry::object(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(attr) }?;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & needed != needed || attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(Errno::EINVAL);
        }
        let its = context::get(context)?;
        let domain = Arc::clone(&Xrcd::registry().get(attr.xrcd)?.domain);
        let is_it = |qp: &Qp| {
            let is_of_it = |xrcd: &Held<Xrcd>| Arc::ptr_eq(&xrcd.domain, &domain);
            qp.control.qpn().value() == attr.qp_num && qp.xrcd.as_ref().is_some_and(is_of_it)
        };
        let found = Qp::registry().all().into_iter().find(|qp| is_it(qp));
        let Some(qp) = found.filter(|qp| qp.context.public() == its.public()) else {
            say(&format!(
                "ibv_open_qp: no XRC target of this process and domain has the number {:#08x}. \
                 Targets of other processes cannot be opened",
                attr.qp_num
            ));
            return Err(Errno::EINVAL);
        };
        qp.open_again()?;
        Ok(qp.public().cast::<c_void>().cast())
    })
}
