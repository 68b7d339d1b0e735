//! The states of communication management, as one table each.
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
//! A REJ, or retries that are used up, lead to Idle as long as no REP was there, and to TimeWait
//! from then on. Loading alternate paths goes on within Established, in two small machines: one
//! for LAPs that are sent, one for LAPs that come.
//!
//! Listening is no state here: a listener is not a connection and has no transitions.

/// State of a connection, or of a service ID resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// There is no connection.
    Idle,
    /// REQ sent, nothing heard.
    ReqSent,
    /// REQ came; the consumer has to accept or to reject.
    ReqRcvd,
    /// The same, and the peer was asked for patience.
    MraReqSent,
    /// REQ sent; the peer asked for patience.
    MraReqRcvd,
    /// REP sent, nothing heard.
    RepSent,
    /// REP came; the consumer has to make its queue pair ready.
    RepRcvd,
    /// The same, and the peer was asked for patience.
    MraRepSent,
    /// REP sent; the peer asked for patience.
    MraRepRcvd,
    /// Connected.
    Established,
    /// DREQ sent, nothing heard.
    DreqSent,
    /// DREQ came; the consumer has to stop.
    DreqRcvd,
    /// Packets of the connection may still be under way: the QPN is not to be used.
    TimeWait,
    /// SIDR_REQ sent, nothing heard.
    SidrReqSent,
    /// SIDR_REQ came; the consumer has to answer.
    SidrReqRcvd,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The consumer connects.
    SendReq,
    /// A REQ comes to a listener.
    RecvReq,
    /// The peer's REQ crosses ours, and ours has to yield.
    RecvPeerReq,
    /// The consumer asks the peer for patience with a REQ or REP.
    SendMra,
    /// The peer asks for patience with our REQ or REP.
    RecvMra,
    /// The consumer accepts.
    SendRep,
    /// The peer accepts.
    RecvRep,
    /// The consumer is ready.
    SendRtu,
    /// The peer is ready.
    RecvRtu,
    /// Data came, so the peer is ready: its RTU was lost or is late.
    CommEst,
    /// The consumer rejects, or gives up.
    SendRej,
    /// The peer rejects, or gives up.
    RecvRej,
    /// The peer holds our queue pair for part of an older connection.
    RecvRejStale,
    /// The consumer disconnects.
    SendDreq,
    /// The peer disconnects.
    RecvDreq,
    /// The consumer has stopped.
    SendDrep,
    /// The peer has stopped.
    RecvDrep,
    /// The last message was repeated as often as may be, in vain.
    RetriesExhausted,
    /// The time of TimeWait is over.
    TimeWaitOver,
    /// The consumer asks for a service's queue pair.
    SendSidrReq,
    /// A peer asks for a service's queue pair.
    RecvSidrReq,
    /// The consumer answers that.
    SendSidrRep,
    /// The peer answers that.
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

    /// The state after `event`; [`None`] where the event has no place.
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
            // For copies of the question, which get the same answer.
            (SidrReqRcvd, E::SendSidrRep) => TimeWait,
            _ => return None,
        })
    }

    /// Has a peer that may not exist a place in our table, without a connection yet?
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

    /// Does a request wait for its listener's consumer?
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

/// Loading an alternate path into an established connection, on one side of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LapState {
    /// No LAP under way.
    #[default]
    Idle,
    /// LAP sent, nothing heard.
    LapSent,
    /// LAP sent; the peer asked for patience.
    MraLapRcvd,
    /// LAP came; the consumer has to answer.
    LapRcvd,
    /// The same, and the peer was asked for patience.
    MraLapSent,
}

/// What happens to the loading of an alternate path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LapEvent {
    /// The consumer proposes a path.
    SendLap,
    /// The peer proposes a path.
    RecvLap,
    /// The consumer asks the peer for patience.
    SendMra,
    /// The peer asks for patience.
    RecvMra,
    /// The consumer answers.
    SendApr,
    /// The peer answers.
    RecvApr,
    /// The LAP was repeated as often as may be, in vain.
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

    /// The state after `event`; [`None`] where the event has no place.
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

    /// All pairs that lead somewhere, and a count of the rest.
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
