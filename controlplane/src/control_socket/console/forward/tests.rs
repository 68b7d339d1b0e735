use uroce_engine::EngineCounter;
use uroce_transport::DropReason;

use super::*;
use crate::config::{Config, DeviceConfig, PortConfig};
use crate::control_socket::server;
use crate::device::Device;

const SOON: Duration = Duration::from_secs(20);

/// Opens two devices on a link.
fn open() -> ([Device; 2], [Arc<Served>; 2]) {
    let device = |name: &str, address: &str| {
        let port = PortConfig::ring("link").ip(address).expect("an address");
        DeviceConfig::new(name).port(port)
    };
    let [left, right] = [device("left", "192.0.2.1/24"), device("right", "192.0.2.2/24")];
    let config = Config::new().device(left).device(right);
    let open = |name| Device::open(&config, name).expect("a ring link needs no privilege");
    let devices = [open("left"), open("right")];
    let served = server().as_ref().expect("a socket").shared.devices().clone();
    (devices, served.try_into().expect("two devices"))
}

/// Returns a device that seems to have one port too many, so that setting this port fails.
fn faulty(of: &Served) -> Arc<Served> {
    let Served { key, config, eal, guid, engine, ports, calls } = of;
    let mut config = config.clone();
    config.ports.push(config.ports[0].clone());
    let (engine, ports, calls) = (engine.clone(), ports.clone(), calls.clone());
    let eal = eal.clone();
    Arc::new(Served { key: *key, config, eal, guid: *guid, engine, ports, calls })
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < SOON, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a burst from the peer, and returns whether the device drops it because it forwards.
fn forwards(device: &Served, peer: &Served) -> bool {
    let have_left = || peer.calls.call(|thread| Ok(thread.frames_have_left()));
    eventually("room", || have_left() == Ok(true));
    let counts = || {
        let counters = device.engine.counters();
        let others = counters.dropped(DropReason::NotForUs);
        [counters.engine(EngineCounter::ForwardDropped), others]
    };
    let before = counts();
    peer.calls.call(|thread| Ok(thread.send_burst(1))).expect("it runs").expect("room");
    eventually("a frame", || counts() != before);
    counts()[0] > before[0]
}

#[test]
fn a_device_that_fails_is_not_stopped_and_the_others_are() {
    let (_open, [left, right]) = open();
    let faulty = faulty(&left);
    let mut console = Console::default();
    console.set_fwd(FwdMode::Rxonly).expect("it is stopped");
    let start = Start { tx_first: false, bursts: 1, force: true };
    let all = [Arc::clone(&left), Arc::clone(&right)];
    let with_faulty = [Arc::clone(&faulty), Arc::clone(&right)];

    console.start(&start, &all).expect("both have their ports");
    assert!(forwards(&right, &left));
    let failure = console.stop(&with_faulty).expect_err("a port fails");
    assert!(format!("{failure:?}").contains("left: "), "{failure:?}");
    assert_eq!(console.forwarding.started, [left.key]);
    assert!(!forwards(&right, &left));
    assert!(console.start(&start, &all).is_err(), "it is not stopped yet");
    console.stop(&all).expect("both have their ports");
    assert!(console.forwarding.started.is_empty());

    // After a failed start, only those devices forward that cannot be stopped.
    assert!(console.start(&start, &[right.clone(), faulty]).is_err());
    assert_eq!(console.forwarding.started, [left.key]);
    assert!(!forwards(&right, &left));
}
