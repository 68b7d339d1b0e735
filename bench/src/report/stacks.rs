//! Throughput of other stacks on this machine, over the loopback interface.

use super::child::{Missing, Running, cause};
use super::plan::Other;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Longest time for a server to start.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time of a program.
const LONGEST: Duration = Duration::from_secs(120);
/// Bytes of a message, as of uroce's beside.
const SIZE: &str = "65536";

/// Measures another stack for about `time_ms`; a second is the least of most programs.
pub(super) fn measure(other: Other, time_ms: u64) -> Result<Value, Missing> {
    let seconds = time_ms.div_ceil(1000).to_string();
    match other {
        Other::Tcp => tcp(&seconds),
        Other::UcxTcp => ucx(),
        Other::SoftRoce => soft_roce(&seconds),
        Other::SoftRoceUml => soft_roce_uml(&seconds),
    }
}

fn tcp(seconds: &str) -> Result<Value, Missing> {
    let port = free_port()?;
    let server = start("iperf3", "iperf3", &["-s", "-1", "-p", &port], &[])?;
    let to = ["-c", "127.0.0.1", "-p", &port, "-J", "-l", SIZE, "-t", seconds];
    let output = client(server, "iperf3", "iperf3", &to, &[])?;
    let value: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Missing::Failed(format!("iperf3: {error}")))?;
    let bits = value["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.ok_or_else(|| Missing::Failed("iperf3 says no rate".to_owned()))?;
    Ok(json!({ "gbps": bits / 1e9 }))
}

fn ucx() -> Result<Value, Missing> {
    let port = free_port()?;
    let only_tcp = [("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")];
    let test = ["-t", "tag_bw", "-s", SIZE, "-n", "20000", "-p", &port, "-f"];
    let server = start("ucx_perftest", "ucx-utils", &test, &only_tcp)?;
    let to = [&["127.0.0.1"], &test[..]].concat();
    let output = client(server, "ucx_perftest", "ucx-utils", &to, &only_tcp)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mib = ucx_mib(&text)
        .ok_or_else(|| Missing::Failed("ucx_perftest says no rate; try it by hand".to_owned()))?;
    Ok(json!({ "gbps": mib * f64::from(1 << 20) * 8.0 / 1e9 }))
}

/// Returns the average MB/s of the last line of numbers: iterations, a percentile, two latencies,
/// two bandwidths, two rates.
fn ucx_mib(text: &str) -> Option<f64> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("Final:"));
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let numbers = |words: &Vec<&str>| -> Option<Vec<f64>> {
        words.iter().map(|word| word.parse().ok()).collect()
    };
    let last =
        lines.filter_map(|words| numbers(&words).filter(|found| found.len() >= 7)).next_back()?;
    // The overall bandwidth is the third number from the end.
    last.get(last.len() - 3).copied()
}

fn soft_roce(seconds: &str) -> Result<Value, Missing> {
    let devices = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let names = devices.map(|device| device.file_name().to_string_lossy().into_owned());
    let Some(device) = names.into_iter().find(|name| name.starts_with("rxe")) else {
        let text = "this kernel has no device of Soft-RoCE: see rdma link add";
        return Err(Missing::NotHere(text.to_owned()));
    };
    let port = free_port()?;
    let test = ["-d", &device, "-s", SIZE, "-D", seconds, "-p", &port, "-F", "--report_gbits"];
    let server = start("ib_write_bw", "perftest", &test, &[])?;
    let to = [&test[..], &["127.0.0.1"]].concat();
    let output = client(server, "ib_write_bw", "perftest", &to, &[])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.first() == Some(&SIZE)).then(|| words.get(3)?.parse::<f64>().ok())?
    });
    let gbps = rate.ok_or_else(|| Missing::Failed("ib_write_bw says no rate".to_owned()))?;
    Ok(json!({ "gbps": gbps }))
}

/// Runs `deploy/peer-rxe` of the source tree in which this program was built. It compiles a kernel,
/// which is left to the user.
fn soft_roce_uml(seconds: &str) -> Result<Value, Missing> {
    let program = std::env::current_exe().map_err(Missing::io)?;
    let folders = program.ancestors().skip(1);
    let Some(script) =
        folders.map(|folder| folder.join("deploy/peer-rxe")).find(|path| path.is_file())
    else {
        let text = "this program is not in its source tree, which has deploy/peer-rxe";
        return Err(Missing::NotHere(text.to_owned()));
    };
    let mut command = Command::new(script);
    command.args(["--no-build", "--json", "--tests", "write_bw", "--mtu", "4200"]);
    command.args(["--sizes", SIZE, "--seconds", seconds]);
    let output = Running::start(&mut command, LONGEST).map_err(Missing::io)?.output()?;
    match output.status.code() {
        Some(0) => (),
        Some(2) => return Err(Missing::NotHere(cause(&output))),
        _ => return Err(Missing::Failed(cause(&output))),
    }
    let value: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Missing::Failed(format!("deploy/peer-rxe: {error}")))?;
    let gbps = value["results"][0]["gbps"].as_f64();
    let gbps = gbps.ok_or_else(|| Missing::Failed("deploy/peer-rxe says no rate".to_owned()))?;
    Ok(json!({ "gbps": gbps }))
}

fn free_port() -> Result<String, Missing> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = address.map_err(|error| Missing::Failed(error.to_string()))?.port();
    Ok(port.to_string())
}

/// Starts a program that is in a package of Debian. It is ended when dropped, and by the kernel if
/// this process is killed.
fn start(
    program: &str,
    package: &str,
    options: &[&str],
    variables: &[(&str, &str)],
) -> Result<Running, Missing> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|folder| folder.join(program));
    let Some(file) = places.find(|file| file.is_file()) else {
        let text = format!("not installed: Debian's package {package} has {program}");
        return Err(Missing::NotHere(text));
    };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(file);
    command.args(options).envs(variables.iter().copied());
    Running::start(&mut command, LONGEST)
        .map_err(|error| Missing::Failed(format!("{program}, by setpriv: {error}")))
}

/// Runs a client until it succeeds: its server may still be starting.
fn client(
    server: Running,
    program: &str,
    package: &str,
    options: &[&str],
    variables: &[(&str, &str)],
) -> Result<Output, Missing> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let outcome = start(program, package, options, variables)?.succeeded();
        if outcome.is_ok() || Instant::now() > deadline {
            drop(server);
            return outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_with_its_report_and_a_missing_one_is_named() {
        let dump = start("setpriv", "util-linux", &["--dump"], &[]).expect("starts");
        let text = String::from_utf8(dump.succeeded().expect("runs").stdout).expect("is text");
        assert!(text.contains("Parent death signal: KILL"), "{text}");
        match start("no-such-program", "no-package", &[], &[]).map(drop) {
            Err(Missing::NotHere(text)) => assert!(text.contains("no-package"), "{text}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_rate_of_ucx_is_the_overall_bandwidth() {
        let text = "# header\n 20000  50.0  5.1  6.2  6.3  9900.10  9800.50  158000  157000\n";
        assert_eq!(ucx_mib(text), Some(9800.5));
        assert_eq!(ucx_mib("Waiting for connection...\n"), None);
    }
}
