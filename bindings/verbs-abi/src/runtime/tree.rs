//! The tree: files that the path shim shows to programs under /sys/class/infiniband and
//! /dev/infiniband.
//!
//! ```text
//!   RUN/trees/DIGEST/class/infiniband/uroce0/ports/1/gid_attrs/types/0    "RoCE v2"
//!                    class/infiniband_verbs/uverbs0/ibdev                 "uroce0"
//!                    dev/infiniband/uverbs0 -> /dev/null
//! ```
//!
//! Invariants
//! - A tree's name is a digest of its contents. Only its counters change, and it is renamed into
//!   place when complete, so a tree that exists is whole.
//! - A file that exists in the kernel's tree but cannot be read, such as the type of an empty GID,
//!   also exists here and fails with the same error.
//!
//! A port's state is always ACTIVE, because some programs skip a device with an inactive port; only
//! `ibv_query_port` gives the true state. A port's rate is the one known when the engine started.
//!
//! Not here: writing the counters (module `counting`).

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use uroce::config::{Ethdev, PortConfig};
use uroce::{Config, Context, Gid, PortAttr};

use super::problem::Problem;
use super::{config, place, speed};

/// Environment variable that names a kernel interface to show for ports without one, instead of
/// [`LOOPBACK`].
pub(crate) const NETDEV: &str = "UROCE_NETDEV";

/// The interface to show for ports without one. Programs skip a port if they cannot read its
/// interface, and this one exists in every network namespace, always with the same index.
const LOOPBACK: &str = "lo";

/// Port capabilities: connection manager (1 << 16) and GIDs that are IP addresses (1 << 26).
pub(crate) const PORT_CAPS: u32 = 0x0401_0000;

/// A file that exists wherever there is a loopback interface and fails with EINVAL when read, as
/// loopback has no speed.
const UNREADABLE: &str = "/sys/class/net/lo/speed";

/// A port's attributes, and its rate in Mb/s if it is known.
pub(crate) struct Port {
    pub(crate) attr: PortAttr,
    pub(crate) mbps: Option<u32>,
}

/// The ports of a device that does not run. Empty if they cannot be derived from the configuration.
pub(crate) fn preview(config: &Config, index: usize) -> Vec<Port> {
    let attrs = Context::preview(config, &config.devices[index].name).ok().flatten();
    attrs.unwrap_or_default().into_iter().map(|attr| Port { attr, mbps: None }).collect()
}

/// The interface that `UROCE_NETDEV` names, if it is a valid interface name.
#[allow(dead_code, reason = "uroce-run has an option as well")]
pub(crate) fn named_netdev() -> Option<String> {
    let name = place::variable(NETDEV).and_then(|name| name.into_string().ok());
    name.filter(|name| is_interface(name))
}

/// The kernel interface to show for a port: the one behind it, else `named`, else the loopback
/// interface.
pub(crate) fn netdev_of(port: &PortConfig, named: Option<&str>) -> String {
    port.netdev_name().or(named).unwrap_or(LOOPBACK).to_owned()
}

/// An entry of the tree: a file with its text, a link with its target, or a directory.
enum Entry {
    File(String),
    Link(PathBuf),
    Directory,
}

/// The contents of a tree, by path.
#[derive(Default)]
struct Files {
    entries: Vec<(String, Entry)>,
    /// The interface that the user has named for ports without one.
    netdev: Option<String>,
}

/// Writes the tree of these devices, unless it exists, and returns its path. `ports` gives the
/// known ports of the device with an index. `netdev` is shown for ports without a kernel interface.
///
/// # Errors
///
/// [`Problem`] if the tree cannot be written.
pub(crate) fn write(
    config: &Config,
    ports: impl Fn(usize) -> Vec<Port>,
    netdev: Option<&str>,
) -> Result<PathBuf, Problem> {
    let netdev = netdev.filter(|name| is_interface(name)).map(str::to_owned);
    let mut files = Files { netdev, ..Files::default() };
    for index in 0..config.devices.len() {
        files.device(config, index, &ports(index));
    }
    files.file("class/infiniband_verbs/abi_version", "6");
    let trees = place::sub_dir("trees")?;
    let tree = trees.join(format!("{:016x}", files.digest()));
    if !tree.is_dir() {
        make(&tree, &files).map_err(|error| Problem::File { path: tree.clone(), error })?;
    }
    Ok(tree)
}

