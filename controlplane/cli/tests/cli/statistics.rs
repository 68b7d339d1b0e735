//! Counters, drops and lcores' turns: shown, cleared, and true; of another process and of an own
//! device.

use std::io::Write;
use std::process::Stdio;

use uroce_command::Answer;
use uroce_command::answer::{Counter, LcoreRuntime};

use crate::lab::{Lab, ask, ask_with, says, text, uroce};

/// Returns the answer to a command as a value.
fn answer(line: &str) -> Answer {
    let output = ask_with(&["-j"], line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("an answer")
}

fn counters(line: &str) -> Vec<Counter> {
    match answer(line) {
        Answer::Counters(counters) => counters,
        other => panic!("{other:?}"),
    }
}

fn value(counters: &[Counter], device: &str, name: &str) -> u64 {
    let is_it = |counter: &&Counter| counter.device == device && counter.name == name;
    counters.iter().find(is_it).expect("a counter").value
}

#[test]
fn counters_and_drops_are_cleared_each_for_itself() {
    let mut lab = Lab::new();
    lab.write(3);
    let sent = value(&counters("show counters"), "left", "rdma_tx_packets");
    assert!(sent >= 48, "{sent}");
    says("clear errors");
    assert_eq!(value(&counters("show counters"), "left", "rdma_tx_packets"), sent);
    says("clear counters");
    assert_eq!(value(&counters("show counters"), "left", "rdma_tx_packets"), 0);
    lab.write(1);
    let again = value(&counters("show counters"), "left", "rdma_tx_packets");
    assert!((16..48).contains(&again), "{again}");
    let own = lab.left.context.counters().expect("counters");
    let own = own.iter().find(|count| count.name == "rdma_tx_packets").expect("a counter").value;
    assert_eq!(own, sent + again, "other readers see all of it");
}

#[test]
fn drops_count_from_zero_after_they_were_cleared() {
    let lab = Lab::new();
    let drops = |line: &str| match answer(line) {
        Answer::Errors(drops) => drops.iter().map(uroce_command::answer::DropCount::total).sum(),
        other => panic!("{other:?}"),
    };
    let before: u64 = drops("show errors");
    // The peer's QP is gone: its number is unknown.
    let Lab { mut left, right } = lab;
    let target = right.memory.remote();
    drop(right.qp);
    let source = [left.memory.slice(..8).expect("in range")];
    let wr = uroce::SendWr::write(&source, target).signaled();
    left.qp.post_send(&wr).expect("room");
    crate::lab::eventually("a drop", || drops("show errors") > before);
    let text = says("show errors");
    assert!(text.contains("rx_unknown_qpn"), "{text}");
    // The sender is stopped, so that it drops no more.
    drop(left.qp);
    says("clear errors");
    assert_eq!(drops("show errors"), 0);
    assert!(value(&counters("show counters"), "right", "rx_unknown_qpn") > 0);
}

#[test]
fn queue_pairs_and_ports_have_counters_of_their_own() {
    let mut lab = Lab::new();
    lab.write(2);
    let qpn = lab.left.qp.qpn().value();
    let of_qp = counters(&format!("show counters qp {qpn:#x}"));
    assert!(of_qp.iter().all(|counter| counter.object == format!("QP {qpn:#08x}")), "{of_qp:?}");
    let (packets, bytes) = (value(&of_qp, "left", "tx_packets"), value(&of_qp, "left", "tx_bytes"));
    assert!(packets >= 32 && bytes > 2 << 16, "{of_qp:?}");
    assert!(value(&of_qp, "left", "rx_packets") >= 1);
    let all = counters("show counters qp all");
    assert_eq!(all.len(), 2 * of_qp.len());
    assert!(value(&all, "right", "rx_bytes") > 2 << 16);
    let of_port = counters("show counters port 0");
    assert!(value(&of_port, "left", "tx_packets") >= 32, "{of_port:?}");
    assert_eq!(counters("sh counters po all").len(), 2 * of_port.len());
    let refused = ask("show counters qp 1");
    assert_eq!(text(&refused.stderr), "no QP 0x000001\n");
    let refused = ask("show counters port 99");
    assert_eq!(text(&refused.stderr), "Invalid port 99\n");
    let usage = ask("show counters qp");
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn the_time_of_lcores_is_divided_between_the_stages_of_their_turns() {
    let mut lab = Lab::new();
    let runtime = || match answer("show runtime") {
        Answer::Runtime(lcores) => lcores,
        other => panic!("{other:?}"),
    };
    let check = |of: &LcoreRuntime| {
        let stages: u64 = of.stages.iter().map(|stage| stage.cycles).sum();
        assert_eq!(of.cycles, stages + of.idle_cycles + of.rest_cycles, "{of:?}");
        assert!(of.time_us >= 900_000 && of.idle_turns <= of.turns, "{of:?}");
    };
    let lcores = runtime();
    assert_eq!(lcores.len(), 2);
    lcores.iter().for_each(check);
    lab.write(100);
    let lcores = runtime();
    let transmit =
        lcores[0].stages.iter().find(|stage| stage.stage == "transmit").expect("a stage");
    assert!(transmit.packets >= 1600 && transmit.cycles > transmit.packets, "{transmit:?}");
    let receive = lcores[1].stages.iter().find(|stage| stage.stage == "receive").expect("a stage");
    assert!(receive.packets >= 1600 && receive.calls > 0, "{receive:?}");
    let shown = says("show runtime");
    assert!(shown.starts_with("left lcore 0: ") && shown.contains("Cycles/packet"), "{shown}");
    says("clear runtime");
    assert!(runtime()[0].stages.iter().all(|stage| stage.packets < 1600));
}

#[test]
fn round_trips_of_requests_are_measured_and_cleared() {
    let mut lab = Lab::new();
    let latency = |line: &str| match answer(line) {
        Answer::Latency(qps) => qps,
        other => panic!("{other:?}"),
    };
    let [left, right] = [&lab.left.qp, &lab.right.qp].map(|qp| qp.qpn().value());
    let all = latency("show latency");
    assert!(all.len() == 2 && all.iter().all(|qp| qp.times.is_none()), "{all:?}");
    let begin = std::time::Instant::now();
    lab.write(100);
    let time = begin.elapsed().as_nanos();
    let one = &latency(&format!("show latency qp {left:#x}"))[0];
    let times = one.times.expect("samples");
    // The first request, and one in sixteen of the others.
    assert!((4..=20).contains(&one.samples), "{one:?}");
    let range = times.min_ns..=times.max_ns;
    assert!(times.min_ns > 100 && range.contains(&times.last_ns), "{times:?}");
    assert!(range.contains(&times.mean_ns), "{times:?}");
    assert!(u128::from(times.max_ns) < time, "{times:?} of {time} ns");
    let said = says(&format!("show latency qp {right}"));
    assert!(said.contains("of right has no sample: the peer has acknowledged nothing"), "{said}");

    let distribution = || match answer("show latency distribution") {
        Answer::Distribution(devices) => devices,
        other => panic!("{other:?}"),
    };
    let of = distribution();
    assert_eq!((of.len(), of[1].samples()), (2, 0), "{of:?}");
    assert_eq!(of[0].samples(), u64::from(one.samples));
    assert!(of[0].percentile(1.0) >= Some(times.max_ns.into()), "{of:?}");
    assert!(of[0].percentile(0.01) >= Some(times.min_ns.into()), "{of:?}");
    let shown = says("show latency distribution");
    assert!(shown.contains("99.9 %") && shown.contains("right   none"), "{shown}");

    assert_eq!(says("clear latency"), "");
    assert!(distribution().iter().all(|of| of.samples() == 0));
    assert!(latency("show latency").iter().all(|qp| qp.samples == 0));
    let samples = || latency(&format!("show latency qp {left}"))[0].samples;
    // A request that is sent again, because this machine was slow, is not measured.
    let is_measured = (0..3).any(|_| {
        assert_eq!(says("clear latency"), "");
        lab.write(1);
        samples() == 1
    });
    assert!(is_measured, "the first request is measured again");
    lab.write(100);
    assert!(samples() >= 5);
    assert_eq!(text(&ask("show latency qp 1").stderr), "no QP 0x000001\n");
}

#[test]
fn an_own_device_has_them_too() {
    let mut child = uroce(&["--vdev=net_null0,no-rx=1", "--", "-i"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let script = "show errors\nclear errors\nshow counters port 0\nshow runtime\nclear runtime\n\
                  clear counters\nshow latency\nclear latency\nquit\n";
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("read");
    let output = child.wait_with_output().expect("its end");
    let text = text(&output.stdout);
    assert!(output.status.success(), "{text}");
    for part in [
        "rx_unknown_qpn",
        "uroce0 port 0",
        "uroce0 lcore 0: ",
        "RC measures the first request",
        "Bye...",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
