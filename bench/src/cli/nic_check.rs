//! Options of `nic-check`.

use clap::Args;
use std::path::PathBuf;

/// Options of `nic-check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NicCheckArgs {
    /// TCP port on which the two ends agree; the tests use the next one
    #[arg(short = 'p', long, default_value_t = 18520, value_name = "PORT",
        value_parser = clap::value_parser!(u16).range(1..u16::MAX as i64))]
    pub(crate) port: u16,
    /// Run these checks only, e.g. start,mtu-9000, or that of the cable, which asks you to pull it;
    /// not at the end that waits
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print the names of the checks and what they do, and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the report as one JSON object; progress goes to standard error. Not at the end that
    /// waits, which makes no report
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the report, as JSON, to this file; not at the end that waits
    #[arg(long, value_name = "FILE")]
    pub(crate) out_json_file: Option<PathBuf>,
    /// The NIC.
    #[command(flatten)]
    pub(crate) nic: NicArgs,
    /// PCI address of a second port of this machine, joined to the first by a cable: it is the
    /// other end
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["loop_vdev", "server_host"])]
    pub(crate) loop_pci: Option<String>,
    /// Virtual device, joined to the first, that is the other end
    #[arg(long, value_name = "DEVARGS", conflicts_with = "server_host")]
    pub(crate) loop_vdev: Option<String>,
    /// The other end's machine, for TCP; without it this is the end that waits
    #[arg(value_name = "SERVER_HOST")]
    pub(crate) server_host: Option<String>,
}

/// Options that choose the NIC.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NicArgs {
    /// PCI address of a NIC bound to a DPDK driver, e.g. 0000:01:00.0
    #[arg(long, value_name = "ADDR", conflicts_with = "vdev")]
    pub(crate) pci: Option<String>,
    /// Virtual device in the form of DPDK's --vdev, e.g. net_af_packet0,iface=eth0
    #[arg(long, value_name = "DEVARGS")]
    pub(crate) vdev: Option<String>,
    /// Take memory from reserved hugepages; for a NIC without an IOMMU this is done without the
    /// option, if some are free
    #[arg(long)]
    pub(crate) huge: bool,
}

impl NicArgs {
    /// Returns the NIC at the other end of a cable loop, with the same memory.
    pub(crate) fn beside(&self, pci: Option<String>, vdev: Option<String>) -> Option<NicArgs> {
        let is_given = pci.is_some() || vdev.is_some();
        is_given.then_some(NicArgs { pci, vdev, huge: self.huge })
    }
}
