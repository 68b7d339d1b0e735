//! Limits of machine and device without a protocol, to be compared with uroce's results.
//!
//! - frames: one side sends frames as long as a full packet as fast as the device accepts them, the
//!   other counts them without reading them;
//! - copy, ICRC, copy + ICRC: the least work of a core per payload byte, on the buffers of the
//!   frames;
//! - copy + ICRC across: one side copies payloads into frames and seals them in one pass, and sends
//!   the frames; the other checks them and copies the payloads out, so that each byte moves between
//!   cores;
//! - ping-pong: half a round trip of one small frame.
//!
//! The roofline of bandwidth is the lower of frames and copy + ICRC: each side's core copies every
//! byte once and checksums it once. A sender can do both in one pass; that rate is reported
//! separately.
//!
//! Invariant: both sides use the CPUs and the device of a test with the same options.

mod device;
mod frames;
mod memory;

pub(crate) use device::RawPort;
use memory::Packets;

use crate::cli::{LimitsArgs, Role};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::nic_check::PortReport;
use crate::perf::measure::median;
use crate::pin::{Side, cpu_of, cpus, pin};
use crate::rendezvous::{Link, Listener, connect};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of a packet in addition to its payload: Ethernet, IPv4, UDP, BTH, ICRC.
pub(crate) const PACKET_OVERHEAD: usize = 14 + 20 + 8 + 12 + 4;
/// Payload of the small frame: an 8-byte SEND.
const SMALL_PAYLOAD: usize = 8;

/// Results of one run, or medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Frames of full length, in millions per second.
    pub(crate) frames_mpps: f64,
    /// Payload of these frames, in Gb/s.
    pub(crate) frames_gbps: f64,
    /// Small frames, in millions per second.
    pub(crate) small_frames_mpps: f64,
    /// Payload copied by one core, in Gb/s.
    pub(crate) copy_gbps: f64,
    /// Payload checksummed by one core, in Gb/s.
    pub(crate) icrc_gbps: f64,
    /// Payload copied and then checksummed by one core, in Gb/s.
    pub(crate) copy_icrc_gbps: f64,
    /// Payload copied and checksummed by one core in one pass, as the engine does, in Gb/s.
    pub(crate) one_pass_gbps: f64,
    /// Payload copied and sealed into frames, sent, checked and copied out, in Gb/s.
    pub(crate) across_gbps: f64,
    /// Half a round trip of a small frame, in ns.
    pub(crate) half_rtt_ns: f64,
    /// The lower of frames and copy + ICRC, in Gb/s.
    pub(crate) roofline_gbps: f64,
}

/// Parameters of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// Bytes of the message buffer.
    pub(crate) size: u32,
    /// Payload bytes of a frame.
    pub(crate) mtu: u32,
    /// Duration of each measurement.
    pub(crate) time: Duration,
}

impl Setting {
    fn frame(&self) -> usize {
        self.mtu as usize + PACKET_OVERHEAD
    }
}

impl Limits {
    /// Returns the median of each figure.
    pub(crate) fn median(runs: &[Limits]) -> Limits {
        let of =
            |figure: fn(&Limits) -> f64| median(&runs.iter().map(figure).collect::<Vec<f64>>());
        Limits {
            frames_mpps: of(|run| run.frames_mpps),
            frames_gbps: of(|run| run.frames_gbps),
            small_frames_mpps: of(|run| run.small_frames_mpps),
            copy_gbps: of(|run| run.copy_gbps),
            icrc_gbps: of(|run| run.icrc_gbps),
            copy_icrc_gbps: of(|run| run.copy_icrc_gbps),
            one_pass_gbps: of(|run| run.one_pass_gbps),
            across_gbps: of(|run| run.across_gbps),
            half_rtt_ns: of(|run| run.half_rtt_ns),
            roofline_gbps: of(|run| run.roofline_gbps),
        }
    }
}

