//! The identities that a process can have: one per configuration file.
//!
//! `UROCE_CONFIG` names TOML files, separated by colons. Several files are alternative identities:
//! a process takes the first one that no other process has. If a port of the local fabric names no
//! member, the process becomes any member that is free. The built-in configuration, which is used
//! without the variable, has such a port, so that the processes of one machine can communicate
//! without any set-up.
//!
//! Invariants
//! - The devices of all identities have the same names in the same order.
//! - A port's Ethernet address is known before the port is opened, except if a NIC or a kernel
//!   interface has its own.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use uroce::config::{DeviceConfig, Ethdev, Failback, Failover, FailoverError, PortConfig};
use uroce::{Config, Mac};

use super::place;
use super::problem::Problem;

/// The variable with the idle time of keepalives of all devices, in milliseconds.
const KEEPALIVE: &str = "UROCE_KEEPALIVE_MS";
/// The variables with `failover` and `failback` of all devices.
const FAILOVER: &str = "UROCE_FAILOVER";
const FAILBACK: &str = "UROCE_FAILBACK";

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
    let mut identities = match place::variable("UROCE_CONFIG") {
        None => embedded().map(|identity| vec![identity]),
        Some(files) => read(std::env::split_paths(&files).filter(|file| file != Path::new(""))),
    }?;
    if let Some(keepalive_ms) = keepalive(place::variable(KEEPALIVE))? {
        let devices = identities.iter_mut().flat_map(|identity| &mut identity.config.devices);
        devices.for_each(|device| device.keepalive_ms = Some(keepalive_ms));
    }
    let failover = word::<Failover>(FAILOVER, place::variable(FAILOVER))?;
    let failback = word::<Failback>(FAILBACK, place::variable(FAILBACK))?;
    let devices = identities.iter_mut().flat_map(|identity| &mut identity.config.devices);
    set_failover(&mut devices.collect::<Vec<_>>(), failover, failback)?;
    Ok(identities)
}

/// Sets `failover` and `failback` of those devices that can have them.
///
/// # Errors
///
/// [`Problem::Useless`] if none can.
fn set_failover(
    devices: &mut [&mut DeviceConfig],
    failover: Option<Failover>,
    failback: Option<Failback>,
) -> Result<(), Problem> {
    if let Some(failover) = failover {
        let can = |device: &DeviceConfig| failover == Failover::Never || device.ports.len() > 1;
        if !devices.iter().any(|device| can(device)) {
            let reason = "no device of the configuration has a second port";
            return Err(Problem::Useless { name: FAILOVER, reason });
        }
        for device in devices.iter_mut().filter(|device| can(device)) {
            device.failover = failover;
            if failover == Failover::Never {
                device.failback = Failback::Never;
            }
        }
    }
    if let Some(failback) = failback {
        let can = |device: &DeviceConfig| {
            failback == Failback::Never || device.failover == Failover::Auto
        };
        if !devices.iter().any(|device| can(device)) {
            let reason = "no device has failover: set UROCE_FAILOVER=auto too";
            return Err(Problem::Useless { name: FAILBACK, reason });
        }
        for device in devices.iter_mut().filter(|device| can(device)) {
            device.failback = failback;
        }
    }
    Ok(())
}

/// Reads a variable that has one of a few words as its value.
///
/// # Errors
///
/// [`Problem::Word`] if it is none of them.
fn word<T: FromStr<Err = FailoverError>>(
    name: &'static str,
    value: Option<OsString>,
) -> Result<Option<T>, Problem> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.to_string_lossy();
    let error = |error| Problem::Word { name, value: text.clone().into_owned(), error };
    text.parse().map(Some).map_err(error)
}

/// Reads the value of [`KEEPALIVE`].
///
/// # Errors
///
/// [`Problem::Milliseconds`] if it is no number of milliseconds.
fn keepalive(value: Option<OsString>) -> Result<Option<u32>, Problem> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(keepalive_ms) => Ok(Some(keepalive_ms)),
        None => Err(Problem::Milliseconds { name: KEEPALIVE, value }),
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
        if let Some(first) = identities.first()
            && !names(&first.config).eq(names(&config))
        {
            return Err(Problem::Alternatives { one: first.source.clone(), other: file });
        }
        identities.push(Identity { config: with_macs(config), source: file });
    }
    if identities.is_empty() { Err(Problem::NoFile) } else { Ok(identities) }
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    config.devices.iter().map(|device| device.name.as_str())
}

/// The built-in identity: any member of the local fabric in the run directory.
///
/// # Errors
///
/// [`Problem::NoRunDir`] if there is no run directory.
pub(crate) fn embedded() -> Result<Identity, Problem> {
    let source = Path::new("the built-in configuration");
    let config = Config::built_in()?;
    config.check().map_err(|error| Problem::Config { file: source.to_owned(), error })?;
    Ok(Identity { source: source.to_owned(), config })
}

/// Returns whether a port of the configuration may become any free member of the local fabric.
pub(crate) fn is_open(config: &Config) -> bool {
    config.devices.iter().flat_map(|device| &device.ports).any(is_any)
}

fn is_any(port: &PortConfig) -> bool {
    is_local(port) && port.member.is_none()
}

