//! Opening a device: from a configuration to a running engine.

use std::io::Write;

use uroce_engine::eal::{Eal, EalError, Memory, hugepages_for};
use uroce_engine::mbuf::{Mempool, PoolError};
use uroce_engine::port::{self, LocalConfig, LocalError, Port, PortError};
use uroce_engine::port::{UdpConfig, UdpError, udp_mac};
use uroce_engine::{
    Control, Engine, EngineConfig, EngineError, IdlePolicy, PortBinding, ThreadError,
};
use uroce_wire::Mac;

use super::pool::{self, PoolSpent};
use super::ring::{self, RingError, RingLease, RingSpec};
use crate::call::Calls;
use crate::config::{
    Config, ConfigError, DEFAULT_MEMORY_MB, DeviceConfig, EalConfig, Ethdev, Idle, Lcores,
    PortConfig, RunDirError,
};
use crate::container::{ContainerError, Limits};
use crate::netdev::{NetdevState, Watch, Watcher};
use crate::path::gid_table::GidTable;
use crate::path::neighbour::Neighbours;
use crate::path::prefix::{IpPrefix, link_local};
use crate::path::route::{Routes, StaticRoute};
use crate::port_watch::{PortWatch, Ports, port_addresses};

/// Reason for which a device was not opened. A failed call leaves nothing open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration is wrong or does not have the device.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no directory in which the processes of this machine could meet.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The container has too little memory.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// DPDK's environment did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// There is no memory for a port's packet buffers.
    #[error("port {port}: {error}")]
    Pool {
        /// Port, from 1.
        port: u8,
        /// The error.
        error: PoolError,
    },
    /// A port could not be opened.
    #[error("port {port}: {error}")]
    Port {
        /// Port, from 1.
        port: u8,
        /// The error.
        error: PortError,
    },
    /// A port's NIC leaves too few packet buffers to send.
    #[error("port {port}: {spent}")]
    PoolSpent {
        /// Port, from 1.
        port: u8,
        /// What the NIC holds, and the number that works.
        spent: PoolSpent,
    },
    /// A port over UDP sockets could not be opened.
    #[error("port {port}: {error}")]
    Udp {
        /// Port, from 1.
        port: u8,
        /// The error.
        error: UdpError,
    },
    /// The other processes of this machine could not be joined.
    #[error("port {port}: {error}")]
    Local {
        /// Port, from 1.
        port: u8,
        /// The error.
        error: LocalError,
    },
    /// The end of a ring link could not be claimed.
    #[error("port {port}: {error}")]
    Ring {
        /// Port, from 1.
        port: u8,
        /// The error.
        error: RingError,
    },
    /// The interface that a port's `netdev` names does not exist.
    #[error("port {port}: there is no network interface {name:?}: use one that `ip link` shows")]
    NoNetdev {
        /// Port, from 1.
        port: u8,
        /// Name of the interface.
        name: String,
    },
    /// The kernel's network interfaces cannot be read.
    #[error("network interfaces cannot be followed: {0}")]
    Netdevs(std::io::Error),
    /// The lcores did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    /// QP 1 could not be created.
    #[error("no general services interface: {0}")]
    Gsi(uroce_transport::ModifyError),
    /// The control-plane thread could not be started.
    #[error("no control-plane thread: {0}")]
    Thread(std::io::Error),
}

impl OpenError {
    /// Returns the errnos behind the error: the operating system's, or those named in DPDK's log.
    pub fn errnos(&self) -> Vec<i32> {
        let of_system = |error: &std::io::Error| error.raw_os_error().into_iter().collect();
        match self {
            OpenError::Eal(error)
            | OpenError::Engine(EngineError::Thread { error: ThreadError::Eal(error), .. }) => {
                error.errnos()
            }
            OpenError::Pool { error, .. } => error.errnos(),
            OpenError::Port { error, .. }
            | OpenError::Ring { error: RingError::Port(error), .. } => error.errnos(),
            OpenError::Config(ConfigError::Read { error, .. })
            | OpenError::Netdevs(error)
            | OpenError::Thread(error)
            | OpenError::Engine(
                EngineError::Events(error)
                | EngineError::Thread { error: ThreadError::Spawn(error), .. },
            ) => of_system(error),
            OpenError::Local { error, .. } => error.errno().into_iter().collect(),
            OpenError::Udp { error, .. } => error.errno().into_iter().collect(),
            OpenError::Config(_)
            | OpenError::RunDir(_)
            | OpenError::Container(_)
            | OpenError::Ring { .. }
            | OpenError::PoolSpent { .. }
            | OpenError::NoNetdev { .. }
            | OpenError::Engine(_)
            | OpenError::NoRandomness(_)
            | OpenError::Gsi(_) => Vec::new(),
        }
    }
}

