//! DCQCN's reaction point: CNPs cut the rate, time and sent bytes raise it again.
//!
//! Read first: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015),
//! sections 3 and 5. Names of parameters are those of mlx5.
//!
//! ```text
//!   CNP ──> target = current,  current ×= 1 − alpha/2,  alpha → 1
//!
//!   loss, with roce_slow_restart_en ──> as for a CNP,  then target = current
//!
//!   every rpg_time_reset, and every rpg_byte_reset bytes, one stage each:
//!     both stages below the threshold    fast recovery   current = (current + target) / 2
//!     one of them at least there         additive        target += rpg_ai_rate,  then as above
//!     both above the threshold           hyper           target += n · rpg_hai_rate, then as above
//! ```
//!
//! Invariants
//! - `rpg_min_rate` ≤ current ≤ the line's rate while the QP is slowed down.
//! - A cut happens at most once in `rate_reduce_monitor_period`. A CNP and a loss within it give
//!   the same rate in either order.
//! - Close to the line's rate the reaction point lets go: it is as if no CNP had ever come.

use core::time::Duration;

use super::{ReactionPoint, SlowRestart};
use crate::time::Instant;

/// Parameters of DCQCN. Each has the name, and in [`DcqcnParams::MLX5`] the value, that it has with
/// mlx5; units are in the name or the text. Values out of range act as the nearest one in range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DcqcnParams {
    /// Period of the timer that raises the rate, in microseconds, at least 1.
    pub rpg_time_reset: u32,
    /// Sent bytes after which the byte counter raises the rate, at least 1.
    pub rpg_byte_reset: u32,
    /// Stage of timer or byte counter at which fast recovery ends.
    pub rpg_threshold: u32,
    /// Additive increase of the target rate, in Mb/s.
    pub rpg_ai_rate: u32,
    /// Hyper increase of the target rate, in Mb/s.
    pub rpg_hai_rate: u32,
    /// Divisor of a cut as a power of two, for an alpha of 1024: 11 cuts by alpha/2. 10 to 30.
    pub rpg_gd: u8,
    /// Smallest ratio of the rate after a cut to that before, in percent, 0 to 100.
    pub rpg_min_dec_fac: u8,
    /// Floor of the rate in Mb/s, at least 1.
    pub rpg_min_rate: u32,
    /// The line's rate in Mb/s; 0: the path's static rate, or 100 Gb/s if it has none.
    pub rpg_max_rate: u32,
    /// Period in microseconds after which alpha falls if no CNP has come, at least 1.
    pub dce_tcp_rtt: u32,
    /// Part of the old alpha that stays when alpha is updated, in 1/1024, 0 to 1023. The paper's g
    /// is 1 minus this.
    pub dce_tcp_g: u16,
    /// Least time between two cuts, in microseconds.
    pub rate_reduce_monitor_period: u32,
    /// Alpha before the first CNP, in 1/1024, 0 to 1023.
    pub initial_alpha_value: u16,
    /// Rate in Mb/s that the first CNP sets; 0: the first CNP cuts the line's rate.
    pub rate_to_set_on_first_cnp: u32,
    /// Every CNP sets the target to the current rate. Otherwise only one before which the byte
    /// counter has raised the rate does, so that cuts in a row keep their target.
    pub clamp_tgt_rate: bool,
    /// A CNP before which the timer has raised the rate sets the target too.
    pub clamp_tgt_rate_after_time_inc: bool,
    /// A loss that the requester acts upon (a sequence NAK, an expired ACK timer, a tail that a
    /// probe finds lost) cuts the rate as a CNP does, and sets the target to the current rate.
    /// Otherwise a loss changes nothing of the rate.
    pub roce_slow_restart_en: bool,
}

impl DcqcnParams {
    /// The defaults of mlx5, made for round trips of some hundred microseconds and for thousands of
    /// flows.
    pub const MLX5: DcqcnParams = DcqcnParams {
        rpg_time_reset: 300,
        rpg_byte_reset: 32_767,
        rpg_threshold: 1,
        rpg_ai_rate: 5,
        rpg_hai_rate: 50,
        rpg_gd: 11,
        rpg_min_dec_fac: 50,
        rpg_min_rate: 1,
        rpg_max_rate: 0,
        dce_tcp_rtt: 1,
        dce_tcp_g: 1019,
        rate_reduce_monitor_period: 4,
        initial_alpha_value: 1023,
        rate_to_set_on_first_cnp: 0,
        clamp_tgt_rate: false,
        clamp_tgt_rate_after_time_inc: true,
        roce_slow_restart_en: true,
    };
}

