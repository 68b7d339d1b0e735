//! Failover for programs that load no alternate path: `failover = "auto"`.
//!
//! Read first: IBA 17.2.8; `uroce-transport`'s `qp::migration`.
//!
//! ```text
//!   Modify QP to RTR ──> Exchange ── messages over QP 1 ──> the peer's control plane
//!                           │
//!                           └──> alternate path loaded and armed (connections: by LAP)
//!   PATH_MIG ──> nudges, pause ──> Exchange, for the port that has failed or another one
//! ```
//!
//! Each RC QP that is connected to a peer gets an [`Entry`]. Its [`Exchange`] agrees with the
//! peer's control plane on a path over other ports; this module checks the senders of messages,
//! finds paths, and changes the QP.
//!
//! Invariants
//! - The program gets no event of path migration and sees the path that it has set ([`View`]). A QP
//!   for which it loads an alternate path itself is left alone: it has no entry, and its lcore
//!   refuses paths of the control plane ([`PathLoader`]).
//! - A message acts on a QP only if it comes from the peer's general services interface and by the
//!   QP's own path, or by the alternate path of the agreement, and names both QPs.
//! - Both ends have agreed on the path, and packets pass it in both directions, before either is
//!   armed.
//!
//! Not here: order and repetition of the messages ([`exchange`]); LAP and APR (`rdma_cm`); the
//! migration (`uroce-transport`).

mod exchange;
mod load;
mod message;
mod path;
mod receive;
mod state;
mod view;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use uroce_cm::MadAddr;
use uroce_engine::{PathLoader, QpInfo};
use uroce_transport::{AltPath, Instant, QpAttr, QpChange, QpState, QpType};
use uroce_wire::Qpn;

use crate::config::Failback;
use crate::rdma_cm::{Service, ServiceContext};
use exchange::Exchange;
use message::{CALL, Kind, Message, Refusal};
use path::{Choice, Pair};
use state::{Action, Event, State};
use view::View;

/// Shortest time after a migration before the next path is loaded: meanwhile packets that the peer
/// has sent by the former path are accepted.
const HOLD: Duration = Duration::from_secs(1);
/// Longest such time.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// Longest time, at random, by which it is longer: many QPs migrate at the same time.
const SCATTER: Duration = Duration::from_millis(250);
/// Largest number of QPs that are handled in a turn because of their timers, and of those that
/// begin at the same time when a port has changed; and the pause after them.
const CROWD: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);

uroce_transport::counted! {
    /// Counters of failover for programs that load no alternate path.
    pub enum Tally {
        Armed "failover_armed" "A QP armed with an alternate path that both control planes agreed on."
        Migrated "failover_migrated" "A QP that migrated to such a path, or back."
        Returned "failover_returned" "A QP that was led back to the path of its program."
        Silent "failover_no_answer" "A peer of a QP that does not answer: it has no failover."
        Refused "failover_refused" "A peer's offer refused: no other port leads to it, or not yet."
        NotLoaded "failover_not_loaded" "An agreement that failed: its path leads nowhere."
        Malformed "failover_malformed" "A failover message dropped: a field of it is wrong."
        UnknownQp "failover_unknown_qp" "A failover message dropped: it names no such connection."
        WrongSource "failover_wrong_source" "A failover message dropped: it came by another path."
        Stale "failover_stale" "A failover message dropped: it belongs to no present offer."
        Order "failover_out_of_order" "A failover message dropped: it was not expected."
    }
}

/// A QP that gets its alternate path from the control plane.
#[derive(Debug)]
struct Entry {
    exchange: Exchange,
    view: View,
    /// Paths of which one is to be agreed on, the best first.
    choices: Vec<Choice>,
    /// The path that both ends agree on.
    pair: Option<Pair>,
    armed_at: Instant,
    /// The entry's time in [`Failover::timers`].
    timer: Option<Instant>,
}

