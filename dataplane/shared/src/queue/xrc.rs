//! Extended reliable connections: XRC domains, and the table that maps the number of a shared
//! receive queue, as a request names it, to the queue.
//!
//! Read first: IBA Annex A14.
//!
//! Invariants
//! - A number finds its own queue or nothing, because it includes the generation of its place.
//! - Only targets of the queue's own XRC domain find it.
//! - The table keeps a completion queue until the application has let it go and no target has it.
//!   So an lcore never frees one. It looks whether that is so when a queue, a name or a target is
//!   gone.
//!
//! Not here: receives ([`SharedReceiveQueue`]).

use super::{CompletionQueue, SharedReceiveQueue, SrqError};
use crate::sync::{Mutex, MutexGuard};
use crate::table::published::Published;
use crate::table::qsbr::{InTurn, Turns};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError};
use uroce_wire::Srqn;

/// Largest number of XRC shared receive queues of an engine; leaves 4096 generations of each place.
pub const MAX_XRC_SRQS: u32 = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 12;

/// The number of an XRC domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xrcd(pub NonZeroU32);

/// An XRC domain: targets take receives only from queues of their own domain.
#[derive(Debug)]
pub struct XrcDomain {
    number: Xrcd,
}

impl XrcDomain {
    /// Makes a domain. `number` is that of no other domain of the engine.
    pub fn new(number: Xrcd) -> XrcDomain {
        XrcDomain { number }
    }

    /// Returns the domain's number.
    pub fn number(&self) -> Xrcd {
        self.number
    }
}

/// A shared receive queue that requests can name.
#[derive(Debug)]
pub struct XrcQueue {
    number: Srqn,
    domain: Xrcd,
    /// The queue.
    pub srq: Arc<SharedReceiveQueue>,
    /// Gets the completions of its receives.
    pub cq: Arc<CompletionQueue>,
}

/// All XRC shared receive queues of an engine.
#[derive(Debug)]
pub struct XrcTable {
    queues: Published<XrcQueue>,
    places: Mutex<Places>,
    /// The completion queues of all names, and former ones that a target may have, by their
    /// addresses.
    cqs: Mutex<HashMap<usize, Arc<CompletionQueue>>>,
}

/// The places that were taken once and are free, oldest first, and the last number of each place.
#[derive(Debug, Default)]
struct Places {
    free: VecDeque<usize>,
    numbers: Vec<u32>,
}

impl XrcTable {
    /// Makes an empty table, read in these turns.
    pub fn new(turns: Arc<Turns>) -> XrcTable {
        let queues = Published::new(MAX_XRC_SRQS as usize, turns);
        XrcTable { queues, places: Mutex::default(), cqs: Mutex::default() }
    }

