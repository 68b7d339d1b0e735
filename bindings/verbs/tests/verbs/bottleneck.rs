//! A bottleneck before a port: its rate, its queue, its marks, and changes while it is in use.

use crate::common;
use crate::common::{Setup, Side, post};
use std::time::{Duration, Instant};
use uroce::config::BottleneckConfig;
use uroce::{ConnectOptions, ControlError, RequestError, SendWr};

/// Writes `count` messages of `len` bytes, at most four at a time; returns the time that it took.
fn write(left: &mut Side, right: &Side, count: usize, len: usize) -> Duration {
    let begin = Instant::now();
    let target = right.memory.remote();
    for at in 0..count {
        if at >= 4 {
            left.done();
        }
        post(&mut left.qp, SendWr::write(&[left.memory.slice(..len).unwrap()], target));
    }
    (0..count.min(4)).for_each(|_| {
        left.done();
    });
    begin.elapsed()
}

#[test]
fn frames_leave_at_the_rate_and_none_is_lost_while_the_queue_has_room() {
    let (mut left, right) = common::connected();
    // Four messages of 64 KiB are less than the queue.
    let slow = BottleneckConfig::new(400, 1_000_000);
    left.context.set_bottleneck(1, Some(slow)).unwrap();
    let took = write(&mut left, &right, 40, 65536);
    // 40 · 65536 · 8 bits at 400 Mb/s, without headers.
    assert!(took >= Duration::from_millis(52), "{took:?}");
    assert_eq!(left.counter("bottleneck_dropped"), 0);
    assert_eq!(left.counter("bottleneck_marked"), 0);
    assert!(left.counter("bottleneck_served") >= 40 * 16);
    let deepest = left.counter("bottleneck_depth_max");
    assert!((65536..1_000_000).contains(&deepest), "{deepest} bytes");

    left.context.set_bottleneck(1, None).unwrap();
    let served = left.counter("bottleneck_served");
    write(&mut left, &right, 40, 65536);
    assert_eq!(left.counter("bottleneck_served"), served, "nothing passes it any more");
    assert_eq!(left.counter("bottleneck_depth_max"), deepest);
}

#[test]
fn the_tail_of_a_full_queue_is_dropped_and_the_message_repaired() {
    let options = ConnectOptions { timeout: 12, ..ConnectOptions::default() };
    let (mut left, right) = Setup { options, ..Setup::default() }.connect();
    left.context.set_bottleneck(1, Some(BottleneckConfig::new(1000, 20_000))).unwrap();
    write(&mut left, &right, 2, 32768);
    assert!(left.counter("bottleneck_dropped") > 0);
    assert!(left.counter("bottleneck_depth_max") <= 20_000);
}

#[test]
fn only_packets_of_senders_that_react_to_marks_are_marked() {
    for (addresses, name) in
        [(["192.0.2.1/24", "192.0.2.2/24"], "IPv4"), (["fd00::1/64", "fd00::2/64"], "IPv6")]
    {
        for (traffic_class, is_capable) in [(0, false), (1, true), (2, true), (3, false)] {
            let options = ConnectOptions { traffic_class, ..ConnectOptions::default() };
            let (mut left, right) = Setup { addresses, options, ..Setup::default() }.connect();
            let slow =
                BottleneckConfig { kmin: 0, kmax: 0, ..BottleneckConfig::new(1000, 1 << 20) };
            left.context.set_bottleneck(1, Some(slow)).unwrap();
            write(&mut left, &right, 4, 65536);
            let marked = left.counter("bottleneck_marked");
            assert_eq!(marked > 0, is_capable, "{name}, {traffic_class}: {marked}");
            // Checksum and ICRC are right: no frame was dropped for them.
            let dropped = ["rx_malformed", "rx_icrc_errors"].map(|name| right.counter(name));
            assert_eq!(dropped, [0, 0], "{name}, {traffic_class}");
        }
    }
}

#[test]
fn lcores_of_one_port_share_its_rate() {
    let (left, right) = Setup { lcores: 2, ..Setup::default() }.contexts();
    left.set_bottleneck(1, Some(BottleneckConfig::new(400, 1_000_000))).unwrap();
    let pair = || {
        let (mut left, mut right) = (Side::new(&left), Side::new(&right));
        common::join(&mut left, &mut right, &ConnectOptions::default());
        (left, right)
    };
    let pairs = [pair(), pair()];
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (mut left, right) in pairs {
            scope.spawn(move || write(&mut left, &right, 20, 65536));
        }
    });
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(52), "{took:?}");
}

#[test]
fn a_bottleneck_that_cannot_be_or_of_no_port_is_refused() {
    let (left, _right) = Setup::default().contexts();
    let slow = BottleneckConfig::new(1000, 9000);
    let none = Err(RequestError::Control(ControlError::NoSuchPort(2)));
    assert_eq!(left.set_bottleneck(2, Some(slow)), none);
    let above = BottleneckConfig { kmax: 9001, ..slow };
    let error = left.set_bottleneck(1, Some(above)).unwrap_err().to_string();
    assert!(error.contains("bottleneck.kmax: 9001 bytes are more than the queue has"), "{error}");
}