/// Does one run as the client, which gets the results.
pub(crate) fn client(
    raw: &mut RawPort,
    link: &mut Link,
    setting: &Setting,
) -> Result<Limits, BenchError> {
    let (frame, small_frame) = (setting.frame(), SMALL_PAYLOAD + PACKET_OVERHEAD);
    let rate = frames::source(raw, link, frame, setting.time, frames::address)?;
    let mut packets = Packets::new(setting);
    let across = frames::source(raw, link, frame, setting.time, |frame| packets.fill(frame))?;
    let small = frames::source(raw, link, small_frame, setting.time, frames::address)?;
    let half_rtt_ns = frames::ping(raw, link, small_frame, setting.time)?;
    let memory = memory::measure(raw, setting)?;
    let gbps = |rate: f64| rate * f64::from(setting.mtu) * 8.0 / 1e9;
    let frames_gbps = gbps(rate);
    Ok(Limits {
        frames_mpps: rate / 1e6,
        frames_gbps,
        small_frames_mpps: small / 1e6,
        copy_gbps: memory.copy_gbps,
        icrc_gbps: memory.icrc_gbps,
        copy_icrc_gbps: memory.copy_icrc_gbps,
        one_pass_gbps: memory.one_pass_gbps,
        across_gbps: gbps(across),
        half_rtt_ns,
        roofline_gbps: frames_gbps.min(memory.copy_icrc_gbps),
    })
}

/// Does one run as the server.
pub(crate) fn server(
    raw: &mut RawPort,
    link: &mut Link,
    setting: &Setting,
) -> Result<(), BenchError> {
    frames::sink(raw, link, |_| ())?;
    let mut packets = Packets::new(setting);
    frames::sink(raw, link, |frame| packets.take(frame))?;
    frames::sink(raw, link, |_| ())?;
    frames::echo(raw, link)
}

/// Measures, as the client, how many frames of a length the port carries in a second, without the
/// frame check sequence; [`take_frames`] is the other end.
pub(crate) fn frame_rate(
    raw: &mut RawPort,
    link: &mut Link,
    frame: usize,
    time: Duration,
) -> Result<f64, BenchError> {
    frames::source(raw, link, frame, time, frames::address)
}

/// Counts the frames of [`frame_rate`] as the server.
pub(crate) fn take_frames(raw: &mut RawPort, link: &mut Link) -> Result<(), BenchError> {
    frames::sink(raw, link, |_| ())
}

/// Runs the subcommand.
pub(crate) fn run(args: &LimitsArgs) -> Result<(), BenchError> {
    let setting = Setting {
        size: args.size,
        mtu: args.mtu,
        time: Duration::from_millis(args.time_ms.clamp(1, 60_000)),
    };
    if !(64..=8192).contains(&args.mtu) || args.size < args.mtu {
        return Err(BenchError::usage("-m must be 64 to 8192, and -s at least as much"));
    }
    match args.ends.role() {
        Role::Both => both(args, &setting),
        Role::Client { host } => {
            let mut raw = RawPort::open(&args.ends.device, &setting)?;
            let mut link = Link::tcp(connect(&host, args.port)?)?;
            pin_side(Side::Client, args);
            let result = client_runs(args, &mut raw, &mut link, &setting);
            result.inspect_err(|error| link.send_failure(error))
        }
        Role::Server => {
            let listener = Listener::bind(args.port)?;
            let mut raw = RawPort::open(&args.ends.device, &setting)?;
            eprintln!("waiting for a client on TCP port {}", args.port);
            let mut link = Link::tcp(listener.accept()?)?;
            pin_side(Side::Server, args);
            let result = server_runs(args, &mut raw, &mut link, &setting);
            result.inspect_err(|error| link.send_failure(error))
        }
    }
}

fn pin_side(side: Side, args: &LimitsArgs) {
    if let Some(cpu) = cpu_of(side, args.ends.device.lcores.as_ref(), cpus()) {
        pin(cpu);
    }
}

/// Runs both ends in this process.
fn both(args: &LimitsArgs, setting: &Setting) -> Result<(), BenchError> {
    let (mut ours, mut theirs) = RawPort::ring_pair("limits", setting)?;
    let (mut link, mut far_link) = Link::pair()?;
    let serve = || {
        pin_side(Side::Server, args);
        let result = server_runs(args, &mut theirs, &mut far_link, setting);
        result.inspect_err(|error| far_link.send_failure(error))
    };
    // This end has its own thread too, so that pinning does not affect the caller.
    let ask = || {
        pin_side(Side::Client, args);
        let result = client_runs(args, &mut ours, &mut link, setting);
        result.inspect_err(|error| link.send_failure(error))
    };
    crate::both_ends(serve, ask)
}

