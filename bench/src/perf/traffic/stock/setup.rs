//! Set-up of a session with a perftest program: the parameters that it compares, and the keys.

use super::super::Connected;
use super::super::end::End;
use super::super::worker::Workers;
use crate::error::BenchError;
use crate::node::Node;
use crate::perf::plan::{Amount, Measure, Operation, Plan, Service};
use crate::rendezvous::perftest::{Key, Talk, Terms};
use crate::rendezvous::{PATIENCE, pause};
use std::time::Duration;

/// Swaps keys in the program's order and connects.
pub(super) fn connect(
    node: &Node,
    talk: &mut Talk,
    plan: &Plan,
    mtu: u32,
    reads_max: Option<u32>,
    workers: &mut Workers,
) -> Result<Connected, BenchError> {
    let keys: Vec<Key> = workers.ends.iter().map(|end| key(plan, end)).collect();
    let mut swap = |keys: &[Key]| -> Result<Vec<Key>, BenchError> {
        keys.iter().map(|key| talk.swap_key(key, PATIENCE, pause)).collect()
    };
    let send = plan.operation == Operation::Send;
    if plan.measure == Measure::Latency && !send {
        swap(&keys[..1])?;
    }
    let theirs = swap(&keys)?;
    let len = workers.ends[0].len;
    let remote = theirs.iter().map(|key| End {
        gid: key.gid,
        qpn: key.qpn,
        psn: key.psn,
        va: key.va,
        rkey: key.rkey,
        len,
        srqn: key.srqn,
        eecn: 0,
        qkey: 0,
    });
    let reads = theirs.iter().map(|key| key.reads).chain(reads_max).min();
    let reads = reads.map(|reads| u8::try_from(reads).unwrap_or(u8::MAX));
    let (local, remote) = (workers.ends.clone(), remote.collect());
    // What the program's options say of its rate is not known.
    let silence = Duration::ZERO;
    let connected = Connected { mtu, reads: reads.unwrap_or(0), local, remote, silence };
    workers.connect(node, plan, &connected)?;
    let (first, then) = if send { (&keys[..1], &keys[..]) } else { (&keys[..], &keys[..1]) };
    swap(first)?;
    swap(then)?;
    Ok(connected)
}

/// Returns the parameters that a program with the same options would send. `service` is its number
/// of the plan's service.
pub(super) fn terms(plan: &Plan, service: u32, mtu: u32, gbits: bool) -> Terms {
    let verb = match plan.operation {
        Operation::Send => 0,
        Operation::Write => 2,
        Operation::Read => 4,
        Operation::FetchAdd | Operation::CompareSwap => 5,
    };
    let sweep = plan.sizes.len() > 1;
    let method = if plan.amount.is_endless() { 2 } else { u32::from(sweep) };
    let size = match plan.service {
        Service::Ud if !sweep => plan.size_max().min(mtu),
        _ => plan.size_max(),
    };
    let bandwidth = plan.measure == Measure::Bandwidth;
    let terms = Terms::default()
        .int("test_method", method)
        .int("connection_type", service)
        .int("verb", verb)
        .int("tst", bandwidth.into())
        .int("test_type", plan.amount.iterations().is_none().into())
        .long("size", size.into())
        .int("num_of_qps", plan.queue_pairs())
        .int("duplex", plan.bidirectional.into())
        .int("use_rdma_cm", 0)
        .int("use_write_with_imm", 0)
        .int("aes_xts", 0)
        .int("sig_offload", 0)
        .int("data_validation", 0);
    let terms = match plan.operation {
        Operation::CompareSwap => terms.int("atomicType", 0),
        Operation::FetchAdd => terms.int("atomicType", 1),
        _ => terms,
    };
    let terms = if bandwidth { terms.int("report_fmt", (!gbits).into()) } else { terms };
    match plan.amount {
        Amount::Iterations(count) => terms.long("iters", count),
        Amount::Duration(time) => {
            let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
            terms.long("iters", 0).int("duration", seconds)
        }
        // The time between two results is an end's own, which newer releases compare all the same.
        Amount::Endless => terms,
    }
}

/// Returns the parameters of an end in perftest's form.
pub(super) fn key(plan: &Plan, end: &End) -> Key {
    let reads = if plan.operation.is_answered_by_stack() { plan.outstanding() } else { 1 };
    let End { gid, qpn, psn, va, rkey, srqn, .. } = *end;
    Key { reads: reads.into(), qpn, psn, rkey, va, gid, srqn }
}

/// Returns perftest's number of a service; an error if it has none.
pub(super) fn connection_type(service: Service) -> Result<u32, BenchError> {
    match service {
        Service::Rc => Ok(0),
        Service::Uc => Ok(1),
        Service::Ud => Ok(2),
        Service::Xrc => Ok(4),
        Service::Rd => {
            Err(BenchError::usage("-c RD needs uroce at the other end too: perftest has no RD"))
        }
    }
}
