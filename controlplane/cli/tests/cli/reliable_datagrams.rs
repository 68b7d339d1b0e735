//! Reliable datagrams made by commands: domains, EE contexts, RD queue pairs and their requests.

use uroce_command::Answer;
use uroce_command::answer::Completion;

use crate::lab::{Lab, answer, fails, made, says};

const QKEY: u32 = 0x1234;

/// What commands have made on one device.
#[derive(Clone, Copy)]
struct Side {
    pd: u32,
    cq: u32,
    rdd: u32,
    eec: u32,
    eec_psn: u32,
    qps: [u32; 2],
}

impl Side {
    fn new(device: &str) -> Side {
        let pd = made(&format!("create pd device {device}")).number;
        let cq = made(&format!("create cq depth 64 device {device}")).number;
        let rdd = made(&format!("create rdd device {device}"));
        assert_eq!((rdd.device.as_str(), rdd.object.as_str()), (device, "RDD"));
        let rdd = rdd.number;
        let of = |kind: &str| {
            made(&format!("create qp type {kind} pd {pd} scq {cq} rcq {cq} rdd {rdd}"))
        };
        let eec = of("eec");
        let qps = [of("RD").number, of("RD").number];
        let eec_psn = eec.psn.expect("a PSN");
        Side { pd, cq, rdd, eec: eec.number, eec_psn, qps }
    }

    fn connect(&self, peer: &Side, address: &str) {
        let Side { eec, eec_psn, .. } = self;
        says(&format!("modify qp {eec} state INIT port 1 pkey 0xffff"));
        says(&format!(
            "modify qp {eec} state RTR dest_gid {address} dest_qpn {} rq_psn {} path_mtu 1024 \
             max_dest_rd_atomic 4",
            peer.eec, peer.eec_psn
        ));
        says(&format!(
            "modify qp {eec} state RTS sq_psn {eec_psn} timeout 14 retry_cnt 7 rnr_retry 6 \
             max_rd_atomic 4"
        ));
        for qp in self.qps {
            says(&format!("modify qp {qp} state INIT qkey {QKEY} access all"));
            says(&format!("modify qp {qp} state RTR max_dest_rd_atomic 4 min_rnr_timer 1"));
            says(&format!("modify qp {qp} state RTS"));
        }
    }

    /// Takes one completion.
    fn completion(&self) -> Completion {
        match answer(&format!("poll cq {} max 1 timeout 20000", self.cq)) {
            Answer::Completions(mut all) if all.len() == 1 => all.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn assert_done(&self, opcode: &str) -> Completion {
        let done = self.completion();
        assert_eq!((done.status.as_str(), done.opcode.as_str()), ("success", opcode), "{done:?}");
        done
    }
}

#[test]
fn messages_of_two_queue_pairs_go_by_one_ee_context() {
    let _lab = Lab::new();
    let [left, right] = ["left", "right"].map(Side::new);
    left.connect(&right, "192.0.2.2");
    right.connect(&left, "192.0.2.1");
    made(&format!("reg mr pd {} len 64 pattern 0x11", left.pd));
    let target = made(&format!("reg mr pd {} len 64 pattern 0", right.pd));
    let there = format!("rkey {} addr {:#x}", target.number, target.memory.expect("memory").0);
    for (near, far) in left.qps.into_iter().zip(right.qps) {
        let to = format!("eecn {} dest_qpn {far} qkey {QKEY}", left.eec);
        says(&format!("post recv qp {far} len 64"));
        says(&format!("post send qp {near} len 24 imm 7 {to}"));
        left.assert_done("Send");
        let received = right.assert_done("Recv");
        assert_eq!((received.byte_len, received.imm, received.qpn), (24, Some(7), far));
        says(&format!("post write qp {near} len 16 {there} {to}"));
        left.assert_done("RdmaWrite");
        says(&format!("post fetch_add qp {near} {there} add 1 offset 8 {to}"));
        left.assert_done("FetchAdd");
        says(&format!("post cmp_swap qp {near} {there} compare 0 swap 1 {to}"));
        left.assert_done("CompSwap");
        says(&format!("post read qp {near} len 16 {there} offset 32 {to} count 3"));
        (0..3).for_each(|_| drop(left.assert_done("RdmaRead")));
    }
    let all = says("show qp");
    assert!(all.contains(" RD ") && all.contains(" EEC "), "{all}");
    // A wrong Q_Key ends the queue pair's message, and the other one goes on.
    let [one, other] = left.qps;
    let to = |qkey: u32| format!("eecn {} dest_qpn {} qkey {qkey}", left.eec, right.qps[0]);
    says(&format!("post send qp {one} len 8 {}", to(QKEY + 1)));
    assert_eq!(left.completion().status, "remote invalid XRC or RD request");
    says(&format!("post write qp {other} len 8 {there} {}", to(QKEY)));
    left.assert_done("RdmaWrite");
}

#[test]
fn what_does_not_fit_the_service_is_refused_with_a_remedy() {
    let _lab = Lab::new();
    let side = Side::new("left");
    let Side { pd, cq, rdd, eec, qps: [qp, _], .. } = side;
    let create = |rest: &str| fails(&format!("create qp pd {pd} scq {cq} rcq {cq} {rest}"));
    for kind in ["RD", "EEC"] {
        let refused = create(&format!("type {kind}"));
        assert!(refused.contains("(EINVAL)\nmake one by `create rdd`, and add rdd N"), "{refused}");
    }
    assert!(create(&format!("type RC rdd {rdd}")).contains("(EINVAL)\nleave out rdd"));
    assert!(create("type RD rdd 77").contains("no command has made RDD 77 (ENOENT)"));
    let srq = made(&format!("create srq pd {pd} depth 4")).number;
    let refused = create(&format!("type EEC rdd {rdd} srq {srq}"));
    assert!(refused.contains("an EE context has no receives (EINVAL)"), "{refused}");
    assert!(fails("create rdd lcore 99").contains("(EINVAL)"));
    let other = made("create rdd device right").number;
    assert!(
        create(&format!("type RD rdd {other}")).contains("the objects are of different devices")
    );
    let busy = fails(&format!("destroy rdd {rdd}"));
    assert!(busy.contains(&format!(" uses RDD {rdd} (EBUSY)\ndestroy QP ")), "{busy}");

    made(&format!("reg mr pd {pd} len 64"));
    let wide = fails(&format!("post send qp {qp} len 8 eecn 0x1000000 dest_qpn 1 qkey 1"));
    assert!(wide.contains("eecn 0x1000000 has more than 24 bits (EINVAL)"), "{wide}");
    says(&format!("modify qp {qp} state INIT qkey 1 access all"));
    says(&format!("modify qp {qp} state RTR max_dest_rd_atomic 4"));
    says(&format!("modify qp {qp} state RTS"));
    let nowhere = fails(&format!("post send qp {qp} len 8"));
    assert!(nowhere.contains("an RD queue pair needs eecn, dest_qpn and qkey"), "{nowhere}");
    says(&format!("post send qp {qp} len 8 eecn {eec} dest_qpn 1 qkey 1"));
    let unready = side.completion();
    assert_eq!(unready.status, "invalid EE context state", "in RESET");
    for number in [eec, qp, side.qps[1]] {
        says(&format!("destroy qp {number}"));
    }
    says(&format!("destroy rdd {rdd}"));
    assert!(fails(&format!("destroy rdd {rdd}")).contains("no command has made RDD"));
}
