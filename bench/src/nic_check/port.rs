//! What the driver says of its port: a process of its own, as for every check.

use super::test::{Test, this_program};
use super::trial::{self, Sending};
use crate::cli::DeviceArgs;
use crate::cli::NicArgs;
use crate::demo::quickstart::Folder;
use crate::error::BenchError;
use crate::limits::{RawPort, Setting};
use crate::pin::cpus;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Longest wait for the link, which NICs bring up within some seconds of their start.
const LINK: Duration = Duration::from_secs(6);
/// Largest number of queue pairs that are tried: their packet buffers take memory.
const QUEUES_MAX: usize = 4;
/// Name of the hidden command that describes a port.
pub(crate) const COMMAND: &str = "nic-check-port";

/// What the driver says of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortReport {
    /// Name of the driver.
    pub(crate) driver: String,
    /// Ethernet address.
    pub(crate) mac: String,
    /// Pairs of a receive and a transmit queue.
    pub(crate) queue_pairs: u16,
    /// Which of the queues send.
    pub(crate) sending: Sending,
    /// Largest MTU in bytes, if the driver says it.
    pub(crate) max_mtu: Option<u16>,
    /// Whether received packets are spread over the queues.
    pub(crate) rss: bool,
    /// Whether UDP ports have a part in it, so that packets of one peer are spread.
    pub(crate) rss_ports: bool,
    /// What the NIC does itself.
    pub(crate) by_nic: Vec<String>,
    /// What uroce does, though the NIC could.
    pub(crate) nic_could: Vec<String>,
    /// What uroce does, since the NIC cannot.
    pub(crate) in_software: Vec<String>,
    /// What is not used.
    pub(crate) not_used: Vec<String>,
    /// Whether the driver tells of changes of the link; it is asked otherwise.
    pub(crate) link_interrupt: bool,
    /// Whether the link is up.
    pub(crate) link_up: bool,
    /// Rate of the link in Mb/s, if known.
    pub(crate) speed_mbps: Option<u32>,
    /// Whether the rate was negotiated, of a link that is up.
    pub(crate) autoneg: Option<bool>,
    /// Forward error correction, if the driver tells it.
    pub(crate) fec: Option<String>,
    /// NUMA node, if known.
    pub(crate) numa_node: Option<u32>,
}

impl PortReport {
    /// Returns lines that tell what the NIC does and what uroce does for it.
    pub(crate) fn features(&self) -> String {
        let list = |names: &[String]| match names {
            [] => "nothing".to_owned(),
            names => names.join(", "),
        };
        format!(
            "by the device: {}\nin software, though the device could: {}\nin software: {}\n\
             not used: {}\n",
            list(&self.by_nic),
            list(&self.nic_could),
            list(&self.in_software),
            list(&self.not_used),
        )
    }
}

/// Prints a port's report as JSON: the hidden command.
pub(crate) fn run(nic: &NicArgs) -> Result<(), BenchError> {
    let args = DeviceArgs {
        vdev: nic.vdev.clone(),
        pci: nic.pci.clone(),
        huge: nic.huge,
        ..DeviceArgs::default()
    };
    let setting = Setting { size: 65536, mtu: 1024, time: Duration::ZERO };
    // Several queues of a NIC, since those are tried.
    let queues_max = if nic.pci.is_some() { QUEUES_MAX } else { 1 };
    let queue_pairs = cpus().len().clamp(1, queues_max) as u16;
    let mut port = RawPort::open_with(&args, &setting, queue_pairs)?;
    let deadline = Instant::now() + LINK;
    let mut report = port.report();
    while !report.link_up && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        report = port.report();
    }
    if report.link_up && nic.pci.is_some() {
        report.sending = trial::of(&mut port);
    }
    let line = serde_json::to_string(&report);
    println!("{}", line.map_err(|error| BenchError::io("writing JSON", error.into()))?);
    Ok(())
}

/// Asks a process for the report of a port, or for the reason why there is none by `deadline`.
pub(super) fn ask(nic: &NicArgs, deadline: Instant) -> Result<PortReport, String> {
    let start = || -> Result<Test, BenchError> {
        let mut command = this_program()?;
        command.arg(COMMAND);
        for (name, value) in [("--pci", &nic.pci), ("--vdev", &nic.vdev)] {
            if let Some(value) = value {
                command.args([name, value]);
            }
        }
        if nic.huge {
            command.arg("--huge");
        }
        Test::spawn(command, Folder::new()?, deadline)
    };
    let ended = start().map_err(|error| error.to_string())?.finish();
    if let Some(fault) = ended.fault {
        return Err(fault);
    }
    let line = ended.said.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).map_err(|_| "the driver's words could not be read".to_owned())
}
