//! Search for the highest loads that meet goals: a share of loss that a load may have at most.
//!
//! The method is that of MLRsearch (an extension of RFC 2544's throughput test, section 26.1), with
//! several goals in one search:
//!
//! - Trials of one length are made at a load until it is decided for a goal: most of at most
//!   [`Rules::trials`] trials meet the goal, and the load is a lower bound, or half of them fail,
//!   and it is an upper bound. One disturbed trial thus decides nothing, where RFC 2544's plain
//!   bisection would end in the wrong half.
//! - All goals share all trials. The tolerant goal is searched for first, which leaves little of
//!   the range to the strict one.
//! - The first load is an estimate that should be too high; it is doubled until it is. The next one
//!   is the rate that was delivered at it. From there the search goes in steps that double, until
//!   there are bounds on both sides, and halves what is between them until that is narrower than
//!   [`Rules::width`].
//!
//! The result of a goal is its lower bound: a load that has met the goal, not one in between.
//!
//! Not here: what a trial is. The search is a function of the trials' results alone.

/// What is searched for, and how precisely.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    /// Largest shares of loss, 0.0 to 1.0: one for each goal, in any order.
    pub(crate) goals: Vec<f64>,
    /// Width between the bounds of a goal, as a share of the upper one.
    pub(crate) width: f64,
    /// Most trials at a load; an odd number.
    pub(crate) trials: usize,
}

/// Most trials made for a goal. A system that is not disturbed takes a tenth of them.
const TRIALS_MAX: usize = 200;
/// Factor by which a step grows.
const GROWTH: f64 = 2.0;
/// Smallest load, as a share of the first, and how many times as high the highest is.
const LEAST: f64 = 1e-4;
const MOST: f64 = 1024.0;

/// A load and the shares of loss of its trials.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    /// Messages per second.
    pub(crate) rate: f64,
    /// Share of loss of each trial.
    pub(crate) losses: Vec<f64>,
}

/// What is said of a load with respect to a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The goal is met.
    Lower,
    /// The goal is not met.
    Upper,
    /// More trials are needed.
    Open,
}

/// Result of one goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// Highest load that meets the goal; 0.0 if none does.
    pub(crate) rate: f64,
    /// The reason for which the search has ended.
    pub(crate) end: End,
}

/// The reason for which a search has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The bounds are close enough to each other.
    Narrow,
    /// The highest load meets the goal: there is no limit within reach.
    Highest,
    /// Not even the smallest load meets the goal.
    Nothing,
    /// The trials contradicted each other for too long; the rate says nothing.
    Restless,
}

/// Searches around the load `first`. `trial` gets a load and returns its share of loss.
/// Returns the results in the order of the goals, and the loads in the order in which they were
/// tried first.
///
/// # Errors
///
/// The first error of `trial`.
pub(crate) fn search<E>(
    rules: &Rules,
    first: f64,
    trial: &mut dyn FnMut(f64) -> Result<f64, E>,
) -> Result<(Vec<Found>, Vec<Load>), E> {
    let mut search = Search { rules, first, loads: Vec::new(), made: 0 };
    let mut order: Vec<usize> = (0..rules.goals.len()).collect();
    order.sort_by(|left, right| rules.goals[*right].total_cmp(&rules.goals[*left]));
    let mut found = vec![Found { rate: 0.0, end: End::Nothing }; order.len()];
    for at in order {
        found[at] = search.goal(rules.goals[at], trial)?;
    }
    Ok((found, search.loads))
}

struct Search<'a> {
    rules: &'a Rules,
    first: f64,
    loads: Vec<Load>,
    /// Trials made for the present goal.
    made: usize,
}

