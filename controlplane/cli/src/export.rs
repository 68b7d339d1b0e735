//! `uroce export`: the metrics of all processes of this machine, for Prometheus.
//!
//! ```text
//!   Prometheus ── GET /metrics ──> server ──> collect ── Request::Scrape ──> each process
//!              <─ text ───────────────────── text <──── answers ──────────
//! ```
//!
//! Invariants
//! - A process that stalls, sends rubbish or is another user's costs its own metrics only.
//! - A client of the server costs a bounded time and one of a bounded number of connections.

mod collect;
mod server;
mod text;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use uroce_command::Scrape;

use crate::style;
use collect::Collector;

/// Metrics of all processes of this machine, for Prometheus
#[derive(Debug, Parser)]
#[command(name = "uroce export", no_binary_name = true, after_help = AFTER)]
struct Options {
    /// Address and port to listen on. There is no encryption and no password
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9749")]
    listen: SocketAddr,
    /// Queue pairs of each device that are named, those with the most bytes; with 0 queue pairs are
    /// not counted either
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(..=1000))]
    top: u32,
    /// Do not measure how lcores spend their time, which costs each turn some hundred cycles
    #[arg(long)]
    no_measure: bool,
}

const AFTER: &str = "\
Root serves the processes of all users, another user its own.
deploy/grafana/uroce.json is a dashboard of these metrics.";

/// Serves until the program is ended.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    let listen = |address: SocketAddr| {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    let (listener, bound) = match listen(options.listen) {
        Ok(listening) => listening,
        Err(error) => {
            let error: std::io::Error = error;
            style::error(&format!("--listen {}: {error}", options.listen));
            return ExitCode::FAILURE;
        }
    };
    let _ = writeln!(std::io::stdout(), "listening on http://{bound}/metrics");
    let scrape = Scrape { qps: options.top, measure: !options.no_measure };
    server::serve(&listener, &Arc::new(Collector::new(scrape)));
    ExitCode::FAILURE
}
