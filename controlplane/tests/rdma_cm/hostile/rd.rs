//! Requests of an attacker for reliable datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use uroce_controlplane::rdma_cm::{BindOptions, ConnEvent};
use uroce_transport::QpState;
use uroce_wire::cm::{RejectReason, Rtu, TransportService};

use super::*;

/// The stranger's EE context.
const EECN: u32 = 0x4711;

fn own_address() -> [u8; 4] {
    match stranger(1) {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => panic!("an IPv4 address"),
    }
}

type Change<'a> = &'a dyn Fn(&mut Req);

/// Builds a REQ of the stranger's EE context, changed by `change`.
fn rd_request(change: impl FnOnce(&mut Req)) -> Vec<u8> {
    let Ok((_, Message::Req(mut req))) = Message::parse(&request(1)) else { panic!("a REQ") };
    (req.transport_service, req.local_eecn) = (TransportService::Rd, EECN);
    change(&mut req);
    let mad = message(Message::Req(req), u64::from(req.local_comm_id.0));
    frame(stranger(1), GSI_QKEY, &mad)
}

impl Stranger {
    /// Waits for a CM message; answers ARP meanwhile.
    fn message<T>(&mut self, pick: impl Fn(&Message) -> Option<T>) -> T {
        let end = Instant::now() + SOON;
        loop {
            self.hear();
            if self.asked.remove(&own_address()) {
                self.send(&arp_reply(own_address()));
            }
            if let Some(found) = self.messages.drain(..).find_map(|message| pick(&message)) {
                return found;
            }
            assert!(Instant::now() < end, "a message in time");
            std::thread::yield_now();
        }
    }

    /// Sends a REQ changed by `change`, which is refused. Returns the reason.
    fn refusal(&mut self, comm: u32, change: impl FnOnce(&mut Req)) -> RejectReason {
        let id = CommId(comm);
        self.send(&rd_request(|req| {
            (req.local_comm_id, req.local_eecn) = (id, EECN + comm);
            change(req);
        }));
        self.message(|message| match message {
            Message::Rej(rej) if rej.remote_comm_id == id => Some(rej.reason),
            _ => None,
        })
    }
}

/// The private data of a request from another address than its sender's.
fn for_another() -> PrivateData<92> {
    let (src, dst) = (stranger(2), LEFT.parse().unwrap());
    let mut header = [0; IpHeader::LEN];
    IpHeader { src_port: 1, src, dst }.emit(&mut header);
    PrivateData::new(&header).unwrap()
}

/// Connects the stranger's EE context to one of the left node, which is returned with the
/// connection.
fn connect(left: &Node, stranger_end: &mut Stranger) -> (crate::lab::End, CmId) {
    let domain = Arc::new(left.device.engine().open_rd_domain());
    let eec = left.end_in(Some(&domain), QpType::Eec);
    stranger_end.send(&rd_request(|_| ()));
    let (id, request) = left.request();
    assert_eq!((request.qp_type, request.peer_qpn), (QpType::Eec, Qpn::new(EECN)));
    left.accept(id, &eec);
    let (remote_comm_id, eecn) = stranger_end.message(|message| match message {
        Message::Rep(rep) => Some((rep.local_comm_id, rep.local_eecn)),
        _ => None,
    });
    assert_eq!(eecn, eec.qp.qpn.value());
    let rtu = Rtu { local_comm_id: CommId(2), remote_comm_id, ..Rtu::default() };
    stranger_end.send(&frame(stranger(1), GSI_QKEY, &message(Message::Rtu(rtu), 2)));
    assert!(matches!(left.kind(id), ConnEvent::Established { .. }));
    (eec, id)
}

#[test]
//= check R45 test
//= check J5 test
fn a_request_that_no_ee_context_can_serve_is_refused_with_the_reason() {
    let (left, _right, mut stranger_end) = nodes();
    let address = |port| SocketAddr::new(LEFT.parse().unwrap(), port);
    let eecs = BindOptions { eecs: true, ..BindOptions::default() };
    left.device.cm_listen(&left.channel, PortSpace::Tcp, address(PORT), eecs, 16).unwrap();
    left.listen_at(PortSpace::Tcp, address(PORT + 1), 16).unwrap();
    let (eec, id) = connect(&left, &mut stranger_end);
    let eecn = eec.qp.qpn.value();
    let exists = |req: &mut Req| {
        (req.rdc_exists, req.local_eecn, req.remote_eecn) = (true, EECN, eecn);
    };
    let cases: [(RejectReason, Change<'_>); 18] = [
        // The channel exists, and the service serves no such request.
        (RejectReason::UNSUPPORTED, &exists),
        (RejectReason::RDC_DOES_NOT_EXIST, &|req| req.rdc_exists = true),
        (RejectReason::RDC_DOES_NOT_EXIST, &|req| {
            exists(req);
            req.remote_eecn += 1;
        }),
        (RejectReason::RDC_DOES_NOT_EXIST, &|req| {
            exists(req);
            req.local_eecn += 1;
        }),
        (RejectReason::RDC_DOES_NOT_EXIST, &|req| {
            exists(req);
            req.local_ca_guid.0 += 1;
        }),
        (RejectReason::UNSUPPORTED, &|req| req.local_eecn = 0),
        (RejectReason::UNSUPPORTED, &|req| req.local_eecn = 1),
        (RejectReason::UNSUPPORTED, &|req| req.local_eecn = 0xff_ffff),
        (RejectReason::UNSUPPORTED, &|req| req.local_qpn = Qpn::GSI),
        (RejectReason::UNSUPPORTED, &|req| req.local_qpn = Qpn::MULTICAST),
        (RejectReason::UNSUPPORTED, &|req| req.private_data = PrivateData::default()),
        (RejectReason::INVALID_TRANSPORT_TYPE, &|req| req.service_id = ServiceId::tcp(PORT + 1)),
        (RejectReason::INVALID_TRANSPORT_TYPE, &|req| req.transport_service = TransportService::Rc),
        (RejectReason::INVALID_SERVICE_ID, &|req| req.service_id = ServiceId::tcp(PORT + 2)),
        (RejectReason::INVALID_PATH_MTU, &|req| req.path_mtu_code = 0),
        (RejectReason::INVALID_PATH_MTU, &|req| req.path_mtu_code = PathMtu::B4096.code()),
        (RejectReason::INVALID_GID, &|req| req.primary.local_gid = Gid::from(stranger(2))),
        (RejectReason::INVALID_GID, &|req| req.private_data = for_another()),
    ];
    for (number, (reason, change)) in cases.iter().enumerate() {
        let refused = stranger_end.refusal(100 + number as u32, change);
        assert_eq!(refused, *reason, "case {number}");
    }
    assert_eq!(left.channel.try_next(), None);
    assert_eq!((left.state(&eec), left.count("cm_connections")), (QpState::Rts, 1));

    // Only the connected EE context itself can say that its connection is gone.
    let refused = stranger_end.refusal(200, |req| req.local_eecn = EECN);
    assert_eq!(refused, RejectReason::STALE_CONNECTION);
    assert!(matches!(left.kind(id), ConnEvent::Disconnected { .. }));
    assert_eq!(left.state(&eec), QpState::Err);
}
