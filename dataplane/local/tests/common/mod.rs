//! What tests of the fabric share: directories, members that are driven, and frames that tell
//! whether they are whole.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use uroce_local::{Member, MemberConfig, Queue, Sent, mac_of};
use uroce_transport::Instant as Turn;

/// Bytes before the numbers of a frame: an Ethernet header.
const HEADER: usize = 14;
/// Shortest frame that [`frame`] makes.
pub const SHORTEST: usize = HEADER + 16;

/// A directory that is removed with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("uroce-local-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn config(directory: &Path, queues: u16) -> MemberConfig {
    MemberConfig { directory: directory.to_owned(), number: None, queues, frame_max: 4200 }
}

pub fn join(directory: &Path) -> Member {
    Member::join(config(directory, 1)).expect("a number is free")
}

/// Time of a turn.
pub fn now(begin: Instant) -> Turn {
    Turn::from_nanos(begin.elapsed().as_nanos() as u64 + 1)
}

/// A frame from one member to another (0: to all) with a number, filled with bytes that depend on
/// both.
pub fn frame(from: u8, to: u8, life: u32, number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&if to == 0 { [0xff; 6] } else { mac_of(to).0 });
    frame[6..12].copy_from_slice(&mac_of(from).0);
    frame[12..14].copy_from_slice(&(len as u16).to_be_bytes());
    frame[14..18].copy_from_slice(&life.to_be_bytes());
    frame[18..22].copy_from_slice(&number.to_be_bytes());
    for (at, byte) in frame.iter_mut().enumerate().skip(22) {
        *byte = fill(from, life, number, at);
    }
    frame
}

fn fill(from: u8, life: u32, number: u32, at: usize) -> u8 {
    let mixed = number.wrapping_mul(0x9e37_79b1) ^ life.wrapping_mul(0x85eb_ca6b) ^ u32::from(from);
    (mixed.wrapping_add(at as u32) >> (at % 3 * 8)) as u8
}

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    pub from: u8,
    pub to: u8,
    pub life: u32,
    pub number: u32,
}

/// Reads a frame; panics if it is not whole.
pub fn told(frame: &[u8]) -> Told {
    assert!(frame.len() >= 22, "a frame of {} bytes", frame.len());
    let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let (from, life, count) = (frame[11], number(14), number(18));
    assert_eq!(usize::from(u16::from_be_bytes([frame[12], frame[13]])), frame.len());
    let to = if frame[0] == 0xff { 0 } else { frame[5] };
    for (at, &byte) in frame.iter().enumerate().skip(22) {
        assert_eq!(byte, fill(from, life, count, at), "byte {at} of {count} from {from}");
    }
    Told { from, to, life, number: count }
}

/// Receives all frames that are there.
pub fn receive(queue: &mut Queue, mut each: impl FnMut(Told)) -> usize {
    let mut bytes = [0; 4200];
    queue.receive(32, |frame| {
        let len = frame.copy_to(&mut bytes);
        assert_eq!(len, frame.len());
        each(told(&bytes[..len]));
        true
    })
}

/// Sends a frame, in turns until it is taken or lost.
pub fn send_surely(queue: &mut Queue, begin: Instant, frame: &[u8]) -> Sent {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        queue.begin(now(begin));
        let sent = queue.send(frame);
        queue.flush();
        if sent != Sent::Full {
            return sent;
        }
        assert!(Instant::now() < deadline, "a frame waits for ever");
        std::thread::yield_now();
    }
}

/// Waits for a condition; panics after 20 seconds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
