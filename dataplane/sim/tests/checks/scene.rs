//! Helpers that the scenes share.

use core::time::Duration;

use std::collections::BTreeMap;

use uroce_sim::{Pair, Seen};
use uroce_transport::{Counter, Cqe, DropReason, QpState, Side, WcStatus};
use uroce_wire::{NakCode, OpCode, Psn, Syndrome};

/// The end that sends requests.
pub(crate) const A: usize = 0;

/// The end that answers.
pub(crate) const B: usize = 1;

/// Longer than a round trip, shorter than any ACK timeout of the scenes.
pub(crate) const SHORTLY: Duration = Duration::from_micros(50);

/// The ACK timeout of timeout code 8, which the scenes use.
pub(crate) const TIMEOUT: Duration = Duration::from_nanos(4096 << 8);

/// The acknowledgements of RC and XRC.
const ACKS: [OpCode; 2] = [OpCode::RC_ACKNOWLEDGE, OpCode::XRC_ACKNOWLEDGE];

/// The NAKs that an end has sent, with their PSNs, without RNR NAKs.
pub(crate) fn naks(pair: &Pair, from: usize) -> Vec<(NakCode, Psn)> {
    let nak = |seen: &Seen| match seen.ext.aeth.syndrome {
        Syndrome::Nak(code) if ACKS.contains(&seen.bth.opcode) => Some((code, seen.bth.psn)),
        _ => None,
    };
    pair.seen(from).iter().filter_map(nak).collect()
}

/// The RNR NAKs that an end has sent.
pub(crate) fn rnr_naks(pair: &Pair, from: usize) -> Vec<Seen> {
    let mut seen = pair.responses(from);
    seen.retain(|seen| matches!(seen.ext.aeth.syndrome, Syndrome::RnrNak { .. }));
    seen
}

/// Numbers and statuses of the completions of a queue.
pub(crate) fn statuses(pair: &mut Pair, end: usize, side: Side) -> Vec<(u64, WcStatus)> {
    pair.take(end, side).iter().map(|cqe| (cqe.wr_id, cqe.status)).collect()
}

/// Asserts that an end's node has exactly these counters, by name, and no others above 0.
#[track_caller]
pub(crate) fn assert_counted(pair: &Pair, end: usize, expected: &[(&str, u64)]) {
    let expected = expected.iter().copied().filter(|(_, n)| *n > 0).collect();
    assert_eq!(counted(pair, end), expected, "{:#?}", pair.trace(40));
}

/// Asserts that an end's node has exactly these counters, except for `but`, which depends on
/// timing.
#[track_caller]
pub(crate) fn assert_counted_but(pair: &Pair, end: usize, but: Counter, expected: &[(&str, u64)]) {
    let mut counted = counted(pair, end);
    counted.remove(but.name());
    assert_eq!(counted, expected.iter().copied().collect(), "{:#?}", pair.trace(40));
}

/// All counters of an end's node that are above 0, drops included, by name.
fn counted(pair: &Pair, end: usize) -> BTreeMap<&'static str, u64> {
    let counted = Counter::ALL.iter().map(|one| (one.name(), pair.count(end, *one)));
    let dropped = DropReason::ALL.iter().map(|one| (one.name(), pair.drops(end, *one)));
    counted.chain(dropped).filter(|(_, n)| *n > 0).collect()
}

/// Takes the only completion of a queue and asserts that it is a success.
pub(crate) fn only_success(pair: &mut Pair, end: usize, side: Side) -> Cqe {
    let cqes = pair.take(end, side);
    assert_eq!(cqes.len(), 1, "{cqes:?}\n{:#?}", pair.trace(40));
    assert_eq!(cqes[0].status, WcStatus::Success, "{:#?}", pair.trace(40));
    cqes[0]
}

/// Asserts that exactly these work requests have succeeded, in this order.
#[track_caller]
pub(crate) fn assert_all_succeeded(pair: &mut Pair, end: usize, side: Side, wr_ids: &[u64]) {
    let expected: Vec<_> = wr_ids.iter().map(|wr_id| (*wr_id, WcStatus::Success)).collect();
    assert_eq!(statuses(pair, end, side), expected, "{:#?}", pair.trace(40));
}

/// Asserts that the responder has refused with this code and ended the connection.
#[track_caller]
pub(crate) fn assert_refused(pair: &Pair, code: NakCode) {
    let naks = naks(pair, B);
    assert_eq!(naks.len(), 1, "{:#?}", pair.trace(40));
    assert_eq!(naks[0].0, code, "{:#?}", pair.trace(40));
    assert_eq!(pair.qp(B).state(), QpState::Err);
}

/// The ACKs that an end has sent: PSN and MSN of each.
pub(crate) fn acks(pair: &Pair, from: usize) -> Vec<(Psn, u32)> {
    let mut seen = pair.responses(from);
    seen.retain(|seen| seen.bth.opcode == OpCode::RC_ACKNOWLEDGE);
    seen.retain(|seen| matches!(seen.ext.aeth.syndrome, Syndrome::Ack { .. }));
    seen.iter().map(|seen| (seen.bth.psn, seen.ext.aeth.msn.value())).collect()
}

/// The positions `0..end` of a sequence of packets.
pub(crate) fn upto(end: i32) -> std::ops::Range<i32> {
    0..end
}

/// The concatenation of these ranges.
pub(crate) fn runs(ranges: &[std::ops::Range<i32>]) -> Vec<i32> {
    ranges.iter().cloned().flatten().collect()
}
