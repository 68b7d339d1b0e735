//! Limits of a device, and what else is the same for all devices. `ibv_query_device` and `show
//! device detail` tell them.

use uroce_engine::{MAX_CQ_DEPTH, MAX_GROUP_QPS, MAX_GROUPS, MAX_SGE, MAX_SRQ_DEPTH, MAX_WR};
use uroce_transport::{MAX_INIT_RD_ATOMIC, MAX_INLINE_DATA, MAX_MESSAGE_LEN, MAX_RD_ATOMIC};

use crate::config::DeviceConfig;

/// `vendor_id` of all devices: a locally administered number, not the OUI of a vendor.
pub const VENDOR_ID: u32 = 0x02_7572;
/// `vendor_part_id` of all devices.
pub const VENDOR_PART_ID: u32 = 1;

/// Sizes of pages, a bit each: all from 4 KiB, because memory is not translated.
pub const PAGE_SIZES: u64 = 0xffff_f000;

/// Largest number of protection domains of a device. The engine has no limit, but each domain takes
/// memory in the C library.
pub const MAX_PD: u32 = 1 << 16;

/// Largest number of entries of a completion queue of the C library. Their memory is allocated when
/// the queue is created.
pub const MAX_CQE: u32 = (1 << 20) - 1;

/// Largest size in bytes of one allocation of device memory, which the C library has.
pub const MAX_DM_SIZE: usize = 1 << 20;

/// Bits of a completion's timestamp that count: all.
pub const TIMESTAMP_MASK: u64 = u64::MAX;

/// Code of the longest time from a request's arrival to its ACK, for an lcore that has to wait for
/// a CPU: 4.096 µs · 2^12, about 16 ms.
pub const ACK_DELAY: u8 = 12;

/// A device's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Number of queue pairs.
    pub max_qps: u32,
    /// Number of memory regions and windows together.
    pub max_mrs: u32,
    /// Work requests that a send or receive queue can hold.
    pub max_wr: u32,
    /// Receives that a shared receive queue can hold.
    pub max_srq_wr: u32,
    /// Bytes of inline data in one send.
    pub max_inline_data: u32,
    /// Number of address handles.
    pub max_ahs: u32,
    /// Number of multicast groups.
    pub max_groups: usize,
    /// Queue pairs attached to one multicast group.
    pub max_group_qps: usize,
    /// Scatter/gather elements in one work request.
    pub max_sge: u32,
    /// Entries that a completion queue can hold.
    pub max_cqe: u32,
    /// Bytes in one message.
    pub max_message_len: u32,
    /// Outstanding READ and ATOMIC requests from the peer, per QP.
    pub max_rd_atomic: u8,
    /// Outstanding READ and ATOMIC requests to the peer, per QP.
    pub max_init_rd_atomic: u8,
    /// Number of lcores.
    pub lcores: usize,
}

impl DeviceAttr {
    /// The limits of a device with this configuration, open or not.
    pub fn of(config: &DeviceConfig) -> DeviceAttr {
        DeviceAttr {
            max_qps: config.max_qps,
            max_mrs: config.max_mrs,
            max_wr: MAX_WR,
            max_srq_wr: MAX_SRQ_DEPTH,
            max_inline_data: MAX_INLINE_DATA,
            max_ahs: config.max_ahs,
            max_groups: MAX_GROUPS,
            max_group_qps: MAX_GROUP_QPS,
            max_sge: MAX_SGE,
            max_cqe: MAX_CQ_DEPTH,
            max_message_len: MAX_MESSAGE_LEN,
            max_rd_atomic: MAX_RD_ATOMIC,
            max_init_rd_atomic: MAX_INIT_RD_ATOMIC,
            lcores: config.lcores.count(),
        }
    }

    /// Number of completion queues. Their asynchronous events need room, which the engine has for
    /// two completion queues per queue pair.
    pub fn max_cqs(&self) -> u32 {
        self.max_qps.saturating_mul(2)
    }

    /// Entries that a completion queue of the C library can hold.
    pub fn max_cqe_of_c(&self) -> u32 {
        self.max_cqe.min(MAX_CQE)
    }

    /// Number of shared receive queues. Their asynchronous events need room, which the engine has
    /// for one shared receive queue per queue pair.
    pub fn max_srqs(&self) -> u32 {
        self.max_qps
    }
}
