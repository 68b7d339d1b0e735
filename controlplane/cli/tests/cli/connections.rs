//! Connections of commands, in this process, to another one and in the program's own: listen,
//! connect, agree on another path, disconnect.

use std::time::{Duration, Instant};

use uroce::cm::{ConnectParam, Connection, Destination, Listener};
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{Config, ConnectOptions, Context, QpInit};
use uroce_command::Answer;
use uroce_command::answer::{Connected, Connection as Row, Qp};

use crate::attached::Process;
use crate::capture::Folder;
use crate::lab::{Lab, SOON, answer, ask, eventually, fails, made, says, text, uroce};
use crate::objects::Own;

/// Runs `listen` or `connect`.
fn connected(line: &str) -> Connected {
    match answer(line) {
        Answer::Connected(connected) => connected,
        other => panic!("{line}: {other:?}"),
    }
}

fn query(qpn: u32) -> Qp {
    match answer(&format!("query qp {qpn}")) {
        Answer::QpDetail(mut qps) => qps.remove(0),
        other => panic!("{other:?}"),
    }
}

fn ids() -> Vec<Row> {
    match answer("show cm") {
        Answer::Cm(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn is_gone(qpn: u32) -> bool {
    text(&ask(&format!("query qp {qpn}")).stderr).contains("(ENOENT)")
}

#[test]
fn a_listener_is_connected_to_messages_pass_and_the_end_takes_both_queue_pairs() {
    let _lab = Lab::new();
    let listener = connected("listen 7471 backlog 4 device right depth 16");
    assert_eq!((listener.local.port(), listener.peer, listener.qpn), (7471, None, None));
    let near = connected("connect 192.0.2.2 7471 device left");
    assert_eq!(near.peer.map(|peer| peer.to_string()).as_deref(), Some("192.0.2.2:7471"));
    let qp = near.qpn.expect("a QP");
    let far = query(qp).dest_qpn;
    assert_eq!((query(qp).state.as_str(), query(far).max_send_wr), ("RTS", 16));
    let accepted = ids().into_iter().find(|row| row.device == "right" && row.qpn == Some(far));
    let accepted = accepted.expect("`show cm` has the other end").id;
    says(&format!("wait cm {} established device left", near.id));
    says(&format!("wait cm {accepted} established device right timeout 20000"));

    // Without a domain or queue, `listen` and `connect` have made one of each device.
    assert_ne!((near.pd, near.cq), (listener.pd, listener.cq));
    for pd in [near.pd, listener.pd] {
        made(&format!("reg mr pd {pd} len 64"));
    }
    says(&format!("post recv qp {far} len 64"));
    says(&format!("post send qp {qp} len 16"));
    let received = says(&format!("poll cq {} timeout 20000", listener.cq));
    assert!(received.contains("success") && received.contains("Recv"), "{received}");
    assert!(says(&format!("show qp {qp}")).contains("RTS"));
    let refused = fails(&format!("migrate qp {qp}"));
    assert!(refused.contains("rearm both ends"), "{refused}");

    says(&format!("disconnect {} device left", near.id));
    assert!(is_gone(qp));
    eventually("the end of the other queue pair", || is_gone(far));
    let ended = fails(&format!("wait cm {accepted} established device right"));
    assert!(ended.contains("has been disconnected (ENOTCONN)\nconnect again"), "{ended}");
    says(&format!("disconnect {accepted} device right"));
    // What its connections have used is free; what the listener needs is not.
    let busy = fails(&format!("destroy cq {}", listener.cq));
    assert!(busy.contains(&format!("listener {} uses CQ", listener.id)), "{busy}");
    assert!(fails(&format!("destroy pd {}", listener.pd)).contains("(EBUSY)"));
    says(&format!("disconnect {} device right", listener.id));
    says(&format!("destroy cq {}", listener.cq));
    let refused = fails("connect 192.0.2.2 7471 device left");
    assert_eq!(
        refused,
        "192.0.2.2:7471 refuses: nothing listens there (ECONNREFUSED)\n\
         listen at the peer: listen PORT\n"
    );
}

#[test]
fn wrong_numbers_addresses_and_devices_are_refused_with_a_remedy() {
    let _lab = Lab::new();
    for line in ["disconnect 77", "wait cm 77 established", "cm lap 77 alt 192.0.2.9"] {
        assert_eq!(fails(line), "no CM 77 (ENOENT)\n`show cm` lists those that exist\n", "{line}");
    }
    let listener = connected("listen 7471").id;
    let again = fails("listen 7471");
    assert!(
        again.contains("is in use") && again.contains("\nchoose another port; `show cm listen`"),
        "{again}"
    );
    let part = fails("listen 7471 address 192.0.2.1");
    assert!(part.contains("choose another port; `show cm listen` has those in use"), "{part}");
    assert_ne!(connected("listen 0").local.port(), 0);
    let foreign = fails("listen 7472 address 198.51.100.7");
    assert!(foreign.contains("not an address of this device"), "{foreign}");
    assert!(foreign.ends_with("(EADDRNOTAVAIL)\n`show gid` has the own addresses\n"), "{foreign}");
    assert!(fails("listen 7472 device nowhere").contains("no device nowhere (ENOENT)"));
    assert!(fails("listen 7472 pd 77").contains("no command has made PD 77 (ENOENT)"));
    // The queue pair of the first connection will be refused.
    says("listen 7473 depth 4000000000 device right");
    let refused = fails("connect 192.0.2.2 7473 device left");
    assert!(refused.contains("refuses: reason 1 (no QP available) (ECONNREFUSED)"), "{refused}");
    let cq = made("create cq depth 4 device right").number;
    let mixed = fails(&format!("listen 7472 device left cq {cq}"));
    assert!(mixed.contains("of different devices (EINVAL)\ncreate them with"), "{mixed}");
    assert!(fails("connect 192.0.2.2 7471 depth 0").contains("(EINVAL)"));
    for usage in ["listen 65536", "connect 192.0.2.2 -1", "connect nowhere 1", "wait cm 1 up"] {
        assert_eq!(ask(usage).status.code(), Some(2), "{usage}");
    }
    assert_eq!(ask("connect 192.0.2.2 7471 timeout 60001").status.code(), Some(2));
    assert_eq!(ask("disconnect 4294967296").status.code(), Some(2));
    let is_listener = fails(&format!("wait cm {listener} established device left"));
    assert!(is_listener.contains("is a listener (EINVAL)\n`show cm`"), "{is_listener}");
    let lap = fails(&format!("cm lap {listener} alt 192.0.2.9 device left"));
    assert!(lap.contains("is a listener (EPERM)"), "{lap}");
    assert!(ids().iter().all(|row| row.peer.is_none()), "no attempt has left a connection");
}

#[test]
fn an_attempt_that_fails_leaves_nothing() {
    let _lab = Lab::new();
    let before = says("show qp").lines().count();
    let far = fails("connect 203.0.113.1 7471");
    assert!(far.contains("(ENETUNREACH)\n`show gid` has the own addresses"), "{far}");
    let begin = Instant::now();
    let nobody = fails("connect 192.0.2.77 7471 timeout 60000");
    assert!(nobody.contains("(ETIMEDOUT)\ncheck the address, and the link"), "{nobody}");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let soon = fails("connect 192.0.2.78 7471 timeout 1");
    assert!(soon.contains("has not answered within 1 ms (ETIMEDOUT)\nwait longer"), "{soon}");
    let refused = fails("connect 192.0.2.2 7471");
    assert!(refused.contains("(ECONNREFUSED)"), "{refused}");
    assert_eq!(says("show qp").lines().count(), before);
}

#[test]
fn the_programs_connection_is_not_ended_unless_that_is_meant() {
    let lab = Lab::new();
    let server = Listener::bind(&lab.right.context, "[::]:7471".parse().unwrap(), 4).unwrap();
    let mut theirs = lab.right.pd.create_qp(&QpInit::new(&lab.right.cq)).expect("QPs are left");
    theirs.init(&ConnectOptions::default()).expect("INIT");
    let ours = lab.left.pd.create_qp(&QpInit::new(&lab.left.cq)).expect("QPs are left");
    let to = Destination::to("192.0.2.2:7471".parse().unwrap());
    let client = Connection::begin(&ours, to, &ConnectParam::default()).expect("begins");
    let request = server.next(SOON).expect("a request");
    let accepted = request.accept(&theirs, &ConnectParam::default()).expect("accepts");
    client.wait_established(SOON).expect("established");
    accepted.wait_established(SOON).expect("established");
    let row = |device: &str, is_listener: bool| {
        let mut rows = ids().into_iter();
        let is_it = |row: &Row| row.device == device && row.peer.is_none() == is_listener;
        rows.find(is_it).expect("an id").id
    };
    let id = row("left", false);
    says(&format!("wait cm {id} established device left"));
    let refused = fails(&format!("disconnect {id} device left"));
    assert!(refused.contains(" is the program's (EPERM)\nadd --force"), "{refused}");
    let refused = fails(&format!("cm lap {id} alt 192.0.2.9 device left"));
    assert!(refused.contains("is the program's (EPERM)\na QP of the program"), "{refused}");
    let listener = row("right", true);
    let refused = fails(&format!("disconnect {listener} device right --force"));
    assert!(
        refused.contains("is the program's listener (EPERM)\nthe program ends it"),
        "{refused}"
    );
    assert_eq!(query(ours.qpn().value()).state, "RTS");
    says(&format!("disconnect {id} device left --force"));
    assert_eq!(query(ours.qpn().value()).state, "ERR");
    assert!(accepted.next_event(SOON).is_some(), "the peer is told");
    let ended = fails(&format!("wait cm {id} established device left"));
    assert!(ended.contains(&format!("CM {id} has ended (ENOTCONN)")), "{ended}");
    drop(client);
}

#[test]
fn a_number_that_two_devices_have_needs_a_name() {
    let _lab = Lab::new();
    let [left, right] =
        ["left", "right"].map(|name| connected(&format!("listen 7471 device {name}")));
    assert_eq!(left.id, right.id, "each device counts its own");
    let id = left.id;
    let both = fails(&format!("disconnect {id}"));
    assert_eq!(both, format!("several devices have a CM {id} (ENOTUNIQ)\nadd device NAME\n"));
    says(&format!("disconnect {id} device right"));
    says(&format!("disconnect {id}"));
    assert!(ids().is_empty());
}

#[test]
fn an_attempt_of_a_client_that_goes_is_given_up() {
    let lab = Lab::new();
    // Its program does not answer requests.
    let _server = Listener::bind(&lab.right.context, "[::]:7471".parse().unwrap(), 4).unwrap();
    let before = says("show qp").lines().count();
    let pid = std::process::id().to_string();
    let line = ["-s", &pid, "connect", "192.0.2.2", "7471", "timeout", "60000", "device", "left"];
    let mut client = uroce(&line).spawn().expect("the program runs");
    let qps = || says("show qp").lines().count();
    eventually("the attempt", || qps() == before + 1);
    client.kill().expect("it runs");
    client.wait().expect("an end");
    eventually("its end", || qps() == before);
}

#[test]
fn the_connections_that_ended_first_are_forgotten_first() {
    let _lab = Lab::new();
    let script = format!("/tmp/uroce-ended-{}", std::process::id());
    let to_left = "connect 192.0.2.1 7999 device right\n".repeat(64);
    let to_right = "connect 192.0.2.2 7999 device left\n";
    std::fs::write(&script, to_left + to_right).unwrap();
    let pid = std::process::id().to_string();
    let output = uroce(&["-s", &pid, "-f", &script]).output().expect("the program runs");
    std::fs::remove_file(&script).unwrap();
    assert_eq!(text(&output.stderr).matches("nothing listens there").count(), 65);
    let ends = |id: u32, device: &str| fails(&format!("wait cm {id} established device {device}"));
    assert!(ends(1, "right").contains("no CM 1 (ENOENT)"), "the first is forgotten");
    assert!(ends(2, "right").contains("nothing listens there"), "the second is not");
    assert!(ends(1, "left").contains("nothing listens there"), "nor is the last");
}

#[test]
fn listeners_of_a_device_take_a_bounded_number_of_connections() {
    let mut config = crate::lab::config();
    config.devices[1].max_qps = 16;
    let _lab = Lab::of(&config);
    for port in [7471, 7472] {
        connected(&format!("listen {port} device right depth 1"));
        for _ in 0..4 {
            connected(&format!("connect 192.0.2.2 {port} device left depth 1"));
        }
    }
    let refused = fails("connect 192.0.2.2 7471 device left depth 1");
    assert!(refused.contains("refuses: reason 3 (no resources available)"), "{refused}");
}

#[test]
fn a_listener_takes_a_bounded_number_of_connections() {
    let _lab = Lab::new();
    connected("listen 7471 device right depth 1");
    let script = format!("/tmp/uroce-many-{}", std::process::id());
    let line = "connect 192.0.2.2 7471 device left depth 1\n";
    std::fs::write(&script, line.repeat(257)).unwrap();
    let pid = std::process::id().to_string();
    let output = uroce(&["-s", &pid, "-f", &script]).output().expect("the program runs");
    std::fs::remove_file(&script).unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said.matches("192.0.2.2:7471: QP 0x").count(), 256, "{errors}");
    assert!(errors.contains("refuses: reason 3 (no resources available)"), "{errors}");
}

#[test]
fn a_connection_ends_when_its_peer_dies() {
    let folder = Folder::new("connections");
    let fabric = folder.file("fabric");
    let port = PortConfig::local(std::path::Path::new(&fabric)).mtu(4200);
    let config = Config::new().device(DeviceConfig::new("near").port(port));
    let _context = Context::open(&config, "near").expect("opens");
    let (peer, told) = Process::start("a_child_that_is_written_to", &fabric, "");
    let [address, va, rkey] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let conn = connected(&format!("connect {address} 7471 timeout 20000"));
    let (qp, id) = (conn.qpn.expect("a QP"), conn.id);
    made(&format!("reg mr pd {} len 64 pattern 5", conn.pd));
    says(&format!("post write qp {qp} len 64 rkey {rkey} addr {va}"));
    assert!(says(&format!("poll cq {} timeout 20000", conn.cq)).contains("success"));
    drop(peer);
    eventually("the end of the connection", || is_gone(qp));
    let ended = fails(&format!("wait cm {id} established"));
    assert!(ended.contains("has been disconnected (ENOTCONN)"), "{ended}");
    says(&format!("disconnect {id}"));
    assert!(fails(&format!("disconnect {id}")).contains("(ENOENT)"));
    let gone = fails(&format!("connect {address} 7471 timeout 2000"));
    assert!(gone.contains("(ETIMEDOUT)") || gone.contains("(EHOSTUNREACH)"), "{gone}");
}

/// Returns the configuration of two devices with two ports each.
fn two_paths() -> Config {
    let device = |name: &str, host: u8| {
        let port = |link: &str, net: u8| {
            let port = PortConfig::ring(link).mtu(4200);
            port.ip(&format!("192.0.{net}.{host}/24")).expect("an address")
        };
        DeviceConfig::new(name).port(port("first", 2)).port(port("second", 3))
    };
    Config::new().device(device("left", 1)).device(device("right", 2))
}

#[test]
fn an_alternate_path_is_agreed_on_armed_and_migrated_to_and_then_another() {
    let config = two_paths();
    let _open = ["left", "right"].map(|name| Context::open(&config, name).expect("it opens"));
    connected("listen 7471 device right");
    let near = connected("connect 192.0.2.2 7471 alt 192.0.3.2 device left");
    let (qp, id) = (near.qpn.expect("a QP"), near.id);
    let far = query(qp).dest_qpn;
    made(&format!("reg mr pd {} len 8", near.pd));
    let touch = || {
        says(&format!("post write qp {qp} len 0 rkey 0 addr 0"));
        assert!(says(&format!("poll cq {} timeout 20000", near.cq)).contains("success"));
    };
    let are_armed = || {
        touch();
        [qp, far].iter().all(|qp| query(*qp).migration == "ARMED")
    };
    eventually("both ends armed", are_armed);
    says(&format!("migrate qp {qp}"));
    eventually("the migration of both ends", || {
        touch();
        [qp, far].iter().all(|qp| query(*qp).migrations == 1)
    });
    // Back: by another LAP, as the first path is the alternate one now.
    let current = fails(&format!("cm lap {id} alt 192.0.3.2 device left"));
    assert!(current.contains("APR status "), "{current}");
    assert!(current.contains("(ECONNREFUSED)\nname an address of the peer other"), "{current}");
    let nowhere = fails(&format!("cm lap {id} alt 203.0.113.1 device left"));
    assert!(nowhere.contains("(ENETUNREACH)"), "{nowhere}");
    says(&format!("cm lap {id} alt 192.0.2.2 source 192.0.2.1 device left"));
    eventually("both ends armed again", are_armed);
    says(&format!("migrate qp {qp}"));
    eventually("the way back", || {
        touch();
        query(far).migrations == 2
    });
    says(&format!("disconnect {id} device left"));
    eventually("the end", || is_gone(far));
}

#[test]
fn numbers_of_connections_are_completed() {
    let _lab = Lab::new();
    let (first, second) = (connected("listen 7471").id, connected("listen 7472").id);
    let pid = std::process::id().to_string();
    for words in [&["disconnect", ""][..], &["show", "cm", ""], &["wait", "cm", ""]] {
        let output = uroce(&[&["complete", "-s", &pid], words].concat()).output().unwrap();
        let said = text(&output.stdout);
        for id in [first, second] {
            assert!(
                said.lines().any(|line| line.split('\t').next() == Some(&id.to_string())),
                "{said}"
            );
        }
    }
}

#[test]
fn a_device_of_its_own_connects_to_itself() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i", "--ip=0,192.0.2.1/24"]);
    own.type_line("listen 7471");
    assert_eq!(own.until("CM "), "CM 1 of uroce0, [::]:7471: PD 0, CQ 0");
    own.type_line("connect 192.0.2.1 7471");
    let said = own.until("CM ");
    assert!(said.contains(" to 192.0.2.1:7471: QP 0x") && said.ends_with("PD 0, CQ 0"), "{said}");
    let words: Vec<&str> = said.split([' ', ',']).collect();
    let qp = words.iter().find(|word| word.starts_with("0x")).expect("a QP").to_string();
    own.type_line(&format!("wait cm {} established\nreg mr pd 0 len 8", words[1]));
    own.type_line(&format!("post write qp {qp} len 0 rkey 0 addr 0\npoll cq 0 timeout 20000"));
    own.until("success");
    own.type_line(&format!("disconnect {}\ndisconnect 1", words[1]));
    assert!(own.quit());
}

#[test]
fn a_file_of_commands_listens_and_connects() {
    let path = format!("/tmp/uroce-connections-{}", std::process::id());
    let commands = "listen 7471\nconnect 192.0.2.1 7471\nshow cm listen\nconnect 192.0.2.1 7472\n";
    std::fs::write(&path, commands).unwrap();
    let file = format!("--cmdline-file={path}");
    let arguments = ["--vdev=net_null0,no-rx=1", "--", &file, "--ip=0,192.0.2.1/24"];
    let mut command = uroce(&arguments);
    command.stdin(std::process::Stdio::null());
    let output = command.output().expect("the program runs");
    std::fs::remove_file(&path).unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("to 192.0.2.1:7471: QP 0x") && said.contains("LISTEN"), "{said}");
    assert!(errors.contains("192.0.2.1:7472 refuses: nothing listens there"), "{errors}");
    assert_eq!(output.status.code(), Some(1), "a command has failed");
}