fn make(tree: &Path, files: &Files) -> io::Result<()> {
    let new = place::unfinished(tree);
    let made = fill(&new, files).and_then(|()| fs::rename(&new, tree));
    if made.is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    // Another process may have made the tree in the meantime.
    if tree.is_dir() { Ok(()) } else { made }
}

fn fill(root: &Path, files: &Files) -> io::Result<()> {
    // Removes what an earlier process with the same number has left.
    let _ = fs::remove_dir_all(root);
    for (name, entry) in &files.entries {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match entry {
            Entry::File(text) => fs::write(&path, text)?,
            Entry::Link(target) => symlink(target, &path)?,
            Entry::Directory => fs::create_dir_all(&path)?,
        }
    }
    Ok(())
}

impl Files {
    fn file(&mut self, path: &str, text: &str) {
        self.entries.push((path.to_owned(), Entry::File(format!("{text}\n"))));
    }

    fn link(&mut self, path: &str, target: &str) {
        self.entries.push((path.to_owned(), Entry::Link(PathBuf::from(target))));
    }

    fn digest(&self) -> u64 {
        let mut all = String::new();
        for (path, entry) in &self.entries {
            // Writing to a `String` does not fail.
            let _ = match entry {
                Entry::File(text) => writeln!(all, "{path}={text}"),
                Entry::Link(target) => writeln!(all, "{path}>{}", target.display()),
                Entry::Directory => writeln!(all, "{path}/"),
            };
        }
        place::digest(&all)
    }

    fn device(&mut self, config: &Config, index: usize, ports: &[Port]) {
        let device = &config.devices[index];
        let name = &device.name;
        let base = format!("class/infiniband/{name}");
        let mac = ports.first().map_or(uroce::Mac([0; 6]), |port| port.attr.mac);
        let guid = groups(&config::guid(mac, device).to_be_bytes());
        for (file, text) in [
            ("node_type", "1: CA"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("node_desc", name),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hca_type", "uroce"),
            ("board_id", "uroce"),
            ("hw_rev", "0"),
        ] {
            self.file(&format!("{base}/{file}"), text);
        }
        for (port, number) in device.ports.iter().zip(1u8..) {
            let seen = ports.iter().find(|port| port.attr.number == number);
            self.port(&format!("{base}/ports/{number}"), port, seen);
        }
        self.entries.push((format!("{base}/hw_counters"), Entry::Directory));
        // With one port, the port's counts are the device's.
        if device.ports.len() == 1 {
            self.link(&format!("{base}/ports/1/hw_counters"), "../../hw_counters");
        }
        self.below(&base, &device.ports);
        let verbs = format!("class/infiniband_verbs/uverbs{index}");
        self.file(&format!("{verbs}/ibdev"), name);
        self.file(&format!("{verbs}/abi_version"), "1");
        self.link(&format!("dev/infiniband/uverbs{index}"), "/dev/null");
    }

    fn port(&mut self, base: &str, port: &PortConfig, seen: Option<&Port>) {
        for (file, text) in [
            ("link_layer", "Ethernet"),
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", &speed::text(seen.and_then(|port| port.mbps))),
            ("cap_mask", &format!("{PORT_CAPS:#010x}")),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("lid", &format!("{:#x}", config::lid(port))),
            ("lid_mask_count", "0"),
            ("pkeys/0", "0xffff"),
        ] {
            self.file(&format!("{base}/{file}"), text);
        }
        for (counter, _) in uroce::PortStats::default().linux() {
            self.file(&format!("{base}/counters/{counter}"), "0");
        }
        let gids = seen.map_or(&[][..], |port| &port.attr.gids);
        let netdev = netdev_of(port, self.netdev.as_deref());
        for index in 0..config::gid_table_len(gids.len()) {
            let gid = gids.get(index).copied().unwrap_or_default();
            self.file(&format!("{base}/gids/{index}"), &groups(&gid.0));
            let is_empty = gid == Gid::default();
            let [kind, ndev] =
                ["types", "ndevs"].map(|of| format!("{base}/gid_attrs/{of}/{index}"));
            if is_empty {
                self.link(&kind, UNREADABLE);
                self.link(&ndev, UNREADABLE);
            } else {
                self.file(&kind, "RoCE v2");
                self.file(&ndev, &netdev);
            }
        }
    }

    /// Adds the device's `device` entry: a link to the NIC in /sys, or a directory with the kernel
    /// interfaces behind the ports.
    fn below(&mut self, base: &str, ports: &[PortConfig]) {
        let pci = ports.iter().find_map(|port| match &port.ethdev {
            Ethdev::Pci(address) => Some(format!("/sys/bus/pci/devices/{address}")),
            Ethdev::Vdev(_) | Ethdev::Ring(_) | Ethdev::Local(_) | Ethdev::Udp(_) => None,
        });
        if let Some(pci) = pci {
            return self.link(&format!("{base}/device"), &pci);
        }
        self.entries.push((format!("{base}/device/net"), Entry::Directory));
        let mut names: Vec<String> =
            ports.iter().map(|port| netdev_of(port, self.netdev.as_deref())).collect();
        names.sort();
        names.dedup();
        for name in names {
            self.link(&format!("{base}/device/net/{name}"), &format!("/sys/class/net/{name}"));
        }
    }
}

fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len()) && !name.contains(['/', ' ']) && name != "." && name != ".."
}

