//! `ping`, to another device of this process, to another process and to the program's own.

use std::time::{Duration, Instant};

use uroce::config::{DeviceConfig, PortConfig};
use uroce::{Config, Context};
use uroce_command::Answer;
use uroce_command::answer::Ping;

use crate::attached::Process;
use crate::capture::Folder;
use crate::lab::{Lab, answer, ask, eventually, fails, says, text, uroce};
use crate::objects::Own;

fn ping(line: &str) -> Ping {
    match answer(line) {
        Answer::Ping(ping) => ping,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_peer_answers_and_the_times_are_told() {
    let _lab = Lab::new();
    let told = ping("ping 192.0.2.2 count 20 interval 1");
    assert_eq!((told.device.as_str(), told.sent), ("left", 20));
    assert!(!told.rtt_ns.is_empty() && told.rtt_ns.iter().all(|rtt| *rtt > 0), "{told:?}");
    assert!(told.rtt_ns.iter().all(|rtt| *rtt <= 250_000_000), "{told:?}");
    let said = says("ping 192.0.2.1 count 2 interval 0 device right");
    assert!(said.starts_with("192.0.2.1 from right: 2 requests, "), "{said}");
    assert!(said.contains(" % loss\nrtt min/avg/max = "), "{said}");
    let begin = Instant::now();
    ping("ping 192.0.2.2 count 3 interval 200");
    assert!(begin.elapsed() >= Duration::from_millis(400), "{:?}", begin.elapsed());
    eventually("the end of all requests", || says("show cm").lines().count() <= 1);
}

#[test]
fn lost_answers_are_counted_and_the_end_comes_in_time() {
    let _lab = Lab::new();
    ping("ping 192.0.2.2 count 1");
    says("set fault port 0 rx loss 1 seed 1");
    let begin = Instant::now();
    let lost = fails("ping 192.0.2.2 count 3 interval 0 timeout 100");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(lost.contains("3 requests, 0 answered, 100 % loss (ETIMEDOUT)\ncheck"), "{lost}");
    says("clear faults");
    says("set fault port 0 rx loss 0.5 seed 3");
    let some = ping("ping 192.0.2.2 count 40 interval 0 timeout 50");
    assert!(some.rtt_ns.len() > 2 && some.rtt_ns.len() < 38, "{some:?}");
    says("clear faults");
    eventually("the end of all requests", || says("show cm").lines().count() <= 1);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let _lab = Lab::new();
    let far = fails("ping 203.0.113.1");
    assert!(far.contains("(ENETUNREACH)\n`show gid` has the own addresses"), "{far}");
    let absent = fails("ping 192.0.2.77 count 1");
    assert!(absent.contains("(ETIMEDOUT)"), "{absent}");
    assert!(fails("ping 192.0.2.2 device nowhere").contains("no device nowhere (ENOENT)"));
    for long in ["count 241 interval 0", "count 61", "count 7 interval 10000"] {
        let refused = fails(&format!("ping 192.0.2.2 {long}"));
        assert!(refused.contains("requests take longer than 60000 ms (EINVAL)"), "{refused}");
    }
    for usage in ["ping", "ping host", "ping ::1 count 0", "ping ::1 count 1001"] {
        assert_eq!(ask(usage).status.code(), Some(2), "{usage}");
    }
    assert_eq!(ask("ping 192.0.2.2 timeout 251").status.code(), Some(2));
    assert_eq!(ask("ping 192.0.2.2 interval 10001").status.code(), Some(2));
}

#[test]
fn a_client_that_goes_leaves_no_request() {
    let _lab = Lab::new();
    let pid = std::process::id().to_string();
    let line = "ping 192.0.2.2 count 1000 interval 10 timeout 50";
    let arguments: Vec<&str> = ["-s", &pid].into_iter().chain(line.split(' ')).collect();
    let mut client = uroce(&arguments).spawn().expect("the program runs");
    std::thread::sleep(Duration::from_millis(300));
    client.kill().expect("it runs");
    client.wait().expect("an end");
    eventually("the end of all requests", || says("show cm").lines().count() <= 1);
    let rejected = || {
        says("show counters").lines().find(|line| line.contains("cm_rejected")).map(str::to_owned)
    };
    eventually("silence", || {
        let before = rejected();
        std::thread::sleep(Duration::from_millis(100));
        before == rejected()
    });
}

#[test]
fn another_process_answers_until_it_dies() {
    let folder = Folder::new("ping");
    let fabric = folder.file("fabric");
    let port = PortConfig::local(std::path::Path::new(&fabric)).mtu(4200);
    let config = Config::new().device(DeviceConfig::new("near").port(port));
    let _context = Context::open(&config, "near").expect("opens");
    let (peer, told) = Process::start("a_child_that_is_written_to", &fabric, "");
    let address = told.split(' ').next().expect("an address").to_owned();
    let line = format!("ping {address} count 3 interval 10");
    assert!(!ping(&line).rtt_ns.is_empty());
    drop(peer);
    let gone = fails(&line);
    assert!(gone.contains("(ETIMEDOUT)"), "{gone}");
}

#[test]
fn a_device_of_its_own_answers_itself_at_the_prompt_and_in_a_file() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i", "--ip=0,192.0.2.1/24"]);
    own.type_line("ping 192.0.2.1 count 2 interval 10");
    let said = own.until(" requests, ");
    assert!(said.starts_with("192.0.2.1 from uroce0: 2 requests, "), "{said}");
    own.until("rtt min/avg/max = ");
    assert!(own.quit());
    let path = format!("/tmp/uroce-ping-{}", std::process::id());
    std::fs::write(&path, "ping 192.0.2.1 count 1\n").unwrap();
    let file = format!("--cmdline-file={path}");
    let arguments = ["--vdev=net_null0,no-rx=1", "--", &file, "--ip=0,192.0.2.1/24"];
    let output = uroce(&arguments).stdin(std::process::Stdio::null()).output().expect("it runs");
    std::fs::remove_file(&path).unwrap();
    assert!(text(&output.stdout).contains("1 requests, 1 answered, 0 % loss"), "{output:?}");
}
