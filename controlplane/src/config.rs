//! The configuration: EAL's parameters, and the devices of the process.
//!
//! A [`Config`] is built by code or read from a TOML file with the names of the fields as keys.
//! Unknown keys are errors. The documentation of each field has its unit, default and limits.
//!
//! ```
//! let config = uroce_controlplane::Config::from_toml(r#"
//!     [eal]
//!     memory_mb = 1024
//!
//!     [[device]]
//!     name = "uroce0"
//!     lcores = [2, 3]
//!     congestion = { algorithm = "dcqcn", cnp_dscp = 48 }
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
//! - Opening a device with a configuration that [`Config::check`] accepts fails only for reasons
//!   outside of the configuration.
//!
//! Not here: overrides by environment and flags, which are applied to the value before it is used.

mod bottleneck;
mod built_in;
pub(crate) mod check;
mod congestion;
mod failover;
mod given;
mod text;
mod write;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uroce_engine::port::{self, FlowControl, MEMBERS_MAX, member_mac};
use uroce_wire::Mac;

use crate::path::prefix::{IpPrefix, PrefixError};
use crate::path::route::StaticRoute;

pub use built_in::{BUILT_IN_DEVICE, BUILT_IN_MEMORY_MB, BUILT_IN_MTU, FABRIC};
pub(crate) use check::MTU_IPV6_MIN;
pub use congestion::{Algorithm, CongestionConfig};
pub use failover::{Failback, Failover, FailoverError};
pub use uroce_command::run_dir::RunDirError;
pub use uroce_engine::eal::LogLevel;
pub use uroce_engine::{BottleneckConfig, BottleneckError, Driver, LossConfig};

/// Configuration of a process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// DPDK's environment, one per process and for all its devices.
    #[serde(default)]
    pub eal: EalConfig,
    /// The devices, at least one, with different names. In the file: `[[device]]`.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceConfig>,
}

/// Parameters of EAL, DPDK's environment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EalConfig {
    /// Use hugepages, which must have been set up. Default: false, ordinary pages.
    pub huge: bool,
    /// Memory for mbufs and rings, in megabytes, 64 to 1048576. Without hugepages it is the limit,
    /// with hugepages the amount taken at the start. Default: 512, or what the container's limit
    /// leaves if that is less.
    pub memory_mb: Option<u32>,
    /// Prefix of EAL's run-time files, unique among running processes; 1 to 64 characters, no
    /// slash. Default: a generated one.
    pub file_prefix: Option<String>,
    /// CPUs of EAL's own threads. Default: those on which the opening thread may run.
    pub control_cpus: Vec<usize>,
    /// Part of DPDK's log that goes to stderr: `quiet` (default), `warning`, `info`, `debug`.
    #[serde(deserialize_with = "text::log_level", serialize_with = "write::log_level")]
    pub log: LogLevel,
    /// Further EAL arguments, as on a DPDK command line before `--`. Default: none.
    pub args: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            huge: false,
            memory_mb: None,
            file_prefix: None,
            control_cpus: Vec::new(),
            log: LogLevel::Quiet,
            args: Vec::new(),
        }
    }
}

/// Number of lcores, which run the data path, or their CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a number of lcores or a list of CPUs")]
pub enum Lcores {
    /// This number of lcores, on any CPUs of the process.
    Count(u16),
    /// One lcore on each of these CPUs.
    Cpus(Vec<usize>),
}

impl Lcores {
    /// Returns the number of lcores.
    pub fn count(&self) -> usize {
        match self {
            Lcores::Count(count) => usize::from(*count),
            Lcores::Cpus(cpus) => cpus.len(),
        }
    }
}

/// Action of an lcore that has had no work for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Poll if each lcore of the device can have its own CPU, else yield.
    #[default]
    Auto,
    /// Go on polling: lowest latency, a CPU per lcore.
    Poll,
    /// Let other threads run between polls.
    Yield,
    /// Sleep until a frame, a post or a deadline; in naps of 50 µs to 1.6 ms if a port's driver has
    /// no interrupts.
    Sleep,
}

