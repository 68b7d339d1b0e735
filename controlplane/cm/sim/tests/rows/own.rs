//! Both ends of a connection in one connection manager: its messages come back to it.

use uroce_cm::{CloseReason, Cm, CmConfig, Instant, Path, RdEnd, SidrAnswer, SidrParams};
use uroce_cm_sim::{gid, path};
use uroce_wire::cm::{CaGuid, CmTimeout, RejectReason, TransportService};
use uroce_wire::{Pkey, Qkey};

use super::*;

/// One manager, with its address as both source and destination.
struct Own {
    cm: Cm,
    now: Instant,
    /// Number of copies that arrive of each message.
    copies: u32,
}

fn own_path() -> Path {
    Path { remote: gid(0, 1), ..path(0, 1) }
}

fn terms_of(qpn: u32) -> ConnectParams {
    ConnectParams { primary: own_path(), ..conn_params(0, SERVICE, qpn) }
}

impl Own {
    fn new(copies: u32) -> Own {
        let limits = CmLimits::default();
        let cm = Cm::new(CmConfig { ca_guid: CaGuid(7), limits, seed: [3; 16] });
        let mut own = Own { cm, now: Instant::from_nanos(1_000_000_000), copies };
        own.cm.listen(SERVICE, 8).unwrap();
        own
    }

    /// Delivers all messages in flight.
    fn deliver(&mut self) {
        while let Some((to, mad)) = self.cm.poll_transmit() {
            for _ in 0..self.copies {
                let _ = self.cm.handle_mad(self.now, &to.reversed(), &mad);
            }
        }
    }

    fn events(&mut self) -> Vec<(ConnId, CmEvent)> {
        self.deliver();
        std::iter::from_fn(|| self.cm.poll_event()).collect()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.cm.next_timeout().filter(|due| *due <= end) {
            self.now = due;
            self.cm.handle_timeout(due);
            self.deliver();
        }
        self.now = end;
    }

    /// Returns the active and the passive end of a waiting request.
    fn asked(&mut self) -> [ConnId; 2] {
        let active = self.cm.connect(self.now, &terms_of(QPNS[0])).unwrap();
        let events = self.events();
        let [(passive, CmEvent::Request(request))] = &events[..] else { panic!("{events:?}") };
        assert_eq!((request.addr.src, request.addr.dst), (gid(0, 1), gid(0, 1)));
        assert_eq!(request.req.local_qpn.value(), QPNS[0]);
        [active, *passive]
    }

    fn established(&mut self) -> [ConnId; 2] {
        let [active, passive] = self.asked();
        let params = AcceptParams { local_qpn: Qpn::new(QPNS[1]), ..AcceptParams::default() };
        self.cm.accept(self.now, passive, &params).unwrap();
        let events = self.events();
        assert!(matches!(&events[..], [(id, CmEvent::Accepted(_))] if *id == active), "{events:?}");
        self.cm.ready(active, PrivateData::default()).unwrap();
        let events = self.events();
        assert!(matches!(&events[..], [(id, CmEvent::Established(_))] if *id == passive));
        let peers = [active, passive].map(|id| self.cm.remote_qpn(id).unwrap().value());
        assert_eq!(peers, [QPNS[1], QPNS[0]]);
        [active, passive]
    }

    /// Checks that nothing is left after every TimeWait, and the number of events per id.
    fn ends(&mut self, ids: &[ConnId]) {
        self.pass(Duration::from_secs(60));
        let mut released: Vec<_> = self.events();
        released.sort_by_key(|(id, _)| *id);
        let expected: Vec<_> = ids.iter().map(|id| (*id, CmEvent::Released)).collect();
        assert_eq!(released, expected);
        assert!(self.cm.is_empty());
        assert!(QPNS.iter().all(|qpn| !self.cm.holds_qpn(Qpn::new(*qpn))));
    }
}

//= check J1 test
#[test]
fn both_ends_of_a_connection_in_one_manager_part_at_the_wish_of_either() {
    for copies in [1, 2] {
        for first in [0, 1] {
            let mut own = Own::new(copies);
            let ids = own.established();
            own.cm.disconnect(own.now, ids[first], b"bye").unwrap();
            let events = own.events();
            let [(id, CmEvent::DisconnectRequested(_))] = &events[..] else { panic!("{events:?}") };
            assert_eq!(*id, ids[1 - first]);
            own.cm.disconnect(own.now, *id, b"so long").unwrap();
            let closed = own.events().into_iter().map(|(id, event)| match event {
                CmEvent::Closed(CloseReason::Disconnected(_)) => id,
                other => panic!("{other:?}"),
            });
            assert_eq!(closed.len(), 2, "each is told once");
            own.ends(&ids);
        }
    }
}

//= check J9 test
#[test]
fn wishes_to_part_that_cross_end_both() {
    let mut own = Own::new(1);
    let ids = own.established();
    for id in ids {
        own.cm.disconnect(own.now, id, b"").unwrap();
    }
    let events = own.events();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|(_, event)| matches!(event, CmEvent::Closed(_))), "{events:?}");
    own.ends(&ids);
}

//= check J5 test
#[test]
fn a_refusal_finds_the_end_that_asked() {
    let mut own = Own::new(1);
    let [active, passive] = own.asked();
    own.cm.reject(own.now, passive, RejectReason::CONSUMER, &[], PrivateData::default()).unwrap();
    let events = own.events();
    let reason = |id: ConnId| events.iter().find(|(of, _)| *of == id).map(|(_, event)| event);
    let refused = |event: &CmEvent| matches!(event, CmEvent::Closed(CloseReason::Rejected(_)));
    assert!(reason(active).is_some_and(refused), "{events:?}");
    let ours = |event: &CmEvent| matches!(event, CmEvent::Closed(CloseReason::RejectedByUs));
    assert!(reason(passive).is_some_and(ours), "{events:?}");
}

