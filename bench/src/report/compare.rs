//! Comparison of two reports, figure by figure.
//!
//! The test is that of Mann and Whitney, two-sided, on the values of the rounds. It asks whether
//! values of one report tend to be above those of the other, and takes nothing for granted about
//! their distribution. A figure has changed if
//!
//! - the probability of a difference as large by chance is below [`ALPHA`], and
//! - the medians differ by more than [`LEAST`], so that what no reader cares for is left out.
//!
//! Each figure is tested for itself, so that of many a few differ by chance; the output says
//! how many that may be. (A correction for their number, such as that of Benjamini and Hochberg,
//! finds nothing with as few rounds as a report has.) A figure that the second report lacks counts
//! as fallen.
//!
//! The probability is exact, counted over all ways to share the ranks, also with ties. With few
//! rounds no difference can be as improbable as [`ALPHA`]; the comparison then says that it cannot
//! tell.

use super::figures::{Better, Figure};
use crate::perf::measure::median;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Largest probability of a difference by chance.
const ALPHA: f64 = 0.01;
/// Least difference of medians, as a share.
const LEAST: f64 = 0.02;
/// Most values of both reports for which all ways to share the ranks are counted.
const EXACT_MAX: usize = 60;

/// What a comparison says of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// No difference beyond the noise.
    Same,
    /// There are too few rounds to say anything.
    TooFew,
    /// The second report is better, by this share of the first.
    Rose(f64),
    /// The second report is worse, by this share of the first.
    Fell(f64),
}

/// Compares a figure of two reports.
fn verdict(first: &[f64], second: &[f64], better: Better) -> Verdict {
    if first.is_empty() || second.is_empty() {
        return Verdict::TooFew;
    }
    let (before, after) = (median(first), median(second));
    let change = if before == after { 0.0 } else { after / before - 1.0 };
    if least_probability(first.len(), second.len()) >= ALPHA {
        // Equal values need no test.
        return if change == 0.0 { Verdict::Same } else { Verdict::TooFew };
    }
    if change.abs() <= LEAST || probability(first, second) >= ALPHA {
        return Verdict::Same;
    }
    match (change > 0.0, better) {
        (true, Better::Higher) | (false, Better::Lower) => Verdict::Rose(change),
        (false, Better::Higher) | (true, Better::Lower) => Verdict::Fell(change),
    }
}

/// Returns the lines of a comparison of two reports, and the number of figures that fell.
pub(super) fn compare(first: &[Figure], second: &[Figure]) -> (String, usize) {
    let (lacking, lost) = lacking(first, second);
    let mut text = String::new();
    let (mut worse, mut changed, mut same, mut few) = (0, 0, 0, 0);
    for one in first {
        let Some(other) = second.iter().find(|other| other.is_of(one)) else { continue };
        let change = match verdict(&one.values, &other.values, one.better) {
            Verdict::Same => {
                same += 1;
                continue;
            }
            Verdict::TooFew => {
                few += 1;
                continue;
            }
            Verdict::Rose(change) => (change, "better"),
            Verdict::Fell(change) => {
                worse += 1;
                (change, "worse")
            }
        };
        changed += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            " {:<6} {:<+8.1} {:<12.4} {:<12.4} {:<8} {}",
            change.1,
            100.0 * change.0,
            median(&one.values),
            median(&other.values),
            one.unit,
            one.id()
        );
    }
    let head = " change [%]     first        second       unit     figure\n";
    let mut all = if changed > 0 { format!("{head}{text}") } else { String::new() };
    all += &lacking;
    let _ = match (changed, same + few) {
        (0, 0) => writeln!(all, " the two reports have no figure in common"),
        (0, _) if few == 0 => writeln!(all, " no difference: {same} figures"),
        _ => writeln!(
            all,
            " {changed} figures changed, {worse} of them for the worse; {same} did not"
        ),
    };
    if changed > 0 {
        let tested = changed + same;
        let _ = writeln!(
            all,
            " {tested} figures were tested: up to {:.2} differ by chance alone",
            ALPHA * tested as f64
        );
    }
    if few > 0 {
        let _ = writeln!(
            all,
            " {few} figures have too few rounds to tell: five in each report are the least"
        );
    }
    let _ = writeln!(
        all,
        " changed: Mann-Whitney U over the rounds, two-sided, p below {ALPHA}, and medians more than \
         {} % apart",
        100.0 * LEAST
    );
    (all, worse + lost)
}

