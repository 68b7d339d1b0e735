//! Device of one end: configured from the options, opened and driven.
//!
//! By default the thread that posts and polls also drives the device's lcore, one turn between two
//! polls of the queues. Each end then keeps only one CPU busy, and completions do not move between
//! CPUs. `--lcore-thread` gives the lcore its own thread. With `--poll-drives` the thread does not
//! attach to the lcore; its polls drive the lcore, as in a program that only posts and polls.

use crate::cli::{DeviceArgs, Idle};
use crate::error::{BenchError, Step};
use crate::pin::{Side, cpu_of, cpus, pin};
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uroce::config::{self, Config, DeviceConfig, Driver, Ethdev, Lcores, LossConfig, PortConfig};
use uroce::{Congestion, Context, Count, LcoreGuard, Turn};

/// Port number of every device.
pub(crate) const PORT: u8 = 1;
/// Counter of retransmitted packets.
const RETRANSMITTED: &str = "retransmitted_packets";
/// Counter of packets that were handed over to the lcore of their QP.
const HANDED_OVER: &str = "rx_handed_over";
/// Counter of packets received.
const RECEIVED: &str = "rdma_rx_packets";
/// Counters of frames dropped by `--loss-rx` and `--loss-tx`.
const INJECTED_LOSS: [&str; 2] = ["rx_injected_loss", "tx_injected_loss"];
/// MTU of a port with a free choice: a path MTU of 4096 fits.
const MTU_ROOMY: u16 = 4200;
/// Default MTU of a kernel's netdev or a NIC.
const MTU_ETHERNET: u16 = 1500;
/// Bytes of MTU in addition to the path MTU: IPv6, UDP and the longest transport headers.
const MTU_BEYOND: u32 = 104;
/// Default addresses (RFC 2544's range for benchmarks).
const ADDRESS: [&str; 2] = ["198.18.0.1/24", "198.18.0.2/24"];
/// Empty turns after which a thread on a machine with too few CPUs yields.
const PATIENCE_TURNS: u32 = 64;

/// Pause of an end that has nothing to poll, if polls drive the lcore.
const WAIT: Duration = Duration::from_micros(200);

/// Work of the driving thread beside the test.
pub(crate) trait Background: Send {
    /// Does a small part of the work. Called after each turn of the lcore.
    fn after_turn(&mut self);
}

/// An open device and the way in which it is driven.
pub(crate) struct Node {
    /// The device.
    pub(crate) context: Context,
    /// Side of this end.
    pub(crate) side: Side,
    /// Name of the driver, for reports.
    pub(crate) device: String,
    /// GID index of the local address.
    pub(crate) gid_index: u8,
    /// The configuration gives its queue pairs an algorithm of congestion control.
    pub(crate) has_congestion_control: bool,
    /// Work of the driving thread after each turn.
    pub(crate) background: Option<Arc<Mutex<dyn Background>>>,
    cpu: Option<usize>,
    lcore_thread: bool,
    poll_drives: bool,
    /// The machine has fewer CPUs than there are busy threads.
    crowded: bool,
}

impl Node {
    /// Opens this end's device.
    pub(crate) fn open(
        args: &DeviceArgs,
        side: Side,
        mtu: Option<u32>,
        gid_index: u8,
    ) -> Result<Self, BenchError> {
        let config = match &args.config {
            Some(file) => Config::from_file(file).step("reading the configuration")?,
            None => Config::new().device(device(args, side, mtu)?),
        };
        let Some(first) = config.devices.first() else {
            return Err(BenchError::usage("the configuration has no device"));
        };
        Self::open_device(args, &config, &first.name.clone(), side, gid_index)
    }

    /// Opens both ends in this process, the server's first: the first two devices of the
    /// configuration, or two joined by rings.
    pub(crate) fn open_both(
        args: &DeviceArgs,
        mtu: Option<u32>,
        gid_index: u8,
    ) -> Result<[Self; 2], BenchError> {
        if args.vdev.is_some() || args.pci.is_some() || !args.ip.is_empty() {
            return Err(BenchError::usage(
                "--in-process makes its own devices; others come from a --config with two",
            ));
        }
        let config = match &args.config {
            Some(file) => Config::from_file(file).step("reading the configuration")?,
            None => Config::new()
                .device(ring_device(args, Side::Server, mtu)?)
                .device(ring_device(args, Side::Client, mtu)?),
        };
        let [server, client, ..] = &config.devices[..] else {
            return Err(BenchError::usage("--in-process needs a configuration with two devices"));
        };
        let open = |name: &str, side| Self::open_device(args, &config, name, side, gid_index);
        Ok([open(&server.name, Side::Server)?, open(&client.name, Side::Client)?])
    }

