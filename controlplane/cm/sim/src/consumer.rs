//! Consumers that act at random: mostly with calls the state allows, sometimes with others.

use std::time::Duration;

use uroce_wire::cm::{
    AprStatus, CmTimeout, Message, PrivateData, RejectReason, ServiceId, SidrStatus,
    TransportService,
};
use uroce_wire::{Pkey, Psn, Qkey, Qpn};

use crate::check::{Model, Phase, What, private, wants_answer, wants_offer};
use crate::pair::{conn_params, gid, path};
use crate::world::{World, service};
use uroce_cm::{
    AcceptParams, CmError, CmEvent, ConnId, ConnectParams, MadAddr, RdEnd, SidrAnswer, SidrParams,
    State,
};

/// QPNs of a node. The range is small, so that numbers are used again.
const QPNS: std::ops::Range<u32> = 2..80;

impl World {
    /// Starts a random action of one consumer.
    pub(crate) fn spawn(&mut self) {
        let node = self.rng.usize(..2);
        match self.rng.u8(..100) {
            0..70 => {
                let service = match self.rng.u8(..20) {
                    0 => ServiceId::tcp(1),
                    _ => service(1 - node),
                };
                let what = self.any_kind(node);
                self.connect(node, service, what, false);
            }
            70..80 => {
                // Both sides send their REQ at about the same time.
                let service = ServiceId(0x7700 + self.rng.u64(..4));
                let what = if self.rng.bool() { What::Channel } else { What::QueuePairs };
                self.connect(node, service, what, true);
                self.connect(1 - node, service, what, true);
            }
            80..95 => self.ask(node),
            95..98 if self.is_hostile => self.forge(),
            _ => {
                if self.rng.u8(..20) == 0 {
                    self.kill(node);
                }
            }
        }
        self.listen_to_events();
    }

    fn some_time(&mut self) -> Duration {
        let longest = 1 << self.rng.u32(8..20);
        Duration::from_micros(self.rng.u64(..longest))
    }

    fn look_again(&mut self, node: usize, id: ConnId) {
        let at = self.pair.now + if self.is_ending { Duration::ZERO } else { self.some_time() };
        self.decisions.insert((at, node, id));
    }

    fn code(&mut self, codes: std::ops::Range<u8>) -> CmTimeout {
        CmTimeout::from_code(self.rng.u8(codes))
    }

    fn tag(&mut self) -> [u8; 8] {
        self.tags += 1;
        self.tags.to_be_bytes()
    }

    /// Chooses what to connect. Only a side with a channel can ask for RD queue pairs by it.
    fn any_kind(&mut self, node: usize) -> What {
        let models = self.ledgers[node].models.values();
        let channels = models.filter(|m| m.what == What::Channel && m.phase == Phase::Up);
        let eecns: Vec<_> = channels.filter_map(|model| model.qpn).collect();
        match (self.rng.u8(..4), self.rng.choice(&eecns)) {
            (0, _) => What::Channel,
            (1 | 2, Some(&eecn)) => What::Use(eecn),
            _ => What::QueuePairs,
        }
    }

