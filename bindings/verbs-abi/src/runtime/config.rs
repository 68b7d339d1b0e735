//! The identities that a process can have: one per configuration file.
//!
//! `UROCE_CONFIG` names TOML files, separated by colons. Several files are alternative identities:
//! a process takes the first that no other process has. Without the variable there are two built-in
//! identities, the ends of a memif link, so that two processes on one machine can communicate
//! without any set-up.
//!
//! Invariants
//! - The devices of all identities have the same names in the same order.
//! - A port's Ethernet address is known before the port is opened, except if a NIC or a kernel
//!   interface has its own.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uroce::config::{DeviceConfig, Driver, Ethdev, Idle, PortConfig};
use uroce::vdev::{self, MemifRole};
use uroce::{Config, ConfigError, Mac};

use super::place;
use super::problem::Problem;

/// MTU of the built-in link in bytes; enough for a path MTU of 4096.
pub(crate) const MTU: u16 = 4200;
/// Frames that each direction of the built-in link can hold.
pub(crate) const FRAMES: u32 = 1024;
/// Megabytes for DPDK's packet buffers and queues, without the shared memory of the memif link.
pub(crate) const MEMORY_MB: u32 = 128;

/// Name of the built-in link's socket in the run directory.
pub(crate) const SOCKET: &str = "memif.sock";

/// One of the alternative configurations of a process.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The file's path, or a description of the built-in configuration. For messages.
    pub(crate) source: PathBuf,
    pub(crate) config: Config,
}

/// All identities that this process can have. There is at least one.
///
/// # Errors
///
/// [`Problem`] if a configuration cannot be read or used.
pub(crate) fn identities() -> Result<Vec<Identity>, Problem> {
    match place::variable("UROCE_CONFIG") {
        None => embedded(),
        Some(files) => read(std::env::split_paths(&files).filter(|file| file != Path::new(""))),
    }
}

/// Reads alternative configurations from these files.
///
/// # Errors
///
/// [`Problem`] if a file cannot be read or used, if two have devices of different names, or if
/// there is no file.
pub(crate) fn read(files: impl Iterator<Item = PathBuf>) -> Result<Vec<Identity>, Problem> {
    let mut identities: Vec<Identity> = Vec::new();
    for file in files {
        let config = Config::from_file(&file);
        let config = config.map_err(|error| Problem::Config { file: file.clone(), error })?;
        let identity = Identity { source: file, config: with_macs(config) };
        if let Some(first) = identities.first()
            && !names(&first.config).eq(names(&identity.config))
        {
            let (one, other) = (first.source.clone(), identity.source);
            return Err(Problem::Alternatives { one, other });
        }
        identities.push(identity);
    }
    if identities.is_empty() { Err(Problem::NoFile) } else { Ok(identities) }
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    config.devices.iter().map(|device| device.name.as_str())
}

/// The two built-in identities: the ends of a memif link on this machine.
///
/// # Errors
///
/// [`Problem::NoRunDir`] if there is no directory for the link's socket.
pub(crate) fn embedded() -> Result<Vec<Identity>, Problem> {
    let socket = place::run_dir()?.join(SOCKET);
    let ends = [(MemifRole::Server, 1), (MemifRole::Client, 2)];
    let identities = ends.map(|(role, host)| {
        let config = link_end(role, &socket, &addresses(host));
        let source = PathBuf::from(format!("the built-in configuration of 192.0.2.{host}"));
        config
            .map(|config| Identity { source: source.clone(), config })
            .map_err(|error| Problem::Config { file: source, error })
    });
    identities.into_iter().collect()
}

/// The addresses of end `host` (1 or 2) of the built-in link, from the ranges for documentation
/// (RFC 5737, RFC 3849).
pub(crate) fn addresses(host: u8) -> [String; 2] {
    [format!("192.0.2.{host}/24"), format!("2001:db8::{host}/64")]
}

fn link_end(role: MemifRole, socket: &Path, addresses: &[String]) -> Result<Config, ConfigError> {
    let mut port = PortConfig::vdev(vdev::memif(0, role, socket, MTU, FRAMES)).mtu(MTU);
    port.always_active = true;
    for address in addresses {
        port = port.ip(address).map_err(|error| ConfigError::Value {
            field: "ip".to_owned(),
            reason: error.to_string(),
        })?;
    }
    // A program that polls shares its CPU with the lcore; a program that waits for events leaves
    // the lcore idle most of the time.
    let device = DeviceConfig::new("uroce0").driver(Driver::Poller).idle(Idle::Sleep);
    let mut config = Config::new().device(device.port(port));
    config.eal.memory_mb = MEMORY_MB;
    config.check()?;
    Ok(with_macs(config))
}

/// Gives a derived Ethernet address to each port that would else get a random one from its driver.
fn with_macs(mut config: Config) -> Config {
    for device in &mut config.devices {
        let name = device.name.clone();
        for (port, number) in device.ports.iter_mut().zip(1..) {
            if port.mac.is_none() && is_made_up(port) {
                port.mac = Some(mac_of(port, &format!("{name}/{number}")));
            }
        }
    }
    config
}

/// Whether the port's device has no Ethernet address of its own.
fn is_made_up(port: &PortConfig) -> bool {
    match &port.ethdev {
        Ethdev::Ring(_) => true,
        // Kernel interfaces have addresses, and so have the interfaces that net_tap makes.
        Ethdev::Vdev(devargs) => port.netdev_name().is_none() && !devargs.starts_with("net_tap"),
        Ethdev::Pci(_) => false,
    }
}

