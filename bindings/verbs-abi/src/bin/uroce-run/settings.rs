//! Options of `uroce-run` that describe a configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use uroce::config::{BUILT_IN_MEMORY_MB, BUILT_IN_MTU, FABRIC, PortConfig};

use super::place;

/// Lets the program's own threads drive the engine while they poll.
const POLLER: &str = "driver = \"poller\"\n";
/// Lets a polling program's lcore sleep while there is nothing to do.
const SLEEP: &str = "idle = \"sleep\"\n";
/// Takes memory from hugepages.
const HUGE: &str = "huge = true\n";
/// Keeps hugepages in few files. A switch maps eight at most.
const FEW_FILES: &str = "args = [\"--single-file-segments\"]\n";
/// Longest path of a socket, in bytes.
const SOCKET_MAX: usize = 107;

/// Options that describe one port. Options that are absent keep the values of the built-in
/// configuration.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Address of the port, with the prefix length of its link. May be given several times, for
    /// IPv4 and IPv6. Without --vdev or --pci it is the program's address among the programs of
    /// this machine, instead of the next free one.
    #[arg(long, value_name = "A/N", value_parser = address)]
    ip: Vec<String>,
    /// Virtual device with its arguments, in the syntax of DPDK's --vdev.
    #[arg(long, value_name = "DEVICE", conflicts_with = "pci")]
    vdev: Option<String>,
    /// PCI address of a NIC, for example 0000:01:00.0. `auto` takes the one that a device plugin of
    /// Kubernetes has given the container.
    #[arg(long, value_name = "ADDRESS")]
    pci: Option<String>,
    /// Network interface of the kernel, for example eth0, over UDP sockets: without any privilege,
    /// and slower than DPDK's drivers. Its addresses are the program's, unless --ip chooses one.
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["vdev", "pci", "switch"])]
    udp: Option<String>,
    /// Socket of a port of a vhost-user switch, such as Open vSwitch with DPDK. Where no switch
    /// listens on it, the program does, until the switch connects.
    #[arg(long, value_name = "SOCKET", value_parser = switch, conflicts_with_all = ["vdev", "pci"])]
    switch: Option<PathBuf>,
    /// Largest Ethernet payload. 4200 is enough for a path MTU of 4096, the largest of RDMA.
    /// Default: 4200 between the programs of this machine, else 1500.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// Number of lcores (threads that process packets), or a list of CPUs to run them on, such as
    /// 2,3. One CPU is given in square brackets. Default: 1.
    #[arg(long, value_name = "N|CPUS", value_parser = lcores)]
    lcores: Option<String>,
    /// Takes memory from hugepages, which must be reserved before. For a NIC without an IOMMU this
    /// is done without the option, if some are free.
    #[arg(long)]
    huge: bool,
}

/// Checks an address with its prefix length, and returns it unchanged.
fn address(text: &str) -> Result<String, String> {
    let parsed = PortConfig::ring("any").ip(text);
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Checks the value of --switch and returns the absolute path.
fn switch(text: &str) -> Result<PathBuf, String> {
    let path = std::path::absolute(text).map_err(|error| error.to_string())?;
    match path.to_str() {
        Some(path) if path.len() > SOCKET_MAX => {
            Err(format!("its path is longer than {SOCKET_MAX} bytes"))
        }
        Some(path) if !path.contains(',') => Ok(path.into()),
        _ => Err("its path has a comma, or is not UTF-8".to_owned()),
    }
}

/// Checks the value of --lcores and returns it in the configuration file's syntax.
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
    /// Writes the configuration file that the options describe. `None` if no option is given.
    ///
    /// # Errors
    ///
    /// A message for the user, if an address is missing or the configuration is not accepted.
    pub(crate) fn file(&self) -> Result<Option<PathBuf>, String> {
        let Self { ip, vdev, pci, udp, switch, mtu, lcores, huge } = self;
        if let Some(socket) = switch {
            return self.switched(socket).map(Some);
        }
        if let Some(interface) = udp {
            let text = self.text("udp", interface, ip, mtu.unwrap_or(1500));
            return write(&(self.eal("") + &sleeping(&text))).map(Some);
        }
        let ethdev = match (vdev, pci) {
            (Some(vdev), _) => Some(("vdev", vdev)),
            (None, Some(pci)) => Some(("pci", pci)),
            (None, None) => None,
        };
        if let Some((kind, device)) = ethdev {
            if ip.is_empty() && !has_netdev(device) {
                return Err(format!(
                    "--{kind} {device} needs an address: add --ip, for example --ip 198.51.100.1/24"
                ));
            }
            let text = self.text(kind, device, ip, mtu.unwrap_or(1500));
            return write(&(self.eal("") + &text)).map(Some);
        }
        if ip.is_empty() && mtu.is_none() && lcores.is_none() && !huge {
            return Ok(None);
        }
        self.local().map(Some)
    }

    /// Writes the configuration of a port on a switch.
    fn switched(&self, socket: &Path) -> Result<PathBuf, String> {
        let socket = socket.display();
        if self.ip.is_empty() {
            return Err(format!(
                "--switch {socket} needs an address: add --ip, for example --ip 198.51.100.1/24"
            ));
        }
        let device = format!("net_virtio_user0,path={socket}");
        let text = self.text("vdev", &device, &self.ip, self.mtu.unwrap_or(1500));
        write(&(self.eal(FEW_FILES) + &sleeping(&text)))
    }

    /// Returns DPDK's part of the configuration: hugepages, if they are asked for, and `args` for
    /// them.
    fn eal(&self, args: &str) -> String {
        if self.huge { format!("[eal]\n{HUGE}{args}\n") } else { String::new() }
    }

    /// Writes the configuration of the local fabric, with the changes that the options ask for.
    fn local(&self) -> Result<PathBuf, String> {
        let fabric = place::run_dir().map_err(|error| error.to_string())?.join(FABRIC);
        let huge = if self.huge { HUGE } else { "" };
        let eal = format!("[eal]\nmemory_mb = {}\n{huge}\n", BUILT_IN_MEMORY_MB);
        let mtu = self.mtu.unwrap_or(BUILT_IN_MTU);
        let device = self.text("local", &fabric.to_string_lossy(), &self.ip, mtu);
        write(&(eal + &sleeping(&device)))
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

/// Lets the lcores of a device sleep.
fn sleeping(device: &str) -> String {
    device.replacen(POLLER, &format!("{POLLER}{SLEEP}"), 1)
}

/// Whether the port takes its addresses from a kernel interface.
fn has_netdev(device: &str) -> bool {
    PortConfig::vdev(device).netdev_name().is_some()
}

/// Writes a configuration file named after a digest of its text, so that the next run with the same
/// options reuses it.
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

/// Quotes a string for TOML.
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
