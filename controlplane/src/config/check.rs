//! Checks of the limits of all fields.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use uroce_engine::port::{MEMBERS_MAX, member_mac};
use uroce_transport::MAX_UDP_SOURCE_PORTS;

use super::{
    Config, ConfigError, CongestionConfig, DeviceConfig, Ethdev, LEAST_MEMORY_MB, PortConfig, given,
};
use crate::path::gid_table::GidTable;
use crate::path::route::{Routes, StaticRoute};

const LCORES: RangeInclusive<usize> = 1..=16;
const PORTS: RangeInclusive<usize> = 1..=16;
pub(crate) const ADDRESSES_MAX: usize = 32;
pub(crate) const ROUTES_MAX: usize = 64;
/// Highest rate of congestion control, in Mb/s.
const RATE_MAX: u32 = 4_000_000;
/// CPU numbers that the system's CPU sets can contain.
const CPUS: RangeInclusive<usize> = 0..=1023;
/// DPDK's memory in megabytes.
const MEMORY_MB: RangeInclusive<u32> = LEAST_MEMORY_MB..=1 << 20;
/// Smallest MTU for IPv6 (RFC 8200).
pub(crate) const MTU_IPV6_MIN: u16 = 1280;

pub(super) fn config(config: &Config) -> Result<(), ConfigError> {
    let eal = &config.eal;
    eal.memory_mb.iter().try_for_each(|mb| within("eal.memory_mb", *mb, MEMORY_MB))?;
    if let Some(prefix) = &eal.file_prefix {
        let fits = (1..=64).contains(&prefix.len()) && !prefix.contains('/');
        require(fits, "eal.file_prefix", "is not 1 to 64 characters without a slash")?;
    }
    eal.control_cpus.iter().try_for_each(|cpu| within("eal.control_cpus", *cpu, CPUS))?;
    require(!config.devices.is_empty(), "device", "is missing")?;
    let mut names = BTreeSet::new();
    for device in &config.devices {
        let is_new = names.insert(&device.name);
        require(is_new, "device.name", &format!("{:?} is used twice", device.name))?;
        check_device(device)?;
    }
    Ok(())
}

fn check_device(device: &DeviceConfig) -> Result<(), ConfigError> {
    let name = &device.name;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let is_name = (1..=32).contains(&name.len()) && name.chars().all(plain);
    require(is_name, "device.name", &format!("{name:?} is not 1 to 32 of A-Z a-z 0-9 _ . -"))?;
    let field = |key: &str| format!("device.{name}.{key}");

    within(&field("lcores"), device.lcores.count(), LCORES)?;
    if let super::Lcores::Cpus(cpus) = &device.lcores {
        let distinct: BTreeSet<_> = cpus.iter().collect();
        require(distinct.len() == cpus.len(), &field("lcores"), "a CPU is listed twice")?;
        cpus.iter().try_for_each(|cpu| within(&field("lcores"), *cpu, CPUS))?;
    }
    device.control_cpu.iter().try_for_each(|cpu| within(&field("control_cpu"), *cpu, CPUS))?;
    within(&field("max_qps"), device.max_qps, 1..=1 << 20)?;
    within(&field("max_mrs"), device.max_mrs, 1..=1 << 20)?;
    within(&field("max_ahs"), device.max_ahs, 1..=1 << 20)?;
    let ports = device.udp_source_ports;
    let is_right = ports.is_power_of_two() && ports <= MAX_UDP_SOURCE_PORTS;
    let reason = format!("{ports} is not 1, 2, 4, 8 or {MAX_UDP_SOURCE_PORTS}");
    require(is_right, &field("udp_source_ports"), &reason)?;
    check_congestion(&device.congestion, &field("congestion"))?;
    within(&field("port"), device.ports.len(), PORTS)?;
    let has_other = device.failover == super::Failover::Never || device.ports.len() > 1;
    require(has_other, &field("failover"), "`auto` needs a second port")?;
    let is_used =
        device.failback == super::Failback::Never || device.failover == super::Failover::Auto;
    require(is_used, &field("failback"), "needs `failover = \"auto\"`")?;
    for (index, port) in device.ports.iter().enumerate() {
        let field = format!("device.{name}.port.{}", index + 1);
        check_member(port, &field)?;
        check_udp(port, &field)?;
        // With the addresses that a member of the local fabric will have.
        check_port(&port.clone().as_member(port.member.unwrap_or(1)), &field)?;
    }
    let mut addresses = BTreeSet::new();
    for prefix in device.ports.iter().flat_map(|port| &port.ip) {
        let is_new = addresses.insert(prefix.address());
        require(is_new, &field("port.ip"), &format!("{} is used twice", prefix.address()))?;
    }
    Ok(())
}