/// Hexadecimal digits in groups of four, the kernel's format of GUIDs and GIDs.
fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_shows_the_attributes_of_the_device() {
        let [one, two] = [1, 2].map(|number| {
            let mut identity = config::embedded().unwrap();
            let port = &mut identity.config.devices[0].ports[0];
            *port = port.clone().as_member(number);
            identity
        });
        let write = |config: &Config| write(config, |index| preview(config, index), None).unwrap();
        let tree = write(&one.config);
        assert_eq!(write(&one.config), tree);
        assert_ne!(write(&two.config), tree);
        let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap();
        let device = "class/infiniband/uroce0";
        assert_eq!(read(&format!("{device}/node_guid")), "0075:72ff:fe6f:6301\n");
        let port = format!("{device}/ports/1");
        let gid = "0000:0000:0000:0000:0000:ffff:c000:0201\n";
        assert_eq!(read(&format!("{port}/gids/0")), gid);
        assert_eq!(read(&format!("{port}/gid_attrs/types/1")), "RoCE v2\n");
        // An empty entry exists, but its attributes cannot be read.
        assert_eq!(read(&format!("{port}/gids/2")), format!("{}\n", groups(&[0; 16])));
        assert!(tree.join(format!("{port}/gids/15")).exists());
        assert!(!tree.join(format!("{port}/gids/16")).exists());
        assert_eq!(read(&format!("{port}/gid_attrs/ndevs/1")), "lo\n");
        for of in ["types/2", "types/15", "ndevs/2", "ndevs/15"] {
            let error =
                fs::read_to_string(tree.join(format!("{port}/gid_attrs/{of}"))).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{of}");
        }
        for (file, text) in [
            ("rate", "2.5 Gb/sec (1X SDR)\n"),
            ("cap_mask", "0x04010000\n"),
            ("sm_lid", "0x0\n"),
            ("sm_sl", "0\n"),
            ("lid_mask_count", "0\n"),
            ("counters/port_rcv_data", "0\n"),
        ] {
            assert_eq!(read(&format!("{port}/{file}")), text);
        }
        assert_eq!(read(&format!("{port}/lid")), "0x201\n");
        assert_eq!(read(&format!("{port}/state")), "4: ACTIVE\n");
        assert_eq!(read("class/infiniband_verbs/uverbs0/ibdev"), "uroce0\n");
        assert_eq!(
            fs::read_link(tree.join("dev/infiniband/uverbs0")).unwrap(),
            Path::new("/dev/null")
        );
    }

    #[test]
    fn an_interface_behind_a_port_is_named() {
        let mut files = Files::default();
        let port = PortConfig::vdev("net_af_packet0,iface=eth7");
        files.below("d", &[port.clone(), port]);
        let paths: Vec<&str> = files.entries.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["d/device/net", "d/device/net/eth7"]);
        assert!(!is_interface("../x") && !is_interface("") && is_interface("lo"));
    }
}