/// The QPs of a device that get alternate paths from the control plane.
#[derive(Debug)]
pub(crate) struct Failover {
    failback: Failback,
    entries: HashMap<Qpn, Entry>,
    timers: BTreeSet<(Instant, Qpn)>,
    /// QPs with a next hop that is being resolved.
    resolving: BTreeSet<Qpn>,
    /// QPs with a path that is being loaded by LAP.
    proposed: Vec<Qpn>,
    tally: [u64; Tally::ALL.len()],
}

impl Failover {
    pub(crate) fn new(failback: Failback) -> Failover {
        Failover {
            failback,
            entries: HashMap::new(),
            timers: BTreeSet::new(),
            resolving: BTreeSet::new(),
            proposed: Vec::new(),
            tally: [0; Tally::ALL.len()],
        }
    }

    /// Handles changes of QPs since the last call.
    pub(crate) fn hear(&mut self, service: &mut Service, context: &mut ServiceContext<'_>) {
        for (qpn, change) in context.told.as_mut().map(std::mem::take).unwrap_or_default() {
            self.changed(qpn, &change, service, context);
        }
    }

    /// Handles changes of QPs, timers, and what is being resolved or loaded.
    pub(crate) fn turn(&mut self, service: &mut Service, context: &mut ServiceContext<'_>) {
        self.hear(service, context);
        for qpn in std::mem::take(&mut self.resolving) {
            self.resolve(qpn, service, context);
        }
        for qpn in std::mem::take(&mut self.proposed) {
            self.look_at_proposal(qpn, service, context);
        }
        // Those that are left are due in the next turn.
        for _ in 0..CROWD {
            let first = self.timers.first().copied();
            let Some((due, qpn)) = first.filter(|(due, _)| *due <= context.now) else { break };
            self.timers.remove(&(due, qpn));
            let Some(entry) = self.entries.get_mut(&qpn) else { continue };
            entry.timer = None;
            let action = entry.exchange.handle_timeout(context.now, fresh());
            if action == Some(Action::Stop) {
                self.count(Tally::Silent);
            }
            self.act(qpn, action, service, context);
        }
    }

    /// Returns the time at which [`turn`](Self::turn) has work to do without an input.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Handles an event of a QP: it has migrated.
    pub(crate) fn moved(
        &mut self,
        qpn: Qpn,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get_mut(&qpn) else { return };
        entry.pair = None;
        let timeout = Duration::from_nanos(4096u64 << entry.view.timeout().min(31));
        let scatter = Duration::from_nanos(fresh() % SCATTER.as_nanos() as u64);
        entry.exchange.hold(context.now + (2 * timeout).clamp(HOLD, HOLD_MAX) + scatter);
        self.count(Tally::Migrated);
        service.forget_alternate(qpn);
        self.event(qpn, Event::Moved, service, context);
    }

    /// Tries again to find alternate paths, because a port has come up.
    pub(crate) fn port_up(&mut self, now: Instant) {
        let waits = |entry: &Entry| matches!(entry.exchange.state(), State::Idle | State::Foreign);
        self.renew(now, waits);
    }

    /// Finds other paths in place of those through a port that has gone down. To be called if a
    /// third port is up.
    pub(crate) fn port_down(&mut self, now: Instant, port: u8) {
        let leads_there = |entry: &Entry| {
            let is_armed = entry.exchange.state() == State::Armed;
            is_armed && entry.pair.is_some_and(|pair| pair.port == port)
        };
        self.renew(now, leads_there);
    }

    fn renew(&mut self, now: Instant, is_one: impl Fn(&Entry) -> bool) {
        let waiting = self.entries.iter().filter(|(_, entry)| is_one(entry));
        let mut waiting: Vec<Qpn> = waiting.map(|(qpn, _)| *qpn).collect();
        waiting.sort_unstable_by_key(|qpn| qpn.value());
        for (qpn, at) in waiting.into_iter().zip(0..) {
            let Some(entry) = self.entries.get_mut(&qpn) else { continue };
            entry.exchange.handle(now, Event::Again, 0);
            entry.exchange.postpone(now + PAUSE * (at / CROWD as u32));
            self.retime(qpn);
        }
    }