fn check_congestion(config: &CongestionConfig, name: &str) -> Result<(), ConfigError> {
    let CongestionConfig { dcqcn, delay, .. } = config;
    within(&format!("{name}.cnp_dscp"), config.cnp_dscp, 0..=63)?;
    within(&format!("{name}.cnp_802p_prio"), config.cnp_802p_prio, 0..=7)?;
    let gap = config.min_time_between_cnps;
    within(&format!("{name}.min_time_between_cnps"), gap, 0..=4095)?;
    let values = [
        ("dcqcn.rpg_time_reset", dcqcn.rpg_time_reset, 1..=131_071),
        ("dcqcn.rpg_byte_reset", dcqcn.rpg_byte_reset, 1..=u32::MAX),
        ("dcqcn.rpg_threshold", dcqcn.rpg_threshold, 1..=31),
        ("dcqcn.rpg_ai_rate", dcqcn.rpg_ai_rate, 1..=RATE_MAX),
        ("dcqcn.rpg_hai_rate", dcqcn.rpg_hai_rate, 1..=RATE_MAX),
        ("dcqcn.rpg_gd", dcqcn.rpg_gd.into(), 10..=15),
        ("dcqcn.rpg_min_dec_fac", dcqcn.rpg_min_dec_fac.into(), 0..=100),
        ("dcqcn.rpg_min_rate", dcqcn.rpg_min_rate, 1..=RATE_MAX),
        ("dcqcn.rpg_max_rate", dcqcn.rpg_max_rate, 0..=RATE_MAX),
        ("dcqcn.dce_tcp_rtt", dcqcn.dce_tcp_rtt, 1..=131_071),
        ("dcqcn.dce_tcp_g", dcqcn.dce_tcp_g.into(), 1..=1023),
        ("dcqcn.rate_reduce_monitor_period", dcqcn.rate_reduce_monitor_period, 0..=131_071),
        ("dcqcn.initial_alpha_value", dcqcn.initial_alpha_value.into(), 1..=1023),
        ("dcqcn.rate_to_set_on_first_cnp", dcqcn.rate_to_set_on_first_cnp, 0..=RATE_MAX),
        ("delay.target_delay_us", delay.target_delay_us, 1..=1_000_000),
        ("delay.ai_rate", delay.ai_rate, 1..=RATE_MAX),
        ("delay.beta", delay.beta.into(), 0..=100),
        ("delay.max_mdf", delay.max_mdf.into(), 0..=100),
        ("delay.min_rate", delay.min_rate, 1..=RATE_MAX),
        ("delay.max_rate", delay.max_rate, 0..=RATE_MAX),
    ];
    let mut values = values.into_iter();
    values.try_for_each(|(key, value, range)| within(&format!("{name}.{key}"), value, range))
}

