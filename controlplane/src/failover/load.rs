//! Paths that are agreed on: resolved, loaded into the QP, armed, renewed; and the way back.

use std::time::Duration;

use uroce_engine::QpInfo;
use uroce_transport::{AltPath, PathMigState, QpChange, QpState};
use uroce_wire::Qpn;

use super::message::Kind;
use super::state::{Event, State};
use super::{Failover, Tally, is_live, path};
use crate::config::Failback;
use crate::rdma_cm::{Proposal, Service, ServiceContext};

/// Looks of a responder that waits for the peer's LAP.
const LAP_LOOKS: u32 = 9;

impl Failover {
    /// Continues to find the alternate path of a QP. Called again until its next hop is resolved.
    pub(super) fn resolve(
        &mut self,
        qpn: Qpn,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get_mut(&qpn) else { return };
        if !matches!(entry.exchange.state(), State::Choosing | State::Resolving) {
            return;
        }
        // All at once, so that a neighbour that does not answer holds up no other.
        let mut found = None;
        entry.choices.retain(|choice| match choice.resolve(context) {
            Ok(is_resolved) => {
                found = found.or(is_resolved.then_some(choice.pair));
                true
            }
            Err(error) => {
                tracing::debug!(?qpn, %error, "no alternate path");
                false
            }
        });
        if found.is_none() && !entry.choices.is_empty() {
            self.resolving.insert(qpn);
            return;
        }
        entry.pair = found;
        let event = if found.is_some() { Event::Found } else { Event::Lost };
        if event == Event::Lost {
            self.count(Tally::NotLoaded);
        }
        self.event(qpn, event, service, context);
    }

    /// Loads the agreed path into the QP, or has the connection manager do it.
    pub(super) fn load(
        &mut self,
        qpn: Qpn,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get(&qpn) else { return };
        let is_begun = match (entry.exchange.is_by_lap, entry.pair) {
            (_, None) => false,
            (false, Some(_)) => self.adopt(qpn, context),
            (true, Some(pair)) if !entry.exchange.is_initiator() => {
                service.expect_alternate(qpn, pair.own, pair.peer)
            }
            (true, Some(pair)) => {
                let info = context.control.query_qp(qpn).ok();
                let vector = info.and_then(|info| path::vector(&info.attr, &pair, context).ok());
                let begun = vector.map(|vector| {
                    service.propose_alternate(qpn, pair.port, pair.own, vector, context)
                });
                if begun == Some(true) {
                    return self.proposed.push(qpn);
                }
                false
            }
        };
        if !is_begun {
            self.count(Tally::NotLoaded);
        }
        let event = if is_begun { Event::Loaded } else { Event::Failed };
        self.event(qpn, event, service, context);
    }

    /// Looks whether the LAP for a QP has been answered.
    pub(super) fn look_at_proposal(
        &mut self,
        qpn: Qpn,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let event = match service.proposal(qpn) {
            Proposal::Waits => return self.proposed.push(qpn),
            Proposal::Loaded => Event::Loaded,
            Proposal::Failed => {
                self.count(Tally::NotLoaded);
                Event::Failed
            }
        };
        self.event(qpn, event, service, context);
    }

    /// Puts the agreed path into the QP. Its next hop has been resolved a moment ago.
    fn adopt(&mut self, qpn: Qpn, context: &mut ServiceContext<'_>) -> bool {
        let Some(pair) = self.entries.get(&qpn).and_then(|entry| entry.pair) else { return false };
        let Ok(info) = context.control.query_qp(qpn) else { return false };
        let resolved = path::resolve(qpn, &info.attr, &pair, context);
        let Ok(Some(alternate)) = resolved else { return false };
        context.control.adopt_alternate(qpn, alternate) == Ok(true)
    }

    /// The path is loaded. A responder tells the peer; packets arm both.
    pub(super) fn loaded(
        &mut self,
        qpn: Qpn,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get(&qpn) else { return };
        if !entry.exchange.is_initiator() {
            self.send(qpn, Kind::Ready, service, context);
        }
        let _ = context.control.nudge(qpn);
    }

    /// Looks at the QP: whether it is armed, still armed, or to be led back.
    pub(super) fn look(
        &mut self,
        qpn: Qpn,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(entry) = self.entries.get(&qpn) else { return };
        let (state, looks) = (entry.exchange.state(), entry.exchange.tries());
        let awaits_lap =
            entry.exchange.is_by_lap && !entry.exchange.is_initiator() && looks < LAP_LOOKS;
        let Ok(info) = context.control.query_qp(qpn) else { return };
        if !is_live(&info) {
            return self.event(qpn, Event::Failed, service, context);
        }
        match (info.attr.path_mig_state, state) {
            (PathMigState::Armed, State::Arming) => {
                self.event(qpn, Event::Ready, service, context);
            }
            (PathMigState::Armed, _) => self.lead_back(qpn, &info, context),
            (PathMigState::Migrated, State::Arming) if awaits_lap => {}
            (PathMigState::Migrated, _) => self.event(qpn, Event::Failed, service, context),
            (PathMigState::Rearm, _) => {
                // One packet in each direction arms both ends.
                let _ = context.control.nudge(qpn);
            }
        }
    }

    /// The QP is armed.
    pub(super) fn armed(&mut self, qpn: Qpn, context: &mut ServiceContext<'_>) {
        self.count(Tally::Armed);
        if let Some(entry) = self.entries.get_mut(&qpn) {
            entry.armed_at = context.now;
            if let Failback::After(seconds) = self.failback {
                let due = context.now + Duration::from_secs(seconds.into());
                entry.exchange.look_at(Some(due));
            }
            tracing::info!(?qpn, pair = ?entry.pair, "failover armed");
        }
    }

    /// Migrates a QP to the path of its program, if the path has been armed for long enough.
    fn lead_back(&mut self, qpn: Qpn, info: &QpInfo, context: &mut ServiceContext<'_>) {
        let (Some(entry), Failback::After(seconds)) = (self.entries.get_mut(&qpn), self.failback)
        else {
            return;
        };
        let attr = &info.attr;
        let is_away = !entry.view.is_at(attr.port, &attr.path);
        if !is_away {
            return entry.exchange.look_at(None);
        }
        let is_home = |other: &AltPath| entry.view.is_at(other.port, &other.path);
        let leads_home = attr.alt_path.as_ref().is_some_and(is_home);
        let since = context.now.since(entry.armed_at);
        // Only a QP in RTS may be asked to migrate; the peer follows.
        let is_time = since >= Duration::from_secs(seconds.into()) && attr.state == QpState::Rts;
        if leads_home && is_time {
            let to_home = Some(PathMigState::Migrated);
            let change = QpChange { path_mig_state: to_home, ..QpChange::default() };
            if context.control.modify_qp(qpn, &change).is_ok() {
                self.count(Tally::Returned);
            }
        }
    }
}
