//! Memory windows, and messages that invalidate them.

use crate::common;
use crate::common::{SOON, Side, connected, post};
use uroce::{
    AccessFlags, MemoryWindow, MwType, QpInit, QpState, RecvWr, RemoteBuffer, SendWr, WcOpcode,
    WcStatus,
};

const RIGHTS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// A window of the right side, bound to the 64 bytes at offset 1000 of its memory.
fn bind(right: &mut Side, kind: MwType) -> MemoryWindow {
    let mut window = right.pd.allocate_mw(kind).unwrap();
    rebind(right, &mut window);
    window
}

fn rebind(right: &mut Side, window: &mut MemoryWindow) {
    let slice = right.memory.slice(1000..1064).unwrap();
    post(&mut right.qp, SendWr::bind_mw(window, &slice, RIGHTS).id(77));
    let completion = right.completion();
    assert_eq!((completion.status, completion.wr_id), (WcStatus::Success, 77));
    assert_eq!(completion.opcode, WcOpcode::BindMw);
}

fn write(left: &mut Side, to: RemoteBuffer) -> WcStatus {
    left.memory.write_at(0, b"through the window").unwrap();
    post(&mut left.qp, SendWr::write(&[left.memory.slice(..18).unwrap()], to));
    left.completion().status
}

/// Reconnects both QPs after an error.
fn reconnect(left: &mut Side, right: &mut Side) {
    while right.cq.poll_one().unwrap().is_some() {}
    while left.cq.poll_one().unwrap().is_some() {}
    for side in [&mut *left, &mut *right] {
        side.qp = side.pd.create_qp(&QpInit::new(&side.cq)).unwrap();
    }
    common::join(left, right, &uroce::ConnectOptions::default());
}

#[test] //= check F3 test
fn peers_reach_what_a_window_is_bound_to_and_not_a_byte_more() {
    for kind in [MwType::Type1, MwType::Type2] {
        let (mut left, mut right) = connected();
        let window = bind(&mut right, kind);
        let remote = window.remote();
        assert_eq!((remote.len, remote.va.0), (64, right.memory.va().0 + 1000));
        assert_eq!(write(&mut left, remote), WcStatus::Success);
        assert_eq!(right.bytes(1000, 18), b"through the window");
        let last = remote.slice(46, 18).unwrap();
        assert_eq!(write(&mut left, last), WcStatus::Success);
        let beyond = RemoteBuffer { va: uroce::Va(last.va.0 + 1), ..last };
        assert_eq!(write(&mut left, beyond), WcStatus::RemAccessErr);
        assert_eq!(right.bytes(1064, 8), [0; 8]);
    }
}

#[test]
fn a_window_grants_the_rights_it_was_bound_with() {
    let (mut left, mut right) = connected();
    let mut window = right.pd.allocate_mw(MwType::Type1).unwrap();
    let slice = right.memory.slice(..64).unwrap();
    post(&mut right.qp, SendWr::bind_mw(&mut window, &slice, AccessFlags::REMOTE_READ));
    right.done();
    let sink = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::read(&sink, window.remote()));
    left.done();
    assert_eq!(write(&mut left, window.remote()), WcStatus::RemAccessErr);
}

#[test] //= check F8 test
fn a_former_key_and_an_invalidated_one_open_nothing() {
    let (mut left, mut right) = connected();
    // Type 1: binding again invalidates the former key, and unbinding the last one.
    let mut window = bind(&mut right, MwType::Type1);
    let former = window.remote();
    rebind(&mut right, &mut window);
    assert_eq!(write(&mut left, window.remote()), WcStatus::Success);
    assert_eq!(write(&mut left, former), WcStatus::RemAccessErr);
    reconnect(&mut left, &mut right);
    let last = window.remote();
    post(&mut right.qp, SendWr::unbind_mw(&mut window));
    right.done();
    assert_eq!(write(&mut left, last), WcStatus::RemAccessErr);

    // Type 2: the owner invalidates it and binds it again.
    reconnect(&mut left, &mut right);
    let mut window = bind(&mut right, MwType::Type2);
    assert_eq!(write(&mut left, window.remote()), WcStatus::Success);
    let former = window.remote();
    post(&mut right.qp, SendWr::local_invalidate(window.rkey()));
    assert_eq!(right.completion().opcode, WcOpcode::LocalInv);
    rebind(&mut right, &mut window);
    assert_eq!(write(&mut left, window.remote()), WcStatus::Success);
    assert_eq!(write(&mut left, former), WcStatus::RemAccessErr);
}

#[test] //= check F8 test
fn a_type_2_window_is_its_qps_and_a_type_1_window_its_domains() {
    for kind in [MwType::Type1, MwType::Type2] {
        let (mut left, mut right) = connected();
        let window = bind(&mut right, kind);
        // Another connection in the same domain.
        let new = |side: &Side| side.pd.create_qp(&QpInit::new(&side.cq)).unwrap();
        let (new_left, new_right) = (new(&left), new(&right));
        let _old = std::mem::replace(&mut left.qp, new_left);
        let _owner = std::mem::replace(&mut right.qp, new_right);
        common::join(&mut left, &mut right, &uroce::ConnectOptions::default());
        let expected = match kind {
            MwType::Type1 => WcStatus::Success,
            MwType::Type2 => WcStatus::RemAccessErr,
        };
        assert_eq!(write(&mut left, window.remote()), expected);
    }
}

