//! A port without a protocol stack.

use super::Setting;
use crate::cli::DeviceArgs;
use crate::error::{BenchError, Step};
use crate::nic_check::{PortReport, Sending};
use std::time::{Duration, Instant};
use uroce::config;
use uroce_engine::eal::{Eal, EalConfig, ThreadGuard};
use uroce_engine::mbuf::{Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::{By, Feature, Port, PortConfig, QueuePair, vdev};

/// Mbufs of a port (two full queues and those of the thread), and the size of a thread's cache.
const POOL: (u32, u32) = (4095, 256);
/// Frames that a ring between two ports holds, as between two devices.
const RING: u32 = 512;
/// Mbufs of two ports joined by rings (a full ring and those of both ends), and the cache's size.
const RING_POOL: (u32, u32) = (1023, 64);
/// Least bytes of an mbuf: drivers refuse buffers that do not hold a frame of their own.
const ROOM_MIN: u16 = 2048;
/// Longest wait for a device's link (memif: for the peer to connect).
const LINK_PATIENCE: Duration = Duration::from_secs(15);

/// A port, its queue pair and its mempool.
pub(crate) struct RawPort {
    pub(crate) port: Port,
    pub(crate) queue: QueuePair,
    pub(crate) pool: Mempool,
    eal: &'static Eal,
}

impl RawPort {
    /// Opens the device that the options name.
    pub(crate) fn open(args: &DeviceArgs, setting: &Setting) -> Result<Self, BenchError> {
        Self::open_with(args, setting, 1)
    }

    /// Opens the device that the options name, with several queue pairs if it has them.
    pub(crate) fn open_with(
        args: &DeviceArgs,
        setting: &Setting,
        queue_pairs: u16,
    ) -> Result<Self, BenchError> {
        let (config, device) = dpdk(args)?;
        let eal = Eal::init(&config).step("starting DPDK")?;
        Self::open_as(eal, PortConfig { queue_pairs, ..PortConfig::new(device) }, setting)
    }

    /// Opens a device on a running EAL.
    pub(crate) fn open_on(
        eal: &'static Eal,
        device: String,
        setting: &Setting,
    ) -> Result<Self, BenchError> {
        Self::open_as(eal, PortConfig::new(device), setting)
    }

    fn open_as(
        eal: &'static Eal,
        config: PortConfig,
        setting: &Setting,
    ) -> Result<Self, BenchError> {
        let (each, cache) = POOL;
        let count = (each + 1) * u32::from(config.queue_pairs).next_power_of_two() - 1;
        let pool = pool(eal, setting, (count, cache), vdev::copies(&config.device))?;
        let config = PortConfig { mtu: port_mtu(setting), ..config };
        let port = Port::open(eal, &config, &pool).step("opening the device")?;
        Self::on(eal, port, pool)
    }

    /// Creates two ports joined by rings, and starts EAL if it is not running.
    pub(crate) fn ring_pair(name: &str, setting: &Setting) -> Result<(Self, Self), BenchError> {
        let eal = match Eal::running() {
            Some(eal) => eal,
            None => Eal::init(&EalConfig::default()).step("starting DPDK")?,
        };
        let pool = pool(eal, setting, RING_POOL, true)?;
        let (left, right) =
            ring_pair(eal, name, 1, RING, port_mtu(setting), &pool).step("making a ring pair")?;
        Ok((Self::on(eal, left, pool.clone())?, Self::on(eal, right, pool)?))
    }

    fn on(eal: &'static Eal, port: Port, pool: Mempool) -> Result<Self, BenchError> {
        let queue = port.queue_pair(0).step("taking the queue pair")?;
        Ok(Self { port, queue, pool, eal })
    }

    /// Describes the port.
    pub(crate) fn report(&self) -> PortReport {
        let (of, link) = (self.port.capabilities(), self.port.link());
        let negotiated = self.port.negotiated();
        let named = |by: By| {
            let features = self.port.features();
            let these = features.iter().filter(|feature| feature.by == by);
            let text = |feature: &Feature| match feature.why {
                "" => feature.name.to_owned(),
                why => format!("{} ({why})", feature.name),
            };
            these.map(text).collect()
        };
        PortReport {
            driver: of.driver.clone(),
            mac: self.port.mac().to_string(),
            queue_pairs: of.max_queue_pairs,
            sending: Sending::NotTried,
            max_mtu: of.max_mtu,
            rss: of.rss,
            rss_ports: of.rss_ports,
            by_nic: named(By::Device),
            nic_could: named(By::Software { device_could: true }),
            in_software: named(By::Software { device_could: false }),
            not_used: named(By::Nothing),
            link_interrupt: of.link_interrupt,
            link_up: link.up,
            speed_mbps: link.speed_mbps,
            autoneg: negotiated.map(|link| link.autoneg),
            fec: negotiated.and_then(|link| link.fec).map(str::to_owned),
            numa_node: of.numa_node,
        }
    }

    /// Registers this thread with DPDK, which gives it a mempool cache like an lcore's.
    pub(super) fn register_thread(&self) -> Result<ThreadGuard, BenchError> {
        self.eal.register_thread().step("registering with DPDK")
    }

    /// Waits until the link is up.
    pub(crate) fn wait_for_link(&self) -> Result<(), BenchError> {
        let deadline = Instant::now() + LINK_PATIENCE;
        while !self.port.link().up {
            if Instant::now() > deadline {
                return Err(BenchError::TimedOut {
                    waiting: "waiting for the device's link",
                    limit: LINK_PATIENCE,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Returns the parameters with which DPDK starts, those of a test on the same device, and the
/// device's name for DPDK.
fn dpdk(args: &DeviceArgs) -> Result<(EalConfig, String), BenchError> {
    let port = match (&args.vdev, &args.pci) {
        (Some(devargs), _) => config::PortConfig::vdev(devargs),
        (None, Some(address)) => config::PortConfig::pci(address),
        (None, None) => {
            return Err(BenchError::usage("limits needs --vdev, --pci or --in-process"));
        }
    };
    let device = config::DeviceConfig::new("raw").port(port);
    let mut config = config::Config::new().device(device);
    config.eal.huge = args.huge;
    let eal = uroce_controlplane::dpdk_parameters(&config).step("preparing DPDK")?;
    // `auto` has become an address by now.
    let device = args.vdev.as_ref().or(eal.pci_allow.first()).cloned().unwrap_or_default();
    Ok((eal, device))
}

/// Returns an MTU with room for the setting's frames and for the headers of a test with this MTU.
fn port_mtu(setting: &Setting) -> u16 {
    u16::try_from(setting.mtu + 104).unwrap_or(u16::MAX).min(9000)
}

fn pool(
    eal: &'static Eal,
    setting: &Setting,
    (count, cache): (u32, u32),
    apart: bool,
) -> Result<Mempool, BenchError> {
    let room = (port_mtu(setting).next_multiple_of(256) + 256).max(ROOM_MIN);
    let config = PoolConfig { name: "limits".into(), count, cache, room, apart, reserved: 0 };
    Mempool::create(eal, &config).step("making a mempool")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_engine::eal::Memory;

    #[test]
    fn dpdk_starts_as_for_a_test_on_the_same_device() {
        let of = |vdev: Option<&str>, pci: Option<&str>, huge| {
            let (vdev, pci) = (vdev.map(str::to_owned), pci.map(str::to_owned));
            dpdk(&DeviceArgs { vdev, pci, huge, ..DeviceArgs::default() })
        };
        let (eal, device) = of(Some("net_null0"), None, false).expect("a device");
        assert_eq!(device, "net_null0");
        assert!(eal.pci_allow.is_empty() && matches!(eal.memory, Memory::NoHuge { .. }));
        let (eal, device) = of(None, Some("0000:01:00.0"), true).expect("a NIC");
        assert_eq!((eal.pci_allow, &*device), (vec![device.clone()], "0000:01:00.0"));
        assert!(matches!(eal.memory, Memory::Huge { .. }));
        assert!(of(None, None, false).expect_err("none").to_string().contains("--vdev"));
    }
}
