//! One stream of WRITEs and scripted CNPs: the gap after each frame is the rate.

use core::time::Duration;

use uroce_sim::Pair;
use uroce_transport::{Congestion, Counter, DcqcnParams, Instant, QpChange, QpType};
use uroce_wire::{Encap, Gid, OpCode, PathMtu};

use super::reference::Reference;

/// The sender, and the receiver.
const A: usize = 0;
const B: usize = 1;

/// Rate that the parameters state for the line, in Mb/s.
const LINE: u32 = 100_000;

/// Parameters with which the byte counter takes part within a few milliseconds.
pub(crate) const PARAMS: DcqcnParams = DcqcnParams {
    rpg_time_reset: 55,
    rpg_byte_reset: 100_000,
    rpg_threshold: 3,
    rpg_ai_rate: 80,
    rpg_hai_rate: 400,
    rpg_min_rate: 100,
    rpg_max_rate: LINE,
    dce_tcp_rtt: 55,
    dce_tcp_g: 1008,
    rate_reduce_monitor_period: 30,
    ..DcqcnParams::MLX5
};

/// CNPs at these microseconds, for a stream of this many microseconds.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) cnps: Vec<u64>,
    pub(crate) micros: u64,
    /// Transport service of the stream: RC or UC.
    pub(crate) qp_type: QpType,
    /// The CNPs come from a stranger.
    pub(crate) is_strange: bool,
}

/// Runs the script, and returns what is wrong with the gaps between the frames: they differ by more
/// than 1 % from those of the reference.
pub(crate) fn flaw_of(script: &Script) -> Option<String> {
    let mut pair = Pair::with(|terms| {
        terms.congestion = Congestion::Dcqcn(PARAMS);
        terms.qp_type = script.qp_type;
        terms.mtu = PathMtu::B4096;
        terms.settings.gbps = 400;
        terms.half[A].timeout = 14;
    });
    if script.qp_type == QpType::Uc {
        // No window keeps the stream from the port's rate.
        let rate_limit = Some(LINE * 1000);
        pair.modify(A, &QpChange { rate_limit, ..QpChange::default() }).expect("a QP in RTS");
    }
    let begin = pair.world.now();
    let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]).bth(|bth| bth.mig_req = false);
    let mut path = pair.path(B);
    if script.is_strange {
        path = Encap { src: Gid::from(core::net::Ipv4Addr::new(10, 0, 0, 99)), ..path };
    }
    let frame = pair.frame_by(&path, &cnp);
    let mut queued = 0_u64;
    for micro in 0..script.micros {
        while queued < 8 {
            pair.write(A, 200_000);
            queued += 1;
        }
        for _ in script.cnps.iter().filter(|at| **at == micro) {
            pair.world.inject(1, 0, frame.clone(), Duration::ZERO);
        }
        pair.run_for(Duration::from_micros(1));
        queued -= pair.take(A, uroce_transport::Side::Send).len() as u64;
    }
    let counted = [Counter::RpCnpHandled, Counter::RpCnpIgnored].map(|one| pair.count(A, one));
    let came = script.cnps.len() as u64;
    if counted != if script.is_strange { [0, came] } else { [came, 0] } {
        return Some(format!("CNPs handled and ignored: {counted:?}"));
    }
    compare(&pair, script, begin)
}

fn compare(pair: &Pair, script: &Script, begin: Instant) -> Option<String> {
    let record = pair.world.record().expect("pairs record");
    let sent = record.sightings().filter(|one| one.from == A && !one.fate.is_crafted);
    let sent: Vec<(Instant, u32)> = sent.map(|one| (one.at, one.frame.len() as u32)).collect();
    let mut reference = Reference::new(PARAMS, LINE.into());
    let mut cnps = script.cnps.iter().filter(|_| !script.is_strange).peekable();
    for two in sent.windows(2) {
        let [(at, len), (next, _)] = *two else { unreachable!("windows of two") };
        let nanos = at.since(begin).as_nanos() as u64;
        while let Some(micro) = cnps.next_if(|micro| **micro * 1000 < nanos) {
            reference.pass_to(*micro);
            reference.cnp();
        }
        reference.pass_to(nanos / 1000);
        let is_limited = reference.rate() < f64::from(LINE);
        let due = f64::from(len) * 8000.0 / reference.rate();
        let gap = next.since(at).as_nanos() as f64;
        if is_limited && (gap - due).abs() > due / 100.0 + 2.0 {
            return Some(format!("after {nanos} ns a gap of {gap} ns, not {due}"));
        }
        reference.sent(len);
    }
    None
}
