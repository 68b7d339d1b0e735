//! A log of the run: frames with their fate, and notes in between; written as pcapng.
//!
//! Recording copies every frame, so runs are not recorded; a seed that fails is run again with a
//! record.

use core::fmt;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Write};

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use uroce_wire::{Frame, Packet};

use uroce_transport::Instant;

/// Effects of a link on a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    /// The frame was lost.
    pub is_lost: bool,
    /// The frame arrives twice.
    pub is_duplicated: bool,
    /// The frame was delayed, perhaps beyond later ones.
    pub is_delayed: bool,
    /// Bits were flipped, after the frame was recorded.
    pub is_corrupted: bool,
    /// The end was cut off, after the frame was recorded.
    pub is_truncated: bool,
    /// A test made the frame; no QP sent it.
    pub is_crafted: bool,
}

impl Fate {
    /// Returns whether the frame that arrives, if any, differs from the frame that was sent.
    pub fn is_damaged(&self) -> bool {
        self.is_corrupted || self.is_truncated
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.is_lost, "LOST"),
            (self.is_corrupted, "CORRUPTED"),
            (self.is_truncated, "TRUNCATED"),
            (self.is_duplicated, "DUPLICATED"),
            (self.is_delayed, "DELAYED"),
            (self.is_crafted, "CRAFTED"),
        ];
        let words: Vec<&str> =
            words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// One frame as it was sent.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// Time at which it was given to the link.
    pub at: Instant,
    /// Number of the sending node.
    pub from: usize,
    /// Number of the destination node.
    pub to: usize,
    /// Rail that it was sent on.
    pub rail: usize,
    /// Effects of the link on it.
    pub fate: Fate,
    /// Bytes of the frame before the link changed it.
    pub frame: Vec<u8>,
}

impl Sighting {
    /// The packet in the frame.
    ///
    /// # Panics
    /// If the frame is not a valid RoCE frame, as a QP's frames are.
    pub fn packet(&self) -> Packet<'_> {
        let Ok(Frame::Roce(datagram)) = Frame::parse(&self.frame) else {
            panic!("a QP sends RoCE datagrams only");
        };
        datagram.packet().expect("a QP sends whole packets only")
    }
}

impl fmt::Display for Sighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rail = if self.rail == 0 { "->" } else { "=>" };
        write!(f, "{:>12} {}{rail}{} ", self.at.as_nanos(), self.from, self.to)?;
        match Frame::parse(&self.frame).ok() {
            Some(Frame::Roce(datagram)) => match Packet::parse(datagram.transport) {
                Ok(packet) => write!(f, "{packet}")?,
                Err(error) => write!(f, "{error}")?,
            },
            _ => write!(f, "{} bytes", self.frame.len())?,
        }
        write!(f, " {}", self.fate)
    }
}

/// The newest frames and notes of a run.
#[derive(Clone, Debug)]
pub struct Record {
    keep: usize,
    sightings: VecDeque<Sighting>,
    /// Number of the oldest sightings that were cleared; only a capture still has them.
    forgotten: usize,
    notes: VecDeque<(Instant, String)>,
}

impl Record {
    /// Creates a record that keeps the newest `keep` frames and as many notes.
    pub fn new(keep: usize) -> Record {
        Record { keep, sightings: VecDeque::new(), forgotten: 0, notes: VecDeque::new() }
    }

    pub(crate) fn see(&mut self, sighting: Sighting) {
        if self.sightings.len() == self.keep {
            self.sightings.pop_front();
            self.forgotten = self.forgotten.saturating_sub(1);
        }
        self.sightings.push_back(sighting);
    }

    pub(crate) fn note(&mut self, at: Instant, note: String) {
        if self.notes.len() == self.keep {
            self.notes.pop_front();
        }
        self.notes.push_back((at, note));
    }

    /// The frames since the last clear, oldest first.
    pub fn sightings(&self) -> impl DoubleEndedIterator<Item = &Sighting> {
        self.sightings.range(self.forgotten..)
    }

    /// Clears frames and notes; a capture written later contains the frames nevertheless.
    pub fn clear(&mut self) {
        self.forgotten = self.sightings.len();
        self.notes.clear();
    }

    /// The newest `count` lines of frames and notes, in the order of time.
    pub fn tail(&self, count: usize) -> Vec<String> {
        let newest = |len: usize| len.saturating_sub(count);
        let frames = newest(self.sightings.len()).max(self.forgotten);
        let frames = self.sightings.range(frames..);
        let notes = self.notes.range(newest(self.notes.len())..);
        let mut lines: Vec<(Instant, String)> =
            frames.map(|sighting| (sighting.at, sighting.to_string())).collect();
        lines.extend(notes.map(|(at, note)| (*at, format!("{:>12} {note}", at.as_nanos()))));
        lines.sort_by_key(|(at, _)| *at);
        lines.drain(..lines.len().saturating_sub(count));
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Writes all stored frames as pcapng, with one interface per rail, time in nanoseconds, and
    /// each fate as the packet's comment.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn write_pcapng(&self, out: impl Write) -> io::Result<()> {
        let other = |error: pcap_file::PcapError| io::Error::other(error.to_string());
        let mut writer = PcapNgWriter::new(out).map_err(other)?;
        let nanoseconds =
            pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption::IfTsResol(
                9,
            );
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![nanoseconds],
        };
        let rails = self.sightings.iter().map(|sighting| sighting.rail).max().unwrap_or(0) + 1;
        for _ in 0..rails {
            writer.write_pcapng_block(interface.clone()).map_err(other)?;
        }
        for sighting in &self.sightings {
            let comment = match sighting.fate == Fate::default() {
                true => Vec::new(),
                false => vec![EnhancedPacketOption::Comment(sighting.fate.to_string().into())],
            };
            let block = EnhancedPacketBlock {
                interface_id: sighting.rail as u32,
                timestamp: core::time::Duration::from_nanos(sighting.at.as_nanos()),
                original_len: sighting.frame.len() as u32,
                data: Cow::Borrowed(&sighting.frame),
                options: comment,
            };
            writer.write_pcapng_block(block).map_err(other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn a_capture_holds_the_newest_frames_with_time_and_fate() {
        let mut record = Record::new(2);
        for number in 0..3_u8 {
            record.see(Sighting {
                at: Instant::from_nanos(1_000_000_000 + u64::from(number)),
                from: 0,
                to: 1,
                rail: 0,
                fate: Fate { is_lost: number == 2, ..Fate::default() },
                frame: vec![number; 60],
            });
        }
        let mut bytes = Vec::new();
        record.write_pcapng(&mut bytes).unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut seen = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(comment) => Some(comment.to_string()),
                    _ => None,
                });
                seen.push((packet.timestamp.as_nanos(), packet.data[0], comment));
            }
        }
        let expected = [(1_000_000_001, 1, None), (1_000_000_002, 2, Some("LOST".to_string()))];
        assert_eq!(seen, expected);
    }
}
