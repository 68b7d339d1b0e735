//! Tests with this machine's kernel, without privileges. Tests of changes need root:
//! `bindings/verbs/tests`.

use super::*;

#[test]
fn the_loopback_interface_exists_and_another_does_not() {
    let watcher = Watcher::open(&["lo", "no-such-netdev"]).unwrap();
    assert!(watcher.exists(0) && !watcher.exists(1) && !watcher.exists(2));
    let states: Vec<&NetdevState> = watcher.states().collect();
    assert!(states[0].mtu.is_some_and(|mtu| mtu >= 1280), "{states:?}");
    // 127.0.0.1 and ::1 are left out: no other host has them as a peer.
    assert_eq!(states[0].addresses, []);
    assert_eq!(*states[1], NetdevState::default());
}

#[test]
fn a_watch_ends_when_it_is_dropped() {
    let watch = Watcher::open(&["lo"]).unwrap().watch(|_, _| ()).unwrap();
    drop(watch);
}

#[test]
fn another_process_is_not_heard() {
    let mut watcher = Watcher::open(&["lo"]).unwrap();
    let own = rustix::net::getsockname(&watcher.socket).unwrap();
    let own = SocketAddrNetlink::try_from(own).unwrap().pid();
    let stranger = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let to = SocketAddrNetlink::new(own, 0);
    let forged = dump(Dump::Links, 1);
    // The kernel may already refuse to send it.
    if sendto(stranger.unwrap(), &forged, SendFlags::empty(), &to).is_ok() {
        assert!(matches!(watcher.hear(), Heard::Datagram(0)));
    }
}
