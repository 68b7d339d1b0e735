//! What the process may be: its configuration, or several that are alternatives.
//!
//! `UROCE_CONFIG` names TOML files, with a colon between them. Several are alternative identities:
//! a process is the first that no other process is. Without it there are two of our own, joined by a
//! memif link, so that two processes on a machine can talk to each other with nothing set up.
//!
//! Invariants
//! - All identities have devices of the same names, in one order.
//! - A port's Ethernet address is known before it is opened, except where a NIC or the kernel's
//!   interface has one of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uroce::config::{DeviceConfig, Driver, Ethdev, Idle, PortConfig};
use uroce::vdev::{self, MemifRole};
use uroce::{Config, ConfigError, Mac};

use super::place;
use super::problem::Problem;

/// Carries a path MTU of 4096.
pub(crate) const MTU: u16 = 4200;
/// Frames on their way through a link, each way.
pub(crate) const FRAMES: u32 = 1024;
/// Megabytes for packet buffers and queues of DPDK; the port's own link is not among them.
pub(crate) const MEMORY_MB: u32 = 128;

/// Where the ends of the built-in link meet, in the run directory.
pub(crate) const SOCKET: &str = "memif.sock";

/// One of the things that the process may be.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Where it is from, for messages.
    pub(crate) source: PathBuf,
    pub(crate) config: Config,
}

/// The identities, of which there is at least one.
///
/// # Errors
///
/// See [`Problem`].
pub(crate) fn identities() -> Result<Vec<Identity>, Problem> {
    match place::variable("UROCE_CONFIG") {
        None => embedded(),
        Some(files) => read(std::env::split_paths(&files).filter(|file| file != Path::new(""))),
    }
}

/// Reads alternatives.
///
/// # Errors
///
/// See [`Problem`].
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

/// The two ends of a link on this machine.
///
/// # Errors
///
/// [`Problem::NoRunDir`].
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

/// The addresses of an end of the built-in link (RFC 5737, RFC 3849).
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
    // Programs that poll share their CPUs with the lcore; those that wait leave it little to do.
    let device = DeviceConfig::new("uroce0").driver(Driver::Poller).idle(Idle::Sleep);
    let mut config = Config::new().device(device.port(port));
    config.eal.memory_mb = MEMORY_MB;
    config.check()?;
    Ok(with_macs(config))
}

/// Gives ports whose driver would make an Ethernet address up one that is known before.
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

/// Has the device no Ethernet address of its own?
fn is_made_up(port: &PortConfig) -> bool {
    match &port.ethdev {
        Ethdev::Ring(_) => true,
        // Interfaces of the kernel's have addresses.
        Ethdev::Vdev(devargs) => port.netdev_name().is_none() && !devargs.starts_with("net_tap"),
        Ethdev::Pci(_) => false,
    }
}

/// A locally administered unicast address, made of the first IP address: as unique as that on the
/// port's link.
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

/// The GUID of a device that begins with this port: of its Ethernet address, or where only the port
/// knows that, of its name.
pub(crate) fn guid(mac: Mac, device: &DeviceConfig) -> u64 {
    let known = if mac.0 == [0; 6] { hashed(&resource(&device.ports[0])) } else { mac };
    let [a, b, c, d, e, f] = known.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The address that a port's LID is made of: its first of IPv4. Where the prefix of its link is
/// shorter than 16 bits one LID would stand for many hosts; such a port has none.
pub(crate) fn lid_source(port: &PortConfig) -> Option<Ipv4Addr> {
    const SHORTEST_PREFIX: u8 = 16;
    let mut addresses = port.ip.iter().filter_map(|ip| match ip.address() {
        IpAddr::V4(v4) => Some((v4, ip.len())),
        IpAddr::V6(_) => None,
    });
    let (address, len) = addresses.next()?;
    (len >= SHORTEST_PREFIX).then_some(address)
}

/// A port's LID, for programs that know no other addresses, as RoCE has none: the low half of
/// [`lid_source`]. 0 is none.
pub(crate) fn lid(port: &PortConfig) -> u16 {
    let [.., high, low] = lid_source(port).unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    u16::from_be_bytes([high, low])
}

/// Entries of the GID table of a port with so many addresses, the empty ones too: programs walk
/// through all of it. There is always one more than are taken.
pub(crate) fn gid_table_len(gids: usize) -> usize {
    const LEAST: usize = 16;
    LEAST.max(gids + 1)
}

/// What of a machine an identity takes for itself, one text a port.
pub(crate) fn resources(config: &Config) -> Vec<String> {
    let ports = config.devices.iter().flat_map(|device| &device.ports);
    // The rings are this process's own.
    let shared = ports.filter(|port| !matches!(port.ethdev, Ethdev::Ring(_)));
    shared.map(|port| in_namespace(resource(port), port, namespace())).collect()
}

/// The number of the process's network namespace.
fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/net").ok().map(|namespace| namespace.ino())
}

/// A resource that another network namespace may have as well is told apart by its own.
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
            // Several may share an interface of the kernel's, with addresses of their own.
            None => {
                let ip: Vec<String> = port.ip.iter().map(ToString::to_string).collect();
                format!("{devargs} {}", ip.join(" "))
            }
        },
    }
}

/// Whether the ports are the two ends of one memif link.
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

/// The end of a memif link: its role, and what both ends say of the link, whatever else its
/// arguments are.
fn link_of(devargs: &str) -> Option<(&str, String)> {
    let rest = devargs.strip_prefix("net_memif")?;
    let value = |key: &str| rest.split(',').find_map(|part| part.strip_prefix(key));
    // The driver's defaults.
    let role = value("role=").unwrap_or("server");
    let socket = value("socket=").unwrap_or("/run/memif.sock");
    let kind = value("socket-abstract=").unwrap_or("yes");
    let id = value("id=").unwrap_or("0");
    Some((role, format!("{socket} {kind} {id}")))
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
