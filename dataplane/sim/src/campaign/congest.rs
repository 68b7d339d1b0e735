//! Congestion in a part of the runs: bottlenecks that mark and drop, and algorithms that react.
//!
//! Invariants
//! - The random numbers are this module's own, so that all else of a run is as without it.

use core::time::Duration;

use fastrand::Rng;

use crate::campaign::plan::{Connection, Plan};
use crate::faults::Rates;
use crate::world::World;
use crate::world::bottleneck::Bottleneck;
use uroce_transport::{Congestion, DcqcnParams, DelayParams, Notification, QpInit};

/// Makes this module's seeds differ from those of the plan.
const SALT: u64 = 0xc0_96e5_7ed1;

/// The congestion of a run.
#[derive(Debug)]
pub(crate) struct Congested {
    rng: Rng,
    is_on: bool,
}

impl Congested {
    /// The congestion of a plan: in a third of all runs, and never on perfect links.
    pub(crate) fn of(plan: &Plan) -> Congested {
        let mut rng = Rng::with_seed(plan.seed ^ SALT);
        let is_on = rng.u8(..3) == 0 && plan.rates != Some(Rates::NONE);
        Congested { rng, is_on }
    }

    /// Puts bottlenecks before some of the nodes.
    pub(crate) fn narrow(&mut self, world: &mut World, nodes: u16, gbps: u64) {
        for node in 0..nodes {
            if !self.is_on || self.rng.u8(..4) == 0 {
                continue;
            }
            let rng = &mut self.rng;
            let kmin = rng.u64(..20_000);
            let terms = Bottleneck {
                gbps: rng.u64(gbps / 2..=gbps),
                capacity: rng.u64(20_000..80_000),
                kmin,
                kmax: kmin + rng.u64(1..40_000),
                pmax: rng.f64(),
                latency: Duration::from_nanos(rng.u64(..2_000)),
            };
            world.narrow(node, terms);
        }
    }

    /// Chooses the algorithm of an end of a connection, and its CNPs. An ACK timeout that is too
    /// short for the round trip is also too short for a low rate.
    pub(crate) fn choose(&mut self, connection: &Connection, init: &mut QpInit) {
        let is_hasty = connection.ends.iter().any(|end| end.is_hasty);
        if !self.is_on || is_hasty {
            return;
        }
        let rng = &mut self.rng;
        init.notification =
            Notification { min_time_between_cnps_us: rng.u16(..10), ..Notification::default() };
        init.congestion = match rng.u8(..4) {
            0 => Congestion::None,
            1 => Congestion::Delay(DelayParams {
                target_delay_us: rng.u32(1..40),
                ai_rate: rng.u32(10..1_000),
                ..DelayParams::default()
            }),
            _ => Congestion::Dcqcn(dcqcn(rng)),
        };
    }
}

fn dcqcn(rng: &mut Rng) -> DcqcnParams {
    DcqcnParams {
        rpg_time_reset: rng.u32(1..300),
        rpg_byte_reset: 1 << rng.u32(10..24),
        rpg_threshold: rng.u32(1..=5),
        rpg_ai_rate: rng.u32(5..500),
        rpg_hai_rate: rng.u32(50..5_000),
        rpg_min_rate: rng.u32(100..2_000),
        dce_tcp_rtt: rng.u32(1..100),
        dce_tcp_g: rng.u16(900..=1023),
        rate_reduce_monitor_period: rng.u32(..50),
        clamp_tgt_rate: rng.bool(),
        ..DcqcnParams::default()
    }
}
