//! Answers about queue pairs.

use uroce_command::answer::{Path, Qp};
use uroce_command::{Answer, Select};
use uroce_engine::{PathLoader, QpInfo};
use uroce_transport::{PathAttr, QpAttr};
use uroce_wire::{Gid, Qpn};

use super::super::Served;
use super::Part;
use crate::call::RequestError;
use crate::thread::QpPage;

/// Answers with QPs: all of them in pages, or one with all its attributes.
pub(super) fn qps(served: &Served, select: Select, at: u32) -> Result<Part, RequestError> {
    let (page, next) = page(served, select, at)?;
    let is_found = !page.is_empty();
    let qps = page.iter().map(|(qpn, info)| qp(served, *qpn, info)).collect();
    let answer = match select {
        Select::All => Answer::Qp(qps),
        Select::One(_) => Answer::QpDetail(qps),
    };
    Ok(Part { answer, is_found, next })
}

/// Answers with all attributes of one QP.
pub(in crate::control_socket) fn detail(served: &Served, qpn: Qpn, info: &QpInfo) -> Answer {
    Answer::QpDetail(vec![qp(served, qpn, info)])
}

/// Answers with the paths of those QPs that have one.
pub(super) fn paths(served: &Served, select: Select, at: u32) -> Result<Part, RequestError> {
    let (page, next) = page(served, select, at)?;
    let is_found = !page.is_empty();
    let paths = page.iter().flat_map(|(qpn, QpInfo { attr, loader, .. })| {
        let primary = path(served, *qpn, attr, &attr.path, attr.port, false);
        let alternate =
            attr.alt_path.map(|alt| path(served, *qpn, attr, &alt.path, alt.port, true));
        let auto = *loader == PathLoader::ControlPlane;
        let alternate = alternate.map(|path| Path { auto, ..path });
        [Some(primary), alternate].into_iter().flatten()
    });
    let is_set = |path: &Path| !path.dst.is_unspecified();
    Ok(Part { answer: Answer::Path(paths.filter(is_set).collect()), is_found, next })
}

/// Answers with a row for each QP, in pages.
pub(super) fn each<R>(
    served: &Served,
    select: Select,
    at: u32,
    answer: fn(Vec<R>) -> Answer,
    row: fn(&Served, Qpn, &QpInfo) -> R,
) -> Result<Part, RequestError> {
    let (page, next) = page(served, select, at)?;
    let is_found = !page.is_empty();
    let rows = page.iter().map(|(qpn, info)| row(served, *qpn, info)).collect();
    Ok(Part { answer: answer(rows), is_found, next })
}

pub(super) fn page(served: &Served, select: Select, at: u32) -> Result<QpPage, RequestError> {
    served.calls.call(move |thread| match select {
        Select::All => thread.page_of_qps(at),
        Select::One(number) => Ok((thread.one_qp(number)?.into_iter().collect(), None)),
    })
}

/// Returns the address of a path's end, if the path is set.
pub(super) fn address(gid: Gid) -> Option<std::net::IpAddr> {
    (gid != Gid::default()).then(|| gid.to_ip())
}

fn qp(served: &Served, qpn: Qpn, info: &QpInfo) -> Qp {
    let attr = &info.attr;
    Qp {
        device: served.config.name.clone(),
        qpn: qpn.value(),
        service: info.qp_type.to_string(),
        state: attr.state.to_string(),
        port: attr.port,
        lcore: info.lcore as u32,
        dest_qpn: attr.dest_qpn.value(),
        peer: address(attr.path.encap.dst),
        sq_psn: attr.sq_psn.value(),
        rq_psn: attr.rq_psn.value(),
        // A path MTU is at most 4096.
        path_mtu: attr.path_mtu.bytes() as u16,
        pkey: attr.pkey.0,
        qkey: attr.qkey.0,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        min_rnr_timer: attr.min_rnr_timer,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        rate_limit: attr.rate_limit,
        selective_repeat: attr.selective_repeat,
        udp_source_ports: attr.udp_source_ports,
        sends: info.sends,
        max_send_wr: info.caps.max_send_wr,
        max_recv_wr: info.caps.max_recv_wr,
        srq: info.has_srq,
        migration: attr.path_mig_state.to_string(),
        migrations: info.migration.count,
        failover_us: info.migration.failover.map(|time| time.as_micros() as u64),
        auto: info.loader == PathLoader::ControlPlane,
    }
}

fn path(
    served: &Served,
    qpn: Qpn,
    attr: &QpAttr,
    path: &PathAttr,
    port: u8,
    alternate: bool,
) -> Path {
    let encap = &path.encap;
    Path {
        device: served.config.name.clone(),
        qpn: qpn.value(),
        alternate,
        migration: attr.path_mig_state.to_string(),
        port,
        src: encap.src.to_ip(),
        dst: encap.dst.to_ip(),
        dst_mac: encap.dst_mac.to_string(),
        traffic_class: encap.traffic_class,
        flow_label: encap.flow_label,
        hop_limit: encap.hop_limit,
        src_port: encap.src_port,
        rate: path.rate.to_string(),
        vlan_pcp: encap.vlan.map(|vlan| vlan.pcp),
        auto: false,
    }
}
