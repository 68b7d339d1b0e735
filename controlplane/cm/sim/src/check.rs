//! Checks of every id, from its events alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uroce_wire::Qpn;
use uroce_wire::cm::{PrivateData, Req};

use uroce_cm::{Cm, CmEvent, ConnId, Instant};

/// Longest TimeWait of a world.
pub(crate) const TIME_WAIT_MAX: Duration = Duration::from_millis(200);

/// Progress of a connection, as its consumer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Our REQ is sent.
    Asked,
    /// The peer's REQ was reported.
    Offered,
    /// Our REP is sent.
    Accepted,
    /// The peer's REP was reported.
    Answered,
    /// Established.
    Up,
    /// Either side has asked to disconnect.
    Leaving,
    /// Closed was reported.
    Closed,
    /// Our SIDR_REQ is sent.
    Question,
    /// The peer's SIDR_REQ was reported.
    Questioned,
    /// The SIDR_REQ has its answer.
    Replied,
}

/// What a connection connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Two queue pairs.
    QueuePairs,
    /// Two EE contexts.
    Channel,
    /// Nothing: RD queue pairs are exchanged for the channel of this EE context.
    Use(Qpn),
}

/// State of a connection, as its consumer sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) phase: Phase,
    pub(crate) what: What,
    /// Queue pair or EE context.
    pub(crate) qpn: Option<Qpn>,
    /// Number that the active side gave the connection, in its private data.
    pub(crate) tag: u64,
    pub(crate) peer_to_peer: bool,
    pub(crate) time_wait: Duration,
    pub(crate) lap_out: bool,
}

/// State of one node's consumer.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) models: BTreeMap<ConnId, Model>,
    /// Queue pairs and EE contexts that must not be used before the given time.
    resting: BTreeMap<Qpn, Instant>,
    gone: BTreeSet<ConnId>,
}

/// Numbers of events, of rejected connections too.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) established: u64,
    pub(crate) channels: u64,
    pub(crate) uses: u64,
    pub(crate) closed: u64,
    pub(crate) released: u64,
}

impl Ledger {
    /// Checks that a queue pair, or EE context, put into a connection is in no other and in no
    /// TimeWait.
    pub(crate) fn check_use(&self, now: Instant, qpn: Qpn, by: ConnId) {
        let until = self.resting.get(&qpn).copied().unwrap_or_default();
        assert!(now >= until, "{qpn} of {by:?} should rest until {until:?}, now {now:?}");
        let other = |(id, model): (&ConnId, &Model)| {
            *id != by && model.qpn == Some(qpn) && !matches!(model.what, What::Use(_))
        };
        assert!(!self.models.iter().any(other), "{qpn} is in two connections");
    }

    /// Removes an id that the consumer destroyed.
    pub(crate) fn forget(&mut self, now: Instant, id: ConnId) {
        if let Some(model) = self.models.remove(&id) {
            self.gone.insert(id);
            self.rest(now, &model);
        }
    }

    fn rest(&mut self, now: Instant, model: &Model) {
        let has_talked =
            matches!(model.phase, Phase::Accepted | Phase::Answered | Phase::Up | Phase::Leaving);
        let is_held = has_talked && !matches!(model.what, What::Use(_));
        if let (true, Some(qpn)) = (is_held, model.qpn) {
            self.resting.insert(qpn, now + model.time_wait);
        }
    }

    /// Checks that an event is allowed in its connection's phase, and enters the next phase.
    pub(crate) fn event(&mut self, now: Instant, id: ConnId, event: &CmEvent, told: &mut Told) {
        assert!(!self.gone.contains(&id), "{event:?} of {id:?}, which was over");
        match event {
            CmEvent::Request(request) => return self.offered(id, &request.req),
            CmEvent::SidrRequest(request) => {
                let model = Model::new(Phase::Questioned, tag_of(&request.req.private_data.0));
                assert!(self.models.insert(id, model).is_none(), "{id:?} twice");
                return;
            }
            _ => {}
        }
        let model = *self.models.get(&id).unwrap_or_else(|| panic!("{event:?} of unknown {id:?}"));
        let phase = model.phase;
        let legal = |phases: &[Phase]| {
            assert!(phases.contains(&phase), "{event:?} of {id:?} in {phase:?}");
        };
        use Phase::*;
        let next = match event {
            CmEvent::Request(_) | CmEvent::SidrRequest(_) => phase,
            CmEvent::Patience(_) => {
                legal(&[Asked, Accepted, Up]);
                phase
            }
            CmEvent::Accepted(_) => {
                legal(&[Asked]);
                Answered
            }
            CmEvent::Established(_) => {
                legal(&[Accepted]);
                told.established += 1;
                told.channels += u64::from(model.what == What::Channel);
                told.uses += u64::from(matches!(model.what, What::Use(_)));
                Up
            }
            CmEvent::DisconnectRequested(_) => {
                legal(&[Accepted, Answered, Up]);
                Leaving
            }
            CmEvent::LoadAlternate(_) => {
                legal(&[Up]);
                phase
            }
            CmEvent::AlternateAnswered(_) | CmEvent::AlternateTimedOut => {
                legal(&[Up]);
                assert!(model.lap_out, "an answer to no question");
                phase
            }
            CmEvent::SidrReply(_) => {
                legal(&[Question]);
                Replied
            }
            CmEvent::Closed(_) => {
                legal(&[Asked, Offered, Accepted, Answered, Up, Leaving, Question]);
                told.closed += 1;
                self.rest(now, &model);
                Closed
            }
            CmEvent::Released => {
                legal(&[Closed, Replied]);
                told.released += 1;
                self.models.remove(&id);
                self.gone.insert(id);
                return;
            }
        };
        let model = self.models.get_mut(&id).expect("found above");
        model.phase = next;
        model.lap_out &=
            !matches!(event, CmEvent::AlternateAnswered(_) | CmEvent::AlternateTimedOut);
    }

