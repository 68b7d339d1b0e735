//! Memory windows that are bound, bound again and invalidated during traffic and faults.

use fastrand::Rng;
use uroce_sim::{Pair, Rates, Terms, WindowType};
use uroce_transport::{AccessFlags, BindMw, Pd, SendOp, Side, WcStatus};
use uroce_wire::Rkey;

const A: usize = 0;
const B: usize = 1;

/// Length of a window in bytes.
const LEN: u32 = 3000;

/// Number of times that the window is bound in a run.
const ROUNDS: u32 = 12;

/// Posts a request at an end and returns the status of its completion.
fn done(pair: &mut Pair, end: usize, op: SendOp, len: u32) -> WcStatus {
    let sge = pair.local(end).sge(0, len);
    let wr_id = pair.post(end, op, if op.is_local() { &[] } else { core::slice::from_ref(&sge) });
    pair.run();
    let cqes = pair.take(end, Side::Send);
    assert_eq!((cqes.len(), cqes[0].wr_id), (1, wr_id));
    cqes[0].status
}

/// Binds `LEN` bytes from `offset` of end B's remote region under `new_rkey`.
fn bind(pair: &mut Pair, rkey: Rkey, new_rkey: Rkey, offset: u32) -> WcStatus {
    let region = pair.remote(B);
    let bind = BindMw {
        rkey,
        new_rkey,
        lkey: region.lkey(),
        va: region.va(u64::from(offset)),
        len: u64::from(LEN),
        access: AccessFlags::REMOTE_WRITE,
    };
    done(pair, B, bind.into(), 0)
}

#[test]
fn what_a_window_opened_is_shut_once_it_is_invalidated() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let mut pair = Pair::with(|terms: &mut Terms| {
            terms.is_tapped = true;
            terms.is_recorded = false;
            terms.settings.seed = seed;
        });
        pair.world.set_rates(A as u16, B as u16, Rates::swarm(&mut rng));
        pair.world.set_rates(B as u16, A as u16, Rates::swarm(&mut rng));
        let region = pair.remote(B);
        let memory = &mut pair.world.node_mut(B as u16).memory;
        let mut rkey = memory.allocate_window(Pd(1), WindowType::Two);
        let mut offset = 0;
        for round in 0..ROUNDS {
            let new_rkey = Rkey(rkey.0 & !0xff | (round + 1));
            offset = rng.u32(..100_000);
            assert_eq!(bind(&mut pair, rkey, new_rkey, offset), WcStatus::Success, "seed {seed}");
            rkey = new_rkey;
            let len = rng.u32(1..=LEN);
            let at = rng.u32(..=LEN - len);
            let va = region.va(u64::from(offset + at));
            let write = SendOp::Write { va, rkey, imm: None };
            assert_eq!(done(&mut pair, A, write, len), WcStatus::Success, "seed {seed}");
            assert_eq!(pair.slice(B, region, offset + at, len), pair.source(A, len));
            if round + 1 < ROUNDS {
                let invalidate = SendOp::LocalInvalidate { rkey };
                assert_eq!(done(&mut pair, B, invalidate, 0), WcStatus::Success, "seed {seed}");
            }
        }
        // The window is invalidated while a WRITE of many packets is in flight.
        let before = pair.bytes(B, region).to_vec();
        let va = region.va(u64::from(offset));
        pair.post(A, SendOp::Write { va, rkey, imm: None }, &[pair.local(A).sge(50_000, LEN)]);
        pair.run_for(core::time::Duration::from_nanos(rng.u64(..3_000)));
        pair.post(B, SendOp::LocalInvalidate { rkey }, &[]);
        let shut = pair.bytes(B, region).to_vec();
        let outside = |bytes: &[u8]| {
            let (start, end) = (offset as usize, (offset + LEN) as usize);
            [&bytes[..start], &bytes[end..]].concat()
        };
        assert_eq!(outside(&shut), outside(&before), "seed {seed}");
        pair.run();
        assert_eq!(pair.world.take_flaw(), None, "seed {seed}");
        let status = pair.take(A, Side::Send)[0].status;
        match status {
            WcStatus::Success => assert_eq!(
                pair.slice(B, region, offset, LEN),
                &shut[offset as usize..][..LEN as usize]
            ),
            // The refusal may be lost, and then nothing answers.
            WcStatus::RetryExcErr => {}
            status => assert_eq!(status, WcStatus::RemAccessErr, "seed {seed}"),
        }
        assert_eq!(pair.bytes(B, region), shut, "seed {seed}: written through a shut window");
    }
}
