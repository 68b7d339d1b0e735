//! The one typed configuration: what EAL is started with, and the devices of the process.
//!
//! A [`Config`] is built by code or read from a TOML file whose keys are the names of the fields.
//! Unknown keys are errors. Each field says its unit, its default and its limits.
//!
//! ```
//! let config = uroce_controlplane::Config::from_toml(r#"
//!     [eal]
//!     memory_mb = 1024
//!
//!     [[device]]
//!     name = "uroce0"
//!     lcores = [2, 3]
//!
//!     [[device.port]]
//!     ethdev = { pci = "0000:01:00.0" }
//!     ip = ["192.0.2.1/24", "2001:db8::1/64"]
//!     mtu = 4200
//!     vlan = 100
//!     gateway = ["192.0.2.254"]
//!     routes = [{ to = "198.51.100.0/24", via = "192.0.2.253" }]
//!
//!     [[device]]
//!     name = "uroce1"
//!
//!     [[device.port]]
//!     ethdev = { vdev = "net_memif0,role=client,socket=/run/uroce.sock,socket-abstract=no" }
//!     ip = ["198.51.100.1/24"]
//! "#)?;
//! assert_eq!(config.devices[0].ports[0].mtu, 4200);
//! # Ok::<(), uroce_controlplane::ConfigError>(())
//! ```
//!
//! Invariants
//! - A configuration that [`Config::check`] accepts can fail to open for outside reasons only.
//!
//! Not here: overrides by environment and flags, which are applied to the value before it is used.

mod check;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use uroce_wire::Mac;

use crate::path::prefix::{IpPrefix, PrefixError};
use crate::path::route::StaticRoute;

pub use uroce_engine::eal::LogLevel;

/// Everything that is configured in a process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// DPDK's environment, one per process: the same for all devices opened in it.
    #[serde(default)]
    pub eal: EalConfig,
    /// The devices, at least one, with different names. In the file: `[[device]]`.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceConfig>,
}

/// How EAL is started.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EalConfig {
    /// Use hugepages, which must have been set up. Default: false, ordinary pages.
    pub huge: bool,
    /// Memory for mbufs and rings, in megabytes, 64 to 1048576; default 512. Without hugepages it
    /// is a hard limit; with them it is what is taken at the start.
    pub memory_mb: u32,
    /// Prefix of EAL's run-time files, unique among running processes; 1 to 64 characters, no
    /// slash. Default: one is made up.
    pub file_prefix: Option<String>,
    /// CPUs of EAL's own threads. Default: those that the opening thread may run on.
    pub control_cpus: Vec<usize>,
    /// What of DPDK's log goes to stderr: `quiet` (default), `warning`, `info`, `debug`.
    #[serde(deserialize_with = "text::log_level")]
    pub log: LogLevel,
    /// Further EAL arguments, as on a DPDK command line before `--`. Default: none.
    pub args: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            huge: false,
            memory_mb: 512,
            file_prefix: None,
            control_cpus: Vec::new(),
            log: LogLevel::Quiet,
            args: Vec::new(),
        }
    }
}

/// The threads that do the data path's work.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number of lcores or a list of CPUs")]
pub enum Lcores {
    /// So many, on whatever CPUs the process may use.
    Count(u16),
    /// One on each of these CPUs.
    Cpus(Vec<usize>),
}

impl Lcores {
    /// How many they are.
    pub fn count(&self) -> usize {
        match self {
            Lcores::Count(count) => usize::from(*count),
            Lcores::Cpus(cpus) => cpus.len(),
        }
    }
}

/// What an lcore does when it has found nothing to do for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Poll where each lcore of the device can have a CPU to itself, else yield.
    #[default]
    Auto,
    /// Go on polling: lowest latency, a CPU per lcore.
    Poll,
    /// Let other threads run between polls.
    Yield,
    /// Sleep until a port, a post or a deadline wakes it; nap where a port's driver has no interrupt.
    Sleep,
}

/// Who drives a device's lcores: receives, sends and completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// A thread of each lcore's own.
    #[default]
    Lcore,
    /// The threads that poll completion queues, as long as they do; else the lcore's own. For
    /// programs that share CPUs with the lcores: a poll that finds nothing does their work.
    Poller,
}

/// A device: lcores, tables and ports that work together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Its name, 1 to 32 characters of `A-Z a-z 0-9 _ . -`.
    pub name: String,
    /// A number of lcores or a list of CPUs (0 to 1023), 1 to 16; default 1. Each has a receive and a transmit
    /// queue of each port.
    #[serde(default = "text::one_lcore")]
    pub lcores: Lcores,
    /// CPU of the control-plane thread. Default: the first that the process may use and no lcore
    /// has, if the lcores' CPUs are listed; else any.
    #[serde(default)]
    pub control_cpu: Option<usize>,
    /// What idle lcores do: `auto` (default), `poll`, `yield`, `sleep`.
    #[serde(default)]
    pub idle: Idle,
    /// Who drives the lcores: `lcore` (default), their own threads; `poller`, threads that poll.
    #[serde(default)]
    pub driver: Driver,
    /// Queue pairs at a time, 1 to 2^20; default 2^20.
    #[serde(default = "text::default_max_qps")]
    pub max_qps: u32,
    /// Memory regions and windows at a time, 1 to 2^20; default 2^20.
    #[serde(default = "text::default_max_mrs")]
    pub max_mrs: u32,
    /// Address handles at a time, 1 to 2^20; default 2^20.
    #[serde(default = "text::default_max_ahs")]
    pub max_ahs: u32,
    /// The ports, 1 to 16. In the file: `[[device.port]]`.
    #[serde(rename = "port")]
    pub ports: Vec<PortConfig>,
}

