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
}

impl Capabilities {
    /// Returns all features.
    pub fn features(&self) -> [Feature; 7] {
        // Packets for another lcore's QP are handed over; a link that does not report is asked.
        let used = |name, has: bool| Feature { name, by: by(has, has) };
        // A sent packet's checksum is that of its path with the length added, and its tag is part
        // of the path's header. A received packet's header is in the cache when it is read.
        let unused = |name, has: bool| Feature { name, by: by(false, has) };
        [
            used("RSS", self.rss),
            used("RSS steering", self.steering),
            unused("RX checksum", self.rx_checksum),
            unused("TX checksum", self.tx_checksum),
            unused("VLAN strip", self.vlan_strip),
            unused("VLAN insert", self.vlan_insert),
            used("Link interrupt", self.link_interrupt),
        ]
    }
}

fn by(device: bool, device_could: bool) -> By {
    if device { By::Device } else { By::Software { device_could } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_lacks_and_what_costs_less_there_is_done_in_software() {
        let of = |rss, rx_checksum| Capabilities {
            name: "0000:01:00.0".into(),
            driver: "net_x".into(),
            max_queue_pairs: 4,
            silent_queue: None,
            max_mtu: None,
            rss,
            steering: false,
            rx_checksum,
            tx_checksum: false,
            vlan_strip: false,
            vlan_insert: false,
            link_interrupt: false,
            numa_node: None,
        };
        let by = |capabilities: Capabilities, name| {
            let features = capabilities.features();
            features.iter().find(|feature| feature.name == name).expect("a feature").by
        };
        assert_eq!(by(of(true, true), "RSS"), By::Device);
        assert_eq!(by(of(false, true), "RSS"), By::Software { device_could: false });
        assert_eq!(by(of(true, true), "RX checksum"), By::Software { device_could: true });
        assert_eq!(by(of(true, false), "RX checksum"), By::Software { device_could: false });
    }
}
