//! States of the agreement on a QP's alternate path, and their transitions.
//!
//! ```text
//!   initiator: IDLE ─ OFFERING ─ RESOLVING ─ PROBING ─ LOADING ─ ARMING ─ ARMED
//!   responder: CALLING ─ CHOOSING ─ ACCEPTED ─ LOADING ─ ARMING ─ ARMED
//!   both:      after a migration MOVED, then IDLE; FOREIGN if the peer has no failover
//! ```
//!
//! Not here: times and contents of messages ([`super::exchange`]).

use super::message::Kind;

/// State of the agreement at one end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nothing is agreed. The initiator waits until it makes an offer, the responder for one.
    Idle,
    /// The responder asks for an offer.
    Calling,
    /// An offer is sent.
    Offering,
    /// The initiator resolves the next hop of the path that the peer has chosen.
    Resolving,
    /// A probe is sent by the alternate path.
    Probing,
    /// The responder resolves the next hop of a path of the offer.
    Choosing,
    /// The responder has sent the path that it has chosen.
    Accepted,
    /// The path is being loaded into the QP.
    Loading,
    /// The QP is in REARM.
    Arming,
    /// The QP is in ARMED.
    Armed,
    /// The QP has migrated, and packets of it tell the peer so.
    Moved,
    /// The peer does not answer, because it is another stack or is not configured; or its program
    /// has a path of its own.
    Foreign,
}

/// Input of the agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The timer has expired.
    Due,
    /// The timer has expired, all tries are used up, and the peer has answered some time before.
    Spent,
    /// The timer has expired, all tries are used up, and the peer has never answered.
    Silent,
    /// A message has come from the peer: it is checked, and part of this agreement.
    Got(Kind),
    /// The peer refuses the offer, and will refuse all others.
    Declined,
    /// The next hop is resolved.
    Found,
    /// There is no path.
    Lost,
    /// The path is loaded.
    Loaded,
    /// The path could not be loaded, or the QP does not have it any more.
    Failed,
    /// The QP is armed.
    Ready,
    /// The QP has migrated.
    Moved,
    /// A port has come up or gone down, or the program has changed the path: another alternate path
    /// may be better.
    Again,
    /// The timer of a responder without an offer has expired.
    Ask,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Send(Kind),
    /// Find a path to a GID of the offer.
    Choose,
    /// Resolve the next hop of the path that the peer has chosen.
    Resolve,
    /// Load the path into the QP and arm it.
    Load,
    /// Tell the peer, and see to it that packets arm both ends.
    Loaded,
    /// Have the QP send a packet, so that the peer follows its migration.
    Nudge,
    /// Look at the QP's state of migration.
    Look,
    /// Note that the QP is armed.
    Armed,
    /// Wait before the next offer.
    Wait,
    /// Stop: nothing more is done for the QP unless the peer begins.
    Stop,
}

/// The transition table. `None`: the event changes nothing; a message is out of place.
pub(super) const fn next(state: State, event: Event) -> Option<(State, Action)> {
    use Action::{Choose, Load, Look, Nudge, Resolve, Send, Stop, Wait};
    use Event::{
        Again, Ask, Declined, Due, Failed, Found, Got, Loaded, Lost, Moved, Ready, Silent, Spent,
    };
    use Kind::{Accept, Call, Offer, Probe, Refuse};
    use State::{
        Accepted, Armed, Arming, Calling, Choosing, Foreign, Idle, Loading, Offering, Probing,
        Resolving,
    };
    Some(match (state, event) {
        (_, Moved) | (State::Moved, Due) => (State::Moved, Nudge),
        (State::Moved, Spent) => (Idle, Wait),
        (_, Again) => (Idle, Wait),

        (Idle, Due) | (Offering, Due) => (Offering, Send(Offer)),
        (Idle | Foreign | Armed, Got(Call)) => (Offering, Send(Offer)),
        (Offering, Got(Accept)) => (Resolving, Resolve),
        (Offering | Foreign, Got(Refuse)) | (Offering, Lost) => (Idle, Wait),
        (Offering | Foreign, Declined) => (Foreign, Stop),
        (Resolving, Found) => (Probing, Send(Probe)),
        (Probing, Due) => (Probing, Send(Probe)),
        (Probing, Got(Kind::Ready)) => (Loading, Load),
        (Offering | Probing | Calling, Spent) | (Resolving, Lost) => (Idle, Wait),
        (Offering | Calling, Silent) => (Foreign, Stop),

        (Idle | Accepted, Ask) | (Calling, Due) => (Calling, Send(Call)),
        (Idle | Calling | Foreign | Accepted | Arming | Armed, Got(Offer)) => (Choosing, Choose),
        (Choosing, Found) => (Accepted, Send(Accept)),
        (Choosing, Lost) => (Idle, Send(Refuse)),
        (Accepted, Got(Probe)) => (Loading, Load),
        // The answer to the first probe was lost.
        (Arming, Got(Probe)) => (Arming, Send(Kind::Ready)),
        (Armed, Got(Probe)) => (Armed, Send(Kind::Ready)),

        (Loading, Loaded) => (Arming, Action::Loaded),
        (Arming, Due) => (Arming, Look),
        (Arming, Ready) => (Armed, Action::Armed),
        (Armed, Due) => (Armed, Look),
        (Loading | Arming | Armed, Failed) => (Idle, Wait),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