    /// Gives a shared receive queue a number in a domain. Its receives complete in `cq`.
    ///
    /// # Errors
    /// [`SrqError::NoneLeft`].
    pub fn name(
        self: &Arc<XrcTable>,
        domain: &Arc<XrcDomain>,
        srq: &Arc<SharedReceiveQueue>,
        cq: &Arc<CompletionQueue>,
    ) -> Result<XrcName, SrqError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = places.numbers.len();
        let index = match fresh < MAX_XRC_SRQS as usize {
            true => {
                places.numbers.push(fresh as u32);
                fresh
            }
            false => places.free.pop_front().ok_or(SrqError::NoneLeft)?,
        };
        // The next generation. Number 0 is what a request has that names no queue.
        let next = |number: u32| Srqn::new(number + (1 << INDEX_BITS));
        let number = match next(places.numbers[index]) {
            none if none == Srqn::default() => next(0),
            number => number,
        };
        places.numbers[index] = number.value();
        self.cqs().insert(Arc::as_ptr(cq).addr(), Arc::clone(cq));
        srq.set_named();
        let (srq, cq) = (Arc::clone(srq), Arc::clone(cq));
        self.queues
            .replace(index, Some(Box::new(XrcQueue { number, domain: domain.number, srq, cq })));
        Ok(XrcName { table: Arc::clone(self), number })
    }

    /// Returns the queue with this number if a target of this domain may use it.
    #[inline]
    pub fn find<'t>(
        &'t self,
        number: Srqn,
        domain: Xrcd,
        turn: &'t InTurn<'_>,
    ) -> Option<&'t XrcQueue> {
        let queue = self.queues.get(index_of(number), turn)?;
        (queue.number == number && queue.domain == domain).then_some(queue)
    }

    /// Called when the application has let go a completion queue, of which the caller has the only
    /// other reference.
    pub fn let_go(&self, cq: &Arc<CompletionQueue>) {
        let mut cqs = self.cqs();
        if Arc::strong_count(cq) <= 2 {
            cqs.remove(&Arc::as_ptr(cq).addr());
        }
        drop(cqs);
        self.sweep();
    }

    /// Lets go the completion queues that only the table has. No lcore can get one of these again:
    /// it finds them by a name alone, which has its queues as long as it exists.
    pub fn sweep(&self) {
        self.cqs().retain(|_, cq| Arc::strong_count(cq) > 1);
    }

    fn cqs(&self) -> MutexGuard<'_, HashMap<usize, Arc<CompletionQueue>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queues of a domain.
    pub fn of_domain<'t>(
        &'t self,
        domain: Xrcd,
        turn: &'t InTurn<'_>,
    ) -> impl Iterator<Item = &'t XrcQueue> {
        let all = (0..MAX_XRC_SRQS as usize).filter_map(|at| self.queues.get(at, turn));
        all.filter(move |queue| queue.domain == domain)
    }

    /// Takes a queue out of the table. Waits until no lcore uses it.
    fn remove(&self, number: Srqn) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let index = index_of(number);
        self.queues.replace(index, None);
        places.free.push_back(index);
    }
}

fn index_of(number: Srqn) -> usize {
    (number.value() & (MAX_XRC_SRQS - 1)) as usize
}

/// The number of a shared receive queue, which requests can name as long as this exists.
#[derive(Debug)]
pub struct XrcName {
    table: Arc<XrcTable>,
    number: Srqn,
}

impl XrcName {
    /// Returns the number.
    pub fn number(&self) -> Srqn {
        self.number
    }
}

