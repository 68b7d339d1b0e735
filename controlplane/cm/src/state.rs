//! States and transitions of connection management, as one table per state machine.
//!
//! Read first: IBA 12.9, and IBA 12.11 for SIDR.
//!
//! ```text
//!  active                         passive                      both
//!    Idle                           Idle                         Established
//!     │ send REQ                     │ REQ comes                  │ send DREQ    │ DREQ comes
//!    ReqSent ── MRA ─▶ MraReqRcvd   ReqRcvd ── send MRA ─▶ …     DreqSent       DreqRcvd
//!     │ REP comes        │           │ send REP                   │ DREP, DREQ   │ send DREP
//!    RepRcvd ◀───────────┘          RepSent ── MRA ─▶ MraRepRcvd  └▶ TimeWait ◀──┘
//!     │ send RTU                     │ RTU, or data, comes             │ over
//!    Established                    Established                       Idle
//! ```
//!
//! A REJ, or the last unanswered repetition, leads to Idle before a REP was sent or received, and
//! to TimeWait from then on. Alternate paths are loaded within Established, by two small state
//! machines: one for LAPs that are sent, one for LAPs that are received.
//!
//! Not here: listeners. A listener has no connection and no transitions.

/// State of a connection, or of a service ID resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// There is no connection.
    Idle,
    /// REQ sent, no answer yet.
    ReqSent,
    /// REQ received; the consumer has to accept or reject.
    ReqRcvd,
    /// REQ received and answered with an MRA; the consumer has to accept or reject.
    MraReqSent,
    /// REQ sent and answered with an MRA.
    MraReqRcvd,
    /// REP sent, no answer yet.
    RepSent,
    /// REP received; the consumer has to make its queue pair ready.
    RepRcvd,
    /// REP received and answered with an MRA; the consumer has to make its queue pair ready.
    MraRepSent,
    /// REP sent and answered with an MRA.
    MraRepRcvd,
    /// Connected.
    Established,
    /// DREQ sent, no answer yet.
    DreqSent,
    /// DREQ received; the consumer has to stop its queue pair.
    DreqRcvd,
    /// The connection is over, but its packets may still be in flight: the QPN must not be used.
    TimeWait,
    /// SIDR_REQ sent, no answer yet.
    SidrReqSent,
    /// SIDR_REQ received; the consumer has to answer.
    SidrReqRcvd,
}

/// Inputs of the state machine: the consumer's calls, received messages and timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The consumer connects: a REQ is sent.
    SendReq,
    /// A REQ for a listener is received.
    RecvReq,
    /// A REQ that crosses ours is received and takes precedence over it.
    RecvPeerReq,
    /// The consumer needs more time to answer a REQ or REP: an MRA is sent.
    SendMra,
    /// An MRA to our REQ or REP is received.
    RecvMra,
    /// The consumer accepts: a REP is sent.
    SendRep,
    /// A REP is received.
    RecvRep,
    /// The consumer is ready: an RTU is sent.
    SendRtu,
    /// An RTU is received.
    RecvRtu,
    /// Data is received before the RTU, which was lost or is late.
    CommEst,
    /// The consumer rejects or gives up: a REJ is sent.
    SendRej,
    /// A REJ is received.
    RecvRej,
    /// A REJ is received because our queue pair is part of an older connection of the peer.
    RecvRejStale,
    /// The consumer disconnects: a DREQ is sent.
    SendDreq,
    /// A DREQ is received.
    RecvDreq,
    /// The consumer agrees to a DREQ: a DREP is sent.
    SendDrep,
    /// A DREP is received.
    RecvDrep,
    /// The last message was repeated as often as allowed, without an answer.
    RetriesExhausted,
    /// TimeWait has passed.
    TimeWaitOver,
    /// The consumer looks up a service: a SIDR_REQ is sent.
    SendSidrReq,
    /// A SIDR_REQ for a listener is received.
    RecvSidrReq,
    /// The consumer answers a SIDR_REQ: a SIDR_REP is sent.
    SendSidrRep,
    /// A SIDR_REP is received.
    RecvSidrRep,
}

impl State {
    /// All states.
    pub const ALL: [State; 15] = [
        State::Idle,
        State::ReqSent,
        State::ReqRcvd,
        State::MraReqSent,
        State::MraReqRcvd,
        State::RepSent,
        State::RepRcvd,
        State::MraRepSent,
        State::MraRepRcvd,
        State::Established,
        State::DreqSent,
        State::DreqRcvd,
        State::TimeWait,
        State::SidrReqSent,
        State::SidrReqRcvd,
    ];

