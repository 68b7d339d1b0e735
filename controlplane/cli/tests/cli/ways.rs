//! Routes and neighbours that are added and removed, in this process and in the program's own.

use std::process::{Command, Stdio};

use uroce_command::Answer;

use crate::capture::Folder;
use crate::lab::{Lab, answer, ask, fails, says, text};
use crate::own::run;

/// Returns the routes of the port 0, as they are shown.
fn routes() -> Vec<String> {
    let shown = says("show route");
    let of_left = shown.lines().filter(|line| line.starts_with("left/1 "));
    of_left.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_route_leads_to_a_network_until_it_is_removed() {
    let mut lab = Lab::new();
    says("ip add 1 198.51.100.2/24");
    let ping = "ping 198.51.100.2 device left count 2 interval 10";
    assert!(fails(ping).contains("(ENETUNREACH)"));
    says("route add 0 198.51.100.0/24 via 192.0.2.2");
    says(ping);
    assert_eq!(routes(), ["192.0.2.0/24 -", "198.51.100.0/24 192.0.2.2"]);
    says("route add 0 default via 192.0.2.2");
    says("route del 0 198.51.100.0/24 via 192.0.2.2");
    says(ping);
    assert_eq!(routes(), ["192.0.2.0/24 -", "default 192.0.2.2"]);
    says("route del 0 default via 192.0.2.2");
    assert!(fails(ping).contains("(ENETUNREACH)"));
    // The paths of queue pairs are as they were.
    lab.write(1);
}

#[test]
fn a_route_that_cannot_be_is_refused_by_name() {
    let _lab = Lab::new();
    says("route add 0 203.0.113.0/24 via 192.0.2.2");
    for (line, error) in [
        (
            "route add 0 203.0.113.0/24 via 192.0.2.3",
            "a route to 203.0.113.0/24 via 192.0.2.2 already (EEXIST)\nremove it first",
        ),
        (
            "route add 0 203.0.112.7/24 via 192.0.2.2",
            "203.0.112.7/24 has bits behind its prefix (EINVAL)\ngive the network: 203.0.112.0/24",
        ),
        ("route add 0 203.0.112.0/33 via 192.0.2.2", "(EINVAL)\ngive it as 198.51.100.0/24"),
        ("route add 0 ::/0 via 192.0.2.2", "::/0 and 192.0.2.2 have different IP versions"),
        ("route add 0 default via 192.0.2.1", "192.0.2.1 is not another host on the port's link"),
        ("route add 0 default via 203.0.113.7", "203.0.113.7 is not another host"),
        ("route del 0 default via 192.0.2.2", "has no route to 0.0.0.0/0 via 192.0.2.2 (ENOENT)"),
        ("route del 0 203.0.113.0/24 via 192.0.2.3", "(ENOENT)\n`show route` has its routes"),
        ("route add 7 default via 192.0.2.2", "no port 7 (ENOENT)"),
    ] {
        let refused = fails(line);
        assert!(refused.contains(error), "{line}: {refused}");
    }
    for n in 1..64 {
        says(&format!("route add 0 10.0.{n}.0/24 via 192.0.2.2"));
    }
    assert!(fails("route add 0 10.1.0.0/24 via 192.0.2.2").contains("64 are the most (ENOMEM)"));
    assert_eq!(ask("route add 0 default").status.code(), Some(2), "a router is missing");
}

#[test]
fn a_fixed_neighbour_is_not_asked_for_until_it_is_removed() {
    let mut lab = Lab::new();
    let state = || match answer("show neigh") {
        Answer::Neigh(all) => all.into_iter().find(|one| one.device == "left"),
        other => panic!("{other:?}"),
    };
    let ping = "ping 192.0.2.2 device left count 1 interval 0";
    says("neigh add 0 192.0.2.2 02:00:00:00:00:99");
    let fixed = state().expect("a neighbour");
    assert_eq!(fixed.state, "PERMANENT");
    assert_eq!(fixed.mac.as_deref(), Some("02:00:00:00:00:99"));
    assert!(fails(ping).contains("(ETIMEDOUT)"), "that station is not there");
    says("neigh del 0 192.0.2.2");
    says(ping);
    let learned = state().expect("a neighbour");
    assert_eq!(learned.state, "REACHABLE");
    assert_eq!(learned.mac, Some(lab.right.context.ports()[0].mac.to_string()));
    // The paths of queue pairs are as they were.
    lab.write(1);
    for (line, error) in [
        ("neigh add 0 192.0.2.1 02:00:00:00:00:99", "192.0.2.1 is not another host"),
        ("neigh add 0 203.0.113.1 02:00:00:00:00:99", "203.0.113.1 is not another host"),
        ("neigh add 0 192.0.2.9 01:00:5e:00:00:01", "is not the Ethernet address of one host"),
        ("neigh add 0 192.0.2.9 00:00:00:00:00:00", "is not the Ethernet address of one host"),
        ("neigh del 0 192.0.2.9", "knows no neighbour 192.0.2.9, or is asking for it (ENOENT)"),
        ("neigh del 7 192.0.2.9", "no port 7 (ENOENT)"),
    ] {
        let refused = fails(line);
        assert!(refused.contains(error), "{line}: {refused}");
    }
    assert_eq!(ask("neigh add 0 192.0.2.9 2:0:0:0:0:1").status.code(), Some(2));
}

#[test]
fn routes_and_neighbours_of_the_kernel_are_left_to_it() {
    let folder = Folder::new("ways");
    let file = folder.file("uroce.toml");
    let port = "[[device.port]]\nethdev = { udp = \"lo\" }\nip = [\"192.0.2.1/24\"]\n";
    std::fs::write(&file, format!("[[device]]\nname = \"sockets\"\n{port}")).unwrap();
    let lines = [
        "route add 0 default via 192.0.2.2",
        "neigh add 0 192.0.2.2 02:00:00:00:00:99",
        "neigh del 0 192.0.2.2",
    ];
    let commands = folder.file("commands");
    std::fs::write(&commands, lines.join("\n") + "\n").unwrap();
    // The port of RoCEv2 is this namespace's alone.
    let script = "ip link set lo up && ip addr add 192.0.2.1/24 dev lo && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-ec", script, "sh"]);
    command.args([env!("CARGO_BIN_EXE_uroce"), "--", "--config", &file]);
    command.arg(format!("--cmdline-file={commands}")).stdin(Stdio::null());
    let output = command.output().expect("unshare");
    let errors = text(&output.stderr);
    let refused = "the kernel finds the port's routes and neighbours (EOPNOTSUPP)\n\
                   change those: ip route, ip neigh\n";
    assert_eq!(errors.matches(refused).count(), lines.len(), "{errors}");
}

#[test]
fn the_prompt_of_a_device_of_its_own_takes_them() {
    let arguments = ["--vdev=net_null0,no-rx=1", "--", "-i", "--ip=0,192.0.2.1/24"];
    let lines = "route add 0 default via 192.0.2.254\nneigh add 0 192.0.2.254 02:00:00:00:00:fe\n\
                 show route\nshow neigh\nquit\n";
    let output = run(&arguments, lines);
    let said = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{said}");
    let has = |words: &[&str]| {
        said.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == words)
    };
    assert!(has(&["uroce0/1", "default", "192.0.2.254"]), "{said}");
    assert!(has(&["uroce0/1", "192.0.2.254", "02:00:00:00:00:fe", "PERMANENT"]), "{said}");
}
