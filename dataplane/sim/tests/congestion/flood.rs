//! Forged CNPs: those of a stranger, and floods with the right address.

use core::time::Duration;

use uroce_sim::build;
use uroce_transport::{Congestion, Counter, DcqcnParams, Qp, QpType};
use uroce_wire::{Bth, Encap, ExtHeaders, Gid, OpCode};

use super::incast::{GBPS, Incast, RECEIVER};
use super::stream::{self, Script};

/// A CNP to this QP, with the addresses of its connection, or of a stranger.
fn forged(qp: &Qp, is_strange: bool) -> Vec<u8> {
    let attr = qp.attr();
    let Encap { src_mac, dst_mac, src, dst, .. } = attr.path.encap;
    let stranger = Gid::from(core::net::Ipv4Addr::new(10, 0, 0, 99));
    let (src, dst) = (if is_strange { stranger } else { dst }, src);
    let path = Encap { src_mac: dst_mac, dst_mac: src_mac, src, dst, ..attr.path.encap };
    let bth = Bth { opcode: OpCode::CNP, becn: true, dest_qpn: qp.qpn(), ..Bth::default() };
    let mut frame = Vec::new();
    let fill = |out: &mut [u8]| {
        out.fill(0);
        Ok::<(), core::convert::Infallible>(())
    };
    let Ok(()) = build(&mut frame, &path.template(), &bth, &ExtHeaders::default(), 16, fill);
    frame
}

/// Sends a million CNPs a second to the first sender's QP for a while.
fn flood(incast: &mut Incast, frame: &[u8], micros: u32) {
    let at = incast.senders[0].at;
    for micro in 0..micros {
        incast.world.inject(RECEIVER, at.node, frame.to_vec(), Duration::from_micros(micro.into()));
    }
}

fn senders(count: usize) -> Incast {
    let mut incast = Incast::new(11);
    for _ in 0..count {
        let sender = incast.add(Congestion::Dcqcn(DcqcnParams::default()));
        incast.start(sender);
    }
    incast.run_for(Duration::from_millis(1));
    incast
}

#[test] //= check K8 test
fn a_flood_of_forged_notifications_holds_the_floor_and_harms_no_other_qp() {
    let mut incast = senders(3);
    let frame = forged(incast.world.qp(incast.senders[0].at), false);
    flood(&mut incast, &frame, 40_000);
    incast.run_for(Duration::from_millis(20));
    let shares = incast.shares(Duration::from_millis(20));
    let floor = f64::from(DcqcnParams::default().rpg_min_rate) * 20_000.0 / 8.0;
    // A WRITE of 64 kB takes 5 ms at 100 Mb/s.
    assert!(shares[0] >= floor * 0.7 && shares[0] < floor * 1.3, "{shares:?}");
    let line = GBPS as f64 * 20_000_000.0 / 8.0;
    assert!(shares[1] + shares[2] > 0.9 * line, "{shares:?}");
    assert!(incast.world.node(1).counter(Counter::RpCnpHandled) >= 40_000);
    // The flow recovers when the flood is over.
    incast.run_for(Duration::from_millis(100));
    let shares = incast.shares(Duration::from_millis(5));
    let fair = shares.iter().sum::<f64>() / 3.0;
    assert!(shares[0] > 0.5 * fair, "{shares:?}");
}

#[test] //= check K8 test
fn notifications_of_a_stranger_change_nothing() {
    let run = |is_flooded: bool| {
        let mut incast = senders(2);
        if is_flooded {
            let frame = forged(incast.world.qp(incast.senders[0].at), true);
            flood(&mut incast, &frame, 5_000);
        }
        let shares = incast.shares(Duration::from_millis(5));
        let ignored = incast.world.node(1).counter(Counter::RpCnpIgnored);
        assert_eq!(ignored, if is_flooded { 5_000 } else { 0 });
        (shares, incast.queue, incast.world.passed(RECEIVER))
    };
    assert_eq!(run(true), run(false));
    let (cnps, qp_type) = ((0..100).collect(), QpType::Rc);
    let script = Script { cnps, micros: 200, qp_type, is_strange: true };
    assert_eq!(stream::flaw_of(&script), None);
}
