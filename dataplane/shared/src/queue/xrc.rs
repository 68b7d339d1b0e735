//! Extended reliable connections: XRC domains, and the table that maps the number of a shared
//! receive queue, as a request names it, to the queue.
//!
//! Read first: IBA Annex A14.
//!
//! Invariants
//! - A number finds its own queue or nothing, because it includes the generation of its place.
//! - Only targets of the queue's own XRC domain find it.
//! - A completion queue is freed after every target of the domain that may complete there has gone
//!   or completes elsewhere: the domain keeps it until then, and its targets must not outlive the
//!   domain. So an lcore never frees one.
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
    /// The completion queues of the domain's shared receive queues, and former ones that a target
    /// may have, by their addresses.
    cqs: Mutex<HashMap<usize, Arc<CompletionQueue>>>,
}

impl XrcDomain {
    /// Makes a domain. `number` is that of no other domain of the engine.
    pub fn new(number: Xrcd) -> XrcDomain {
        XrcDomain { number, cqs: Mutex::default() }
    }

    /// Returns the domain's number.
    pub fn number(&self) -> Xrcd {
        self.number
    }

    /// Keeps a completion queue, at least until the next [`sweep`](XrcDomain::sweep).
    fn keep(&self, cq: &Arc<CompletionQueue>) {
        self.cqs().insert(Arc::as_ptr(cq).addr(), Arc::clone(cq));
    }

    /// Lets go the completion queues that only the domain has. No lcore can get one of these again:
    /// it finds them by the table alone, which has the queues of a name as long as that exists.
    fn sweep(&self) {
        self.cqs().retain(|_, cq| Arc::strong_count(cq) > 1);
    }

    fn cqs(&self) -> MutexGuard<'_, HashMap<usize, Arc<CompletionQueue>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
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
        XrcTable { queues, places: Mutex::default() }
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
        // The next generation. The first is 1, so no queue has number 0 before its place has had
        // all generations.
        let number = Srqn::new(places.numbers[index] + (1 << INDEX_BITS));
        places.numbers[index] = number.value();
        domain.keep(cq);
        let (srq, cq) = (Arc::clone(srq), Arc::clone(cq));
        self.queues
            .replace(index, Some(Box::new(XrcQueue { number, domain: domain.number, srq, cq })));
        Ok(XrcName { table: Arc::clone(self), domain: Arc::clone(domain), number })
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
    domain: Arc<XrcDomain>,
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
        self.domain.sweep();
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
        assert_eq!(domain.cqs().len(), 1, "kept once");
    }

    #[test]
    fn a_domain_keeps_a_completion_queue_as_long_as_a_target_has_it() {
        let lab = Lab::new();
        let (domain, srq) = (domain(1), lab.srq());
        let sweep = || drop(lab.table.name(&domain, &srq, &lab.cq).unwrap());
        let cq = CompletionQueue::new(1, None).unwrap();
        let is_kept = Arc::downgrade(&cq);
        let name = lab.table.name(&domain, &srq, &cq).unwrap();
        let target = {
            let turn = lab.turns.enter(0);
            let found = lab.table.find(name.number(), domain.number(), &turn).unwrap();
            Arc::clone(&found.cq)
        };
        drop((name, cq));
        sweep();
        drop(target);
        assert!(is_kept.upgrade().is_some(), "a target's is not the last reference");
        sweep();
        assert!(is_kept.upgrade().is_none());
        assert!(domain.cqs().len() <= 1);
    }
}