/// A locally administered unicast address derived from the port's first IP address. It is as unique
/// on the link as that IP address.
fn mac_of(port: &PortConfig, name: &str) -> Mac {
    match port.ip.first().map(|prefix| prefix.address()) {
        Some(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            Mac([2, 0, a, b, c, d])
        }
        Some(IpAddr::V6(address)) => hashed(&address.to_string()),
        None => hashed(name),
    }
}

fn hashed(text: &str) -> Mac {
    let [a, b, c, d, e, ..] = place::digest(text).to_le_bytes();
    Mac([2, a, b, c, d, e])
}

/// The GUID of a device, derived from its first port's Ethernet address. If the address is known
/// only once the port runs (`mac` is zero), the GUID is derived from the port's resource name.
pub(crate) fn guid(mac: Mac, device: &DeviceConfig) -> u64 {
    let known = if mac.0 == [0; 6] { hashed(&resource(&device.ports[0])) } else { mac };
    let [a, b, c, d, e, f] = known.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The address that a port's LID is derived from: the first IPv4 address. `None` if its prefix is
/// shorter than 16 bits, because one LID would then stand for many hosts.
pub(crate) fn lid_source(port: &PortConfig) -> Option<Ipv4Addr> {
    const SHORTEST_PREFIX: u8 = 16;
    let mut addresses = port.ip.iter().filter_map(|ip| match ip.address() {
        IpAddr::V4(v4) => Some((v4, ip.len())),
        IpAddr::V6(_) => None,
    });
    let (address, len) = addresses.next()?;
    (len >= SHORTEST_PREFIX).then_some(address)
}

/// A port's LID, for programs that exchange LIDs although RoCE has none: the low half of
/// [`lid_source`]. 0 means no LID.
pub(crate) fn lid(port: &PortConfig) -> u16 {
    let [.., high, low] = lid_source(port).unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    u16::from_be_bytes([high, low])
}

/// Number of entries in the GID table of a port with `gids` addresses, the empty ones included. At
/// least 16, and always one more than `gids`; programs read the whole table.
pub(crate) fn gid_table_len(gids: usize) -> usize {
    const LEAST: usize = 16;
    LEAST.max(gids + 1)
}

/// The names of the machine's resources that an identity needs for itself, one per port. Identities
/// with a name in common exclude each other.
pub(crate) fn resources(config: &Config) -> Vec<String> {
    let ports = config.devices.iter().flat_map(|device| &device.ports);
    // Rings are local to the process.
    let shared = ports.filter(|port| !matches!(port.ethdev, Ethdev::Ring(_)));
    shared.map(|port| in_namespace(resource(port), port, namespace())).collect()
}

/// The inode number of the process's network namespace.
fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/net").ok().map(|namespace| namespace.ino())
}

/// Appends the network namespace's number to the name of a resource that exists once per namespace.
fn in_namespace(resource: String, port: &PortConfig, namespace: Option<u64>) -> String {
    let Ethdev::Vdev(devargs) = &port.ethdev else { return resource };
    let has_interface = devargs.contains("iface=") && !devargs.starts_with("net_vhost");
    let is_abstract = devargs.starts_with("net_memif") && !devargs.contains("socket-abstract=no");
    let is_tap = devargs.starts_with("net_tap");
    match namespace.filter(|_| has_interface || is_abstract || is_tap) {
        Some(number) => format!("{resource} in network namespace {number}"),
        None => resource,
    }
}

fn resource(port: &PortConfig) -> String {
    match &port.ethdev {
        Ethdev::Ring(name) => format!("ring {name}"),
        Ethdev::Pci(address) => format!("pci {address}"),
        Ethdev::Vdev(devargs) => match link_of(devargs) {
            Some((role, link)) => format!("memif {role} {link}"),
            // Several identities may share a kernel interface if their addresses differ.
            None => {
                let ip: Vec<String> = port.ip.iter().map(ToString::to_string).collect();
                format!("{devargs} {}", ip.join(" "))
            }
        },
    }
}

/// Whether the two ports are the two ends of one memif link.
pub(crate) fn are_joined(one: &PortConfig, other: &PortConfig) -> bool {
    let end = |port: &PortConfig| match &port.ethdev {
        Ethdev::Vdev(devargs) => link_of(devargs).map(|(role, link)| (role.to_owned(), link)),
        Ethdev::Ring(_) | Ethdev::Pci(_) => None,
    };
    match (end(one), end(other)) {
        (Some((role, link)), Some((others_role, others_link))) => {
            role != others_role && link == others_link
        }
        _ => false,
    }
}

/// The role of a memif port, and a name of its link that is the same at both ends whatever their
/// other arguments are. `None` if the device is not a memif.
fn link_of(devargs: &str) -> Option<(&str, String)> {
    let rest = devargs.strip_prefix("net_memif")?;
    let value = |key: &str| rest.split(',').find_map(|part| part.strip_prefix(key));
    // Defaults of DPDK's memif driver.
    let role = value("role=").unwrap_or("server");
    let socket = value("socket=").unwrap_or("/run/memif.sock");
    let kind = value("socket-abstract=").unwrap_or("yes");
    let id = value("id=").unwrap_or("0");
    Some((role, format!("{socket} {kind} {id}")))
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