fn check_port(port: &PortConfig, name: &str) -> Result<(), ConfigError> {
    let field = |key: &str| format!("{name}.{key}");
    check_ethdev(&port.ethdev, &field("ethdev"))?;
    require(port.ip.len() <= ADDRESSES_MAX, &field("ip"), "has more than 32 addresses")?;
    within(&field("mtu"), port.mtu, 576..=9000)?;
    let has_v6 = port.link_local || port.ip.iter().any(|own| own.address().is_ipv6());
    let fits_v6 = !has_v6 || port.mtu >= MTU_IPV6_MIN;
    require(fits_v6, &field("mtu"), "is less than 1280, which IPv6 needs")?;
    if let Some(vlan) = port.vlan {
        within(&field("vlan"), vlan, 1..=4094)?;
    }
    check_priorities(port, name)?;
    if let Some(netdev) = &port.netdev {
        check_netdev(netdev, &field("netdev"))?;
    }
    check_routes(port, name)?;
    for (name, mac) in [("mac", port.mac), ("twin", port.twin)] {
        let Some(mac) = mac else { continue };
        let is_host = !mac.is_multicast() && mac != uroce_wire::Mac::default();
        require(is_host, &field(name), &format!("{mac} is not one station's address"))?;
    }
    within(&field("rx_descriptors"), port.rx_descriptors, 64..=32768)?;
    within(&field("tx_descriptors"), port.tx_descriptors, 64..=32768)?;
    if let Some(mbufs) = port.mbufs {
        within(&field("mbufs"), mbufs, 1023..=(1 << 20) - 1)?;
    }
    for (key, share) in [("loss.rx", port.loss.rx), ("loss.tx", port.loss.tx)] {
        require((0.0..=1.0).contains(&share), &field(key), "is not from 0.0 to 1.0")?;
    }
    match port.bottleneck.map(|bottleneck| bottleneck.check()) {
        Some(Err(error)) => Err(ConfigError::Value {
            field: field(&format!("bottleneck.{}", error.field())),
            reason: error.to_string(),
        }),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Checks the priorities of sent packets, and the frames by which a receiver stops the sender.
fn check_priorities(port: &PortConfig, name: &str) -> Result<(), ConfigError> {
    let field = |key: &str| format!("{name}.{key}");
    for (dscp, prio) in &port.dscp_prio {
        within(&field("dscp_prio"), *dscp, 0..=63)?;
        within(&field(&format!("dscp_prio.{dscp}")), *prio, 0..=7)?;
    }
    let has_tag = port.dscp_prio.is_empty() || port.vlan.is_some();
    require(has_tag, &field("dscp_prio"), "needs `vlan`: a priority is in the tag of a frame")?;
    port.pfc.iter().try_for_each(|prio| within(&field("pfc"), *prio, 0..=7))?;
    let is_nic = matches!(port.ethdev, Ethdev::Pci(_) | Ethdev::Vdev(_));
    for (key, is_set) in [("pause", port.pause.is_some()), ("pfc", !port.pfc.is_empty())] {
        require(is_nic || !is_set, &field(key), "needs a NIC: leave it out")?;
    }
    let is_one = port.pause.is_none() || port.pfc.is_empty();
    require(is_one, &field("pfc"), "excludes `pause`: leave one of them out")
}

fn check_ethdev(ethdev: &Ethdev, field: &str) -> Result<(), ConfigError> {
    match ethdev {
        Ethdev::Ring(name) => {
            let fits = (1..=16).contains(&name.len());
            require(fits, field, "a ring's name has 1 to 16 characters")
        }
        Ethdev::Vdev(devargs) => {
            let driver = devargs.split(',').next().unwrap_or_default();
            require(!driver.is_empty(), field, "a vdev begins with its driver's name")
        }
        Ethdev::Pci(address) => {
            let digits =
                |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
            let parts: Vec<&str> = address.split([':', '.']).collect();
            let fits = (3..=4).contains(&parts.len()) && parts.into_iter().all(digits);
            let fits = fits || given::is_auto(address);
            let form =
                "a PCI address has the form 0000:01:00.0, or is \"auto\" or \"auto:RESOURCE\"";
            require(fits, field, form)
        }
        Ethdev::Udp(name) => check_netdev(name, field),
        Ethdev::Local(directory) => {
            require(directory.is_absolute(), field, "a directory is named by its absolute path")
        }
    }
}

fn check_netdev(name: &str, field: &str) -> Result<(), ConfigError> {
    let fits = (1..=15).contains(&name.len()) && !name.contains(['/', ' ']);
    require(fits, field, "is not 1 to 15 characters without slash and space")
}

/// Checks what a port over UDP sockets cannot have, because the kernel makes its frames.
fn check_udp(port: &PortConfig, name: &str) -> Result<(), ConfigError> {
    let Ethdev::Udp(interface) = &port.ethdev else { return Ok(()) };
    let field = |key: &str| format!("{name}.{key}");
    let of_kernel = "is the kernel's on a port over UDP sockets: leave it out";
    require(port.vlan.is_none(), &field("vlan"), "needs an interface of the VLAN: name that one")?;
    require(port.gateway.is_empty(), &field("gateway"), of_kernel)?;
    require(port.routes.is_empty(), &field("routes"), of_kernel)?;
    require(port.twin.is_none(), &field("twin"), "needs a port of another kind")?;
    require(!port.link_local, &field("link_local"), of_kernel)?;
    let is_own = port.netdev.as_ref().is_none_or(|netdev| netdev == interface);
    require(is_own, &field("netdev"), "is that of `udp`: leave it out")
}

/// Checks what only a port of the local fabric has, and what it does not have.
fn check_member(port: &PortConfig, name: &str) -> Result<(), ConfigError> {
    let field = |key: &str| format!("{name}.{key}");
    let is_local = matches!(port.ethdev, Ethdev::Local(_));
    if let Some(member) = port.member {
        require(is_local, &field("member"), "only a port of the local fabric has a number")?;
        within(&field("member"), member, 1..=MEMBERS_MAX)?;
    }
    let own = port.member.map(member_mac);
    let keeps_mac = !is_local || port.mac.is_none() || port.mac == own;
    require(keeps_mac, &field("mac"), "a member's Ethernet address follows from its number")
}

/// Checks that routers are on the link. On a port that follows its netdev this cannot be known yet.
fn check_routes(port: &PortConfig, name: &str) -> Result<(), ConfigError> {
    let field = |key: &str| format!("{name}.{key}");
    require(port.routes.len() <= ROUTES_MAX, &field("routes"), "has more than 64 routes")?;
    let link = Routes::new(GidTable::new(&port.ip), Vec::new());
    let check_router = |field: &str, router: IpAddr| {
        let reason = format!("{router} is not another host on the port's link");
        require(port.follows_addresses() || link.is_neighbour(router), field, &reason)
    };
    for gateway in &port.gateway {
        check_router(&field("gateway"), *gateway)?;
        let of_version = port.gateway.iter().filter(|other| other.is_ipv4() == gateway.is_ipv4());
        require(of_version.count() == 1, &field("gateway"), "has two of one IP version")?;
    }
    for StaticRoute { to, via } in &port.routes {
        check_router(&field("routes"), *via)?;
        let reason = format!("{to} and {via} have different IP versions");
        require(to.is_ipv4() == via.is_ipv4(), &field("routes"), &reason)?;
    }
    Ok(())
}

fn require(holds: bool, field: &str, reason: &str) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError::Value { field: field.to_owned(), reason: reason.to_owned() })
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &str,
    value: T,
    limits: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    let reason = || format!("{value} is not within {} to {}", limits.start(), limits.end());
    if limits.contains(&value) { Ok(()) } else { require(false, field, &reason()) }
}