/// A running engine with its ports.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) control: Control,
    pub(super) ports: Ports,
    pub(super) netdevs: Option<Netdevs>,
    pub(super) leases: Vec<RingLease>,
}

/// The netdevs behind some of the ports.
#[derive(Debug)]
pub(super) struct Netdevs {
    pub(super) watcher: Watcher,
    /// Numbers of the ports with these netdevs.
    pub(super) ports: Vec<u8>,
}

pub(super) fn open(config: &Config, device: &DeviceConfig) -> Result<Opened, OpenError> {
    let limits = Limits::of_process();
    let eal = Eal::init(&eal_config(config, &limits)?)?;
    // Declared first, so that it is dropped last: a lease must outlive its port.
    let mut leases = Vec::new();
    let mut opened = Vec::new();
    for (port_config, number) in device.ports.iter().zip(1..) {
        let pool = pool::create(eal, device, port_config)
            .map_err(|error| OpenError::Pool { port: number, error })?;
        let port = open_port(eal, device, port_config, number, &pool, &mut leases)?;
        opened.push((port, pool));
    }
    // Looked up after the ports are opened, because some DPDK devices create the named interface.
    let netdevs = find_netdevs(device)?;
    let mut ports = Ports::default();
    let mut bindings = Vec::new();
    for ((port, pool), (config, number)) in opened.into_iter().zip(device.ports.iter().zip(1..)) {
        let state = netdevs.as_ref().and_then(|netdevs| netdevs.state_of(number));
        let config = match port.member() {
            Some(number) => &config.clone().as_member(number),
            None => config,
        };
        let mac = config.mac.unwrap_or_else(|| port.mac());
        let mut own = addresses(config, mac, state.as_ref());
        if let Some(bound) = port.socket_addresses() {
            // An address that the interface was given after the sockets were opened has none.
            own.retain(|prefix| bound.contains(&prefix.address()));
        }
        let routes = Routes::new(GidTable::new(&own), routes(config)).with_twin(config.twin);
        let neighbours = match config.ethdev {
            Ethdev::Udp(_) => Neighbours::of_kernel(mac, routes, udp_mac),
            _ => Neighbours::new(mac, config.vlan, routes).with_dscp_prio(config.dscp_prio.clone()),
        };
        let watch = PortWatch::new(config, port.mtu(), state);
        let addresses = port_addresses(&neighbours);
        let (loss, bottleneck) = (config.loss, config.bottleneck);
        bindings.push(PortBinding { port, pool, addresses, loss, bottleneck });
        ports.push(neighbours, watch);
    }
    let (engine, control) = Engine::start(engine_config(config, device, limits), bindings)?;
    Ok(Opened { engine, control, ports, netdevs, leases })
}

fn find_netdevs(device: &DeviceConfig) -> Result<Option<Netdevs>, OpenError> {
    let named = device.ports.iter().zip(1..);
    let named = named.filter_map(|(port, number)| Some((port.netdev_name()?, number)));
    let (names, ports): (Vec<&str>, Vec<u8>) = named.unzip();
    if names.is_empty() {
        return Ok(None);
    }
    let watcher = Watcher::open(&names).map_err(OpenError::Netdevs)?;
    for (at, (name, port)) in names.iter().zip(&ports).enumerate() {
        if !watcher.exists(at) {
            return Err(OpenError::NoNetdev { port: *port, name: (*name).to_owned() });
        }
    }
    Ok(Some(Netdevs { watcher, ports }))
}

impl Netdevs {
    /// Starts to report every change of the netdevs to the control-plane thread.
    pub(super) fn watch(self, calls: Calls) -> std::io::Result<Watch> {
        let Self { watcher, ports } = self;
        watcher.watch(move |at, state| {
            // An error means that the thread has ended.
            let port = ports[at];
            let _ = calls.send(move |thread| thread.follow_netdev(port, state));
        })
    }

    fn state_of(&self, port: u8) -> Option<NetdevState> {
        let at = self.ports.iter().position(|number| *number == port)?;
        self.watcher.states().nth(at).cloned()
    }
}

/// Returns the PCI addresses of all ports.
fn nics(config: &Config) -> Vec<String> {
    let ports = config.devices.iter().flat_map(|device| &device.ports);
    let address = |port: &PortConfig| match &port.ethdev {
        Ethdev::Pci(address) => Some(address.clone()),
        Ethdev::Ring(_) | Ethdev::Vdev(_) | Ethdev::Local(_) | Ethdev::Udp(_) => None,
    };
    ports.filter_map(address).collect()
}

