//! Address handles: maps a handle's number to the headers of its datagrams, so that each UD packet
//! costs one look-up.
//!
//! Invariants
//! - A handle's headers and rate never change. A number finds its own handle or nothing, because it
//!   includes the generation of its place.
//! - A destroyed handle still serves datagrams posted before, as with a NIC that copies addresses
//!   into its work requests. It leaves the table when its place, the last in the queue of free
//!   ones, is taken again: after `GRACE` other handles, or earlier if all places have been taken
//!   before.
//! - Only QPs of the handle's own protection domain and port may use it.
//!
//! Not here: resolving an address to headers (the control plane does that).

use crate::sync::Mutex;
use crate::table::mcast::multicast_mac;
use crate::table::published::Published;
use crate::table::qsbr::{InTurn, Turns};
use crate::time::rate::Pace;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use uroce_transport::{Ah, Pd, StaticRate};
use uroce_wire::{Encap, Gid, HeaderTemplate};

/// Largest number of address handles of an engine; leaves 256 generations of each place.
pub const MAX_AHS: u32 = 1 << 24;

/// Number of freed places from which a freed place is taken again although there are new ones.
const GRACE: usize = 4096;

/// Errors of address handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AhError {
    /// The engine has as many address handles as it was started for.
    #[error("no address handle is left")]
    TableFull,
    /// No address handle has this number (any more).
    #[error("no address handle has this number")]
    Unknown,
}

/// An address handle.
#[derive(Debug)]
pub struct Handle {
    number: u32,
    pd: Pd,
    /// The port, counted from 0.
    port: usize,
    /// The headers of its datagrams.
    pub template: HeaderTemplate,
    /// Its rate limit.
    pub pace: Pace,
    /// The multicast group that it sends to; `None` for a unicast address.
    pub group: Option<Gid>,
}

/// All address handles of an engine.
#[derive(Debug)]
pub struct AhTable {
    handles: Published<Handle>,
    index_bits: u32,
    places: Mutex<Places>,
}

/// The places that were taken once and are free, and the last number of each place.
#[derive(Debug)]
struct Places {
    most: usize,
    free: VecDeque<u32>,
    numbers: Vec<u32>,
    taken: Vec<bool>,
}

impl Places {
    /// Takes a place: a new one, or, if many are free or none is new, the one that has been free
    /// for longest.
    fn take(&mut self) -> Option<u32> {
        let fresh = self.numbers.len();
        if fresh == self.most || self.free.len() >= GRACE {
            return self.free.pop_front();
        }
        // The number of places is at most `MAX_AHS`.
        self.numbers.push(fresh as u32);
        self.taken.push(false);
        Some(fresh as u32)
    }
}

impl AhTable {
    /// Makes a table with room for `handles` handles, read in these turns.
    pub fn new(handles: u32, turns: Arc<Turns>) -> AhTable {
        let index_bits = handles.next_power_of_two().trailing_zeros();
        let most = handles as usize;
        let places = Places { most, free: VecDeque::new(), numbers: Vec::new(), taken: Vec::new() };
        let handles = Published::new(handles as usize, turns);
        AhTable { handles, index_bits, places: Mutex::new(places) }
    }

    /// Returns the number of handles that are not destroyed.
    pub fn count(&self) -> u32 {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Every place has a number, and a free one is in `free` once.
        (places.numbers.len() - places.free.len()) as u32
    }

