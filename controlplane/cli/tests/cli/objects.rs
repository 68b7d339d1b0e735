//! Objects that commands make, in this process and in the program's own.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use uroce_command::Answer;
use uroce_command::answer::Qp;

use crate::lab::{Lab, answer, beside_a_closing_device, fails, made, says, uroce};

/// Returns the attributes of a QP.
fn query(qpn: u32) -> Qp {
    match answer(&format!("query qp {qpn:#x}")) {
        Answer::QpDetail(mut qps) => qps.remove(0),
        other => panic!("{other:?}"),
    }
}

/// A queue pair that commands have made and connected, with its domain and completion queue.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) qp: u32,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
}

/// Makes a queue pair on each device of the lab, and connects the two.
pub(crate) fn connected() -> [End; 2] {
    let ends = ["left", "right"].map(|device| {
        let pd = made(&format!("create pd device {device}")).number;
        let cq = made(&format!("create cq depth 64 device {device}"));
        assert_eq!((cq.device.as_str(), cq.object.as_str()), (device, "CQ"));
        let cq = cq.number;
        let qp = made(&format!("create qp type rc pd {pd} scq {cq} rcq {cq} depth 16"));
        (End { qp: qp.number, pd, cq }, qp.psn.expect("a PSN"))
    });
    let [left, right] = ends;
    for ((own, sq_psn), (peer, rq_psn), address) in
        [(left, right, "192.0.2.2"), (right, left, "192.0.2.1")]
    {
        let (qp, dest) = (own.qp, peer.qp);
        says(&format!("modify qp {qp} state INIT port 1 pkey 0xffff access all"));
        says(&format!(
            "modify qp {qp} state rtr dest_gid {address} dest_qpn {dest} rq_psn {rq_psn} \
             path_mtu 1024 max_dest_rd_atomic 4 min_rnr_timer 12"
        ));
        says(&format!(
            "modify qp {qp} state RTS sq_psn {sq_psn} timeout 14 retry_cnt 7 rnr_retry 6 \
             max_rd_atomic 4"
        ));
        let qp = query(qp);
        assert_eq!((qp.state.as_str(), qp.dest_qpn, qp.path_mtu), ("RTS", dest, 1024));
        assert_eq!((qp.rnr_retry, qp.max_rd_atomic, qp.max_send_wr), (6, 4, 16));
    }
    ends.map(|(end, _)| end)
}

#[test]
fn queue_pairs_are_made_connected_and_destroyed() {
    let lab = Lab::new();
    let [End { qp, pd, cq }, _] = connected();
    let busy = fails(&format!("destroy pd {pd}"));
    assert!(busy.contains(" uses PD ") && busy.contains("(EBUSY)\ndestroy QP "), "{busy}");
    assert!(fails(&format!("destroy cq {cq}")).contains("(EBUSY)"));
    says(&format!("destroy qp {qp}"));
    assert!(fails(&format!("query qp {qp}")).contains("(ENOENT)\n`show qp` lists"));
    says(&format!("destroy cq {cq}"));
    says(&format!("destroy pd {pd}"));
    assert!(fails(&format!("destroy pd {pd}")).contains("no command has made PD"));
    drop(lab);
}

#[test]
fn what_is_wrong_with_a_change_is_said_in_the_words_of_the_command() {
    let _lab = Lab::new();
    let (pd, cq) = (made("create pd").number, made("create cq depth 4").number);
    let qp = made(&format!("create qp type RC pd {pd} scq {cq} rcq {cq}")).number;
    let line = |rest: &str| format!("modify qp {qp} {rest}");
    assert_eq!(
        fails(&line("state INIT port 1")),
        "the change needs pkey access (EINVAL)\nadd: pkey access\n"
    );
    let refused = fails(&line("state RTS"));
    assert!(refused.starts_with("no transition from RESET to RTS (EINVAL)\n"), "{refused}");
    let refused = fails(&line("state INIT port 1 pkey 0xffff access all path_mtu 1000"));
    assert!(refused.ends_with("choose 256, 512, 1024, 2048 or 4096\n"), "{refused}");
    says(&line("state INIT port 1 pkey 0xffff access local_write,remote_read"));
    let refused = fails(&line(
        "state RTR dest_gid 198.51.100.1 dest_qpn 7 rq_psn 1 path_mtu 1024 max_dest_rd_atomic 1 \
         min_rnr_timer 1",
    ));
    assert!(refused.contains("(ENETUNREACH)\n"), "{refused}");
    let refused = fails(&line("dest_qpn 0x1000000"));
    assert!(refused.contains("more than 24 bits (EINVAL)"), "{refused}");
    assert!(fails("create cq depth 0").contains("(EINVAL)\n"));
    assert!(fails("create cq depth 1 device nowhere").contains("no device nowhere (ENOENT)"));
    assert!(fails("create qp type RC pd 7 scq 0 rcq 0").contains("no command has made PD 7"));
    let usage = crate::lab::ask(&line("tclass 4"));
    assert_eq!(usage.status.code(), Some(2));
    assert!(crate::lab::text(&usage.stderr).contains("expected dest_gid"), "{usage:?}");
}

#[test]
fn the_programs_own_queue_pair_is_not_harmed_unless_that_is_meant() {
    let mut lab = Lab::new();
    let (left, right) = (lab.left.qp.qpn().value(), lab.right.qp.qpn().value());
    for line in [
        format!("modify qp {left} state ERR"),
        format!("modify qp {left} state SQD"),
        format!("modify qp {left} access local_write"),
        format!("destroy qp {left}"),
    ] {
        let refused = fails(&line);
        assert!(refused.contains(" is the program's (EPERM)\nadd --force"), "{refused}");
    }
    lab.write(1);
    // What does no harm needs no force.
    says(&format!("modify qp {left} min_rnr_timer 3"));
    assert_eq!(query(left).min_rnr_timer, 3);
    says(&format!("modify qp {left} state ERR --force"));
    assert_eq!(query(left).state, "ERR");
    says(&format!("destroy qp {right} force"));
    assert!(fails(&format!("query qp {right}")).contains("(ENOENT)"));
}

