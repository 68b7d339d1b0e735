//! What a device can: `ibv_query_device` and its longer form, and its clock.
//!
//! Nothing is told here that the engine does not do.

use std::ffi::{c_char, c_int};

use uroce::DeviceAttr;
use uroce::raw::clock_now;

use super::context;
use super::cq::MAX_CQE;
use super::device::copy_text;
use crate::abi::{
    self, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_packet_pacing_caps,
    ibv_query_device_ex_input, timespec,
};
use crate::entry;
use crate::errno::Errno;
use crate::ibv::dm::MAX_DM_SIZE;
use crate::quota::Place;
use crate::runtime::{self, Device};

/// Not a vendor's OUI: one of those that anybody may give himself.
pub(crate) const VENDOR_ID: u32 = 0x02_7572;
const VENDOR_PART_ID: u32 = 1;

/// Every page size from 4 KiB on: memory is not translated.
const PAGE_SIZES: u64 = 0xffff_f000;

/// Protection domains: they take no place in a table, but all that a program makes is made with one.
pub(crate) const MAX_PD: u32 = 1 << 16;

/// Longest time from a request's arrival to its ACK, where the lcore has to wait for a CPU: about
/// 16 ms, as 4.096 µs times a power of 2.
const ACK_DELAY: u8 = 12;

/// Nanoseconds, in kHz.
const CLOCK_KHZ: u64 = 1_000_000;

const CAP_FLAGS: u32 = abi::IBV_DEVICE_AUTO_PATH_MIG
    | abi::IBV_DEVICE_CURR_QP_STATE_MOD
    | abi::IBV_DEVICE_PORT_ACTIVE_EVENT
    | abi::IBV_DEVICE_SYS_IMAGE_GUID
    | abi::IBV_DEVICE_RC_RNR_NAK_GEN
    | abi::IBV_DEVICE_MEM_WINDOW
    | abi::IBV_DEVICE_MEM_WINDOW_TYPE_2B;

/// What `rate_limit` of queue pairs may be, in kb/s.
const PACING: ibv_packet_pacing_caps = ibv_packet_pacing_caps {
    qp_rate_limit_min: 1,
    qp_rate_limit_max: u32::MAX,
    supported_qpts: 1 << abi::IBV_QPT_RC | 1 << abi::IBV_QPT_UC | 1 << abi::IBV_QPT_UD,
};

fn number(count: impl TryInto<c_int>) -> c_int {
    count.try_into().unwrap_or(c_int::MAX)
}

/// Completion queues: their asynchronous events take places, of which each queue pair brings two.
fn max_cq(limits: &DeviceAttr) -> u32 {
    limits.max_qps.saturating_mul(2)
}

/// Shared receive queues: a queue pair brings one place for their events.
fn max_srq(limits: &DeviceAttr) -> u32 {
    limits.max_qps
}

/// A place for a completion queue.
///
/// # Errors
///
/// ENOMEM if there are as many as the device has.
pub(crate) fn admit_cq(device: &'static Device) -> Result<Place, Errno> {
    device.quotas.cqs.take(max_cq(&DeviceAttr::of(&device.config()?)))
}

/// A place for a shared receive queue.
///
/// # Errors
///
/// As [`admit_cq`].
pub(crate) fn admit_srq(device: &'static Device) -> Result<Place, Errno> {
    device.quotas.srqs.take(max_srq(&DeviceAttr::of(&device.config()?)))
}

