use super::*;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(5_000_000_000 + micros * 1000)
}

fn point(params: DelayParams) -> Delay {
    let mut point = Delay::new(&params);
    point.restart(100_000_000);
    point
}

#[test]
fn the_rate_is_within_a_percent_of_a_naive_reference() {
    let params = DelayParams::default();
    let mut point = point(params);
    let (mut rate, mut cut_at, mut raised_at) = (100_000.0_f64, -1e9, 0.0_f64);
    let mut state = 4711_u64;
    for micro in 1..50_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let micros = 10 + (state >> 33) % 20;
        let (now, delay) = (micro as f64, micros as f64);
        if delay <= 25.0 {
            rate = (rate + 200.0 * ((now - raised_at) / delay).min(1.0)).min(100_000.0);
        } else if now - cut_at >= delay {
            rate = (rate * (1.0 - (0.8 * (delay - 25.0) / delay).min(0.5))).max(100.0);
            cut_at = now;
        }
        raised_at = now;
        point.round_trip(Duration::from_micros(micros), at(micro));
        let found = point.rate_kbps().map_or(100_000.0, |kbps| kbps as f64 / 1000.0);
        assert!((found - rate).abs() < rate / 100.0, "{found} and not {rate} after {micro} µs");
    }
    assert!(rate < 90_000.0);
}

#[test]
fn short_round_trips_slow_nothing_down() {
    let mut point = point(DelayParams::default());
    (0..1000).for_each(|micro| point.round_trip(Duration::from_micros(micro % 26), at(micro)));
    assert_eq!(point.rate_kbps(), None);
}

#[test]
fn the_rate_falls_once_in_a_round_trip_and_not_below_the_floor() {
    let mut point = point(DelayParams::default());
    for micro in 0..40 {
        point.round_trip(Duration::from_micros(40), at(micro));
    }
    assert_eq!(point.rate_kbps(), Some(70_000_000), "0.8 · 15/40 less");
    point.lost(at(39));
    assert_eq!(point.rate_kbps(), Some(70_000_000));
    point.lost(at(40));
    assert_eq!(point.rate_kbps(), Some(35_000_000));
    (2..100).for_each(|round| point.lost(at(round * 40)));
    assert_eq!(point.rate_kbps(), Some(100_000));
}

#[test]
fn the_largest_parameters_and_times_do_not_overflow() {
    let mut point = point(DelayParams {
        ai_rate: u32::MAX,
        target_delay_us: u32::MAX,
        ..DelayParams::default()
    });
    for second in 1..20 {
        point.lost(at(second * 4_000_000));
        point.round_trip(Duration::from_secs(4), at(second * 4_000_000 + 1));
    }
    assert_eq!(point.rate_kbps(), Some(100_000_000), "the line rate again");
}
