//! Neighbour table: the Ethernet addresses of IP addresses, and whether they are confirmed.
//!
//! ```text
//!            resolve              answer             30 s
//!   (none) ──────────> Incomplete ─────> Known, fresh ───> Known, stale
//!                       │    ^                ^   resolve │      ^
//!          no answer    v    │ 1 s     answer └── Probing <      │ hint
//!                      Failed                                  (none)
//! ```
//!
//! An address that a command has fixed is in none of these states: it is used as it is, until a
//! command removes it.
//!
//! An *answer* is a reply to our own request; any other packet with an address is a *hint*. An
//! address known from a hint, or confirmed too long ago, is requested again (first by unicast)
//! before a path is built on it.
//!
//! Invariants
//! - A hint never confirms an entry. It replaces an address at most once a second.
//! - There are at most [`ASKED_MAX`] entries that were requested and [`HINTED_MAX`] that were not,
//!   so that a flood of hints evicts hints only. At most [`FIXED_MAX`] of the former are fixed.
//! - No packet changes a fixed entry.
//! - After [`TRIES`] requests at growing intervals an entry has failed.
//!
//! Not here: packet formats ([`super::arp`], [`super::ndp`]).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use uroce_transport::Instant;
use uroce_wire::Mac;

/// Largest number of entries that were requested.
pub const ASKED_MAX: usize = 1024;
/// Largest number of entries that are known from hints only.
pub const HINTED_MAX: usize = 256;
/// Largest number of entries that are fixed, of the [`ASKED_MAX`].
pub const FIXED_MAX: usize = 256;
/// Requests before an entry has failed.
pub const TRIES: u32 = 5;
/// Time to the second request. It doubles with each further one; an answer may take 3.1 s in all.
pub const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which an answer counts as confirmed: REACHABLE_TIME of RFC 4861.
pub const REACHABLE: Duration = Duration::from_secs(30);
/// Time for which a failure is kept, so that callers see it and peers are not flooded.
const FAILED_HOLD: Duration = Duration::from_secs(1);
/// Time for which a hint cannot replace an address.
const LOCK: Duration = Duration::from_secs(1);
/// Number of requests that go to the last known address, if there is one.
const UNICAST_TRIES: u32 = 2;

/// Result of looking up a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The neighbour has confirmed this address.
    Ready(Mac),
    /// A request is pending; look up again later.
    Pending,
    /// The neighbour does not answer, or the table is full of pending requests.
    Failed,
}

/// Limit for which an address is not fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// [`FIXED_MAX`] addresses are fixed.
    Fixed,
    /// There are [`ASKED_MAX`] entries, each fixed or being requested at this moment.
    Asking,
}

/// State of a neighbour, by the names of RFC 4861 as Linux shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A command has fixed the address.
    Permanent,
    /// The address was confirmed within [`REACHABLE`].
    Reachable,
    /// The address is not confirmed, or not any more.
    Stale,
    /// The address is being confirmed.
    Probe,
    /// The address is being requested and not known.
    Incomplete,
    /// The neighbour has not answered.
    Failed,
}

impl Reach {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Reach::Permanent => "PERMANENT",
            Reach::Reachable => "REACHABLE",
            Reach::Stale => "STALE",
            Reach::Probe => "PROBE",
            Reach::Incomplete => "INCOMPLETE",
            Reach::Failed => "FAILED",
        }
    }
}

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) ip: IpAddr,
    /// Destination of the request; `None` is broadcast or the group.
    pub(super) mac: Option<Mac>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A command has fixed the address.
    Fixed,
    Known {
        confirmed: Option<Instant>,
    },
    /// A request was sent `tries` times; the next is due at `due`.
    Asking {
        tries: u32,
        due: Instant,
    },
    Failed {
        until: Instant,
    },
}