impl Drop for XrcName {
    fn drop(&mut self) {
        self.table.remove(self.number);
        self.table.sweep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::events::{EventChannel, Subject};
    use uroce_transport::Pd;

    struct Lab {
        turns: Arc<Turns>,
        table: Arc<XrcTable>,
        events: Arc<EventChannel>,
        cq: Arc<CompletionQueue>,
    }

    fn domain(number: u32) -> Arc<XrcDomain> {
        Arc::new(XrcDomain::new(Xrcd(NonZeroU32::new(number).unwrap())))
    }

    impl Lab {
        fn new() -> Lab {
            let turns = Arc::new(Turns::new(1));
            Lab {
                table: Arc::new(XrcTable::new(Arc::clone(&turns))),
                turns,
                events: EventChannel::new(8).unwrap(),
                cq: CompletionQueue::new(4, None).unwrap(),
            }
        }

        fn srq(&self) -> Arc<SharedReceiveQueue> {
            let events = self.events.admit(Subject::Srq(1)).unwrap();
            Arc::new(SharedReceiveQueue::new(Pd(1), 4, 1, events).unwrap())
        }
    }

    #[test] //= check X3 test
    fn a_number_finds_its_queue_in_its_own_domain_and_as_long_as_it_exists() {
        let lab = Lab::new();
        let [ours, theirs] = [1, 2].map(domain);
        let srqs = [lab.srq(), lab.srq()];
        let names = srqs.each_ref().map(|srq| lab.table.name(&ours, srq, &lab.cq).unwrap());
        assert_ne!(names[0].number(), names[1].number());
        for (name, srq) in names.iter().zip(&srqs) {
            let turn = lab.turns.enter(0);
            let found = lab.table.find(name.number(), ours.number(), &turn).unwrap();
            assert!(Arc::ptr_eq(&found.srq, srq));
            assert!(lab.table.find(name.number(), theirs.number(), &turn).is_none());
            let old = Srqn::new(name.number().value() ^ 1 << 20);
            assert!(lab.table.find(old, ours.number(), &turn).is_none(), "another generation");
        }
        let [first, second] = names.map(|name| (name.number(), name));
        drop(first.1);
        let turn = lab.turns.enter(0);
        assert!(lab.table.find(first.0, ours.number(), &turn).is_none());
        assert!(lab.table.find(second.0, ours.number(), &turn).is_some());
        assert!(lab.table.find(Srqn::new(0), ours.number(), &turn).is_none());
    }

    #[test]
    fn when_all_places_are_taken_there_is_none_left_until_one_is_free() {
        let lab = Lab::new();
        let (domain, srq) = (domain(1), lab.srq());
        let name = || lab.table.name(&domain, &srq, &lab.cq);
        let mut names: Vec<_> = (0..MAX_XRC_SRQS).map(|_| name().unwrap()).collect();
        assert_eq!(name().unwrap_err(), SrqError::NoneLeft);
        let freed = names.swap_remove(77).number();
        let again = name().unwrap().number();
        assert_eq!(again.value() - freed.value(), MAX_XRC_SRQS, "the place's next number");
        assert_eq!(lab.table.cqs().len(), 1, "kept once");
    }

    #[test]
    fn no_number_is_that_of_a_request_that_names_no_queue() {
        let lab = Lab::new();
        let (domain, srq) = (domain(1), lab.srq());
        let last = (1 << 24) - MAX_XRC_SRQS;
        *lab.table.places.lock().unwrap() =
            Places { free: [0].into(), numbers: vec![last; MAX_XRC_SRQS as usize] };
        let number = lab.table.name(&domain, &srq, &lab.cq).unwrap().number();
        assert_eq!(number, Srqn::new(MAX_XRC_SRQS));
    }

    #[test]
    fn a_completion_queue_is_kept_as_long_as_the_application_or_a_target_has_it() {
        let lab = Lab::new();
        let domains = [domain(1), domain(2)];
        let srq = lab.srq();
        for has_target in [false, true] {
            let cq = CompletionQueue::new(1, None).unwrap();
            let is_kept = Arc::downgrade(&cq);
            let names = domains.each_ref().map(|domain| lab.table.name(domain, &srq, &cq).unwrap());
            let target = has_target.then(|| {
                let turn = lab.turns.enter(0);
                let found = lab.table.find(names[0].number(), domains[0].number(), &turn);
                Arc::clone(&found.unwrap().cq)
            });
            drop(names);
            assert_eq!(lab.table.cqs().len(), 1);
            lab.table.let_go(&cq);
            drop(cq);
            drop(target);
            assert_eq!(is_kept.upgrade().is_some(), has_target, "not a target's last reference");
            lab.table.sweep();
            assert!(is_kept.upgrade().is_none());
        }
        assert!(lab.table.cqs().is_empty());
    }

    #[test]
    fn the_queues_of_a_domain_are_its_own() {
        let lab = Lab::new();
        let domains = [domain(1), domain(2)];
        let srqs = [lab.srq(), lab.srq()];
        let _names: Vec<_> =
            (0..2).map(|at| lab.table.name(&domains[at], &srqs[at], &lab.cq).unwrap()).collect();
        let turn = lab.turns.enter(0);
        let mut found = lab.table.of_domain(domains[1].number(), &turn);
        assert!(Arc::ptr_eq(&found.next().unwrap().srq, &srqs[1]));
        assert!(found.next().is_none());
    }
}
