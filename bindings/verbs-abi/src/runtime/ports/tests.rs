use super::*;

const TCP: PortSpace = PortSpace::Tcp;

/// A fabric for one test. It is removed when this is dropped.
struct Fabric(PathBuf);

impl Fabric {
    fn new(name: &str) -> Self {
        let name = format!("uroce-ports-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn member(&self, number: u8) -> PortConfig {
        PortConfig::local(self.0.display().to_string()).as_member(number)
    }

    /// Makes the locked file of another process that lives: process 1 of another PID namespace.
    fn other(&self, name: &str, text: &str) -> File {
        let path = self.0.join(DIRECTORY).join(format!("{name}-1-7-0"));
        let file = File::create(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::write(path, text).unwrap();
        file
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn to(address: &str) -> Binding {
    let at = at(address);
    Binding { space: TCP, at, reuse: false, one_version: at.is_ipv4(), listens: false }
}

fn listen(port: &PortConfig, address: &str) -> Notice {
    let mut notice = take(port, to(address)).unwrap().unwrap().unwrap();
    notice.set_listening(true).unwrap().unwrap();
    notice.announce().unwrap();
    notice
}

/// The listener that a connection reaches.
fn find(port: &PortConfig, space: PortSpace, to: SocketAddr, is_heard: bool) -> Option<IpAddr> {
    match super::find(port, space, to, is_heard) {
        Reached::Listener(ip) => Some(ip),
        Reached::Soon(_) | Reached::Free => None,
    }
}

#[test]
fn a_process_that_is_about_to_listen_is_told_from_one_without_the_port() {
    let fabric = Fabric::new("soon");
    let (one, two) = (fabric.member(1), fabric.member(2));
    let two_ip: IpAddr = "192.0.2.2".parse().unwrap();
    let reached = || super::find(&one, TCP, at("127.0.0.1:7000"), false);
    let is_coming = || is_coming(&one, TCP, at("192.0.2.2:7000"));
    assert_eq!((reached(), is_coming()), (Reached::Free, false));
    let mut notice = take(&two, to("0.0.0.0:7000")).unwrap().unwrap().unwrap();
    assert_eq!((reached(), is_coming()), (Reached::Soon(two_ip), true));
    notice.set_listening(true).unwrap().unwrap();
    assert_eq!((reached(), is_coming()), (Reached::Soon(two_ip), true));
    assert_eq!(super::find(&one, TCP, at("[::1]:7000"), false), Reached::Free);
    assert!(!super::is_coming(&one, TCP, at("192.0.2.3:7000")), "another member");
    notice.announce().unwrap();
    assert_eq!((reached(), is_coming()), (Reached::Listener(two_ip), false));
    notice.set_listening(false).unwrap().unwrap();
    assert_eq!((reached(), is_coming()), (Reached::Soon(two_ip), true));
    // An id of the connecting process is not waited for: it cannot begin to listen meanwhile.
    assert_eq!(super::find(&two, TCP, at("127.0.0.1:7000"), false), Reached::Free);
    assert!(!super::is_coming(&two, TCP, at("192.0.2.2:7000")));
}

#[test]
fn a_listener_is_found_by_others_at_its_addresses_and_until_it_ends() {
    let fabric = Fabric::new("found");
    let (one, two) = (fabric.member(1), fabric.member(2));
    let v4 = listen(&two, "0.0.0.0:7000");
    let found = Some("192.0.2.2".parse().unwrap());
    assert_eq!(find(&one, TCP, at("127.0.0.1:7000"), false), found);
    assert_eq!(find(&one, TCP, at("[::1]:7000"), false), None, "it listens by IPv4");
    assert_eq!(find(&one, TCP, at("127.0.0.1:7001"), false), None);
    assert_eq!(find(&one, PortSpace::Udp, at("127.0.0.1:7000"), false), None);
    assert_eq!(find(&two, TCP, at("127.0.0.1:7000"), true), found, "its own");
    assert_eq!(find(&Fabric::new("x").member(1), TCP, at("127.0.0.1:7000"), false), None);
    // Dropping a second id at the port has no effect on the first.
    drop(listen(&two, "[::]:7000"));
    assert_eq!(find(&one, TCP, at("127.0.0.1:7000"), false), found);
    drop(v4);
    assert_eq!(find(&one, TCP, at("127.0.0.1:7000"), false), None);
    // An id that is only bound does not listen.
    let bound = take(&two, to("0.0.0.0:7000")).unwrap().unwrap();
    assert_eq!(find(&one, TCP, at("127.0.0.1:7000"), false), None);
    drop(bound);
}

#[test]
fn the_listener_at_the_very_address_is_preferred() {
    let fabric = Fabric::new("very");
    let one = fabric.member(1);
    let notices = [
        (2, "10.0.0.2:7000"),
        (3, "10.0.0.1:7000"),
        (4, "0.0.0.0:7001"),
        (5, "10.0.0.1:7001"),
        (6, "192.0.2.6:7001"),
    ]
    .map(|(member, address)| listen(&fabric.member(member), address));
    let found = |to: &str| find(&one, TCP, at(to), false).map(|ip| ip.to_string());
    assert_eq!(found("10.0.0.1:7000").unwrap(), "192.0.2.3");
    assert_eq!(found("10.0.0.2:7000").unwrap(), "192.0.2.2");
    assert_eq!(found("10.0.0.1:7001").unwrap(), "192.0.2.5");
    assert_eq!(found("127.0.0.1:7001").unwrap(), "192.0.2.4");
    drop(notices);
}

#[test]
fn a_listener_at_one_address_of_the_host_is_not_found_at_the_others() {
    let fabric = Fabric::new("others");
    let (one, two) = (fabric.member(1), fabric.member(2));
    let _notice = listen(&two, "10.0.0.2:7000");
    // The manager of member 2 listens at the member's address.
    let both = |to: &str| [find(&one, TCP, at(to), false), find(&two, TCP, at(to), true)];
    for to in ["10.0.0.1:7000", "127.0.0.1:7000", "0.0.0.0:7000", "[::1]:7000"] {
        assert_eq!(both(to), [None; 2], "{to}");
    }
    assert_eq!(both("10.0.0.2:7000"), [Some("192.0.2.2".parse().unwrap()); 2]);
    let first = listen(&one, "10.0.0.1:7000");
    assert_eq!(both("10.0.0.1:7000"), [Some("192.0.2.1".parse().unwrap()); 2]);
    drop(first);
}

#[test]
fn a_listener_at_the_address_of_its_member_is_found_at_those_of_the_host() {
    let fabric = Fabric::new("members");
    let (one, two) = (fabric.member(1), fabric.member(2));
    let (v4, v6) = ("192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let _v4 = listen(&two, "192.0.2.2:7000");
    let _v6 = listen(&two, "[2001:db8::2]:7001");
    let found = |to: &str| find(&one, TCP, at(to), false);
    for host in ["127.0.0.1", "0.0.0.0", "10.0.0.1"] {
        assert_eq!(found(&format!("{host}:7000")), Some(v4), "{host}");
        assert_eq!(found(&format!("{host}:7001")), None, "{host}");
    }
    assert_eq!((found("[::1]:7000"), found("[::1]:7001")), (None, Some(v6)));
    // Among equal listeners, that of the own member is preferred.
    let _own = listen(&one, "192.0.2.1:7000");
    assert_eq!(found("127.0.0.1:7000"), Some("192.0.2.1".parse().unwrap()));
}

#[test]
fn a_listener_without_a_notice_is_the_first() {
    let fabric = Fabric::new("unseen");
    let (one, two) = (fabric.member(1), fabric.member(2));
    let _notice = listen(&two, "0.0.0.0:7000");
    assert_eq!(find(&one, TCP, at("127.0.0.1:7000"), true), Some("192.0.2.1".parse().unwrap()));
}

#[test]
fn the_address_of_a_request_is_the_one_that_its_id_is_bound_to() {
    let fabric = Fabric::new("from");
    let (one, two) = (fabric.member(1), fabric.member(2));
    let _host = take(&two, to("10.0.0.1:9000")).unwrap().unwrap();
    let _own = take(&two, to("192.0.2.2:9001")).unwrap().unwrap();
    let _any = take(&two, to("0.0.0.0:9002")).unwrap().unwrap();
    let from = |at: &str| bound_at(&one, TCP, at.parse().unwrap()).map(|ip| ip.to_string());
    assert_eq!(from("192.0.2.2:9000").unwrap(), "10.0.0.1");
    assert_eq!(from("192.0.2.2:9001").unwrap(), "192.0.2.2");
    assert_eq!([from("192.0.2.2:9002"), from("192.0.2.3:9000")], [None, None]);
}

#[test]
fn a_port_that_another_process_has_is_refused_by_linuxs_rules() {
    let fabric = Fabric::new("taken");
    let one = fabric.member(1);
    drop(take(&one, to("0.0.0.0:7000")).unwrap().unwrap());
    let _any = fabric.other("tcp-7000-m9", "at 0.0.0.0\none-version\nown 192.0.2.9\n");
    let _host = fabric.other("tcp-7001-m9", "at 10.0.0.1\nlistens\nown 192.0.2.9\n");
    let _own = fabric.other("tcp-7002-m9", "at 192.0.2.9\nown 192.0.2.9\n");
    let _v6 = fabric.other("tcp-7003-m9", "at ::\none-version\nown 192.0.2.9\n");
    let _both = fabric.other("tcp-7004-m9", "at ::\nown 192.0.2.9\n");
    let _shared = fabric.other("tcp-7005-m9", "at 0.0.0.0\none-version\nreuse\nown 192.0.2.9\n");
    let _broken = fabric.other("tcp-7006-m9", "at x\n");
    let _host_v6 = fabric.other("tcp-7007-m9", "at 2001:db8:9::1\nown 192.0.2.9\n");
    let _only_v6 = fabric.other("tcp-7008-m9", "at 2001:db8:9::1\none-version\nown 192.0.2.9\n");
    let (used, wide) = (Err(Errno::EADDRINUSE), Err(Errno::EADDRNOTAVAIL));
    for (address, expected) in [
        ("0.0.0.0:7000", wide),
        ("127.0.0.1:7000", wide),
        ("[::]:7000", wide),
        ("10.0.0.1:7000", wide),
        // No wildcard stands for a member's address.
        ("192.0.2.1:7000", Ok(())),
        ("10.0.0.1:7001", used),
        ("10.0.0.2:7001", Ok(())),
        ("0.0.0.0:7001", wide),
        ("0.0.0.0:7002", Ok(())),
        ("0.0.0.0:7003", Ok(())),
        ("[::]:7003", wide),
        ("127.0.0.1:7004", wide),
        ("0.0.0.0:7006", Ok(())),
        // Without RDMA_OPTION_ID_AFONLY an IPv6 address conflicts with a wildcard of IPv4.
        ("0.0.0.0:7007", wide),
        ("10.0.0.1:7007", Ok(())),
        ("0.0.0.0:7008", Ok(())),
    ] {
        assert_eq!(take(&one, to(address)).unwrap().map(drop), expected, "{address}");
    }
    let shared = Binding { reuse: true, ..to("0.0.0.0:7005") };
    assert_eq!(take(&one, to("0.0.0.0:7005")).unwrap().map(drop), wide);
    let mut shared = take(&one, shared).unwrap().unwrap().unwrap();
    assert_eq!(shared.set_listening(true).unwrap(), wide);
    drop(_shared);
    assert_eq!(shared.set_listening(true).unwrap(), Ok(()));
    shared.announce().unwrap();
    assert!(find(&fabric.member(2), TCP, at("127.0.0.1:7005"), false).is_some());
    assert_eq!(shared.set_listening(false).unwrap(), Ok(()));
    assert!(find(&fabric.member(2), TCP, at("127.0.0.1:7005"), false).is_none());
}

#[test]
fn what_the_dead_have_left_is_not_found_and_goes_with_the_next_of_their_number() {
    let fabric = Fabric::new("dead");
    let (one, two) = (fabric.member(1), fabric.member(2));
    drop(listen(&two, "0.0.0.0:7000"));
    let place = fabric.0.join(DIRECTORY);
    let left = place.join("tcp-7000-m2-1-7-0");
    fs::write(&left, "at 0.0.0.0\nlistens\nown 192.0.2.2\n").unwrap();
    assert_eq!(find(&one, TCP, at("127.0.0.1:7000"), false), None);
    assert!(take(&one, to("0.0.0.0:7000")).unwrap().is_ok() && left.exists());
    drop(listen(&two, "0.0.0.0:7001"));
    assert!(!left.exists());
    // A pipe of this name: opening it would wait for a writer.
    let pipe = format!("tcp-7002-m9-{}-{}-0", std::process::id(), pid_namespace());
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, place.join(pipe), kind, Mode::RWXU, 0).unwrap();
    assert_eq!(find(&one, TCP, at("127.0.0.1:7002"), false), None);
    let unused = format!("tcp-1-m1-{}-{}-0", u32::MAX, pid_namespace());
    assert!(has_ended(&unused) && !has_ended("tcp-1-m1-1-7-0"));
}

#[test]
fn a_process_that_does_not_give_the_lock_back_is_named_and_not_waited_for() {
    let fabric = Fabric::new("lock");
    let one = fabric.member(1);
    drop(take(&one, to("0.0.0.0:7000")).unwrap().unwrap());
    let held = lock(&fabric.0.join(DIRECTORY)).unwrap();
    let said = take(&one, to("0.0.0.0:7000")).unwrap_err().to_string();
    assert!(said.contains("ports/lock: another process does not give it back"), "{said}");
    // A child that is forked now has a descriptor of the locked file as long as it lives.
    let childs = held.0.try_clone().unwrap();
    drop(held);
    assert!(take(&one, to("0.0.0.0:7000")).unwrap().is_ok());
    drop(childs);
}

#[test]
fn only_ports_of_the_local_fabric_have_notices() {
    let port = PortConfig::ring("r").ip("192.0.2.1/24").unwrap();
    assert!(take(&port, to("0.0.0.0:7000")).unwrap().unwrap().is_none());
}
