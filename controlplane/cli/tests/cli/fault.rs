//! Faults on purpose: what is set is shown, does harm, and is counted.

use uroce_command::Answer;
use uroce_command::answer::Fault;

use crate::lab::{Lab, ask, ask_with, says, text};

fn shown() -> Vec<Fault> {
    let output = ask_with(&["-j"], "show fault");
    match serde_json::from_slice(&output.stdout).expect("an answer") {
        Answer::Fault(faults) => faults,
        other => panic!("{other:?}"),
    }
}

/// Returns a counter, of both devices together.
fn counter(name: &str) -> u64 {
    let output = ask_with(&["-j"], "show counters");
    match serde_json::from_slice(&output.stdout).expect("an answer") {
        Answer::Counters(counters) => {
            counters.iter().filter(|of| of.name == name).map(|of| of.value).sum()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_set_is_shown_and_mended_and_cleared() {
    let mut lab = Lab::new();
    assert_eq!(shown().len(), 4, "two directions of two ports");
    says("set fault port 0 tx loss 0.05 seed 7");
    says("set fault port 0 tx dup 0.05");
    says("set fault port 1 delay 10");
    let faults = shown();
    let tx = &faults[1];
    assert_eq!((tx.port, tx.tx, tx.loss, tx.dup, tx.seed), (0, true, 0.05, 0.05, 7));
    assert_eq!((faults[0].loss, faults[0].seed), (0.0, 0), "the other direction");
    assert_eq!((faults[2].delay, faults[3].delay), (10, 10), "both directions");
    assert!(says("show fault").contains("0.05  0.05"));
    lab.write(30);
    for name in ["tx_injected_loss", "tx_injected_duplicates", "retransmitted_packets"] {
        assert!(counter(name) > 0, "{name}");
    }
    says("clear faults");
    assert!(shown().iter().all(|of| (of.loss, of.dup, of.delay) == (0.0, 0.0, 0)));
    let before = counter("tx_injected_loss");
    lab.write(10);
    assert_eq!(counter("tx_injected_loss"), before);
}

#[test]
fn wrong_bits_are_found_by_the_peer() {
    let mut lab = Lab::new();
    let qpn = lab.left.qp.qpn().value();
    says(&format!("set fault port 0 tx corrupt 0.1 qp {qpn:#x}"));
    lab.write(10);
    let (made, found) = (counter("tx_injected_corruption"), counter("rx_icrc_errors"));
    assert!(made > 0 && found == made, "{made} {found}");
    assert_eq!(shown()[1].qp, Some(qpn));
    // The faults of a QP end with it, and stand in the way of no others.
    says(&format!("destroy qp {qpn} force"));
    says("set fault port 0 rx loss 0.5");
    let [rx, tx] = &shown()[..2] else { panic!("both directions of a port") };
    assert_eq!((rx.loss, rx.qp, tx.corrupt, tx.qp), (0.5, None, 0.0, None));
}

#[test]
fn faults_of_nothing_are_refused() {
    let _lab = Lab::new();
    let refused = |line: &str, error: &str| {
        let output = ask(line);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), format!("{error}\n")));
    };
    refused("set fault port 7 loss 0.1", "Invalid port 7");
    refused("set fault port 0 rx", "which fault? Name one: loss, dup, reorder, corrupt or delay");
    refused("set fault port 0 loss 0.1 qp 0x1000000", "no QP 0x1000000");
    let output = ask("set fault port 0 loss 0.1 qp 0xfffff0");
    assert!(text(&output.stderr).starts_with("no QP "), "{output:?}");
    assert!(shown().iter().all(|of| of.loss == 0.0 && of.qp.is_none()));
    let output = ask("set fault port 0 loss 2");
    assert_eq!(output.status.code(), Some(2));
}
