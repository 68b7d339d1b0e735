//! The table of checks: what the NIC must do, and the test that shows it.

use crate::cli::NicArgs;
use crate::error::{BenchError, Step};
use crate::pin::Side;
use uroce::Mac;
use uroce::config::{Config, DeviceConfig, Lcores, PortConfig};

/// An Ethernet address that is not the NIC's own.
const OTHER_MAC: Mac = Mac([0x02, 0, 0, 0x77, 0, 1]);
/// VLAN of the check of tags.
const VLAN: u16 = 77;
/// Addresses of the server's port and of the client's (RFC 2544's and RFC 5180's ranges).
const ADDRESSES: [[&str; 2]; 2] =
    [["198.18.0.1/24", "2001:2::1/64"], ["198.18.0.2/24", "2001:2::2/64"]];

/// A property of a NIC.
#[derive(Debug)]
pub(super) struct Check {
    /// Name for `--only` and the report.
    pub(super) name: &'static str,
    /// What the check does.
    pub(super) what: &'static str,
    /// Advice to a user of a NIC without the property.
    pub(super) remedy: &'static str,
    /// What is run.
    pub(super) kind: Kind,
    /// The test of uroce-perf, with its options.
    pub(super) words: &'static [&'static str],
    /// Configuration of the ports.
    pub(super) setting: Setting,
}

/// What is run for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The test once, each byte verified.
    Verified,
    /// The test on as many lcores as the NIC has queue pairs for, each byte verified, and packets
    /// by each receive queue.
    Lcores,
    /// The test once, each byte verified, while the client's port is disturbed.
    Disturbed {
        /// What is done, in turn: what the user is asked for, if anything, and a command of
        /// `uroce`.
        steps: &'static [(&'static str, &'static str)],
        /// Without which the check is not run.
        needs: Needs,
    },
    /// The test twice: killed amid traffic, then to its end.
    Restart,
    /// The test once, for a figure of its JSON.
    Figure {
        /// Key of the figure.
        key: &'static str,
        /// Unit of the figure.
        unit: &'static str,
    },
}

/// What a check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A NIC: only NICs are reset here.
    Nic,
    /// Someone at the NIC; the check is named by the user then.
    Hand,
}

impl Kind {
    /// Returns whether someone has to be at the NIC.
    pub(super) fn is_by_hand(self) -> bool {
        matches!(self, Kind::Disturbed { needs: Needs::Hand, .. })
    }
}

/// Configuration of the ports for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// MTU of the ports.
    pub(super) mtu: u16,
    /// Whether frames have a VLAN tag.
    pub(super) tagged: bool,
    /// Whether the client's port has an Ethernet address that is not the NIC's own.
    pub(super) other_mac: bool,
}

const PLAIN: Setting = Setting { mtu: 1500, tagged: false, other_mac: false };
const START: &[&str] = &["write_bw", "-s", "65536", "-n", "100", "-m", "1024", "--verify"];

/// Traffic of some eight seconds, 16 MB at 16 Mb/s. It endures a minute without a link: seven times
/// a packet is sent again, after 8.6 s or more if the round trip is not known.
#[rustfmt::skip]
const EIGHT_SECONDS: &[&str] = &[
    "write_bw", "-s", "16384", "-n", "1000", "-m", "1024", "--verify", "-u", "21",
    "--rate_limit_type", "PP", "--rate_limit", "16000",
];
/// Such traffic for some 25 seconds, longer than someone takes to pull a cable.
#[rustfmt::skip]
const LONG: &[&str] = &[
    "write_bw", "-s", "16384", "-n", "3000", "-m", "1024", "--verify", "-u", "21",
    "--rate_limit_type", "PP", "--rate_limit", "16000",
];