//= check J4 test
#[test]
fn a_queue_pair_that_asks_anew_makes_its_old_connection_stale_at_the_other_end() {
    let mut own = Own::new(1);
    let [active, passive] = own.established();
    // The consumer gives up one end; no event reports that at the other end.
    own.copies = 0;
    own.cm.destroy(own.now, active).unwrap();
    own.pass(Duration::from_secs(60));
    own.copies = 1;
    assert_eq!(own.cm.state(passive), Some(State::Established));
    let again = own.cm.connect(own.now, &terms_of(QPNS[0])).unwrap();
    let events = own.events();
    let [(torn, CmEvent::Closed(CloseReason::Stale)), (refused, CmEvent::Closed(reason))] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((*torn, *refused), (passive, again));
    assert!(matches!(reason, CloseReason::Rejected(rej)
        if rej.reason == RejectReason::STALE_CONNECTION));
}

//= check R40 test
//= check R41 test
#[test]
fn a_channel_of_two_ee_contexts_of_one_manager_is_used_and_ends() {
    let mut own = Own::new(2);
    let ends = [0x101, 0x202].map(|eecn| RdEnd { eecn: Qpn::new(eecn), qkey: Qkey(eecn) });
    let made = [false, true].map(|rdc_exists| {
        let params = ConnectParams {
            transport_service: TransportService::Rd,
            rd: Some(ends[0]),
            rdc_exists,
            ..terms_of(QPNS[0])
        };
        let active = own.cm.connect(own.now, &params).unwrap();
        let events = own.events();
        let [(passive, CmEvent::Request(_))] = &events[..] else { panic!("{events:?}") };
        let (local_qpn, rd) = (Qpn::new(QPNS[1]), Some(ends[1]));
        let answer = AcceptParams { local_qpn, rd, ..AcceptParams::default() };
        own.cm.accept(own.now, *passive, &answer).unwrap();
        own.events();
        own.cm.ready(active, PrivateData::default()).unwrap();
        own.events();
        let ids = [active, *passive];
        assert_eq!(ids.map(|id| own.cm.state(id)), [Some(State::Established); 2]);
        assert_eq!(ids.map(|id| own.cm.remote_rd(id)), [Some(ends[1]), Some(ends[0])]);
        ids
    });
    own.cm.disconnect(own.now, made[0][1], b"").unwrap();
    own.events();
    own.cm.disconnect(own.now, made[0][0], b"").unwrap();
    let closed = own.events();
    assert_eq!(closed.len(), 4, "{closed:?}");
    assert!(closed.iter().all(|(_, event)| matches!(event, CmEvent::Closed(_))), "{closed:?}");
    own.ends(&made.concat());
}

//= check J10 test
#[test]
fn two_peers_of_one_manager_become_one_connection() {
    for qpns in [[0x11, 0x22], [0x22, 0x11]] {
        let mut own = Own::new(1);
        let ids = qpns.map(|qpn| {
            let params = ConnectParams { peer_to_peer: true, ..terms_of(qpn) };
            own.cm.connect(own.now, &ConnectParams { service_id: ServiceId(9), ..params }).unwrap()
        });
        let third = ConnectParams { peer_to_peer: true, ..terms_of(0x33) };
        let third = ConnectParams { service_id: ServiceId(9), ..third };
        assert!(own.cm.connect(own.now, &third).is_err(), "two make a pair");
        let events = own.events();
        let [(yielding, CmEvent::Request(_))] = &events[..] else { panic!("{events:?}") };
        // The greater queue pair stays the active side.
        let (lesser, greater) = if qpns[0] < qpns[1] { (0, 1) } else { (1, 0) };
        assert_eq!(*yielding, ids[lesser]);
        let local_qpn = Qpn::new(qpns[lesser]);
        let params = AcceptParams { local_qpn, ..AcceptParams::default() };
        own.cm.accept(own.now, ids[lesser], &params).unwrap();
        assert!(matches!(own.events()[..], [(id, CmEvent::Accepted(_))] if id == ids[greater]));
        own.cm.ready(ids[greater], PrivateData::default()).unwrap();
        assert!(matches!(own.events()[..], [(id, CmEvent::Established(_))] if id == ids[lesser]));
    }
}

//= check J12 test
#[test]
fn a_question_to_oneself_is_answered() {
    let mut own = Own::new(2);
    let question = SidrParams {
        service_id: SERVICE,
        path: own_path(),
        pkey: Pkey::DEFAULT,
        timeout: CmTimeout::from_code(14),
        max_cm_retries: 3,
        private_data: PrivateData::default(),
    };
    let asker = own.cm.sidr_request(own.now, &question).unwrap();
    let events = own.events();
    let [(asked, CmEvent::SidrRequest(_))] = &events[..] else { panic!("{events:?}") };
    let answer = SidrAnswer { qpn: Qpn::new(0x33), qkey: Qkey(5), ..SidrAnswer::default() };
    own.cm.sidr_reply(own.now, *asked, &answer).unwrap();
    let events = own.events();
    let [(of, CmEvent::SidrReply(rep)), (_, CmEvent::Released)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*of, rep.qpn), (asker, answer.qpn));
}