    /// Publishes a handle of a port, counted from 0.
    ///
    /// # Errors
    /// [`AhError::TableFull`].
    pub fn create(
        &self,
        pd: Pd,
        port: usize,
        encap: &Encap,
        rate: StaticRate,
    ) -> Result<Ah, AhError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let index = places.take().ok_or(AhError::TableFull)?;
        // The next generation. The first is 1, so that number 0 is not used for long.
        let number = places.numbers[index as usize].wrapping_add(1 << self.index_bits);
        places.numbers[index as usize] = number;
        places.taken[index as usize] = true;
        let (template, pace) = (encap.template(), Pace::new(rate));
        let group = multicast_mac(encap.dst).map(|_| encap.dst);
        let handle = Handle { number, pd, port, template, pace, group };
        // Waits for the lcores' turns if a destroyed handle was still in the place.
        self.handles.replace(index as usize, Some(Box::new(handle)));
        Ok(Ah(number))
    }

    /// Destroys a handle. Datagrams already posted are still sent with it, unless its place is
    /// needed for a new handle before: then they complete with an error.
    ///
    /// # Errors
    /// [`AhError::Unknown`].
    pub fn destroy(&self, ah: Ah) -> Result<(), AhError> {
        let index = self.index(ah);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places.numbers.get(index) == Some(&ah.0) && places.taken[index];
        if !known {
            return Err(AhError::Unknown);
        }
        places.taken[index] = false;
        places.free.push_back(index as u32);
        Ok(())
    }

    /// Returns a handle if a QP of this domain at this port, counted from 0, may use it.
    #[inline]
    pub fn find<'t>(
        &'t self,
        ah: Ah,
        pd: Pd,
        port: usize,
        turn: &'t InTurn<'_>,
    ) -> Option<&'t Handle> {
        let handle = self.handles.get(self.index(ah), turn)?;
        let fits = handle.number == ah.0 && handle.pd == pd && handle.port == port;
        fits.then_some(handle)
    }

    #[inline]
    fn index(&self, ah: Ah) -> usize {
        (ah.0 & ((1 << self.index_bits) - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::Mac;

    const PD: Pd = Pd(3);

    fn encap(last: u8) -> Encap {
        Encap { dst_mac: Mac([2, 0, 0, 0, 0, last]), ..Encap::default() }
    }

    fn create(table: &AhTable, last: u8) -> Result<Ah, AhError> {
        table.create(PD, 0, &encap(last), StaticRate::MAX)
    }

    fn table(handles: u32) -> (AhTable, Arc<Turns>) {
        let turns = Arc::new(Turns::new(1));
        (AhTable::new(handles, Arc::clone(&turns)), turns)
    }

    #[test]
    fn a_number_finds_its_headers_in_its_own_domain_and_port_only() {
        let (table, turns) = table(3);
        let handles = [1, 2, 3].map(|last| create(&table, last).unwrap());
        assert_eq!(create(&table, 4), Err(AhError::TableFull));
        let turn = turns.enter(0);
        for (last, &ah) in (1..).zip(&handles) {
            let found = table.find(ah, PD, 0, &turn).map(|handle| handle.template);
            assert_eq!(found, Some(encap(last).template()));
            assert!(table.find(ah, Pd(4), 0, &turn).is_none(), "another domain's");
            assert!(table.find(ah, PD, 1, &turn).is_none(), "another port's");
        }
        for number in [0, 3, u32::MAX] {
            assert!(table.find(Ah(number), PD, 0, &turn).is_none());
        }
    }

    #[test]
    fn handles_that_come_and_go_take_few_places_and_there_are_as_many_as_told() {
        const MOST: u32 = 3 * GRACE as u32;
        let (table, _turns) = table(MOST);
        for _ in 0..5 * MOST {
            let ah = create(&table, 1).unwrap();
            table.destroy(ah).unwrap();
        }
        let made = table.places.lock().unwrap().numbers.len();
        assert!(made <= GRACE + 1, "{made}");
        let all: Vec<Ah> = (0..MOST).map(|_| create(&table, 1).unwrap()).collect();
        assert_eq!(create(&table, 1), Err(AhError::TableFull));
        table.destroy(all[7]).unwrap();
        assert!(create(&table, 1).is_ok());
    }

    #[test]
    fn a_destroyed_number_serves_what_was_posted_until_its_place_is_taken_again() {
        let (table, turns) = table(2);
        let old = create(&table, 1).unwrap();
        assert_eq!(table.destroy(old), Ok(()));
        assert_eq!(table.destroy(old), Err(AhError::Unknown));
        let finds = |ah| table.find(ah, PD, 0, &turns.enter(0)).is_some();
        let other = create(&table, 2).unwrap();
        assert!(finds(old) && finds(other), "a place that was free for longer goes first");
        let new = create(&table, 3).unwrap();
        assert_ne!(old, new);
        assert_eq!(table.destroy(old), Err(AhError::Unknown));
        assert!(!finds(old) && finds(other) && finds(new));
    }
}
