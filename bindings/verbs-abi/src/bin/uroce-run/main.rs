//! Runs an unmodified RDMA program over uroce.
//!
//! ```text
//!   uroce-run ib_write_bw             LD_LIBRARY_PATH  our libibverbs.so.1, librdmacm.so.1
//!      └─ exec ─> ib_write_bw         LD_PRELOAD       the library, and the path shim, which shows
//!                                                      UROCE_TREE
//!                                     UROCE_CONFIG     the alternative configurations
//! ```
//!
//! Everything that `uroce-run` writes goes to the run directory, and the next run reuses it: links
//! to the library, the configuration made from the options, the tree of the devices.
//!
//! Not here: choosing one of several identities. The library chooses at the first call that depends
//! on it.

#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../runtime/claim.rs"]
mod claim;
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../runtime/config.rs"]
mod config;
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../runtime/hold.rs"]
mod hold;
mod library;
#[path = "../../runtime/place.rs"]
mod place;
mod preload;
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../runtime/problem.rs"]
mod problem;
mod program;
mod settings;
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../runtime/speed.rs"]
mod speed;
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../runtime/tree.rs"]
mod tree;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use config::Identity;
use hold::Hold;

const EXAMPLES: &str = "\
Programs of one machine, with no NIC, no kernel RDMA and no root. They are joined by shared memory
and have the addresses 192.0.2.1, 192.0.2.2 and so on, up to 64 programs:
  uroce-run ib_write_bw                  in one terminal, and in another
  uroce-run ib_write_bw 192.0.2.1        (or any address of this machine for TCP)

Two machines, over their NICs:
  uroce-run --pci 0000:01:00.0 --ip 198.51.100.1/24 --mtu 4200 ib_write_bw
  uroce-run --pci 0000:01:00.0 --ip 198.51.100.2/24 --mtu 4200 ib_write_bw HOST

Programs that share a NIC through a switch, such as Open vSwitch with DPDK, a port for each:
  uroce-run --switch /run/uroce/p1 --ip 198.51.100.1/24 rping -s

Over a kernel interface, with the interface's addresses and no privilege:
  uroce-run --udp eth1 rping -s";

/// Runs an unmodified RDMA program over uroce: among the programs of this machine, or on any port
/// that DPDK drives.
#[derive(Debug, Parser)]
#[command(name = "uroce-run", version, after_help = EXAMPLES)]
struct Options {
    /// Configuration file. Several files are alternatives: each process takes the first one that no
    /// other process uses. Default: UROCE_CONFIG, or the programs of this machine among themselves.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ip", "vdev", "pci", "switch", "mtu", "lcores", "huge"])]
    config: Vec<PathBuf>,
    #[command(flatten)]
    settings: settings::Settings,
    /// Kernel interface to show for ports that have no kernel interface. Default: UROCE_NETDEV, or
    /// lo.
    #[arg(long, value_name = "NAME")]
    netdev: Option<String>,
    /// Program to run, and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    // `exec` returns only if it fails.
    let error = match prepare(&options) {
        Ok(mut command) => format!("{}: {}", options.command[0].display(), command.exec()),
        Err(reason) => reason,
    };
    eprintln!("uroce-run: {}", error.replace('\n', "\nuroce-run: "));
    // 127: the exit status of a shell that cannot run a command.
    ExitCode::from(127)
}

/// Builds the command that runs the program, with its environment set.
fn prepare(options: &Options) -> Result<Command, String> {
    let path = program::find(&options.command[0])?;
    program::check(&path)?;
    let files = files(options)?;
    let identities = match &files {
        Some(files) => config::read(files.iter().cloned()),
        None => config::identities(),
    };
    let netdev = options.netdev.clone().or_else(|| std::env::var(tree::NETDEV).ok());
    let tree = tree_of(&identities.map_err(text)?, netdev.as_deref())?;
    let library = library::directory()?;

    let mut command = Command::new(&path);
    command.arg0(&options.command[0]).args(&options.command[1..]);
    command.env("UROCE_TREE", tree);
    if let Some(files) = files {
        let joined = std::env::join_paths(files).map_err(
            |_| "the path of a configuration file must not contain a colon, which separates files",
        )?;
        command.env("UROCE_CONFIG", joined);
    }
    if let Some(netdev) = netdev {
        command.env(tree::NETDEV, netdev);
    }
    let before = std::env::var_os("LD_LIBRARY_PATH");
    command.env("LD_LIBRARY_PATH", list(library.as_os_str(), before.as_deref()));
    // Preloaded, the library also comes before one that a program brings under another name, as
    // Python's packages do, or finds by a path of its own.
    let ours = [library.join("libibverbs.so.1"), library.join(library::SHIM)];
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    command.env("LD_PRELOAD", preload::list(&program::needed(&path), &before, &ours));
    for (name, options) in preload::OPTIONS {
        command.env(name, preload::options(options, std::env::var_os(name).as_deref()));
    }
    Ok(command)
}

/// The configuration files that the options select or describe. `None` if no option does, so that
/// the library uses UROCE_CONFIG or the built-in configuration.
fn files(options: &Options) -> Result<Option<Vec<PathBuf>>, String> {
    if !options.config.is_empty() {
        let absolute = |file: &PathBuf| {
            std::fs::canonicalize(file).map_err(|error| format!("{}: {error}", file.display()))
        };
        return options.config.iter().map(absolute).collect::<Result<_, _>>().map(Some);
    }
    Ok(options.settings.file()?.map(|file| vec![file]))
}

/// Writes the tree of the first free identity, which is the one that the program will probably
/// take. The library replaces the tree if the process takes another identity.
fn tree_of(identities: &[Identity], netdev: Option<&str>) -> Result<PathBuf, String> {
    if let Some(name) = netdev.filter(|name| !is_netdev(name)) {
        return Err(format!("there is no network interface {name:?} (see `ip link`)"));
    }
    let mut free = identities.iter().filter_map(|identity| Hold::preview(identity).ok()?.ok());
    let config = free.next().unwrap_or_else(|| identities[0].config.clone());
    tree::write(&config, |index| tree::preview(&config, index), netdev).map_err(text)
}

/// Whether the process's own network namespace has the interface. /sys may have been mounted in
/// another namespace, so /proc is read instead.
fn is_netdev(name: &str) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    table.lines().any(|line| line.split_once(':').is_some_and(|(first, _)| first.trim() == name))
}

/// Joins paths with a colon, as LD_LIBRARY_PATH expects.
fn list(first: &OsStr, rest: Option<&OsStr>) -> OsString {
    let mut list = first.to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

fn text(problem: problem::Problem) -> String {
    problem.to_string()
}
