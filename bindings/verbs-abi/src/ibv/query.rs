//! Attributes of a device: `ibv_query_device` and its extended form; the device's clock; the sysfs
//! path.
//!
//! Only capabilities that the engine has are reported.

use std::ffi::{c_char, c_int};

use uroce::DeviceAttr;
use uroce::config::Ethdev;
use uroce::raw::clock_now;
use uroce::raw::limits::{
    ACK_DELAY, MAX_DM_SIZE, MAX_PD, PAGE_SIZES, TIMESTAMP_MASK, VENDOR_ID, VENDOR_PART_ID,
};

use crate::abi::{
    self, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_packet_pacing_caps,
    ibv_query_device_ex_input, timespec,
};
use crate::entry;
use crate::errno::Errno;
use crate::objects::context;
use crate::objects::device::copy_text;
use crate::quota::Place;
use crate::runtime::{self, Device};

/// Frequency of the clock, which counts nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;

const CAP_FLAGS: u32 = abi::IBV_DEVICE_AUTO_PATH_MIG
    | abi::IBV_DEVICE_CURR_QP_STATE_MOD
    | abi::IBV_DEVICE_PORT_ACTIVE_EVENT
    | abi::IBV_DEVICE_SYS_IMAGE_GUID
    | abi::IBV_DEVICE_RC_RNR_NAK_GEN
    | abi::IBV_DEVICE_MEM_WINDOW
    | abi::IBV_DEVICE_XRC
    | abi::IBV_DEVICE_MEM_WINDOW_TYPE_2B;

/// There are flows. The bit for checksums of raw packets is not set, though those of sent frames
/// are filled in, since it says that those of received ones are verified.
const FLOWS: u32 = abi::IBV_DEVICE_MANAGED_FLOW_STEERING;

/// `IB_UVERBS_DEVICE_FLUSH_GLOBAL` and `IB_UVERBS_DEVICE_ATOMIC_WRITE` of newer headers.
const CAP_FLAGS_EX: u64 = 1 << 38 | 1 << 40;

/// Range of a queue pair's `rate_limit`, in kb/s.
const PACING: ibv_packet_pacing_caps = ibv_packet_pacing_caps {
    qp_rate_limit_min: 1,
    qp_rate_limit_max: u32::MAX,
    supported_qpts: 1 << abi::IBV_QPT_RC
        | 1 << abi::IBV_QPT_UC
        | 1 << abi::IBV_QPT_UD
        | 1 << abi::IBV_QPT_RAW_PACKET,
};

fn number(count: impl TryInto<c_int>) -> c_int {
    count.try_into().unwrap_or(c_int::MAX)
}

/// Counts a new completion queue.
///
/// # Errors
///
/// ENOMEM if the device has its maximum.
pub(crate) fn admit_cq(device: &'static Device) -> Result<Place, Errno> {
    device.quotas.cqs.take(DeviceAttr::of(&device.config()?).max_cqs())
}

/// Counts a new shared receive queue.
///
/// # Errors
///
/// ENOMEM if the device has its maximum.
pub(crate) fn admit_srq(device: &'static Device) -> Result<Place, Errno> {
    device.quotas.srqs.take(DeviceAttr::of(&device.config()?).max_srqs())
}

fn attr(device: &'static Device) -> Result<ibv_device_attr, Errno> {
    let config = device.config()?;
    let limits = DeviceAttr::of(&config);
    let has_flows = config.ports.iter().all(|port| !matches!(port.ethdev, Ethdev::Udp(_)));
    let ports = device.ports()?.len();
    let guid = device.guid()?.to_be();
    // SAFETY: a C structure of numbers, for which zeros are valid.
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
    attr.device_cap_flags = if has_flows { CAP_FLAGS | FLOWS } else { CAP_FLAGS };
    attr.max_sge = number(limits.max_sge);
    attr.max_sge_rd = number(limits.max_sge);
    attr.max_cq = number(limits.max_cqs());
    attr.max_cqe = number(limits.max_cqe_of_c());
    attr.max_mr = number(limits.max_mrs);
    attr.max_pd = number(MAX_PD);
    attr.max_qp_rd_atom = number(limits.max_rd_atomic);
    attr.max_qp_init_rd_atom = number(limits.max_init_rd_atomic);
    attr.max_res_rd_atom = attr.max_qp.saturating_mul(attr.max_qp_rd_atom);
    // ATOMIC requests use the CPU's own instructions, so they are atomic to the program's
    // instructions too.
    attr.atomic_cap = abi::IBV_ATOMIC_GLOB;
    attr.max_mw = number(limits.max_mrs);
    attr.max_mcast_grp = number(limits.max_groups);
    attr.max_mcast_qp_attach = number(limits.max_group_qps);
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach);
    attr.max_ah = number(limits.max_ahs);
    attr.max_srq = number(limits.max_srqs());
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
        // SAFETY: the program passes NULL or room for the structure.
        unsafe { entry::write(place, attr) }
    })
}

/// `verbs_context.query_device_ex`: writes as much as the program's structure has room for, which
/// depends on its headers.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    place: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    const LEAST: usize = std::mem::offset_of!(ibv_device_attr_ex, odp_caps);
    entry::code(|| {
        // SAFETY: not NULL, so it points to the program's structure.
        if !input.is_null() && unsafe { entry::read(input) }?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        if len < LEAST {
            return Err(Errno::EINVAL);
        }
        let orig_attr = attr(context::get(context)?.device)?;
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        attr.orig_attr = orig_attr;
        attr.completion_timestamp_mask = TIMESTAMP_MASK;
        attr.hca_core_clock = CLOCK_KHZ;
        attr.device_cap_flags_ex = u64::from(orig_attr.device_cap_flags) | CAP_FLAGS_EX;
        attr.max_dm_size = MAX_DM_SIZE as u64;
        attr.packet_pacing_caps = PACING;
        attr.phys_port_cnt_ex = orig_attr.phys_port_cnt.into();
        // SAFETY: the program passes NULL or room for `len` bytes.
        unsafe { entry::write_sized(place.cast(), len, &attr) }
    })
}

/// `verbs_context.query_rt_values`: the clock's ticks. As with all drivers, they are in `tv_nsec`.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    place: *mut abi::ibv_values_ex,
) -> c_int {
    entry::code(|| {
        context::get(context)?;
        // SAFETY: the program passes NULL or a valid structure.
        let mut values = unsafe { entry::read(place) }?;
        if values.comp_mask & !abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::EINVAL);
        }
        if values.comp_mask & abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock = timespec { tv_sec: 0, tv_nsec: clock_now().cast_signed() };
        }
        // SAFETY: `place` was read above, so it points to the program's structure.
        unsafe { entry::write(place, values) }
    })
}

/// `ibv_get_sysfs_path`: the tree in `UROCE_TREE`, which replaces /sys for programs. /sys if the
/// variable is not set, or if the program has privileges that its user does not have.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    // SAFETY: the name is a C string. The result stays valid until the program changes this
    // variable, which it must not do meanwhile.
    let tree = unsafe { libc::getenv(c"UROCE_TREE".as_ptr()) };
    if tree.is_null() || runtime::is_privileged() { c"/sys".as_ptr() } else { tree }
}
