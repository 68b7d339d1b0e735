//! perftest's options: each row of the table runs a test, and names what shows the option's effect.

use super::common::{Memif, Output, Run, run};
use serde_json::Value;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a run has left.
struct Seen {
    output: Output,
    json: Value,
}

impl Deref for Seen {
    type Target = Output;

    fn deref(&self) -> &Output {
        &self.output
    }
}

/// Function that describes what a run lacks; `None` if it is as it should be.
type Check = fn(&Seen) -> Option<String>;

/// Options of a test with both ends in one process, and the behaviour that they have.
const TABLE: &[(&str, Check)] = &[
    // Header fields reach the packets: tests/perf/wire.rs reads them.
    ("write_bw -n 50 -S 3 -T 0x20 -L 9 --verify", |output| has(output, " verified: ")),
    ("send_bw -c UD -n 50 -s 64 --tclass 96 --flow_label 1,2 -q 2", |output| {
        row(output, "64", 100)
    }),
    // The measured part is shorter than the run.
    ("write_bw -D 3 -f 1 -s 4096", |output| within(seconds(output), 0.5, 1.5)),
    ("send_bw -D 3 -f 1 -s 4096", |output| within(seconds(output), 0.5, 1.5)),
    ("send_lat -D 3 -f 1", |output| within(seconds_of_round_trips(output), 0.3, 1.5)),
    ("write_bw -D 2 --cpu_util", |output| {
        has(output, "MsgRate[Mpps]    CPU_Util[%]")
            .or_else(|| within(column(output, 5), 0.1, 100.0))
    }),
    ("read_lat -D 2 --cpu_util", |output| {
        has(output, "tps average    CPU_Util[%]").or_else(|| within(column(output, 4), 0.1, 100.0))
    }),
    // The warm-up is not counted in the row, but its packets are sent.
    ("write_bw -n 100 -s 64 -t 50 --perform_warm_up -W hw_counters/rdma_tx_packets", |output| {
        row(output, "64", 100).or_else(|| grown(output, "hw_counters/rdma_tx_packets", 150))
    }),
    (
        "read_bw -n 100 -s 64 -t 50 -q 2 --perform_warm_up -W hw_counters/rdma_tx_packets",
        |output| {
            row(output, "64", 200).or_else(|| grown(output, "hw_counters/rdma_tx_packets", 300))
        },
    ),
    // Each end also answers the other's.
    ("atomic_bw -n 100 -t 50 --perform_warm_up -b -W hw_counters/rdma_tx_packets", |output| {
        row(output, "8", 100).or_else(|| grown(output, "hw_counters/rdma_tx_packets", 300))
    }),
    ("write_bw -n 100 -W hw_counters/rdma_tx_packets,counters/port_xmit_packets -s 64", |output| {
        // The counters are the client's, and every message is a packet.
        grown(output, "hw_counters/rdma_tx_packets", 100)
            .or_else(|| grown(output, "counters/port_xmit_packets", 100))
    }),
    ("write_bw -n 100 -b --report-both -s 4096", |output| {
        has(output, " Local results: \n")
            .or_else(|| has(output, " Remote results: \n"))
            .or_else(|| (rows(output).len() != 3).then(|| "three rows".to_owned()))
    }),
    // Events: the thread has slept until some came, and in a latency test until most did.
    ("send_bw -n 200 -e -s 4096", |output| slept(output, 1).or_else(|| row(output, "4096", 200))),
    ("send_bw -n 200 -e -s 64 -c UD", |output| slept(output, 1).or_else(|| row(output, "64", 200))),
    ("read_bw -n 200 -e -b", |output| slept(output, 1).or_else(|| row(output, "65536", 200))),
    ("atomic_bw -n 200 -e", |output| slept(output, 1).or_else(|| row(output, "8", 200))),
    ("send_lat -n 100 -e", |output| slept(output, 50).or_else(|| row(output, "2", 100))),
    ("read_lat -n 100 -e", |output| slept(output, 50).or_else(|| row(output, "2", 100))),
    ("atomic_lat -n 100 -e", |output| slept(output, 50).or_else(|| row(output, "8", 100))),
    ("send_lat -n 100", |output| slept(output, 1).is_none().then(|| "no events".to_owned())),
    // Shared receive queues, with every byte checked.
    ("send_bw -n 100 --use-srq -q 4 -s 5000 --verify", |output| {
        has(output, " verified: 2000000 bytes").or_else(|| has(output, "Using SRQ      : ON"))
    }),
    ("write_bw -c XRC -n 200 -s 64 --perform_warm_up -l 4", |output| row(output, "64", 200)),
    ("read_bw -c XRC -n 200 -e -s 64", |output| {
        slept(output, 1).or_else(|| row(output, "64", 200))
    }),
    // RD: warm-up, lists of requests of both kinds, events, a shared queue, rates of EE contexts.
    ("write_bw -c RD -n 200 -s 64 --perform_warm_up -l 4", |output| row(output, "64", 200)),
    ("send_bw -c RD -n 128 --recv_post_list 16 -r 32 -s 64 -b", |output| {
        receive_posts(output, 2 + 8)
    }),
    ("send_bw -c RD -n 200 -e -s 4096", |output| {
        slept(output, 1).or_else(|| row(output, "4096", 200))
    }),
    ("send_bw -c RD -n 100 --use-srq -q 4 --eecs 2 -s 5000 --verify", |output| {
        has(output, " verified: 2000000 bytes").or_else(|| has(output, "Using SRQ      : ON"))
    }),
    ("write_bw -c RD -n 20 -q 4 --eecs 2 --rate_limit 1000000 --rate_limit_type PP", |output| {
        row(output, "65536", 80)
    }),
    ("send_bw -n 500 --use-srq -q 8 -r 8 -s 64", |output| row(output, "64", 4000)),
    ("send_lat -n 50 --use-srq -s 64 --verify", |output| has(output, " verified: 3200 bytes")),
    // Lists of receive requests: the first fill the queue, the others what has come.
    ("send_bw -n 128 --recv_post_list 16 -r 32 -s 64 -b", |output| receive_posts(output, 2 + 8)),
    ("send_bw -n 100 --recv_post_list 512 -s 64 -b", |output| receive_posts(output, 1)),
    ("send_bw -n 100 --recv_post_list 1 -r 20 -s 64 -b --use-srq -q 2", |output| {
        receive_posts(output, 20 + 200)
    }),
    // Immediate data, which a verification compares with those that were sent.
    ("write_bw -n 100 --write_with_imm -q 2 -s 5000 --verify", |output| {
        has(output, " verified: 1000000 bytes")
    }),
    ("write_bw -n 300 --write_with_imm -r 16 --recv_post_list 8 -b -s 64", |output| {
        receive_posts(output, 2 + 37).or_else(|| row(output, "64", 300))
    }),
    ("write_bw -c UC -n 100 --write_with_imm -s 5000 --verify", |output| {
        has(output, " verified: 500000 bytes")
    }),
    ("write_lat -n 100 --write_with_imm -s 64 --verify", |output| {
        has(output, " verified: 6400 bytes")
    }),
    ("send_bw -n 100 --send_with_imm --verify -s 64", |output| has(output, " verified: 6400")),
    ("send_bw -c UD -n 100 --send_with_imm --verify -s 64", |output| {
        has(output, " verified: 6400")
    }),
    ("send_lat -n 100 --send_with_imm --verify -s 64", |output| has(output, " verified: 6400")),
    // Multicast.
    ("send_bw -g -n 100 -s 64 --verify", |output| {
        has(output, " verified: 6400 bytes")
            .or_else(|| has(output, " remote address: LID 0000 QPN 0xffffff"))
    }),
    ("send_bw -g -M 224.0.0.30 -n 100 -s 64", |output| {
        has(output, "255:255:224:00:00:30").or_else(|| row(output, "64", 100))
    }),
    ("send_lat -g -n 100 -s 64 --verify", |output| has(output, " verified: 6400 bytes")),
    // Memory.
    ("write_bw -n 100 -q 3 --mr_per_qp --verify -s 5000", |output| {
        different_keys(output, 3).or_else(|| has(output, " verified: 1500000"))
    }),
    ("write_bw -n 100 -q 3 --verify -s 5000", |output| different_keys(output, 1)),
    // Single latencies.
    ("send_lat -n 20 -U", |output| listed(output, 20, "usec", false)),
    ("read_lat -n 20 -H", |output| {
        listed(output, 20, "usec", true).or_else(|| has(output, " 2 bytes, usec: min "))
    }),
    ("write_lat -n 20 -C -U", |output| {
        has(output, " t_typical[cycles] ").or_else(|| listed(output, 20, "cycles", false))
    }),
    ("send_lat -n 200 --latency_gap 500", |output| row(output, "2", 200)),
    // Rates of the program: the rest of a burst and its period are the error.
    (
        "write_bw -n 400 -s 1000 -t 8 --rate_limit 4000 --rate_units p --rate_limit_type SW",
        |output| within(column(output, 4), 0.0035, 0.0042),
    ),
    (
        "write_bw -n 400 -s 1000 -l 4 -q 2 --rate_limit 16 --rate_units M --rate_limit_type SW \
         --burst_size 10",
        |output| within(column(output, 3), 14.0, 16.8),
    ),
    // A burst may end in the middle of a list, and far from the next moderated completion.
    (
        "write_bw -n 200 -s 1000 -t 8 -l 8 --rate_limit 640 --rate_units M --rate_limit_type SW \
         --burst_size 10",
        |output| row(output, "1000", 200),
    ),
    // Both ends in one process compare their parameters as releases from 6.30 on do.
    ("write_bw -n 100 --perftest-exchange -T 32 --mr_per_qp -q 2", |output| {
        row(output, "65536", 200)
    }),
    ("send_bw -n 100 --perftest-exchange --use-srq -q 2 -s 64", |output| row(output, "64", 200)),
    ("send_bw -n 100 --perftest-exchange -e -s 64", |output| {
        slept(output, 1).or_else(|| row(output, "64", 100))
    }),
    ("send_bw -n 128 --perftest-exchange --recv_post_list 16 -r 32 -s 64 -b", |output| {
        receive_posts(output, 2 + 8)
    }),
    ("send_bw -n 100 --perftest-exchange -g -s 64", |output| row(output, "64", 100)),
    ("send_lat -n 100 --perftest-exchange -U", |output| listed(output, 100, "usec", false)),
    ("write_bw -D 3 -f 1 --perftest-exchange --cpu_util", |output| {
        at_least(column(output, 5), 0.1).or_else(|| within(seconds(output), 0.5, 1.5))
    }),
    ("send_lat -D 3 -f 1 --perftest-exchange", |output| {
        within(seconds_of_round_trips(output), 0.3, 1.5)
    }),
    ("write_bw -n 100 --perftest-exchange -b --report-both", |output| {
        has(output, " Local results: \n").or_else(|| has(output, " Remote results: \n"))
    }),
    (
        "write_bw -n 100 -s 64 -t 50 --perftest-exchange --perform_warm_up -W \
         hw_counters/rdma_tx_packets",
        |output| {
            row(output, "64", 100).or_else(|| grown(output, "hw_counters/rdma_tx_packets", 150))
        },
    ),
];

