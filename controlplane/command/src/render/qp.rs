//! Texts of queue pairs and their paths.

use super::table::Table;
use super::{or_dash, pairs};
use crate::answer::{Path, Qp};

/// Returns one line for each QP.
pub(super) fn list(qps: &[Qp]) -> String {
    let mut table = Table::new(&[
        "Device", "QPN", "Type", "State", "Peer", "DestQPN", "SqPSN", "RqPSN", "MTU", "Sends",
        "Lcore",
    ]);
    for qp in qps {
        table.row([
            format!("{}/{}", qp.device, qp.port),
            number(qp.qpn),
            qp.service.clone(),
            qp.state.clone(),
            or_dash(qp.peer),
            number(qp.dest_qpn),
            number(qp.sq_psn),
            number(qp.rq_psn),
            qp.path_mtu.to_string(),
            qp.sends.to_string(),
            qp.lcore.to_string(),
        ]);
    }
    table.text()
}

/// Returns all attributes of a QP.
pub(super) fn detail(qp: &Qp) -> String {
    let rate = match qp.rate_limit {
        0 => "none".to_owned(),
        kbps => format!("{kbps} kbit/s"),
    };
    let recv = match qp.srq {
        true => "shared receive queue".to_owned(),
        false => qp.max_recv_wr.to_string(),
    };
    let values = [
        ("type", qp.service.clone()),
        ("state", qp.state.clone()),
        ("port", qp.port.to_string()),
        ("lcore", qp.lcore.to_string()),
        ("peer", or_dash(qp.peer)),
        ("dest_qpn", number(qp.dest_qpn)),
        ("sq_psn", number(qp.sq_psn)),
        ("rq_psn", number(qp.rq_psn)),
        ("path_mtu", qp.path_mtu.to_string()),
        ("pkey", format!("{:#06x}", qp.pkey)),
        ("qkey", format!("{:#010x}", qp.qkey)),
        ("timeout", qp.timeout.to_string()),
        ("retry_cnt", qp.retry_cnt.to_string()),
        ("rnr_retry", qp.rnr_retry.to_string()),
        ("min_rnr_timer", qp.min_rnr_timer.to_string()),
        ("max_rd_atomic", qp.max_rd_atomic.to_string()),
        ("max_dest_rd_atomic", qp.max_dest_rd_atomic.to_string()),
        ("rate_limit", rate),
        ("selective_repeat", if qp.selective_repeat { "on" } else { "off" }.to_owned()),
        ("udp_source_ports", qp.udp_source_ports.to_string()),
        ("sends", format!("{} of {}", qp.sends, qp.max_send_wr)),
        ("receives", recv),
        ("path_mig_state", qp.migration.clone()),
        ("migrations", qp.migrations.to_string()),
        ("failover_us", or_dash(qp.failover_us)),
        ("failover", if qp.auto { "auto" } else { "-" }.to_owned()),
    ];
    let values = values.map(|(name, value)| (name.to_owned(), value));
    pairs(&format!("QP {} of {}", number(qp.qpn), qp.device), &values)
}

/// Returns one line for each path.
pub(super) fn paths(paths: &[Path]) -> String {
    let mut table = Table::new(&[
        "Device",
        "QPN",
        "Path",
        "State",
        "Source",
        "Destination",
        "Next hop",
        "UDP port",
        "TClass",
        "PCP",
        "Hops",
        "Rate",
    ]);
    for path in paths {
        table.row([
            format!("{}/{}", path.device, path.port),
            number(path.qpn),
            match (path.alternate, path.auto) {
                (false, _) => "primary",
                (true, false) => "alternate",
                (true, true) => "auto",
            }
            .to_owned(),
            path.migration.clone(),
            path.src.to_string(),
            path.dst.to_string(),
            path.dst_mac.clone(),
            path.src_port.to_string(),
            path.traffic_class.to_string(),
            or_dash(path.vlan_pcp),
            path.hop_limit.to_string(),
            path.rate.clone(),
        ]);
    }
    table.text()
}

/// Returns a 24-bit number in the usual form: six hexadecimal digits after `0x`.
pub(super) fn number(value: u32) -> String {
    format!("{value:#08x}")
}
