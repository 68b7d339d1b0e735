//! `nic-check` with both ends on this machine, as with a cable loop.

use super::common::{Memif, Output, run};
use serde_json::Value;

/// Runs checks between the two ends of a memif.
fn looped(name: &str, checks: &str) -> Output {
    let memif = Memif::new(name);
    let socket = memif.folder().join("loop.sock");
    let end =
        |role| format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
    let (near, far) = (end("client"), end("server"));
    let words = ["nic-check", "--json", "-p", memif.port(), "--only", checks];
    run(&[&words[..], &["--vdev", &near, "--loop-vdev", &far]].concat())
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let of = report["checks"].as_array().expect("a list").iter();
    of.clone().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn a_loop_has_its_properties_and_its_figures() {
    let report = looped("nic-check", "start,vlan,promiscuous,lcores,reset,restart,latency")
        .succeeded()
        .json();
    for name in ["start", "vlan", "promiscuous", "restart", "latency"] {
        assert_eq!(check(&report, name)["verdict"], "yes", "{report}");
    }
    assert_eq!(check(&report, "lcores")["verdict"], "not_run", "memif spreads nothing: {report}");
    assert_eq!(check(&report, "reset")["verdict"], "not_run", "it has no reset: {report}");
    let figure = check(&report, "latency")["figure"]["value"].as_f64().expect("a number");
    assert!((0.1..1e6).contains(&figure), "{figure} us");
    assert_eq!(report["port"]["driver"], "net_memif");
    let seconds = |name: &str| report[name].as_f64().expect("a number");
    assert_eq!(seconds("budget_seconds"), 300.0);
    assert!((0.1..300.0).contains(&seconds("seconds")), "{report}");
}

#[test]
fn a_nic_that_is_not_there_is_reported_with_the_reason() {
    let memif = Memif::new("nic-check-none");
    let words = ["nic-check", "--json", "-p", memif.port(), "--only", "start"];
    let nics = ["--pci", "ffff:ff:1f.0", "--loop-pci", "ffff:ff:1f.1"];
    let output = run(&[&words[..], &nics].concat());
    assert_eq!(output.code, Some(1), "{output:?}");
    let report = output.json();
    let start = check(&report, "start");
    assert_eq!(start["verdict"], "no");
    assert!(start["note"].as_str().expect("text").contains("ffff:ff:1f.1"), "{report}");
    assert!(report["port_fault"].as_str().expect("text").contains("ffff:ff:1f.0"), "{report}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_checks() {
    let nics = ["--vdev", "net_null0", "--loop-vdev", "net_null1"];
    let file = ["nic-check", "--out-json-file", "/nonexistent/report.json"];
    let output = run(&[&file[..], &nics].concat());
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{output:?}");
    assert!(output.stderr.contains("creating /nonexistent/report.json"), "{output:?}");
    assert!(!output.stderr.contains("mtu-4200"), "no check has run: {output:?}");
}

#[test]
fn what_cannot_be_checked_is_refused_with_the_remedy() {
    for (args, part) in [
        (&["nic-check", "--only", "cables"][..], "mtu-9000"),
        (&["nic-check"][..], "--pci ADDR"),
        (&["nic-check", "--pci", "auto"][..], "not auto"),
        (&["nic-check", "--vdev", "net_null0", "--only", "start"][..], "--only is for the end"),
        (&["nic-check", "--vdev", "net_null0", "--json"][..], "--json is for the end"),
    ] {
        let output = run(args);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(part), "{output:?}");
    }
}
