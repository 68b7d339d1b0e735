use super::*;

/// The reaction point as the paper describes it, in floating point and in steps of a microsecond.
struct Naive {
    params: DcqcnParams,
    line: f64,
    /// Current and target rate in Mb/s; no rate while it is not slowed down.
    rates: Option<(f64, f64)>,
    alpha: f64,
    since_alpha: u32,
    since_cut: u32,
    since_raise: u32,
    bytes: u32,
    stages: [u32; 2],
}

impl Naive {
    fn new(params: &DcqcnParams) -> Naive {
        Naive {
            params: *params,
            line: 100_000.0,
            rates: None,
            alpha: 0.0,
            since_alpha: 0,
            since_cut: 0,
            since_raise: 0,
            bytes: 0,
            stages: [0; 2],
        }
    }

    fn raise(&mut self, which: usize) {
        self.stages[which] += 1;
        let Some((current, mut target)) = self.rates else { return };
        let (most, least) =
            (self.stages[0].max(self.stages[1]), self.stages[0].min(self.stages[1]));
        let threshold = self.params.rpg_threshold;
        if least > threshold {
            target += f64::from((least - threshold) * self.params.rpg_hai_rate);
        } else if most >= threshold {
            target += f64::from(self.params.rpg_ai_rate);
        }
        let target = target.min(self.line);
        let current = f64::midpoint(current, target);
        self.rates = (current < self.line * 1023.0 / 1024.0).then_some((current, target));
    }

    /// One microsecond, in which so many bytes are sent.
    fn tick(&mut self, bytes: u32) {
        let g = 1.0 - f64::from(self.params.dce_tcp_g) / 1024.0;
        self.since_alpha += 1;
        self.since_cut += 1;
        if self.since_alpha == self.params.dce_tcp_rtt {
            self.since_alpha = 0;
            self.alpha *= 1.0 - g;
        }
        if self.rates.is_none() {
            return;
        }
        self.since_raise += 1;
        if self.since_raise == self.params.rpg_time_reset {
            self.since_raise = 0;
            self.raise(0);
        }
        self.bytes += bytes;
        while self.bytes >= self.params.rpg_byte_reset {
            self.bytes -= self.params.rpg_byte_reset;
            self.raise(1);
        }
    }

    fn cnp(&mut self) {
        let params = self.params;
        let g = 1.0 - f64::from(params.dce_tcp_g) / 1024.0;
        let (current, target) = match self.rates {
            Some(_) if self.since_cut < params.rate_reduce_monitor_period => return,
            Some((current, target)) => {
                let [timer, bytes] = self.stages.map(|stage| stage > 0);
                let moves =
                    bytes || timer && params.clamp_tgt_rate_after_time_inc || params.clamp_tgt_rate;
                (current, if moves { current } else { target })
            }
            None => {
                self.alpha = f64::from(params.initial_alpha_value) / 1024.0;
                (self.line, self.line)
            }
        };
        if self.rates.is_none() && params.rate_to_set_on_first_cnp > 0 {
            self.rates = Some((f64::from(params.rate_to_set_on_first_cnp), target));
        } else {
            let cut = 1.0 - self.alpha / f64::from(1 << (params.rpg_gd - 10));
            let least = f64::from(params.rpg_min_dec_fac) / 100.0;
            let rate = (current * cut.max(least)).max(f64::from(params.rpg_min_rate));
            self.rates = Some((rate, target));
            self.alpha = (1.0 - g) * self.alpha + g;
        }
        self.since_alpha = 0;
        self.since_cut = 0;
        self.since_raise = 0;
        self.bytes = 0;
        self.stages = [0; 2];
    }
}

fn point(params: &DcqcnParams) -> Dcqcn {
    let mut point = Dcqcn::new(params);
    point.restart(100_000_000);
    point
}

fn at(micros: u64) -> Instant {
    Instant::from_nanos(5_000_000_000 + micros * 1000)
}

