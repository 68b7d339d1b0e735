//! Errors of an application: each gives a named error or an error completion, and changes nothing.

use crate::common;
use crate::common::{Setup, Side, connected, join, pattern, post};
use uroce::{
    AccessFlags, AttrMask, ConnectOptions, ControlError, CqError, ModifyError, MrError, OutOfRange,
    PathError, PathMtu, PostError, QpChange, QpInit, QpState, RecvWr, RegisterError, RemoteBuffer,
    RequestError, Rkey, SendWr, WcStatus,
};

fn control_error<T: std::fmt::Debug>(result: Result<T, RequestError>) -> ControlError {
    match result {
        Err(RequestError::Control(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn modify_error<T: std::fmt::Debug>(result: Result<T, RequestError>) -> ModifyError {
    match result {
        Err(RequestError::Modify(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranges_outside_of_a_region_are_refused_and_change_nothing() {
    let (left, _right) = connected();
    let mr = left.pd.allocate(100, AccessFlags::LOCAL_WRITE).unwrap();
    let error = |offset, len| OutOfRange { offset, len, within: 100 };
    assert_eq!(mr.slice(90..101).unwrap_err(), error(90, 11));
    assert_eq!(mr.slice(101..).unwrap_err().offset, 101);
    assert_eq!(mr.slice(..=usize::MAX).unwrap_err().offset, 0);
    assert_eq!(mr.write_at(99, &[1, 2]), Err(error(99, 2)));
    assert_eq!(mr.write_at(usize::MAX, &[1]).unwrap_err().len, 1);
    assert_eq!(mr.read_at(100, &mut [0]), Err(error(100, 1)));
    assert_eq!(mr.fill(50..200, 1), Err(error(50, 150)));
    assert_eq!(mr.load_u64(4), Err(error(4, 8)), "not aligned");
    assert_eq!(mr.store_u64(96, 1), Err(error(96, 8)));
    assert_eq!(mr.load_u8(100), Err(error(100, 1)));
    let mut all = [0xff; 100];
    mr.read_at(0, &mut all).unwrap();
    assert_eq!(all, [0; 100]);
    assert_eq!(mr.slice(100..).unwrap().len(), 0, "the empty range at the end is inside");

    let remote = mr.remote();
    assert!(remote.slice(1, 99).is_ok());
    assert_eq!(remote.slice(1, 100), Err(error(1, 100)));
    assert_eq!(remote.slice(u64::MAX, 2), Err(error(u64::MAX, 2)));
}

#[test]
fn copies_at_any_alignment_touch_their_range_only() {
    let (left, _right) = connected();
    let mr = left.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    for offset in 0..24 {
        for len in 0..40 {
            mr.fill(.., 0xaa).unwrap();
            let bytes = pattern(3, len);
            mr.write_at(offset, &bytes).unwrap();
            let mut all = [0; 64];
            mr.read_at(0, &mut all).unwrap();
            let mut expected = [0xaa; 64];
            expected[offset..offset + len].copy_from_slice(&bytes);
            assert_eq!(all, expected, "{len} bytes at {offset}");
            let mut part = vec![0; len];
            mr.read_at(offset, &mut part).unwrap();
            assert_eq!(part, bytes);
        }
    }
}

#[test]
fn invalid_regions_are_refused() {
    let (left, _right) = connected();
    let remote_only = left.pd.allocate(8, AccessFlags::REMOTE_WRITE);
    assert_eq!(remote_only.unwrap_err(), RegisterError::Engine(MrError::NeedsLocalWrite));
    let persistent = AccessFlags::all() | AccessFlags::FLUSH_PERSISTENT;
    let refused = left.pd.allocate(64, persistent);
    assert_eq!(refused.unwrap_err(), RegisterError::Engine(MrError::NotPersistent));
    let huge = left.pd.allocate(isize::MAX as usize - 8192, AccessFlags::LOCAL_WRITE);
    assert!(matches!(huge, Err(RegisterError::NoMemory(_))));
    let nothing = left.pd.allocate(0, AccessFlags::LOCAL_WRITE).unwrap();
    assert!(nothing.is_empty() && nothing.slice(..).unwrap().is_empty());
}

#[test]
fn queues_of_invalid_sizes_are_refused() {
    let (left, _right) = connected();
    assert_eq!(left.context.create_cq(0).unwrap_err(), CqError::Depth(0));
    assert!(left.context.create_cq(u32::MAX).is_err());
    let init = QpInit::new(&left.cq);
    for (sends, receives, sges) in [(0, 1, 1), (1, 1 << 17, 1), (1 << 17, 1, 1), (1, 1, 0)] {
        let mut init = init;
        (init.caps.max_send_wr, init.caps.max_recv_wr) = (sends, receives);
        init.caps.max_send_sge = sges;
        let error = control_error(left.pd.create_qp(&init));
        assert_eq!(error, ControlError::Caps(init.caps));
    }
    let error = control_error(left.pd.create_qp(&QpInit { lcore: Some(9), ..init }));
    assert_eq!(error, ControlError::NoSuchLcore(9));
}

#[test]
fn no_more_qps_than_configured() {
    let mut config = Setup::default().config();
    config.devices[0].max_qps = 4;
    let context = uroce::Context::open(&config, "left").unwrap();
    let (pd, cq) = (context.allocate_pd(), context.create_cq(16).unwrap());
    let mut qps: Vec<_> = (0..4).map(|_| pd.create_qp(&QpInit::new(&cq)).unwrap()).collect();
    let error = control_error(pd.create_qp(&QpInit::new(&cq)));
    assert_eq!(error, ControlError::NoQpLeft);
    let gone = qps.pop().map(|qp| qp.qpn());
    let again = pd.create_qp(&QpInit::new(&cq)).unwrap();
    assert_ne!(Some(again.qpn()), gone, "a number is not reused at once");
}

#[test] //= check G2 test
fn posting_in_the_wrong_state_is_refused() {
    let (left, _right) = Setup::default().contexts();
    let mut left = Side::new(&left);
    let slice = [left.memory.slice(..8).unwrap()];
    let post = |qp: &mut uroce::QueuePair| {
        (qp.post_send(&SendWr::send(&slice)), qp.post_recv(&RecvWr::new(&slice)))
    };
    let refused = Err(PostError::InvalidState);
    assert_eq!(post(&mut left.qp), (refused, refused), "RESET");
    left.qp.init(&ConnectOptions::default()).unwrap();
    assert_eq!(left.qp.state(), QpState::Init);
    assert_eq!(post(&mut left.qp), (refused, Ok(())), "INIT");
}

#[test]
fn a_full_queue_and_a_long_list_are_refused_and_change_nothing() {
    let (left, right) = Setup::default().contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let mut init = QpInit::new(&left.cq);
    (init.caps.max_send_wr, init.caps.max_recv_wr) = (4, 2);
    (init.caps.max_send_sge, init.caps.max_recv_sge) = (2, 1);
    left.qp = left.pd.create_qp(&init).unwrap();
    join(&mut left, &mut right, &ConnectOptions::default());

    let slices: Vec<_> = (0..3).map(|n| left.memory.slice(n * 8..n * 8 + 8).unwrap()).collect();
    let send = |count: usize| SendWr::send(&slices[..count]).signaled();
    let qp = &mut left.qp;
    assert_eq!(qp.post_send(&send(3)), Err(PostError::TooManySges));
    assert_eq!(qp.post_recv(&RecvWr::new(&slices[..2])), Err(PostError::TooManySges));
    assert_eq!(
        qp.post_send(&SendWr::fetch_add(&slices[..2], RemoteBuffer::default(), 1)),
        Err(PostError::AtomicLength)
    );
    // The peer has posted no receive, so the queue stays full.
    let error = qp.post_sends([send(1); 6]).unwrap_err();
    assert_eq!((error.posted, error.error), (4, PostError::QueueFull));
    let error = qp.post_recvs(&[RecvWr::new(&slices[..1]); 3]).unwrap_err();
    assert_eq!((error.posted, error.error), (2, PostError::QueueFull));

    let room = right.memory.slice(..64).unwrap();
    right.qp.post_recvs(&[RecvWr::new(&[room]); 4]).unwrap();
    for _ in 0..4 {
        left.done();
        right.done();
    }
    assert_eq!(left.cq.poll_one(), Ok(None), "what was refused never completes");
}

#[test]
//= check F12 test
//= check G3 test
fn slices_of_another_domain_complete_in_error_and_touch_nothing() {
    let (mut left, right) = connected();
    let foreign_pd = left.context.allocate_pd();
    let foreign = foreign_pd.allocate(64, AccessFlags::all()).unwrap();
    let slice = foreign.slice(..8).unwrap();
    post(&mut left.qp, SendWr::write(&[slice], right.memory.remote()).id(5));
    let completion = left.completion();
    assert_eq!((completion.wr_id, completion.status), (5, WcStatus::LocProtErr));
    assert_eq!(right.bytes(0, 8), [0; 8]);
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Err);
    // Requests that are posted in ERR are flushed, not lost.
    post(&mut left.qp, SendWr::send(&[]).id(6));
    assert_eq!(left.completion().status, WcStatus::WrFlushErr);
}

#[test]
fn reading_into_memory_without_local_write_is_refused() {
    let (mut left, right) = connected();
    let read_only = left.pd.allocate(64, AccessFlags::REMOTE_READ).unwrap();
    post(&mut left.qp, SendWr::read(&[read_only.slice(..8).unwrap()], right.memory.remote()));
    assert_eq!(left.completion().status, WcStatus::LocProtErr);
}

#[test] //= check F11 test
fn receives_that_name_a_dropped_region_complete_in_error() {
    let (mut left, mut right) = connected();
    let gone = right.pd.allocate(4096, AccessFlags::all()).unwrap();
    right.qp.post_recv(&RecvWr::new(&[gone.slice(..).unwrap()]).id(1)).unwrap();
    drop(gone);
    let source = left.memory.slice(..64).unwrap();
    post(&mut left.qp, SendWr::send(&[source]));
    let (sent, received) = (left.completion(), right.completion());
    assert_eq!((received.wr_id, received.status), (1, WcStatus::LocProtErr));
    assert_ne!(sent.status, WcStatus::Success);
}

#[test]
fn sends_that_name_a_dropped_region_complete_in_error() {
    let (mut left, _right) = connected();
    let gone = left.pd.allocate(4096, AccessFlags::all()).unwrap();
    // The peer has no receive, so the message is retransmitted later, from memory that is gone
    // then.
    post(&mut left.qp, SendWr::send(&[gone.slice(..).unwrap()]).id(1));
    std::thread::sleep(std::time::Duration::from_millis(2));
    drop(gone);
    let completion = left.completion();
    assert_eq!((completion.wr_id, completion.status), (1, WcStatus::LocProtErr));
}

#[test]
//= check F1 test
//= check F2 test
//= check F3 test
fn keys_and_ranges_that_the_peer_did_not_grant_are_remote_access_errors() {
    let cases: [fn(&Side) -> RemoteBuffer; 4] = [
        |right| RemoteBuffer { rkey: Rkey(right.memory.rkey().0 ^ 0x100), ..right.memory.remote() },
        |right| RemoteBuffer {
            va: uroce::Va(right.memory.va().0 + Side::MEMORY as u64 - 7),
            ..right.memory.remote()
        },
        |right| RemoteBuffer { va: uroce::Va(u64::MAX - 3), ..right.memory.remote() },
        |right| {
            let gone = right.pd.allocate(64, AccessFlags::all()).unwrap();
            gone.remote()
        },
    ];
    for case in cases {
        let (mut left, right) = connected();
        let target = case(&right);
        let slice = left.memory.slice(..8).unwrap();
        left.memory.fill(..8, 0x55).unwrap();
        post(&mut left.qp, SendWr::write(&[slice], target));
        assert_eq!(left.completion().status, WcStatus::RemAccessErr);
        assert!(right.bytes(0, Side::MEMORY).iter().all(|byte| *byte == 0));
    }
}

#[test] //= check F4 test
fn a_peer_without_the_right_is_refused() {
    let options = ConnectOptions { access: AccessFlags::REMOTE_READ, ..ConnectOptions::default() };
    let (mut left, right) = Setup { options, ..Setup::default() }.connect();
    let slice = left.memory.slice(..8).unwrap();
    post(&mut left.qp, SendWr::read(&[slice], right.memory.remote()));
    left.done();
    post(&mut left.qp, SendWr::write(&[slice], right.memory.remote()));
    let status = left.completion().status;
    assert!(matches!(status, WcStatus::RemAccessErr | WcStatus::RemInvReqErr), "{status}");
}

#[test]
fn transitions_that_are_not_legal_are_refused_and_change_nothing() {
    let (left, _right) = Setup::default().contexts();
    let mut left = Side::new(&left);
    let (from, to) = (QpState::Reset, QpState::Rts);
    let error = modify_error(left.qp.modify(&QpChange::to(to), None));
    assert_eq!(error, ModifyError::Transition { from, to });
    let error = modify_error(left.qp.modify(&QpChange::to(QpState::Init), None));
    let needed = AttrMask::PKEY | AttrMask::PORT | AttrMask::ACCESS;
    assert_eq!(error, ModifyError::Missing(needed));
    let psn = QpChange { sq_psn: Some(uroce::Psn::new(1)), ..QpChange::to(QpState::Err) };
    let error = modify_error(left.qp.modify(&psn, None));
    assert_eq!(error, ModifyError::NotAllowed(AttrMask::SQ_PSN));
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Reset);

    let headers = QpChange { path: Some(Default::default()), ..QpChange::to(QpState::Rtr) };
    assert_eq!(left.qp.modify(&headers, None), Err(RequestError::RawPath));
    let no_port = QpChange { access: Some(AccessFlags::empty()), ..QpChange::to_init(2) };
    let error = control_error(left.qp.modify(&no_port, None));
    assert_eq!(error, ControlError::NoSuchPort(2));
}

#[test]
fn connecting_with_invalid_attributes_gives_a_named_error() {
    let (left, right) = Setup { mtu: 1500, ..Setup::default() }.contexts();
    let (mut left, right) = (Side::new(&left), Side::new(&right));
    let peer = right.qp.endpoint(1, 0).unwrap();
    let defaults = ConnectOptions::default();
    assert_eq!(left.qp.endpoint(1, 7), Err(PathError::NoGid { port: 1, index: 7 }));
    assert_eq!(left.qp.endpoint(0, 0), Err(PathError::NoPort(0)));

    let options = ConnectOptions { sgid_index: 7, ..defaults };
    let error = left.qp.connect(&peer, &options).unwrap_err();
    assert_eq!(error, RequestError::Path(PathError::NoGid { port: 1, index: 7 }));
    let options = ConnectOptions { path_mtu: Some(PathMtu::B4096), ..defaults };
    let error = control_error(left.qp.connect(&peer, &options));
    assert_eq!(error, ControlError::PathMtu { path_mtu: PathMtu::B4096, mtu: 1500 });
    let options = ConnectOptions { timeout: 32, ..defaults };
    let error = modify_error(left.qp.connect(&peer, &options));
    assert_eq!(error, ModifyError::OutOfRange(AttrMask::TIMEOUT));
    // The QP has reached RTR; after a reset it can be connected.
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Rtr);
    left.qp.modify(&QpChange::to(QpState::Reset), None).unwrap();
    left.qp.connect(&peer, &defaults).unwrap();
    assert_eq!(left.qp.state(), QpState::Rts);
    assert_eq!(left.qp.query().unwrap().attr.path_mtu, PathMtu::B1024);
}

#[test] //= check G6 test
fn an_overrun_completion_queue_reports_it_and_never_tears() {
    let (left, right) = Setup::default().contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let small = left.context.create_cq(4).unwrap();
    left.qp = left.pd.create_qp(&QpInit::new(&small)).unwrap();
    join(&mut left, &mut right, &ConnectOptions::default());
    let slice = [left.memory.slice(..8).unwrap()];
    for id in 0..16 {
        left.qp.post_send(&SendWr::write(&slice, right.memory.remote()).id(id).signaled()).unwrap();
    }
    let end = std::time::Instant::now() + common::SOON;
    while left.qp.state() != QpState::Err && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let ids: Vec<_> = (0..4).map(|_| small.wait(common::SOON).unwrap().unwrap().wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(small.poll_one(), Err(CqError::Overrun));
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Err);
}
