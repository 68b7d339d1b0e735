//! Path migration by commands: two devices with two ports each.

use uroce::config::{DeviceConfig, PortConfig};
use uroce::{AccessFlags, Config, ConnectOptions, Context, QpInit, SendWr};
use uroce_command::Answer;

use crate::lab::{SOON, answer, eventually, fails, says};

/// Returns state and number of migrations of a QP.
fn state(qpn: u32) -> (String, u32) {
    match answer(&format!("query qp {qpn}")) {
        Answer::QpDetail(qps) => (qps[0].migration.clone(), qps[0].migrations),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_of_the_program_is_migrated_and_links_are_taken_down() {
    let device = |name: &str, host: u8| {
        let port = |link: &str, net: u8| {
            let port = PortConfig::ring(link).mtu(4200);
            port.ip(&format!("192.0.{net}.{host}/24")).expect("an address")
        };
        DeviceConfig::new(name).port(port("first", 2)).port(port("second", 3))
    };
    let config = Config::new().device(device("left", 1)).device(device("right", 2));
    let open = |name: &str| {
        let context = Context::open(&config, name).expect("a ring link needs no privilege");
        let pd = context.allocate_pd();
        let cq = context.create_cq(64).expect("a depth in range");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("QPs are left");
        let memory = pd.allocate(4096, AccessFlags::all()).expect("memory");
        (context, cq, qp, memory)
    };
    let (mut left, mut right) = (open("left"), open("right"));
    let options = ConnectOptions::default();
    let ends = [&left.2, &right.2].map(|qp| qp.endpoint(1, 0).expect("an address"));
    right.2.connect(&ends[0], &options).expect("left answers");
    left.2.connect(&ends[1], &options).expect("right answers");
    let [near, far] = [&left.2, &right.2].map(|qp| qp.qpn().value());
    let mut write = || {
        let source = [left.3.slice(..8).expect("in range")];
        let wr = SendWr::write(&source, right.3.remote()).signaled();
        left.2.post_send(&wr).expect("room");
        left.1.wait(SOON).expect("no overrun").expect("in time").ok().expect("success");
    };
    let refused = fails(&format!("rearm qp {near}"));
    assert!(refused.contains("(EINVAL)\nload one first: load alt path"), "{refused}");
    says(&format!("load alt path qp {near} port 2 dgid 192.0.3.2"));
    says(&format!("load alt path qp {far} port 2 dgid 192.0.3.1 timeout 10"));
    let refused = fails(&format!("migrate qp {near}"));
    assert!(refused.contains("not ARMED (EINVAL)\nrearm both ends"), "{refused}");
    let refused = fails(&format!("migrate qp {near} --force"));
    assert!(refused.contains("(ETIMEDOUT)\nload an alternate path at the peer"), "{refused}");
    says(&format!("rearm qp {far}"));
    eventually("both ends armed", || {
        write();
        [near, far].iter().all(|qp| state(*qp).0 == "ARMED")
    });
    says(&format!("migrate qp {near}"));
    assert_eq!(state(near), ("MIGRATED".to_owned(), 1));
    eventually("the peer's migration", || {
        write();
        state(far).1 == 1
    });
    let Answer::Path(paths) = answer(&format!("show path {near}")) else { panic!("paths") };
    assert_eq!((paths[0].port, paths[0].dst.to_string()), (2, "192.0.3.2".to_owned()));
    assert_eq!(says("migrate port 1"), "0 QPs have migrated\n");
    assert!(fails("migrate port 77").contains("no port 77 (ENOENT)"));
    let status = || left.0.port_status(1).expect("a port").link.up;
    says("set port 0 link-down");
    assert!(!status());
    says("set link-up port 0");
    eventually("the link", status);
    assert!(fails("set port 0").contains("add link-up, link-down or rate"));
}
