//! Migration of a connection without acknowledgements: requested by its owner or its peer.

use uroce_sim::{Pair, Rails};
use uroce_transport::{AsyncEvent, QpType, Side};

use super::{A, B, assert_flawless, migrations};

#[test] //= check I4 test
fn an_unreliable_connection_follows_its_peer_and_loses_nothing_by_it() {
    for rails in [Rails::TwoPorts, Rails::OnePort] {
        for first in [A, B] {
            let mut pair = Pair::armed(|terms| (terms.qp_type, terms.rails) = (QpType::Uc, rails));
            let posted = |pair: &mut Pair| {
                for from in [A, B] {
                    (0..3).for_each(|_| {
                        pair.recv(1 - from, 900);
                        pair.send(from, 900);
                    });
                }
                pair.run();
            };
            posted(&mut pair);
            pair.migrate(first).expect("an armed QP");
            posted(&mut pair);
            pair.cut(0);
            posted(&mut pair);
            for end in [A, B] {
                let what = format!("{rails:?}, {first} first, at end {end}");
                assert_eq!(pair.take(end, Side::Recv).len(), 9, "{what}");
                assert_eq!(migrations(&mut pair, end), [AsyncEvent::PathMig], "{what}");
                assert_eq!(pair.rail(end), 1, "{what}");
            }
            assert_flawless(&mut pair);
        }
    }
}

#[test] //= check I5 test
fn where_nothing_is_acknowledged_no_retries_run_out() {
    let mut pair = Pair::armed(|terms| terms.qp_type = QpType::Uc);
    pair.cut(0);
    pair.write(A, 5000);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 1);
    assert_eq!(([A, B].map(|end| pair.rail(end))), [0, 0]);
    assert_flawless(&mut pair);
}
