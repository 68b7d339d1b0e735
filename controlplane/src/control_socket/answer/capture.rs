//! Answers about captures. Each is made at once, for all devices.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use uroce_command::answer::Capture as Seen;
use uroce_command::{Answer, Capture, Refusal, Reply, Select};

use super::super::{Served, or_nothing};
use super::port;
use crate::call::RequestError;
use crate::capture::{CaptureSpec, Interface};
use crate::thread::{CaptureSeen, PortSeen};

/// Longest wait for a file to be complete. The disk may be slow, and other clients have to wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// Smallest number of bytes that a capture keeps of each frame.
const SNAPLEN_MIN: u16 = 64;

/// Carries out a command. `file` is the descriptor that came with the request.
pub(super) fn answer(
    request: &Capture,
    file: Option<OwnedFd>,
    devices: &[Arc<Served>],
) -> Result<Reply, RequestError> {
    match request {
        Capture::Start { port, file: name, qp, snaplen, count } => {
            let Some((served, port)) = find(*port, devices)? else { return Ok(no_port(*port)) };
            if *snaplen < SNAPLEN_MIN {
                return Ok(failed(format!("{snaplen} bytes of a frame are too few: 64 or more")));
            }
            let file = match file.map(checked) {
                Some(Ok(file)) => file,
                Some(Err(text)) => return Ok(failed(format!("{name}: {text}"))),
                None => {
                    return Ok(failed(format!("{name}: the file did not come with the request")));
                }
            };
            let spec = CaptureSpec {
                id: port.id,
                file: name.clone(),
                qp: *qp,
                snaplen: *snaplen,
                count: *count,
            };
            let (interface, calls) = (interface(served, &port, &spec), served.calls.clone());
            let started = served.calls.call(move |thread| {
                Ok(thread.start_capture(port.number, spec, interface, file, calls))
            })?;
            Ok(started.map_or_else(failed, |()| Reply::Last(Answer::Done)))
        }
        Capture::Stop { port } => stop(*port, devices),
    }
}

/// Returns the captures of all devices.
pub(super) fn show(devices: &[Arc<Served>]) -> Result<Reply, RequestError> {
    let mut all = Vec::new();
    for served in devices {
        let seen = or_nothing(served.calls.call(|thread| Ok(thread.captures_seen())))?;
        all.extend(seen.into_iter().map(|capture| told(served, capture)));
    }
    Ok(Reply::Last(Answer::Capture(all)))
}

fn stop(select: Select, devices: &[Arc<Served>]) -> Result<Reply, RequestError> {
    let (mut all, mut is_found) = (Vec::new(), false);
    for served in devices {
        let ports = or_nothing(port::seen(served, select))?;
        let (numbers, ids): (Vec<u8>, Vec<u16>) = ports.iter().map(|of| (of.number, of.id)).unzip();
        is_found |= !ports.is_empty();
        let stopped = served.calls.call(move |thread| Ok(thread.stop_captures(&numbers)));
        let endings = or_nothing(stopped)?;
        for ending in &endings {
            if ending.wait(PATIENCE).is_none() {
                return Ok(failed("the file takes no bytes; its capture ends when it does".into()));
            }
        }
        let seen = or_nothing(served.calls.call(|thread| Ok(thread.captures_seen())))?;
        let of_ports = seen.into_iter().filter(|capture| ids.contains(&capture.spec.id));
        all.extend(of_ports.map(|capture| told(served, capture)));
    }
    match select {
        Select::One(port) if !is_found => Ok(no_port(port)),
        Select::One(port) if all.is_empty() => Ok(failed(format!("port {port} is not captured"))),
        _ => Ok(Reply::Last(Answer::Capture(all))),
    }
}

/// Returns the port of this number and its device.
pub(super) fn find(
    port: u32,
    devices: &[Arc<Served>],
) -> Result<Option<(&Arc<Served>, PortSeen)>, RequestError> {
    for served in devices {
        if let Some(port) = or_nothing(port::seen(served, Select::One(port)))?.into_iter().next() {
            return Ok(Some((served, port)));
        }
    }
    Ok(None)
}

pub(super) fn no_port(port: u32) -> Reply {
    Reply::Refused(Refusal::NoSuchObject(format!("Invalid port {port}")))
}

pub(super) fn failed(text: String) -> Reply {
    Reply::Refused(Refusal::Failed(text))
}

/// Returns the file of a descriptor if a write to it cannot wait for another process.
///
/// # Errors
///
/// The reason for which the file cannot be used.
fn checked(fd: OwnedFd) -> Result<File, String> {
    let stat = fstat(&fd).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("not a regular file".to_owned());
    }
    let flags = fcntl_getfl(&fd).map_err(|error| error.to_string())?;
    if flags.contains(OFlags::PATH) || !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        return Err("not open for writing".to_owned());
    }
    Ok(File::from(fd))
}

fn interface(served: &Served, port: &PortSeen, spec: &CaptureSpec) -> Interface {
    let capabilities = &port.capabilities;
    let megabits = port.link.speed_mbps.filter(|speed| *speed > 0);
    Interface {
        name: format!("{}/{}", served.config.name, port.number),
        description: format!("port {}: {} ({})", port.id, capabilities.name, capabilities.driver),
        mac: served.ports.port(port.number).map(|attr| attr.mac.0).unwrap_or_default(),
        speed: megabits.map(|speed| u64::from(speed) * 1_000_000),
        filter: spec.qp.map(|qp| format!("qp {qp:#08x}")),
        snaplen: spec.snaplen,
    }
}

fn told(served: &Served, capture: CaptureSeen) -> Seen {
    let CaptureSeen { spec, progress } = capture;
    Seen {
        port: spec.id.into(),
        device: served.config.name.clone(),
        file: spec.file,
        qp: spec.qp,
        snaplen: spec.snaplen,
        frames: progress.frames,
        bytes: progress.bytes,
        missed: progress.missed,
        end: progress.end,
    }
}
