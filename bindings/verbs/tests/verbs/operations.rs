//! Every operation of a connected pair, with every byte checked.

use crate::common;
use crate::common::{SOON, Setup, Side, connected, pattern, post};
use uroce::config::LossConfig;
use uroce::{
    AddressVector, CompletionQueue, ConnectOptions, ImmDt, PathMtu, Placement, PostError, QpChange,
    QpState, RecvWr, SendWr, WcOpcode, WcStatus,
};

/// Sizes around multiples of a packet and of path MTUs, and 0.
const SIZES: [usize; 14] = [0, 1, 2, 3, 4, 255, 256, 257, 4095, 4096, 4097, 8192, 65_536, 300_001];

fn write_then_read(left: &mut Side, right: &Side, len: usize) {
    let message = pattern(len as u8, len);
    left.memory.write_at(0, &message).unwrap();
    right.memory.fill(.., 0xee).unwrap();
    let target = right.memory.remote();
    let source = left.memory.slice(..len).unwrap();
    post(&mut left.qp, SendWr::write(&[source], target).id(1));
    let sink = left.memory.slice(500_000..500_000 + len).unwrap();
    post(&mut left.qp, SendWr::read(&[sink], target).id(2));
    assert_eq!((left.done(), left.done()), (1, 2));
    assert_eq!(right.bytes(0, len), message);
    assert_eq!(right.bytes(len, 8), [0xee; 8], "nothing beyond the message");
    assert_eq!(left.bytes(500_000, len), message);
}

#[test]
fn writes_and_reads_of_every_size_arrive_whole_and_no_byte_further() {
    let (mut left, right) = connected();
    for len in SIZES {
        write_then_read(&mut left, &right, len);
    }
}

#[test]
fn every_path_mtu_carries_messages() {
    for path_mtu in PathMtu::ALL {
        let options = ConnectOptions { path_mtu: Some(path_mtu), ..ConnectOptions::default() };
        let (mut left, right) = Setup { options, ..Setup::default() }.connect();
        for len in [path_mtu.bytes() as usize - 1, path_mtu.bytes() as usize + 1, 70_000] {
            write_then_read(&mut left, &right, len);
        }
    }
}

#[test]
fn ipv6_and_vlans_work_as_ipv4_does() {
    let v6 = ["2001:db8::1/64", "2001:db8::2/64"];
    for vlan in [None, Some(100)] {
        for addresses in [Setup::default().addresses, v6] {
            let (mut left, right) = Setup { addresses, vlan, ..Setup::default() }.connect();
            write_then_read(&mut left, &right, 10_000);
        }
    }
}

#[test]
fn several_lcores_share_a_devices_qps() {
    let (mut left, mut right) = Setup { lcores: 2, ..Setup::default() }.connect();
    write_then_read(&mut left, &right, 100_000);
    let first = left.qp.control().lcore();
    // The second pair is placed on the lcores without a QP, so its packets are handed over between
    // lcores.
    let (new_left, new_right) = (new_qp(&left), new_qp(&right));
    let old_left = std::mem::replace(&mut left.qp, new_left);
    let old_right = std::mem::replace(&mut right.qp, new_right);
    common::join(&mut left, &mut right, &ConnectOptions::default());
    assert_ne!(left.qp.control().lcore(), first);
    write_then_read(&mut left, &right, 100_000);
    drop((old_left, old_right));
}

fn new_qp(side: &Side) -> uroce::QueuePair {
    side.pd.create_qp(&uroce::QpInit::new(&side.cq)).unwrap()
}

#[test]
fn sends_fill_receives_in_order_and_tell_their_length() {
    let (mut left, mut right) = connected();
    for (index, len) in SIZES.into_iter().enumerate() {
        let room = right.memory.slice(index * 1000..index * 1000 + 400_000).unwrap();
        right.qp.post_recv(&RecvWr::new(&[room]).id(index as u64)).unwrap();
        let message = pattern(index as u8, len);
        left.memory.write_at(0, &message).unwrap();
        let source = left.memory.slice(..len).unwrap();
        post(&mut left.qp, SendWr::send(&[source]));
        left.done();
        let received = right.completion();
        assert_eq!((received.wr_id, received.byte_len), (index as u64, len as u32));
        assert_eq!((received.opcode, received.imm), (WcOpcode::Recv, None));
        assert_eq!(right.bytes(index * 1000, len), message);
    }
}