/// Returns a line for each figure that one of the reports lacks, and the number of those that the
/// second one lacks.
fn lacking(first: &[Figure], second: &[Figure]) -> (String, usize) {
    let mut text = String::new();
    let mut lost = 0;
    for one in first.iter().filter(|one| !second.iter().any(|other| other.is_of(one))) {
        lost += 1;
        text += &format!(" only in the first report: {}\n", one.id());
    }
    for other in second.iter().filter(|other| !first.iter().any(|one| one.is_of(other))) {
        text += &format!(" only in the second report: {}\n", other.id());
    }
    (text, lost)
}

/// Returns a line for each property of machine and versions that differs.
pub(super) fn machines(first: &Value, second: &Value) -> String {
    let properties = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (first, second) = (properties(first), properties(second));
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "not said".to_owned(),
    };
    let differing = keys.into_iter().filter(|key| first.get(*key) != second.get(*key));
    let lines = differing
        .map(|key| format!(" {key}: {}, then {}\n", text(first.get(key)), text(second.get(key))));
    lines.collect()
}

/// Returns the smallest probability that samples of these sizes can have.
fn least_probability(first: usize, second: usize) -> f64 {
    let apart: Vec<f64> = (0..first + second).map(|value| value as f64).collect();
    let (first, second) = apart.split_at(first);
    probability(first, second)
}

/// Returns the two-sided probability of a sum of ranks as far from the middle as this one.
fn probability(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
    all.extend(second.iter().map(|value| (*value, false)));
    all.sort_by(|left, right| left.0.total_cmp(&right.0));
    // Twice the ranks, so that the mean rank of ties is a whole number.
    let mut ranks = vec![0usize; all.len()];
    let mut at = 0;
    while at < all.len() {
        let ties = all[at..].iter().take_while(|one| one.0 == all[at].0).count();
        ranks[at..at + ties].fill(2 * at + ties + 1);
        at += ties;
    }
    let sum: usize = ranks.iter().zip(&all).filter(|(_, one)| one.1).map(|(rank, _)| *rank).sum();
    let middle = first.len() * (all.len() + 1);
    let distance = sum.abs_diff(middle);
    if all.len() > EXACT_MAX {
        return by_the_normal_distribution(&ranks, first.len(), second.len(), distance);
    }
    // ways[count][sum]: ways to choose `count` of the ranks so far with this sum.
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; first.len() + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for count in (1..=first.len()).rev() {
            for sum in (rank..=most).rev() {
                ways[count][sum] += ways[count - 1][sum - rank];
            }
        }
    }
    let chosen = &ways[first.len()];
    let total: f64 = chosen.iter().sum();
    let far = chosen.iter().enumerate().filter(|(sum, _)| sum.abs_diff(middle) >= distance);
    far.map(|(_, ways)| ways).sum::<f64>() / total
}

/// Returns the probability for large samples, with the correction for ties.
fn by_the_normal_distribution(
    ranks: &[usize],
    first: usize,
    second: usize,
    distance: usize,
) -> f64 {
    let (m, n, all) = (first as f64, second as f64, ranks.len() as f64);
    let mut ties = 0.0;
    for group in ranks.chunk_by(|left, right| left == right) {
        let count = group.len() as f64;
        ties += count * count * count - count;
    }
    let variance = m * n / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    // The distance is that of twice the ranks; half a rank is the correction for continuity.
    let z = ((distance as f64 / 2.0 - 0.5).max(0.0)) / variance.sqrt();
    error_complement(z / std::f64::consts::SQRT_2)
}

