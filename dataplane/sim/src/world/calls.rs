//! Calls of an application to a world's QPs: Modify QP, posts, destruction.
//!
//! Invariants
//! - Each call is an input, after which the QP is polled for packets.

use uroce_wire::{PathMtu, Qpn};

use crate::world::World;
use crate::world::env::SimEnv;
use crate::world::names::At;
use uroce_transport::{
    AltPath, Instant, ModifyError, PostError, Qp, QpChange, QpState, RdAddress, RecvWr,
    SelectiveRepeat, SendWr, Sge, WorkQueues,
};

impl World {
    /// Modifies a QP; see [`Qp::modify`].
    ///
    /// # Errors
    /// The errors of [`Qp::modify`].
    pub fn modify(&mut self, at: At, change: &QpChange) -> Result<(), ModifyError> {
        let before = self.qp(at).attr();
        if change.selective_repeat == Some(true) {
            self.slot_mut(at).qp_mut().equip(SelectiveRepeat::default());
        }
        let result = self.with_qp(at, |qp, now, env| qp.modify(now, change, env));
        self.derive(at);
        let slot = self.slot_mut(at);
        slot.state_known = slot.qp().state();
        match result {
            Ok(()) => {
                if (before.state, change.state) == (QpState::Rtr, Some(QpState::Rts)) {
                    self.watch(at);
                }
                self.check_change(at, &before, change);
            }
            Err(error) => self.check_refusal(at, &before, error),
        }
        self.settle(at);
        result
    }

    /// Loads an alternate path of the control plane into a QP; see [`Qp::adopt_alternate`].
    pub fn adopt_alternate(&mut self, at: At, alternate: &AltPath) -> bool {
        self.slot_mut(at).qp_mut().adopt_alternate(alternate)
    }

    /// Exchanges the queues of a QP for others; see [`Qp::exchange_queues`].
    pub fn exchange_queues(&mut self, at: At, queues: &mut WorkQueues) -> bool {
        self.slot_mut(at).qp_mut().exchange_queues(queues)
    }

    /// Has a QP send a packet without effect; see [`Qp::nudge`].
    pub fn nudge(&mut self, at: At) -> bool {
        let was_sent = self.with_qp(at, |qp, now, env| qp.nudge(now, env));
        self.depart();
        was_sent
    }

    /// Updates the rail of a QP, which is derived from its path.
    pub(crate) fn derive(&mut self, at: At) {
        let attr = self.qp(at).attr();
        let rail = self.node(at.node).rail_of(attr.port, attr.path.encap.src);
        self.slot_mut(at).rail = rail;
    }

    /// Posts a send work request; see [`Qp::post_send`].
    ///
    /// # Errors
    /// The errors of [`Qp::post_send`].
    pub fn post_send(&mut self, at: At, wr: &SendWr, sges: &[Sge]) -> Result<(), PostError> {
        let result = self.with_qp(at, |qp, _, env| qp.post_send(wr, sges, env));
        self.settle(at);
        result
    }

    /// Posts a send work request with inline data; see [`Qp::post_inline`].
    ///
    /// # Errors
    /// The errors of [`Qp::post_inline`].
    pub fn post_inline(&mut self, at: At, wr: &SendWr, data: &[u8]) -> Result<(), PostError> {
        let result = self.with_qp(at, |qp, _, env| qp.post_inline(wr, data, env));
        self.settle(at);
        result
    }

    /// Posts a send work request of an RD QP; see [`Qp::post_datagram`].
    ///
    /// # Errors
    /// The errors of [`Qp::post_datagram`].
    pub fn post_datagram(
        &mut self,
        at: At,
        wr: &SendWr,
        to: &RdAddress,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let result = self.with_qp(at, |qp, _, env| qp.post_datagram(wr, to, sges, env));
        self.settle(at);
        result
    }

    /// Posts a send work request of an RD QP with inline data; see [`Qp::post_inline_datagram`].
    ///
    /// # Errors
    /// The errors of [`Qp::post_inline_datagram`].
    pub fn post_inline_datagram(
        &mut self,
        at: At,
        wr: &SendWr,
        to: &RdAddress,
        data: &[u8],
    ) -> Result<(), PostError> {
        let result = self.with_qp(at, |qp, _, env| qp.post_inline_datagram(wr, to, data, env));
        self.settle(at);
        result
    }

    /// Sets the port's MTU for a UD QP; see [`Qp::set_port_mtu`].
    pub fn set_port_mtu(&mut self, at: At, mtu: PathMtu) {
        self.with_qp(at, |qp, _, _| qp.set_port_mtu(mtu));
    }

    /// Posts a receive work request; see [`Qp::post_recv`].
    ///
    /// # Errors
    /// The errors of [`Qp::post_recv`].
    pub fn post_recv(&mut self, at: At, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        let result = self.with_qp(at, |qp, _, env| qp.post_recv(wr, sges, env));
        self.settle(at);
        result
    }

    /// Moves a QP to ERR; see [`Qp::fail`].
    pub fn fail(&mut self, at: At) {
        self.with_qp(at, |qp, _, env| qp.fail(env));
        self.slot_mut(at).state_known = self.qp(at).state();
        self.settle(at);
    }

    /// Destroys a QP and creates one in RESET in its slot, with another number.
    pub fn destroy(&mut self, at: At) {
        self.with_qp(at, |qp, _, env| qp.detach(env));
        let slot = self.slot_mut(at);
        let (qpn, pd) = (slot.qp().qpn().value(), slot.qp().pd());
        let init = slot.init;
        // The low byte of the number stays: it is the slot.
        *slot.qp_mut() = Qp::new(Qpn::new(qpn.wrapping_add(1 << 8)), pd, &init);
        slot.timer_at = None;
        slot.state_known = slot.qp().state();
        self.settle_woken();
    }

    pub(crate) fn with_qp<R>(
        &mut self,
        at: At,
        work: impl FnOnce(&mut Qp, Instant, &mut SimEnv<'_>) -> R,
    ) -> R {
        let now = self.agenda.now();
        let node = &mut self.nodes[usize::from(at.node)];
        node.with_qp(at, now, &mut self.outlet, |qp, env| work(qp, now, env))
    }
}