#[test]
fn immediate_data_comes_with_sends_and_writes() {
    let (mut left, mut right) = connected();
    let room = right.memory.slice(1000..2000).unwrap();
    right.qp.post_recvs(&[RecvWr::new(&[room]).id(1), RecvWr::new(&[]).id(2)]).unwrap();
    left.memory.write_at(0, b"immediate").unwrap();
    let source = left.memory.slice(..9).unwrap();
    post(&mut left.qp, SendWr::send_with_imm(&[source], ImmDt(0x0102_0304)));
    left.done();
    let received = right.completion();
    assert_eq!((received.wr_id, received.imm), (1, Some(ImmDt(0x0102_0304))));
    assert_eq!(right.bytes(1000, 9), b"immediate");

    let target = right.memory.remote().slice(5000, 9).unwrap();
    post(&mut left.qp, SendWr::write_with_imm(&[source], target, ImmDt(7)));
    left.done();
    let received = right.completion();
    assert_eq!((received.wr_id, received.imm), (2, Some(ImmDt(7))));
    assert_eq!((received.opcode, received.byte_len), (WcOpcode::RecvRdmaWithImm, 9));
    assert_eq!(right.bytes(5000, 9), b"immediate");
}

#[test]
fn atomics_change_the_word_once_and_return_what_it_was() {
    let (mut left, right) = connected();
    right.memory.store_u64(64, 40).unwrap();
    let word = right.memory.remote().slice(64, 8).unwrap();
    let result = |left: &Side| left.memory.load_u64(0).unwrap();

    let slice = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::fetch_add(&slice, word, 2));
    let completion = left.completion();
    assert_eq!((completion.status, completion.opcode), (WcStatus::Success, WcOpcode::FetchAdd));
    assert_eq!((result(&left), right.memory.load_u64(64)), (40, Ok(42)));

    post(&mut left.qp, SendWr::compare_swap(&slice, word, 42, u64::MAX));
    assert_eq!(left.completion().opcode, WcOpcode::CompSwap);
    assert_eq!((result(&left), right.memory.load_u64(64)), (42, Ok(u64::MAX)));

    post(&mut left.qp, SendWr::compare_swap(&slice, word, 42, 1));
    left.done();
    assert_eq!((result(&left), right.memory.load_u64(64)), (u64::MAX, Ok(u64::MAX)));

    post(&mut left.qp, SendWr::fetch_add(&slice, word, 3));
    left.done();
    assert_eq!(right.memory.load_u64(64), Ok(2), "wraps at 2^64");
}

#[test] //= check P10 test
fn an_atomic_write_is_there_when_it_completes_inline_or_not() {
    let options = ConnectOptions::default();
    let (left, right) = Setup::default().contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    left.qp = left.pd.create_qp(&uroce::QpInit::new(&left.cq).max_inline(64)).unwrap();
    common::join(&mut left, &mut right, &options);
    left.memory.write_at(0, b"from the").unwrap();
    let word = right.memory.remote().slice(64, 8).unwrap();
    let slice = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::atomic_write(&slice, word));
    let completion = left.completion();
    let done = (completion.status, completion.opcode, completion.byte_len);
    assert_eq!(done, (WcStatus::Success, WcOpcode::AtomicWrite, 0));
    assert_eq!(right.bytes(64, 8), b"from the");
    left.memory.write_at(0, b"other si").unwrap();
    post(&mut left.qp, SendWr::atomic_write(&slice, word).inline());
    left.done();
    assert_eq!(right.bytes(64, 8), b"other si");
}

#[test] //= check P11 test
fn a_flush_completes_after_the_writes_before_it() {
    let (mut left, right) = connected();
    left.memory.write_at(0, &pattern(5, 30_000)).unwrap();
    let source = [left.memory.slice(..30_000).unwrap()];
    let target = right.memory.remote().slice(0, 30_000).unwrap();
    left.qp.post_send(&SendWr::write(&source, target)).unwrap();
    post(&mut left.qp, SendWr::flush(target, Placement::GLOBAL));
    let completion = left.completion();
    assert_eq!((completion.status, completion.opcode), (WcStatus::Success, WcOpcode::Flush));
    assert_eq!(right.bytes(0, 30_000), pattern(5, 30_000));
    post(&mut left.qp, SendWr::flush_region(target, Placement::GLOBAL));
    left.done();
    let nothing = left.qp.post_send(&SendWr::flush(target, Placement(0)));
    assert_eq!(nothing, Err(PostError::BadFlush));
    // Ordinary memory is not persistent.
    post(&mut left.qp, SendWr::flush(target, Placement::PERSISTENT));
    assert_eq!(left.completion().status, WcStatus::RemInvReqErr);
}