/// Returns the time in which a bandwidth test's messages came at its rate.
fn seconds(output: &Output) -> f64 {
    column(output, 1) / (column(output, 4) * 1e6)
}

/// Returns the time that a latency test's round trips took together.
fn seconds_of_round_trips(output: &Output) -> f64 {
    column(output, 1) * 2.0 * column(output, 2) / 1e6
}

/// Checks how often the thread has slept until an event came.
fn slept(seen: &Seen, least: u64) -> Option<String> {
    let events = seen.json["uroce"]["events"].as_u64();
    (events < Some(least)).then(|| format!("{least} events or more instead of {events:?}"))
}

/// Checks how often receive requests were posted, one or a list at a time.
fn receive_posts(seen: &Seen, count: u64) -> Option<String> {
    let posts = seen.json["uroce"]["receive_posts"].as_u64();
    (posts != Some(count)).then(|| format!("{count} posts instead of {posts:?}"))
}

/// Returns the rows of the tables: their columns as numbers.
fn rows(output: &Output) -> Vec<Vec<f64>> {
    let columns = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let long = |columns: &Vec<f64>| columns.len() >= 4;
    output.stdout.lines().filter_map(columns).filter(long).collect()
}

fn column(output: &Output, at: usize) -> f64 {
    let first = rows(output).into_iter().next().unwrap_or_default();
    first.get(at).copied().unwrap_or(f64::NAN)
}