#[test]
fn a_device_that_is_being_closed_fails_no_command_about_another() {
    let lab = Lab::new();
    let left = lab.left.qp.qpn().value();
    beside_a_closing_device(|| {
        assert_eq!(query(left).state, "RTS");
        says("show fault");
        says("show capture");
    });
}

#[test]
fn regions_of_two_devices_have_keys_of_their_own() {
    let _lab = Lab::new();
    let pds = ["left", "right"].map(|device| made(&format!("create pd device {device}")).number);
    let mut keys = Vec::new();
    for _ in 0..8 {
        let regions = pds.map(|pd| made(&format!("reg mr pd {pd} len 8 pattern {pd}")));
        for (region, pd) in regions.into_iter().zip(pds) {
            keys.push((region.number, pd));
        }
    }
    let count = keys.iter().map(|(key, _)| key).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(count, keys.len());
    for (key, _) in &keys {
        says(&format!("dereg mr {key:#x}"));
    }
    pds.iter().for_each(|pd| drop(says(&format!("destroy pd {pd}"))));
}

#[test]
fn memory_is_registered_filled_and_freed() {
    let lab = Lab::new();
    let pd = made("create pd device right").number;
    let region = made(&format!("reg mr pd {pd} len 100 access remote_read pattern 0xa5"));
    let (address, len) = region.memory.expect("memory");
    assert_eq!(len, 104);
    // The program's peer cannot read it: it is in another domain.
    let refused = fails(&format!("reg mr pd {pd} len 8 access remote_write"));
    assert!(refused.ends_with("(EINVAL)\nadd local_write to the rights\n"), "{refused}");
    assert!(fails(&format!("reg mr pd {pd} len 0x100000000000")).contains("(ENOMEM)"));
    assert!(fails(&format!("reg mr pd {pd} len 0")).contains("(EINVAL)"));
    assert!(address != 0);
    assert!(fails(&format!("destroy pd {pd}")).contains("uses PD"));
    says(&format!("dereg mr {:#x}", region.number));
    let again = fails(&format!("dereg mr {:#x}", region.number));
    assert!(again.contains("(ENOENT)"), "{again}");
    let programs = lab.right.memory.rkey().0;
    let refused = fails(&format!("destroy mr {programs}"));
    assert!(refused.contains("memory of the program stays registered"), "{refused}");
    let srq = made(&format!("create srq pd {pd} depth 8")).number;
    assert!(fails(&format!("destroy pd {pd}")).contains(&format!("SRQ {srq} uses PD {pd}")));
    says(&format!("destroy srq {srq}"));
    says(&format!("destroy pd {pd}"));
}

#[test]
fn objects_do_not_keep_a_device_open() {
    let Lab { left, right } = Lab::new();
    let pd = made("create pd device right").number;
    let cq = made("create cq depth 4 device right").number;
    made(&format!("create qp type RC pd {pd} scq {cq} rcq {cq}"));
    made(&format!("reg mr pd {pd} len 4096"));
    drop(right);
    crate::lab::eventually("the end of its objects", || {
        fails(&format!("destroy cq {cq}")).contains("no command has made CQ")
    });
    assert!(says("show device").contains("hca_id: left"));
    drop(left);
}

/// The program with a device of its own, and its standard input and output.
pub(crate) struct Own {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Own {
    pub(crate) fn new(arguments: &[&str]) -> Own {
        let mut command = uroce(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Own { child, input, output }
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    /// Reads lines until one contains these words.
    pub(crate) fn until(&mut self, words: &str) -> String {
        let mut said = String::new();
        for line in self.output.by_ref().map_while(Result::ok) {
            if line.contains(words) {
                return line;
            }
            said += &(line + "\n");
        }
        panic!("no {words:?} in {said}");
    }

    /// Ends the session. Returns whether no command has failed.
    pub(crate) fn quit(mut self) -> bool {
        self.type_line("quit");
        self.until("Bye...");
        self.child.wait().expect("an end").success()
    }
}

#[test]
fn objects_are_made_on_a_device_of_its_own() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i", "--ip=0,192.0.2.1/24"]);
    own.type_line("create pd");
    assert_eq!(own.until("PD"), "PD 0 of uroce0");
    own.type_line("create cq depth 16");
    assert_eq!(own.until("CQ"), "CQ 0 of uroce0");
    own.type_line("create srq pd 0 depth 16");
    assert_eq!(own.until("SRQ"), "SRQ 0 of uroce0");
    own.type_line("create qp type UC pd 0 scq 0 rcq 0 srq 0");
    let made = own.until("QP 0x");
    let qpn = made.split(' ').nth(1).expect("a number").to_owned();
    own.type_line(&format!("mod qp {qpn} state INIT port 1 pkey 0xffff access remote_write"));
    own.type_line(&format!("query qp {qpn}"));
    own.until("INIT");
    own.type_line("reg mr pd 0 len 4096");
    let key = own.until("MR 0x").split(' ').nth(1).expect("a key").to_owned();
    own.type_line(&format!("dereg mr {key}"));
    own.type_line(&format!("destroy qp {qpn}"));
    own.type_line("set port 0 link-down");
    own.type_line("set link-up port 0");
    assert!(own.quit());
}