#[test] //= check F14 test
fn lists_of_slices_are_gathered_and_scattered_in_order() {
    let (mut left, mut right) = connected();
    left.memory.write_at(0, &pattern(9, 30_000)).unwrap();
    let gather = [
        left.memory.slice(20_000..29_999).unwrap(),
        left.memory.slice(5..5).unwrap(),
        left.memory.slice(0..1).unwrap(),
        left.memory.slice(100..5_000).unwrap(),
    ];
    let mut expected = pattern(9, 30_000)[20_000..29_999].to_vec();
    expected.extend_from_slice(&pattern(9, 30_000)[0..1]);
    expected.extend_from_slice(&pattern(9, 30_000)[100..5_000]);

    let scatter = [
        right.memory.slice(0..7).unwrap(),
        right.memory.slice(50_000..50_000).unwrap(),
        right.memory.slice(100_000..200_000).unwrap(),
    ];
    right.qp.post_recv(&RecvWr::new(&scatter)).unwrap();
    post(&mut left.qp, SendWr::send(&gather));
    left.done();
    assert_eq!(right.completion().byte_len as usize, expected.len());
    assert_eq!(right.bytes(0, 7), expected[..7]);
    assert_eq!(right.bytes(100_000, expected.len() - 7), expected[7..]);
}

#[test]
fn a_list_is_posted_at_once_and_unsignaled_successes_are_silent() {
    let (mut left, right) = connected();
    let target = right.memory.remote();
    let parts: Vec<_> = (0..100).map(|n| [left.memory.slice(n * 8..n * 8 + 8).unwrap()]).collect();
    for n in 0..100 {
        left.memory.store_u64(n * 8, n as u64 + 1).unwrap();
    }
    let mut wrs: Vec<_> = parts
        .iter()
        .zip(0u64..)
        .map(|(part, n)| SendWr::write(part, target.slice(n * 8, 8).unwrap()).id(n))
        .collect();
    wrs[99] = wrs[99].signaled();
    left.qp.post_sends(&wrs).unwrap();
    assert_eq!(left.done(), 99);
    assert_eq!(left.cq.poll_one(), Ok(None));
    for n in 0..100 {
        assert_eq!(right.memory.load_u64(n * 8), Ok(n as u64 + 1));
    }
}

#[test]
fn lost_frames_are_sent_again() {
    let loss = LossConfig { rx: 0.02, tx: 0.02, seed: 7 };
    let options = ConnectOptions { timeout: 8, ..ConnectOptions::default() };
    let (mut left, right) = Setup { loss, options, ..Setup::default() }.connect();
    for len in [100_000, 300_001, 1] {
        write_then_read(&mut left, &right, len);
    }
    assert!(left.counter("retransmitted_packets") > 0);
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let (mut left, mut right) = connected();
    let source = left.memory.slice(..8).unwrap();
    post(&mut left.qp, SendWr::send(&[source]));
    let end = std::time::Instant::now() + SOON;
    while left.counter("rnr_nak_retry_err") == 0 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(left.cq.poll_one(), Ok(None));
    let room = right.memory.slice(..8).unwrap();
    right.qp.post_recv(&RecvWr::new(&[room])).unwrap();
    left.done();
    right.done();
    assert!(left.counter("rnr_nak_retry_err") > 0);
}

#[test]
fn both_halves_of_a_qp_work_on_threads_of_their_own() {
    const MESSAGES: u64 = 20_000;
    let (left, right) = connected();
    let (_control, mut sq, _rq) = left.qp.into_parts();
    let (_control, _sq, mut rq) = right.qp.into_parts();
    let next = |cq: &CompletionQueue| cq.wait(SOON).unwrap().expect("in time").ok().unwrap();
    let room = right.memory.slice(..64).unwrap();
    (0..64).try_for_each(|_| rq.post_recv(&RecvWr::new(&[room]))).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let source = left.memory.slice(..64).unwrap();
            let mut done = 0;
            for id in 0..MESSAGES {
                while sq.room() == 0 {
                    next(&left.cq);
                    done += 1;
                }
                sq.post_send(&SendWr::send(&[source]).id(id).signaled()).unwrap();
            }
            (done..MESSAGES).for_each(|_| next(&left.cq));
        });
        for _ in 0..MESSAGES {
            next(&right.cq);
            rq.post_recv(&RecvWr::new(&[room])).unwrap();
        }
    });
    assert_eq!(sq.state(), QpState::Rts);
}

