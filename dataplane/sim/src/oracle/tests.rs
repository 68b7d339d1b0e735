use super::*;
use crate::campaign::drive;
use crate::campaign::plan::Plan;

/// A run of one connection that has ended without a violation.
fn finished() -> Traffic {
    let (connections, rates) = (Some(1), None);
    let plan = Plan { seed: 5, packets: 500, connections, rates, has_control: false };
    let mut traffic = Traffic::new(&plan);
    assert_eq!(drive(&mut traffic, &plan), Ok(()));
    assert_eq!(traffic.judge_end(false), Ok(()));
    traffic
}

/// Flips a bit of an end's memory, and checks that the oracle finds it.
fn sabotage(mr: impl Fn(&Traffic) -> crate::world::memory::Mr, what: &str) {
    let mut traffic = finished();
    let (mr, at) = (mr(&traffic), traffic.ends[0].at);
    let bytes = traffic.world.node_mut(at.node).memory.bytes_mut(mr);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let verdict = traffic.judge_end(false).expect_err("a flipped bit");
    assert!(verdict.contains(what), "{verdict}");
}

#[test]
fn one_wrong_bit_anywhere_is_found() {
    sabotage(|traffic| traffic.ends[0].target, "the target differs");
    sabotage(|traffic| traffic.ends[0].words, "the words differ");
    sabotage(|traffic| traffic.ends[0].landing.mr, "beside READ buffers");
    sabotage(|traffic| traffic.ends[0].inbox.mr, "beside receive buffers");
    sabotage(|traffic| traffic.shared[usize::from(traffic.ends[0].at.node)].mr, "make up");
}

#[test]
fn a_completion_that_comes_again_or_from_nowhere_is_found() {
    for (side, opcode) in [(Side::Send, WcOpcode::Send), (Side::Recv, WcOpcode::Recv)] {
        let mut traffic = finished();
        let at = traffic.ends[0].at;
        let (wr_id, qpn) = (traffic.ends[0].next_wr_id - 1, traffic.world.qp(at).qpn());
        let cqe = Cqe::new(wr_id, WcStatus::Success, opcode, qpn);
        let completed = Completed { at, when: traffic.world.now(), side, cqe };
        assert!(traffic.judge(&completed).is_err(), "{side:?}");
    }
}

#[test]
fn an_error_without_faults_is_not_explained() {
    let traffic = finished();
    assert!(traffic.explain(0).is_err());
}

#[test]
fn an_addition_done_twice_breaks_the_chain() {
    let mut traffic = finished();
    let shared = &mut traffic.shared[0];
    let word = shared.initial;
    shared.done = vec![(word, 3), (word, 3)];
    assert!(traffic.judge_shared_words().is_err());
}