/// Connections that use selective repeat: only the packets that are lost are sent again. Without it
/// a lost packet and all after it are sent again. Only uroce has it. A peer that does not use it
/// drops our selective acknowledgements: a lost packet of the peer is sent again only when the
/// peer's ACK timer expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SelectiveRepeat {
    /// Connections of the connection manager if both ends agree on it, and QPs if their Modify QP
    /// requests it.
    #[default]
    Agreed,
    /// As `agreed`, and all RC QPs that are connected by Modify QP without the connection manager.
    /// The devices at the other ends of these must be configured so, too. A program that takes its
    /// QP to RTR itself before it accepts a connection counts as one without the connection
    /// manager.
    Always,
    /// The connection manager neither offers nor accepts it. A Modify QP may request it.
    Never,
}

/// A device: lcores, tables and ports that work together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Name of the device, 1 to 32 characters of `A-Z a-z 0-9 _ . -`.
    pub name: String,
    /// A number of lcores or a list of CPUs (0 to 1023), 1 to 16; default 1. Each lcore has a
    /// receive and a transmit queue of each port.
    #[serde(default = "text::one_lcore")]
    pub lcores: Lcores,
    /// CPU of the control-plane thread. Default: if the lcores' CPUs are listed, the first CPU of
    /// the process that no lcore uses; else any.
    #[serde(default)]
    pub control_cpu: Option<usize>,
    /// Action of idle lcores: `auto` (default), `poll`, `yield`, `sleep`.
    #[serde(default)]
    pub idle: Idle,
    /// Threads that drive the lcores: `lcore` (default), their own; `poller`, the threads that
    /// poll completion queues, and the lcore's own thread while none polls. With `poller`, a poll
    /// of an empty queue runs a turn of the lcore: for programs that share CPUs with the lcores.
    #[serde(default, deserialize_with = "text::driver", serialize_with = "write::driver")]
    pub driver: Driver,
    /// Largest number of queue pairs at a time, 1 to 2^20; default 65536.
    #[serde(default = "text::default_max_qps")]
    pub max_qps: u32,
    /// Largest number of memory regions and windows at a time, 1 to 2^20; default 2^20.
    #[serde(default = "text::default_max_mrs")]
    pub max_mrs: u32,
    /// Largest number of address handles at a time, 1 to 2^20; default 65536.
    #[serde(default = "text::default_max_ahs")]
    pub max_ahs: u32,
    /// Whether the device answers the commands of `uroce` on the process's control socket. Default:
    /// true. With the environment variable `UROCE_CONTROL=off` no device of the process does.
    #[serde(default = "text::yes")]
    pub control: bool,
    /// Whether commands may, without being forced, make the ports forward frames instead of giving
    /// them to QPs, as the program `uroce` permits for devices of its own. Default: false. Not in
    /// the file.
    #[serde(skip)]
    pub forwards: bool,
    /// Congestion control of the device's QPs. Default: none. In the file: `[device.congestion]`.
    #[serde(default)]
    pub congestion: CongestionConfig,
    /// Connections that use selective repeat: `agreed` (default), `always`, `never`; see
    /// [`SelectiveRepeat`].
    #[serde(default)]
    pub selective_repeat: SelectiveRepeat,
    /// Number of UDP source ports that requests of a QP with selective repeat use in turn: 1
    /// (default), 2, 4, 8 or 16. A network with several paths (ECMP) spreads them by their ports.
    #[serde(default = "text::one_source_port")]
    pub udp_source_ports: u8,
    /// Silence of the peer, in milliseconds, after which an idle RC connection of the connection
    /// manager asks the peer for a sign of life; 0 means never. If the peer does not answer, the
    /// connection ends after the retries of its QP. Default: 10 s, but never at a port that
    /// reports the end of the peer's process: one of the local fabric, or one that is
    /// [`always_active`](PortConfig::always_active).
    #[serde(default)]
    pub keepalive_ms: Option<u32>,
    /// Connections that get an alternate path from the control plane: `never` (default), `auto`,
    /// which needs a second port; see [`Failover`].
    #[serde(default)]
    pub failover: Failover,
    /// Time after which a connection that has migrated by `failover` is led back to the path that
    /// its program has set: `never` (default), or `after:SECONDS` in which that path has been
    /// armed, 1 to 86400. The end with the shorter time leads.
    #[serde(default)]
    pub failback: Failback,
    /// The ports, 1 to 16. In the file: `[[device.port]]`.
    #[serde(rename = "port")]
    pub ports: Vec<PortConfig>,
}

