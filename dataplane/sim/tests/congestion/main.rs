//! Congestion control through a bottleneck.

mod incast;

use core::time::Duration;

use incast::*;
use uroce_transport::{Congestion, DcqcnParams, DelayParams};

#[test]
#[ignore]
fn tune() {
    let env = |name: &str, default: u32| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let mut p = DcqcnParams::default();
    p.rpg_time_reset = env("TIME", p.rpg_time_reset);
    p.rpg_byte_reset = env("BYTES", p.rpg_byte_reset);
    p.rpg_threshold = env("THR", p.rpg_threshold);
    p.rpg_ai_rate = env("AI", p.rpg_ai_rate);
    p.rpg_hai_rate = env("HAI", p.rpg_hai_rate);
    p.rpg_min_rate = env("MIN", p.rpg_min_rate);
    p.dce_tcp_rtt = env("RTT", p.dce_tcp_rtt);
    p.dce_tcp_g = env("G", p.dce_tcp_g as u32) as u16;
    p.rate_reduce_monitor_period = env("MON", p.rate_reduce_monitor_period);
    p.clamp_tgt_rate = env("CLAMP", 0) > 0;
    let cc = if env("DELAY", 0) > 0 {
        Congestion::Delay(DelayParams {
            target_delay_us: env("TARGET", 25),
            ai_rate: env("AI", 200),
            ..DelayParams::default()
        })
    } else {
        Congestion::Dcqcn(p)
    };
    let only = env("N", 0);
    for n in [2, 4, 8, 16, 32] {
        if only > 0 && n != only {
            continue;
        }
        let mut incast = Incast::new(1);
        for _ in 0..n {
            let s = incast.add(cc);
            incast.start(s);
        }
        let t = std::time::Instant::now();
        incast.run_for(Duration::from_millis(env("WARM", 50) as u64));
        let max0 = incast.queue.iter().max().unwrap().clone();
        let span = Duration::from_millis(20);
        let shares = incast.shares(span);
        println!(
            "n={n} used {:.3} jain {:.4} median {} max {} initial max {max0} {:?} took {:?}",
            used(&shares, span),
            jain(&shares),
            incast.median_queue(),
            incast.queue.iter().max().unwrap(),
            incast.world.passed(0),
            t.elapsed()
        );
        if n == 2 || only > 0 {
            let mut incast = Incast::new(1);
            for _ in 0..n {
                let s = incast.add(cc);
                incast.start(s);
            }
            let late = incast.add(cc);
            incast.run_for(Duration::from_millis(20));
            incast.start(late);
            for i in 0..12 {
                let shares = incast.shares(Duration::from_millis(2));
                let sum: f64 = shares.iter().sum();
                println!("  late at {}: {:.3} of fair", i * 2, shares[late] / sum * (n + 1) as f64);
            }
        }
    }
}
