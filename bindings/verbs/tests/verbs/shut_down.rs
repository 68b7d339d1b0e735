//! A device that is closed while its objects still exist, as at the end of a process.

use crate::common;
use crate::common::{SOON, Setup, Side, pattern};
use std::time::{Duration, Instant};
use uroce::{QpInit, QpType, RecvWr, RequestError, SendWr};

const MESSAGES: usize = 12;
const LEN: usize = 64 << 10;

#[test]
fn requests_posted_before_the_shut_down_are_sent() {
    let setup = Setup::default();
    let (left, right) = setup.contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    for side in [&mut left, &mut right] {
        side.qp = side.pd.create_qp(&QpInit::new(&side.cq).qp_type(QpType::Uc)).unwrap();
    }
    common::join(&mut left, &mut right, &setup.options);
    let message = pattern(5, LEN);
    left.memory.write_at(0, &message).unwrap();
    for at in 0..MESSAGES {
        let room = [right.memory.slice(at * LEN..(at + 1) * LEN).unwrap()];
        right.qp.post_recv(&RecvWr::new(&room).id(at as u64)).unwrap();
    }
    let source = [left.memory.slice(..LEN).unwrap()];
    for _ in 0..MESSAGES {
        left.qp.post_send(&SendWr::send(&source)).unwrap();
    }
    left.context.shut_down(Duration::from_secs(1));

    for at in 0..MESSAGES {
        assert_eq!(right.done(), at as u64);
        assert_eq!(right.bytes(at * LEN, LEN), message);
    }
    assert_eq!(right.cq.poll_one().unwrap().map(|one| one.wr_id), None);
}

#[test]
fn shutting_down_has_a_time_limit_and_later_calls_fail() {
    let (mut left, mut right) = Setup::default().connect();
    // A peer that continues to send does not delay the end.
    let source = [right.memory.slice(..LEN).unwrap()];
    for _ in 0..64 {
        right.qp.post_send(&SendWr::write(&source, left.memory.remote())).unwrap();
    }
    let begin = Instant::now();
    left.context.shut_down(Duration::from_millis(200));
    assert!(begin.elapsed() < SOON / 2);
    left.context.shut_down(Duration::from_secs(1));
    let refused = left.pd.create_qp(&QpInit::new(&left.cq));
    assert!(matches!(refused, Err(RequestError::Gone)), "{refused:?}");
    assert!(left.qp.post_send(&SendWr::send(&[])).is_err());
    assert_eq!(left.context.counters().unwrap_err(), RequestError::Gone);
    drop(left);
    drop(right);
}
