//! Forwarding as testpmd does it.

use uroce_command::Answer;
use uroce_command::answer::FwdStats;

use crate::lab::{Lab, answer, beside_a_closing_device, eventually, fails, made, says};
use crate::objects::Own;

/// Returns the number that follows these words in a line.
fn number(line: &str, words: &str) -> u64 {
    let rest = line.split(words).nth(1).expect("the words").trim_start();
    rest.split(' ').next().unwrap_or_default().parse().expect("a number")
}

fn stats(line: &str) -> Vec<FwdStats> {
    match answer(line) {
        Answer::Fwd(ports) => ports,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_manual_session_of_testpmd_works() {
    let mut own = Own::new(&["--vdev=net_ring0", "--vdev=net_ring1", "--", "-i"]);
    own.type_line("show port info all");
    own.until("Infos for port 1");
    own.type_line("start tx_first");
    own.until("io packet forwarding started");
    own.type_line("sleep 300\nshow port stats all");
    // What leaves a ring port comes back to it, is sent through the other port, and so on.
    for port in [0, 1] {
        own.until(&format!("NIC statistics for port {port}"));
        let line = own.until("RX-packets:");
        assert!(number(&line, "RX-packets:") > 1000, "{line}");
    }
    own.type_line("show config fwd");
    own.until("started");
    own.type_line("stop");
    let mut of_ports = 0;
    for port in [0, 1] {
        own.until(&format!("Forward statistics for port {port}"));
        let line = own.until("RX-packets:");
        let (packets, dropped) = (number(&line, "RX-packets:"), number(&line, "RX-dropped:"));
        assert_eq!(number(&line, "RX-total:"), packets + dropped);
        assert!(packets > 1000, "{line}");
        of_ports += packets;
    }
    own.until("Accumulated forward statistics for all ports");
    let line = own.until("RX-packets:");
    assert_eq!(number(&line, "RX-packets:"), of_ports);
    assert!(own.quit());
}

#[test]
fn modes_drop_frames_or_send_them_back() {
    let mut own = Own::new(&["--vdev=net_ring0", "--", "-i"]);
    own.type_line("set fwd rxonly");
    own.until("Set rxonly packet forwarding mode");
    own.type_line("start tx_first 3\nsleep 200\nshow fwd stats all");
    own.until("Forward statistics for port 0");
    let line = own.until("RX-packets:");
    // The stack itself asks for neighbours now and then.
    assert!((96..110).contains(&number(&line, "RX-packets:")), "{line}");
    own.type_line("clear fwd stats all\nsleep 100\nshow fwd stats all");
    own.until("Forward statistics for port 0");
    let line = own.until("RX-packets:");
    assert!(number(&line, "RX-packets:") < 10, "{line}");
    own.type_line("stop\nset fwd echo\nstart tx_first 1\nsleep 300\nstop");
    own.until("echo packet forwarding started");
    own.until("Forward statistics for port 0");
    let line = own.until("TX-packets:");
    assert!(number(&line, "TX-packets:") > 1000, "{line}");
    own.type_line("set fwd csum\nstart tx_first 1\nsleep 300\nstop");
    own.until("csum packet forwarding started");
    own.until("Forward statistics for port 0");
    let line = own.until("TX-packets:");
    assert!(number(&line, "TX-packets:") > 1000, "{line}");
    own.type_line("set fwd icmpecho\nstart");
    own.until("endpoint packet forwarding started");
    assert!(own.quit());
}

#[test]
fn a_program_keeps_its_packets_unless_that_is_meant() {
    let mut lab = Lab::new();
    let refused = fails("start tx_first");
    let text = "serves a program, which would get no packet (EPERM)\nadd --force if that is meant";
    assert!(refused.contains(text), "{refused}");
    assert!(fails("stop").contains("Packet forwarding not started (EINVAL)\nstart it first"));
    lab.write(1);
    assert_eq!(stats("show fwd stats all").len(), 2);

    // Each end sends back what it gets.
    let said = says("start tx_first 2 --force");
    assert_eq!(said, "io packet forwarding started\n");
    let many = |ports: Vec<FwdStats>| ports.iter().all(|of| of.tx_packets > 1000);
    eventually("forwarded frames", || many(stats("show fwd stats all")));
    for line in ["set fwd echo", "start", "start --force"] {
        let refused = fails(line);
        assert!(refused.contains("already started (EBUSY)\nstop first"), "{refused}");
    }
    let (pd, cq) = (made("create pd").number, made("create cq depth 4").number);
    let refused = fails(&format!("create qp type RC pd {pd} scq {cq} rcq {cq}"));
    assert!(refused.contains("QPs would get no packet (EBUSY)\nstop first"), "{refused}");
    assert!(many(stats("stop")));
    assert!(says("show config fwd").contains("stopped"));
    lab.write(2);

    // A device that serves QPs as ever is not forced.
    says("set fwd endpoint");
    says("start");
    lab.write(2);
    let counted = stats("stop");
    assert!(counted[0].tx_packets >= 32 && counted[0].tx_dropped == 0, "{counted:?}");
}

#[test]
fn a_device_that_is_being_closed_fails_no_command_of_forwarding() {
    let mut lab = Lab::new();
    says("set fwd rxonly");
    beside_a_closing_device(|| {
        says("start tx_first 2 --force");
        says("show fwd stats all");
        says("clear fwd stats all");
        says("stop");
    });
    lab.write(1);
}

#[test]
fn queue_pairs_of_commands_are_not_cut_off_by_accident() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i"]);
    own.type_line("create pd\ncreate cq depth 4\ncreate qp type RC pd 0 scq 0 rcq 0\nstart");
    let made = own.until("QP 0x");
    let qpn = made.split(' ').nth(1).expect("a number").to_owned();
    own.type_line("show config fwd");
    own.until("stopped");
    own.type_line(&format!("destroy qp {qpn}\nstart\nstop"));
    own.until("io packet forwarding started");
    own.until("Accumulated forward statistics for all ports");
    assert!(!own.quit(), "the first start has failed");
}