    /// Forgets a QP that is destroyed.
    pub(crate) fn destroyed(&mut self, qpn: Qpn) {
        if let Some(due) = self.entries.remove(&qpn).and_then(|entry| entry.timer) {
            self.timers.remove(&(due, qpn));
        }
    }

    /// Replaces in the attributes of a QP what the control plane has changed by what the program
    /// has set.
    pub(crate) fn show(&self, qpn: Qpn, attr: &mut QpAttr) {
        if let Some(entry) = self.entries.get(&qpn) {
            entry.view.show(attr);
        }
    }

    /// Returns the port of the path that the program of a QP has set, if the QP may be on another
    /// path.
    pub(crate) fn port_of_program(&self, qpn: Qpn) -> Option<u8> {
        self.entries.get(&qpn).map(|entry| entry.view.port())
    }

    /// Returns the alternate path for a program that loads one into a QP with these attributes. If
    /// the QP is on that path already, that is the path which the program believes to be in use.
    pub(crate) fn displaced(&self, qpn: Qpn, attr: &QpAttr, alternate: AltPath) -> AltPath {
        let (own, used) = (&alternate.path.encap, &attr.path.encap);
        let is_in_use = alternate.port == attr.port && (own.src, own.dst) == (used.src, used.dst);
        match self.entries.get(&qpn) {
            Some(entry) if is_in_use => entry.view.alternate(),
            _ => alternate,
        }
    }

