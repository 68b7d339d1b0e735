//! DCQCN as its paper describes it, in floating point and in steps of a microsecond.

use uroce_transport::DcqcnParams;

/// Rates in Mb/s.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    params: DcqcnParams,
    line: f64,
    /// Current and target rate; none while nothing slows the sender down.
    rates: Option<(f64, f64)>,
    alpha: f64,
    /// Microseconds since the last CNP that cut, and at the last step.
    since: u64,
    micro: u64,
    bytes: u32,
    stages: [u32; 2],
}

impl Reference {
    pub(crate) fn new(params: DcqcnParams, line: f64) -> Reference {
        let alpha = f64::from(params.initial_alpha_value) / 1024.0;
        Reference { params, line, rates: None, alpha, since: 0, micro: 0, bytes: 0, stages: [0; 2] }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rates.map_or(self.line, |(current, _)| current)
    }

    fn g(&self) -> f64 {
        1.0 - f64::from(self.params.dce_tcp_g) / 1024.0
    }

    /// Lets time pass up to this microsecond.
    pub(crate) fn pass_to(&mut self, micro: u64) {
        while self.micro < micro {
            self.micro += 1;
            self.since += 1;
            if self.since.is_multiple_of(self.params.dce_tcp_rtt.into()) {
                self.alpha *= 1.0 - self.g();
            }
            if self.since.is_multiple_of(self.params.rpg_time_reset.into()) {
                self.raise(0);
            }
        }
    }

    pub(crate) fn sent(&mut self, bytes: u32) {
        if self.rates.is_none() {
            return;
        }
        self.bytes += bytes;
        if self.bytes >= self.params.rpg_byte_reset {
            self.bytes -= self.params.rpg_byte_reset;
            self.raise(1);
        }
    }

    pub(crate) fn cnp(&mut self) {
        let params = self.params;
        let (current, target) = match self.rates {
            Some(_) if self.since < params.rate_reduce_monitor_period.into() => return,
            Some(rates) if self.stages == [0; 2] => rates,
            Some((current, _)) => (current, current),
            None => {
                self.alpha = f64::from(params.initial_alpha_value) / 1024.0;
                (self.line, self.line)
            }
        };
        let least = f64::from(params.rpg_min_dec_fac) / 100.0;
        let cut = (1.0 - self.alpha / 2.0).max(least);
        self.rates = Some(((current * cut).max(params.rpg_min_rate.into()), target));
        self.alpha = self.alpha * (1.0 - self.g()) + self.g();
        (self.since, self.bytes, self.stages) = (0, 0, [0; 2]);
    }

    fn raise(&mut self, which: usize) {
        let Some((current, mut target)) = self.rates else { return };
        self.stages[which] += 1;
        let [time, bytes] = self.stages;
        let threshold = self.params.rpg_threshold;
        if time.min(bytes) > threshold {
            target += f64::from((time.min(bytes) - threshold) * self.params.rpg_hai_rate);
        } else if time.max(bytes) >= threshold {
            target += f64::from(self.params.rpg_ai_rate);
        }
        target = target.min(self.line);
        let current = f64::midpoint(current, target);
        self.rates = (current < self.line * 1023.0 / 1024.0).then_some((current, target));
    }
}