/// Returns the parameters with which DPDK starts for a device of this configuration: its memory,
/// within the container's limits and in hugepages where a NIC cannot do without them, and the NICs.
/// For programs that use a NIC without a device.
///
/// # Errors
///
/// [`OpenError::Config`] if an address `auto` has no NIC, [`OpenError::Container`] if the memory
/// does not fit.
pub fn dpdk_parameters(config: &Config) -> Result<uroce_engine::eal::EalConfig, OpenError> {
    eal_config(&config.clone().with_given_nics()?, &Limits::of_process())
}

/// Returns EAL's parameters. They depend on the whole configuration, not on one device.
fn eal_config(config: &Config, limits: &Limits) -> Result<uroce_engine::eal::EalConfig, OpenError> {
    let (eal, nics, running) = (&config.eal, nics(config), Eal::memory());
    let wishes = with_hugepages(eal, limits, running, || hugepages_for(&nics));
    Ok(uroce_engine::eal::EalConfig {
        memory: limits.memory(&wishes, running)?,
        vdevs: Vec::new(),
        pci_allow: nics,
        control_cpus: eal.control_cpus.clone(),
        file_prefix: eal.file_prefix.clone(),
        log: eal.log,
        args: eal.args.clone(),
    })
}

/// Returns the wishes for DPDK's memory: hugepages where a NIC cannot do without them, by default
/// no more than are free. `needed_mb` returns the megabytes that are free if a NIC needs them.
fn with_hugepages(
    eal: &EalConfig,
    limits: &Limits,
    running: Option<Memory>,
    needed_mb: impl FnOnce() -> Option<u32>,
) -> EalConfig {
    let eal = eal.clone();
    match (eal.huge, running) {
        (true, _) => eal,
        // Without the first device's choice, DPDK would be asked for other memory than it has.
        (false, Some(memory)) => EalConfig { huge: matches!(memory, Memory::Huge { .. }), ..eal },
        (false, None) => match needed_mb() {
            None => eal,
            Some(free_mb) => {
                let most = limits.hugepages_up_to(free_mb.min(DEFAULT_MEMORY_MB));
                EalConfig { huge: true, memory_mb: eal.memory_mb.or(Some(most)), ..eal }
            }
        },
    }
}

fn engine_config(config: &Config, device: &DeviceConfig, limits: Limits) -> EngineConfig {
    // All devices of the process compete for its CPUs.
    let lcores_in_all = config.devices.iter().map(|device| device.lcores.count()).sum();
    let (idle, warning) = limits.idle(device.idle, lcores_in_all);
    if let Some(warning) = warning {
        // An error means that stderr is closed.
        let _ = writeln!(std::io::stderr(), "uroce: device {}: {warning}", device.name);
    }
    EngineConfig {
        lcores: match &device.lcores {
            Lcores::Count(count) => vec![None; usize::from(*count)],
            Lcores::Cpus(cpus) => cpus.iter().copied().map(Some).collect(),
        },
        max_qps: device.max_qps,
        max_mrs: device.max_mrs,
        max_ahs: device.max_ahs,
        idle: match idle {
            Idle::Auto => IdlePolicy::for_lcores(lcores_in_all),
            Idle::Poll => IdlePolicy::Poll,
            Idle::Yield => IdlePolicy::Yield,
            Idle::Sleep => IdlePolicy::Sleep,
        },
        driver: device.driver,
        congestion: device.congestion.congestion(),
        udp_source_ports: device.udp_source_ports,
        notification: device.congestion.notification(),
    }
}