fn row(output: &Output, bytes: &str, messages: u64) -> Option<String> {
    let start = [bytes.parse().unwrap_or(0.0), messages as f64];
    let found = rows(output).iter().any(|row| row.starts_with(&start));
    (!found).then(|| format!("a row of {bytes} bytes and {messages} messages"))
}

fn has(output: &Output, text: &str) -> Option<String> {
    (!output.stdout.contains(text)).then(|| format!("{text:?}"))
}

/// Checks that a counter has grown by so much at least.
fn grown(output: &Output, name: &str, least: u64) -> Option<String> {
    let value = |line: &str| -> Option<u64> {
        line.strip_prefix('\t')?.strip_prefix(name)?.strip_prefix('=')?.parse().ok()
    };
    let found = output.stdout.lines().find_map(value);
    (found < Some(least)).then(|| format!("{name}={least} or more"))
}

fn within(value: f64, low: f64, high: f64) -> Option<String> {
    (!(low..=high).contains(&value)).then(|| format!("{low} to {high} instead of {value}"))
}

fn at_least(value: f64, low: f64) -> Option<String> {
    within(value, low, f64::INFINITY)
}

/// Checks that the local queue pairs have so many R_Keys.
fn different_keys(output: &Output, count: usize) -> Option<String> {
    let keys = output.stdout.lines().filter(|line| line.starts_with(" local address"));
    let mut keys: Vec<&str> =
        keys.filter_map(|line| line.split_once(" RKey ")?.1.split(' ').next()).collect();
    keys.sort_unstable();
    keys.dedup();
    (keys.len() != count).then(|| format!("{count} keys instead of {keys:?}"))
}