impl State {
    fn is_fixed(self) -> bool {
        matches!(self, State::Fixed)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: State,
    mac: Option<Mac>,
    /// Time at which `mac` was last set.
    updated: Instant,
    /// Time of the last look-up, or of the first hint.
    used: Instant,
    /// The entry was requested, not only hinted at.
    asked: bool,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<IpAddr, Entry>,
    /// Addresses of the entries in [`State::Asking`].
    asking: Vec<IpAddr>,
}

impl Table {
    /// Looks up `ip`, and starts to request it if it is not confirmed.
    pub(super) fn resolve(&mut self, now: Instant, ip: IpAddr) -> Resolution {
        if let Some(entry) = self.entries.get_mut(&ip) {
            entry.used = now;
            match (entry.state, entry.mac) {
                (State::Fixed, Some(mac)) => return Resolution::Ready(mac),
                (State::Known { confirmed: Some(at) }, Some(mac)) if now < at + REACHABLE => {
                    return Resolution::Ready(mac);
                }
                (State::Asking { .. }, _) => return Resolution::Pending,
                (State::Failed { until }, _) if now < until => return Resolution::Failed,
                _ => {}
            }
        }
        if !self.begin(now, ip) {
            return Resolution::Failed;
        }
        Resolution::Pending
    }

    fn begin(&mut self, now: Instant, ip: IpAddr) -> bool {
        let known = self.entries.get(&ip).copied();
        if !known.is_some_and(|entry| entry.asked) && !self.make_room(true) {
            return false;
        }
        let state = State::Asking { tries: 0, due: now };
        let (mac, updated) = known.map_or((None, now), |entry| (entry.mac, entry.updated));
        self.entries.insert(ip, Entry { state, mac, updated, used: now, asked: true });
        self.asking.push(ip);
        true
    }

    /// Removes the least recently used entry of a kind if the kind's limit is reached. Returns
    /// false if all are being requested.
    fn make_room(&mut self, asked: bool) -> bool {
        let max = if asked { ASKED_MAX } else { HINTED_MAX };
        let kind = || self.entries.iter().filter(|(_, entry)| entry.asked == asked);
        if kind().count() < max {
            return true;
        }
        let is_kept = |state| matches!(state, State::Asking { .. } | State::Fixed);
        let idle = kind().filter(|(_, entry)| !is_kept(entry.state));
        let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(ip, _)| *ip) else {
            return false;
        };
        self.entries.remove(&oldest);
        true
    }

    /// Returns all entries: IP address, Ethernet address if known, and state.
    pub(super) fn entries(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (IpAddr, Option<Mac>, Reach)> + '_ {
        self.entries.iter().map(move |(ip, entry)| {
            let reach = match entry.state {
                State::Fixed => Reach::Permanent,
                State::Known { confirmed: Some(at) } if now < at + REACHABLE => Reach::Reachable,
                State::Known { .. } => Reach::Stale,
                State::Asking { .. } if entry.mac.is_some() => Reach::Probe,
                State::Asking { .. } => Reach::Incomplete,
                State::Failed { .. } => Reach::Failed,
            };
            (*ip, entry.mac, reach)
        })
    }

    /// Tells whether `ip` is being requested.
    pub(super) fn is_asking(&self, ip: IpAddr) -> bool {
        self.entries.get(&ip).is_some_and(|entry| matches!(entry.state, State::Asking { .. }))
    }

    /// Returns the address known for `ip`, confirmed or not.
    pub(super) fn mac(&self, ip: IpAddr) -> Option<Mac> {
        self.entries.get(&ip)?.mac
    }

    /// Records that `ip` has answered our request from `mac`.
    pub(super) fn answer(&mut self, now: Instant, ip: IpAddr, mac: Mac) {
        let Some(entry) = self.entries.get_mut(&ip) else { return };
        if entry.state.is_fixed() {
            return;
        }
        entry.mac = Some(mac);
        entry.updated = now;
        entry.state = State::Known { confirmed: Some(now) };
        self.asking.retain(|asked| *asked != ip);
    }

