//! `ibv_mr`: memory regions.
//!
//! Invariant
//! - A region's memory existed, with the rights that it needs, when it was registered
//!   ([`mapping`]).

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

use uroce::raw::Memory;
use uroce::{AccessFlags, Va};

use super::mapping;
use crate::abi::{self, ibv_dm, ibv_mr, ibv_pd};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object, number};
use crate::objects::dm;
use crate::objects::mr::{Kind, Mr, State, public};
use crate::objects::pd::{self, Pd};
use crate::runtime::say;

/// `IBV_ACCESS_OPTIONAL_RANGE`: flags that a device may ignore.
const OPTIONAL: c_uint = 0x3ff0_0000;
/// Mask of the flags that have the same bits in [`AccessFlags`]. Higher bits differ in meaning.
pub(super) const COMMON: c_uint = 0x1f;
/// `IBV_ACCESS_FLUSH_GLOBAL` and `IBV_ACCESS_FLUSH_PERSISTENT` of newer headers.
const FLUSH_GLOBAL: c_uint = 1 << 8;
const FLUSH_PERSISTENT: c_uint = 1 << 9;
/// The two FLUSH flags, each with its right.
const FLUSHES: [(c_uint, AccessFlags); 2] =
    [(FLUSH_GLOBAL, AccessFlags::FLUSH_GLOBAL), (FLUSH_PERSISTENT, AccessFlags::FLUSH_PERSISTENT)];

const NOT_PERSISTENT: &str = "ibv_reg_mr: IBV_ACCESS_FLUSH_PERSISTENT is refused, as uroce makes no \
    memory persistent. Register without it; IBV_ACCESS_FLUSH_GLOBAL makes data visible to all";

/// Converts those of C's access flags that are rights.
pub(super) fn rights_in(flags: c_uint) -> AccessFlags {
    let same = AccessFlags::from_bits_truncate((flags & COMMON) as u8);
    let flushes = FLUSHES.iter().filter(|(flag, _)| flags & flag != 0);
    flushes.fold(same, |rights, (_, right)| rights.union(*right))
}

/// Converts rights to C's access flags.
pub(super) fn flags_of(rights: AccessFlags) -> c_uint {
    let flushes = FLUSHES.iter().filter(|(_, right)| rights.contains(*right));
    flushes.fold(c_uint::from(rights.bits()) & COMMON, |flags, (flag, _)| flags | flag)
}

/// The rights of a region, and whether its virtual addresses begin at 0.
struct Access {
    rights: AccessFlags,
    is_zero_based: bool,
}

impl Access {
    fn new(flags: c_uint) -> Result<Access, Errno> {
        // As on Linux for a device without the capabilities.
        const LACKING: c_uint = abi::IBV_ACCESS_ON_DEMAND | FLUSH_PERSISTENT;
        const WRITES: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_ATOMIC);
        // Any page size is handled the same way.
        let flags = flags & !OPTIONAL & !abi::IBV_ACCESS_HUGETLB;
        let is_zero_based = flags & abi::IBV_ACCESS_ZERO_BASED != 0;
        let rights = flags & !abi::IBV_ACCESS_ZERO_BASED;
        if rights & FLUSH_PERSISTENT != 0 {
            say(NOT_PERSISTENT);
        }
        if rights & LACKING != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags_of(rights_in(rights)) != rights {
            return Err(Errno::EINVAL);
        }
        let rights = rights_in(rights);
        if rights.intersects(WRITES) && !rights.contains(AccessFlags::LOCAL_WRITE) {
            return Err(Errno::EINVAL);
        }
        Ok(Access { rights, is_zero_based })
    }

    /// Whether the pages must be writable. As on Linux they must be if a window may be bound,
    /// because a window may give write access.
    fn writes(&self) -> bool {
        const WRITES: AccessFlags = AccessFlags::LOCAL_WRITE
            .union(AccessFlags::REMOTE_WRITE)
            .union(AccessFlags::REMOTE_ATOMIC)
            .union(AccessFlags::MW_BIND);
        self.rights.intersects(WRITES)
    }

    /// Checks that the memory exists, and describes it for registration.
    fn memory(&self, addr: usize, len: usize, iova: u64) -> Result<Memory, Errno> {
        mapping::check(addr, len, self.writes())?;
        let va = Va(if self.is_zero_based { 0 } else { iova });
        let addr = std::ptr::with_exposed_provenance_mut(addr);
        Ok(Memory { addr, len, va, access: self.rights })
    }
}