/// Returns the number of the member of the local fabric that has this address, if the configuration
/// lets a process become that member.
pub(crate) fn member_at(config: &Config, address: IpAddr) -> Option<u8> {
    let mut ports = config.devices.iter().flat_map(|device| &device.ports);
    let is_possible = ports.any(|port| is_any(port) && port.ip.is_empty());
    PortConfig::member_at(address).filter(|_| is_possible)
}

/// Returns the name of an identity for messages: its ports on a switch, because the process that
/// has it may use other addresses; otherwise its addresses; its source if it has none.
pub(crate) fn title(identity: &Identity) -> String {
    let ports = || identity.config.devices.iter().flat_map(|device| &device.ports);
    let mut parts: Vec<String> =
        ports().filter_map(switch_of).map(|socket| format!("port {socket} of a switch")).collect();
    if parts.is_empty() {
        parts = ports().flat_map(|port| &port.ip).map(|own| own.address().to_string()).collect();
    }
    if parts.is_empty() { identity.source.display().to_string() } else { parts.join(", ") }
}

/// Whether the port is one of the local fabric.
pub(crate) fn is_local(port: &PortConfig) -> bool {
    matches!(port.ethdev, Ethdev::Local(_))
}

/// Gives a derived Ethernet address to each port that would else get a random one from its driver.
fn with_macs(mut config: Config) -> Config {
    for device in &mut config.devices {
        let name = device.name.clone();
        for (port, number) in device.ports.iter_mut().zip(1..) {
            if let Some(member) = port.member {
                *port = port.clone().as_member(member);
            }
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
        // A member's address follows from its number, and that of a port over UDP sockets from its
        // IP address.
        Ethdev::Pci(_) | Ethdev::Local(_) | Ethdev::Udp(_) => false,
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

/// The names of the machine's resources that an identity needs for itself: its ports, and addresses
/// in the local fabric that do not follow from a member's number. Identities with a name in common
/// exclude each other. The numbers of members are not among them: the fabric has locks of its own.
pub(crate) fn resources(config: &Config) -> Vec<String> {
    let ports = config.devices.iter().flat_map(|device| &device.ports);
    // Rings are local to the process.
    let shared = ports.filter(|port| !matches!(port.ethdev, Ethdev::Ring(_)));
    let names = shared.flat_map(|port| match &port.ethdev {
        Ethdev::Local(directory) => {
            let ips = port.ip.iter().map(|ip| ip.address());
            let own =
                ips.filter(|ip| port.member.is_none() || PortConfig::member_at(*ip) != port.member);
            own.map(|ip| format!("{ip} {}", directory.display())).collect()
        }
        _ => vec![in_namespace(resource(port), port, namespace())],
    });
    names.collect()
}

/// The inode number of the process's network namespace.
fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/net").ok().map(|namespace| namespace.ino())
}

/// Appends the network namespace's number to the name of a resource that exists once per namespace.
fn in_namespace(resource: String, port: &PortConfig, namespace: Option<u64>) -> String {
    let is_of_namespace = match &port.ethdev {
        Ethdev::Vdev(devargs) => {
            let has_interface = devargs.contains("iface=") && !devargs.starts_with("net_vhost");
            let is_memif = devargs.starts_with("net_memif");
            let is_abstract = is_memif && !devargs.contains("socket-abstract=no");
            has_interface || is_abstract || devargs.starts_with("net_tap")
        }
        Ethdev::Udp(_) => true,
        Ethdev::Ring(_) | Ethdev::Pci(_) | Ethdev::Local(_) => false,
    };
    match namespace.filter(|_| is_of_namespace) {
        Some(number) => format!("{resource} in network namespace {number}"),
        None => resource,
    }
}

fn resource(port: &PortConfig) -> String {
    match &port.ethdev {
        Ethdev::Ring(name) => format!("ring {name}"),
        Ethdev::Pci(address) => format!("pci {address}"),
        Ethdev::Local(directory) => format!("fabric {}", directory.display()),
        Ethdev::Udp(interface) => format!("udp {interface} {}", addresses(port)),
        Ethdev::Vdev(devargs) => match (link_of(devargs), switch_of(port)) {
            (Some((role, link)), _) => format!("memif {role} {link}"),
            (None, Some(socket)) => format!("switch {socket}"),
            // Several identities may share a kernel interface if their addresses differ.
            (None, None) => format!("{devargs} {}", addresses(port)),
        },
    }
}

/// The configured addresses of a port in one text.
fn addresses(port: &PortConfig) -> String {
    let ip: Vec<String> = port.ip.iter().map(ToString::to_string).collect();
    ip.join(" ")
}

/// The socket of a port on a vhost-user switch. `None` for other ports, and for a file of another
/// kind in its place, such as /dev/vhost-net.
fn switch_of(port: &PortConfig) -> Option<&str> {
    let Ethdev::Vdev(devargs) = &port.ethdev else { return None };
    let rest = devargs.strip_prefix("net_virtio_user")?;
    let socket = rest.split(',').skip(1).find_map(|part| part.strip_prefix("path="))?;
    (!socket.starts_with("/dev/")).then_some(socket)
}

/// Whether the two ports are the two ends of one memif link.
pub(crate) fn are_joined(one: &PortConfig, other: &PortConfig) -> bool {
    let end = |port: &PortConfig| match &port.ethdev {
        Ethdev::Vdev(devargs) => link_of(devargs).map(|(role, link)| (role.to_owned(), link)),
        Ethdev::Ring(_) | Ethdev::Pci(_) | Ethdev::Local(_) | Ethdev::Udp(_) => None,
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