    /// Opens both ends in this process, joined by rings, each with room for this number of queue
    /// pairs.
    pub(crate) fn open_both_for(args: &DeviceArgs, qps: u32) -> Result<[Self; 2], BenchError> {
        let [mut server, mut client] =
            [ring_device(args, Side::Server, None)?, ring_device(args, Side::Client, None)?];
        (server.max_qps, client.max_qps) = (qps, qps);
        let config = Config::new().device(server).device(client);
        let open = |index: usize, side| {
            Self::open_device(args, &config, &config.devices[index].name, side, 0)
        };
        Ok([open(0, Side::Server)?, open(1, Side::Client)?])
    }

    /// Opens both ends in this process, joined by rings. The server has a second port, which no
    /// queue pair uses.
    pub(crate) fn open_both_beside(
        args: &DeviceArgs,
        devargs: &str,
        address: &str,
    ) -> Result<[Self; 2], BenchError> {
        let mut port = PortConfig::vdev(devargs).ip(address).step("an address")?;
        port.mtu = MTU_ROOMY;
        let config = Config::new()
            .device(ring_device(args, Side::Server, None)?.port(port))
            .device(ring_device(args, Side::Client, None)?);
        let open = |index: usize, side| {
            Self::open_device(args, &config, &config.devices[index].name, side, 0)
        };
        Ok([open(0, Side::Server)?, open(1, Side::Client)?])
    }

    fn open_device(
        args: &DeviceArgs,
        config: &Config,
        name: &str,
        side: Side,
        gid_index: u8,
    ) -> Result<Self, BenchError> {
        let mut config = config.clone();
        config.eal.huge |= args.huge;
        let context = Context::open(&config, name).step("opening the device")?;
        let device = config.find(name).step("the device")?;
        let cpu = match (&args.config, &device.lcores) {
            (Some(_), Lcores::Cpus(cpus)) => cpus.first().copied(),
            _ => cpu_of(side, args.lcores.as_ref(), cpus()),
        };
        let threads = if args.lcore_thread { 4 } else { 2 };
        Ok(Self {
            context,
            side,
            device: driver(device),
            gid_index,
            has_congestion_control: device.congestion.congestion() != Congestion::None,
            background: None,
            cpu,
            lcore_thread: args.lcore_thread,
            poll_drives: args.poll_drives,
            crowded: cpus().len() < threads,
        })
    }

    /// Prepares the calling thread to drive this end, pinned to its CPU.
    pub(crate) fn drive(&self) -> Result<Drive, BenchError> {
        if let (false, Some(cpu)) = (self.lcore_thread, self.cpu) {
            pin(cpu);
        }
        let guard = if self.lcore_thread || self.poll_drives {
            None
        } else {
            Some(self.context.adopt_lcore(0).step("taking over the lcore")?)
        };
        let background = self.background.clone();
        let polls = self.poll_drives;
        Ok(Drive { guard, polls, background, crowded: self.crowded, idle: Cell::new(0) })
    }

    /// Returns the number of packets retransmitted so far.
    pub(crate) fn retransmissions(&self) -> Result<u64, BenchError> {
        self.sum(&[RETRANSMITTED])
    }

    /// Returns the number of frames dropped so far by `--loss-rx` and `--loss-tx`.
    pub(crate) fn lost(&self) -> Result<u64, BenchError> {
        self.sum(&INJECTED_LOSS)
    }

    /// Returns the number of packets so far that came by another lcore's queue than that of their
    /// QP's lcore, and of all that came.
    pub(crate) fn handed_over(&self) -> Result<(u64, u64), BenchError> {
        Ok((self.sum(&[HANDED_OVER])?, self.sum(&[RECEIVED])?))
    }