    fn connect(&mut self, node: usize, service_id: ServiceId, what: What, peer_to_peer: bool) {
        let (qpn, tag) = (self.rng.u32(QPNS), self.tag());
        let mut params = ConnectParams {
            peer_to_peer,
            remote_cm_response_timeout: self.code(8..16),
            local_cm_response_timeout: self.code(8..16),
            max_cm_retries: self.rng.u8(..8),
            selective_repeat: wants_offer(u64::from_be_bytes(tag)),
            private_data: private(u64::from_be_bytes(tag)),
            ..conn_params(node, service_id, qpn)
        };
        params.primary.local_ack_timeout = self.code(4..14);
        if let Some((local_qpn, rd)) = self.rd_parts(what, params.local_qpn) {
            params.transport_service = TransportService::Rd;
            (params.local_qpn, params.rd) = (local_qpn, Some(rd));
            params.rdc_exists = matches!(what, What::Use(_));
        }
        if self.rng.bool() && !params.rdc_exists {
            let local_ack_timeout = self.code(4..14);
            params.alternate = Some(uroce_cm::Path { local_ack_timeout, ..path(node, 2) });
        }
        let now = self.pair.now;
        match self.pair.nodes[node].connect(now, &params) {
            Ok(id) => {
                let mut model = Model::new(Phase::Asked, u64::from_be_bytes(tag));
                (model.what, model.qpn) = (what, Some(Qpn::new(qpn)));
                model.peer_to_peer = peer_to_peer;
                let alternate = params.alternate.map(|path| path.local_ack_timeout);
                let codes = [Some(params.primary.local_ack_timeout), alternate];
                let longest = codes.into_iter().flatten().max().unwrap_or_default();
                model.time_wait = longest.duration();
                if !params.rdc_exists {
                    self.ledgers[node].check_use(now, Qpn::new(qpn), id);
                }
                self.ledgers[node].models.insert(id, model);
                if self.rng.u8(..8) == 0 {
                    self.look_again(node, id); // So that it is given up sometimes.
                }
            }
            Err(CmError::QpnInUse(_) | CmError::Full | CmError::ServiceInUse(_)) => {}
            Err(CmError::NoRdc(eecn)) => self.check_no_channel(node, eecn),
            Err(error) => panic!("connect: {error}"),
        }
    }

    /// Returns the queue pair and the EE context of a REQ or REP for reliable datagrams. `number`
    /// is that of the EE context or, if the channel exists, of the queue pair.
    fn rd_parts(&mut self, what: What, number: Qpn) -> Option<(Qpn, RdEnd)> {
        // Queue pair 0 stands for none.
        let other = Qpn::new(*self.rng.choice(&[0, 2, 3]).expect("three"));
        let qkey = Qkey(number.value());
        match what {
            What::QueuePairs => None,
            What::Channel => Some((other, RdEnd { eecn: number, qkey })),
            What::Use(eecn) => Some((number, RdEnd { eecn, qkey })),
        }
    }

    /// Checks that an EE context that cannot be used has no channel, or not any more.
    fn check_no_channel(&self, node: usize, eecn: Qpn) {
        let channel = self.ledgers[node].channel(eecn);
        let state = channel.and_then(|(id, _)| self.pair.nodes[node].state(id));
        assert_ne!(state, Some(State::Established), "{eecn} could be used");
    }

    fn ask(&mut self, node: usize) {
        let tag = self.tag();
        let params = SidrParams {
            service_id: if self.rng.u8(..8) == 0 { ServiceId::udp(1) } else { service(1 - node) },
            path: path(node, 1),
            pkey: Pkey::DEFAULT,
            timeout: self.code(8..16),
            max_cm_retries: self.rng.u8(..8),
            private_data: PrivateData::new(&tag).expect("short"),
        };
        if let Ok(id) = self.pair.nodes[node].sidr_request(self.pair.now, &params) {
            let model = Model::new(Phase::Question, u64::from_be_bytes(tag));
            self.ledgers[node].models.insert(id, model);
            if self.rng.u8(..8) == 0 {
                self.look_again(node, id);
            }
        }
    }

    /// Sends a random message from an address of the other node.
    fn forge(&mut self) {
        let node = self.rng.usize(..2);
        let (src, dst) = (gid(1 - node, self.rng.u8(1..3)), gid(node, self.rng.u8(1..3)));
        let mut body = [0; uroce_wire::cm::BODY_LEN];
        self.rng.fill(&mut body);
        let req = uroce_wire::cm::Req::parse(&body);
        let message = match self.rng.u8(..5) {
            0 => Message::Req(uroce_wire::cm::Req { service_id: service(node), ..req }),
            1 => Message::Rej(uroce_wire::cm::Rej::parse(&body)),
            2 => Message::Dreq(uroce_wire::cm::Dreq::parse(&body)),
            3 => Message::Lap(uroce_wire::cm::Lap::parse(&body)),
            _ => Message::Rep(uroce_wire::cm::Rep::parse(&body)),
        };
        let addr = MadAddr { port: 1, src, dst, ..MadAddr::default() };
        self.pair.forge(addr, &message.emit(self.rng.u64(..)));
    }