impl Search<'_> {
    fn goal<E>(
        &mut self,
        goal: f64,
        trial: &mut dyn FnMut(f64) -> Result<f64, E>,
    ) -> Result<Found, E> {
        let mut step = self.rules.width;
        let mut last = None;
        self.made = 0;
        loop {
            let (lower, upper) = self.bounds(goal);
            let rate = match (lower, upper) {
                (Some(lower), None) if lower >= self.first * MOST => {
                    return Ok(Found { rate: lower, end: End::Highest });
                }
                (Some(lower), None) => (2.0 * lower).max(self.first),
                (None, None) => self.first,
                (None, Some(upper)) if upper <= self.first * LEAST => {
                    return Ok(Found { rate: 0.0, end: End::Nothing });
                }
                (None, Some(upper)) => self.below(upper, step),
                (Some(lower), Some(upper)) => {
                    // The bounds of the step before may differ from the width by a rounding.
                    if upper - lower <= upper * self.rules.width * (1.0 + 1e-9) {
                        return Ok(Found { rate: lower, end: End::Narrow });
                    }
                    let half = (upper - lower) / 2.0;
                    match last {
                        Some(Verdict::Lower) => lower + half.min(lower * step),
                        _ => upper - half.min(upper * step),
                    }
                }
            };
            if lower.is_some() || self.loads.len() > 1 {
                step *= GROWTH;
            }
            match self.decide(rate, goal, trial)? {
                Verdict::Open => {
                    return Ok(Found { rate: lower.unwrap_or(0.0), end: End::Restless });
                }
                verdict => last = Some(verdict),
            }
        }
    }

    /// Returns a load below one that is too high: the rate that was delivered at it, or a step less
    /// if that is lower.
    fn below(&self, upper: f64, step: f64) -> f64 {
        let worst = self.loads.iter().filter(|load| load.rate == upper);
        let loss = worst.flat_map(|load| &load.losses).copied().fold(0.0, f64::max);
        (upper * (1.0 - loss)).min(upper * (1.0 - step)).max(self.first * LEAST)
    }

    /// Makes trials at a load until it is decided for the goal.
    fn decide<E>(
        &mut self,
        rate: f64,
        goal: f64,
        trial: &mut dyn FnMut(f64) -> Result<f64, E>,
    ) -> Result<Verdict, E> {
        let at = match self.loads.iter().position(|load| load.rate == rate) {
            Some(at) => at,
            None => {
                self.loads.push(Load { rate, losses: Vec::new() });
                self.loads.len() - 1
            }
        };
        loop {
            let verdict = self.verdict(&self.loads[at], goal);
            if verdict != Verdict::Open || self.made >= TRIALS_MAX {
                return Ok(verdict);
            }
            self.made += 1;
            let loss = trial(rate)?;
            self.loads[at].losses.push(loss);
        }
    }

    fn verdict(&self, load: &Load, goal: f64) -> Verdict {
        let good = load.losses.iter().filter(|loss| **loss <= goal).count();
        let bad = load.losses.len() - good;
        if 2 * good > self.rules.trials {
            Verdict::Lower
        } else if 2 * bad >= self.rules.trials {
            Verdict::Upper
        } else {
            Verdict::Open
        }
    }

    /// Returns the lowest load that does not meet the goal, and the highest below it that does.
    fn bounds(&self, goal: f64) -> (Option<f64>, Option<f64>) {
        let of = |wanted| {
            let loads = self.loads.iter();
            loads.filter(move |load| self.verdict(load, goal) == wanted).map(|load| load.rate)
        };
        let upper = of(Verdict::Upper).reduce(f64::min);
        let lower = of(Verdict::Lower).filter(|rate| upper.is_none_or(|upper| *rate < upper));
        (lower.reduce(f64::max), upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const LIMIT: f64 = 1.234e6;
    const FIRST: f64 = 2e6;

    fn rules() -> Rules {
        Rules { goals: vec![0.0, 0.005], width: 0.005, trials: 3 }
    }

    fn run(mut system: impl FnMut(f64) -> f64) -> (Vec<Found>, usize) {
        let mut count = 0;
        let mut trial = |rate| {
            count += 1;
            Ok::<f64, Infallible>(system(rate))
        };
        let Ok((found, _)) = search(&rules(), FIRST, &mut trial);
        (found, count)
    }

    fn loss(rate: f64, limit: f64) -> f64 {
        (1.0 - limit / rate).max(0.0)
    }

    fn is_below(rate: f64, limit: f64, share: f64) -> bool {
        (limit * (1.0 - share)..=limit * (1.0 + 1e-9)).contains(&rate)
    }

    #[test]
    fn a_sharp_limit_is_found_within_the_width_for_both_goals_in_few_trials() {
        for limit in [LIMIT, FIRST * 0.99, FIRST * 3.3, FIRST * 100.0, 5e5, 3e3] {
            let (found, count) = run(|rate| loss(rate, limit));
            assert!(is_below(found[0].rate, limit, 0.006), "{limit}: {found:?}");
            assert!(is_below(found[1].rate, limit / 0.995, 0.006), "{limit}: {found:?}");
            assert!(found.iter().all(|found| found.end == End::Narrow));
            assert!(count <= 40, "{limit}: {count} trials");
        }
    }

    #[test]
    fn a_limit_where_losses_start_at_once_and_large_is_found_too() {
        // A whole trial fails, as when a connection breaks.
        let (found, count) = run(|rate| if rate > LIMIT { 1.0 } else { 0.0 });
        for found in found {
            assert!(is_below(found.rate, LIMIT, 0.006), "{found:?}");
        }
        assert!(count <= 80, "{count} trials");
    }

    #[test]
    fn a_noisy_limit_is_found_within_two_percent_in_nine_of_ten_searches() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut right = [0, 0];
        for _ in 0..200 {
            let mut noise = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            let (found, _) = run(|rate| {
                // One trial in ten is disturbed, and the limit moves by a third of a percent.
                let spurious = if noise() > 1.3 { 2e-4 } else { 0.0 };
                loss(rate, LIMIT * (1.0 + 0.003 * noise())).max(spurious)
            });
            for (right, found) in right.iter_mut().zip(found) {
                *right += usize::from((found.rate / LIMIT - 1.0).abs() < 0.02);
            }
        }
        assert!(right.iter().all(|right| *right >= 180), "{right:?} of 200");
    }

    #[test]
    fn without_a_limit_the_highest_load_is_the_result_and_says_so() {
        let (found, count) = run(|_| 0.0);
        assert_eq!(found, [Found { rate: FIRST * MOST, end: End::Highest }; 2]);
        assert_eq!(count, 2 * 11, "both goals share the trials");
    }

    #[test]
    fn what_always_loses_a_little_meets_only_the_tolerant_goal() {
        let (found, _) = run(|rate| loss(rate, LIMIT).max(1e-3));
        assert_eq!(found[0], Found { rate: 0.0, end: End::Nothing });
        assert!(is_below(found[1].rate, LIMIT / 0.995, 0.006), "{found:?}");
        let (found, _) = run(|_| 0.3);
        assert_eq!(found, [Found { rate: 0.0, end: End::Nothing }; 2]);
    }

    #[test]
    fn one_disturbed_trial_of_three_decides_nothing() {
        let mut count = 0;
        let (found, _) = run(|rate| {
            count += 1;
            if count % 3 == 0 { 0.5 } else { loss(rate, LIMIT) }
        });
        assert!(is_below(found[0].rate, LIMIT, 0.006), "{found:?}");
    }

    #[test]
    fn contradictions_end_the_search() {
        // Every other trial fails, so that no load is decided.
        let rules = Rules { trials: 999, ..rules() };
        let mut count = 0;
        let result = search(&rules, FIRST, &mut |_| {
            count += 1;
            Ok::<f64, Infallible>(if count % 2 == 0 { 0.1 } else { 0.0 })
        });
        let Ok((found, _)) = result;
        assert!(found.iter().all(|found| found.end == End::Restless), "{found:?}");
        assert_eq!(count, 2 * TRIALS_MAX, "each goal has trials of its own");
    }

    #[test]
    fn an_error_of_a_trial_ends_the_search() {
        let result = search(&rules(), FIRST, &mut |rate| {
            if rate < FIRST { Err("gone") } else { Ok(0.5) }
        });
        assert_eq!(result.expect_err("the second load"), "gone");
    }
}
