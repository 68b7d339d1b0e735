//! The transport service of a QP: each call branches once on the type and goes to its roles.

use crate::attr::{Attributes, QpType};
use crate::context::{Context, Step};
use crate::cqe::WcStatus;
use crate::env::{Env, Output};
use crate::queue::QpCaps;
use crate::raw::{self, Raw};
use crate::rc::{self, Keepalive, Rc};
use crate::rd::{Eec, Rd};
use crate::recv_queue::RecvQueue;
use crate::send_queue::SendQueue;
use crate::time::Instant;
use crate::uc::{self, Uc};
use crate::ud::{self, Ud};
use crate::wqe::{PostError, Rdd, SendWr, Sge};
use crate::xrc::Xrc;
use uroce_wire::Qpn;

/// The roles of a QP, one variant per service.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all QPs are RC; a box would cost each of their packets a cache line"
)]
#[derive(Debug)]
pub(crate) enum Service {
    Rc(Rc),
    Uc(Uc),
    Ud(Ud),
    Xrc(Box<Xrc>),
    Rd(Box<Rd>),
    Eec(Box<Eec>),
    Raw(Raw),
}

/// Evaluates one expression for the roles of any service.
macro_rules! each {
    ($service:expr, $roles:ident => $work:expr) => {
        match $service {
            Service::Rc($roles) => $work,
            Service::Uc($roles) => $work,
            Service::Ud($roles) => $work,
            Service::Xrc($roles) => $work,
            Service::Rd($roles) => $work,
            Service::Eec($roles) => $work,
            Service::Raw($roles) => $work,
        }
    };
}

impl Service {
    pub(super) fn new(qp_type: QpType, caps: &QpCaps, uses_srq: bool, rdd: Rdd) -> Service {
        match qp_type {
            QpType::Rc => Service::Rc(Rc {
                requester: rc::Requester::new(caps),
                responder: rc::Responder::new(caps, uses_srq),
                keepalive: rc::Keepalive::default(),
            }),
            QpType::Uc => Service::Uc(Uc {
                requester: uc::Requester::new(caps),
                responder: uc::Responder::new(caps, uses_srq),
            }),
            QpType::Ud | QpType::Gsi => Service::Ud(Ud {
                requester: ud::Requester::new(caps),
                responder: ud::Responder::new(caps, uses_srq),
                is_gsi: qp_type == QpType::Gsi,
            }),
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc(Box::new(Xrc::new(qp_type, caps))),
            QpType::Rd => Service::Rd(Box::new(Rd::new(caps, uses_srq, rdd))),
            QpType::Eec => Service::Eec(Box::new(Eec::new(rdd))),
            QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => Service::Raw(Raw {
                requester: raw::Requester::new(caps),
                responder: raw::Responder::new(caps, uses_srq),
                qp_type,
            }),
        }
    }

    pub(super) fn qp_type(&self) -> QpType {
        match self {
            Service::Rc(_) => QpType::Rc,
            Service::Uc(_) => QpType::Uc,
            Service::Ud(ud) if ud.is_gsi => QpType::Gsi,
            Service::Ud(_) => QpType::Ud,
            Service::Xrc(xrc) => xrc.qp_type(),
            Service::Rd(_) => QpType::Rd,
            Service::Eec(_) => QpType::Eec,
            Service::Raw(raw) => raw.qp_type,
        }
    }

    /// The roles of a reliable service: RC, the extended one, or an EEC.
    #[inline]
    pub(super) fn reliable(&self) -> Option<&Rc> {
        match self {
            Service::Rc(rc) => Some(rc),
            Service::Xrc(xrc) => Some(xrc),
            Service::Eec(eec) => Some(eec),
            Service::Uc(_) | Service::Ud(_) | Service::Rd(_) | Service::Raw(_) => None,
        }
    }

    #[inline]
    pub(super) fn reliable_mut(&mut self) -> Option<&mut Rc> {
        match self {
            Service::Rc(rc) => Some(rc),
            Service::Xrc(xrc) => Some(xrc),
            Service::Eec(eec) => Some(eec),
            Service::Uc(_) | Service::Ud(_) | Service::Rd(_) | Service::Raw(_) => None,
        }
    }

    /// Number of send WQEs that have not completed.
    #[inline]
    pub(super) fn send_depth(&self) -> u32 {
        each!(self, roles => roles.requester.depth())
    }