impl DeviceConfig {
    /// Creates a device with one lcore, the default limits and no port.
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
            control: true,
            forwards: false,
            congestion: CongestionConfig::default(),
            selective_repeat: SelectiveRepeat::Agreed,
            udp_source_ports: 1,
            keepalive_ms: None,
            failover: Failover::Never,
            failback: Failback::Never,
            ports: Vec::new(),
        }
    }

    /// Adds a port.
    pub fn port(mut self, port: PortConfig) -> Self {
        self.ports.push(port);
        self
    }

    /// Sets the lcores.
    pub fn lcores(mut self, lcores: Lcores) -> Self {
        self.lcores = lcores;
        self
    }

    /// Sets the threads that drive the lcores.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// Sets the congestion control.
    pub fn congestion(mut self, congestion: CongestionConfig) -> Self {
        self.congestion = congestion;
        self
    }

    /// Sets the connections that use selective repeat.
    pub fn selective_repeat(mut self, selective_repeat: SelectiveRepeat) -> Self {
        self.selective_repeat = selective_repeat;
        self
    }

    /// Sets the number of UDP source ports of a QP with selective repeat: 1, 2, 4, 8 or 16.
    pub fn udp_source_ports(mut self, udp_source_ports: u8) -> Self {
        self.udp_source_ports = udp_source_ports;
        self
    }

    /// Sets the silence of the peer, in milliseconds, after which an idle connection of the
    /// connection manager asks for a sign of life; 0 means never.
    pub fn keepalive_ms(mut self, keepalive_ms: u32) -> Self {
        self.keepalive_ms = Some(keepalive_ms);
        self
    }

    /// Sets the connections that get an alternate path from the control plane.
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = failover;
        self
    }

    /// Sets the time after which a connection that has migrated by `failover` is led back.
    pub fn failback(mut self, failback: Failback) -> Self {
        self.failback = failback;
        self
    }

    /// Sets the action of idle lcores.
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }
}

/// Device of a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ethdev {
    /// A link inside the process: the two devices that name the same ring are its ends. 1 to 16
    /// characters.
    Ring(String),
    /// A virtual device, by name and arguments in the form of `--vdev`; see
    /// [`uroce_engine::port::vdev`] for strings that suit an MTU.
    Vdev(String),
    /// A NIC, by PCI address `0000:01:00.0`; or `auto`, the next of those that a device plugin of
    /// Kubernetes has given this container (environment variables `PCIDEVICE_…`); or
    /// `auto:RESOURCE`, the next of one resource, such as `auto:intel.com/sriov_vfio`.
    Pci(String),
    /// The local fabric: all other processes of this machine that name the same directory, given by
    /// its absolute path. Each has a number from 1 to 64, see [`PortConfig::member`].
    Local(PathBuf),
    /// A network interface of the kernel, by name, over the kernel's UDP sockets: without any
    /// privilege, and slower than DPDK's drivers. Routes and neighbours are the kernel's. The port
    /// has the addresses that the interface has when it is opened, or those of `ip`, which must be
    /// among them; one program has an address. No multicast.
    Udp(String),
}

/// PAUSE frames of a NIC, in the configuration's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pause {
    /// None are obeyed, and none are sent.
    Off,
    /// They are obeyed.
    Rx,
    /// They are sent.
    Tx,
    /// They are obeyed and sent.
    On,
}

impl Ethdev {
    /// Returns whether the queues have descriptors, which are DPDK's.
    pub(crate) fn has_descriptors(&self) -> bool {
        !matches!(self, Ethdev::Local(_) | Ethdev::Udp(_))
    }
}

