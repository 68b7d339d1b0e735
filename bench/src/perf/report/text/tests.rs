//! Snapshots. The expected texts follow perftest's format strings.

use super::*;
use crate::perf::plan::{Operation, Service};
use std::net::Ipv4Addr;

const GBITS: Units = Units { gbits: true, cycles_per_ns: None };
const MIB: Units = Units { gbits: false, cycles_per_ns: None };

fn sample(size: u64, messages: u64, elapsed_ns: u64) -> Bandwidth {
    let peak_rate = messages as f64 / elapsed_ns as f64;
    Bandwidth { messages, size, elapsed_ns, peak_rate }
}

#[test]
fn a_bandwidth_table() {
    // 5000 messages of 64 KiB in 28.318 ms.
    let row = sample(65536, 5000, 28_318_464);
    let mut table = [
        bandwidth_header(&GBITS),
        bandwidth_row(&row, &GBITS),
        bandwidth_header(&MIB),
        bandwidth_row(&row, &MIB),
    ];
    // Tabs are shown as `\t`.
    table.iter_mut().for_each(|line| *line = line.replace('\t', "\\t"));
    assert_eq!(
        table,
        [
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
            " 65536      5000             92.57              92.57  \\t\\t     0.176563",
            " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]",
            " 65536      5000             11035.20            11035.20\\t\\t     0.176563",
        ]
    );
}

#[test]
fn a_small_bandwidth_has_six_digits_in_gigabits() {
    // 1000 messages of 2 bytes in 1 ms: 0.016 Gb/s.
    let row = |units| bandwidth_row(&sample(2, 1000, 1_000_000), units).replace('\t', "\\t");
    assert_eq!(
        [row(&GBITS), row(&MIB)],
        [
            " 2          1000             0.016000            0.016000\\t\\t     1.000000",
            " 2          1000             1.91               1.91   \\t\\t     1.000000",
        ]
    );
}

#[test]
fn a_peak_that_was_not_computed_is_zero() {
    let row = Bandwidth { peak_rate: 0.0, ..sample(65536, 30_000, 1_000_000_000) };
    assert!(bandwidth_row(&row, &GBITS).starts_with(" 65536      30000            0.00   "));
}

#[test]
fn a_latency_table() {
    let row = Quantiles {
        count: 1000,
        min: 912.0,
        max: 10_140.0,
        p50: 1_004.0,
        mean: 1_023.0,
        stdev: 231.4,
        p99: 1_730.0,
        p99_9: 10_100.0,
        ..Quantiles::default()
    };
    assert_eq!(
        latency_header(&MIB),
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
         t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
    );
    assert_eq!(
        latency_row(2, &row, &MIB).replace('\t', "\\t"),
        " 2       1000          0.91           10.14        1.00     \\t       1.02        \
         \\t0.23   \\t\\t1.73    \\t\\t10.10  "
    );
    assert_eq!(
        latency_duration_row(2, &row, 0.5, &MIB),
        " 2             1000              1.02           2000.00"
    );
}

#[test]
fn a_title() {
    let plan = Plan::new(Operation::Write, Measure::Bandwidth);
    let title = Title { plan: &plan, device: "net_ring", mtu: 4096, gid_index: 3 };
    let lines: Vec<String> =
        title.to_string().lines().map(|line| line.replace('\t', "\\t")).collect();
    let dashes = "-".repeat(87);
    let dashes = dashes.as_str();
    assert_eq!(
        lines,
        [
            dashes,
            "                    RDMA_Write BW Test",
            " Dual-port       : OFF\\t\\tDevice         : net_ring",
            " Number of qps   : 1\\t\\tTransport type : IB",
            " Connection type : RC\\t\\tUsing SRQ      : OFF",
            " TX depth        : 128",
            " CQ Moderation   : 1",
            " Mtu             : 4096[B]",
            " Link type       : Ethernet",
            " GID index       : 3",
            " Max inline data : 0[B]",
            " rdma_cm QPs\\t : OFF",
            " Data ex. method : Ethernet",
            dashes,
        ]
    );
}