//= check K10 — values for few fast flows as well as for many
impl Default for DcqcnParams {
    /// Values for round trips of some ten microseconds and links of 25 to 100 Gb/s, near those of
    /// the paper; the simulator's bottleneck chose them. mlx5's react to each burst of CNPs with
    /// several cuts in one round trip and regain 5 Mb/s in 300 µs, so that of a few fast flows some
    /// starve. The floor is high enough for a flow under forged CNPs to stay in use. Without slow
    /// restarts, since not every loss comes of congestion.
    fn default() -> DcqcnParams {
        DcqcnParams {
            rpg_time_reset: 55,
            rpg_byte_reset: 10_000_000,
            rpg_threshold: 3,
            rpg_ai_rate: 80,
            rpg_hai_rate: 400,
            rpg_min_rate: 100,
            dce_tcp_rtt: 55,
            dce_tcp_g: 1008,
            rate_reduce_monitor_period: 30,
            roce_slow_restart_en: false,
            ..DcqcnParams::MLX5
        }
    }
}

/// One, as alpha is stored.
const ONE: u32 = 1 << 20;

/// At the line's rate less this part of it the reaction point lets go; fast recovery halves what is
/// missing for ever.
const ALMOST: u64 = 1024;

/// Largest number of timer stages that are counted one by one; those of a longer idle time are
/// summed up.
const STAGES: u64 = 512;

/// State of a reaction point. Rates are in bit/s, so that a low one has no rounding error to speak
/// of.
#[derive(Debug)]
pub(super) struct Dcqcn {
    params: DcqcnParams,
    line: u64,
    /// The rate; meaningless while the QP is not slowed down.
    current: u64,
    target: u64,
    is_slowed: bool,
    /// Estimate of the part of time in which there is congestion, in units of 1/[`ONE`].
    alpha: u32,
    /// Time up to which alpha has fallen.
    alpha_at: Instant,
    cut_at: Instant,
    /// Start of the timer's current period.
    timer_at: Instant,
    /// Bytes sent in the byte counter's current period.
    bytes: u32,
    time_stage: u32,
    byte_stage: u32,
}

impl Dcqcn {
    pub(super) fn new(params: &DcqcnParams) -> Dcqcn {
        Dcqcn {
            params: in_range(params),
            line: 0,
            current: 0,
            target: 0,
            is_slowed: false,
            alpha: 0,
            alpha_at: Instant::ZERO,
            cut_at: Instant::ZERO,
            timer_at: Instant::ZERO,
            bytes: 0,
            time_stage: 0,
            byte_stage: 0,
        }
    }

    /// Returns whether losses make the reaction point restart slowly.
    pub(super) fn restarts_slowly(&self) -> bool {
        self.params.roce_slow_restart_en
    }

    /// Restarts slowly after a loss. Fast recovery then regains nothing, and the additive stages
    /// have to find the new rate.
    //= check K7 — a loss cuts the rate as a CNP does, and the target falls with it
    pub(super) fn restart_slowly(&mut self, now: Instant) -> SlowRestart {
        let was_free = !self.is_slowed;
        let has_cut = self.cut_unless_too_soon(now);
        self.target = self.current;
        SlowRestart { was_free, has_cut }
    }

    fn floor(&self) -> u64 {
        bps(self.params.rpg_min_rate).min(self.line)
    }

    /// Slows down a QP that was not slowed down. Returns whether that is all that the CNP does.
    fn begin(&mut self, now: Instant) -> bool {
        let first = bps(self.params.rate_to_set_on_first_cnp);
        self.is_slowed = true;
        self.alpha = u32::from(self.params.initial_alpha_value) << 10;
        self.alpha_at = now;
        (self.current, self.target) = (self.line, self.line);
        if first > 0 {
            self.current = first.clamp(self.floor(), self.line);
        }
        first > 0
    }

    /// Lets alpha fall by the periods that have passed.
    fn fall(&mut self, now: Instant) {
        let period = micros(self.params.dce_tcp_rtt);
        let periods = nanos(now.since(self.alpha_at)) / period;
        let left = power(self.params.dce_tcp_g, periods);
        self.alpha = ((u64::from(self.alpha) * left) >> 32) as u32;
        self.alpha_at = self.alpha_at + Duration::from_nanos(periods * period);
    }

    /// Cuts the rate unless that was done less than a period ago. Returns whether it has.
    //= check K5 — the rate is cut once a period, and the stages begin anew
    //= check K8 — at most one cut in a period, and never below the floor
    fn cut_unless_too_soon(&mut self, now: Instant) -> bool {
        let period = Duration::from_micros(self.params.rate_reduce_monitor_period.into());
        if self.is_slowed && now.since(self.cut_at) < period && !seeded!(CutByEveryCnp) {
            return false;
        }
        let is_first = !self.is_slowed;
        if !(is_first && self.begin(now)) {
            self.fall(now);
            self.cut();
            self.alpha_at = now;
        }
        self.begin_stages(now);
        true
    }

