//! Features: what a NIC may take over, and whether it does so here.
//!
//! What a NIC lacks is done in software. Some features stay in software even if the NIC has them,
//! because they cost less there.

use super::Capabilities;

/// A feature, and what provides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name, like testpmd's.
    pub name: &'static str,
    /// What provides it.
    pub by: By,
    /// The reason why it is not the device's, where no device is asked for it; else empty.
    pub why: &'static str,
}

/// What provides a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The device.
    Device,
    /// uroce.
    Software {
        /// Whether the device could.
        device_could: bool,
    },
    /// Nothing: it is not used.
    Nothing,
}

/// Returns the features of a device. `steers` tells whether its RSS table is set, so that packets
/// arrive at the lcores that own their QPs.
pub(crate) fn of_device(of: &Capabilities, steers: bool) -> Vec<Feature> {
    let row = |name, is_used: bool, has: bool| Feature { name, by: by(is_used, has), why: "" };
    let never = |name, by, why| Feature { name, by, why };
    let software = By::Software { device_could: false };
    vec![
        Feature { why: rss_of(of), ..row("RSS", of.rss, of.rss) },
        // Packets for another lcore's QP are handed over.
        row("RSS steering", steers, of.steering),
        // A sent packet's checksum is that of its path with the length added, and its tag is part
        // of the path's header. A received packet's header is in the cache when it is read.
        row("RX checksum", false, of.rx_checksum),
        row("TX checksum", false, of.tx_checksum),
        row("VLAN strip", false, of.vlan_strip),
        row("VLAN insert", false, of.vlan_insert),
        // Payload is copied and summed in one pass, so that a packet is in one buffer.
        row("TX segments", false, of.tx_segments),
        // A link that does not report is asked.
        row("Link interrupt", of.link_interrupt, of.has_link_interrupt),
        never("TX rate limit", software, "lcores pace each QP; a NIC would pace a whole queue"),
        never("Flow rules", By::Nothing, "no rule on the destination QP before DPDK 23.07"),
        never("PAUSE, PFC", By::Nothing, "as the NIC is set, but for `pause` and `pfc` of a port"),
    ]
}

/// Returns the features of a port over the kernel's sockets, which make and read the headers.
pub(crate) fn of_kernel(of: &Capabilities) -> Vec<Feature> {
    let row = |name, has: bool| Feature { name, by: by(has, has), why: "" };
    let headers = ["RX checksum", "TX checksum", "VLAN strip", "VLAN insert"];
    let headers = headers.into_iter().map(|name| row(name, true));
    [row("RSS", of.rss)].into_iter().chain(headers).collect()
}

/// Tells what of a flow chooses the queue, if it is not all of it.
fn rss_of(of: &Capabilities) -> &'static str {
    if of.rss && !of.rss_ports { "by addresses only" } else { "" }
}

fn by(device: bool, device_could: bool) -> By {
    if device { By::Device } else { By::Software { device_could } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LACKS_ALL: Capabilities = Capabilities {
        name: String::new(),
        driver: String::new(),
        max_queue_pairs: 4,
        max_mtu: None,
        rss: false,
        rss_ports: false,
        steering: false,
        rx_checksum: false,
        tx_checksum: false,
        vlan_strip: false,
        vlan_insert: false,
        tx_segments: false,
        has_link_interrupt: false,
        link_interrupt: false,
        numa_node: None,
    };

    fn by_of(features: &[Feature], name: &str) -> By {
        features.iter().find(|feature| feature.name == name).expect("a feature").by
    }

    #[test]
    fn what_a_device_lacks_and_what_costs_less_there_is_done_in_software() {
        let has = Capabilities {
            rss: true,
            steering: true,
            rx_checksum: true,
            has_link_interrupt: true,
            ..LACKS_ALL
        };
        let (has, lacks) = (of_device(&has, false), of_device(&LACKS_ALL, false));
        assert_eq!(by_of(&has, "RSS"), By::Device);
        for name in ["RSS steering", "RX checksum", "Link interrupt"] {
            assert_eq!(by_of(&has, name), By::Software { device_could: true }, "{name}");
        }
        for name in ["RSS", "RSS steering", "RX checksum", "Link interrupt", "TX rate limit"] {
            assert_eq!(by_of(&lacks, name), By::Software { device_could: false }, "{name}");
        }
        assert_eq!(by_of(&of_device(&LACKS_ALL, true), "RSS steering"), By::Device);
        let why = |of: Capabilities| of_device(&of, false)[0].why;
        assert_eq!(why(Capabilities { rss: true, ..LACKS_ALL }), "by addresses only");
        assert_eq!(why(Capabilities { rss: true, rss_ports: true, ..LACKS_ALL }), "");
    }

    #[test]
    fn what_no_device_is_asked_for_has_a_reason() {
        for Feature { name, by, why } in of_device(&LACKS_ALL, false) {
            assert!(by != By::Nothing || !why.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_kernel_makes_and_reads_the_headers_of_its_sockets() {
        let features = of_kernel(&LACKS_ALL);
        assert_eq!(by_of(&features, "TX checksum"), By::Device);
        assert_eq!(by_of(&features, "RSS"), By::Software { device_could: false });
    }
}
