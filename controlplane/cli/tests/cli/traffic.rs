//! Work requests of commands, on the program's devices and on a device of its own.

use std::time::{Duration, Instant};

use uroce_command::Answer;
use uroce_command::answer::Completion;

use crate::lab::{Lab, answer, fails, made, says};
use crate::objects::{Own, connected};

/// Takes completions, at least one.
fn poll(cq: u32) -> Vec<Completion> {
    match answer(&format!("poll cq {cq} timeout 20000")) {
        Answer::Completions(completions) => completions,
        other => panic!("{other:?}"),
    }
}

fn bytes(key: u32, len: usize) -> Vec<u8> {
    match answer(&format!("query mr {key} len {len}")) {
        Answer::Memory(memory) => memory.bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_work_request_is_posted_completed_and_seen_in_memory() {
    let _lab = Lab::new();
    let [left, right] = connected();
    let source = made(&format!("reg mr pd {} len 64 pattern 0x11", left.pd)).number;
    let target = made(&format!("reg mr pd {} len 4096 pattern 0", right.pd));
    let (rkey, (addr, _)) = (target.number, target.memory.expect("memory"));
    let (near, far) = (left.qp, right.qp);
    let ok = |cq: u32, opcode: &str| {
        let all = poll(cq);
        let is_ok = |of: &Completion| of.status == "success" && of.opcode == opcode;
        assert!(all.len() == 1 && is_ok(&all[0]), "{all:?}");
        all[0].clone()
    };
    says(&format!("post recv qp {far} len 64"));
    assert!(says(&format!("post send qp {near} len 24 imm 7")).starts_with("posted 1: wr_id "));
    ok(left.cq, "Send");
    let received = ok(right.cq, "Recv");
    assert_eq!((received.byte_len, received.imm, received.qpn), (24, Some(7), far));
    assert_eq!(bytes(rkey, 25), [&[0x11; 24][..], &[0]].concat());
    let there = format!("rkey {rkey} addr {:#x}", addr + 32);
    says(&format!("post write qp {near} len 8 {there} mr {source}"));
    ok(left.cq, "RdmaWrite");
    assert_eq!(bytes(rkey, 40)[32..], [0x11; 8]);
    says(&format!("post fetch_add qp {near} {there} add 1 offset 8"));
    ok(left.cq, "FetchAdd");
    says(&format!("post cmp_swap qp {near} {there} compare 0x1111111111111112 swap 5 offset 16"));
    ok(left.cq, "CompSwap");
    let word = u64::from_ne_bytes(bytes(rkey, 40)[32..].try_into().unwrap());
    assert_eq!(word, 5, "it was 0x11…11, then one more, then 5");
    let former = bytes(source, 24);
    assert_eq!(former[16..], 0x1111_1111_1111_1112u64.to_ne_bytes());
    says(&format!("post read qp {near} len 8 {there}"));
    ok(left.cq, "RdmaRead");
    assert_eq!(bytes(source, 8), 5u64.to_ne_bytes());
    says(&format!("post write qp {near} len 8 {there} count 10"));
    let mut count = 0;
    while count < 10 {
        count += poll(left.cq).len();
    }
}

#[test]
fn what_cannot_be_posted_is_refused_with_a_remedy() {
    let lab = Lab::new();
    let [left, _right] = connected();
    let qp = left.qp;
    let none = fails(&format!("post send qp {qp} len 8"));
    assert!(none.contains("(EFAULT)\nregister some: reg mr pd "), "{none}");
    let key = made(&format!("reg mr pd {} len 64", left.pd)).number;
    let short = fails(&format!("post send qp {qp} len 8 offset 60"));
    assert!(short.contains("no memory 68 bytes of PD"), "{short}");
    let full = fails(&format!("post recv qp {qp} len 8 count 17"));
    assert!(full.starts_with("after 16 requests: queue is full (ENOMEM)\npoll"), "{full}");
    let many = fails(&format!("post recv qp {qp} len 8 count 4000000000"));
    assert!(many.contains("4000000000 work requests are too many (EINVAL)"), "{many}");
    let programs = fails(&format!("post send qp {} len 8", lab.left.qp.qpn().value()));
    assert!(programs.contains("(EPERM)\nwork is posted to QPs of `create qp` only"), "{programs}");
    assert!(fails("poll cq 77").contains("no command has made CQ 77 (ENOENT)"));
    let begin = Instant::now();
    assert_eq!(answer(&format!("poll cq {} timeout 300", left.cq)), Answer::Completions(vec![]));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    // The connection fails at a wrong key, and what was posted is flushed.
    says(&format!("post write qp {qp} len 8 rkey 1 addr 0 mr {key}"));
    says(&format!("wait qp {qp} state ERR"));
    says(&format!("post send qp {qp} len 8 mr {key}"));
    crate::lab::eventually("the flushed request", || {
        says(&format!("poll cq {} timeout 1000", left.cq)).contains("flush")
    });
    says(&format!("modify qp {qp} state RESET"));
    let refused = fails(&format!("post send qp {qp} len 8 mr {key}"));
    assert!(refused.contains("(EINVAL)\n`query qp N` has its state"), "{refused}");
}

#[test]
fn a_command_that_waits_holds_up_no_other_client() {
    let lab = Lab::new();
    let qp = lab.left.qp.qpn().value();
    let waiting = std::thread::spawn(move || {
        let begin = Instant::now();
        let said = fails(&format!("wait qp {qp} state SQE timeout 1500"));
        (said, begin.elapsed())
    });
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    says("show process");
    says("wait link 0 up");
    assert!(fails("wait link 0 down timeout 1").contains("the link of port 0 is up (ETIMEDOUT)"));
    assert!(begin.elapsed() < Duration::from_millis(1000), "{:?}", begin.elapsed());
    let (said, took) = waiting.join().unwrap();
    assert!(said.contains("is in RTS (ETIMEDOUT)\nwait longer"), "{said}");
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    let line = format!("wait qp {qp} state ERR timeout 20000");
    let waiting = std::thread::spawn(move || says(&line));
    says(&format!("set qp {qp} rate 2.5"));
    assert!(says(&format!("query qp {qp}")).contains("2500000"));
    says(&format!("set qp {qp} rate off"));
    says(&format!("modify qp {qp} state err force"));
    waiting.join().unwrap();
}

#[test]
fn a_device_of_its_own_sends_to_itself() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i", "--ip=0,192.0.2.1/24"]);
    own.type_line("create pd\ncreate cq depth 16\nreg mr pd 0 len 64 pattern 7");
    own.until("MR 0x");
    let mut make = || {
        own.type_line("create qp type RC pd 0 scq 0 rcq 0");
        let said = own.until("QP 0x");
        let words: Vec<&str> = said.split([' ', ',']).collect();
        (words[1].to_owned(), words[words.len() - 1].to_owned())
    };
    let (first, second) = (make(), make());
    for ((qp, psn), (dest, dest_psn)) in [(&first, &second), (&second, &first)] {
        own.type_line(&format!("modify qp {qp} state INIT port 1 pkey 0xffff access all"));
        own.type_line(&format!(
            "modify qp {qp} state RTR dest_gid 192.0.2.1 dest_qpn {dest} rq_psn {dest_psn} \
             path_mtu 512 max_dest_rd_atomic 1 min_rnr_timer 12"
        ));
        own.type_line(&format!(
            "modify qp {qp} state RTS sq_psn {psn} timeout 14 retry_cnt 7 rnr_retry 7 \
             max_rd_atomic 1"
        ));
    }
    own.type_line(&format!("post recv qp {} len 8", second.0));
    own.type_line(&format!("post send qp {} len 8", first.0));
    own.type_line("sleep 50\npoll cq 0 timeout 10000");
    own.until("success");
    // Frames that never leave the device count as others do.
    for (qp, counter) in [(&first.0, "tx_bytes"), (&second.0, "rx_bytes")] {
        own.type_line(&format!("show counters qp {qp}"));
        let line = own.until(counter);
        let mut words = line.split_whitespace().skip_while(|word| *word != counter);
        assert!(words.nth(1).and_then(|value| value.parse().ok()) > Some(8u64), "{line}");
    }
    assert!(own.quit());
}
