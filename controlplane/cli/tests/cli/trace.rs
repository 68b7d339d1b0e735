//! Traces: the packets of a queue pair with their verdicts, and what ends them.

use std::io::Write;

use uroce_command::answer::{Trace, TracedPacket};
use uroce_command::frame::{self, Decoder};
use uroce_command::{Answer, Refusal, Reply, Request, request};

use crate::capture::Folder;
use crate::hostile::{connect, reply};
use crate::lab::{Lab, answer, eventually, fails, says};
use crate::objects::Own;

fn shown() -> Vec<Trace> {
    match answer("show trace") {
        Answer::Trace(traces) => traces,
        Answer::Done => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Returns the packets of the trace of a device, when it has ended.
fn packets(lab: &mut Lab, device: &str) -> Vec<TracedPacket> {
    let mut packets = Vec::new();
    eventually("all packets", || {
        lab.write(1);
        let trace = shown().into_iter().find(|trace| trace.device == device).expect("a trace");
        packets = trace.packets;
        trace.end.is_some()
    });
    packets
}

fn qpn(lab: &Lab) -> [u32; 2] {
    [&lab.left, &lab.right].map(|side| side.qp.qpn().value())
}

#[test]
fn both_ends_of_a_write_are_traced() {
    let mut lab = Lab::new();
    let [left, right] = qpn(&lab);
    assert!(shown().is_empty());
    assert_eq!(says(&format!("trace qp {left:#x} packets 40")), "");
    says(&format!("trace qp {right}"));
    let waits = says("show trace");
    assert!(waits.starts_with(&format!("QP {left:#08x} of left: waits for more packets\n")));
    let sent = packets(&mut lab, "left");
    assert_eq!(sent.len(), 40);
    let first = &sent[0];
    assert_eq!((first.packet.as_str(), first.verdict.as_str()), ("RC RDMA WRITE First", "first"));
    assert_eq!((first.is_sent, first.port, first.len), (true, 1, 4096));
    assert_eq!((first.dest_qpn, first.time_ns), (Some(right), 0));
    let (requests, answers): (Vec<_>, Vec<_>) = sent.iter().partition(|packet| packet.is_sent);
    // A busy machine may answer so late that some are sent again.
    let (again, requests): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|packet| packet.verdict == "again");
    assert!(requests.iter().skip(1).all(|packet| packet.verdict == "next"), "{requests:?}");
    let psns: Vec<u32> = requests.iter().map(|packet| packet.psn.expect("a PSN")).collect();
    assert!(again.iter().all(|packet| packet.psn.is_some_and(|psn| psns.contains(&psn))));
    assert!(psns.windows(2).all(|two| two[1] == (two[0] + 1) & 0xff_ffff), "{psns:?}");
    assert!(!answers.is_empty(), "acknowledgements");
    for ack in answers {
        assert_eq!((ack.verdict.as_str(), ack.dest_qpn), ("answer", Some(left)));
        assert!(ack.aeth.as_deref().is_some_and(|aeth| aeth.starts_with("ack")), "{ack:?}");
    }
    let came = packets(&mut lab, "right");
    assert_eq!((came.len(), came[0].is_sent), (100, false));
    assert!(sent.windows(2).all(|two| two[0].time_ns <= two[1].time_ns));

    says("clear trace");
    assert!(shown().is_empty());
    lab.write(3);
}

#[test]
fn packets_that_are_lost_spoiled_and_sent_again_have_their_verdicts() {
    let mut lab = Lab::new();
    let [_, right] = qpn(&lab);
    says("set fault port 0 tx loss 0.05 seed 3");
    says("set fault port 0 tx corrupt 0.05");
    says(&format!("trace qp {right} packets 1000"));
    let came = packets(&mut lab, "right");
    says("clear faults");
    let has = |begin: &str| came.iter().any(|packet| packet.verdict.starts_with(begin));
    for begin in ["next but ", "again", "dropped: rx_icrc_errors The invariant CRC"] {
        assert!(has(begin), "no {begin:?}");
    }
    assert!(has("dropped: rx_after_nak"), "the QP waits for what it has asked for");
    let naks = came.iter().filter_map(|packet| packet.aeth.as_deref());
    assert!(naks.clone().any(|aeth| aeth.starts_with("nak PsnSequenceError")), "{naks:?}");
}

#[test]
fn a_trace_and_a_capture_stand_in_each_others_way() {
    let folder = Folder::new("traced");
    let mut lab = Lab::new();
    let [left, right] = qpn(&lab);
    says(&format!("trace qp {left}"));
    let file = folder.file("one.pcapng");
    let refused = fails(&format!("capture start port 0 file {file}"));
    assert!(refused.contains("is traced at port 0; end that first: clear trace"), "{refused}");
    says("clear trace");
    says(&format!("capture start port 0 file {file}"));
    let refused = fails(&format!("trace qp {left}"));
    assert!(refused.contains("port 0 is captured; end that first: capture stop 0"), "{refused}");
    assert!(refused.contains("(EBUSY)"), "{refused}");
    says(&format!("trace qp {right}"));
    says("capture stop 0");
    // A new trace takes the place of the one before.
    says(&format!("trace qp {left}"));
    says(&format!("trace qp {left} packets 1"));
    assert_eq!(packets(&mut lab, "left").len(), 1);
    // One that has ended is in the way of no capture.
    says(&format!("capture start port 0 file {}", folder.file("two.pcapng")));
    says("capture stop all");
}

#[test]
fn what_does_not_exist_is_not_traced_and_a_trace_ends_with_its_device() {
    let mut lab = Lab::new();
    let [left, right] = qpn(&lab);
    for unknown in ["0xabcdef", "0", "4294967295"] {
        assert!(fails(&format!("trace qp {unknown}")).contains("`show qp` lists"), "{unknown}");
    }
    says(&format!("trace qp {left}"));
    says(&format!("trace qp {right}"));
    lab.write(1);
    let Lab { left: side, .. } = lab;
    drop(side);
    assert!(fails(&format!("trace qp {left}")).contains("no QP"));
    let left: Vec<_> = shown().into_iter().map(|trace| trace.device).collect();
    assert_eq!(left, ["right"]);
    says("clear trace");
}

#[test]
fn a_request_beyond_the_limits_is_refused() {
    let lab = Lab::new();
    let [left, _] = qpn(&lab);
    let (mut stream, mut inbox) = (connect(), Decoder::new(frame::REPLY_MAX));
    for (qp, packets) in [(left, 0), (left, u16::MAX), (u32::MAX, 1)] {
        let request = Request::Trace(request::Trace::Qp { qp, packets });
        stream.write_all(&frame::encode(&request, frame::REQUEST_MAX).unwrap()).unwrap();
        let refused = reply(&mut stream, &mut inbox);
        assert!(matches!(refused, Some(Reply::Refused(Refusal::Command { .. }))), "{refused:?}");
    }
    assert!(shown().is_empty());
}

#[test]
fn a_queue_pair_of_its_own_is_traced() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i", "--ip=0,192.0.2.1/24"]);
    own.type_line("create pd");
    own.type_line("create cq depth 16");
    own.type_line("create qp type UC pd 0 scq 0 rcq 0");
    let number = own.until("QP 0x").split(' ').nth(1).expect("a number").to_owned();
    own.type_line(&format!("trace qp {number} packets 5"));
    own.type_line("show trace");
    assert_eq!(own.until("QP 0x"), format!("QP {number} of uroce0: waits for more packets"));
    own.type_line("clear trace");
    assert!(own.quit());
}
