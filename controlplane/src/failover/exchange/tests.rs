use super::*;
use uroce_wire::Qpn;

/// Time after a migration in which no path is loaded.
const HOLD: Duration = Duration::from_secs(1);

/// Two ends of an agreement, with a virtual clock and the messages between them.
struct Pair {
    now: Instant,
    ends: [Exchange; 2],
    /// Messages under way: the end that gets it, and the message.
    wire: Vec<(usize, Message)>,
    /// Messages sent, by either end.
    sent: Vec<Kind>,
    /// Random numbers.
    seed: u64,
    /// Whether paths are found, and whether the QPs take them.
    has_path: bool,
    loads: bool,
    /// Whether next hops are still being resolved.
    is_resolving: bool,
    qps: [Qp; 2],
    /// Packets that QPs were made to send.
    nudges: usize,
}

/// A QP's state of migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Qp {
    Migrated,
    Rearm,
    Armed,
}

impl Pair {
    fn new() -> Pair {
        let now = Instant::from_nanos(1);
        Pair {
            now,
            ends: [Exchange::new(now, true), Exchange::new(now, false)],
            wire: Vec::new(),
            sent: Vec::new(),
            seed: 0,
            has_path: true,
            loads: true,
            is_resolving: false,
            qps: [Qp::Migrated; 2],
            nudges: 0,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    fn message(&self, end: usize, kind: Kind) -> Message {
        let of = &self.ends[end];
        let message =
            Message::new(kind, of.transaction().max(1), Qpn::new(end as u32 + 2), Qpn::new(9));
        match kind {
            Kind::Accept | Kind::Probe | Kind::Ready => Message { token: of.token(), ..message },
            Kind::Refuse => Message { refusal: Some(Refusal::NoPath), ..message },
            Kind::Offer | Kind::Call => message,
        }
    }

    fn event(&mut self, end: usize, event: Event) {
        let fresh = self.fresh();
        let action = self.ends[end].handle(self.now, event, fresh);
        self.act(end, action);
    }

    fn act(&mut self, end: usize, action: Option<Action>) {
        match action {
            Some(Action::Send(kind)) => {
                self.sent.push(kind);
                self.wire.push((1 - end, self.message(end, kind)));
            }
            Some(Action::Choose | Action::Resolve) if self.is_resolving => {}
            Some(Action::Choose | Action::Resolve) => {
                let event = if self.has_path { Event::Found } else { Event::Lost };
                self.event(end, event);
            }
            Some(Action::Load) => {
                if self.loads && self.qps[end] == Qp::Migrated {
                    self.qps[end] = Qp::Rearm;
                }
                let event = if self.loads { Event::Loaded } else { Event::Failed };
                self.event(end, event);
            }
            Some(Action::Loaded) => {
                if end == 1 {
                    self.act(end, Some(Action::Send(Kind::Ready)));
                }
                self.nudge(end);
            }
            Some(Action::Look) => match self.qps[end] {
                Qp::Armed if self.ends[end].state() == State::Arming => {
                    self.event(end, Event::Ready);
                }
                Qp::Armed => {}
                Qp::Rearm => self.nudge(end),
                Qp::Migrated => self.event(end, Event::Failed),
            },
            Some(Action::Nudge) => self.nudge(end),
            Some(Action::Armed | Action::Wait | Action::Stop) | None => {}
        }
    }

    /// A packet of a QP, and the answer to it: each arms an end in REARM, or takes it along.
    fn nudge(&mut self, end: usize) {
        self.nudges += 1;
        for (from, to) in [(end, 1 - end), (1 - end, end)] {
            match (self.qps[from], self.qps[to]) {
                (Qp::Rearm | Qp::Armed, Qp::Rearm) => self.qps[to] = Qp::Armed,
                (Qp::Migrated, Qp::Armed) if self.ends[from].state() == State::Moved => {
                    self.migrate(to);
                }
                _ => {}
            }
        }
    }

    /// An end migrates.
    fn migrate(&mut self, end: usize) {
        assert_eq!(self.qps[end], Qp::Armed);
        self.qps[end] = Qp::Migrated;
        self.ends[end].hold(self.now + HOLD);
        self.event(end, Event::Moved);
    }

    /// Delivers what is under way, without those messages that `drops` names.
    fn deliver(&mut self, drops: impl Fn(Kind) -> bool) {
        while !self.wire.is_empty() {
            for (end, message) in std::mem::take(&mut self.wire) {
                if !drops(message.kind) {
                    let fresh = self.fresh();
                    let handled = self.ends[end].handle_message(self.now, &message, fresh);
                    self.act(end, handled.unwrap_or_default());
                }
            }
        }
    }

    /// Lets the next timer expire. Returns false if none is running.
    fn step(&mut self, drops: impl Fn(Kind) -> bool) -> bool {
        let due = self.ends.iter().filter_map(Exchange::due).min();
        let Some(due) = due else { return false };
        self.now = due;
        for end in 0..2 {
            let fresh = self.fresh();
            let action = self.ends[end].handle_timeout(self.now, fresh);
            self.act(end, action);
        }
        self.deliver(drops);
        // The peer of an armed end has loaded the path.
        let is_alone = |end: usize| self.qps[end] == Qp::Armed && self.qps[1 - end] == Qp::Migrated;
        assert!(!is_alone(0) && !is_alone(1), "{:?} after {:?}", self.qps, self.sent);
        true
    }

    fn states(&self) -> [State; 2] {
        [0, 1].map(|end| self.ends[end].state())
    }

    fn until_armed(&mut self, drops: impl Fn(Kind) -> bool + Copy) {
        for _ in 0..100 {
            self.step(drops);
            if self.states() == [State::Armed; 2] {
                return;
            }
        }
        panic!("{:?} after {:?}", self.states(), self.sent);
    }
}

#[test]
fn four_messages_arm_both_ends() {
    let mut pair = Pair::new();
    pair.until_armed(|_| false);
    assert_eq!(pair.sent, [Kind::Offer, Kind::Accept, Kind::Probe, Kind::Ready]);
    assert_eq!(pair.ends[0].transaction(), pair.ends[1].transaction());
}

#[test]
fn each_message_may_be_lost() {
    for lost in [Kind::Offer, Kind::Accept, Kind::Probe, Kind::Ready] {
        let mut pair = Pair::new();
        for _ in 0..3 {
            pair.step(|kind| kind == lost);
            assert_ne!(pair.states()[0], State::Armed, "{lost:?}");
        }
        assert_ne!(pair.qps, [Qp::Armed; 2], "{lost:?}");
        pair.until_armed(|_| false);
    }
}

#[test]
fn no_end_is_armed_before_the_other_has_agreed() {
    for lost in [Kind::Offer, Kind::Accept, Kind::Probe] {
        let mut pair = Pair::new();
        for _ in 0..30 {
            pair.step(|kind| kind == lost);
        }
        assert_eq!(pair.qps, [Qp::Migrated; 2], "{lost:?}");
    }
}

#[test]
fn a_peer_that_never_answers_is_given_up_after_all_tries_and_may_begin_later() {
    let mut pair = Pair::new();
    let begin = pair.now;
    while pair.step(|_| true) {}
    assert_eq!(pair.states(), [State::Foreign; 2]);
    let offers = pair.sent.iter().filter(|kind| **kind == Kind::Offer).count();
    assert_eq!((offers, pair.sent.len()), (TRIES as usize, 2 * TRIES as usize));
    assert!(pair.now.since(begin) < Duration::from_secs(5), "{:?}", pair.now.since(begin));
    // The responder asks when its port comes up.
    pair.event(1, Event::Again);
    assert_eq!(pair.states()[1], State::Idle);
    pair.ends[1].due = Some(pair.now);
    pair.until_armed(|_| false);
}

#[test]
fn an_offer_that_is_refused_is_made_again_ever_more_seldom() {
    let mut pair = Pair::new();
    pair.has_path = false;
    let mut last = pair.now;
    let mut pauses = Vec::new();
    for _ in 0..15 {
        pair.step(|_| false);
        pauses.push(pair.now.since(last));
        last = pair.now;
    }
    assert!(pauses[1] <= FIRST * 2, "{pauses:?}");
    assert_eq!(*pauses.last().unwrap(), RARE);
    pair.has_path = true;
    pair.event(0, Event::Again);
    assert_eq!(pair.ends[0].due(), Some(pair.now), "a port that comes up is used at once");
    pair.until_armed(|_| false);
}

#[test]
fn after_a_migration_the_peer_is_made_to_follow_and_another_path_is_agreed_on() {
    for end in [0, 1] {
        let mut pair = Pair::new();
        pair.until_armed(|_| false);
        let first = pair.ends[0].transaction();
        let begin = pair.now;
        pair.migrate(end);
        assert_eq!(pair.states(), [State::Moved; 2], "a packet has told the peer");
        pair.until_armed(|_| false);
        assert!(pair.now.since(begin) >= HOLD);
        assert!(pair.nudges <= 5 + 2 * NUDGES as usize, "{}", pair.nudges);
        assert_ne!(pair.ends[0].transaction(), first);
    }
}

#[test]
fn in_the_time_after_a_migration_no_offer_and_no_call_is_taken() {
    let mut pair = Pair::new();
    pair.until_armed(|_| false);
    pair.migrate(0);
    while pair.states() != [State::Idle; 2] {
        pair.step(|_| true);
    }
    let before = pair.ends.clone();
    let from = |end, kind, transaction| Message::new(kind, transaction, Qpn::new(end), Qpn::new(9));
    let call = pair.ends[0].handle_message(pair.now, &from(1, Kind::Call, 1), 99);
    assert_eq!(call, Err(OutOfPlace::Order));
    let offer = pair.ends[1].handle_message(pair.now, &from(0, Kind::Offer, 98), 99);
    assert_eq!(offer, Err(OutOfPlace::Later));
    assert_eq!(pair.ends, before);
    pair.until_armed(|_| false);
}

#[test]
fn an_offer_that_comes_while_a_next_hop_is_resolved_is_refused_and_made_again() {
    let mut pair = Pair::new();
    pair.is_resolving = true;
    pair.step(|_| false);
    assert_eq!(pair.states(), [State::Offering, State::Choosing]);
    let offer = |pair: &Pair, transaction| {
        let message = pair.message(0, Kind::Offer);
        Message { transaction, ..message }
    };
    for transaction in [pair.ends[1].transaction(), 77, 78] {
        let (now, message) = (pair.now, offer(&pair, transaction));
        let handled = pair.ends[1].handle_message(now, &message, 99);
        assert_eq!(handled, Err(OutOfPlace::Later));
    }
    assert_eq!(pair.states()[1], State::Choosing);
    // The initiator knows that the peer has failover, however long that takes.
    let refuse = Message { refusal: Some(Refusal::Later), ..pair.message(1, Kind::Refuse) };
    let refuse = Message { transaction: pair.ends[0].transaction(), ..refuse };
    pair.ends[0].handle_message(pair.now, &refuse, 99).unwrap();
    for _ in 0..40 {
        pair.step(|_| true);
    }
    assert_ne!(pair.states()[0], State::Foreign);
    pair.is_resolving = false;
    pair.event(1, Event::Found);
    pair.until_armed(|_| false);
}

#[test]
fn offers_and_calls_one_after_the_other_are_taken_now_and_then() {
    let mut pair = Pair::new();
    pair.step(|_| true);
    let mut taken = 0;
    for number in 0..1000 {
        pair.now = pair.now + Duration::from_micros(100);
        let offer = Message { transaction: 1000 + number, ..pair.message(0, Kind::Offer) };
        let fresh = pair.fresh();
        let handled = pair.ends[1].handle_message(pair.now, &offer, fresh);
        taken += usize::from(handled == Ok(Some(Action::Choose)));
        pair.act(1, handled.unwrap_or_default());
    }
    assert!((2..=11).contains(&taken), "{taken}");
    let mut pair = Pair::new();
    pair.has_path = false;
    let mut taken = 0;
    for _ in 0..1000 {
        pair.step(|_| false);
        let call = Message { transaction: 1, ..pair.message(1, Kind::Call) };
        let fresh = pair.fresh();
        taken += usize::from(pair.ends[0].handle_message(pair.now, &call, fresh).is_ok());
        if pair.now > Instant::from_nanos(5_000_000_000) {
            break;
        }
    }
    assert!(taken <= 6, "{taken}");
}

#[test]
fn a_peer_with_a_path_of_its_program_is_asked_no_more_until_a_port_changes() {
    let mut pair = Pair::new();
    pair.step(|_| true);
    let declined = Message { refusal: Some(Refusal::OfProgram), ..pair.message(1, Kind::Refuse) };
    let declined = Message { transaction: pair.ends[0].transaction(), ..declined };
    let handled = pair.ends[0].handle_message(pair.now, &declined, 99);
    assert_eq!(handled, Ok(Some(Action::Stop)));
    assert_eq!((pair.states()[0], pair.ends[0].due()), (State::Foreign, None));
    pair.event(0, Event::Again);
    assert_eq!(pair.ends[0].due(), Some(pair.now));
}

#[test]
fn an_armed_pair_agrees_on_another_path_when_either_end_asks() {
    for end in [0, 1] {
        let mut pair = Pair::new();
        pair.until_armed(|_| false);
        let first = pair.ends[0].transaction();
        pair.event(end, Event::Again);
        for _ in 0..10 {
            pair.step(|_| false);
        }
        assert_eq!(pair.states(), [State::Armed; 2]);
        assert_ne!(pair.ends[0].transaction(), first);
        assert_eq!(pair.qps, [Qp::Armed; 2], "it was armed all the time");
    }
}

#[test]
fn a_path_that_does_not_load_is_no_end_of_the_tries() {
    let mut pair = Pair::new();
    pair.loads = false;
    for _ in 0..20 {
        pair.step(|_| false);
    }
    assert_eq!(pair.qps, [Qp::Migrated; 2]);
    pair.loads = true;
    pair.until_armed(|_| false);
}

#[test]
fn messages_of_another_agreement_change_nothing() {
    let mut pair = Pair::new();
    pair.step(|kind| kind != Kind::Offer && kind != Kind::Accept);
    assert_eq!(pair.states(), [State::Probing, State::Accepted]);
    let before = pair.ends.clone();
    let [initiator, responder] = &mut pair.ends;
    let (now, token) = (pair.now, initiator.token());
    let message = |kind, transaction, token| {
        let message = Message::new(kind, transaction, Qpn::new(2), Qpn::new(9));
        Message { token, ..message }
    };
    let present = initiator.transaction();
    for (kind, transaction, token, expected) in [
        (Kind::Ready, present, token + 1, OutOfPlace::Stale),
        (Kind::Ready, present + 1, token, OutOfPlace::Stale),
        (Kind::Refuse, present + 1, 0, OutOfPlace::Stale),
        (Kind::Accept, present + 1, token, OutOfPlace::Stale),
        (Kind::Accept, present, token + 1, OutOfPlace::Order),
        (Kind::Refuse, present, 0, OutOfPlace::Order),
        (Kind::Call, present, 0, OutOfPlace::Order),
        (Kind::Offer, present + 1, 0, OutOfPlace::Order),
        (Kind::Probe, present, token, OutOfPlace::Order),
    ] {
        let handled = initiator.handle_message(now, &message(kind, transaction, token), 99);
        assert_eq!(handled, Err(expected), "{kind:?}");
    }
    for (kind, transaction, token, expected) in [
        (Kind::Probe, present, token + 1, OutOfPlace::Stale),
        (Kind::Probe, present + 1, token, OutOfPlace::Stale),
        (Kind::Ready, present, token, OutOfPlace::Order),
        (Kind::Accept, present, token, OutOfPlace::Order),
        (Kind::Call, present, 0, OutOfPlace::Order),
    ] {
        let handled = responder.handle_message(now, &message(kind, transaction, token), 99);
        assert_eq!(handled, Err(expected), "{kind:?}");
    }
    assert_eq!(pair.ends, before);
    pair.until_armed(|_| false);
}

#[test]
fn losses_at_random_never_arm_one_end_alone_for_ever() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        for _ in 0..40 {
            if random.u32(0..30) == 0 && pair.qps == [Qp::Armed; 2] {
                pair.migrate(random.usize(0..2));
            }
            let share = random.u32(0..90);
            let mut rolls = fastrand::Rng::with_seed(random.u64(..));
            let dropped: Vec<bool> = (0..64).map(|_| rolls.u32(0..100) < share).collect();
            let at = std::cell::Cell::new(0);
            pair.step(|_| {
                at.set((at.get() + 1) % dropped.len());
                dropped[at.get()]
            });
        }
        let [initiator, responder] = pair.states();
        if initiator == State::Foreign && matches!(responder, State::Idle | State::Foreign) {
            // Every message of all tries was lost.
            continue;
        }
        if pair.states() != [State::Armed; 2] {
            pair.until_armed(|_| false);
        }
    }
}