/// A port of a device. Its IP addresses are its GIDs, in the given order.
///
/// Ports of a device may be on one network or on several: a path uses the port and the source
/// address that Modify QP names, for any destination.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// DPDK device, `{ ring = "…" }`, `{ vdev = "…" }` or `{ pci = "…" }`, or the other processes
    /// of this machine, `{ local = "DIRECTORY" }`, or a network interface over UDP sockets,
    /// `{ udp = "eth0" }`.
    pub ethdev: Ethdev,
    /// Number of this process in the local fabric, 1 to 64. Default: the smallest that is free.
    #[serde(default)]
    pub member: Option<u8>,
    /// IP addresses with the prefix lengths of their links, up to 32. Default: those of `netdev`,
    /// which the port then follows; in the local fabric `192.0.2.N/24` and `2001:db8::N/64`, where
    /// N is the member's number; otherwise none.
    #[serde(default)]
    pub ip: Vec<IpPrefix>,
    /// Kernel's network interface (netdev) behind the port, 1 to 15 bytes. The port follows its
    /// link state, its Ethernet address and its MTU, and its IP addresses if none are configured.
    /// Default: the `iface` of an af_packet or af_xdp device. The interface of a tap is not meant:
    /// it is the other end of the link.
    #[serde(default)]
    pub netdev: Option<String>,
    /// Adds the IPv6 link-local address derived from the Ethernet address, as the last GID.
    /// Default: false.
    #[serde(default)]
    pub link_local: bool,
    /// Largest Ethernet payload in bytes, 576 to 9000, with IPv6 at least 1280; default 1500. A
    /// path MTU needs 96 bytes more: 1500 carries 1024, 4200 carries 4096.
    #[serde(default = "text::default_mtu")]
    pub mtu: u16,
    /// VLAN ID of all frames, 1 to 4094; default: untagged.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Priority (PCP, 0 to 7) of packets with a DSCP (0 to 63), on a port with a VLAN, as in
    /// `{ 26 = 3, 48 = 6 }`. It counts instead of the service level, for programs that only set a
    /// traffic class. CNPs have `cnp_802p_prio`. Default: none.
    #[serde(default, deserialize_with = "text::dscp_prio", serialize_with = "write::dscp_prio")]
    pub dscp_prio: BTreeMap<u8, u8>,
    /// PAUSE frames of a NIC (IEEE 802.3): `"off"`, `"rx"` (the NIC stops sending when it receives
    /// one), `"tx"` (it sends them when its receive queue is full), `"on"` (both). Default: as the
    /// NIC's driver sets it.
    #[serde(default)]
    pub pause: Option<Pause>,
    /// Priorities (PCP, 0 to 7) for which a NIC obeys and sends PFC frames (IEEE 802.1Q), as in
    /// `[3]`, where its driver has them. Not together with `pause`. Default: none; a switch's
    /// configuration has to agree.
    #[serde(default)]
    pub pfc: Vec<u8>,
    /// Default routers on the port's link, at most one per IP version; default: none.
    #[serde(default)]
    pub gateway: Vec<IpAddr>,
    /// Static routes, up to 64, as `{ to = "198.51.100.0/24", via = "192.0.2.254" }`: packets for
    /// `to` go to the router `via` on the port's link. The longest prefix wins, those of the link
    /// included; default: none.
    #[serde(default)]
    pub routes: Vec<StaticRoute>,
    /// When the port's link goes down, armed QPs with a path on it migrate to their alternate path
    /// at once instead of after their retries. Default: true.
    #[serde(default = "text::yes")]
    pub migrate_on_link_down: bool,
    /// The port is ACTIVE regardless of the other end of its link, as a port at a switch is: for a
    /// memif link between two processes that come and go. There is no PORT_ERR and no PORT_ACTIVE;
    /// frames sent while the other end is absent are lost; and connections to the process at the
    /// other end close when it ends. Default: false; the port's state is that of the link.
    #[serde(default)]
    pub always_active: bool,
    /// Ethernet address, unicast; default: that of the DPDK device. That of a member of the local
    /// fabric follows from its number.
    #[serde(default, deserialize_with = "text::mac", serialize_with = "write::mac")]
    pub mac: Option<Mac>,
    /// Ethernet address of another process's port on the link that has the same IP addresses.
    /// Packets for these addresses go there, not to this process: to programs that use one address,
    /// the two processes are one host. Unicast; default: none.
    #[serde(default, deserialize_with = "text::mac", serialize_with = "write::mac")]
    pub twin: Option<Mac>,
    /// Descriptors of each receive queue, 64 to 32768; default 1024. The driver may have other
    /// limits.
    #[serde(default = "text::default_rx_descriptors")]
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue, and frames in a ring link, 64 to 32768; default 512.
    #[serde(default = "text::default_tx_descriptors")]
    pub tx_descriptors: u16,
    /// Packet buffers, 1023 to 2^20 - 1. Default: enough for all queues to be full, with one lcore
    /// 2047, on hardware 4095, on a ring link 1023. Each takes about 9.5 KB of `eal.memory_mb`.
    /// Almost half of them can hold packets that came early, with selective repeat: 8191 are enough
    /// for 100 Gb/s and a round trip of 1 ms.
    #[serde(default)]
    pub mbufs: Option<u32>,
    /// Random loss of RoCE packets, for tests: the shares `rx` and `tx` of packets that are
    /// dropped, 0.0 (default) to 1.0, and the `seed` of the random numbers, default 0.
    #[serde(default, deserialize_with = "text::loss", serialize_with = "write::loss")]
    pub loss: LossConfig,
    /// Bottleneck before the port, for tests of congestion, as in `{ rate = "10G", queue = "1MB",
    /// kmin = "100KB", kmax = "400KB", pmax = 0.1 }`. Frames leave at `rate`, 1M to 400G (10^6 or
    /// 10^9 bit/s), from a queue of `queue` bytes, up to 67108864B (units B, KB, MB: 10^3, 10^6).
    /// A frame that does not fit is dropped. ECN-capable frames are marked: none that finds at most
    /// `kmin` bytes in the queue, a share that rises to `pmax` (0.0 to 1.0, default 1.0) at `kmax`,
    /// and all above. `kmax` is by default the queue, and `kmin` is `kmax`; without both no frame
    /// is marked. `seed` is that of the random numbers, default 0. Default: no bottleneck.
    #[serde(
        default,
        deserialize_with = "bottleneck::from_keys",
        serialize_with = "bottleneck::to_keys"
    )]
    pub bottleneck: Option<BottleneckConfig>,
}

