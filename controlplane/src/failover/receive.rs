//! Messages of peers: each field and each address is checked before the message has an effect.

use uroce_engine::{PathLoader, QpInfo};

use super::exchange::OutOfPlace;
use super::message::{Kind, Message, Refusal};
use super::path::{self, Pair};
use super::state::Action;
use super::{Failover, Tally, fresh, is_live};
use crate::gsi::{Arrived, GSI};
use crate::rdma_cm::{Service, ServiceContext};
use uroce_cm::MadAddr;

impl Failover {
    /// Returns whether a MAD is for this module.
    pub(crate) fn takes(mad: &uroce_wire::mad::Mad) -> bool {
        Message::is_of_class(mad)
    }

    /// Handles a message. One that is dropped is counted by reason, and changes nothing.
    pub(crate) fn receive(
        &mut self,
        arrived: &Arrived,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        if let Err(reason) = self.take(arrived, service, context) {
            tracing::debug!(src = ?arrived.src, reason = reason.name(), "failover message dropped");
            self.count(reason);
        }
    }

    fn take(
        &mut self,
        arrived: &Arrived,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), Tally> {
        let message = Message::parse(&arrived.mad).ok_or(Tally::Malformed)?;
        let qpn = message.to;
        let info = context.control.query_qp(qpn).map_err(|_| Tally::UnknownQp)?;
        if !is_live(&info) || info.attr.dest_qpn != message.from {
            return Err(Tally::UnknownQp);
        }
        let is_used = came_by(arrived, &in_use(&info));
        let is_of_gsi = arrived.src_qpn == GSI;
        let is_of_program = info.loader == PathLoader::Application;
        if is_of_program && message.kind == Kind::Offer && is_of_gsi && is_used {
            self.refuse(arrived, &message, Refusal::OfProgram, service, context);
            return Ok(());
        }
        let entry = self.entries.get_mut(&qpn).ok_or(Tally::UnknownQp)?;
        let is_right = match message.kind {
            Kind::Probe | Kind::Ready => entry.pair.is_some_and(|pair| came_by(arrived, &pair)),
            Kind::Offer => is_used || came_by_alternate(arrived, &info),
            Kind::Accept | Kind::Refuse | Kind::Call => is_used,
        };
        if !is_of_gsi || !is_right {
            return Err(Tally::WrongSource);
        }
        if message.kind == Kind::Offer && !may_agree(is_used, &message, service) {
            self.refuse(arrived, &message, Refusal::Later, service, context);
            return Ok(());
        }
        let choices = match (message.kind, message.gids()) {
            (Kind::Offer, gids) => path::choices(&info.attr, gids, context),
            (Kind::Accept, [peer, own]) => {
                let chosen = path::chosen(&info.attr, *own, *peer, context);
                let chosen = chosen.filter(|choice| may_be_chosen(&choice.pair, context));
                vec![chosen.ok_or(Tally::NotLoaded)?]
            }
            _ => Vec::new(),
        };
        let action = match entry.exchange.handle_message(context.now, &message, fresh()) {
            Ok(action) => action,
            Err(OutOfPlace::Stale) => return Err(Tally::Stale),
            Err(OutOfPlace::Order) => return Err(Tally::Order),
            Err(OutOfPlace::Later) => {
                self.refuse(arrived, &message, Refusal::Later, service, context);
                return Ok(());
            }
        };
        if matches!(action, Some(Action::Choose | Action::Resolve)) {
            (entry.choices, entry.pair) = (choices, None);
        }
        self.act(qpn, action, service, context);
        Ok(())
    }

    /// Refuses an offer by the path that it came by.
    fn refuse(
        &mut self,
        arrived: &Arrived,
        offer: &Message,
        refusal: Refusal,
        service: &mut Service,
        context: &mut ServiceContext<'_>,
    ) {
        self.count(Tally::Refused);
        let answer = Message::new(Kind::Refuse, offer.transaction, offer.to, offer.from);
        let answer = Message { refusal: Some(refusal), ..answer };
        let Arrived { port, src, dst, .. } = *arrived;
        let addr = MadAddr { port, src: dst, dst: src, ..MadAddr::default() };
        service.post(addr, answer.emit(), context);
    }
}

/// Returns whether a path may be agreed on now.
fn may_agree(is_used: bool, offer: &Message, service: &Service) -> bool {
    let is_of_one_mind = match service.is_established(offer.to) {
        // Both ends will see the connection soon.
        Some(false) => false,
        established => offer.is_by_lap == established.is_some(),
    };
    // An offer by the alternate path: the peer has migrated and this end has not yet.
    is_used && is_of_one_mind
}

/// Returns whether the peer may have chosen a path: it leads to another host.
fn may_be_chosen(pair: &Pair, context: &ServiceContext<'_>) -> bool {
    let ip = pair.peer.to_ip();
    let is_here = context.ports.neighbours.iter().any(|port| port.routes().is_own(ip));
    !is_here && ip.is_ipv4() == pair.own.to_ip().is_ipv4()
}

fn in_use(info: &QpInfo) -> Pair {
    let encap = &info.attr.path.encap;
    Pair { port: info.attr.port, own: encap.src, peer: encap.dst }
}

fn came_by(arrived: &Arrived, pair: &Pair) -> bool {
    (arrived.port, arrived.dst, arrived.src) == (pair.port, pair.own, pair.peer)
}

fn came_by_alternate(arrived: &Arrived, info: &QpInfo) -> bool {
    info.attr.alt_path.is_some_and(|alternate| {
        let encap = &alternate.path.encap;
        came_by(arrived, &Pair { port: alternate.port, own: encap.src, peer: encap.dst })
    })
}
