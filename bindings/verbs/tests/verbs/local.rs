//! Several devices as members of one local fabric.

use crate::common::{Side, join, pattern, post};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use uroce::config::{DeviceConfig, Idle, PortConfig};
use uroce::{Config, ConnectOptions, Context, OpenError, SendWr};
use uroce_local::{Member, MemberConfig, Queue, Sent};

/// A directory for one test. It is removed when this is dropped.
struct Fabric(PathBuf);

impl Fabric {
    fn new(name: &str) -> Fabric {
        let path = std::env::temp_dir().join(format!("uroce-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Fabric(path)
    }

    /// Opens a device as a member.
    fn open(&self, name: &str, change: impl FnOnce(PortConfig) -> PortConfig) -> Context {
        self.try_open(name, change).expect("a free number")
    }

    fn try_open(
        &self,
        name: &str,
        change: impl FnOnce(PortConfig) -> PortConfig,
    ) -> Result<Context, OpenError> {
        let port = change(PortConfig::local(self.0.join("fabric")).mtu(4200));
        Context::open(&Config::new().device(DeviceConfig::new(name).port(port)), name)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes `len` bytes that depend on `seed` from one side to the other, and checks them.
fn write(from: &mut Side, to: &Side, seed: u8, len: usize) {
    let data = pattern(seed, len);
    from.memory.write_at(0, &data).unwrap();
    let remote = to.memory.remote();
    post(&mut from.qp, SendWr::write(&[from.memory.slice(..len).unwrap()], remote));
    from.done();
    assert_eq!(to.bytes(0, len), data);
}

fn address(context: &Context) -> String {
    context.ports()[0].gids[0].to_ip().to_string()
}

#[test]
fn each_member_reaches_every_other_and_takes_the_smallest_free_number() {
    let fabric = Fabric::new("each");
    let contexts = ["a", "b", "c"].map(|name| fabric.open(name, |port| port));
    let addresses: Vec<String> = contexts.iter().map(address).collect();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    let options = ConnectOptions::default();
    for (one, other) in [(0, 1), (1, 2), (2, 0)] {
        let (mut left, mut right) = (Side::new(&contexts[one]), Side::new(&contexts[other]));
        join(&mut left, &mut right, &options);
        for round in 0..20 {
            write(&mut left, &right, round, 50_000);
            write(&mut right, &left, 100 + round, 8);
        }
    }
    let [_first, second, _third] = contexts;
    drop(second);
    assert_eq!(address(&fabric.open("d", |port| port)), "192.0.2.2");
}

#[test]
fn a_number_and_an_address_can_be_asked_for() {
    let fabric = Fabric::new("asked");
    let seventh = fabric.open("a", |port| port.as_member(7));
    assert_eq!(address(&seventh), "192.0.2.7");
    let named = fabric.open("b", |port| port.ip("198.51.100.9/24").unwrap());
    let ports = named.ports();
    assert_eq!((ports[0].gids.len(), ports[0].mac.0[5]), (1, 1));
    let taken = fabric.try_open("c", |port| port.as_member(7)).expect_err("the number is taken");
    assert!(taken.to_string().contains("number 7 is taken"), "{taken}");
}

#[test]
fn the_default_device_is_a_member_of_the_fabric_of_this_user() {
    let fabric = Fabric::new("default");
    // SAFETY: no other thread of this process reads or writes the environment.
    unsafe { std::env::set_var("XDG_RUNTIME_DIR", &fabric.0) };
    let default = Context::open_default().expect("a free number");
    assert_eq!((default.name(), address(&default).as_str()), ("uroce0", "192.0.2.1"));
    let port = PortConfig::local(fabric.0.join("uroce/fabric")).mtu(4200);
    let mut config = Config::built_in().unwrap();
    config.devices[0] = DeviceConfig::new("b").port(port);
    let other = Context::open(&config, "b").unwrap();
    assert_eq!(address(&other), "192.0.2.2");
    let (mut left, mut right) = (Side::new(&default), Side::new(&other));
    join(&mut left, &mut right, &ConnectOptions::default());
    write(&mut left, &right, 1, 50_000);
    write(&mut right, &left, 2, 8);
}

/// A member that has a link to member 1 and does nothing more.
fn idle_peer(fabric: &Fabric) -> (Member, Queue) {
    let directory = fabric.0.join("fabric");
    let config = MemberConfig { directory, number: None, queues: 1, frame_max: 4300 };
    let member = Member::join(config).expect("a free number");
    let mut queue = member.queue(0).expect("it is free");
    // An Ethernet frame that means nothing.
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&uroce_local::mac_of(1).0);
    frame[6..12].copy_from_slice(&member.mac().0);
    let begin = Instant::now();
    loop {
        queue.begin(uroce_transport::Instant::from_nanos(begin.elapsed().as_nanos() as u64 + 1));
        let sent = queue.send(&frame);
        queue.flush();
        if sent == Sent::Taken {
            return (member, queue);
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "no link");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Prints the time of an engine's turn without traffic, by number of linked peers, and that of
/// opening a local port beside a ring's: `cargo nextest run -p uroce --test verbs local::
/// --run-ignored only --no-capture`.
#[test]
#[ignore = "it measures, and judges nothing"]
fn idle_turns_and_the_time_of_joining() {
    const TURNS: u32 = 100_000;
    let open = |name: &str, port: PortConfig| {
        let device = DeviceConfig::new(name).idle(Idle::Sleep).port(port.mtu(4200));
        let begin = Instant::now();
        let context = Context::open(&Config::new().device(device), name).expect("it opens");
        (context, begin.elapsed())
    };
    // The first device starts EAL.
    let _first = open("first", PortConfig::ring("first").ip("198.51.100.1/24").unwrap());
    for peers in [0, 2, 8, 32, 62] {
        let fabric = Fabric::new(&format!("idle-{peers}"));
        let ring = PortConfig::ring(format!("ring{peers}")).ip("198.51.100.1/24").unwrap();
        let (ring, ring_time) = open(&format!("r{peers}"), ring);
        drop(ring);
        let (context, alone) =
            open(&format!("m{peers}"), PortConfig::local(fabric.0.join("fabric")));
        let _peers: Vec<_> = (0..peers).map(|_| idle_peer(&fabric)).collect();
        let (late, among) = open(&format!("l{peers}"), PortConfig::local(fabric.0.join("fabric")));
        drop(late);
        let mut guard = context.adopt_lcore(0).expect("it is free");
        guard.set_exclusive(true);
        let mut once = || {
            let from = Instant::now();
            for _ in 0..TURNS {
                black_box(guard.turn());
            }
            from.elapsed().as_nanos() as f64 / f64::from(TURNS)
        };
        let best = (0..20).map(|_| once()).fold(f64::MAX, f64::min);
        println!(
            "{peers:2} peers: {best:6.1} ns a turn; opened in {alone:.1?} as the first, \
             {among:.1?} as the last, a ring in {ring_time:.1?}"
        );
    }
}
