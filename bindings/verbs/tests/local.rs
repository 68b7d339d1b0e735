//! Several devices as members of one local fabric.

mod common;

use common::{Side, join, pattern, post};
use std::path::PathBuf;
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{Config, ConnectOptions, Context, OpenError, SendWr};

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
