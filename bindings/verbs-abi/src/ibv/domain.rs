//! Thread domains and parent domains. Programs use them to promise how they use threads and memory.
//! The promises have no effect here; the objects are only kept.

use std::ffi::c_int;

use crate::abi::{
    self, ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object};
use crate::objects::context::{self, Context};
use crate::objects::pd::{self, Pd};
use crate::objects::td::Td;

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    entry::object(|| {
        let held = context::hold(context)?;
        // SAFETY: the program passes NULL or valid attributes.
        if unsafe { entry::read(attr) }?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Td::registry().insert(ibv_td { context }, Td { context: held }).public())
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    entry::code(|| Td::registry().remove(td).map(drop))
}

/// `verbs_context.alloc_parent_domain`. The program's allocators are not called: the engine
/// allocates the queues in its own memory, because its threads access them too.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const KNOWN: u32 =
        abi::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | abi::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    const LEN: usize = std::mem::offset_of!(ibv_parent_domain_init_attr, alloc);
    entry::object(|| {
        let context = context::hold(context)?;
        // SAFETY: the program passes NULL or attributes of at least this length, also with older
        // headers.
        let attr = unsafe { entry::read_sized(attr, LEN) }?;
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let td = match attr.td.is_null() {
            true => None,
            false => Some(Td::registry().hold(attr.td)?),
        };
        let of = pd::hold(attr.pd)?;
        let is_foreign = |other: &Held<Context>| !std::ptr::eq(other.public(), context.public());
        if of.is_alias() || td.as_ref().is_some_and(|td| is_foreign(&td.context)) {
            return Err(Errno::EINVAL);
        }
        Pd::alias(of, context, td)
    })
}