    /// Records an unconfirmed address. A new entry is made only if `create` is set.
    pub(super) fn hint(&mut self, now: Instant, ip: IpAddr, mac: Mac, create: bool) {
        let Some(entry) = self.entries.get_mut(&ip) else {
            if create && self.make_room(false) {
                let state = State::Known { confirmed: None };
                let hinted = Entry { state, mac: Some(mac), updated: now, used: now, asked: false };
                self.entries.insert(ip, hinted);
            }
            return;
        };
        if entry.mac == Some(mac) && !matches!(entry.state, State::Failed { .. }) {
            return;
        }
        if entry.state.is_fixed() {
            return;
        }
        if entry.mac.is_some() && now < entry.updated + LOCK {
            return;
        }
        let is_first = entry.mac.replace(mac).is_none();
        entry.updated = now;
        entry.state = match entry.state {
            // Requested there at once. The tries start again only if no address was known;
            // otherwise a hint each second would keep the request going for ever.
            State::Asking { .. } if is_first => State::Asking { tries: 0, due: now },
            State::Asking { tries, .. } => State::Asking { tries, due: now },
            _ => State::Known { confirmed: None },
        };
    }

    /// Makes the entry of `ip` unconfirmed, so that it is requested again before use.
    pub(super) fn doubt(&mut self, ip: IpAddr) {
        if let Some(entry) = self.entries.get_mut(&ip)
            && let State::Known { confirmed } = &mut entry.state
        {
            *confirmed = None;
        }
    }

    /// Forgets what has the Ethernet address `mac`.
    pub(super) fn forget(&mut self, mac: Mac) {
        let is_kept = |state| matches!(state, State::Asking { .. } | State::Fixed);
        self.entries.retain(|_, entry| entry.mac != Some(mac) || is_kept(entry.state));
    }

    /// Fixes the address of `ip`.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]; nothing has changed then.
    pub(super) fn fix(&mut self, now: Instant, ip: IpAddr, mac: Mac) -> Result<(), NoRoom> {
        let known = self.entries.get(&ip);
        let fixed = self.entries.values().filter(|entry| entry.state.is_fixed()).count();
        let is_fixed = known.is_some_and(|entry| entry.state.is_fixed());
        let is_asked = known.is_some_and(|entry| entry.asked);
        if fixed >= FIXED_MAX && !is_fixed {
            return Err(NoRoom::Fixed);
        }
        if !is_asked && !self.make_room(true) {
            return Err(NoRoom::Asking);
        }
        self.asking.retain(|asked| *asked != ip);
        let (state, mac) = (State::Fixed, Some(mac));
        self.entries.insert(ip, Entry { state, mac, updated: now, used: now, asked: true });
        Ok(())
    }

    /// Forgets the entry of `ip`, fixed or not. Returns false if there is none, or if it is being
    /// requested.
    pub(super) fn remove(&mut self, ip: IpAddr) -> bool {
        !self.is_asking(ip) && self.entries.remove(&ip).is_some()
    }

    /// Forgets all addresses that are not fixed. Pending requests start again with a broadcast.
    pub(super) fn clear(&mut self, now: Instant) {
        self.entries.retain(|_, entry| matches!(entry.state, State::Asking { .. } | State::Fixed));
        for entry in self.entries.values_mut().filter(|entry| !entry.state.is_fixed()) {
            entry.mac = None;
            entry.state = State::Asking { tries: 0, due: now };
        }
    }

    /// Returns the requests that are due, and schedules the next or marks the entry as failed.
    pub(super) fn questions(&mut self, now: Instant) -> Vec<Question> {
        let mut questions = Vec::new();
        let entries = &mut self.entries;
        self.asking.retain(|ip| {
            let Some(entry) = entries.get_mut(ip) else { return false };
            let State::Asking { tries, due } = entry.state else { return false };
            if now < due {
                return true;
            }
            if tries == TRIES {
                entry.mac = None;
                entry.state = State::Failed { until: now + FAILED_HOLD };
                return false;
            }
            let mac = entry.mac.filter(|_| tries < UNICAST_TRIES);
            questions.push(Question { ip: *ip, mac });
            entry.state =
                State::Asking { tries: tries + 1, due: now + FIRST_INTERVAL * (1 << tries) };
            true
        });
        questions
    }

