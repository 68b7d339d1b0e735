//! Reading and writing of capture files.

use std::path::Path;

/// The frames of a little-endian Ethernet capture with microsecond time stamps.
pub(crate) fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    assert_eq!(header[..4], 0xa1b2_c3d4_u32.to_le_bytes());
    let mut frames = Vec::new();
    while let Some((record, tail)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([record[8], record[9], record[10], record[11]]) as usize;
        frames.push(tail[..len].to_vec());
        rest = &tail[len..];
    }
    frames
}

/// Writes a little-endian Ethernet capture with one frame a second.
pub(crate) fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    // Magic, version 2.4, time zone, accuracy, longest frame, Ethernet.
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 1];
    let mut out: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    for (seconds, frame) in (0..).zip(frames) {
        let len = frame.len() as u32;
        out.extend([seconds, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        out.extend(frame);
    }
    std::fs::write(path, out).unwrap();
}
