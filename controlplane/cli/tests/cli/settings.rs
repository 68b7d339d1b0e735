//! Settings of a prompt and of packets' class: `set stats-period`, `set qp … tclass`.

use uroce_command::Answer;

use crate::capture::Folder;
use crate::lab::{Lab, answer, ask, fails, made, says, text};
use crate::objects::Own;
use crate::own::run;

#[test]
fn statistics_are_shown_beside_the_prompt_until_the_period_is_zero() {
    let _lab = Lab::new();
    let shown = |said: &str| said.matches("NIC statistics for port 0 ").count();
    let pid = std::process::id().to_string();
    let attached =
        run(&["-s", &pid], "set stats-period 1\nsleep 2500\nset stats-period 0\nsleep 1500\n");
    let said = text(&attached.stdout);
    assert!((1..=2).contains(&shown(&said)), "{said}");
    assert_eq!(said.matches("NIC statistics for port 1 ").count(), shown(&said));
    let arguments = ["--vdev=net_null0,no-rx=1", "--", "-i"];
    let own = text(&run(&arguments, "set stats-period 1\nsleep 1500\nquit\n").stdout);
    assert_eq!(shown(&own), 1, "{own}");
    let refused = fails("set stats-period 1");
    let error = "a command of a shell ends at once, and its statistics with it\nset it at a prompt";
    assert!(refused.starts_with(error), "{refused}");
    assert_eq!(ask("set stats-period 86401").status.code(), Some(2));
    says("set stats-period 0");
}

#[test]
fn the_class_of_a_queue_pair_changes_in_sqd() {
    let mut lab = Lab::new();
    let qp = lab.left.qp.qpn().value();
    let class = || match answer(&format!("show path {qp}")) {
        Answer::Path(paths) => paths[0].traffic_class,
        other => panic!("{other:?}"),
    };
    let refused = fails(&format!("set qp {qp} dscp 46"));
    assert!(
        refused.contains(" changes in SQD, and it is in RTS (EINVAL)\nfirst `modify"),
        "{refused}"
    );
    says(&format!("modify qp {qp} state SQD --force"));
    let refused = fails(&format!("set qp {qp} dscp 46 rate 10"));
    assert!(refused.contains("does not take rate_limit (EINVAL)"), "{refused}");
    says(&format!("set qp {qp} dscp 46"));
    assert_eq!(class(), 46 << 2);
    says(&format!("set qp {qp} tclass 0x22"));
    says(&format!("set qp {qp} dscp 1"));
    assert_eq!(class(), 1 << 2 | 2, "ECN's bits stay");
    let refused = fails(&format!("set qp {qp} vlan_pcp 5"));
    assert!(refused.contains("port 1 of left has no VLAN (EOPNOTSUPP)\nstart again"), "{refused}");
    says(&format!("modify qp {qp} state RTS --force"));
    lab.write(2);
    assert!(
        fails(&format!("set qp {qp}")).contains("(EINVAL)\nadd rate, tclass, dscp or vlan_pcp")
    );
    assert!(fails("set qp 0xffffff tclass 1").contains("(ENOENT)"));
    let (pd, cq) = (made("create pd").number, made("create cq depth 4").number);
    let ud = made(&format!("create qp type UD pd {pd} scq {cq} rcq {cq}")).number;
    assert!(fails(&format!("set qp {ud} tclass 1")).contains("has no path: address handles"));
}

#[test]
fn the_class_changes_at_a_prompt_of_its_own_with_a_vlan() {
    let folder = Folder::new("class");
    let file = folder.file("uroce.toml");
    let port = "[[device.port]]\nethdev = { vdev = \"net_null0,no-rx=1\" }\nvlan = 7\n\
                ip = [\"192.0.2.1/24\"]\n";
    std::fs::write(&file, format!("[[device]]\nname = \"uroce0\"\n{port}")).unwrap();
    let mut own = Own::new(&["--", "-i", "--config", &file]);
    own.type_line("create pd");
    own.type_line("create cq depth 4");
    own.type_line("create qp type UC pd 0 scq 0 rcq 0");
    let made = own.until("QP 0x");
    let qp = made.split(' ').nth(1).expect("a number").to_owned();
    own.type_line(&format!("modify qp {qp} state INIT port 1 pkey 0xffff access remote_write"));
    own.type_line(&format!(
        "modify qp {qp} state RTR dest_gid 192.0.2.1 dest_qpn {qp} rq_psn 1 path_mtu 1024"
    ));
    own.type_line(&format!("modify qp {qp} state RTS sq_psn 1"));
    own.type_line(&format!("modify qp {qp} state SQD"));
    own.type_line(&format!("set qp {qp} vlan_pcp 5 tclass 0x68"));
    own.type_line(&format!("show path {qp}"));
    let shown = own.until(" primary ");
    let columns: Vec<&str> = shown.split_whitespace().collect();
    assert!(columns.ends_with(&["104", "5", "64", "max"]), "{shown}");

    own.type_line(&format!("modify qp {qp} state RTS"));
    own.type_line("reg mr pd 0 len 64");
    let pcap = folder.file("class.pcapng");
    own.type_line(&format!("capture start port 0 file {pcap}"));
    own.type_line(&format!("post send qp {qp} len 8"));
    own.type_line("poll cq 0 timeout 10000");
    own.until("success");
    own.type_line("capture stop");
    assert!(own.quit());
    let frames = std::fs::read(&pcap).unwrap();
    // EtherType of a tag, priority 5 in VLAN 7, EtherType IPv4, version, traffic class.
    let header = [0x81, 0x00, 5 << 5, 7, 0x08, 0x00, 0x45, 0x68];
    assert!(frames.windows(header.len()).any(|window| window == header), "no such frame");
}