/// Adds a region to the registry and returns the program's pointer to it. Its memory is already
/// registered with the engine.
fn add(kind: Kind, state: State, addr: *mut c_void) -> Result<*mut ibv_mr, Errno> {
    let key = state.registration.as_ref().ok_or(Errno::EINVAL)?.lkey().0;
    // Peers must not use the key of a region without memory.
    let rkey = if matches!(kind, Kind::Null) { 0 } else { key };
    let handle = number();
    let public = public(state.pd.public(), handle, (addr, state.len), (key, rkey));
    let mr = Mr { state: Arc::new(Mutex::new(state)), kind, handle };
    Ok(Mr::registry().insert(public, mr).public())
}

/// Registers memory of the program.
///
/// # Errors
///
/// EFAULT if the memory does not exist or lacks the rights; EINVAL or EOPNOTSUPP for flags that are
/// invalid or not supported.
pub(crate) fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    let pd = pd::hold(pd)?;
    let memory = Access::new(access)?.memory(addr.expose_provenance(), len, iova)?;
    // SAFETY: the range was mapped with these rights just now. By registering the range, the
    // program promises to keep it mapped until deregistration, and accepts that its bytes change.
    let registration = Some(unsafe { pd.domain()?.register_raw(&memory) }?);
    let state = State { registration, pd, addr: addr.addr(), len, iova: memory.va.0, access };
    add(Kind::Memory, state, addr)
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    entry::object(|| register(pd, addr, len, addr.addr() as u64, access.cast_unsigned()))
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    entry::object(|| register(pd, addr, len, iova, access.cast_unsigned()))
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    entry::object(|| register(pd, addr, len, iova, access))
}

/// `ibv_reg_dmabuf_mr`: not supported. The CPU copies all data here, and it may have no access to a
/// DMA buffer.
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    _offset: u64,
    _len: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    entry::object(|| {
        pd::get(pd)?;
        Err(Errno::EOPNOTSUPP)
    })
}

/// `ibv_mr_init_attr` of rdma-core 60 and later.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InitAttr {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
}

impl InitAttr {
    const IOVA: u64 = 1 << 0;
    const ADDR: u64 = 1 << 1;
}

/// `ibv_reg_mr_ex`: registers memory by address. With [`InitAttr::IOVA`], its virtual addresses
/// begin at `iova`. DMA buffers and DMA handles are not supported.
pub(crate) unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut InitAttr) -> *mut ibv_mr {
    entry::object(|| {
        // SAFETY: the program passes NULL or valid attributes.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask & !(InitAttr::IOVA | InitAttr::ADDR) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask & InitAttr::ADDR == 0 {
            return Err(Errno::EINVAL);
        }
        let named = attr.comp_mask & InitAttr::IOVA != 0;
        let iova = if named { attr.iova } else { attr.addr.addr() as u64 };
        register(pd, attr.addr, attr.length, iova, attr.access.cast_unsigned())
    })
}

/// `verbs_context.reg_dm_mr`: registers device memory, with virtual addresses from 0.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    len: usize,
    access: c_uint,
) -> *mut ibv_mr {
    entry::object(|| {
        let (pd, dm) = (pd::hold(pd)?, dm::hold(dm)?);
        let wanted = Access::new(access)?;
        if !wanted.is_zero_based || !std::ptr::eq(pd.context.device, dm.context.device) {
            return Err(Errno::EINVAL);
        }
        let addr = dm.place(offset, len)?;
        let memory = Memory { addr, len, va: Va(0), access: wanted.rights };
        // SAFETY: the memory belongs to `dm`, which the region holds.
        let registration = Some(unsafe { pd.domain()?.register_raw(&memory) }?);
        let state = State { registration, pd, addr: 0, len, iova: 0, access };
        add(Kind::Dm { memory: dm }, state, std::ptr::null_mut())
    })
}

