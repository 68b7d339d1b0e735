//! Congestion notification: marked packets make CNPs, and CNPs reach the reaction point.
//!
//! Read first: Annex A17 (ECN, CNP).
//!
//! Invariants
//! - A CNP is sent for a packet that has passed the checks of its headers, at most one in a time
//!   per QP, and never for a CNP.
//! - A loss has an effect on the rate only if the reaction point follows losses.
//! - A CNP has no effect on anything but the rate: not on path migration, PSNs or queues. One of a
//!   stranger has none at all.
//!
//! A CNP leaves while its packet is handled, before any answer, and is not paced. If the sink is
//! full it is not sent: the next marked packet makes another.
//!
//! Not here: the algorithms ([`crate::congestion`]); the mark itself, which a switch sets.

use uroce_wire::{
    Bth, Deth, Encap, Header, HeaderTemplate, NakCode, OpCode, Operation, Packet, Psn, Qpn,
    Syndrome, Vlan,
};

use super::migration::Origin;
use super::pace::Pace;
use super::service::Service;
use super::{Inbound, Qp};
use crate::attr::{PathMigState, QpType};
use crate::congestion::Reaction;
use crate::counter::Counter;
use crate::drop_reason::DropReason;
use crate::env::{Env, Outbound, Path};
use crate::gather::Gather;
use crate::time::{Instant, Stamp};

/// The sixteen reserved bytes after the BTH of a CNP.
const RESERVED: [u8; 16] = [0; 16];

/// Returns whether the packet with this IP header carries Congestion Experienced (CE).
#[inline]
pub(super) fn is_marked(l3: &[u8]) -> bool {
    const CE: u8 = 0b11;
    let &[first, second, ..] = l3 else { return false };
    // In IPv4 the second byte is the traffic class. In IPv6 its high half is the low half of the
    // traffic class.
    let class = if first >> 4 == 4 { second } else { second >> 4 };
    class & CE == CE
}

impl Qp {
    /// Handles the mark of a received packet: counts it, and sends a CNP to the packet's sender.
    //= check K1 — a CNP for each marked packet, if no time between them is required
    //= check K2 — at most one CNP of a QP in min_time_between_cnps
    //= check K6 — a mark counts when its packet is accepted, a CNP when there was room for it
    #[cold]
    #[inline(never)]
    pub(super) fn handle_mark(&mut self, now: Instant, inbound: &Inbound<'_>, env: &mut impl Env) {
        // The responder checks the Q_Key of a datagram, and drops it after this.
        let Deth { qkey, src_qpn } = inbound.packet.ext.deth;
        let is_datagram = self.qp_type().is_datagram();
        if is_datagram && qkey != self.attr.qkey {
            return;
        }
        env.count(Counter::NpEcnMarkedRocePackets);
        let terms = self.notification;
        let gap = 1000 * u32::from(terms.min_time_between_cnps_us);
        if self.has_sent_cnp && self.last_cnp.age(now) < gap && !seeded!(CnpForEveryMark) {
            return;
        }
        let (path, dest_qpn) = match is_datagram {
            false => (self.attr.template.encap(), self.attr.dest_qpn),
            true => match inbound.way_back() {
                Some(path) => (path, src_qpn),
                None => return,
            },
        };
        let traffic_class = terms.cnp_dscp << 2;
        let vlan = path.vlan.map(|vlan| Vlan { pcp: terms.cnp_802p_prio, ..vlan });
        let template = Encap { traffic_class, vlan, ..path }.template();
        if self.send_cnp(&template, dest_qpn, env) {
            env.count(Counter::NpCnpSent);
            (self.last_cnp, self.has_sent_cnp) = (Stamp::of(now), true);
        }
    }

    /// Sends one CNP. Returns whether there was room for it.
    fn send_cnp(&self, template: &HeaderTemplate, dest_qpn: Qpn, env: &mut impl Env) -> bool {
        let bth = Bth {
            opcode: OpCode::CNP,
            becn: true,
            pkey: self.attr.pkey,
            dest_qpn,
            psn: Psn::default(),
            ..Bth::default()
        };
        let payload = Gather::bytes(&RESERVED);
        let path = Path::Connected(template);
        env.transmit(&Outbound { path, bth, ext: Default::default(), by: self.by, payload }).is_ok()
    }

    /// Handles a CNP.
    //= check I2 — its MigReq is not looked at
    #[cold]
    pub(super) fn handle_cnp(
        &mut self,
        now: Instant,
        origin: Origin,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let result = self.take_cnp(now, origin);
        env.count(match result {
            Ok(()) => Counter::RpCnpHandled,
            Err(_) => Counter::RpCnpIgnored,
        });
        result
    }

    /// Gives a CNP of the peer to the reaction point.
    //= check K4 — a CNP of a stranger, in another state or with nothing sent changes nothing
    fn take_cnp(&mut self, now: Instant, origin: Origin) -> Result<(), DropReason> {
        if self.reaction.is_none() {
            return Err(DropReason::Congestion);
        }
        if !self.attr.state.serves_requests() {
            return Err(DropReason::QpNotReady);
        }
        if !self.is_of_peer(now, origin) && !seeded!(CnpOfAnyone) {
            return Err(DropReason::WrongSource);
        }
        let Some(reaction) = &mut self.reaction else { return Err(DropReason::Congestion) };
        if !reaction.notified(now) {
            return Err(DropReason::Congestion);
        }
        self.follow_reaction();
        Ok(())
    }

