//! What DPDK's testpmd carries: one process sends (`txonly`), another receives (`rxonly`), over
//! memif on the CPUs of the two ends.
//!
//! Debian's package `dpdk-dev` has the program. Where it is missing, the row says so.

use super::report::{Beside, Point};
use super::shape::FCS;
use crate::cli::DeviceArgs;
use crate::demo::quickstart::Folder;
use crate::error::BenchError;
use crate::perf::measure::median;
use crate::pin::{Side, cpu_of, cpus};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The program.
const PROGRAM: &str = "dpdk-testpmd";
/// Rates of whole seconds that are taken, after the first, in which the two found each other.
const SECONDS: usize = 3;
/// Longest time for all of them.
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames that a ring holds.
const RING_LOG2: u32 = 10;

/// Measures the frames of a point.
pub(super) fn measure(point: &Point, device: &DeviceArgs) -> Beside {
    let mut lengths = point.lengths().to_vec();
    lengths.sort_unstable();
    lengths.dedup();
    let mut rates = Vec::new();
    for length in lengths {
        match frames(length, device) {
            Ok(rate) => rates.push((length, rate)),
            Err(error) => return Beside::Not(error.to_string()),
        }
    }
    let rate = |frame| rates.iter().find(|(length, _)| *length == frame).map_or(0.0, |one| one.1);
    Beside::Rate(point.at_frame_rates(rate))
}

/// Returns the frames per second that the receiver has counted.
fn frames(length: u32, device: &DeviceArgs) -> Result<f64, BenchError> {
    let folder = Folder::new()?;
    let socket = folder.path().join("testpmd");
    let receiver = Testpmd::start(Side::Server, &socket, &["--forward-mode=rxonly"], device)?;
    let frames = format!("--txpkts={}", length - FCS);
    let options = ["--forward-mode=txonly", &frames];
    let _sender = Testpmd::start(Side::Client, &socket, &options, device)?;
    let deadline = Instant::now() + PATIENCE;
    let mut rates = Vec::new();
    while rates.len() <= SECONDS {
        match receiver.rates.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(rate) if rate > 0.0 => rates.push(rate),
            Ok(_) => (),
            Err(_) => {
                let text = "not here: its receiver counts nothing; try txonly and rxonly by hand";
                return Err(BenchError::usage(text));
            }
        }
    }
    Ok(median(&rates[1..]))
}

/// A running testpmd; killed when dropped.
struct Testpmd {
    child: Child,
    /// Frames per second that it has received, once a second.
    rates: Receiver<f64>,
}

impl Testpmd {
    fn start(
        side: Side,
        socket: &Path,
        options: &[&str],
        device: &DeviceArgs,
    ) -> Result<Self, BenchError> {
        let role = if side == Side::Server { "server" } else { "client" };
        let cpu = cpu_of(side, device.lcores.as_ref(), cpus()).unwrap_or(0);
        let vdev = format!(
            "net_memif0,role={role},socket-abstract=no,socket={},rsize={RING_LOG2},bsize=4352",
            socket.display()
        );
        // testpmd has a main lcore, which sleeps, beside the one that forwards.
        let lcores = format!("(0,1)@{cpu}");
        let prefix = format!("--file-prefix=uroce-{role}-{}", std::process::id());
        let mut command = Command::new(PROGRAM);
        command
            .args(["--lcores", &lcores, "--no-huge", "-m", "512", "--no-pci", "--no-telemetry"])
            .args([&prefix, "--vdev", &vdev, "--log-level=critical", "--", "--stats-period=1"])
            .args(["--total-num-mbufs=16384", "--mbuf-size=4608"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                BenchError::usage("not installed: Debian's package dpdk-dev has dpdk-testpmd")
            }
            _ => BenchError::io(PROGRAM, error),
        })?;
        let (sender, rates) = channel();
        if let Some(output) = child.stdout.take() {
            // The thread ends with the program's output.
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                for rate in lines.filter_map(|line| rate(&line)) {
                    if sender.send(rate).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { child, rates })
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the rate in a line of testpmd's statistics: `Rx-pps: 12 Rx-bps: 96`.
fn rate(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("Rx-pps:")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_testpmds_statistics() {
        assert_eq!(rate("  Rx-pps:       225035          Rx-bps:   2725635608"), Some(225_035.0));
        assert_eq!(rate("  Tx-pps:            1          Tx-bps:   1"), None);
        assert_eq!(rate("Rx-pps: x"), None);
    }
}