#[test] //= check F5 test
fn a_window_of_another_domain_is_refused() {
    for kind in [MwType::Type1, MwType::Type2] {
        let (mut left, mut right) = connected();
        let window = bind(&mut right, kind);
        let (pd, cq) = (right.context.allocate_pd(), right.context.create_cq(16).unwrap());
        let stranger = pd.create_qp(&QpInit::new(&cq)).unwrap();
        let _owner = std::mem::replace(&mut right.qp, stranger);
        left.qp = left.pd.create_qp(&QpInit::new(&left.cq)).unwrap();
        common::join(&mut left, &mut right, &uroce::ConnectOptions::default());
        assert_eq!(write(&mut left, window.remote()), WcStatus::RemAccessErr);
    }
}

#[test]
fn a_binding_that_is_not_allowed_fails_and_takes_the_qp_down() {
    let (_left, mut right) = connected();
    let plain = right.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let mut window = right.pd.allocate_mw(MwType::Type2).unwrap();
    let slice = plain.slice(..).unwrap();
    post(&mut right.qp, SendWr::bind_mw(&mut window, &slice, RIGHTS));
    assert_eq!(right.completion().status, WcStatus::MwBindErr);
    assert_eq!(right.qp.query().unwrap().attr.state, QpState::Err);
}

#[test]
fn a_region_with_windows_stays_registered_until_they_are_gone() {
    let (mut left, mut right) = connected();
    let memory = right.pd.allocate(4096, AccessFlags::all()).unwrap();
    let mut window = right.pd.allocate_mw(MwType::Type2).unwrap();
    post(&mut right.qp, SendWr::bind_mw(&mut window, &memory.slice(..).unwrap(), RIGHTS));
    right.done();
    let memory = memory.deregister().expect_err("a window is bound");
    assert_eq!(write(&mut left, window.remote()), WcStatus::Success);
    let remote = window.remote();
    drop(window);
    memory.deregister().expect("no window is bound");
    assert_eq!(write(&mut left, remote), WcStatus::RemAccessErr);
}

#[test] //= check F6 test
fn nothing_is_written_through_a_window_after_it_was_dropped() {
    const POSTS: usize = 16;
    const LEN: usize = 1 << 16;
    let (mut left, mut right) = connected();
    let mut cut_short = 0;
    for round in 0..30u64 {
        let mut window = right.pd.allocate_mw(MwType::Type1).unwrap();
        let target = right.memory.slice(..LEN).unwrap();
        post(&mut right.qp, SendWr::bind_mw(&mut window, &target, RIGHTS));
        right.done();
        let source = [left.memory.slice(..LEN).unwrap()];
        left.memory.fill(..LEN, 0xaa).unwrap();
        (0..POSTS).for_each(|_| post(&mut left.qp, SendWr::write(&source, window.remote())));
        std::thread::sleep(std::time::Duration::from_micros(round * 20));
        drop(window);
        right.memory.fill(..LEN, 0x55).unwrap();
        let all = (0..POSTS).map(|_| left.completion().status);
        let good = all.filter(|&status| status == WcStatus::Success).count();
        assert_eq!(right.bytes(0, LEN), [0x55; LEN], "round {round}");
        if good < POSTS {
            cut_short += 1;
            reconnect(&mut left, &mut right);
        }
    }
    assert!(cut_short > 0, "no window was ever dropped in the middle");
}

#[test] //= check F9 test
fn a_send_invalidates_the_window_and_completes_with_its_key() {
    let (mut left, mut right) = connected();
    let window = bind(&mut right, MwType::Type2);
    let room = [right.memory.slice(2000..2100).unwrap()];
    right.qp.post_recv(&RecvWr::new(&room).id(3)).unwrap();
    let message = [left.memory.slice(..10).unwrap()];
    post(&mut left.qp, SendWr::send_with_invalidate(&message, window.rkey()));
    left.done();
    let completion = right.completion();
    assert_eq!((completion.wr_id, completion.byte_len), (3, 10));
    assert_eq!(completion.invalidated, Some(window.rkey()));
    assert_eq!(write(&mut left, window.remote()), WcStatus::RemAccessErr);
}

#[test] //= check F9 test
fn a_send_that_may_not_invalidate_is_an_error_and_invalidates_nothing() {
    let (mut left, mut right) = connected();
    let owner_window = bind(&mut right, MwType::Type2);
    let type_1 = bind(&mut right, MwType::Type1);
    // Another QP sends: the window of the first QP, the region, and an unknown key must not be
    // invalidated.
    for rkey in [
        owner_window.rkey(),
        type_1.rkey(),
        right.memory.rkey(),
        uroce::Rkey(right.memory.rkey().0 ^ 0x5555_0000),
    ] {
        let (context_left, context_right) = (left.context.clone(), right.context.clone());
        let (mut a, mut b) = (Side::new(&context_left), Side::new(&context_right));
        b.qp = right.pd.create_qp(&QpInit::new(&b.cq)).unwrap();
        common::join(&mut a, &mut b, &uroce::ConnectOptions::default());
        b.qp.post_recv(&RecvWr::new(&[]).id(4)).unwrap();
        post(&mut a.qp, SendWr::send_with_invalidate(&[], rkey));
        let completion = b.cq.wait(SOON).unwrap().expect("a completion");
        assert_eq!(completion.wr_id, 4);
        assert_ne!(completion.status, WcStatus::Success);
        assert_eq!(b.qp.query().unwrap().attr.state, QpState::Err);
    }
    assert_eq!(write(&mut left, owner_window.remote()), WcStatus::Success);
    assert_eq!(write(&mut left, type_1.remote()), WcStatus::Success);
    assert_eq!(write(&mut left, right.memory.remote()), WcStatus::Success);
}