/// All checks, in their order.
pub(super) static CHECKS: &[Check] = &[
    Check {
        name: "start",
        what: "starts with MTU 1500; WRITE with path MTU 1024",
        remedy: "check the cable and that both ends are on one Ethernet",
        kind: Kind::Verified,
        words: START,
        setting: PLAIN,
    },
    Check {
        name: "mtu-4200",
        what: "MTU 4200; READ with path MTU 4096",
        remedy: "use `mtu = 1500`; check that the switch passes frames of 4218 bytes",
        kind: Kind::Verified,
        words: &["read_bw", "-s", "65536", "-n", "100", "-m", "4096", "--verify"],
        setting: Setting { mtu: 4200, ..PLAIN },
    },
    Check {
        name: "mtu-9000",
        what: "MTU 9000; SEND with path MTU 4096",
        remedy: "use `mtu = 4200`; check that the switch passes frames of 9018 bytes",
        kind: Kind::Verified,
        words: &["send_bw", "-s", "65536", "-n", "100", "-m", "4096", "--verify"],
        setting: Setting { mtu: 9000, ..PLAIN },
    },
    Check {
        name: "atomics",
        what: "FETCH_ADD",
        remedy: "report it: atomics need nothing of a NIC",
        kind: Kind::Verified,
        words: &["atomic_bw", "-n", "100", "-m", "1024", "--verify"],
        setting: PLAIN,
    },
    Check {
        name: "multicast",
        what: "IPv6: the neighbour is found by its multicast group",
        remedy: "use IPv4 addresses, or switch off multicast snooping at the switch",
        kind: Kind::Verified,
        words: &["send_bw", "-s", "65536", "-n", "50", "-m", "1024", "-x", "1", "--verify"],
        setting: PLAIN,
    },
    Check {
        name: "promiscuous",
        what: "receives for an Ethernet address that is not its own",
        remedy: "do not set `mac` in the configuration",
        kind: Kind::Verified,
        words: &["write_bw", "-s", "65536", "-n", "50", "-m", "1024", "--verify"],
        setting: Setting { other_mac: true, ..PLAIN },
    },
    Check {
        name: "vlan",
        what: "frames with a VLAN tag, MTU 4200",
        remedy: "let the switch pass VLAN 77 for this check, or do not set `vlan`",
        kind: Kind::Verified,
        words: &["write_bw", "-s", "65536", "-n", "50", "-m", "4096", "--verify"],
        setting: Setting { mtu: 4200, tagged: true, ..PLAIN },
    },
    Check {
        name: "lcores",
        what: "as many lcores as the NIC has queue pairs for, each with QPs; each queue receives",
        remedy: "the driver reports more queues than the NIC serves: use `lcores = 1`",
        kind: Kind::Lcores,
        words: &["write_bw", "-s", "16384", "-n", "20", "-m", "1024", "--lcore-thread", "--verify"],
        setting: PLAIN,
    },
    Check {
        name: "reset",
        what: "the port is reset under a connection, which goes on",
        remedy: "do not use `port reset`: end the process and start it again",
        kind: Kind::Disturbed {
            steps: &[("", "port reset 0 force"), ("", "wait link 0 up timeout 20000")],
            needs: Needs::Nic,
        },
        words: EIGHT_SECONDS,
        setting: PLAIN,
    },
    Check {
        name: "restart",
        what: "starts again after its process was killed amid traffic",
        remedy: "reset the NIC before a start: echo 1 >/sys/bus/pci/devices/ADDR/reset",
        kind: Kind::Restart,
        words: START,
        setting: PLAIN,
    },
    Check {
        name: "cable",
        what: "only if named: pulled and put back by hand under a connection, which goes on",
        remedy: "failover needs a link whose state is seen: report it with the driver's name",
        kind: Kind::Disturbed {
            steps: &[
                ("PULL THE CABLE within 15 seconds", "wait link 0 down timeout 15000"),
                ("PUT THE CABLE BACK within 15 seconds", "wait link 0 up timeout 15000"),
            ],
            needs: Needs::Hand,
        },
        words: LONG,
        setting: PLAIN,
    },
    Check {
        name: "bandwidth",
        what: "WRITE of 64 KiB for two seconds, MTU 1500",
        remedy: "see start",
        kind: Kind::Figure { key: "BW_average", unit: "Gb/s" },
        words: &["write_bw", "-s", "65536", "-D", "2", "-m", "1024", "--report_gbits"],
        setting: PLAIN,
    },
    Check {
        name: "rate",
        what: "WRITE of 8 bytes on four QPs for two seconds",
        remedy: "see start",
        kind: Kind::Figure { key: "MsgRate", unit: "million messages/s" },
        words: &["write_bw", "-s", "8", "-q", "4", "-D", "2", "-m", "1024"],
        setting: PLAIN,
    },
    Check {
        name: "latency",
        what: "half a round trip of WRITE of 8 bytes",
        remedy: "see start",
        kind: Kind::Figure { key: "t_typical", unit: "us" },
        words: &["write_lat", "-s", "8", "-n", "10000", "-m", "1024"],
        setting: PLAIN,
    },
];

/// Words that make a test last until it is killed.
pub(super) const ENDLESS: &[&str] = &["write_bw", "-s", "65536", "-D", "50", "-m", "1024"];

/// Returns the check of this name.
pub(super) fn named(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

/// Returns the configuration of one end for a check, as TOML.
pub(super) fn configuration(
    nic: &NicArgs,
    side: Side,
    setting: Setting,
    lcores: u16,
) -> Result<String, BenchError> {
    let port = match (&nic.vdev, &nic.pci) {
        (Some(devargs), _) => PortConfig::vdev(devargs),
        (None, address) => PortConfig::pci(address.as_deref().unwrap_or_default()),
    };
    let mut port = port.mtu(setting.mtu);
    for address in ADDRESSES[usize::from(side == Side::Client)] {
        port = port.ip(address).step("an address")?;
    }
    port.vlan = setting.tagged.then_some(VLAN);
    port.mac = (setting.other_mac && side == Side::Client).then_some(OTHER_MAC);
    let mut config =
        Config::new().device(DeviceConfig::new("nic").lcores(Lcores::Count(lcores)).port(port));
    config.eal.huge = nic.huge;
    config.to_toml().step("writing the configuration")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_a_configuration_is_accepted() {
        let nic = NicArgs { pci: Some("0000:01:00.0".into()), huge: true, ..NicArgs::default() };
        for check in CHECKS {
            assert!(std::ptr::eq(named(check.name).expect("found"), check), "{}", check.name);
            for side in [Side::Server, Side::Client] {
                let text = configuration(&nic, side, check.setting, 2).expect("written");
                let config = Config::from_toml(&text).expect("read");
                config.check().expect("accepted");
                let port = &config.devices[0].ports[0];
                assert_eq!(port.vlan.is_some(), check.name == "vlan");
                assert_eq!(port.mac.is_some(), check.name == "promiscuous" && side == Side::Client);
                assert!(config.eal.huge);
            }
        }
    }
}
