//! UC queue pairs: messages arrive whole and in order, or not at all.

use crate::common;
use crate::common::{Setup, Side, pattern, post};
use std::time::Duration;
use uroce::config::LossConfig;
use uroce::{ConnectOptions, ImmDt, PathMtu, PostError, QpInit, QpState, QpType, RecvWr, SendWr};

fn connected(setup: &Setup) -> (Side, Side) {
    let (left, right) = setup.contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    for side in [&mut left, &mut right] {
        side.qp = side.pd.create_qp(&QpInit::new(&side.cq).qp_type(QpType::Uc)).unwrap();
    }
    common::join(&mut left, &mut right, &setup.options);
    (left, right)
}

#[test]
fn sends_and_writes_of_every_size_arrive_whole() {
    let (mut left, mut right) = connected(&Setup::default());
    for (at, len) in [0, 1, 3, 4095, 4096, 4097, 65_536, 300_001].into_iter().enumerate() {
        let message = pattern(at as u8, len);
        left.memory.write_at(0, &message).unwrap();
        right.memory.fill(.., 0xee).unwrap();
        let room = [right.memory.slice(500_000..900_000).unwrap()];
        right.qp.post_recvs(&[RecvWr::new(&room).id(1), RecvWr::new(&[]).id(2)]).unwrap();
        let source = [left.memory.slice(..len).unwrap()];
        post(&mut left.qp, SendWr::send(&source).id(3));
        let write = SendWr::write_with_imm(&source, right.memory.remote(), ImmDt(9));
        post(&mut left.qp, write.id(4));
        assert_eq!((left.done(), left.done()), (3, 4));
        let (sent, written) = (right.completion(), right.completion());
        assert_eq!((sent.wr_id, sent.byte_len, sent.imm), (1, len as u32, None));
        assert_eq!((written.wr_id, written.byte_len), (2, len as u32));
        assert_eq!(written.imm, Some(ImmDt(9)));
        assert_eq!(right.bytes(500_000, len), message);
        assert_eq!(right.bytes(0, len), message);
        assert_eq!(right.bytes(len, 8), [0xee; 8]);
    }
}

#[test]
fn operations_that_need_an_answer_are_refused_on_uc() {
    let (mut left, right) = connected(&Setup::default());
    let target = right.memory.remote().slice(0, 8).unwrap();
    let sink = [left.memory.slice(..8).unwrap()];
    for wr in [SendWr::read(&sink, target), SendWr::fetch_add(&sink, target, 1)] {
        assert_eq!(left.qp.post_send(&wr), Err(PostError::WrongOperation));
    }
    assert_eq!(left.qp.state(), QpState::Rts);
}

/// Sends messages of several packets through a link with loss. Messages that complete are whole and
/// in order, and the sender is not affected.
#[test] //= check L1 test
fn a_lost_packet_loses_its_message_and_no_other() {
    const MESSAGES: u64 = 400;
    const LEN: usize = 1500;
    let loss = LossConfig { rx: 0.05, tx: 0.0, seed: 11 };
    let options = ConnectOptions { path_mtu: Some(PathMtu::B256), ..ConnectOptions::default() };
    let (mut left, mut right) = connected(&Setup { loss, options, ..Setup::default() });
    let slot = |at: u64| (at as usize % 64) * 4096;
    for at in 0..64 {
        let room = [right.memory.slice(slot(at)..slot(at) + 4096).unwrap()];
        right.qp.post_recv(&RecvWr::new(&room).id(at)).unwrap();
    }
    let (mut received, mut last, mut posted) = (0u64, None, 64u64);
    for number in 0..MESSAGES {
        left.memory.write_at(0, &pattern(number as u8, LEN)).unwrap();
        left.memory.store_u64(0, number).unwrap();
        post(&mut left.qp, SendWr::send(&[left.memory.slice(..LEN).unwrap()]));
        left.done();
        while let Some(completion) = right.cq.wait(Duration::from_millis(2)).unwrap() {
            completion.ok().unwrap();
            assert_eq!(completion.byte_len as usize, LEN);
            assert_eq!(completion.wr_id, received, "receives in order, none skipped");
            let place = slot(received);
            let number = right.memory.load_u64(place).unwrap();
            assert!(last < Some(number), "{number} after {last:?}");
            let mut expected = pattern(number as u8, LEN);
            expected[..8].copy_from_slice(&number.to_ne_bytes());
            assert_eq!(right.bytes(place, LEN), expected, "message {number}");
            last = Some(number);
            received += 1;
            let room = [right.memory.slice(slot(posted)..slot(posted) + 4096).unwrap()];
            right.qp.post_recv(&RecvWr::new(&room).id(posted)).unwrap();
            posted += 1;
        }
    }
    assert!(received > MESSAGES / 3 && received < MESSAGES, "{received} of {MESSAGES}");
    assert_eq!(left.qp.state(), QpState::Rts);
}