/// `verbs_context.alloc_null_mr`: makes a region without memory.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    entry::object(|| {
        let pd = pd::hold(pd)?;
        let registration = Some(pd.domain()?.register_nothing()?);
        let state = State { registration, pd, addr: 0, len: usize::MAX, iova: 0, access: 0 };
        add(Kind::Null, state, std::ptr::null_mut())
    })
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    entry::code(|| Mr::registry().remove_if(mr, Mr::deregister).map(drop))
}

/// `ibv_rereg_mr`. After an error the region is unchanged. Returns `IBV_REREG_MR_ERR_INPUT` for an
/// invalid region, domain, address or length, for an unknown flag, and for access flags without
/// `IBV_REREG_MR_CHANGE_ACCESS`. Returns `IBV_REREG_MR_ERR_CMD` for all other errors, among them
/// a call without flags and invalid access flags.
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    access: c_int,
) -> c_int {
    let mut failure = abi::IBV_REREG_MR_ERR_INPUT;
    let code = entry::code(|| {
        let entry = Mr::registry().get(mr)?;
        if !matches!(entry.kind, Kind::Memory) {
            return Err(Errno::EINVAL);
        }
        let change = Change::new(flags, pd, addr, len, access.cast_unsigned())?;
        failure = abi::IBV_REREG_MR_ERR_CMD;
        let mut state = entry.lock();
        change.apply(&mut state)?;
        let place = std::ptr::with_exposed_provenance_mut(state.addr);
        let key = state.registration.as_ref().ok_or(Errno::EINVAL)?.lkey().0;
        let public = public(state.pd.public(), entry.handle, (place, state.len), (key, key));
        // SAFETY: the slot is live, because the region cannot be deregistered while it is locked.
        // Programs read it only after their call has returned.
        unsafe { entry.public().write(public) };
        Ok(())
    });
    if code == 0 { 0 } else { failure }
}

/// The changes that `ibv_rereg_mr` asks for.
struct Change {
    pd: Option<Held<Pd>>,
    place: Option<(usize, usize)>,
    access: Option<c_uint>,
}

impl Change {
    fn new(
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        len: usize,
        access: c_uint,
    ) -> Result<Change, Errno> {
        let flags = flags.cast_unsigned();
        let has = |flag| flags & flag != 0;
        if has(!abi::IBV_REREG_MR_FLAGS_SUPPORTED) {
            return Err(Errno::EINVAL);
        }
        let (moves, admits) =
            (has(abi::IBV_REREG_MR_CHANGE_TRANSLATION), has(abi::IBV_REREG_MR_CHANGE_ACCESS));
        if moves && (addr.is_null() || len == 0) || access != 0 && !admits {
            return Err(Errno::EINVAL);
        }
        let pd = if has(abi::IBV_REREG_MR_CHANGE_PD) { Some(pd::hold(pd)?) } else { None };
        let place = moves.then(|| (addr.expose_provenance(), len));
        Ok(Change { pd, place, access: admits.then_some(access) })
    }

    fn changes_nothing(&self) -> bool {
        self.pd.is_none() && self.place.is_none() && self.access.is_none()
    }

    fn apply(self, state: &mut State) -> Result<(), Errno> {
        if self.changes_nothing() {
            return Err(Errno::EINVAL);
        }
        let access = self.access.unwrap_or(state.access);
        let (addr, len) = self.place.unwrap_or((state.addr, state.len));
        let wanted = Access::new(access)?;
        // A region that keeps its memory keeps its virtual address.
        let iova = if self.place.is_none() { state.iova } else { addr as u64 };
        let memory = wanted.memory(addr, len, iova)?;
        let pd = self.pd.as_ref().unwrap_or(&state.pd);
        let registration = state.registration.as_mut().ok_or(Errno::EINVAL)?;
        // SAFETY: the range was mapped with these rights just now. By registering the range, the
        // program promises to keep it mapped until deregistration, and accepts that its bytes
        // change.
        unsafe { registration.change(pd.domain()?, &memory) }?;
        (state.addr, state.len, state.iova, state.access) = (addr, len, memory.va.0, access);
        if let Some(pd) = self.pd {
            state.pd = pd;
        }
        Ok(())
    }
}