    /// Returns the connection that is the channel of EE context `eecn`.
    pub(crate) fn channel(&self, eecn: Qpn) -> Option<(ConnId, Model)> {
        let mut all = self.models.iter().map(|(id, model)| (*id, *model));
        all.find(|(_, model)| model.what == What::Channel && model.qpn == Some(eecn))
    }

    /// Checks that nothing outlives the channel that it uses.
    pub(crate) fn check_channels(&self, cm: &Cm) {
        for (id, model) in &self.models {
            let What::Use(eecn) = model.what else { continue };
            if model.phase != Phase::Closed {
                assert!(cm.holds_qpn(eecn), "{id:?} has outlived the channel of {eecn}");
                let channel = self.channel(eecn).map(|(_, channel)| channel.phase);
                assert_ne!(channel, Some(Phase::Closed), "{id:?} has outlived {eecn}");
            }
        }
    }

    fn offered(&mut self, id: ConnId, req: &Req) {
        let ours = self.models.get(&id);
        let is_crossing = ours.is_some_and(|ours| ours.peer_to_peer && ours.phase == Phase::Asked);
        assert!(ours.is_none() || is_crossing, "{id:?} twice");
        let mut model = Model::new(Phase::Offered, tag_of(&req.private_data.0));
        model.what = match (req.is_rd(), req.rdc_exists) {
            (false, _) => What::QueuePairs,
            (true, false) => What::Channel,
            (true, true) => What::Use(Qpn::new(req.remote_eecn)),
        };
        model.qpn = ours.and_then(|ours| ours.qpn);
        model.time_wait = time_wait(req);
        self.models.insert(id, model);
    }
}

impl Model {
    pub(crate) fn new(phase: Phase, tag: u64) -> Model {
        let time_wait = Duration::ZERO;
        let what = What::QueuePairs;
        Model { phase, what, qpn: None, tag, peer_to_peer: false, time_wait, lap_out: false }
    }
}

/// Returns how long packets of a connection can be in flight, by the ACK timeouts of its paths.
fn time_wait(req: &Req) -> Duration {
    let alternate = Some(req.alternate).filter(|path| path.is_present());
    let codes = [Some(req.primary), alternate].into_iter().flatten();
    let longest = codes.map(|path| path.local_ack_timeout.duration()).max();
    longest.unwrap_or_default().min(TIME_WAIT_MAX)
}

/// Private data of the messages of connection `tag`. That of every other four connections fills its
/// field and leaves no room for an offer.
pub(crate) fn private<const MAX: usize>(tag: u64) -> PrivateData<MAX> {
    let mut data = [0; MAX];
    data[..8].copy_from_slice(&tag.to_be_bytes());
    data[MAX - 1] = if tag & 4 == 0 { 0 } else { 0xee };
    PrivateData(data)
}

/// Tells whether the active side of connection `tag` wants selective repeat.
pub(crate) fn wants_offer(tag: u64) -> bool {
    tag & 1 != 0
}

/// Tells whether the passive side of connection `tag` wants selective repeat.
pub(crate) fn wants_answer(tag: u64) -> bool {
    tag & 2 != 0
}

/// Tells whether the REQ of connection `tag` offers selective repeat.
pub(crate) fn offers(tag: u64) -> bool {
    wants_offer(tag) && tag & 4 == 0
}

/// Returns the connection's number from its private data.
pub(crate) fn tag_of(data: &[u8]) -> u64 {
    data.first_chunk().map_or(0, |tag| u64::from_be_bytes(*tag))
}
