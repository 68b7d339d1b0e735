//! The file of a capture: pcapng with one interface, times in nanoseconds, directions, and counts
//! of frames that were missed.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use uroce_engine::TapFrame;

/// Direction in an Enhanced Packet Block's flags: received.
const INBOUND: u32 = 1;
/// Direction in an Enhanced Packet Block's flags: sent.
const OUTBOUND: u32 = 2;

/// Description of the port in the file.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// Name: the RoCE device and the port's number there.
    pub(crate) name: String,
    /// The DPDK device and its driver.
    pub(crate) description: String,
    pub(crate) mac: [u8; 6],
    /// Bits a second, if they are known.
    pub(crate) speed: Option<u64>,
    /// Which frames are taken, if not all.
    pub(crate) filter: Option<String>,
    pub(crate) snaplen: u16,
}

/// Blocks that are not in the file yet.
pub(super) struct Pcapng {
    writer: PcapNgWriter<Vec<u8>>,
    frames: u64,
    /// Time of the first frame.
    begin: Option<Duration>,
}

impl Pcapng {
    /// Makes the head of a file.
    pub(super) fn new(interface: &Interface) -> Pcapng {
        let program = format!("uroce {}", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![
                SectionHeaderOption::OS("Linux".into()),
                SectionHeaderOption::UserApplication(program.into()),
            ],
            ..SectionHeaderBlock::default()
        };
        let mut options = vec![
            InterfaceDescriptionOption::IfName(interface.name.clone().into()),
            InterfaceDescriptionOption::IfDescription(interface.description.clone().into()),
            InterfaceDescriptionOption::IfMacAddr(interface.mac.to_vec().into()),
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        options.extend(interface.speed.map(InterfaceDescriptionOption::IfSpeed));
        // The first byte says that a text follows.
        let filter = interface.filter.as_ref().map(|text| [b"\0", text.as_bytes()].concat());
        options.extend(filter.map(|text| InterfaceDescriptionOption::IfFilter(text.into())));
        let description = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: interface.snaplen.into(),
            options,
        };
        let mut writer = never(PcapNgWriter::with_section_header(Vec::new(), section));
        never(writer.write_pcapng_block(description));
        Pcapng { writer, frames: 0, begin: None }
    }

    /// Appends a frame of this time of day.
    pub(super) fn frame(&mut self, frame: &TapFrame, time: Duration) {
        let direction = if frame.is_sent { OUTBOUND } else { INBOUND };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if frame.missed > 0 {
            options.push(EnhancedPacketOption::DropCount(frame.missed.into()));
        }
        never(self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: time,
            original_len: frame.len,
            data: Cow::Borrowed(&frame.bytes),
            options,
        }));
        self.frames += 1;
        self.begin.get_or_insert(time);
    }

    /// Appends the counts of the whole capture, which ends at `end`.
    pub(super) fn statistics(&mut self, frames: u64, missed: u64, end: Duration) {
        let begin = self.begin.unwrap_or(end);
        never(self.writer.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: halves(end),
            options: vec![
                InterfaceStatisticsOption::IsbStartTime(halves(begin)),
                InterfaceStatisticsOption::IsbEndTime(halves(end)),
                InterfaceStatisticsOption::IsbIfRecv(frames.saturating_add(missed)),
                InterfaceStatisticsOption::IsbIfDrop(missed),
                InterfaceStatisticsOption::IsbUsrDeliv(frames),
            ],
        }));
    }

    /// Returns the number of frames so far.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the number of bytes that are not written yet.
    pub(super) fn pending(&self) -> u64 {
        self.writer.get_ref().len() as u64
    }

    /// Writes all blocks. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// A system call has failed. The last record of the file may then be incomplete.
    pub(super) fn write(&mut self, mut file: impl Write) -> io::Result<u64> {
        let bytes = self.writer.get_mut();
        file.write_all(bytes)?;
        let len = bytes.len() as u64;
        bytes.clear();
        Ok(len)
    }
}

/// Returns a time as pcapng has it, the upper half first. The crate writes the time of an Enhanced
/// Packet Block so, but not those of Interface Statistics Blocks.
fn halves(time: Duration) -> u64 {
    // Nanoseconds since 1970 fit until the year 2554.
    (time.as_nanos() as u64).rotate_left(32)
}

/// Returns the value: a vector takes all bytes, and the blocks are those of the one interface.
fn never<T>(result: Result<T, PcapError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => unreachable!("a block in memory: {error}"),
    }
}
