//! Options that make a configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use uroce::config::PortConfig;
use uroce::vdev::{self, MemifRole};

use super::{config, place};

/// Programs' own threads do the work while they poll.
const POLLER: &str = "driver = \"poller\"\n";
/// Memory from hugepages.
const HUGE: &str = "huge = true\n";

/// A port, in options. What is not given is as in the built-in configuration.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Address of the port with the prefix of its link; may be given several times, for IPv4 and
    /// IPv6. Alone it is the address of an end of the link between two processes of this machine.
    #[arg(long, value_name = "A/N", value_parser = address)]
    ip: Vec<String>,
    /// Virtual device with its arguments, as DPDK's --vdev takes them.
    #[arg(long, value_name = "DEVICE", conflicts_with = "pci")]
    vdev: Option<String>,
    /// NIC by its PCI address, as 0000:01:00.0.
    #[arg(long, value_name = "ADDRESS")]
    pci: Option<String>,
    /// Largest Ethernet payload; 4200 carries RDMA's largest packets, of 4096 bytes. Default: 4200
    /// on a link of this machine, else 1500.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// Threads that do the work: a number, or a list of CPUs as 2,3 or [2]. Default: 1.
    #[arg(long, value_name = "N|CPUS", value_parser = lcores)]
    lcores: Option<String>,
    /// Takes memory from hugepages, which must have been reserved: a NIC without an IOMMU needs them.
    #[arg(long)]
    huge: bool,
}

/// An address and the prefix of its link.
fn address(text: &str) -> Result<String, String> {
    let parsed = PortConfig::ring("any").ip(text);
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// The file's text for them.
fn lcores(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let list = inner.unwrap_or(text);
    let plain = |part: &str| !part.is_empty() && part.len() < 5 && part.parse::<u16>().is_ok();
    if !list.split(',').map(str::trim).all(plain) {
        return Err("neither a number nor a list of CPUs".to_owned());
    }
    let is_list = inner.is_some() || list.contains(',');
    Ok(if is_list { format!("[{list}]") } else { list.to_owned() })
}

impl Settings {
    /// Writes what the options say to files that are alternatives; `None` if they say nothing.
    pub(crate) fn files(&self) -> Result<Option<Vec<PathBuf>>, String> {
        let Self { ip, vdev, pci, mtu, lcores, huge } = self;
        let ethdev = match (vdev, pci) {
            (Some(vdev), _) => Some(("vdev", vdev)),
            (None, Some(pci)) => Some(("pci", pci)),
            (None, None) => None,
        };
        if let Some((kind, device)) = ethdev {
            if ip.is_empty() && !has_netdev(device) {
                return Err(format!(
                    "--{kind} {device} needs an address: add --ip, as --ip 198.51.100.1/24"
                ));
            }
            let text = self.text(kind, device, ip, mtu.unwrap_or(1500));
            let text = if *huge { format!("[eal]\n{HUGE}\n{text}") } else { text };
            return write(&text).map(|file| Some(vec![file]));
        }
        if ip.is_empty() && mtu.is_none() && lcores.is_none() && !huge {
            return Ok(None);
        }
        self.link_ends().map(Some)
    }

    /// The two ends of the link of the built-in configuration, changed.
    fn link_ends(&self) -> Result<Vec<PathBuf>, String> {
        let socket = place::run_dir().map_err(|error| error.to_string())?.join(config::SOCKET);
        let end = |(role, host)| {
            let mtu = self.mtu.unwrap_or(config::MTU);
            let device = vdev::memif(0, role, Path::new(&socket), mtu, config::FRAMES);
            let own = config::addresses(host);
            let ip = if self.ip.is_empty() { &own[..] } else { &self.ip };
            let huge = if self.huge { HUGE } else { "" };
            let eal = format!("[eal]\nmemory_mb = {}\n{huge}\n", config::MEMORY_MB);
            let device = self.text("vdev", &device, ip, mtu);
            let device = device.replacen(POLLER, &format!("{POLLER}idle = \"sleep\"\n"), 1);
            // The port's keys are the last.
            write(&(eal + &device + "always_active = true\n"))
        };
        [(MemifRole::Server, 1), (MemifRole::Client, 2)].map(end).into_iter().collect()
    }

    fn text(&self, kind: &str, device: &str, ip: &[String], mtu: u16) -> String {
        let lcores = self.lcores.as_deref().map_or_else(String::new, |n| format!("lcores = {n}\n"));
        let ip: Vec<String> = ip.iter().map(|address| quoted(address)).collect();
        format!(
            "[[device]]\nname = \"uroce0\"\n{lcores}{POLLER}\n\
             [[device.port]]\nethdev = {{ {kind} = {} }}\nip = [{}]\nmtu = {mtu}\n",
            quoted(device),
            ip.join(", ")
        )
    }
}

/// Whether the device has the addresses of a kernel interface.
fn has_netdev(device: &str) -> bool {
    PortConfig::vdev(device).netdev_name().is_some()
}

/// Writes a configuration to where the next run with the same options finds it.
fn write(text: &str) -> Result<PathBuf, String> {
    let configs = place::sub_dir("configs").map_err(|error| error.to_string())?;
    let file = configs.join(format!("{:016x}.toml", place::digest(text)));
    place::write_file(&file, text).map_err(|error| error.to_string())?;
    uroce::Config::from_file(&file).map_err(|error| {
        let _ = std::fs::remove_file(&file);
        error.to_string()
    })?;
    Ok(file)
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