    /// Returns whether a packet comes by a path that the peer may use now. Its P_Key is not asked
    /// for, since some senders put the default one in each CNP.
    fn is_of_peer(&self, now: Instant, origin: Origin) -> bool {
        let Origin { src, dst, port } = origin;
        let is_other = self.attr.other().is_some_and(|path| path.leads_back(src, dst, port));
        let uses_both = self.attr.path_mig_state == PathMigState::Armed || self.hears_former(now);
        self.is_on_path(origin) || is_other && uses_both
    }

    /// Brings the rate up to `now` before a frame is sent.
    #[inline]
    pub(super) fn advance_reaction(&mut self, now: Instant) {
        if let Some(reaction) = &mut self.reaction {
            reaction.advance(now);
            self.follow_reaction();
        }
    }

    /// Tells the reaction point of a frame that was sent. Before it, the next packet to send was of
    /// the message `message`.
    pub(super) fn note_sent(&mut self, bytes: u32, message: Option<u32>, now: Instant) {
        self.note_next();
        let Some(reaction) = &mut self.reaction else { return };
        reaction.sent(bytes, now);
        if let (Some(rc), Some(message)) = (self.service.reliable(), message) {
            let (next, at) = rc.next_packet();
            // The last packet of a message requests an acknowledgement.
            if at == message.wrapping_add(1) && !rc.is_asking(message) {
                reaction.measure(next, now);
            }
        }
        self.follow_reaction();
    }

    /// The message that the next packet to send belongs to, if its round trip is to be measured.
    pub(super) fn measured_message(&mut self) -> Option<u32> {
        let reaction = self.reaction.as_mut().filter(|reaction| reaction.uses_round_trips())?;
        let rc = self.service.reliable()?;
        let (next, message) = rc.next_packet();
        reaction.repeats(next);
        Some(message)
    }

    /// Tells the reaction point of a response that has come: all packets before `unacked` are
    /// acknowledged.
    #[cold]
    pub(super) fn note_response(
        &mut self,
        unacked: Psn,
        packet: &Packet<'_>,
        now: Instant,
        env: &mut impl Env,
    ) {
        let goes_back = self.note_next();
        let Some(reaction) = &mut self.reaction else { return };
        let syndrome = packet.op.has(Header::Aeth).then_some(packet.ext.aeth.syndrome);
        // A stale NAK is for an older PSN.
        let is_nak =
            syndrome == Some(Syndrome::Nak(NakCode::PsnSequenceError)) && packet.bth.psn == unacked;
        let has_lost =
            matches!(&self.service, Service::Rc(rc) if rc.requester.next_lost().is_some());
        let is_selective = packet.op.operation == Operation::SelectiveAcknowledge;
        let is_missing = is_nak || is_selective && has_lost;
        reaction.acknowledged(unacked, is_missing, now);
        // An answer to a probe that acknowledges nothing beyond it shows that the rest was lost.
        let is_alone =
            matches!(syndrome, Some(Syndrome::Ack { .. })) && packet.bth.psn.next() == unacked;
        if goes_back && (is_missing || is_alone) {
            self.restart_slowly(now, env);
        }
        self.follow_reaction();
    }

    /// Tells the reaction point of an ACK timer that has expired, if one has.
    pub(super) fn note_timeout(&mut self, now: Instant, env: &mut impl Env) {
        if self.note_next() {
            self.restart_slowly(now, env);
            self.follow_reaction();
        }
    }

    /// Notes the next packet to send, after each frame and each input that may change it. Returns
    /// whether the requester has gone back; false if the reaction point does not follow losses.
    #[inline]
    fn note_next(&mut self) -> bool {
        let reaction = self.reaction.as_mut().filter(|reaction| reaction.restarts_slowly());
        let (Some(reaction), Some(rc)) = (reaction, self.service.reliable()) else { return false };
        reaction.goes_back(rc.next_packet().0)
    }

    /// Handles a loss that makes the requester send packets again.
    //= check K7 — counted for each loss that the requester acts upon, with or without a CNP
    #[cold]
    fn restart_slowly(&mut self, now: Instant, env: &mut impl Env) {
        let Some(reaction) = &mut self.reaction else { return };
        let Some(restart) = reaction.restart_slowly(now) else { return };
        env.count(Counter::SlowRestarts);
        if restart.has_cut {
            env.count(Counter::SlowRestartCnps);
        }
        if restart.was_free {
            env.count(Counter::SlowRestartTransitions);
        }
    }

    /// Applies the rate of the reaction point to the pacer.
    pub(super) fn follow_reaction(&mut self) {
        if let Some(reaction) = &self.reaction {
            self.attr.is_slowed = reaction.is_slowing();
            self.pace.adjust(reaction.kbps());
        }
    }

    /// Applies changed attributes to the rate.
    pub(super) fn retune_pace(&mut self) {
        let fixed = Pace::limit_of(&self.attr);
        let Some(reaction) = &mut self.reaction else { return self.pace.retune(fixed) };
        reaction.retune(fixed);
        self.pace.retune(reaction.kbps());
        self.attr.is_slowed = reaction.is_slowing();
    }

    /// Starts the reaction point anew: for another connection, or another path.
    pub(super) fn restart_reaction(&mut self) {
        if let Some(reaction) = &mut self.reaction {
            reaction.restart(Pace::limit_of(&self.attr));
            self.attr.is_slowed = false;
        }
    }
}

/// The reaction point that a QP of this type gets.
pub(super) fn reaction_of(init: &super::QpInit) -> Option<Box<Reaction>> {
    let has_one = matches!(init.qp_type, QpType::Rc | QpType::Uc | QpType::XrcSend);
    if has_one { Reaction::new(&init.congestion) } else { None }
}
