//! Agreement on selective repeat: by the connection manager, by Modify QP, and by configuration.

use uroce_controlplane::AddressVector;
use uroce_controlplane::config::SelectiveRepeat::{self, Agreed, Always, Never};
use uroce_controlplane::rdma_cm::{
    Agreed as Terms, CmId, ConnEvent, ConnParam, ConnQp, ConnectRequest, ConnectSpec,
};
use uroce_transport::QpType;
use uroce_wire::{PathMtu, Psn};

use crate::lab::{End, Node, PORT, exchange, nodes, nodes_of};

/// Two nodes with a QP each.
struct Ends {
    nodes: (Node, Node),
    ends: (End, End),
}

/// The result of a connection.
struct Made {
    request: ConnectRequest,
    /// Parameters that each side was told.
    agreed: [Terms; 2],
    /// Private data that the active side got.
    answered: Vec<u8>,
}

fn ends(nodes: (Node, Node), qp_type: QpType) -> Ends {
    let ends = (nodes.0.end_of(qp_type), nodes.1.end_of(qp_type));
    Ends { nodes, ends }
}

impl Ends {
    /// Connects the QPs, with private data of these lengths.
    fn connect(&self, lens: [usize; 2]) -> Made {
        let Ends { nodes: (left, right), ends: (one, other) } = self;
        let param = |len| ConnParam { private_data: vec![7; len], ..ConnParam::default() };
        right.listen();
        let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
        let active = left.connect_with(ConnectSpec { param: param(lens[0]), ..spec });
        let (passive, request) = right.request();
        let qp = ConnQp::Driven(other.qp.qpn);
        right.device.cm_accept(passive, qp, param(lens[1])).expect("a request that waits");
        let (first, answered) = established(left, active);
        let (second, _) = established(right, passive);
        Made { request, agreed: [first, second], answered }
    }

    /// Whether each QP uses selective repeat.
    fn attrs(&self) -> [bool; 2] {
        let Ends { nodes: (left, right), ends: (one, other) } = self;
        [left.attr(one.qp.qpn), right.attr(other.qp.qpn)].map(|attr| attr.selective_repeat)
    }

    fn exchange(&mut self) {
        exchange(&mut self.ends.0, &mut self.ends.1);
    }

    /// Connects the QPs by Modify QP alone, with these attributes.
    fn connect_by_hand(&self, selective_repeat: [Option<bool>; 2]) {
        let Ends { nodes: (left, right), ends: (one, other) } = self;
        for (node, end, peer, to, given) in [
            (left, one, other, right, selective_repeat[0]),
            (right, other, one, left, selective_repeat[1]),
        ] {
            let dgid = to.device.port(1).expect("a port").gids[0];
            let terms = Terms {
                peer_qpn: peer.qp.qpn,
                peer_rd_qp: None,
                rq_psn: Psn::new(1),
                sq_psn: Psn::new(1),
                path_mtu: PathMtu::B1024,
                max_dest_rd_atomic: 4,
                max_rd_atomic: 4,
                retry_cnt: 7,
                rnr_retry: 7,
                timeout: 14,
                port: 1,
                vector: AddressVector::to(dgid),
                flow_control: true,
                peer_has_srq: false,
                selective_repeat: false,
            };
            end.init_in(node);
            node.take_to_rts(end.qp.qpn, &terms, given);
        }
    }
}

fn established(node: &Node, id: CmId) -> (Terms, Vec<u8>) {
    match node.kind(id) {
        ConnEvent::Established { agreed, private_data } => (agreed, private_data),
        other => panic!("{other:?}"),
    }
}

/// Connects QPs of two devices with this configuration, and checks whether they use selective
/// repeat.
fn check(modes: [SelectiveRepeat; 2], qp_type: QpType, lens: [usize; 2], wanted: bool) {
    let mut ends = ends(nodes_of(modes), qp_type);
    let made = ends.connect(lens);
    assert_eq!(made.agreed.map(|agreed| agreed.selective_repeat), [wanted; 2]);
    assert_eq!(ends.attrs(), [wanted; 2]);
    let padded = |len, max| [vec![7; len], vec![0; max - len]].concat();
    assert_eq!(made.request.private_data, padded(lens[0], 56), "as with any peer");
    assert_eq!(made.answered, padded(lens[1], 196), "as with any peer");
    ends.exchange();
}

#[test] //= check A28 test
fn two_ends_agree_without_any_configuration() {
    check([SelectiveRepeat::default(); 2], QpType::Rc, [48, 188], true);
}

#[test] //= check A28 test
fn an_end_that_never_uses_it_does_not_offer_it() {
    check([Never, Agreed], QpType::Rc, [3, 3], false);
}

#[test] //= check A28 test
fn an_end_that_never_uses_it_does_not_accept_it() {
    check([Always, Never], QpType::Rc, [3, 3], false);
}

#[test] //= check A28 test
fn uc_has_no_selective_repeat() {
    check([Always, Always], QpType::Uc, [3, 3], false);
}