    /// Returns whether no message is in progress.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Service::Rc(rc) => rc.requester.is_quiet(),
            Service::Eec(eec) => eec.is_quiet(),
            service => each!(service, roles => roles.requester.is_quiet()),
        }
    }

    #[inline]
    pub(super) fn sq(&self) -> &SendQueue {
        each!(self, roles => &roles.requester.sq)
    }

    #[inline]
    pub(super) fn rq(&self) -> &RecvQueue {
        each!(self, roles => &roles.responder.rq)
    }

    /// Number of receive WQEs that have not completed.
    #[inline]
    pub(super) fn recv_depth(&self) -> u32 {
        match self {
            Service::Rd(rd) => rd.responder.depth(),
            service => service.rq().len(),
        }
    }

    /// Returns whether receives come from shared receive queues.
    pub(super) fn takes_shared(&self) -> bool {
        match self {
            Service::Xrc(xrc) => xrc.is_target(),
            Service::Eec(_) => false,
            _ => self.rq().uses_srq(),
        }
    }

    #[inline]
    pub(super) fn rq_mut(&mut self) -> &mut RecvQueue {
        each!(self, roles => &mut roles.responder.rq)
    }

    #[inline]
    pub(super) fn post_send(
        &mut self,
        wr: &SendWr,
        sges: &[Sge],
        attr: &Attributes,
    ) -> Result<(), PostError> {
        let (qp_type, mtu) = (self.qp_type(), attr.path_mtu);
        match self {
            Service::Rc(rc) => rc.requester.sq.post(wr, sges, qp_type, mtu),
            Service::Uc(uc) => uc.requester.sq.post(wr, sges, qp_type, mtu),
            Service::Ud(ud) => ud.requester.sq.post(wr, sges, qp_type, mtu),
            Service::Xrc(xrc) => xrc.requester.sq.post(wr, sges, qp_type, mtu),
            Service::Raw(raw) => raw.requester.sq.post(wr, sges, qp_type, mtu),
            //= check R8 — an RD QP takes posts with a destination, an EEC none
            Service::Rd(_) | Service::Eec(_) => Err(PostError::WrongOperation),
        }
    }

    #[inline]
    pub(super) fn post_inline(
        &mut self,
        wr: &SendWr,
        data: &[u8],
        attr: &Attributes,
    ) -> Result<(), PostError> {
        let (qp_type, mtu) = (self.qp_type(), attr.path_mtu);
        match self {
            Service::Rc(rc) => rc.requester.sq.post_inline(wr, data, qp_type, mtu),
            Service::Uc(uc) => uc.requester.sq.post_inline(wr, data, qp_type, mtu),
            Service::Ud(ud) => ud.requester.sq.post_inline(wr, data, qp_type, mtu),
            Service::Xrc(xrc) => xrc.requester.sq.post_inline(wr, data, qp_type, mtu),
            Service::Raw(raw) => raw.requester.sq.post_inline(wr, data, qp_type, mtu),
            Service::Rd(_) | Service::Eec(_) => Err(PostError::WrongOperation),
        }
    }

    /// Returns whether the QP has the memory of selective repeat.
    pub(super) fn is_equipped(&self) -> bool {
        matches!(self, Service::Rc(rc) if rc.is_equipped())
    }

    /// Sends one request packet, if there is one.
    #[inline]
    pub(super) fn transmit_request(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        match self {
            Service::Rc(rc) => rc.requester.transmit(context, env),
            Service::Uc(uc) => uc.requester.transmit(context, env),
            Service::Ud(ud) => ud.requester.transmit(context, env),
            Service::Xrc(xrc) => xrc.transmit_request(context, env),
            Service::Eec(eec) => eec.transmit_request(context, env),
            Service::Rd(_) => Step::Idle,
            Service::Raw(raw) => raw.requester.transmit(context, env),
        }
    }

    /// Time at which to try again after [`Step::Paced`]. Only a datagram or a frame has a rate of
    /// its own.
    pub(super) fn paced_until(&self) -> Instant {
        match self {
            Service::Ud(ud) => ud.requester.paced_until(),
            Service::Raw(raw) => raw.requester.paced_until(),
            _ => Instant::ZERO,
        }
    }

    /// Sends one answer to the peer, if one is due; only RC, XRC and EECs have any. If `is_held`,
    /// only a bare acknowledgement is sent.
    #[inline]
    pub(super) fn transmit_answer(
        &mut self,
        context: &Context<'_>,
        is_held: bool,
        env: &mut impl Env,
    ) -> Step {
        match self {
            Service::Rc(rc) => rc.responder.transmit(context, is_held, env),
            Service::Xrc(xrc) => xrc.transmit_answer(context, is_held, env),
            Service::Eec(eec) => eec.transmit_answer(context, is_held, env),
            Service::Uc(_) | Service::Ud(_) | Service::Rd(_) | Service::Raw(_) => Step::Idle,
        }
    }

    /// Starts the responder when the QP enters RTR.
    pub(super) fn start_responder(&mut self, attr: &Attributes) {
        each!(self, roles => roles.responder.start(attr));
    }

    /// Starts the requester when the QP enters RTS from RTR.
    pub(super) fn start_requester(&mut self, attr: &Attributes, now: Instant) {
        each!(self, roles => roles.requester.start(attr));
        if let Service::Rc(rc) = self {
            rc.start_keepalive(now);
        }
    }

    /// The keepalive; only RC has one.
    pub(super) fn keepalive(&self) -> Option<&Keepalive> {
        if let Service::Rc(rc) = self { Some(&rc.keepalive) } else { None }
    }

    pub(super) fn keepalive_mut(&mut self) -> Option<&mut Keepalive> {
        if let Service::Rc(rc) = self { Some(&mut rc.keepalive) } else { None }
    }

    /// Applies changed attributes of a QP that has drained.
    pub(super) fn retune(&mut self, attr: &Attributes) {
        if let Some(rc) = self.reliable_mut() {
            rc.requester.retune(attr);
            rc.responder.retune(attr);
        }
    }

    /// Completes the oldest send WQE with an error.
    pub(super) fn fail_send(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        each!(self, roles => roles.requester.complete_front(qpn, status, out));
    }

    pub(super) fn flush_sends(&mut self, qpn: Qpn, out: &mut impl Output) {
        each!(self, roles => roles.requester.flush(qpn, out));
    }

    pub(super) fn flush_receives(&mut self, qpn: Qpn, out: &mut impl Output) {
        each!(self, roles => roles.responder.flush(qpn, out));
    }

    pub(super) fn reset(&mut self) {
        each!(self, roles => {
            roles.requester.reset();
            roles.responder.reset();
        });
        if let Some(keepalive) = self.keepalive_mut() {
            *keepalive = Keepalive::default();
        }
    }
}
