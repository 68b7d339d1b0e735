//! What micro-benchmarks reach of the engine's insides. No part of its face.

use crate::key::{Numbers, Slots};
use crate::qp_table::{Place, QpFinder, QpTable};
use crate::sum;
use std::sync::Arc;
use uroce_wire::{Icrc, Qpn};

/// What the engine does to a large payload that it sends: copies it to `out`, which has its length,
/// and gives the sum of what `sum` is of, followed by it.
///
/// # Panics
/// If `out` has another length.
#[inline]
pub fn copy_summed(payload: &[u8], out: &mut [u8], sum: Icrc) -> Icrc {
    sum::copy_summed(payload, out, sum)
}

/// What it does to one that it receives, if no other follows.
#[inline]
pub fn summed(payload: &[u8], sum: Icrc) -> Icrc {
    sum::summed(payload, sum, &[])
}

/// A QP table that is full, and one lcore's way to look numbers up in it.
#[derive(Debug)]
pub struct QpLookUp {
    finder: QpFinder,
    numbers: Vec<Qpn>,
}

impl QpLookUp {
    /// With so many QPs, of lcore 0.
    ///
    /// # Panics
    /// If `qps` is 0 or the system gives no randomness.
    pub fn new(qps: u32) -> QpLookUp {
        let numbers = Numbers::random(qps).expect("the system's randomness");
        let table = Arc::new(QpTable::new(qps, numbers.clone()));
        let mut slots = Slots::new(qps);
        let publish = |_| {
            let (index, number) =
                slots.take(|at, life| numbers.qpn(at, life), &[0]).expect("a free slot");
            table.publish(Qpn::new(number), Place { index, owner: 0 });
            Qpn::new(number)
        };
        let numbers = (0..qps).map(publish).collect();
        QpLookUp { finder: QpFinder::new(Arc::clone(&table)), numbers }
    }

    /// Looks the QP up that was opened as number `nth`; whether it is there.
    #[inline]
    pub fn find(&self, nth: u32) -> bool {
        self.numbers.get(nth as usize).is_some_and(|&qpn| self.finder.find(qpn).is_some())
    }
}
