//! Answers about all capabilities and limits of a device, as `ibv_devinfo -v` prints them.

use uroce_command::answer::{DeviceDetail, PortDetail};

use super::super::Served;
use super::device::guid;
use crate::limits::{
    ACK_DELAY, DeviceAttr, MAX_DM_SIZE, MAX_PD, PAGE_SIZES, TIMESTAMP_MASK, VENDOR_ID,
    VENDOR_PART_ID,
};
use crate::port_watch::PortAttr;

/// What every device can do, by the verbs interface's names.
const CAPABILITIES: &str = "AUTO_PATH_MIG CURR_QP_STATE_MOD PORT_ACTIVE_EVENT SYS_IMAGE_GUID \
                            RC_RNR_NAK_GEN MEM_WINDOW MEM_WINDOW_TYPE_2B";

/// Returns the capabilities and limits of a device and its ports.
pub(super) fn of(served: &Served) -> DeviceDetail {
    let limits = DeviceAttr::of(&served.config);
    let ports = served.ports.all().iter().map(|attr| port(attr, &limits)).collect();
    DeviceDetail { attributes: device(served, &limits), ports }
}

fn device(served: &Served, limits: &DeviceAttr) -> Vec<(String, String)> {
    let rd_atomic = u64::from(limits.max_rd_atomic);
    let attachments = limits.max_groups.saturating_mul(limits.max_group_qps);
    named([
        ("fw_ver", env!("CARGO_PKG_VERSION").to_owned()),
        ("sys_image_guid", guid(served.guid)),
        ("vendor_id", format!("{VENDOR_ID:#08x}")),
        ("vendor_part_id", VENDOR_PART_ID.to_string()),
        ("max_mr_size", format!("{:#x}", u64::MAX)),
        ("page_size_cap", format!("{PAGE_SIZES:#x}")),
        ("max_qp", limits.max_qps.to_string()),
        ("max_qp_wr", limits.max_wr.to_string()),
        ("device_cap_flags", CAPABILITIES.to_owned()),
        ("max_sge", limits.max_sge.to_string()),
        ("max_sge_rd", limits.max_sge.to_string()),
        ("max_inline_data", limits.max_inline_data.to_string()),
        ("max_cq", limits.max_cqs().to_string()),
        ("max_cqe", limits.max_cqe_of_c().to_string()),
        ("max_mr", limits.max_mrs.to_string()),
        ("max_pd", MAX_PD.to_string()),
        ("max_qp_rd_atom", rd_atomic.to_string()),
        ("max_res_rd_atom", (rd_atomic * u64::from(limits.max_qps)).to_string()),
        ("max_qp_init_rd_atom", limits.max_init_rd_atomic.to_string()),
        ("atomic_cap", "ATOMIC_GLOB (2)".to_owned()),
        ("max_mw", limits.max_mrs.to_string()),
        ("max_mcast_grp", limits.max_groups.to_string()),
        ("max_mcast_qp_attach", limits.max_group_qps.to_string()),
        ("max_total_mcast_qp_attach", attachments.to_string()),
        ("max_ah", limits.max_ahs.to_string()),
        ("max_srq", limits.max_srqs().to_string()),
        ("max_srq_wr", limits.max_srq_wr.to_string()),
        ("max_srq_sge", limits.max_sge.to_string()),
        ("max_pkeys", "1".to_owned()),
        ("local_ca_ack_delay", ACK_DELAY.to_string()),
        ("max_dm_size", MAX_DM_SIZE.to_string()),
        ("completion_timestamp_mask", format!("{TIMESTAMP_MASK:#x}")),
        ("hca_core_clock", "1000000 kHz".to_owned()),
        ("qp_rate_limit", format!("1 to {} kbps", u32::MAX)),
    ])
}

fn port(attr: &PortAttr, limits: &DeviceAttr) -> PortDetail {
    let zero = uroce_wire::Gid::default();
    let mut attributes = named([
        ("max_mtu", "4096".to_owned()),
        ("max_msg_sz", limits.max_message_len.to_string()),
        ("port_cap_flags", "CM_SUP IP_BASED_GIDS".to_owned()),
        ("max_vl_num", "1".to_owned()),
        ("pkey_tbl_len", "1".to_owned()),
        ("gid_tbl_len", attr.gids.len().to_string()),
    ]);
    let gids = attr.gids.iter().enumerate().filter(|(_, gid)| **gid != zero);
    attributes
        .extend(gids.map(|(index, gid)| (format!("GID[{index}]"), format!("{gid}, RoCE v2"))));
    PortDetail { number: attr.number, attributes }
}

fn named<const N: usize>(attributes: [(&str, String); N]) -> Vec<(String, String)> {
    attributes.map(|(name, value)| (name.to_owned(), value)).into()
}