    /// Returns the number of packets so far that came by the receive queue of each lcore.
    pub(crate) fn received_by_queue(&self) -> Vec<u64> {
        let of_lcores = (0..).map_while(|lcore| self.context.lcore_counters(lcore));
        of_lcores.map(|counts| sum(&counts, &[RECEIVED])).collect()
    }

    fn sum(&self, names: &[&str]) -> Result<u64, BenchError> {
        Ok(sum(&self.context.counters().step("reading counters")?, names))
    }
}

fn sum(counts: &[Count], names: &[&str]) -> u64 {
    counts.iter().filter(|count| names.contains(&count.name)).map(|count| count.value).sum()
}

/// Drives an end between its own operations.
pub(crate) struct Drive {
    guard: Option<LcoreGuard>,
    /// Polls drive the lcore.
    polls: bool,
    background: Option<Arc<Mutex<dyn Background>>>,
    crowded: bool,
    idle: Cell<u32>,
}

impl Drive {
    /// Runs one turn of the lcore, or pauses briefly if the thread has not attached to it.
    #[inline]
    pub(crate) fn turn(&mut self) {
        let busy = match &mut self.guard {
            Some(guard) => guard.turn() == Turn::Busy,
            None => {
                std::hint::spin_loop();
                false
            }
        };
        if let Some(work) = &self.background {
            work.lock().unwrap_or_else(PoisonError::into_inner).after_turn();
        }
        if self.crowded && !busy {
            let idle = self.idle.get_mut();
            *idle += 1;
            if *idle >= PATIENCE_TURNS {
                *idle = 0;
                std::thread::yield_now();
            }
        }
    }

    /// Keeps the control plane from turning an adopted lcore that has not turned for a while.
    pub(crate) fn set_exclusive(&self) {
        if let Some(guard) = &self.guard {
            guard.set_exclusive(true);
        }
    }

    /// Runs one turn for an end that has nothing to poll. If polls drive the lcore, it sleeps like
    /// other programs, and the lcore's own thread takes over.
    #[inline]
    pub(crate) fn wait(&mut self) {
        if self.polls {
            std::thread::sleep(WAIT);
        } else {
            self.turn();
        }
    }

    /// Tells whether this thread has to poll for any progress.
    pub(crate) fn is_by_polling(&self) -> bool {
        self.polls
    }

    /// Tells whether the lcore runs concurrently with this thread, so that memory can change
    /// between two turns.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.guard.is_none()
    }
}

/// Returns the driver of a device's first port.
fn driver(device: &DeviceConfig) -> String {
    match device.ports.first().map(|port| &port.ethdev) {
        Some(Ethdev::Ring(_)) => "net_ring".to_owned(),
        Some(Ethdev::Vdev(devargs)) => devargs.split(',').next().unwrap_or_default().to_owned(),
        Some(Ethdev::Pci(address)) => address.clone(),
        Some(Ethdev::Local(_)) => "local".to_owned(),
        Some(Ethdev::Udp(_)) => "udp".to_owned(),
        None => String::new(),
    }
}

/// Builds the configuration of the device that the options describe.
fn device(args: &DeviceArgs, side: Side, mtu: Option<u32>) -> Result<DeviceConfig, BenchError> {
    let (port, roomy) = match (&args.vdev, &args.pci, &args.udp) {
        (Some(devargs), ..) => (PortConfig::vdev(devargs), devargs.starts_with("net_memif")),
        (None, Some(address), _) => (PortConfig::pci(address), false),
        (None, None, Some(interface)) => (PortConfig::udp(interface), false),
        (None, None, None) => {
            // Client and server are two processes of this machine.
            let built_in = Config::built_in().step("choosing the default device")?;
            (built_in.devices[0].ports[0].clone(), true)
        }
    };
    finish("perf", port, args, side, mtu, roomy)
}

/// Builds the configuration of one end of a ring.
fn ring_device(
    args: &DeviceArgs,
    side: Side,
    mtu: Option<u32>,
) -> Result<DeviceConfig, BenchError> {
    let name = match side {
        Side::Server => "server",
        Side::Client => "client",
    };
    finish(name, PortConfig::ring("perf"), args, side, mtu, true)
}

