//! Published values: a table that lcores read with one load and any thread may change. Each place
//! is empty or holds one immutable value.
//!
//! Invariants
//! - A value never changes while it is in the table.
//! - A reader is in a turn, and keeps nothing that it found beyond the turn. A value that was taken
//!   out is returned once each turn that could have found it has ended ([`crate::table::qsbr`]).
//!
//! Not here: locks between writers. Callers see to it that a place has one writer at a time.

#![allow(unsafe_code)]

use crate::sync::{AtomicPtr, Ordering};
use crate::table::qsbr::{InTurn, Turns};
use std::ptr;
use std::sync::Arc;

/// A table of places, each for one `T`.
#[derive(Debug)]
pub(crate) struct Published<T> {
    places: Box<[AtomicPtr<T>]>,
    turns: Arc<Turns>,
}

impl<T: Send + Sync> Published<T> {
    /// Makes `len` empty places, read in these turns.
    pub(crate) fn new(len: usize, turns: Arc<Turns>) -> Published<T> {
        Published { places: (0..len).map(|_| AtomicPtr::default()).collect(), turns }
    }

    /// Puts `value` into a place, or empties it, and returns the value before, once no lcore reads
    /// it any more.
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn replace(&self, at: usize, value: Option<Box<T>>) -> Option<Box<T>> {
        let value = value.map_or(ptr::null_mut(), Box::into_raw);
        // Releases the new value to `get`.
        let former = self.places[at].swap(value, Ordering::AcqRel);
        if former.is_null() {
            return None;
        }
        self.turns.wait();
        // SAFETY: this function made the pointer from a box. The swap gave it to this thread alone,
        // and each turn that could have loaded it before has ended; `get` bounds its use by the
        // turn.
        Some(unsafe { Box::from_raw(former) })
    }

    /// Returns the value in a place; it cannot be kept beyond the turn.
    ///
    /// # Panics
    /// If the turn is that of another engine's lcore.
    #[inline]
    pub(crate) fn get<'t>(&'t self, at: usize, turn: &'t InTurn<'_>) -> Option<&'t T> {
        assert!(turn.is_of(&self.turns), "a turn of this table's lcores");
        // Pairs with the swap in `replace`.
        let value = self.places.get(at)?.load(Ordering::Acquire);
        // SAFETY: the pointer is null or of a box that `replace` put there. `replace` frees what it
        // takes out only after all turns under way have ended, and this turn lasts as long as the
        // reference.
        unsafe { value.as_ref() }
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        for place in &mut self.places {
            let value = *place.get_mut();
            if !value.is_null() {
                // SAFETY: the pointer came from a box and is still in the table, so it was not
                // freed; readers borrow the table, and none is left.
                drop(unsafe { Box::from_raw(value) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, Meetings};

    #[test]
    fn a_value_is_found_until_it_is_replaced() {
        let turns = Arc::new(Turns::new(1));
        let table = Published::new(2, Arc::clone(&turns));
        assert!(table.replace(1, Some(Box::new(5))).is_none());
        {
            let turn = turns.enter(0);
            assert_eq!((table.get(0, &turn), table.get(1, &turn)), (None, Some(&5)));
            assert_eq!(table.get(2, &turn), None, "beyond the end is nothing");
        }
        assert_eq!(table.replace(1, Some(Box::new(6))).as_deref(), Some(&5));
        assert_eq!(table.replace(1, None).as_deref(), Some(&6));
        assert_eq!(table.get(1, &turns.enter(0)), None);
    }

    #[test]
    #[should_panic(expected = "a turn of this table's lcores")]
    fn a_turn_of_another_engine_does_not_do() {
        let table = Published::<u8>::new(1, Arc::new(Turns::new(1)));
        let others = Turns::new(1);
        table.get(0, &others.enter(0));
    }

    /// A value notes its drop as "freed"; no reader may ever see that.
    #[test]
    fn nothing_is_read_after_it_was_given_back() {
        struct Guarded(Arc<AtomicBool>);
        let turns = Arc::new(Turns::new(2));
        let table = Arc::new(Published::<Guarded>::new(1, Arc::clone(&turns)));
        let stop = Arc::new(AtomicBool::new(false));
        let found = Arc::new(Meetings::default());
        let readers: Vec<_> = (0..2)
            .map(|lcore| {
                let (turns, table) = (Arc::clone(&turns), Arc::clone(&table));
                let (stop, found) = (Arc::clone(&stop), Arc::clone(&found));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let turn = turns.enter(lcore);
                        if let Some(value) = table.get(0, &turn) {
                            assert!(
                                !value.0.load(Ordering::Relaxed),
                                "read after it was given back"
                            );
                            found.note();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            let freed = Arc::new(AtomicBool::new(false));
            table.replace(0, Some(Box::new(Guarded(freed))));
            found.wait();
            let former = table.replace(0, None).expect("put there");
            former.0.store(true, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
