//! QP table: gives the lcore that owns a QPN, by one atomic word per slot that all lcores read.
//!
//! Invariants
//! - Only a QP's owner writes its word, so the owner finds in its own shard what the word names.
//! - The table holds numbers, not pointers. A late reader hands a packet to an lcore that no longer
//!   has the QP, and that lcore drops and counts it. So nothing needs to be reclaimed.
//!
//! Not here: the QP, which never leaves its owner (the engine's `qp`).

use crate::sync::{AtomicU64, Ordering};
use crate::table::key::{Numbers, Recent};
use std::sync::Arc;
use uroce_wire::Qpn;

/// The word of a slot without a QP: QPN 0 is never given out.
const ABSENT: u64 = 0;

/// Bytes per QP: its word.
pub const BYTES_PER_QP: usize = size_of::<AtomicU64>();

/// The place of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its slot, in the table and in the owner's shard.
    pub index: u32,
    /// Its lcore, with [`RD_BIT`] if it is an RD QP or EEC, and [`EEC_BIT`] if it is an EEC.
    pub owner: usize,
}

/// Marks the owner of an RD QP or EEC: packets do not find these by the number in the BTH alone,
/// and the marked owner is no lcore, so that others need no test for them.
pub const RD_BIT: usize = 1 << 16;

/// Marks the owner of an EEC, besides [`RD_BIT`].
pub const EEC_BIT: usize = 1 << 17;

impl Place {
    /// Returns whether it is that of an RD QP or EEC.
    pub fn is_rd(&self) -> bool {
        self.owner & RD_BIT != 0
    }

    /// Returns whether it is that of an EEC.
    pub fn is_eec(&self) -> bool {
        self.owner & EEC_BIT != 0
    }

    /// Returns the lcore.
    pub fn lcore(&self) -> usize {
        self.owner & !(RD_BIT | EEC_BIT)
    }
}

/// QPN → [`Place`].
#[derive(Debug)]
pub struct QpTable {
    numbers: Numbers,
    /// `owner << 32 | QPN`, or [`ABSENT`].
    words: Box<[AtomicU64]>,
}

impl QpTable {
    /// Makes a table with room for `slots` QPs.
    pub fn new(slots: u32, numbers: Numbers) -> QpTable {
        let slots = slots.next_power_of_two();
        QpTable { numbers, words: (0..slots).map(|_| AtomicU64::new(ABSENT)).collect() }
    }

    /// Returns the place of the QP of this number, if it is in slot `index`.
    #[inline]
    fn find_at(&self, index: usize, qpn: Qpn) -> Option<Place> {
        // Pairs with `publish`. The caller has masked `index` to the table's size.
        let word = self.words.get(index)?.load(Ordering::Acquire);
        let present = word as u32 == qpn.value() && word != ABSENT;
        present.then_some(Place { index: index as u32, owner: (word >> 32) as usize })
    }

    /// Returns the place of the QP of this number, for a caller that rarely asks.
    pub fn find(&self, qpn: Qpn) -> Option<Place> {
        self.find_at(self.numbers.index_of_qpn(qpn.value()), qpn)
    }

    /// Called when the owner has the QP in its shard: packets may arrive.
    pub fn publish(&self, qpn: Qpn, place: Place) {
        let word = (place.owner as u64) << 32 | u64::from(qpn.value());
        self.words[place.index as usize].store(word, Ordering::Release);
    }

    /// Called when the owner has taken the QP out of its shard.
    pub fn withdraw(&self, index: u32) {
        self.words[index as usize].store(ABSENT, Ordering::Release);
    }
}

/// One lcore's view of the table.
#[derive(Debug)]
pub struct QpFinder {
    table: Arc<QpTable>,
    recent: Recent,
}

impl QpFinder {
    /// Makes a finder of one lcore.
    pub fn new(table: Arc<QpTable>) -> QpFinder {
        let recent = Recent::new(&table.numbers);
        QpFinder { table, recent }
    }

    /// Returns the place of the QP of this number.
    #[inline]
    pub fn find(&self, qpn: Qpn) -> Option<Place> {
        let index = self.recent.index_of_qpn(&self.table.numbers, qpn.value());
        self.table.find_at(index, qpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::key::Slots;

    #[test] //= check E10 test
    fn a_number_is_found_from_publish_to_withdraw_and_its_successor_is_another() {
        let numbers = Numbers::random(64).unwrap();
        let table = Arc::new(QpTable::new(64, numbers.clone()));
        let finder = QpFinder::new(Arc::clone(&table));
        let mut slots = Slots::new(64);
        let (index, number) = slots.take(|at, life| numbers.qpn(at, life), &[0]).unwrap();
        let (qpn, place) = (Qpn::new(number), Place { index, owner: 3 });
        assert_eq!(finder.find(qpn), None);
        table.publish(qpn, place);
        assert_eq!(finder.find(qpn), Some(place));
        assert_eq!(finder.find(Qpn::new(number ^ 1)), None);
        table.withdraw(index);
        assert_eq!(finder.find(qpn), None);

        slots.give_back(index);
        let reused = std::iter::from_fn(|| slots.take(|at, life| numbers.qpn(at, life), &[0]))
            .last()
            .unwrap();
        assert_eq!(reused.0, index);
        table.publish(Qpn::new(reused.1), place);
        assert_eq!(finder.find(qpn), None, "the old number must not find the new QP");
    }

    #[test] //= check E10 test
    fn an_empty_table_knows_no_number_at_all() {
        let finder = QpFinder::new(QpTable::new(16, Numbers::random(16).unwrap()).into());
        for number in (0..1 << 24).step_by(7).chain([1, 0xff_ffff]) {
            assert_eq!(finder.find(Qpn::new(number)), None);
        }
    }
}