#[test]
fn a_peer_that_went_away_ends_the_work_with_a_retry_error() {
    let options = ConnectOptions { timeout: 8, retry_cnt: 2, ..ConnectOptions::default() };
    let (mut left, right) = Setup { options, ..Setup::default() }.connect();
    let target = right.memory.remote();
    drop(right);
    let slice = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::write(&slice, target).id(1));
    post(&mut left.qp, SendWr::read(&slice, target).id(2));
    let (first, second) = (left.completion(), left.completion());
    assert_eq!((first.wr_id, first.status), (1, WcStatus::RetryExcErr));
    assert_eq!((second.wr_id, second.status), (2, WcStatus::WrFlushErr));
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Err);
}

#[test]
fn a_receiver_that_is_never_ready_ends_the_work_with_an_rnr_error() {
    let options = ConnectOptions { rnr_retry: 2, min_rnr_timer: 1, ..ConnectOptions::default() };
    let (mut left, _right) = Setup { options, ..Setup::default() }.connect();
    post(&mut left.qp, SendWr::send(&[]));
    assert_eq!(left.completion().status, WcStatus::RnrRetryExcErr);
}

#[test] //= check F10 test
fn a_message_longer_than_its_receive_is_an_error_at_both_ends() {
    let (mut left, mut right) = connected();
    let room = right.memory.slice(..100).unwrap();
    right.qp.post_recv(&RecvWr::new(&[room])).unwrap();
    let source = left.memory.slice(..101).unwrap();
    left.memory.fill(.., 0x77).unwrap();
    post(&mut left.qp, SendWr::send(&[source]));
    assert_eq!(left.completion().status, WcStatus::RemInvReqErr);
    assert_eq!(right.completion().status, WcStatus::LocLenErr);
    assert_eq!(right.bytes(100, 8), [0; 8]);
}

#[test]
//= check H5 test
//= check H6 test
fn a_drained_send_queue_takes_new_attributes_and_goes_on() {
    let (mut left, right) = connected();
    let slice = [left.memory.slice(..4096).unwrap()];
    post(&mut left.qp, SendWr::write(&slice, right.memory.remote()).id(1));
    left.qp.modify(&QpChange::to(QpState::Sqd), None).unwrap();
    // The request is accepted but held back; only requests that began before are finished.
    post(&mut left.qp, SendWr::write(&slice, right.memory.remote()).id(2));
    let end = std::time::Instant::now() + SOON;
    while left.qp.query().unwrap().sq_draining && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let peer = right.qp.endpoint(1, 0).unwrap();
    let path = AddressVector { hop_limit: 9, ..AddressVector::to(peer.gid) };
    let change = QpChange { timeout: Some(10), ..QpChange::default() };
    left.qp.modify(&change, Some(&path)).unwrap();
    left.qp.modify(&QpChange::to(QpState::Rts), None).unwrap();
    let mut done = [left.done(), left.done()];
    done.sort_unstable();
    assert_eq!(done, [1, 2]);
    let attr = left.qp.query().unwrap().attr;
    assert_eq!((attr.timeout, attr.path.encap.hop_limit), (10, 9));
}

#[test] //= check G5 test
fn a_qp_that_was_reset_is_connected_again() {
    let (mut left, mut right) = connected();
    left.qp.modify(&QpChange::to(QpState::Err), None).unwrap();
    for side in [&mut left, &mut right] {
        side.qp.modify(&QpChange::to(QpState::Reset), None).unwrap();
        assert_eq!(side.qp.state(), QpState::Reset);
    }
    common::join(&mut left, &mut right, &ConnectOptions::default());
    write_then_read(&mut left, &right, 5000);
}

