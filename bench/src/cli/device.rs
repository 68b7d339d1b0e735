//! Options that choose and set up the device of this end.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The device, its addresses and its lcore.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Virtual device in the form of DPDK's --vdev, e.g. net_memif0,role=server,socket=/tmp/m.sock;
    /// without any device, client and server are two processes of this machine in the local fabric
    #[arg(long, value_name = "DEVARGS", conflicts_with = "pci")]
    pub(crate) vdev: Option<String>,
    /// PCI address of a NIC bound to a DPDK driver, e.g. 0000:01:00.0; auto takes the one that a
    /// device plugin of Kubernetes has given the container, auto:RESOURCE one of that resource
    #[arg(long, value_name = "ADDR")]
    pub(crate) pci: Option<String>,
    /// Network interface of the kernel, e.g. eth0, over UDP sockets: without any privilege, and
    /// slower than DPDK's drivers
    #[arg(long, value_name = "IFACE", conflicts_with_all = ["vdev", "pci"])]
    pub(crate) udp: Option<String>,
    /// Take memory from reserved hugepages; for a NIC without an IOMMU this is done without the
    /// option, if some are free
    #[arg(long)]
    pub(crate) huge: bool,
    /// Local address and prefix length, e.g. 192.0.2.1/24; may be repeated, with GID indexes from 0
    #[arg(long, value_name = "ADDR/LEN")]
    pub(crate) ip: Vec<String>,
    /// Ethernet MTU of the port; a path MTU of 4096 bytes needs 4200
    #[arg(long, value_name = "BYTES")]
    pub(crate) port_mtu: Option<u16>,
    /// Packet buffers of the port, 1023 to 1048575
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1023..1 << 20))]
    pub(crate) mbufs: Option<u32>,
    /// CPU of the lcore; two, e.g. 0,1, with --in-process; none leaves the choice to the kernel
    /// [default: the first CPU for a server, the last for a client]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    pub(crate) lcores: Option<CpuList>,
    /// Action of an lcore's own thread when there is no work
    #[arg(long, value_enum)]
    pub(crate) idle: Option<Idle>,
    /// Drive the lcore by its own thread instead of the thread that posts and polls
    #[arg(long)]
    pub(crate) lcore_thread: bool,
    /// Let polls drive the lcore as in programs unaware of lcores, instead of attaching to it
    #[arg(long, conflicts_with = "lcore_thread")]
    pub(crate) poll_drives: bool,
    /// Configuration file; its first device (with --in-process its first two) is used
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vdev", "pci", "udp", "ip", "port_mtu", "mbufs"])]
    pub(crate) config: Option<PathBuf>,
    /// Drop received frames with this probability, 0 to 1
    #[arg(long, value_name = "P", value_parser = parse_probability)]
    pub(crate) loss_rx: Option<f64>,
    /// Drop frames to be sent with this probability, 0 to 1
    #[arg(long, value_name = "P", value_parser = parse_probability)]
    pub(crate) loss_tx: Option<f64>,
    /// Seed of the random losses
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// CPUs for the lcores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuList {
    /// The lcores are not pinned.
    None,
    /// CPUs of the lcores, in their order.
    Cpus(Vec<usize>),
}

/// Action of an idle lcore, as `idle` of the configuration.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Polls on without a pause.
    Poll,
    /// Yields the CPU.
    Yield,
    /// Sleeps for a short time.
    Sleep,
}

fn parse_cpus(text: &str) -> Result<CpuList, String> {
    if text == "none" {
        return Ok(CpuList::None);
    }
    let cpus: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
    cpus.map(CpuList::Cpus).map_err(|_| "a list of CPU numbers like 0,1, or none".to_owned())
}

pub(super) fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("a number from 0 to 1".to_owned()),
    }
}