    /// Returns the state after `event`; [`None`] if the event is not allowed in this state.
    pub const fn after(self, event: Event) -> Option<State> {
        use Event as E;
        use State::*;
        Some(match (self, event) {
            (Idle, E::SendReq) => ReqSent,
            (Idle, E::RecvReq) => ReqRcvd,
            (Idle, E::SendSidrReq) => SidrReqSent,
            (Idle, E::RecvSidrReq) => SidrReqRcvd,

            (ReqSent, E::RecvPeerReq) => ReqRcvd,
            (ReqSent | MraReqRcvd, E::RecvMra) => MraReqRcvd,
            (ReqSent | MraReqRcvd, E::RecvRep) => RepRcvd,
            (ReqSent | MraReqRcvd, E::RecvRej | E::SendRej | E::RetriesExhausted) => Idle,
            (ReqSent | MraReqRcvd, E::RecvRejStale) => TimeWait,

            (ReqRcvd | MraReqSent, E::SendMra) => MraReqSent,
            (ReqRcvd | MraReqSent, E::SendRep) => RepSent,
            (ReqRcvd | MraReqSent, E::SendRej | E::RecvRej | E::RecvRejStale) => Idle,

            (RepSent | MraRepRcvd, E::RecvMra) => MraRepRcvd,
            (RepSent | MraRepRcvd, E::RecvRtu | E::CommEst) => Established,
            (RepSent | MraRepRcvd, E::RecvDreq) => DreqRcvd,
            (
                RepSent | MraRepRcvd,
                E::SendRej | E::RecvRej | E::RecvRejStale | E::RetriesExhausted,
            ) => TimeWait,

            (RepRcvd | MraRepSent, E::SendMra) => MraRepSent,
            (RepRcvd | MraRepSent, E::SendRtu) => Established,
            (RepRcvd | MraRepSent, E::RecvDreq) => DreqRcvd,
            (RepRcvd | MraRepSent, E::SendRej | E::RecvRej | E::RecvRejStale) => TimeWait,

            (Established, E::SendDreq) => DreqSent,
            (Established, E::RecvDreq) => DreqRcvd,
            (Established, E::RecvRej | E::RecvRejStale) => TimeWait,

            (DreqSent, E::RecvDrep | E::RecvDreq | E::RetriesExhausted) => TimeWait,
            (DreqSent | DreqRcvd, E::RecvRej | E::RecvRejStale) => TimeWait,
            (DreqRcvd, E::SendDrep) => TimeWait,
            (TimeWait, E::TimeWaitOver) => Idle,

            (SidrReqSent, E::RecvSidrRep | E::RetriesExhausted | E::SendRej) => Idle,
            // TimeWait keeps the answer for copies of the SIDR_REQ.
            (SidrReqRcvd, E::SendSidrRep) => TimeWait,
            _ => return None,
        })
    }

    /// Tells whether a peer occupies a place in the table without being connected. The peer's
    /// address may be forged.
    pub const fn is_half_open(self) -> bool {
        matches!(
            self,
            State::ReqRcvd
                | State::MraReqSent
                | State::RepSent
                | State::MraRepRcvd
                | State::SidrReqRcvd
        )
    }

    /// Tells whether a request waits for the answer of its listener's consumer.
    pub const fn is_in_backlog(self) -> bool {
        matches!(self, State::ReqRcvd | State::MraReqSent | State::SidrReqRcvd)
    }
}

impl Event {
    /// All events.
    pub const ALL: [Event; 23] = [
        Event::SendReq,
        Event::RecvReq,
        Event::RecvPeerReq,
        Event::SendMra,
        Event::RecvMra,
        Event::SendRep,
        Event::RecvRep,
        Event::SendRtu,
        Event::RecvRtu,
        Event::CommEst,
        Event::SendRej,
        Event::RecvRej,
        Event::RecvRejStale,
        Event::SendDreq,
        Event::RecvDreq,
        Event::SendDrep,
        Event::RecvDrep,
        Event::RetriesExhausted,
        Event::TimeWaitOver,
        Event::SendSidrReq,
        Event::RecvSidrReq,
        Event::SendSidrRep,
        Event::RecvSidrRep,
    ];
}