impl DeviceConfig {
    /// A device with one lcore, the default limits and no port yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            lcores: Lcores::Count(1),
            control_cpu: None,
            idle: Idle::Auto,
            driver: Driver::Lcore,
            max_qps: text::default_max_qps(),
            max_mrs: text::default_max_mrs(),
            max_ahs: text::default_max_ahs(),
            ports: Vec::new(),
        }
    }

    /// With a port more.
    pub fn port(mut self, port: PortConfig) -> Self {
        self.ports.push(port);
        self
    }

    /// With these lcores.
    pub fn lcores(mut self, lcores: Lcores) -> Self {
        self.lcores = lcores;
        self
    }

    /// With its lcores driven by these.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// With this idle policy.
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }
}

/// What a port stands on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ethdev {
    /// A link inside the process: the two devices that name the same ring are its ends. 1 to 16
    /// characters.
    Ring(String),
    /// A virtual device, by name and arguments as `--vdev` takes them; see
    /// [`uroce_engine::port::vdev`] for strings that suit an MTU.
    Vdev(String),
    /// A NIC, by PCI address `0000:01:00.0`.
    Pci(String),
}

/// Frames to drop at random, to see what loss does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossConfig {
    /// Share of RoCE packets received that is dropped, 0.0 (default) to 1.0.
    pub rx: f64,
    /// Share of RoCE packets sent that is dropped, 0.0 (default) to 1.0.
    pub tx: f64,
    /// Seed of the choice; default 0.
    pub seed: u64,
}

/// A port of a device. Its addresses, IPv4 and IPv6, are its GIDs, in the order given.
///
/// Ports of a device may be on one network or on several: a path leaves by the port and from the
/// address that Modify QP names, whatever the destination.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// What it stands on: `{ ring = "…" }`, `{ vdev = "…" }` or `{ pci = "…" }`.
    pub ethdev: Ethdev,
    /// Its addresses with the prefixes of their links, up to 32. Default: those of `netdev`, which
    /// the port then follows; without one, none.
    #[serde(default)]
    pub ip: Vec<IpPrefix>,
    /// The kernel's network interface behind the port, 1 to 15 bytes. Its link state is the port's,
    /// its Ethernet address and MTU count, and its addresses where none are configured. Default:
    /// the `iface` of an af_packet or af_xdp device. Not that of a tap, which is the link's other
    /// end.
    #[serde(default)]
    pub netdev: Option<String>,
    /// Adds the IPv6 link-local address made of the Ethernet address, as the last GID. Default:
    /// false; a port has the configured addresses only.
    #[serde(default)]
    pub link_local: bool,
    /// Largest Ethernet payload in bytes, 576 to 9000 and with IPv6 from 1280; default 1500. A path
    /// MTU needs 96 bytes more: 1500 carries 1024, 4200 carries 4096.
    #[serde(default = "text::default_mtu")]
    pub mtu: u16,
    /// VLAN of all frames, 1 to 4094; default: none.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Where packets for other links go, one per IP version, on the port's link; default: none.
    #[serde(default)]
    pub gateway: Vec<IpAddr>,
    /// Static routes, up to 64, as `{ to = "198.51.100.0/24", via = "192.0.2.254" }`: packets for
    /// `to` go to the router `via` on the port's link. The longest prefix wins, the link's own
    /// among them; default: none.
    #[serde(default)]
    pub routes: Vec<StaticRoute>,
    /// When the port's link goes down, QPs that are armed and whose path leaves by it take their
    /// alternate path at once instead of after their retries. Default: true.
    #[serde(default = "text::yes")]
    pub migrate_on_link_down: bool,
    /// The port is ACTIVE whether anything is at the other end of its link or not, as one at a
    /// switch is: for a memif link between two processes that come and go. There is no PORT_ERR and
    /// no PORT_ACTIVE; what is sent while nothing is there is lost; and when the process there ends,
    /// connections to it do. Default: false; the link's state is the port's.
    #[serde(default)]
    pub always_active: bool,
    /// Ethernet address, unicast; default: the device's.
    #[serde(default, deserialize_with = "text::mac")]
    pub mac: Option<Mac>,
    /// Ethernet address of another process's port on the link that has the same addresses. What is
    /// for them goes there, not to this process: two processes are one host to each other and to
    /// programs that know one address. Unicast; default: none.
    #[serde(default, deserialize_with = "text::mac")]
    pub twin: Option<Mac>,
    /// Descriptors of each receive queue, 64 to 32768; default 1024. The driver's limits count.
    #[serde(default = "text::default_rx_descriptors")]
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue, and frames in a ring link, 64 to 32768; default 512.
    #[serde(default = "text::default_tx_descriptors")]
    pub tx_descriptors: u16,
    /// Packet buffers, 1023 to 2^20 - 1; default: enough for all queues to be full, 2047 for one
    /// lcore, 4095 for one of hardware, 1023 for one of a ring link. Each takes about 9.5 KB of
    /// `eal.memory_mb`.
    #[serde(default)]
    pub mbufs: Option<u32>,
    /// Frames to drop; default: none.
    #[serde(default)]
    pub loss: LossConfig,
}

