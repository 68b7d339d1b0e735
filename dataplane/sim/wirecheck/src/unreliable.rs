//! Packets that a sender of the services without acknowledgements may send: every PSN once, in
//! order.
//!
//! Read first: IBA 9.8.

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Seen, Shape};
use crate::message::Messages;
use crate::psn::{add, distance};

#[derive(Debug)]
pub(crate) struct Sender {
    messages: Messages,
    next: u32,
}

impl Sender {
    pub(crate) fn new(mtu: u32, first_psn: u32) -> Sender {
        Sender { messages: Messages::new(mtu), next: first_psn }
    }

    pub(crate) fn sent(&mut self, seen: &Seen, shape: &Shape) -> Result<(), Flaw> {
        let ahead = distance(seen.psn, self.next);
        ensure(ahead >= 0, Rule::Repeated, seen.psn, self.next)?;
        ensure(ahead == 0, Rule::PsnSkipped, seen.psn, self.next)?;
        ensure(shape.is_request(), Rule::NoResponses, seen.opcode, 0_u8)?;
        self.messages.next(seen, shape)?;
        self.next = add(self.next, 1);
        Ok(())
    }

    /// Returns whether no message is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        self.messages.is_between()
    }
}