impl PortConfig {
    /// Creates a port with the defaults and without addresses.
    pub fn new(ethdev: Ethdev) -> Self {
        Self {
            ethdev,
            member: None,
            ip: Vec::new(),
            netdev: None,
            link_local: false,
            mtu: text::default_mtu(),
            vlan: None,
            dscp_prio: BTreeMap::new(),
            pause: None,
            pfc: Vec::new(),
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
            bottleneck: None,
        }
    }

    /// Returns what is set of a NIC's flow control.
    pub(crate) fn flow_control(&self) -> FlowControl {
        let pause = self.pause.map(|pause| port::Pause {
            rx: matches!(pause, Pause::Rx | Pause::On),
            tx: matches!(pause, Pause::Tx | Pause::On),
        });
        FlowControl { pause, pfc: self.pfc.iter().fold(0, |bits, prio| bits | 1 << prio) }
    }

    /// Creates an end of the in-process link `name`.
    pub fn ring(name: impl Into<String>) -> Self {
        Self::new(Ethdev::Ring(name.into()))
    }

    /// Creates a port on a virtual device.
    pub fn vdev(devargs: impl Into<String>) -> Self {
        Self::new(Ethdev::Vdev(devargs.into()))
    }

    /// Creates a port on a NIC.
    pub fn pci(address: impl Into<String>) -> Self {
        Self::new(Ethdev::Pci(address.into()))
    }

    /// Creates a port over the kernel's UDP sockets on a network interface.
    pub fn udp(interface: impl Into<String>) -> Self {
        Self::new(Ethdev::Udp(interface.into()))
    }

    /// Creates a port to all other processes of this machine that name the same directory.
    pub fn local(directory: impl Into<PathBuf>) -> Self {
        Self::new(Ethdev::Local(directory.into()))
    }

    /// Returns the number of the member that has this address where none are configured.
    pub fn member_at(ip: IpAddr) -> Option<u8> {
        (1..=MEMBERS_MAX).find(|number| {
            let port = PortConfig::local("").as_member(*number);
            port.ip.iter().any(|own| own.address() == ip)
        })
    }

