//! Texts of devices, in the layout of `ibv_devinfo`.

use super::{or_dash, pairs, state_of};
use crate::answer::{Device, InUse, PortInfo};

/// Returns the text of `show device`, with `detail` if the answer has it.
pub(super) fn device(device: &Device) -> String {
    let of = |in_use: InUse| format!("{} of {}", in_use.count, in_use.max);
    let head = [
        ("node_guid", device.guid.clone()),
        ("state", state_of(device.running).to_owned()),
        ("lcores", device.lcores.to_string()),
        ("qps", of(device.qps)),
        ("mrs", of(device.mrs)),
        ("ahs", of(device.ahs)),
        ("phys_port_cnt", device.ports.len().to_string()),
    ];
    let mut head = head.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let detail = device.detail.as_ref();
    if let Some(detail) = detail {
        // The number of ports stands before the ports.
        head.splice(1..1, detail.attributes.iter().cloned());
    }
    let mut text = pairs(&format!("hca_id: {}", device.name), &head);
    for port in &device.ports {
        let more =
            detail.and_then(|detail| detail.ports.iter().find(|of| of.number == port.number));
        let mut attributes = of_port(port);
        attributes.extend(more.into_iter().flat_map(|more| more.attributes.iter().cloned()));
        let width = attributes.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 2;
        for (name, value) in attributes {
            let name = format!("{name}:");
            text.push_str(&format!("        port {:<3} {name:<width$} {value}\n", port.number));
        }
    }
    text
}

fn of_port(port: &PortInfo) -> Vec<(String, String)> {
    let state = if port.up { "PORT_ACTIVE (4)" } else { "PORT_DOWN (1)" };
    let attributes = [
        ("state", state.to_owned()),
        ("dpdk_port", port.port.to_string()),
        ("active_mtu", or_dash(port.path_mtu)),
        ("link_layer", "Ethernet".to_owned()),
        ("mac", port.mac.clone()),
    ];
    let addresses = port.addresses.iter().map(|address| ("address", address.to_string()));
    let attributes = attributes.into_iter().chain(addresses);
    attributes.map(|(name, value)| (name.to_owned(), value)).collect()
}