    /// Returns all counters with their values.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Tally, u64)> + '_ {
        Tally::ALL.iter().map(|what| (*what, self.tally[*what as usize]))
    }

    fn count(&mut self, what: Tally) {
        self.tally[what as usize] += 1;
    }

    /// Handles a Modify QP by the program or by the connection manager.
    fn changed(
        &mut self,
        qpn: Qpn,
        change: &QpChange,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        if change.alt_path.is_some() || change.state == Some(QpState::Reset) {
            service.forget_alternate(qpn);
            return self.destroyed(qpn);
        }
        let Some(entry) = self.entries.get_mut(&qpn) else {
            if matches!(change.state, Some(QpState::Rtr | QpState::Rts)) {
                self.begin(qpn, context);
            }
            return;
        };
        entry.view.changed(change);
        if change.path.is_some() || change.port.is_some() || change.pkey.is_some() {
            // The alternate path may be the one in use now.
            self.event(qpn, Event::Again, service, context);
        } else if change.state == Some(QpState::Rts) {
            entry.exchange.look_again(context.now);
            self.retime(qpn);
        }
    }

    /// Begins to agree on an alternate path for a QP that has been connected, unless it has one.
    fn begin(&mut self, qpn: Qpn, context: &mut ServiceContext<'_>) {
        let Ok(info) = context.control.query_qp(qpn) else { return };
        let attr = &info.attr;
        let is_ours = info.qp_type == QpType::Rc
            && info.loader == PathLoader::None
            && !attr.path.encap.is_loopback()
            && is_live(&info);
        if !is_ours {
            return;
        }
        let (own, peer) = (&attr.path.encap.src, &attr.path.encap.dst);
        let is_initiator = (qpn.value(), own.0) < (attr.dest_qpn.value(), peer.0);
        let entry = Entry {
            exchange: Exchange::new(context.now, is_initiator),
            view: View::of(attr),
            choices: Vec::new(),
            pair: None,
            armed_at: context.now,
            timer: None,
        };
        self.entries.insert(qpn, entry);
        self.retime(qpn);
    }

    /// Makes the entry's timer that of its exchange.
    fn retime(&mut self, qpn: Qpn) {
        let Some(entry) = self.entries.get_mut(&qpn) else { return };
        let due = entry.exchange.due();
        if let Some(former) = std::mem::replace(&mut entry.timer, due) {
            self.timers.remove(&(former, qpn));
        }
        self.timers.extend(due.map(|due| (due, qpn)));
    }

    /// Does what the exchange of a QP asks for, and what follows from it.
    fn act(
        &mut self,
        qpn: Qpn,
        action: Option<Action>,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        match action {
            Some(Action::Send(kind)) => self.send(qpn, kind, service, context),
            Some(Action::Choose | Action::Resolve) => self.resolve(qpn, service, context),
            Some(Action::Load) => self.load(qpn, service, context),
            Some(Action::Loaded) => self.loaded(qpn, service, context),
            Some(Action::Look) => self.look(qpn, service, context),
            Some(Action::Nudge) => {
                // Another packet, or an end that only receives, needs none.
                let nudges = context.control.nudge(qpn) == Ok(true);
                if !nudges {
                    return self.event(qpn, Event::Spent, service, context);
                }
            }
            Some(Action::Armed) => self.armed(qpn, context),
            Some(Action::Wait | Action::Stop) => service.forget_alternate(qpn),
            None => {}
        }
        self.retime(qpn);
    }

    /// Gives an event to the exchange of a QP, and does what it asks for.
    fn event(
        &mut self,
        qpn: Qpn,
        event: Event,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get_mut(&qpn) else { return };
        let action = entry.exchange.handle(context.now, event, fresh());
        self.act(qpn, action, service, context);
    }

    /// Sends a message to the peer of a QP: probes and their answers by the alternate path, all
    /// others by the path in use.
    fn send(
        &mut self,
        qpn: Qpn,
        kind: Kind,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get_mut(&qpn) else { return };
        let exchange = &mut entry.exchange;
        let Some(info) = context.control.query_qp(qpn).ok().filter(is_live) else {
            return exchange.rest();
        };
        let attr = &info.attr;
        let pair = entry.pair;
        let transaction = if kind == Kind::Call { CALL } else { exchange.transaction() };
        let message = Message::new(kind, transaction, qpn, attr.dest_qpn);
        let message = match kind {
            Kind::Offer => {
                let gids = path::other_gids(attr, context);
                let is_established = service.is_established(qpn);
                if gids.is_empty() || is_established == Some(false) {
                    return self.event(qpn, Event::Lost, service, context);
                }
                exchange.is_by_lap = is_established.is_some();
                Message { is_by_lap: exchange.is_by_lap, ..message.with_gids(&gids) }
            }
            Kind::Accept => {
                let Some(pair) = pair else { return };
                Message { token: exchange.token(), ..message.with_gids(&[pair.own, pair.peer]) }
            }
            Kind::Refuse => {
                self.tally[Tally::Refused as usize] += 1;
                Message { refusal: Some(Refusal::NoPath), ..message }
            }
            Kind::Probe | Kind::Ready => Message { token: exchange.token(), ..message },
            Kind::Call => message,
        };
        let primary = &attr.path.encap;
        let addr = MadAddr {
            port: attr.port,
            src: primary.src,
            dst: primary.dst,
            traffic_class: primary.traffic_class,
            flow_label: primary.flow_label,
            hop_limit: primary.hop_limit,
            sl: primary.vlan.map_or(0, |vlan| vlan.pcp),
        };
        let is_by_other = matches!(kind, Kind::Probe | Kind::Ready);
        let addr = match pair.filter(|_| is_by_other) {
            Some(Pair { port, own, peer }) => MadAddr { port, src: own, dst: peer, ..addr },
            None => addr,
        };
        service.post(addr, message.emit(), context);
    }
}

/// Returns whether the QP handles packets of its connection.
fn is_live(info: &QpInfo) -> bool {
    matches!(info.attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
}

/// Returns a random number, by which a peer's answer is known; 0 if the system has none. A message
/// with a 0 is malformed, so nothing is agreed on then.
fn fresh() -> u64 {
    getrandom::u64().unwrap_or(0)
}