fn open_port(
    eal: &'static Eal,
    device: &DeviceConfig,
    config: &PortConfig,
    number: u8,
    pool: &Mempool,
    leases: &mut Vec<RingLease>,
) -> Result<Port, OpenError> {
    let lcores = device.lcores.count() as u16;
    let port_config = config;
    let name = match &config.ethdev {
        Ethdev::Vdev(devargs) => devargs,
        Ethdev::Pci(address) => address,
        Ethdev::Ring(name) => {
            let spec = RingSpec {
                name: name.clone(),
                queue_pairs: lcores,
                frames: u32::from(config.tx_descriptors).next_power_of_two(),
                mtu: config.mtu,
            };
            let (port, lease) = ring::claim(eal, &spec, pool)
                .map_err(|error| OpenError::Ring { port: number, error })?;
            leases.push(lease);
            return Ok(port);
        }
        Ethdev::Udp(interface) => return open_udp(config, interface, number, lcores, pool),
        Ethdev::Local(directory) => {
            let config = LocalConfig {
                directory: directory.clone(),
                member: config.member,
                queue_pairs: lcores,
                mtu: config.mtu,
            };
            return Port::join(config, pool)
                .map_err(|error| OpenError::Local { port: number, error });
        }
    };
    let config = port::PortConfig {
        device: name.clone(),
        queue_pairs: lcores,
        mtu: config.mtu,
        rx_descriptors: config.rx_descriptors,
        tx_descriptors: config.tx_descriptors,
        mac: config.mac,
        rx_interrupts: device.idle == Idle::Sleep,
        flow_control: port_config.flow_control(),
    };
    let port =
        Port::open(eal, &config, pool).map_err(|error| OpenError::Port { port: number, error })?;
    if matches!(port_config.ethdev, Ethdev::Pci(_)) {
        let warning = pool::check(device, port_config, &port, pool)
            .map_err(|spent| OpenError::PoolSpent { port: number, spent })?;
        if let Some(spent) = warning {
            // An error means that stderr is closed.
            let _ = writeln!(
                std::io::stderr(),
                "uroce: device {}: port {number}: {spent}, or sending may stand still",
                device.name
            );
        }
    }
    Ok(port)
}

/// Opens a port over UDP sockets, at the addresses that its interface has now or at the configured
/// ones.
fn open_udp(
    config: &PortConfig,
    interface: &str,
    number: u8,
    queue_pairs: u16,
    pool: &Mempool,
) -> Result<Port, OpenError> {
    let watcher = Watcher::open(&[interface]).map_err(OpenError::Netdevs)?;
    if !watcher.exists(0) {
        return Err(OpenError::NoNetdev { port: number, name: interface.to_owned() });
    }
    let own = addresses(config, Mac::default(), watcher.states().next());
    let config = UdpConfig {
        interface: interface.to_owned(),
        addresses: own.iter().map(IpPrefix::address).collect(),
        mac: config.mac,
        queue_pairs,
        mtu: config.mtu,
    };
    Port::over_udp(config, pool).map_err(|error| OpenError::Udp { port: number, error })
}

/// Returns the IP addresses that a port has when it is opened.
pub(super) fn addresses(
    config: &PortConfig,
    mac: Mac,
    netdev: Option<&NetdevState>,
) -> Vec<IpPrefix> {
    if let Some(netdev) = netdev.filter(|_| config.follows_addresses()) {
        return netdev.addresses.clone();
    }
    let mut addresses = config.ip.clone();
    if config.link_local {
        // A link-local address is always a host's address, so `IpPrefix::new` accepts it.
        addresses.extend(IpPrefix::new(link_local(mac.0).into(), 64));
    }
    addresses
}

/// Returns the static routes. A gateway is the default route of its IP version.
fn routes(config: &PortConfig) -> Vec<StaticRoute> {
    let gateways = config.gateway.iter().copied().map(StaticRoute::default_via);
    config.routes.iter().copied().chain(gateways).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory_mb: None, hugepages_mb: Some(256), cpu_millis: None };

    #[test]
    fn hugepages_are_used_without_an_option_where_a_nic_needs_them() {
        let memory = |eal: &EalConfig, running, needed_mb| {
            let wishes = with_hugepages(eal, &LIMITS, running, || needed_mb);
            LIMITS.memory(&wishes, running).unwrap()
        };
        let default = EalConfig::default();
        let plain = Memory::NoHuge { mb: DEFAULT_MEMORY_MB };
        assert_eq!(memory(&default, None, None), plain);
        assert_eq!(memory(&default, None, Some(100)), Memory::Huge { mb: 100 }, "what is free");
        assert_eq!(memory(&default, None, Some(4096)), Memory::Huge { mb: 256 }, "what may be");
        let sized = EalConfig { memory_mb: Some(128), ..EalConfig::default() };
        assert_eq!(memory(&sized, None, Some(4096)), Memory::Huge { mb: 128 });
        assert_eq!(memory(&default, Some(plain), Some(4096)), plain, "DPDK's own remains");
    }

    #[test]
    fn the_parameters_of_dpdk_have_all_nics() {
        let device = |name| {
            let pci = PortConfig::pci("0000:01:00.0");
            DeviceConfig::new(name).port(pci).port(PortConfig::vdev("net_null0"))
        };
        let parameters = dpdk_parameters(&Config::new().device(device("a"))).unwrap();
        assert_eq!(parameters.pci_allow, ["0000:01:00.0"]);
        assert!(parameters.vdevs.is_empty());
    }
}