/// The complementary error function for values from 0 up, to seven digits (Abramowitz and Stegun,
/// 7.1.26).
fn error_complement(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    factors.iter().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(id: &str, better: Better, values: Vec<f64>) -> Figure {
        Figure { values, ..Figure::new(["part", "series", id], "Gb/s", better) }
    }

    /// Values around a mean with noise of one percent.
    fn noisy(random: &mut fastrand::Rng, mean: f64) -> Vec<f64> {
        let mut noise = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        (0..6).map(|_| mean * (1.0 + 0.01 * noise())).collect()
    }

    #[test]
    fn probabilities_are_those_of_the_tables() {
        // Two samples of five that do not overlap: 2 of 252 ways.
        let apart = probability(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((apart - 2.0 / 252.0).abs() < 1e-12, "{apart}");
        // R: wilcox.test(c(1,4,6), c(2,3,5)) gives p = 1.
        assert!((probability(&[1.0, 4.0, 6.0], &[2.0, 3.0, 5.0]) - 1.0).abs() < 1e-12);
        assert_eq!(probability(&[1.0; 4], &[1.0; 4]), 1.0);
        // Both ways to compute agree where both can be used.
        let first: Vec<f64> = (0..30).map(f64::from).collect();
        let second: Vec<f64> = (0..30).map(|value| f64::from(value) + 7.5).collect();
        let exact = probability(&first, &second);
        let more: Vec<f64> = second.iter().copied().chain([22.0]).collect();
        let close = probability(&first, &more);
        assert!((exact.ln() - close.ln()).abs() < 0.3, "{exact} {close}");
    }

    #[test]
    fn a_report_does_not_differ_from_itself() {
        let mut random = fastrand::Rng::with_seed(1);
        let all: Vec<Figure> = (0..40)
            .map(|at| figure(&at.to_string(), Better::Higher, noisy(&mut random, 100.0)))
            .collect();
        let (text, fell) = compare(&all, &all);
        assert!(text.contains("no difference: 40 figures") && fell == 0, "{text}");
        let one = [figure("a", Better::Higher, vec![1.0])];
        assert!(compare(&one, &one).0.contains("no difference: 1 figures"));
    }

    #[test]
    fn another_run_of_the_same_thing_hardly_ever_differs() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut wrong = 0;
        for _ in 0..1000 {
            let (first, second) = (noisy(&mut random, 50.0), noisy(&mut random, 50.0));
            wrong += usize::from(verdict(&first, &second, Better::Higher) != Verdict::Same);
        }
        assert!(wrong <= 5, "{wrong} of 1000");
    }

    #[test]
    fn five_percent_less_is_seen_and_named() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut pair = |id: &str, better, factor: f64| {
            let values = noisy(&mut random, 100.0);
            let slower = noisy(&mut random, 100.0 * factor);
            (figure(id, better, values), figure(id, better, slower))
        };
        let (first, second): (Vec<_>, Vec<_>) = [
            pair("rate", Better::Higher, 0.95),
            pair("latency", Better::Lower, 1.05),
            pair("other", Better::Higher, 1.0),
            pair("gain", Better::Higher, 1.06),
        ]
        .into_iter()
        .unzip();
        let (text, fell) = compare(&first, &second);
        assert_eq!(fell, 2, "{text}");
        let worse: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(" worse"))
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        assert_eq!(worse, ["rate", "latency"], "{text}");
        assert!(text.contains("3 figures changed, 2 of them for the worse; 1 did not"), "{text}");
    }

    #[test]
    fn few_rounds_are_said_and_strangers_not_compared() {
        let of = |values: &[f64]| [figure("a", Better::Higher, values.to_vec())];
        let (text, _) = compare(&of(&[1.0, 2.0, 3.0]), &of(&[5.0, 6.0, 7.0]));
        assert!(text.contains("1 figures have too few rounds to tell"), "{text}");
        let (text, fell) = compare(&of(&[1.0]), &[figure("b", Better::Higher, vec![1.0])]);
        assert!(text.contains("no figure in common"), "{text}");
        assert!(text.contains("only in the first report: part: series, a\n"), "{text}");
        assert!(text.contains("only in the second report: part: series, b\n"), "{text}");
        assert_eq!(fell, 1, "what the second report lacks is worse");
    }

    #[test]
    fn something_instead_of_nothing_is_a_change() {
        let of = |value: f64| [figure("a", Better::Lower, vec![value; 6])];
        assert_eq!(verdict(&[0.0; 6], &[2.0; 6], Better::Lower), Verdict::Fell(f64::INFINITY));
        let (text, fell) = compare(&of(0.0), &of(2.0));
        assert!(fell == 1 && text.contains(" worse  +inf "), "{text}");
        assert_eq!(compare(&of(2.0), &of(0.0)).1, 0, "a time that became 0");
        assert_eq!(compare(&of(0.0), &of(0.0)).1, 0);
    }

    #[test]
    fn a_change_is_set_beside_what_chance_alone_changes() {
        let of = |value: f64, at: usize| figure(&at.to_string(), Better::Higher, vec![value; 6]);
        let first: Vec<Figure> = (0..200).map(|at| of(10.0, at)).collect();
        let mut second = first.clone();
        second[7] = of(9.0, 7);
        let (text, fell) = compare(&first, &second);
        assert!(text.contains("200 figures were tested: up to 2.00 differ by chance"), "{text}");
        assert_eq!(fell, 1);
    }

    #[test]
    fn machines_and_commits_that_differ_are_named() {
        let before = json!({ "commit": "a1", "cpus": 2, "cpu": "X" });
        let after = json!({ "commit": "b2", "cpus": 4, "cpu": "X" });
        assert_eq!(machines(&before, &after), " commit: a1, then b2\n cpus: 2, then 4\n");
        assert_eq!(machines(&before, &before), "");
    }
}
