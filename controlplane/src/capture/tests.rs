//! Captures without lcores: what the file has.

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use uroce_engine::TapFrame;

use super::*;

fn interface() -> Interface {
    Interface {
        name: "uroce0/1".into(),
        description: "port 0: net_null0 (net_null)".into(),
        mac: [2, 0, 0, 0, 0, 1],
        speed: Some(10_000_000_000),
        filter: Some("qp 0x000011".into()),
        snaplen: 128,
    }
}

#[test]
fn a_file_has_names_times_directions_and_counts() {
    let mut out = Pcapng::new(&interface());
    let frame = |is_sent, missed| TapFrame {
        time: Duration::ZERO,
        is_sent,
        len: 1500,
        missed,
        dropped: None,
        bytes: vec![7; 61],
    };
    let at = |nanos| Duration::from_nanos(1_700_000_000_123_456_000 + nanos);
    out.frame(&frame(true, 0), at(1));
    out.frame(&frame(false, 5), at(2));
    out.statistics(2, 6, at(3));
    let mut bytes = Vec::new();
    assert_eq!(out.write(&mut bytes).unwrap(), bytes.len() as u64);
    assert_eq!(out.pending(), 0);

    let mut reader = PcapNgReader::new(bytes.as_slice()).unwrap();
    let mut frames = 0;
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(of) => {
                assert_eq!(of.snaplen, 128);
                let has = |option| assert!(of.options.contains(&option), "{option:?}");
                has(InterfaceDescriptionOption::IfName("uroce0/1".into()));
                has(InterfaceDescriptionOption::IfTsResol(9));
                has(InterfaceDescriptionOption::IfSpeed(10_000_000_000));
                has(InterfaceDescriptionOption::IfFilter(b"\0qp 0x000011".as_slice().into()));
            }
            Block::EnhancedPacket(packet) => {
                let (direction, dropped) = [(2, None), (1, Some(5))][frames];
                frames += 1;
                assert_eq!(packet.timestamp, at(frames as u64));
                assert_eq!((packet.original_len, packet.data.len()), (1500, 61));
                let flags = EnhancedPacketOption::Flags(direction);
                let dropped = dropped.map(EnhancedPacketOption::DropCount);
                let expected: Vec<_> = std::iter::once(flags).chain(dropped).collect();
                assert_eq!(packet.options, expected);
            }
            Block::InterfaceStatistics(of) => {
                let time = halves_of(at(3));
                assert_eq!(of.timestamp, time);
                let has = |option| assert!(of.options.contains(&option), "{option:?}");
                has(InterfaceStatisticsOption::IsbStartTime(halves_of(at(1))));
                has(InterfaceStatisticsOption::IsbIfRecv(8));
                has(InterfaceStatisticsOption::IsbIfDrop(6));
                has(InterfaceStatisticsOption::IsbUsrDeliv(2));
            }
            block => panic!("{block:?}"),
        }
    }
    assert_eq!(frames, 2);
}

/// Returns a time with its upper half in the first four bytes.
fn halves_of(time: Duration) -> u64 {
    let bytes = (time.as_nanos() as u64).to_be_bytes();
    let half = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    let [upper, lower] = [half(0), half(4)].map(u32::to_le_bytes);
    let file = [upper, lower].concat();
    u64::from_le_bytes(std::array::from_fn(|at| file[at]))
}

#[test]
fn a_file_that_takes_no_bytes_ends_its_capture_with_the_reason() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let spec = CaptureSpec { id: 0, file: "full".into(), qp: None, snaplen: 128, count: None };
    let (sender, ended) = channel();
    let tell = move || sender.send(()).unwrap();
    let capture = Capture::start(1, spec, interface(), Vec::new(), full, tell).unwrap();
    ended.recv_timeout(Duration::from_secs(20)).expect("told");
    let end = capture.stop().wait(Duration::from_secs(20)).unwrap().end.unwrap();
    assert!(end.contains("No space left"), "{end}");
}