/// Compares both for so long: a CNP comes in each microsecond with probability `cnps`, but none in
/// the last third, and as many bytes are sent as the rate allows.
fn compare(params: &DcqcnParams, seed: u64, cnps: f64, micros: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut naive, mut point) = (Naive::new(params), point(params));
    for micro in 1..micros {
        let bytes = naive.rates.map_or(100_000.0, |rates| rates.0) / 8.0 * random();
        point.advance(at(micro));
        point.sent(bytes as u32);
        naive.tick(bytes as u32);
        if random() < cnps && micro < micros * 2 / 3 {
            point.notified(at(micro));
            naive.cnp();
        }
        let expected = naive.rates.map_or(100_000.0, |rates| rates.0);
        let rate = point.rate_kbps().map_or(100_000.0, |kbps| kbps as f64 / 1000.0);
        let error = (rate - expected).abs() / expected;
        assert!(error < 0.01, "{rate} and not {expected} after {micro} µs, seed {seed}");
    }
}

#[test] //= check K5 test
fn the_rate_is_within_a_percent_of_a_naive_reference() {
    let variants = [
        DcqcnParams::MLX5,
        DcqcnParams::default(),
        DcqcnParams { rpg_threshold: 5, dce_tcp_rtt: 55, dce_tcp_g: 1020, ..DcqcnParams::MLX5 },
        DcqcnParams { rpg_time_reset: 20, rpg_byte_reset: 9000, ..DcqcnParams::MLX5 },
        DcqcnParams { clamp_tgt_rate: true, rate_reduce_monitor_period: 50, ..DcqcnParams::MLX5 },
        DcqcnParams { rate_to_set_on_first_cnp: 3000, rpg_min_rate: 77, ..DcqcnParams::MLX5 },
        DcqcnParams { clamp_tgt_rate_after_time_inc: false, rpg_gd: 12, ..DcqcnParams::MLX5 },
    ];
    for (params, seed) in variants.iter().zip(1..) {
        for cnps in [0.0, 0.0002, 0.01, 0.2] {
            compare(params, seed, cnps, 60_000);
        }
    }
}

#[test] //= check K5 test
fn the_first_cut_halves_the_line_s_rate_and_fast_recovery_regains_it() {
    let params = DcqcnParams { rpg_threshold: 5, ..DcqcnParams::MLX5 };
    let mut point = point(&params);
    assert_eq!(point.rate_kbps(), None);
    point.notified(at(0));
    let cut = point.rate_kbps().unwrap();
    assert!(cut.abs_diff(50_000_000) < 100_000, "{cut}");
    let mut missing = 100_000_000 - cut;
    for stage in 1..5 {
        point.advance(at(stage * 300 - 1));
        let is_near = |point: &Dcqcn, missing| {
            point.rate_kbps().is_some_and(|rate| rate.abs_diff(100_000_000 - missing) <= 1)
        };
        assert!(is_near(&point, missing), "not before the period ends");
        point.advance(at(stage * 300));
        missing /= 2;
        assert!(is_near(&point, missing));
    }
    point.advance(at(1_000_000));
    assert_eq!(point.rate_kbps(), None, "it lets go");
}

#[test] //= check K8 test
fn a_flood_of_cnps_holds_the_floor_and_recovery_goes_on_from_there() {
    for params in [DcqcnParams::MLX5, DcqcnParams::default()] {
        let mut point = point(&params);
        for micro in 0..100_000 {
            point.advance(at(micro));
            point.notified(at(micro));
            assert!(point.rate_kbps().unwrap() >= u64::from(params.rpg_min_rate) * 1000);
        }
        assert_eq!(point.rate_kbps(), Some(u64::from(params.rpg_min_rate) * 1000));
        point.advance(at(200_000));
        assert!(point.rate_kbps().is_none_or(|rate| rate > u64::from(params.rpg_min_rate) * 1000));
    }
}

#[test] //= check K7 test
fn a_slow_restart_cuts_as_a_cnp_does_and_keeps_what_it_has_cut_from_fast_recovery() {
    let params = DcqcnParams { rpg_max_rate: 40_000, ..DcqcnParams::default() };
    let [mut notified, mut lost] = [point(&params), point(&params)];
    notified.notified(at(0));
    let first = lost.restart_slowly(at(0));
    assert_eq!(first, SlowRestart { was_free: true, has_cut: true });
    let cut = lost.rate_kbps().unwrap();
    assert_eq!(notified.rate_kbps(), Some(cut));
    assert!(cut.abs_diff(20_000_000) < 20_000, "{cut}");
    // Two stages of fast recovery regain three quarters of what a CNP has cut.
    for point in [&mut notified, &mut lost] {
        point.advance(at(110));
    }
    assert!(notified.rate_kbps().unwrap() > 34_900_000);
    assert_eq!(lost.rate_kbps(), Some(cut));
    // Then come the additive stages, of 80 Mb/s each.
    lost.advance(at(165));
    assert_eq!(lost.rate_kbps(), Some(cut + 40_000));
    lost.advance(at(1_000_000));
    assert_eq!(lost.rate_kbps(), None, "it lets go in the end");
    let second = lost.restart_slowly(at(1_000_001));
    assert_eq!(second, SlowRestart { was_free: true, has_cut: true });
}