    /// Schedules the consumer's next decision about a connection after an event.
    pub(crate) fn react(&mut self, node: usize, id: ConnId, event: &CmEvent) {
        if !matches!(event, CmEvent::Released) {
            self.look_again(node, id);
        }
    }

    /// Makes the consumer look at a connection and act on its state.
    pub(crate) fn decide(&mut self, node: usize, id: ConnId) {
        let Some(model) = self.ledgers[node].models.get(&id).copied() else { return };
        let Some(state) = self.pair.nodes[node].state(id) else { return };
        if self.rng.u8(..if self.is_ending { 3 } else { 40 }) == 0 {
            return self.destroy(node, id);
        }
        if self.rng.u8(..16) == 0 {
            self.try_anything(node, id);
        }
        match state {
            State::ReqRcvd | State::MraReqSent => self.answer_request(node, id, model),
            State::RepRcvd | State::MraRepSent => self.answer_reply(node, id, model),
            State::RepSent | State::MraRepRcvd => self.data_came(node, id, model),
            State::Established => self.use_connection(node, id),
            State::DreqRcvd => self.disconnect(node, id),
            State::SidrReqRcvd => self.answer_question(node, id),
            State::ReqSent | State::MraReqRcvd | State::SidrReqSent if self.rng.u8(..3) == 0 => {
                self.destroy(node, id);
            }
            _ => {}
        }
        let is_waiting = matches!(state, State::TimeWait | State::DreqSent);
        if self.ledgers[node].models.contains_key(&id) && !is_waiting {
            let later = self.pair.now + self.some_time().max(Duration::from_micros(1));
            self.decisions.insert((later, node, id));
        }
    }

    fn destroy(&mut self, node: usize, id: ConnId) {
        let now = self.pair.now;
        self.pair.nodes[node].destroy(now, id).expect("a known id");
        self.ledgers[node].forget(now, id);
        assert_eq!(self.pair.nodes[node].destroy(now, id), Err(CmError::UnknownId));
    }

    fn answer_request(&mut self, node: usize, id: ConnId, model: Model) {
        let (now, dice) = (self.pair.now, self.rng.u8(..10));
        let own = model.qpn; // Set in peer-to-peer mode.
        let qpn = own.unwrap_or_else(|| Qpn::new(self.rng.u32(QPNS)));
        let timeout = self.code(8..20);
        let rd = self.rd_parts(model.what, qpn);
        let cm = &mut self.pair.nodes[node];
        match dice {
            0 => cm
                .reject(now, id, RejectReason::CONSUMER, b"no", PrivateData::default())
                .expect("a request"),
            1 => cm.mra(id, timeout, PrivateData::default()).expect("a request"),
            _ => {
                let params = AcceptParams {
                    local_qpn: rd.map_or(qpn, |(qpn, _)| qpn),
                    rd: rd.map(|(_, end)| end),
                    starting_psn: Psn::new(qpn.value()),
                    alternate_port: 2,
                    selective_repeat: wants_answer(model.tag),
                    private_data: private(model.tag),
                    ..AcceptParams::default()
                };
                match cm.accept(now, id, &params) {
                    Ok(()) => {
                        if !matches!(model.what, What::Use(_)) {
                            self.ledgers[node].check_use(now, qpn, id);
                        }
                        let model = self.ledgers[node].models.get_mut(&id).expect("known");
                        (model.qpn, model.phase) = (Some(qpn), Phase::Accepted);
                        self.accepted.entry(model.tag).or_default().insert(qpn);
                    }
                    Err(CmError::QpnInUse(_)) => {}
                    Err(CmError::NoRdc(eecn)) => self.check_no_channel(node, eecn),
                    Err(error) => panic!("accept: {error}"),
                }
            }
        }
    }