/// State of loading an alternate path into an established connection, for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LapState {
    /// No LAP is pending.
    #[default]
    Idle,
    /// LAP sent, no answer yet.
    LapSent,
    /// LAP sent and answered with an MRA.
    MraLapRcvd,
    /// LAP received; the consumer has to answer.
    LapRcvd,
    /// LAP received and answered with an MRA; the consumer has to answer.
    MraLapSent,
}

/// Inputs of the state machine of alternate paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LapEvent {
    /// The consumer proposes a path: a LAP is sent.
    SendLap,
    /// A LAP is received.
    RecvLap,
    /// The consumer needs more time: an MRA is sent.
    SendMra,
    /// An MRA to our LAP is received.
    RecvMra,
    /// The consumer answers: an APR is sent.
    SendApr,
    /// An APR is received.
    RecvApr,
    /// The LAP was repeated as often as allowed, without an answer.
    RetriesExhausted,
}

impl LapState {
    /// All states.
    pub const ALL: [LapState; 5] = [
        LapState::Idle,
        LapState::LapSent,
        LapState::MraLapRcvd,
        LapState::LapRcvd,
        LapState::MraLapSent,
    ];

    /// Returns the state after `event`; [`None`] if the event is not allowed in this state.
    pub const fn after(self, event: LapEvent) -> Option<LapState> {
        use LapEvent as E;
        use LapState::*;
        Some(match (self, event) {
            (Idle, E::SendLap) => LapSent,
            (LapSent | MraLapRcvd, E::RecvMra) => MraLapRcvd,
            (LapSent | MraLapRcvd, E::RecvApr | E::RetriesExhausted) => Idle,
            (Idle, E::RecvLap) => LapRcvd,
            (LapRcvd | MraLapSent, E::SendMra) => MraLapSent,
            (LapRcvd | MraLapSent, E::SendApr) => Idle,
            _ => return None,
        })
    }
}

impl LapEvent {
    /// All events.
    pub const ALL: [LapEvent; 7] = [
        LapEvent::SendLap,
        LapEvent::RecvLap,
        LapEvent::SendMra,
        LapEvent::RecvMra,
        LapEvent::SendApr,
        LapEvent::RecvApr,
        LapEvent::RetriesExhausted,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Lists all allowed transitions, and for each state the events that are not allowed.
    fn printed() -> String {
        let mut text = String::new();
        for state in State::ALL {
            let _ = writeln!(text, "{state:?}");
            let row = Event::ALL.map(|event| (event, state.after(event)));
            for (event, next) in row.iter().filter_map(|(event, next)| Some((event, (*next)?))) {
                let _ = writeln!(text, "    {event:?} -> {next:?}");
            }
            let nowhere = row.iter().filter(|(_, next)| next.is_none());
            let nowhere: Vec<_> = nowhere.map(|(event, _)| format!("{event:?}")).collect();
            let _ = writeln!(text, "    no place for {}", nowhere.join(" "));
        }
        for state in LapState::ALL {
            let _ = writeln!(text, "Lap{state:?}");
            for event in LapEvent::ALL {
                let next = state.after(event).map(|next| format!("{next:?}"));
                let _ =
                    writeln!(text, "    {event:?} -> {}", next.as_deref().unwrap_or("no place"));
            }
        }
        text
    }

    #[test]
    fn all_pairs_are_as_in_the_snapshot() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/states.txt");
        let text = printed();
        if std::env::var_os("UROCE_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UROCE_BLESS=1 writes it anew");
    }

    #[test]
    fn every_state_is_reached_from_idle_and_leads_back_to_it() {
        let successors = |state: State| Event::ALL.into_iter().filter_map(move |e| state.after(e));
        let reached = |from: State| {
            let mut found = vec![from];
            let mut at = 0;
            while let Some(&state) = found.get(at) {
                let new: Vec<_> = successors(state).filter(|next| !found.contains(next)).collect();
                new.into_iter().for_each(|next| {
                    if !found.contains(&next) {
                        found.push(next);
                    }
                });
                at += 1;
            }
            found
        };
        assert_eq!(reached(State::Idle).len(), State::ALL.len());
        assert!(State::ALL.into_iter().all(|state| reached(state).contains(&State::Idle)));
    }
}
