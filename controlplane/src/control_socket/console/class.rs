//! Traffic class and priority of a queue pair's packets: `set qp … tclass`, `dscp`, `vlan_pcp`.

use std::sync::Arc;

use rustix::io::Errno;
use uroce_command::request::Class;
use uroce_transport::{QpChange, QpState};

use super::migration::only_one;
use super::modify::begin_modify;
use super::{Begun, Console, Failure, FoundQp, Served};
use crate::path::AddressVector;

/// Bits of a traffic class that are ECN's; the others are the DSCP.
const ECN: u8 = 3;
/// Highest DSCP.
const DSCP_MAX: u8 = 63;

impl Console {
    /// Changes the class of a QP's path, and of nothing else of it.
    pub(super) fn set_class(
        &self,
        qp: u32,
        class: Class,
        change: QpChange,
        devices: &[Arc<Served>],
    ) -> Result<Begun, Failure> {
        if class.tclass.is_some() && class.dscp.is_some() {
            return Err(only_one("tclass", "dscp"));
        }
        let found = self.find_qp(qp, devices)?;
        let vector = vector(&found, class)?;
        begin_modify(&found, change, Some(vector), None)
    }
}

/// Returns the vector of a QP's path with another class.
fn vector(found: &FoundQp, class: Class) -> Result<AddressVector, Failure> {
    let attr = &found.info.attr;
    let (path, qpn) = (&attr.path.encap, found.qpn.value());
    if found.info.qp_type.is_raw() {
        let cause = format!("QP {qpn:#08x} has no path: its frames are sent as they are");
        return Err(Failure::new(Errno::OPNOTSUPP, cause, "set it in the frames"));
    }
    if found.info.qp_type.is_datagram() {
        let cause = format!("QP {qpn:#08x} has no path: address handles have those of its sends");
        return Err(Failure::new(Errno::OPNOTSUPP, cause, "set it where the handle is created"));
    }
    // Modify QP's table has the path from INIT to RTR, and from SQD to SQD.
    if attr.state != QpState::Sqd {
        let cause =
            format!("the path of QP {qpn:#08x} changes in SQD, and it is in {}", attr.state);
        let remedy = format!(
            "first `modify qp {qpn:#x} state SQD`, and afterwards `modify qp {qpn:#x} state RTS`"
        );
        return Err(Failure::new(Errno::INVAL, cause, remedy));
    }
    if class.vlan_pcp.is_some() && path.vlan.is_none() {
        let cause = format!("port {} of {} has no VLAN", attr.port, found.served.config.name);
        let remedy = "start again with `vlan` of the port in the configuration file";
        return Err(Failure::new(Errno::OPNOTSUPP, cause, remedy));
    }
    let of_dscp = class.dscp.map(|dscp| dscp << 2 | path.traffic_class & ECN);
    let traffic_class = class.tclass.or(of_dscp).unwrap_or(path.traffic_class);
    let port =
        usize::from(attr.port).checked_sub(1).and_then(|at| found.served.config.ports.get(at));
    let dscp = traffic_class >> 2;
    if let (Some(_), Some(prio)) = (class.vlan_pcp, port.and_then(|of| of.dscp_prio.get(&dscp))) {
        let cause = format!("packets with DSCP {dscp} have priority {prio} by `dscp_prio`");
        let remedy = "choose another DSCP, or start again without it in `dscp_prio`";
        return Err(Failure::new(Errno::INVAL, cause, remedy));
    }
    if let Some(dscp) = class.dscp.filter(|dscp| *dscp > DSCP_MAX) {
        let cause = format!("DSCP {dscp} has more than 6 bits");
        return Err(Failure::new(Errno::INVAL, cause, format!("choose 0 to {DSCP_MAX}")));
    }
    let (port, own) = (attr.port, path.src.to_ip());
    let index = found.served.calls.call(move |thread| Ok(thread.gid_index(port, own)))?;
    let gone = || Failure::absent("address", &own.to_string(), "show gid");
    let level = path.vlan.map_or(0, |vlan| vlan.pcp);
    Ok(AddressVector {
        sgid_index: index.ok_or_else(gone)?,
        traffic_class,
        flow_label: path.flow_label,
        udp_source_port: path.src_port,
        hop_limit: path.hop_limit,
        service_level: class.vlan_pcp.unwrap_or(level),
        static_rate: attr.path.rate,
        ..AddressVector::to(path.dst)
    })
}
