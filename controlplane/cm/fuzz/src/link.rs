//! Z6: two connection managers; the input controls their link and their consumers.

use crate::calls::{Ends, SERVICE, call, limits};
use std::time::Duration;
use uroce_cm::{ConnectParams, RdEnd, SidrParams};
use uroce_cm_sim::{Fate, Pair, conn_params, path};
use uroce_fuzz::Input;
use uroce_wire::cm::{CmTimeout, PrivateData, ServiceId, TransportService};
use uroce_wire::{Pkey, Qkey, Qpn};

/// Number of fates chosen in advance, which are used in rotation.
const FATES: usize = 16;

fn fate(byte: u8) -> Fate {
    match byte & 7 {
        0 | 1 => Fate::Lose,
        2 => Fate::Double,
        3 => Fate::Delay(Duration::from_micros(u64::from(byte) << 8)),
        _ => Fate::Deliver,
    }
}

pub(crate) fn run(input: &mut Input<'_>) {
    let mut pair = Pair::new(input.u64(), limits());
    let fates: [u8; FATES] = input.array();
    let mut sent = 0;
    pair.script = Some(Box::new(move |_| {
        sent += 1;
        fate(fates[sent % FATES])
    }));
    let mut ends = [Ends::default(), Ends::default()];
    for node in &mut pair.nodes {
        node.listen(SERVICE, 3).expect("a new one");
    }
    while !input.is_empty() {
        let node = input.below(2);
        let now = pair.now;
        match input.below(8) {
            0 => begin(&mut pair, node, &mut ends[node], input),
            1..=4 => call(&mut pair.nodes[node], node, now, &mut ends[node], input),
            5 => pair.run_for(Duration::from_micros(120)),
            _ => pair.run_for(Duration::from_micros(u64::from(input.u16()))),
        }
        listen(&mut pair, &mut ends, input);
    }
    end(&mut pair, &mut ends, input);
}

/// Begins a connection, peer to peer or not, or a service ID resolution.
pub(crate) fn begin(pair: &mut Pair, node: usize, ends: &mut Ends, input: &mut Input<'_>) {
    let (shape, number) = (input.u8(), input.u8());
    let qpn = u32::from(number & 15);
    let (now, cm) = (pair.now, &mut pair.nodes[node]);
    let begun = if shape & 7 == 7 {
        cm.sidr_request(
            now,
            &SidrParams {
                service_id: SERVICE,
                path: path(node, 1),
                pkey: Pkey::DEFAULT,
                timeout: CmTimeout::from_code(10),
                max_cm_retries: shape >> 5,
                private_data: PrivateData::default(),
            },
        )
    } else {
        let peer_to_peer = shape & 7 == 6;
        let service_id = if peer_to_peer { ServiceId(5) } else { SERVICE };
        let mut params = ConnectParams {
            peer_to_peer,
            max_cm_retries: shape >> 5,
            selective_repeat: qpn & 1 != 0,
            remote_cm_response_timeout: CmTimeout::from_code(10),
            local_cm_response_timeout: CmTimeout::from_code(10),
            alternate: (shape & 8 != 0).then(|| path(node, 2)),
            ..conn_params(node, service_id, qpn)
        };
        params.primary.local_ack_timeout = CmTimeout::from_code(9);
        // An EE context, or an RD queue pair for the channel of one.
        if matches!(number >> 6, 1 | 2) {
            params.transport_service = TransportService::Rd;
            params.rd = Some(RdEnd { eecn: Qpn::new(qpn), qkey: Qkey(qpn) });
            params.local_qpn = Qpn::new(u32::from(number >> 4 & 3));
            params.rdc_exists = number >> 6 == 2;
        }
        let holds = cm.holds_qpn(Qpn::new(qpn));
        let connected = cm.connect(now, &params);
        assert!(
            connected.is_err() || holds == params.rdc_exists,
            "an end in two connections, or a channel that does not exist"
        );
        connected
    };
    if let Ok(id) = begun {
        ends.alive.insert(id, false);
    }
}

fn listen(pair: &mut Pair, ends: &mut [Ends; 2], input: &mut Input<'_>) {
    for (cm, ends) in pair.nodes.iter_mut().zip(ends) {
        ends.listen(cm, input);
        assert!(ends.alive.len() <= cm.len(), "an id without a connection");
    }
}

/// Destroys everything over a link without faults, and checks that nothing is left.
fn end(pair: &mut Pair, ends: &mut [Ends; 2], input: &mut Input<'_>) {
    pair.script = None;
    give_up(pair, ends);
    for _ in 0..64 {
        pair.run_for(Duration::from_millis(50));
        // Late copies of requests make new connections.
        listen(pair, ends, input);
        give_up(pair, ends);
    }
    for cm in &pair.nodes {
        assert!(cm.is_empty(), "{} connections are left", cm.len());
        assert_eq!(cm.next_timeout(), None);
    }
    input.reach(9, pair.delivered.min(64) as u32);
}

fn give_up(pair: &mut Pair, ends: &mut [Ends; 2]) {
    for (cm, ends) in pair.nodes.iter_mut().zip(ends) {
        for id in ends.alive.keys().copied().collect::<Vec<_>>() {
            cm.destroy(pair.now, id).expect("alive");
            ends.forget(id);
        }
    }
}