fn attr(device: &'static Device) -> Result<ibv_device_attr, Errno> {
    let limits = DeviceAttr::of(&device.config()?);
    let ports = device.ports()?.len();
    let guid = device.guid()?.to_be();
    // SAFETY: a C structure of numbers.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    copy_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = guid;
    attr.sys_image_guid = guid;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = PAGE_SIZES;
    attr.vendor_id = VENDOR_ID;
    attr.vendor_part_id = VENDOR_PART_ID;
    attr.max_qp = number(limits.max_qps);
    attr.max_qp_wr = number(limits.max_wr);
    attr.device_cap_flags = CAP_FLAGS;
    attr.max_sge = number(limits.max_sge);
    attr.max_sge_rd = number(limits.max_sge);
    attr.max_cq = number(max_cq(&limits));
    attr.max_cqe = number(limits.max_cqe.min(MAX_CQE));
    attr.max_mr = number(limits.max_mrs);
    attr.max_pd = number(MAX_PD);
    attr.max_qp_rd_atom = number(limits.max_rd_atomic);
    attr.max_qp_init_rd_atom = number(limits.max_init_rd_atomic);
    attr.max_res_rd_atom = attr.max_qp.saturating_mul(attr.max_qp_rd_atom);
    // By the CPU's own instructions, so the program's atomics count as well.
    attr.atomic_cap = abi::IBV_ATOMIC_GLOB;
    attr.max_mw = number(limits.max_mrs);
    attr.max_mcast_grp = number(limits.max_groups);
    attr.max_mcast_qp_attach = number(limits.max_group_qps);
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach);
    attr.max_ah = number(limits.max_ahs);
    attr.max_srq = number(max_srq(&limits));
    attr.max_srq_wr = number(limits.max_srq_wr);
    attr.max_srq_sge = number(limits.max_sge);
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = ACK_DELAY;
    attr.phys_port_cnt = u8::try_from(ports).unwrap_or(u8::MAX);
    Ok(attr)
}

pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    place: *mut ibv_device_attr,
) -> c_int {
    entry::code(|| {
        let attr = attr(context::get(context)?.device)?;
        // SAFETY: the program's room for the structure.
        unsafe { entry::write(place, attr) }
    })
}

/// In `verbs_context`: as much as the program's structure has room for, which is what its header
/// had at the time.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    place: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    const LEAST: usize = std::mem::offset_of!(ibv_device_attr_ex, odp_caps);
    entry::code(|| {
        // SAFETY: not NULL, so the program's structure.
        if !input.is_null() && unsafe { entry::read(input) }?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        if len < LEAST {
            return Err(Errno::EINVAL);
        }
        let orig_attr = attr(context::get(context)?.device)?;
        // SAFETY: a C structure of numbers.
        let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        attr.orig_attr = orig_attr;
        attr.completion_timestamp_mask = u64::MAX;
        attr.hca_core_clock = CLOCK_KHZ;
        attr.device_cap_flags_ex = orig_attr.device_cap_flags.into();
        attr.max_dm_size = MAX_DM_SIZE as u64;
        attr.packet_pacing_caps = PACING;
        attr.phys_port_cnt_ex = orig_attr.phys_port_cnt.into();
        // SAFETY: by the interface the program's room has this length.
        unsafe { entry::write_sized(place.cast(), len, &attr) }
    })
}

/// In `verbs_context`: the clock's ticks, as all of them have it in the nanoseconds' place.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    place: *mut abi::ibv_values_ex,
) -> c_int {
    entry::code(|| {
        context::get(context)?;
        // SAFETY: the program's structure, if it is not NULL.
        let mut values = unsafe { entry::read(place) }?;
        if values.comp_mask & !abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::EINVAL);
        }
        if values.comp_mask & abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock = timespec { tv_sec: 0, tv_nsec: clock_now().cast_signed() };
        }
        // SAFETY: as above.
        unsafe { entry::write(place, values) }
    })
}

/// What sysfs is to programs: uroce's tree of it, if there is one.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    // SAFETY: the name is a terminated string; what it gives stays until the environment is changed,
    // and programs that change this variable have themselves to blame.
    let tree = unsafe { libc::getenv(c"UROCE_TREE".as_ptr()) };
    if tree.is_null() || runtime::is_privileged() { c"/sys".as_ptr() } else { tree }
}