#[test] //= check K7 test
fn a_cnp_and_a_loss_in_one_period_cut_once_in_either_order() {
    let params = DcqcnParams::default();
    let [mut cnp_first, mut loss_first, mut loss_only] = [(); 3].map(|()| point(&params));
    cnp_first.notified(at(0));
    let late = cnp_first.restart_slowly(at(20));
    assert_eq!(late, SlowRestart { was_free: false, has_cut: false });
    loss_first.restart_slowly(at(0));
    loss_first.notified(at(20));
    loss_only.restart_slowly(at(0));
    for micros in (20..400_000).step_by(55) {
        let points = [&mut cnp_first, &mut loss_first, &mut loss_only];
        let [cnp_first, loss_first, loss_only] = points.map(|point| {
            point.advance(at(micros));
            point.rate_kbps()
        });
        assert_eq!(cnp_first, loss_only);
        assert_eq!(loss_first, loss_only);
    }
}

#[test] //= check K7 test
fn losses_in_a_row_hold_the_floor() {
    let mut point = point(&DcqcnParams::MLX5);
    assert!(point.restarts_slowly());
    for micro in 0..10_000 {
        point.restart_slowly(at(micro));
    }
    assert_eq!(point.rate_kbps(), Some(1000));
}

#[test]
fn a_long_idle_time_is_the_same_whether_it_is_seen_at_once_or_in_pieces() {
    for idle in [1_000, 150_000, 400_000, 3_000_000, 60_000_000] {
        let [mut once, mut pieces] = [0, 1].map(|_| point(&DcqcnParams::MLX5));
        for point in [&mut once, &mut pieces] {
            (0..200).for_each(|micro| point.notified(at(micro * 4)));
        }
        (1..=1000).for_each(|piece| pieces.advance(at(800 + idle / 1000 * piece)));
        once.advance(at(800 + idle));
        let [once, pieces] = [once, pieces].map(|point| point.rate_kbps().unwrap_or(100_000_000));
        assert!(once.abs_diff(pieces) <= pieces / 100, "{once} and {pieces} after {idle} µs");
    }
}

#[test]
fn values_out_of_range_do_no_harm() {
    let extremes = [0, u32::MAX].map(|word| {
        let (byte, flag) = (word as u8, word > 0);
        DcqcnParams {
            rpg_time_reset: word,
            rpg_byte_reset: word,
            rpg_threshold: word,
            rpg_ai_rate: word,
            rpg_hai_rate: word,
            rpg_gd: byte,
            rpg_min_dec_fac: byte,
            rpg_min_rate: word,
            rpg_max_rate: word,
            dce_tcp_rtt: word,
            dce_tcp_g: word as u16,
            rate_reduce_monitor_period: word,
            initial_alpha_value: word as u16,
            rate_to_set_on_first_cnp: word,
            clamp_tgt_rate: flag,
            clamp_tgt_rate_after_time_inc: flag,
            roce_slow_restart_en: flag,
        }
    });
    for params in extremes {
        let mut point = point(&params);
        for micro in 0..5000 {
            point.advance(at(micro * micro));
            point.sent(u32::MAX);
            point.notified(at(micro * micro));
            assert!(point.rate_kbps().is_none_or(|rate| (1000..=100_000_000).contains(&rate)));
        }
        point.restart(100_000_000);
        for micro in 5000..6000 {
            point.advance(at(micro * micro));
            point.sent(9000);
            point.restart_slowly(at(micro * micro));
            assert!(point.rate_kbps().is_none_or(|rate| (1000..=100_000_000).contains(&rate)));
        }
    }
}