fn finish(
    name: &str,
    mut port: PortConfig,
    args: &DeviceArgs,
    side: Side,
    mtu: Option<u32>,
    roomy: bool,
) -> Result<DeviceConfig, BenchError> {
    port.mtu = args.port_mtu.unwrap_or_else(|| port_mtu(mtu, roomy));
    port.mbufs = args.mbufs;
    for address in &args.ip {
        port = port.ip(address).step("--ip")?;
    }
    let is_member = matches!(port.ethdev, Ethdev::Local(_));
    if port.ip.is_empty() && roomy && !is_member {
        port = port.ip(ADDRESS[usize::from(side == Side::Client)]).step("an address")?;
    }
    // A port that shares the kernel's netdev has its addresses, and a member those of its number.
    if port.ip.is_empty() && !port.follows_addresses() && !is_member {
        return Err(BenchError::usage("give the port an address: --ip, e.g. 192.0.2.1/24"));
    }
    port.loss = LossConfig {
        rx: args.loss_rx.unwrap_or(0.0),
        tx: args.loss_tx.unwrap_or(0.0),
        seed: args.seed.unwrap_or(0),
    };
    let lcores = match cpu_of(side, args.lcores.as_ref(), cpus()) {
        Some(cpu) => Lcores::Cpus(vec![cpu]),
        None => Lcores::Count(1),
    };
    let idle = match args.idle {
        // The lcore's own thread has little to do while a test drives it, and must not take the
        // CPU.
        None if !args.lcore_thread => config::Idle::Sleep,
        None => config::Idle::Auto,
        Some(Idle::Poll) => config::Idle::Poll,
        Some(Idle::Yield) => config::Idle::Yield,
        Some(Idle::Sleep) => config::Idle::Sleep,
    };
    // Each datagram at a socket wakes an lcore's own thread, which then only takes the CPU from the
    // one that polls.
    let poll_drives = matches!(port.ethdev, Ethdev::Udp(_)) && !args.lcore_thread;
    let driver = if args.poll_drives || poll_drives { Driver::Poller } else { Driver::Lcore };
    Ok(DeviceConfig::new(name).lcores(lcores).idle(idle).driver(driver).port(port))
}

/// Returns the default MTU of a port, which supports the given path MTU.
fn port_mtu(path_mtu: Option<u32>, roomy: bool) -> u16 {
    let usual = if roomy { MTU_ROOMY } else { MTU_ETHERNET };
    let needed = path_mtu.map_or(0, |mtu| mtu + MTU_BEYOND);
    usual.max(u16::try_from(needed).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_mtu_follows_the_path_mtu() {
        assert_eq!(port_mtu(None, true), 4200);
        assert_eq!(port_mtu(None, false), 1500);
        assert_eq!(port_mtu(Some(4096), false), 4200);
        assert_eq!(port_mtu(Some(1024), false), 1500);
    }

    #[test]
    fn a_device_is_a_member_of_the_local_fabric_or_must_have_an_address() {
        let default = device(&DeviceArgs::default(), Side::Client, None).expect("a directory");
        assert_eq!((driver(&default).as_str(), default.ports[0].mtu), ("local", 4200));
        assert!(default.ports[0].ip.is_empty(), "they follow from the number");
        let error = |args: &DeviceArgs| {
            device(args, Side::Server, None).expect_err("incomplete").to_string()
        };
        let tap = DeviceArgs { vdev: Some("net_tap0,iface=t0".into()), ..Default::default() };
        assert!(error(&tap).contains("--ip"));
    }

    #[test]
    fn memif_ends_have_addresses_of_their_own() {
        let args = DeviceArgs { vdev: Some("net_memif0,role=server".into()), ..Default::default() };
        let of = |side| device(&args, side, None).expect("complete");
        let (server, client) = (of(Side::Server), of(Side::Client));
        assert_ne!(server.ports[0].ip, client.ports[0].ip);
        assert_eq!(server.ports[0].mtu, 4200);
        assert_eq!(driver(&server), "net_memif0");
    }

    #[test]
    fn losses_reach_the_port() {
        let args = DeviceArgs {
            vdev: Some("net_memif0".into()),
            loss_rx: Some(0.25),
            seed: Some(9),
            ..Default::default()
        };
        let port = &device(&args, Side::Client, None).expect("complete").ports[0];
        assert_eq!(port.loss, LossConfig { rx: 0.25, tx: 0.0, seed: 9 });
    }
}
