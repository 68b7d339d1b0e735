//! Texts of ports, in testpmd's layout.

use super::or_dash;
use crate::answer::{
    FeatureBy, PortCap, PortFeature, PortInfo, PortReta, PortStats, PortXstats, QueueInfo,
};

/// Returns the text of `show port info`.
pub(super) fn info(port: &PortInfo) -> String {
    let stars = "*".repeat(21);
    let mut text = format!("\n{stars} Infos for port {:<2} {stars}\n", port.port);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name}: {value}\n"));
    line("MAC address", port.mac.clone());
    line("Device name", port.name.clone());
    line("Driver name", port.driver.clone());
    line("Connect to socket", or_dash(port.numa_node));
    line("Link status", status(port.up).to_owned());
    line("Link speed", speed(port.speed_mbps));
    if let Some(full) = port.full_duplex {
        line("Link duplex", (if full { "full-duplex" } else { "half-duplex" }).to_owned());
    }
    if let Some(autoneg) = port.autoneg {
        line("Autoneg status", (if autoneg { "On" } else { "Off" }).to_owned());
    }
    if let Some(fec) = &port.fec {
        line("FEC mode", fec.clone());
    }
    if let Some((rx, tx)) = port.pause {
        let on = |on| if on { "on" } else { "off" };
        line("Flow control", format!("Rx pause: {}, Tx pause: {}", on(rx), on(tx)));
    }
    line("MTU", port.mtu.to_string());
    line("VLAN", or_dash(port.vlan));
    line("Current number of RX queues", port.queue_pairs.to_string());
    line("Max possible RX queues", port.max_queue_pairs.to_string());
    line("Current number of TX queues", port.queue_pairs.to_string());
    line("Max possible TX queues", port.max_queue_pairs.to_string());
    line("RoCE device", format!("{}, port {}", port.device, port.number));
    line("Path MTU", or_dash(port.path_mtu));
    if port.tx_rate_mbps.is_some() {
        line("TX rate limit", speed(port.tx_rate_mbps));
    }
    for address in &port.addresses {
        line("IP address", address.to_string());
    }
    text
}

/// Returns the text of `show port summary`.
pub(super) fn summary(ports: &[PortInfo]) -> String {
    let mut text = format!("Number of available ports: {}\n", ports.len());
    let mut line = |cells: [&str; 6]| {
        let [port, mac, name, driver, status, link] = cells;
        text.push_str(&format!("{port:<4} {mac:<17} {name:<12} {driver:<14} {status:<8} {link}\n"));
    };
    line(["Port", "MAC Address", "Name", "Driver", "Status", "Link"]);
    for port in ports {
        let (number, link) = (port.port.to_string(), speed(port.speed_mbps));
        line([&number, &port.mac, &port.name, &port.driver, status(port.up), &link]);
    }
    text
}

/// Returns the text of `show port stats`.
pub(super) fn stats(of: &PortStats) -> String {
    let border = "#".repeat(24);
    format!(
        "\n  {border} NIC statistics for port {:<2} {border}\n  \
         RX-packets: {:<10} RX-missed: {:<10} RX-bytes:  {}\n  \
         RX-errors: {}\n  \
         RX-nombuf:  {:<10}\n  \
         TX-packets: {:<10} TX-errors: {:<10} TX-bytes:  {}\n\n  \
         Throughput (since last show)\n  \
         Rx-pps: {:>12}          Rx-bps: {:>12}\n  \
         Tx-pps: {:>12}          Tx-bps: {:>12}\n  \
         {border}############################{border}\n",
        of.port,
        of.rx_packets,
        of.rx_missed,
        of.rx_bytes,
        of.rx_errors,
        of.rx_nombuf,
        of.tx_packets,
        of.tx_errors,
        of.tx_bytes,
        of.rx_pps,
        of.rx_bps,
        of.tx_pps,
        of.tx_bps,
    )
}

/// Returns the text of `show port xstats`.
pub(super) fn xstats(of: &PortXstats) -> String {
    let mut text = format!("###### NIC extended statistics for port {:<2}\n", of.port);
    for (name, value) in &of.xstats {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text
}

/// Returns the text of `show port cap`.
pub(super) fn capabilities(of: &PortCap) -> String {
    let stars = "*".repeat(12);
    let mut text = format!("\n{stars} Port {} supported features: {stars}\n", of.port);
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{:<20}{value}\n", format!("{name}:")));
    };
    line("Max MTU", &or_dash(of.max_mtu));
    line("Max queue pairs", &of.max_queue_pairs.to_string());
    for PortFeature { name, by, device_could, why } in &of.features {
        let by = match (by, device_could) {
            (FeatureBy::Device, _) => "supported",
            (FeatureBy::Software, true) => "in software, though supported",
            (FeatureBy::Software, false) => "in software",
            (FeatureBy::Nothing, _) => "not used",
        };
        match &why[..] {
            "" => line(name, by),
            why => line(name, &format!("{by}: {why}")),
        }
    }
    text
}

/// Returns the text of `show port rss reta`.
pub(super) fn reta(of: &PortReta) -> String {
    let Some(queues) = &of.queues else {
        return format!(
            "Port {}: the driver {} has no RSS redirection table, or does not tell it\n",
            of.port, of.driver,
        );
    };
    let mut text = format!("Port {}, {} entries\n", of.port, queues.len());
    for (index, queue) in queues.iter().enumerate() {
        text.push_str(&format!("RSS RETA configuration: hash index={index}, queue={queue}\n"));
    }
    text
}

/// Returns the text of `show rxq info` and `show txq info`.
pub(super) fn queue(of: &QueueInfo) -> String {
    let stars = "*".repeat(21);
    let (long, short) = if of.is_tx { ("TX", "TXDs") } else { ("RX", "RXDs") };
    let mbufs = of.mbufs.map_or_else(|| "by default".to_owned(), |mbufs| mbufs.to_string());
    let descriptors = of.descriptors.map_or_else(|| "none".to_owned(), |count| count.to_string());
    format!(
        "\n{stars} Infos for port {:<2}, {long} queue {:<2} {stars}\n\
         Packet buffers: {mbufs}\n\
         Number of {short}: {descriptors}\n\
         Lcore: {}\n",
        of.port, of.queue, of.lcore,
    )
}

fn status(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// Returns a link rate in DPDK's form.
fn speed(mbps: Option<u32>) -> String {
    match mbps {
        None => "Unknown".to_owned(),
        Some(0) => "None".to_owned(),
        Some(mbps) if mbps < 1000 => format!("{mbps} Mbps"),
        Some(mbps) if mbps.is_multiple_of(1000) => format!("{} Gbps", mbps / 1000),
        Some(mbps) => format!("{}.{} Gbps", mbps / 1000, mbps % 1000 / 100),
    }
}