    /// Returns the time of the next request.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let due = |ip: &IpAddr| match self.entries.get(ip)?.state {
            State::Asking { due, .. } => Some(due),
            _ => None,
        };
        self.asking.iter().filter_map(due).min()
    }

    /// Returns the number of entries of any kind and state.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);

    fn ip(last: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + last).to_be_bytes())
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn five_questions_with_doubling_intervals_and_then_failure() {
        let mut table = Table::default();
        assert_eq!(table.resolve(at(0), ip(1)), Resolution::Pending);
        let mut asked = Vec::new();
        while let Some(due) = table.next_timeout() {
            asked.extend(table.questions(due).iter().map(|_| due.as_nanos() / 1_000_000));
        }
        assert_eq!(asked, [0, 100, 300, 700, 1500]);
        assert_eq!(table.resolve(at(3101), ip(1)), Resolution::Failed);
        assert_eq!(table.resolve(at(4100), ip(1)), Resolution::Pending);
    }

    #[test]
    fn an_answer_is_believed_for_thirty_seconds_and_then_asked_for_where_it_was() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        table.questions(at(0));
        table.answer(at(1), ip(1), A);
        assert_eq!(table.resolve(at(30_000), ip(1)), Resolution::Ready(A));
        assert_eq!(table.next_timeout(), None);
        assert_eq!(table.resolve(at(30_001), ip(1)), Resolution::Pending);
        let question = |mac| vec![Question { ip: ip(1), mac }];
        assert_eq!(table.questions(at(30_001)), question(Some(A)));
        assert_eq!(table.questions(at(30_101)), question(Some(A)));
        assert_eq!(table.questions(at(30_301)), question(None));
    }

    #[test]
    fn a_hint_is_confirmed_before_it_is_used() {
        let mut table = Table::default();
        table.hint(at(0), ip(1), A, true);
        assert_eq!(table.resolve(at(1), ip(1)), Resolution::Pending);
        assert_eq!(table.questions(at(1)), [Question { ip: ip(1), mac: Some(A) }]);
        table.answer(at(2), ip(1), A);
        assert_eq!(table.resolve(at(3), ip(1)), Resolution::Ready(A));
    }

    #[test]
    fn a_hint_changes_an_address_once_a_second_and_never_surely() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        table.answer(at(0), ip(1), A);
        table.hint(at(999), ip(1), B, false);
        assert_eq!(table.resolve(at(999), ip(1)), Resolution::Ready(A));
        table.hint(at(1000), ip(1), B, false);
        assert_eq!(table.mac(ip(1)), Some(B));
        assert_eq!(table.resolve(at(1001), ip(1)), Resolution::Pending);
    }

    #[test]
    fn what_is_forgotten_is_asked_for_everywhere() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        table.answer(at(0), ip(1), A);
        table.hint(at(0), ip(2), A, true);
        table.resolve(at(0), ip(2));
        table.clear(at(10));
        let question = |ip| vec![Question { ip, mac: None }];
        assert_eq!(table.questions(at(10)), question(ip(2)));
        assert_eq!(table.resolve(at(10), ip(1)), Resolution::Pending);
        assert_eq!(table.questions(at(10)), question(ip(1)));
    }

    #[test]
    fn a_hint_for_an_unknown_neighbour_is_forgotten_unless_it_asked_us() {
        let mut table = Table::default();
        table.hint(at(0), ip(1), A, false);
        assert_eq!(table.mac(ip(1)), None);
    }

    #[test]
    fn hints_do_not_keep_a_question_alive_for_ever() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        for (second, mac) in [A, B, A, B, A, B].into_iter().enumerate() {
            let now = second as u64 * 1000;
            table.hint(at(now), ip(1), mac, false);
            while let Some(due) = table.next_timeout().filter(|due| *due < at(now + 1000)) {
                table.questions(due);
            }
        }
        assert!(!table.is_asking(ip(1)));
    }

    #[test]
    fn a_hint_where_nothing_was_known_is_followed_from_the_first_question_on() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        (0..4).for_each(|n| assert_eq!(table.questions(at((1 << n) * 100 - 100)).len(), 1));
        table.hint(at(800), ip(1), A, false);
        for now in [800, 900] {
            assert_eq!(table.questions(at(now)), [Question { ip: ip(1), mac: Some(A) }]);
        }
    }

    #[test]
    fn a_hint_ends_a_failure_early() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        while let Some(due) = table.next_timeout() {
            table.questions(due);
        }
        table.hint(at(3200), ip(1), A, false);
        assert_eq!(table.resolve(at(3201), ip(1)), Resolution::Pending);
        assert_eq!(table.questions(at(3201)), [Question { ip: ip(1), mac: Some(A) }]);
    }

    #[test]
    fn a_flood_of_hints_pushes_out_hints_only() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        table.answer(at(0), ip(1), A);
        for n in 0..100_000 {
            table.hint(at(u64::from(n)), ip(10 + n), B, true);
        }
        assert_eq!(table.len(), HINTED_MAX + 1);
        assert_eq!(table.resolve(at(1), ip(1)), Resolution::Ready(A));
    }

    #[test]
    fn a_fixed_address_is_used_at_once_and_no_packet_changes_it() {
        let mut table = Table::default();
        table.resolve(at(0), ip(1));
        assert_eq!(table.fix(at(1), ip(1), A), Ok(()));
        assert_eq!(table.next_timeout(), None, "it is not asked for any more");
        table.answer(at(2), ip(1), B);
        table.hint(at(5000), ip(1), B, true);
        table.doubt(ip(1));
        table.forget(A);
        table.clear(at(5001));
        assert_eq!(table.resolve(at(100_000), ip(1)), Resolution::Ready(A));
        let all: Vec<_> = table.entries(at(100_000)).collect();
        assert_eq!(all, [(ip(1), Some(A), Reach::Permanent)]);
        assert_eq!(table.fix(at(100_001), ip(1), B), Ok(()), "another one takes its place");
        assert_eq!(table.resolve(at(100_002), ip(1)), Resolution::Ready(B));
        assert!(table.remove(ip(1)) && !table.remove(ip(1)));
        assert_eq!(table.resolve(at(100_003), ip(1)), Resolution::Pending);
        assert!(!table.remove(ip(1)), "a path waits for the answer");
    }

    #[test]
    fn no_address_is_fixed_while_all_entries_are_being_requested() {
        let mut table = Table::default();
        for n in 0..ASKED_MAX as u32 {
            table.resolve(at(0), ip(n));
        }
        assert_eq!(table.fix(at(1), ip(5000), A), Err(NoRoom::Asking));
        assert_eq!(table.fix(at(1), ip(0), A), Ok(()), "it has an entry");
        table.answer(at(2), ip(1), A);
        assert_eq!(table.fix(at(3), ip(5000), A), Ok(()));
    }

    #[test]
    fn fixed_addresses_are_few_and_are_not_pushed_out() {
        let mut table = Table::default();
        for n in 0..FIXED_MAX as u32 {
            assert_eq!(table.fix(at(0), ip(n), A), Ok(()));
        }
        assert_eq!(table.fix(at(0), ip(5000), A), Err(NoRoom::Fixed));
        assert_eq!(table.fix(at(0), ip(0), B), Ok(()), "one that is fixed may change");
        for n in 0..ASKED_MAX as u32 {
            table.resolve(at(1), ip(10_000 + n));
            table.answer(at(1), ip(10_000 + n), B);
        }
        assert_eq!(table.len(), ASKED_MAX);
        assert_eq!(table.resolve(at(2), ip(7)), Resolution::Ready(A));
    }

    #[test]
    fn a_full_table_of_questions_takes_no_more_but_gives_up_answers() {
        let mut table = Table::default();
        for n in 0..ASKED_MAX as u32 {
            assert_eq!(table.resolve(at(0), ip(n)), Resolution::Pending);
        }
        assert_eq!(table.resolve(at(0), ip(5000)), Resolution::Failed);
        table.answer(at(1), ip(7), A);
        assert_eq!(table.resolve(at(2), ip(5000)), Resolution::Pending);
        assert_eq!(table.mac(ip(7)), None);
        assert_eq!(table.len(), ASKED_MAX);
    }
}