#[test] //= check A28 test
fn private_data_of_a_request_that_is_too_long_leaves_it_off() {
    check([Agreed, Agreed], QpType::Rc, [49, 3], false);
}

#[test] //= check A28 test
fn private_data_of_an_answer_that_is_too_long_leaves_it_off() {
    check([Agreed, Agreed], QpType::Rc, [56, 196], false);
}

#[test] //= check A28 test
fn an_answer_with_one_byte_too_many_leaves_it_off() {
    check([Agreed, Agreed], QpType::Rc, [48, 189], false);
}

/// A QP that the application modifies.
fn foreign(end: &End, psn: u32) -> ConnQp {
    let (qpn, psn) = (end.qp.qpn, Psn::new(psn));
    ConnQp::Foreign { qpn, qp_type: QpType::Rc, psn, has_srq: false, stops_with_peer: false }
}

/// Connects two QPs that their applications modify. The passive side takes its QP to RTS with the
/// given attribute before it accepts.
fn join_foreign(before: Option<bool>) -> [bool; 2] {
    let mut ends = ends(nodes(), QpType::Rc);
    let Ends { nodes: (left, right), ends: (one, other) } = &ends;
    right.listen();
    one.init_in(left);
    other.init_in(right);
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let active = left.connect_with(ConnectSpec { qp: Some(foreign(one, 77)), ..spec });
    let (passive, request) = right.request();
    let agreed = request.agreed.expect("of a connection");
    assert!(agreed.selective_repeat, "the peer offers it");
    right.take_to_rts(other.qp.qpn, &agreed, before);
    right.device.cm_accept(passive, foreign(other, 0), ConnParam::default()).unwrap();
    let ConnEvent::ConnectResponse { agreed, .. } = left.kind(active) else { panic!() };
    assert_eq!(agreed.selective_repeat, before == Some(true), "the answer follows the QP");
    left.take_to_rts(one.qp.qpn, &agreed, None);
    left.device.cm_establish(active).unwrap();
    let (agreed, _) = established(right, passive);
    assert_eq!(agreed.selective_repeat, before == Some(true));
    let attrs = ends.attrs();
    ends.exchange();
    attrs
}

#[test] //= check A28 test
fn an_application_that_modifies_its_qp_before_it_accepts_gives_the_attribute() {
    assert_eq!(join_foreign(Some(true)), [true; 2]);
}

#[test] //= check A28 test
fn without_the_attribute_a_qp_that_is_in_rts_already_leaves_it_off() {
    assert_eq!(join_foreign(None), [false; 2]);
}

#[test] //= check A28 test
fn a_qp_that_its_application_modifies_after_accepting_gets_the_attribute() {
    let mut ends = ends(nodes(), QpType::Rc);
    let Ends { nodes: (left, right), ends: (one, other) } = &ends;
    right.listen();
    other.init_in(right);
    let active = left.connect(one, right);
    let (passive, request) = right.request();
    right.device.cm_accept(passive, foreign(other, 0), ConnParam::default()).unwrap();
    let (agreed, _) = established(left, active);
    assert!(agreed.selective_repeat);
    right.take_to_rts(other.qp.qpn, &request.agreed.expect("of a connection"), None);
    established(right, passive);
    assert_eq!(ends.attrs(), [true; 2]);
    ends.exchange();
}

#[test] //= check A28 test
fn a_qp_that_does_not_exist_offers_nothing() {
    let Ends { nodes: (left, right), ends: (one, other) } = ends(nodes(), QpType::Rc);
    right.listen();
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let qp = foreign(&one, 1);
    left.device.destroy_qp(one.qp.qpn).unwrap();
    left.connect_with(ConnectSpec { qp: Some(qp), ..spec });
    let (_, request) = right.request();
    assert!(!request.agreed.expect("of a connection").selective_repeat);
    drop(other);
}

/// Connects QPs by Modify QP. Returns whether each uses selective repeat.
fn by_hand(modes: [SelectiveRepeat; 2], given: [Option<bool>; 2]) -> [bool; 2] {
    let mut ends = ends(nodes_of(modes), QpType::Rc);
    ends.connect_by_hand(given);
    let attrs = ends.attrs();
    ends.exchange();
    attrs
}

#[test] //= check A28 test
fn a_qp_connected_by_hand_uses_it_only_with_its_attribute() {
    assert_eq!(by_hand([Agreed, Never], [Some(true), Some(true)]), [true; 2]);
}

#[test] //= check A28 test
fn a_qp_connected_by_hand_does_not_use_it_otherwise() {
    assert_eq!(by_hand([Agreed, Never], [None, None]), [false; 2]);
}

#[test] //= check A28 test
fn with_always_a_qp_connected_by_hand_uses_it_unless_its_attribute_says_no() {
    assert_eq!(by_hand([Always, Always], [None, Some(false)]), [true, false]);
}