impl PortConfig {
    /// A port with the defaults and no address.
    pub fn new(ethdev: Ethdev) -> Self {
        Self {
            ethdev,
            ip: Vec::new(),
            netdev: None,
            link_local: false,
            mtu: text::default_mtu(),
            vlan: None,
            gateway: Vec::new(),
            routes: Vec::new(),
            migrate_on_link_down: true,
            always_active: false,
            mac: None,
            twin: None,
            rx_descriptors: text::default_rx_descriptors(),
            tx_descriptors: text::default_tx_descriptors(),
            mbufs: None,
            loss: LossConfig::default(),
        }
    }

    /// An end of the in-process link of that name.
    pub fn ring(name: impl Into<String>) -> Self {
        Self::new(Ethdev::Ring(name.into()))
    }

    /// A virtual device.
    pub fn vdev(devargs: impl Into<String>) -> Self {
        Self::new(Ethdev::Vdev(devargs.into()))
    }

    /// A NIC.
    pub fn pci(address: impl Into<String>) -> Self {
        Self::new(Ethdev::Pci(address.into()))
    }

    /// With an address more, as `192.0.2.1/24`.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the text is none.
    pub fn ip(mut self, text: &str) -> Result<Self, PrefixError> {
        self.ip.push(text.parse()?);
        Ok(self)
    }

    /// With this netdev behind it.
    pub fn netdev(mut self, name: impl Into<String>) -> Self {
        self.netdev = Some(name.into());
        self
    }

    /// With a static route more, as `198.51.100.0/24` by way of a router on the port's link.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the text is no network.
    pub fn route(mut self, to: &str, via: IpAddr) -> Result<Self, PrefixError> {
        self.routes.push(StaticRoute { to: to.parse()?, via });
        Ok(self)
    }

    /// With this MTU.
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }

    /// With these frames dropped.
    pub fn loss(mut self, loss: LossConfig) -> Self {
        self.loss = loss;
        self
    }

    /// The kernel's interface behind the port: the one named, or the device's own.
    pub fn netdev_name(&self) -> Option<&str> {
        let named = self.netdev.as_deref();
        named.or_else(|| match &self.ethdev {
            Ethdev::Vdev(devargs) => text::iface_of(devargs),
            Ethdev::Ring(_) | Ethdev::Pci(_) => None,
        })
    }

    /// Whether the port has its netdev's addresses, for want of configured ones.
    pub fn follows_addresses(&self) -> bool {
        self.ip.is_empty() && !self.link_local && self.netdev_name().is_some()
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It is no TOML, or a key is unknown, missing or of a wrong type. The text names the line.
    #[error("{0}")]
    Syntax(String),
    /// A value is out of its limits.
    #[error("{field}: {reason}")]
    Value {
        /// The field, as `device.uroce0.port.1.mtu`; ports are numbered from 1.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No device has this name.
    #[error("no device of the configuration is named {0:?}")]
    UnknownDevice(String),
}

/// Longest configuration file in bytes: what is longer is none.
const FILE_MAX: u64 = 1 << 20;

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let len = File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if len as u64 > FILE_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

impl Config {
    /// No device yet, EAL's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a device more.
    pub fn device(mut self, device: DeviceConfig) -> Self {
        self.devices.push(device);
        self
    }

    /// Reads a configuration and checks it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which names the field.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Config =
            toml::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// Reads a configuration file and checks it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which names the field or the file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        match read(path) {
            Ok(text) => Self::from_toml(&text),
            Err(error) => Err(ConfigError::Read { path: path.to_owned(), error }),
        }
    }

    /// The device of that name.
    ///
    /// # Errors
    ///
    /// [`ConfigError::UnknownDevice`].
    pub fn find(&self, name: &str) -> Result<&DeviceConfig, ConfigError> {
        let found = self.devices.iter().find(|device| device.name == name);
        found.ok_or_else(|| ConfigError::UnknownDevice(name.to_owned()))
    }

    /// Checks all limits that the fields' descriptions give.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Value`] for the first field that breaks one.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::config(self)
    }
}

#[cfg(test)]
mod tests;