fn client_runs(
    args: &LimitsArgs,
    raw: &mut RawPort,
    link: &mut Link,
    setting: &Setting,
) -> Result<(), BenchError> {
    agree(link, args, setting)?;
    raw.wait_for_link()?;
    let mut runs = Vec::new();
    for _ in 0..args.runs.max(1) {
        runs.push(client(raw, link, setting)?);
    }
    let limits = Limits::median(&runs);
    match args.json {
        true => println!("{}", json(&limits, &raw.report(), setting, args.runs)),
        false => print!("{}", table(&limits, &raw.report(), setting, args.runs)),
    }
    Ok(())
}

fn server_runs(
    args: &LimitsArgs,
    raw: &mut RawPort,
    link: &mut Link,
    setting: &Setting,
) -> Result<(), BenchError> {
    agree(link, args, setting)?;
    raw.wait_for_link()?;
    (0..args.runs.max(1)).try_for_each(|_| server(raw, link, setting))
}

/// Checks that both ends were started with the same options.
fn agree(link: &mut Link, args: &LimitsArgs, setting: &Setting) -> Result<(), BenchError> {
    let ours = (*setting, args.runs);
    link.send(&ours)?;
    let theirs: (Setting, u32) = link.receive("waiting for the other end's options", doze)?;
    if ours != theirs {
        return Err(BenchError::Disagree(format!("{ours:?} here, {theirs:?} there")));
    }
    Ok(())
}

/// Pauses a side without an lcore while it waits for the other.
fn doze() {
    std::thread::sleep(Duration::from_micros(20));
}

fn json(limits: &Limits, port: &PortReport, setting: &Setting, runs: u32) -> serde_json::Value {
    let mut value = serde_json::json!({
        "test": "limits",
        "device": port.driver,
        "by_device": port.by_nic,
        "device_could": port.nic_could,
        "in_software": port.in_software,
        "not_used": port.not_used,
        "mtu": setting.mtu,
        "size": setting.size,
        "runs": runs,
        "machine": Machine::this(),
    });
    if let (Some(all), Ok(serde_json::Value::Object(figures))) =
        (value.as_object_mut(), serde_json::to_value(limits))
    {
        all.extend(figures);
    }
    value
}

fn table(limits: &Limits, port: &PortReport, setting: &Setting, runs: u32) -> String {
    let line = crate::perf::report::line();
    format!(
        "{line}\n                    Limits of {device}: medians of {runs} runs\n{line}\n \
         frames of {frame} bytes        {:>10.3} Mpps  {:>10.2} Gb/s of payload\n \
         frames of {small} bytes          {:>10.3} Mpps\n \
         copy                                        {:>10.2} Gb/s\n \
         ICRC                                        {:>10.2} Gb/s\n \
         copy + ICRC                                 {:>10.2} Gb/s\n \
         copy + ICRC in one pass                     {:>10.2} Gb/s\n \
         roofline                                    {:>10.2} Gb/s\n \
         copy + ICRC across                          {:>10.2} Gb/s\n \
         half round trip             {:>10.1} ns\n{line}\n{features}",
        limits.frames_mpps,
        limits.frames_gbps,
        limits.small_frames_mpps,
        limits.copy_gbps,
        limits.icrc_gbps,
        limits.copy_icrc_gbps,
        limits.one_pass_gbps,
        limits.roofline_gbps,
        limits.across_gbps,
        limits.half_rtt_ns,
        device = port.driver,
        features = port.features(),
        frame = setting.frame(),
        small = SMALL_PAYLOAD + PACKET_OVERHEAD,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let run = |copy_gbps, half_rtt_ns| Limits { copy_gbps, half_rtt_ns, ..Limits::default() };
        let median = Limits::median(&[run(1.0, 30.0), run(2.0, 10.0), run(9.0, 20.0)]);
        assert_eq!((median.copy_gbps, median.half_rtt_ns), (2.0, 20.0));
    }

    #[test]
    fn the_json_has_every_figure() {
        let setting = Setting { size: 65536, mtu: 4096, time: Duration::from_millis(1) };
        let limits = Limits { roofline_gbps: 7.5, ..Limits::default() };
        let port = PortReport { in_software: vec!["RSS".into()], ..PortReport::default() };
        let value = json(&limits, &port, &setting, 5);
        assert_eq!(value["in_software"], serde_json::json!(["RSS"]));
        assert_eq!((&value["roofline_gbps"], &value["mtu"]), (&7.5.into(), &4096.into()));
        assert!(value["machine"]["commit"].is_string());
        assert!(value["half_rtt_ns"].is_number());
    }
}