#[test]
fn a_title_says_both_directions_and_outstanding_reads() {
    let mut plan = Plan::new(Operation::Read, Measure::Bandwidth);
    plan.bidirectional = true;
    let title = Title { plan: &plan, device: "d", mtu: 1024, gid_index: 0 }.to_string();
    assert!(title.contains("                    RDMA_Read Bidirectional BW Test\n"), "{title}");
    assert!(title.contains(" Outstand reads  : 16\n"), "{title}");
}

#[test]
fn an_end_of_a_connection() {
    let end = Connection {
        side: "local",
        qpn: 0x86,
        psn: 0x5d2a1c,
        memory: Some((0x17d00, 0x7f00_0000_1000)),
        srqn: None,
        eecn: None,
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, 1)),
    };
    assert_eq!(
        end.to_string(),
        " local address: LID 0000 QPN 0x0086 PSN 0x5d2a1c RKey 0x017d00 VAddr 0x007f0000001000\n \
         GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01"
    );
    let xrc = Connection { memory: None, srqn: Some(0x1000), ..end };
    assert!(xrc.to_string().contains(" PSN 0x5d2a1c SRQn 0x001000\n GID: "), "{xrc}");
    let rd = Connection { srqn: None, eecn: Some(0x87), ..xrc };
    assert!(rd.to_string().contains(" PSN 0x5d2a1c EECn 0x000087\n GID: "), "{rd}");
}

#[test]
fn a_title_counts_the_ee_contexts_of_rd() {
    let plan = Plan::new(Operation::Read, Measure::Bandwidth);
    let plan = Plan { service: Service::Rd, qps: 8, eecs: Some(2), ..plan };
    let title = Title { plan: &plan, device: "d", mtu: 1024, gid_index: 0 }.to_string();
    assert!(title.contains(" Number of qps   : 8\t"), "{title}");
    assert!(title.contains("\n EE contexts     : 2\n Connection type : RD\t"), "{title}");
    assert!(title.contains(" Outstand reads  : 1\n"), "{title}");
}

#[test]
fn a_title_counts_the_queue_pairs_of_both_directions_of_xrc() {
    let title = |bidirectional| {
        let plan = Plan::new(Operation::Send, Measure::Bandwidth);
        let plan = Plan { service: Service::Xrc, qps: 2, bidirectional, ..plan };
        Title { plan: &plan, device: "d", mtu: 1024, gid_index: 0 }.to_string()
    };
    assert!(title(false).contains(" Number of qps   : 2\t"));
    assert!(title(true).contains(" Number of qps   : 4\t"));
    assert!(title(true).contains(" Connection type : XRC\t\tUsing SRQ      : ON\n"));
}

#[test]
fn cycles_are_named_in_the_header_and_counted() {
    let cycles = Units { gbits: false, cycles_per_ns: Some(2.5) };
    let row = Quantiles { count: 1000, p50: 1_004.0, ..Quantiles::default() };
    assert!(latency_header(&cycles).contains(" t_typical[cycles]"));
    assert!(latency_row(2, &row, &cycles).contains(" 2510.00"));
    assert!(quantiles(&row, &cycles).starts_with(" cycles: min 0.000  p50 2510.000"));
}

#[test]
fn every_latency_has_a_line() {
    assert_eq!(latencies(&[3000, 1000], 2.0, &MIB), "#, usec\n1, 1.5\n2, 0.5");
}

#[test]
fn the_share_of_the_cpus_is_the_last_column() {
    let row = bandwidth_row(&sample(65536, 5000, 28_318_464), &GBITS) + &cpu_column(12.345);
    assert!(row.ends_with("0.176563\t    12.35") || row.ends_with("0.176563\t    12.34"), "{row}");
    assert!((bandwidth_header(&GBITS) + cpu_header()).ends_with("MsgRate[Mpps]    CPU_Util[%]"));
}
