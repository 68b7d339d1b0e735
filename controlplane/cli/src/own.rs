//! `uroce [EAL options] -- [options]`: a device of its own, as testpmd has its ports.
//!
//! EAL options that name devices (`--vdev`, `-a`) make ports, in this order; all are ports of one
//! RoCE device. `-l` gives the CPUs of the control-plane thread and, after it, of the lcores. Other
//! EAL options are DPDK's. Commands reach the device over the process's own control socket, as they
//! reach any other process.

mod ports;

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Parser;
use uroce::{Config, Context, explained};
use uroce_command::request::STATS_PERIOD_MAX;
use uroce_command::{Request, Select, Show, ShowPort};

use crate::client::Client;
use crate::session::{Outcome, Session};
use crate::{USAGE, find, prompt, style};

/// A device of its own, with testpmd's options
#[derive(Debug, Parser)]
#[command(
    name = "uroce [EAL options] --",
    version,
    no_binary_name = true,
    after_help = "\
Examples:
  uroce --vdev=net_null0 -- -i
  uroce -l 0,1 --vdev=net_tap0,iface=roce0 -- -i --ip=0,192.0.2.1/24 --mtu=1500
  uroce -- -i --config uroce.toml"
)]
struct Options {
    /// Read commands at a prompt; without it, run until Enter
    #[arg(short, long)]
    interactive: bool,
    /// Run the commands of a file first, and show each; may be given several times
    #[arg(long, value_name = "FILE")]
    cmdline_file: Vec<PathBuf>,
    /// Run the commands of a file first, without showing them
    #[arg(long, value_name = "FILE")]
    cmdline_file_noecho: Vec<PathBuf>,
    /// Show the statistics of all ports every N seconds, up to a day; not with -i
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "interactive",
          value_parser = clap::value_parser!(u32).range(..=i64::from(STATS_PERIOD_MAX)))]
    stats_period: u32,
    /// Address of a port, counted from 0; may be given several times. A port without one has its
    /// IPv6 link-local address
    #[arg(long, value_name = "PORT,ADDRESS/LEN")]
    ip: Vec<String>,
    /// Largest Ethernet payload of all ports in bytes
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// Configuration file, instead of devices in EAL options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ip", "mtu"])]
    config: Option<PathBuf>,
}

/// Runs the program with these EAL options and options after `--`.
pub(crate) fn main(eal: &[String], options: &[String]) -> ExitCode {
    let options = match Options::try_parse_from(options) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    let config = match configuration(eal, &options) {
        Ok(config) => config,
        Err(text) => {
            style::error(&text);
            return ExitCode::from(USAGE);
        }
    };
    let contexts = match open(&config) {
        Ok(contexts) => contexts,
        Err(text) => {
            style::error(&text);
            return ExitCode::FAILURE;
        }
    };
    let outcome = run(&options);
    drop(contexts);
    let _ = writeln!(std::io::stdout(), "\nBye...");
    outcome
}

/// Returns the configuration of the options.
fn configuration(eal: &[String], options: &Options) -> Result<Config, String> {
    let mut config = match &options.config {
        None => ports::configuration(eal, &options.ip, options.mtu)?,
        Some(file) => {
            let mut config = Config::from_file(file).map_err(|error| error.to_string())?;
            config.eal.args.extend_from_slice(eal);
            config
        }
    };
    config.devices.iter_mut().for_each(|device| device.forwards = true);
    Ok(config)
}

/// Opens all devices of the configuration.
fn open(config: &Config) -> Result<Vec<Context>, String> {
    let open = |name: &String| {
        Context::open(config, name).map_err(|error| {
            let text = format!("{name}: {error}");
            explained(&text).unwrap_or(text)
        })
    };
    config.devices.iter().map(|device| open(&device.name)).collect()
}

fn run(options: &Options) -> ExitCode {
    let pid = std::process::id().to_string();
    let client = match find::socket(&pid).and_then(|path| Client::connect(&path)) {
        Ok(client) => client,
        Err(error) => {
            style::error(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let mut session = Session::new(Some(client), false);
    session.trace = true;
    let mut outcome = session.files(&options.cmdline_file);
    session.trace = false;
    if outcome == Outcome::Done {
        outcome = session.files(&options.cmdline_file_noecho);
    }
    if outcome == Outcome::Done {
        outcome = match (options.interactive, std::io::stdin().is_terminal()) {
            (true, true) => prompt::run(&mut session),
            (true, false) => session.lines(&mut std::io::stdin().lock(), "stdin"),
            (false, _) => {
                let set = session.take_stats_period();
                until_enter(&mut session, set.unwrap_or(options.stats_period))
            }
        };
    }
    session.tell_bench();
    let is_well = matches!(outcome, Outcome::Done | Outcome::Quit) && !session.has_failed;
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Waits for Enter, and shows the ports' statistics every `period` seconds if that is not 0.
fn until_enter(session: &mut Session, period: u32) -> Outcome {
    let (entered, enter) = channel();
    std::thread::spawn(move || {
        // The end of the input counts as Enter.
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        let _ = entered.send(());
    });
    let _ = writeln!(std::io::stdout(), "Press enter to exit");
    let stats = Request::Show(Show::Port(ShowPort::Stats { port: Select::All }));
    let pause = match period {
        0 => Duration::MAX,
        seconds => Duration::from_secs(u64::from(seconds)),
    };
    loop {
        match enter.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Outcome::Done,
        }
        if session.request(&stats) == Outcome::Over {
            return Outcome::Over;
        }
    }
}