    fn answer_reply(&mut self, node: usize, id: ConnId, model: Model) {
        let (now, dice, timeout) = (self.pair.now, self.rng.u8(..10), self.code(8..20));
        let cm = &mut self.pair.nodes[node];
        match dice {
            0 => cm
                .reject(now, id, RejectReason::CONSUMER, &[], PrivateData::default())
                .expect("a reply"),
            1 => cm.mra(id, timeout, PrivateData::default()).expect("a reply"),
            _ => {
                let tag = PrivateData::new(&model.tag.to_be_bytes()).expect("short");
                let peer = match model.what {
                    What::Channel => cm.remote_rd(id).map(|end| end.eecn),
                    What::QueuePairs | What::Use(_) => cm.remote_qpn(id),
                };
                let peer = peer.expect("named by the REP");
                cm.ready(id, tag).expect("a reply");
                self.ledgers[node].models.get_mut(&id).expect("known").phase = Phase::Up;
                self.ready.insert(model.tag, peer);
            }
        }
    }

    /// Reports data to the passive side, which is possible once the active side is ready.
    fn data_came(&mut self, node: usize, id: ConnId, model: Model) {
        let is_ready = self.ready.get(&model.tag).copied();
        if is_ready.is_some() && is_ready == model.qpn && self.rng.bool() {
            self.pair.nodes[node].communication_established(id).expect("waiting for it");
        }
    }

    fn use_connection(&mut self, node: usize, id: ConnId) {
        let now = self.pair.now;
        if self.is_ending || self.rng.u8(..4) == 0 {
            return self.disconnect(node, id);
        }
        let (port, timeout) = (self.rng.u8(1..3), self.code(8..16));
        let status = *self.rng.choice(&[AprStatus::LOADED, AprStatus::REJECTED]).expect("two");
        let dice = self.rng.u8(..4);
        let cm = &mut self.pair.nodes[node];
        match dice {
            0 => {
                let loading = cm.load_alternate(now, id, path(node, port), PrivateData::default());
                if loading.is_ok() {
                    self.ledgers[node].models.get_mut(&id).expect("known").lap_out = true;
                } else if !matches!(loading, Err(CmError::LapPending)) {
                    let what = self.ledgers[node].models[&id].what;
                    assert!(matches!(what, What::Use(_)), "{loading:?}");
                }
            }
            1 => {
                let _ = cm.path_migrated(id);
            }
            2 => {
                let _ = cm.mra(id, timeout, PrivateData::default());
            }
            _ => {
                let _ = cm.answer_alternate(id, status, port, PrivateData::default());
            }
        }
    }

    fn disconnect(&mut self, node: usize, id: ConnId) {
        let now = self.pair.now;
        self.pair.nodes[node].disconnect(now, id, b"bye").expect("connected");
        let model = self.ledgers[node].models.get_mut(&id).expect("known");
        model.phase = Phase::Leaving;
    }

    fn answer_question(&mut self, node: usize, id: ConnId) {
        let status = SidrStatus(self.rng.u8(..6));
        let answer = SidrAnswer { status, qpn: Qpn::new(77), ..SidrAnswer::default() };
        let now = self.pair.now;
        self.pair.nodes[node].sidr_reply(now, id, &answer).expect("a question");
        self.ledgers[node].models.get_mut(&id).expect("known").phase = Phase::Replied;
    }

    /// Makes calls that the state does not allow, and checks that they change nothing.
    fn try_anything(&mut self, node: usize, id: ConnId) {
        let (now, cm) = (self.pair.now, &mut self.pair.nodes[node]);
        let state = cm.state(id);
        let result = match state {
            Some(State::Established | State::DreqRcvd) => {
                cm.ready(id, PrivateData::default()).and_then(|()| {
                    cm.reject(now, id, RejectReason::NO_QP, &[], PrivateData::default())
                })
            }
            _ => cm
                .disconnect(now, id, &[])
                .and_then(|()| cm.load_alternate(now, id, path(node, 2), PrivateData::default())),
        };
        assert!(result.is_err(), "in {state:?}");
        assert_eq!(cm.state(id), state);
    }
}