#[test] //= check F13 test
fn inline_data_are_those_of_the_post_also_when_sent_again() {
    // Some packets and some answers are lost and sent again.
    let loss = LossConfig { rx: 0.1, tx: 0.0, seed: 5 };
    let options = ConnectOptions { timeout: 10, ..ConnectOptions::default() };
    let (left, right) = Setup { loss, options, ..Setup::default() }.contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let init = uroce::QpInit::new(&left.cq).max_inline(1024);
    left.qp = left.pd.create_qp(&init).unwrap();
    common::join(&mut left, &mut right, &options);
    // They include the smallest sizes that are copied and summed in one pass.
    let len_of = |round: usize| [1, 8, 255, 257, 512, 1023, 1024][round % 7];
    for round in 0..100usize {
        let len = len_of(round);
        let message = pattern(round as u8, len);
        left.memory.write_at(0, &message).unwrap();
        // The data are in two pieces, and the memory changes right after the post.
        let (head, tail) = (left.memory.slice(..len / 2), left.memory.slice(len / 2..len));
        let pieces = [head.unwrap(), tail.unwrap()];
        let target = right.memory.remote().slice(round as u64 * 2048, 2048).unwrap();
        post(&mut left.qp, SendWr::write(&pieces, target).inline().id(round as u64));
        left.memory.fill(..1024, 0xee).unwrap();
    }
    (0..100).for_each(|round| assert_eq!(left.done(), round));
    assert!(left.counter("retransmitted_packets") > 0, "nothing was sent again");
    for round in 0..100usize {
        let len = len_of(round);
        assert_eq!(right.bytes(round * 2048, len), pattern(round as u8, len), "round {round}");
        assert_eq!(right.bytes(round * 2048 + len, 8), [0; 8]);
    }
    let too_long = [left.memory.slice(..1025).unwrap()];
    let refused = left.qp.post_send(&SendWr::send(&too_long).inline());
    assert_eq!(refused, Err(PostError::InlineTooLong));
    let read = SendWr::read(&too_long[..0], right.memory.remote()).inline();
    assert_eq!(left.qp.post_send(&read), Err(PostError::WrongOperation));
}

#[test] //= check C15 test
fn a_fenced_send_waits_for_the_reads_before_it() {
    let (mut left, right) = connected();
    // The data read are written to another place. Without the fence they would be written before
    // they were read.
    const LEN: usize = 200_000;
    for round in 0..20 {
        let message = pattern(round, LEN);
        right.memory.write_at(0, &message).unwrap();
        left.memory.fill(..LEN, 0).unwrap();
        let local = [left.memory.slice(..LEN).unwrap()];
        let (from, to) = (right.memory.remote(), right.memory.remote());
        let to = to.slice(500_000, LEN as u64).unwrap();
        let wrs = [SendWr::read(&local, from), SendWr::write(&local, to).fenced().signaled()];
        left.qp.post_sends(wrs).unwrap();
        left.done();
        assert_eq!(right.bytes(500_000, LEN), message, "round {round}");
    }
}

/// Many QPs on several lcores add to one word of one region. No addition is lost or counted twice.
#[test] //= check D8 test
fn sixteen_qps_on_two_lcores_add_up_exactly() {
    const QPS: u64 = 16;
    const ADDS: u64 = 2_000;
    let (left, right) = Setup { lcores: 2, ..Setup::default() }.contexts();
    let (left, right) = (Side::new(&left), Side::new(&right));
    let options = ConnectOptions::default();
    let word = right.memory.remote().slice(0, 8).unwrap();
    let mut pairs: Vec<_> = (0..QPS as usize)
        .map(|at| {
            let cq = left.context.create_cq(256).unwrap();
            let init = uroce::QpInit { lcore: Some(at % 2), ..uroce::QpInit::new(&cq) };
            let mut sender = left.pd.create_qp(&init).unwrap();
            let init = uroce::QpInit { lcore: Some(at / 2 % 2), ..uroce::QpInit::new(&right.cq) };
            let mut target = right.pd.create_qp(&init).unwrap();
            target.connect(&sender.endpoint(1, 0).unwrap(), &options).unwrap();
            sender.connect(&target.endpoint(1, 0).unwrap(), &options).unwrap();
            (sender, target, cq, 0u64, 0u64)
        })
        .collect();
    let mut formers = Vec::new();
    while pairs.iter().any(|pair| pair.4 < ADDS) {
        for (at, (sender, _, cq, posted, done)) in pairs.iter_mut().enumerate() {
            while *posted < ADDS && *posted < *done + 16 {
                let place = at * 256 + *posted as usize % 16 * 8;
                let result = [left.memory.slice(place..place + 8).unwrap()];
                let add = SendWr::fetch_add(&result, word, 1).id(place as u64);
                sender.post_send(&add.signaled()).expect("room");
                *posted += 1;
            }
            while let Some(completion) = cq.poll_one().unwrap() {
                completion.ok().unwrap();
                formers.push(left.memory.load_u64(completion.wr_id as usize).unwrap());
                *done += 1;
            }
        }
        std::thread::yield_now();
    }
    assert_eq!(right.memory.load_u64(0).unwrap(), QPS * ADDS);
    formers.sort_unstable();
    assert!(formers.into_iter().eq(0..QPS * ADDS), "each former value was given once");
}
