//! `nic-check`: what a NIC and its driver can do, for a user to run once and to send in.
//!
//! ```text
//!   client: checks ──► peer: Call ──TCP──► serve ──► test: uroce-perf TEST        (server's NIC)
//!                  └─► test: uroce-perf TEST SERVER_HOST                          (client's NIC)
//!                  └─► report: text, JSON
//! ```
//!
//! Each test is a process of its own, so that the NIC starts and stops with each, and a driver that
//! ends its process ends no other check. With a cable loop both ends are in this process, each with
//! its own tests.
//!
//! Invariants
//! - A server runs only the tests of its own table: a client names one of them.
//! - Every wait is bounded, except a server's wait for its client.
//! - The run has a budget of five minutes: no check begins after them, and they end the last one.
//!
//! Not here: NICs that QEMU emulates (`deploy/nics`), which run the same properties.

mod checks;
mod client;
mod port;
mod report;
mod serve;
mod test;
mod trial;

pub(crate) use port::{PortReport, run as run_port};
pub(crate) use trial::Sending;

use crate::cli::{NicArgs, NicCheckArgs};
use crate::error::BenchError;
use crate::rendezvous::{Link, Listener, connect};
use checks::{CHECKS, Check};
use client::Client;
use report::Report;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of this machine, where both ends are on it.
const THIS_MACHINE: &str = "127.0.0.1";

/// What the client asks of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Call {
    /// The versions must be the same.
    Hello { version: String },
    /// The server's end of a check's test starts, and has to end within `limit_ms`. The client's
    /// end has `lcores`.
    Start { check: String, lcores: u16, limit_ms: u64 },
    /// The client's end has ended, so the server's end has to; `killed` ends it at once.
    End { killed: bool },
    /// There are no more checks.
    Bye,
}

/// Answer to each call but the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    /// Reason for which the call failed.
    fault: Option<String>,
}

/// Runs the command in the role that the options choose.
pub(crate) fn run(args: &NicCheckArgs) -> Result<(), BenchError> {
    let chosen = chosen(&args.only, args.list)?;
    if args.list {
        chosen.iter().for_each(|check| println!("{:<12} {}", check.name, check.what));
        return Ok(());
    }
    checked(&args.nic)?;
    let other = args.nic.beside(args.loop_pci.clone(), args.loop_vdev.clone());
    match (&args.server_host, other) {
        (Some(host), _) => {
            let output = Output::new(args)?;
            let link = Link::tcp(connect(host, args.port)?)?;
            output.finish(Client::new(&args.nic, host, args.port, link)?.run(&chosen))
        }
        (None, Some(other)) => {
            checked(&other)?;
            let output = Output::new(args)?;
            let (far, near) = Link::pair()?;
            let serving = || serve::run(&other, args.port, far);
            // The report comes first: an error of the other end does not take its place.
            let asking = || {
                let client = Client::new(&args.nic, THIS_MACHINE, args.port, near)?;
                output.finish(client.run(&chosen))
            };
            crate::both_ends(serving, asking)
        }
        (None, None) => {
            without_report(args)?;
            let listener = Listener::bind(args.port)?;
            println!("Waiting for the other end: uroce-perf nic-check --pci ADDR <this machine>");
            serve::run(&args.nic, args.port, Link::tcp(listener.accept()?)?)
        }
    }
}

/// Returns the checks of these names. Without names, those that need no hand, or all.
fn chosen(names: &[String], all: bool) -> Result<Vec<&'static Check>, BenchError> {
    if names.is_empty() {
        return Ok(CHECKS.iter().filter(|check| all || !check.kind.is_by_hand()).collect());
    }
    let find = |name: &String| {
        checks::named(name).ok_or_else(|| {
            let known: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
            BenchError::usage(format!("there is no check {name:?}, but {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn checked(nic: &NicArgs) -> Result<(), BenchError> {
    match &nic.pci {
        None if nic.vdev.is_none() => Err(BenchError::usage(
            "name the NIC: --pci ADDR (dpdk-devbind.py --status lists them), or --vdev DEVARGS",
        )),
        Some(address) if address.starts_with("auto") => Err(BenchError::usage(
            "nic-check takes the NIC's own PCI address, not auto: dpdk-devbind.py --status",
        )),
        _ => Ok(()),
    }
}

/// Refuses the options of the end that makes the report: at the one that waits they would do
/// nothing.
fn without_report(args: &NicCheckArgs) -> Result<(), BenchError> {
    let options = [
        ("--only", !args.only.is_empty()),
        ("--json", args.json),
        ("--out-json-file", args.out_json_file.is_some()),
    ];
    match options.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(BenchError::usage(format!(
            "{option} is for the end that makes the report: the one that names SERVER_HOST"
        ))),
    }
}

/// Where the report goes.
struct Output<'a> {
    is_json: bool,
    /// A file for the JSON, with its path.
    file: Option<(File, &'a Path)>,
}

impl<'a> Output<'a> {
    /// Creates the file, before the minutes that the checks take.
    fn new(args: &'a NicCheckArgs) -> Result<Self, BenchError> {
        let create = |path: &'a PathBuf| match File::create(path) {
            Ok(file) => Ok((file, path.as_path())),
            Err(error) => Err(BenchError::io(format!("creating {}", path.display()), error)),
        };
        let file = args.out_json_file.as_ref().map(create).transpose()?;
        Ok(Self { is_json: args.json, file })
    }

    /// Gives the report to the user. A NIC that lacks a property is an error.
    fn finish(self, report: Report) -> Result<(), BenchError> {
        let json = report.json()?;
        if self.is_json {
            println!("{json}")
        } else {
            print!("{report}")
        }
        if let Some((mut file, path)) = self.file {
            file.write_all(format!("{json}\n").as_bytes())
                .map_err(|error| BenchError::io(format!("writing {}", path.display()), error))?;
        }
        match report.missing() {
            0 => Ok(()),
            count => Err(BenchError::Lacking { count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_chosen_by_name() {
        let of = |names: &[&str]| {
            chosen(&names.iter().map(|&name| name.into()).collect::<Vec<_>>(), false)
        };
        let alone = of(&[]).expect("those that need no hand");
        assert_eq!(alone.len(), CHECKS.len() - 1, "all but that of the cable");
        assert!(!alone.iter().any(|check| check.name == "cable"));
        assert_eq!(chosen(&[], true).expect("all").len(), CHECKS.len());
        assert_eq!(of(&["cable"]).expect("by hand").len(), 1);
        let some: Vec<_> = of(&["vlan", "start"]).expect("both").iter().map(|c| c.name).collect();
        assert_eq!(some, ["vlan", "start"]);
        assert!(of(&["vlans"]).expect_err("unknown").to_string().contains("mtu-9000"));
    }

    #[test]
    fn a_nic_must_be_named_by_its_address() {
        let error = |nic| checked(&nic).expect_err("refused").to_string();
        assert!(error(NicArgs::default()).contains("--pci"));
        let auto = NicArgs { pci: Some("auto:mlnx".into()), ..NicArgs::default() };
        assert!(error(auto).contains("auto"));
    }
}
