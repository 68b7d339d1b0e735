//! Ports over drivers with a kernel or a vhost peer behind them.

mod common;

use common::{LONG, eal, eventually, pool, read_frame, send, socket_path};
use std::process::Command;
use std::time::Duration;
use uroce_engine::mbuf::MbufBatch;
use uroce_engine::port::{Port, PortConfig, vdev};

/// Sends frames of [`LONG`] from one port to the other and checks each.
fn cross(from: &Port, to: &Port, pool: &uroce_engine::mbuf::Mempool) {
    const FRAMES: u64 = 2000;
    let (mut tx, mut rx) = (from.queue_pair(0).expect("free"), to.queue_pair(0).expect("free"));
    let (mut batch, mut expected) = (MbufBatch::new(), 0);
    assert!(eventually(|| from.link().up && to.link().up), "no link");
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&mut tx, pool, LONG, FRAMES, Duration::from_secs(5)));
        eventually(|| {
            rx.rx_burst(&mut batch);
            for mbuf in batch.drain() {
                assert_eq!((mbuf.len(), read_frame(mbuf.as_slice())), (LONG, expected));
                expected += 1;
            }
            expected == FRAMES
        });
        sender.join().expect("sender")
    });
    assert_eq!((sent, expected), (FRAMES, FRAMES));
}

#[test]
fn long_frames_cross_vhost_and_virtio_user() {
    let eal = eal();
    let pool = pool(eal, 4095, 9216);
    let socket = socket_path("vhost");
    let open = |device: String| {
        let config = PortConfig { mtu: LONG as u16, ..PortConfig::new(device) };
        Port::open(eal, &config, &pool).expect("no privilege needed")
    };
    let switch = open(vdev::vhost(0, &socket, 1));
    let guest = open(vdev::virtio_user(0, &socket, 1, 1024, None));
    println!("{:?} {:?}", switch.capabilities(), guest.capabilities());
    cross(&guest, &switch, &pool);
    cross(&switch, &guest, &pool);
}