    fn cut(&mut self) {
        let params = &self.params;
        let has_risen =
            self.byte_stage > 0 || params.clamp_tgt_rate_after_time_inc && self.time_stage > 0;
        if params.clamp_tgt_rate || has_risen {
            self.target = self.current;
        }
        let by = (self.current * u64::from(self.alpha)) >> (20 + params.rpg_gd - 10);
        let least = self.current * u64::from(params.rpg_min_dec_fac) / 100;
        self.current = (self.current - by).max(least).max(self.floor());
        if seeded!(NoRateFloor) {
            self.current = (self.current - by).max(1);
        }
        let kept = (u64::from(self.alpha) * u64::from(params.dce_tcp_g)) >> 10;
        self.alpha = kept as u32 + (ONE >> 10) * (1024 - u32::from(params.dce_tcp_g));
    }

    /// Starts the stages anew.
    fn begin_stages(&mut self, now: Instant) {
        (self.cut_at, self.timer_at) = (now, now);
        (self.bytes, self.time_stage, self.byte_stage) = (0, 0, 0);
    }

    /// What the next stage adds to the target.
    fn step(&self) -> u64 {
        let Dcqcn { params, time_stage, byte_stage, .. } = self;
        let least = *time_stage.min(byte_stage);
        match params.rpg_threshold {
            threshold if time_stage.max(byte_stage) < &threshold => 0,
            threshold if least > threshold => {
                u64::from(least - threshold).saturating_mul(bps(params.rpg_hai_rate))
            }
            _ => bps(params.rpg_ai_rate),
        }
    }

    /// Raises the rate after a stage of the timer or of the byte counter.
    fn rise(&mut self) {
        let step = if seeded!(NoRecovery) { 0 } else { self.step() };
        self.target = self.target.saturating_add(step).min(self.line);
        self.current = (self.current + self.target).div_ceil(2);
        self.is_slowed = self.current < self.line - self.line / ALMOST;
    }

    /// Raises the rate after `stages` stages of the timer in which nothing was sent. The target
    /// rises evenly then, and the rate follows one step behind.
    fn rise_idle(&mut self, stages: u64) {
        let step = self.step();
        let by = step.saturating_mul(stages);
        self.target = self.target.saturating_add(by).min(self.line);
        self.current = self.current.max(self.target.saturating_sub(step));
        self.time_stage = self.time_stage.saturating_add(u32::try_from(stages).unwrap_or(u32::MAX));
        self.is_slowed = self.current < self.line - self.line / ALMOST;
    }
}

impl ReactionPoint for Dcqcn {
    fn restart(&mut self, line_kbps: u64) {
        let max = bps(self.params.rpg_max_rate);
        let line = line_kbps * 1000;
        self.line = if max > 0 { max.min(line) } else { line };
        self.is_slowed = false;
    }

    fn rate_kbps(&self) -> Option<u64> {
        self.is_slowed.then_some(self.current / 1000)
    }

    fn advance(&mut self, now: Instant) {
        if !self.is_slowed {
            return;
        }
        let period = micros(self.params.rpg_time_reset);
        let stages = nanos(now.since(self.timer_at)) / period;
        if stages == 0 {
            return;
        }
        self.timer_at = self.timer_at + Duration::from_nanos(stages * period);
        for _ in 0..stages.min(STAGES) {
            self.time_stage = self.time_stage.saturating_add(1);
            self.rise();
        }
        if stages > STAGES && self.is_slowed {
            self.rise_idle(stages - STAGES);
        }
    }

    fn sent(&mut self, bytes: u32) {
        if !self.is_slowed {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        while self.bytes >= self.params.rpg_byte_reset && self.is_slowed {
            self.bytes -= self.params.rpg_byte_reset;
            self.byte_stage = self.byte_stage.saturating_add(1);
            self.rise();
        }
    }

    fn notified(&mut self, now: Instant) {
        self.cut_unless_too_soon(now);
    }
}

/// The parameters with each value in its range.
fn in_range(params: &DcqcnParams) -> DcqcnParams {
    DcqcnParams {
        rpg_time_reset: params.rpg_time_reset.max(1),
        rpg_byte_reset: params.rpg_byte_reset.max(1),
        rpg_gd: params.rpg_gd.clamp(10, 30),
        rpg_min_dec_fac: params.rpg_min_dec_fac.min(100),
        rpg_min_rate: params.rpg_min_rate.max(1),
        dce_tcp_rtt: params.dce_tcp_rtt.max(1),
        dce_tcp_g: params.dce_tcp_g.min(1023),
        initial_alpha_value: params.initial_alpha_value.min(1023),
        ..*params
    }
}

fn bps(mbps: u32) -> u64 {
    u64::from(mbps) * 1_000_000
}

fn micros(micros: u32) -> u64 {
    u64::from(micros) * 1000
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// (`part` / 1024) to the power of `exponent`, in units of 2^-32.
fn power(part: u16, mut exponent: u64) -> u64 {
    let (mut result, mut base) = (1 << 32, u64::from(part) << 22);
    while exponent > 0 && result > 0 {
        if exponent & 1 == 1 {
            result = (result * base) >> 32;
        }
        base = (base * base) >> 32;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests;