/// Checks the list of all latencies: its length, and whether it is sorted. The mean of all must be
/// that of the row.
fn listed(output: &Output, count: usize, unit: &str, sorted: bool) -> Option<String> {
    let lines = output.stdout.lines().skip_while(|line| *line != format!("#, {unit}")).skip(1);
    let value = |line: &str| line.split_once(", ")?.1.parse::<f64>().ok();
    let values: Vec<f64> = lines.map_while(value).collect();
    if values.len() != count {
        return Some(format!("{count} latencies instead of {}", values.len()));
    }
    if sorted && !values.is_sorted() {
        return Some("sorted latencies".to_owned());
    }
    let (mean, average) = (values.iter().sum::<f64>() / count as f64, column(output, 5));
    within(average, mean * 0.99 - 0.01, mean * 1.01 + 0.01)
}

/// Runs the rows of the table that `wanted` chooses by their options, and checks all of them.
fn check_rows(wanted: impl Fn(&str) -> bool) {
    let mut failed = Vec::new();
    for (line, check) in TABLE.iter().filter(|(line, _)| wanted(line)) {
        let file = File::new("row.json");
        let more = ["--in-process", "--out_json_file", file.path()];
        let output = run(&line.split_whitespace().chain(more).collect::<Vec<_>>());
        let text = std::fs::read_to_string(&file.0).unwrap_or_default();
        let seen = Seen { output, json: serde_json::from_str(&text).unwrap_or_default() };
        let lacks = match seen.code {
            Some(0) => check(&seen),
            code => Some(format!("status 0 instead of {code:?}")),
        };
        if let Some(lacks) = lacks {
            failed.push(format!("{line}: lacks {lacks}\n{}{}", seen.stdout, seen.stderr));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_option_of_a_run_by_time_has_its_effect() {
    check_rows(|line| line.contains(" -D "));
}

#[test]
fn every_other_option_has_its_effect() {
    check_rows(|line| !line.contains(" -D ") && !line.contains("--perftest-exchange"));
}

#[test]
fn every_option_has_its_effect_with_perftests_exchange() {
    check_rows(|line| !line.contains(" -D ") && line.contains("--perftest-exchange"));
}

#[test]
fn both_ends_tell_the_use_of_the_cpus() {
    for (line, columns) in [
        ("write_bw -D 2 -s 4096", 6),
        ("write_lat -D 2", 5),
        ("read_lat -D 2", 5),
        ("read_bw -D 2 -s 4096 --perftest-exchange", 6),
        ("send_lat -D 2 --perftest-exchange", 5),
    ] {
        let place = Memif::new("cpu");
        let words: Vec<&str> = line.split(' ').chain(["--cpu_util"]).collect();
        let ends = [place.start("server", &words), place.start("client", &words)];
        for output in ends.map(Run::finish) {
            let row = rows(&output.succeeded()).pop().unwrap_or_default();
            let percent = row.last().copied().unwrap_or_default();
            assert!(row.len() == columns && (0.1..=100.0).contains(&percent), "{line}: {row:?}");
        }
    }
}

#[test]
fn what_can_be_neither_written_nor_counted_is_told_before_a_client_comes() {
    let place = Memif::new("early");
    for (option, code, text) in [
        ("--report-counters=counters/nope", 2, "there is no counter counters/nope"),
        ("--out_csv_file=/no/such/folder/x.csv", 1, "writing /no/such/folder/x.csv"),
        ("--out_json_file=/no/such/folder/x.json", 1, "writing /no/such/folder/x.json"),
    ] {
        let output = place.start("server", &["write_bw", option]).finish();
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.stderr.contains(text), "{output:?}");
    }
}

#[test]
fn a_result_below_a_limit_fails_and_one_above_it_does_not() {
    for (limit, code, text) in [
        ("-w 1", 0, ""),
        ("-y 0.000001", 0, ""),
        ("-w 0 -y 0", 0, ""),
        ("-w 100000000", 1, "the average bandwidth of "),
        ("-y 100000", 1, "the average message rate of "),
        ("-w 1 -y 100000", 1, " Mpps is below the limit of 100000 Mpps"),
        ("-w 100000000 --report_gbits -b", 1, " Gb/sec is below the limit of 100000000 Gb/sec"),
        // One of the sizes reaches it.
        ("-w 50 -a", 0, ""),
        ("-w 100000000 --perftest-exchange", 1, "the average bandwidth of "),
    ] {
        let line = format!("write_bw -n 50 --in-process {limit}");
        let output = run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.code, Some(code), "{limit}: {output:?}");
        assert!(output.stderr.contains(text), "{limit}: {output:?}");
        // The table is printed all the same.
        assert!(!rows(&output).is_empty(), "{limit}: {output:?}");
    }
}

#[test]
fn a_margin_is_not_measured() {
    let begin = Instant::now();
    let output = run(&["write_bw", "--in-process", "-D", "3", "-f", "1", "-s", "64"]).succeeded();
    assert!(begin.elapsed() >= Duration::from_secs(3));
    // Messages per second of a measured second are the messages; of the whole time, a third.
    let (messages, rate) = (column(&output, 1), column(&output, 4) * 1e6);
    assert!((0.5..1.5).contains(&(messages / rate)), "{output:?}");
}

#[test]
fn a_gap_is_waited_before_each_message() {
    let begin = Instant::now();
    run(&["write_lat", "--in-process", "-n", "300", "--latency_gap", "1000"]).succeeded();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

/// A file in the folder for temporary ones, removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("uroce-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("plain text")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).expect("it was written")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn csv_has_a_line_for_each_size() {
    let file = File::new("rows.csv");
    run(&["send_bw", "--in-process", "-a", "-n", "5", "--out_csv_file", file.path()]).succeeded();
    let text = file.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("test,Connection_type,Number_of_qps,Mtu,unit,MsgSize,"), "{text}");
    assert_eq!(lines.len(), 24, "{text}");
    assert!(lines[1].starts_with("Send_BW_Test,RC,1,4096,MiB/sec,2,5,"), "{text}");
    assert!(lines[23].starts_with("Send_BW_Test,RC,1,4096,MiB/sec,8388608,5,"), "{text}");
    let latency = File::new("latency.csv");
    let args = ["read_lat", "--in-process", "-n", "50", "-C", "--out_csv_file", latency.path()];
    run(&args).succeeded();
    assert!(latency.text().contains("\nRDMA_Read_Latency_Test,RC,1,4096,cycles,2,50,"));
    let missing = run(&["write_bw", "--in-process", "--out_csv_file", "/no/such/folder/x.csv"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("writing /no/such/folder/x.csv"), "{missing:?}");
}

#[test]
fn json_has_the_values_of_the_options() {
    let file = File::new("values.json");
    let words =
        "write_bw --in-process -D 1 --cpu_util -b -W hw_counters/rdma_tx_packets --out_json_file";
    let mut args: Vec<&str> = words.split(' ').collect();
    args.push(file.path());
    run(&args).succeeded();
    let value: serde_json::Value = serde_json::from_str(&file.text()).expect("JSON");
    let of = |key: &str| value["results"][key].as_f64().unwrap_or(f64::NAN);
    assert!((0.1..=100.0).contains(&of("CPU_util")), "{value}");
    let sum = of("BW_average_local") + of("BW_average_remote");
    assert!((sum / of("BW_average") - 1.0).abs() < 0.01, "{value}");
    assert!(
        value["results"]["counters"]["hw_counters/rdma_tx_packets"].as_u64() > Some(0),
        "{value}"
    );
}

#[test]
fn an_unknown_counter_is_named_with_those_that_there_are() {
    let output = run(&["write_bw", "--in-process", "-W", "counters/nope"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    for text in ["no counter counters/nope", "counters/port_xmit_data", "hw_counters/NAME"] {
        assert!(output.stderr.contains(text), "{text}: {output:?}");
    }
}

#[test]
fn an_endless_run_prints_rows_until_it_is_ended() {
    for words in ["write_bw -s 4096", "send_bw -s 4096 --perftest-exchange", "read_bw -b"] {
        let file = File::new("endless.csv");
        let mut args: Vec<&str> = words.split(' ').collect();
        args.extend(["--in-process", "--run_infinitely", "-D", "1", "--out_csv_file", file.path()]);
        let mut run = Run::start(&args);
        run.until("MsgRate[Mpps]\n");
        let deadline = Instant::now() + Duration::from_secs(30);
        let lines = || std::fs::read_to_string(file.path()).map_or(0, |text| text.lines().count());
        while lines() < 3 {
            assert!(Instant::now() < deadline, "{words}: rows come");
            std::thread::sleep(Duration::from_millis(20));
        }
        run.kill();
        let output = run.finish();
        assert!(rows(&output).len() >= 2, "{words}: {output:?}");
        assert!(rows(&output).iter().all(|row| row[1] > 0.0 && row[4] > 0.0), "{output:?}");
    }
}

#[test]
fn a_server_of_an_endless_run_ends_well_with_its_client() {
    for exchange in [&[][..], &["--perftest-exchange"]] {
        let memif = Memif::new("endless");
        // The time between two rows is an end's own.
        let args = |seconds| {
            [&["send_bw", "--run_infinitely", "-D", seconds, "-s", "4096"], exchange].concat()
        };
        let mut runs = [memif.start("server", &args("2")), memif.start("client", &args("1"))];
        runs.iter_mut().for_each(|run| run.until("\n 4096 "));
        let [server, mut client] = runs;
        client.kill();
        client.finish();
        let output = server.finish().succeeded();
        assert!(output.stdout.ends_with(&format!("{}\n", "-".repeat(87))), "{output:?}");
    }
}