    /// Makes the port that of the member with this number, with its Ethernet address and, if none
    /// are configured, its IP addresses. Nothing changes for a port outside of the local fabric.
    pub fn as_member(mut self, number: u8) -> Self {
        if matches!(self.ethdev, Ethdev::Local(_)) {
            self.member = Some(number);
            self.mac = Some(member_mac(number));
            if self.ip.is_empty() {
                let v4 = Ipv4Addr::new(192, 0, 2, number);
                let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into());
                // Both are hosts' addresses, so `IpPrefix::new` accepts them.
                self.ip.extend(IpPrefix::new(v4.into(), 24));
                self.ip.extend(IpPrefix::new(v6.into(), 64));
            }
        }
        self
    }

    /// Adds an IP address with prefix length, as in `192.0.2.1/24`.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the text does not have this form.
    pub fn ip(mut self, text: &str) -> Result<Self, PrefixError> {
        self.ip.push(text.parse()?);
        Ok(self)
    }

    /// Sets the netdev behind the port.
    pub fn netdev(mut self, name: impl Into<String>) -> Self {
        self.netdev = Some(name.into());
        self
    }

    /// Adds a static route to a network such as `198.51.100.0/24`, by a router on the port's link.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the text is not a network.
    pub fn route(mut self, to: &str, via: IpAddr) -> Result<Self, PrefixError> {
        self.routes.push(StaticRoute { to: to.parse()?, via });
        Ok(self)
    }

    /// Sets the MTU.
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }

    /// Sets the random loss.
    pub fn loss(mut self, loss: LossConfig) -> Self {
        self.loss = loss;
        self
    }

    /// Puts a bottleneck before the port.
    pub fn bottleneck(mut self, bottleneck: BottleneckConfig) -> Self {
        self.bottleneck = Some(bottleneck);
        self
    }

    /// Returns the name of the netdev behind the port: the configured one, or that of its DPDK
    /// device.
    pub fn netdev_name(&self) -> Option<&str> {
        let named = self.netdev.as_deref();
        named.or_else(|| match &self.ethdev {
            Ethdev::Vdev(devargs) => text::iface_of(devargs),
            Ethdev::Udp(interface) => Some(interface),
            Ethdev::Ring(_) | Ethdev::Pci(_) | Ethdev::Local(_) => None,
        })
    }

    /// Tells whether the port follows its netdev's addresses, because none are configured.
    pub fn follows_addresses(&self) -> bool {
        self.ip.is_empty() && !self.link_local && self.netdev_name().is_some()
    }
}

/// Reason for which a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The text is not TOML, or a key is unknown, missing or of the wrong type. The message has the
    /// line.
    #[error("{0}")]
    Syntax(String),
    /// A value is outside of its limits.
    #[error("{field}: {reason}")]
    Value {
        /// The field, for example `device.uroce0.port.1.mtu`; ports are numbered from 1.
        field: String,
        /// The violated limit.
        reason: String,
    },
    /// A value has no form in a file: a number above 2^63 - 1, or a path that is not UTF-8.
    #[error("the configuration cannot be written: {0}")]
    Unwritable(String),
    /// No device of the configuration has this name.
    #[error("no device of the configuration is named {0:?}")]
    UnknownDevice(String),
}

/// Longest configuration file in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Least that [`EalConfig::memory_mb`] may be.
pub(crate) const LEAST_MEMORY_MB: u32 = 64;
/// Largest value of [`EalConfig::memory_mb`] if it is not configured.
pub(crate) const DEFAULT_MEMORY_MB: u32 = 512;

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let len = File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if len as u64 > FILE_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

impl Config {
    /// Creates a configuration without devices and with EAL's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device.
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
        config.with_given_nics()
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

    /// Writes the configuration as the text of a file, which [`from_toml`](Config::from_toml) reads
    /// back to an equal value, except [`DeviceConfig::forwards`]. Values that are the defaults are
    /// left out.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Unwritable`].
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        write::file(self)
    }

    /// Replaces the PCI address `auto` by those of the NICs that this container was given.
    pub(crate) fn with_given_nics(mut self) -> Result<Self, ConfigError> {
        let variables = std::env::vars_os();
        // A name or a value that is not UTF-8 is none of an address.
        let texts = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        given::resolve(&mut self, texts)?;
        Ok(self)
    }

    /// Returns the device with this name.
    ///
    /// # Errors
    ///
    /// [`ConfigError::UnknownDevice`] if there is none.
    pub fn find(&self, name: &str) -> Result<&DeviceConfig, ConfigError> {
        let found = self.devices.iter().find(|device| device.name == name);
        found.ok_or_else(|| ConfigError::UnknownDevice(name.to_owned()))
    }

    /// Checks the limits in the documentation of all fields.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Value`] for the first value outside of its limits.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::config(self)
    }
}

#[cfg(test)]
mod tests;
