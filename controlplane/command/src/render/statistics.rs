//! Texts of counters and of lcores' turns.

use super::table::Table;
use crate::answer::{Counter, LcoreRuntime, Scraped, StageRuntime};

/// Returns the text of `show counters`.
pub(super) fn counters(counters: &[Counter]) -> String {
    let mut table = Table::new(&["Device", "Counter", "Value", "Meaning"]);
    for counter in counters {
        let of = match counter.object.as_str() {
            "" => counter.device.clone(),
            object => format!("{} {object}", counter.device),
        };
        let value = counter.value.to_string();
        table.row([of, counter.name.clone(), value, counter.meaning.clone()]);
    }
    table.text()
}

/// Returns the text of `show runtime` about one lcore.
pub(super) fn runtime(of: &LcoreRuntime) -> String {
    let share = |cycles: u64| share(cycles, of.cycles);
    let mut table =
        Table::new(&["Stage", "Calls", "Packets", "Cycles/packet", "Cycles/call", "Share"]);
    for stage in &of.stages {
        let StageRuntime { stage, calls, packets, cycles } = stage;
        table.row([
            stage.clone(),
            calls.to_string(),
            packets.to_string(),
            ratio(*cycles, *packets),
            ratio(*cycles, *calls),
            share(*cycles),
        ]);
    }
    let idle_turns = (of.idle_turns.to_string(), ratio(of.idle_cycles, of.idle_turns));
    let dash = || "-".to_owned();
    table.row(["idle".into(), idle_turns.0, dash(), dash(), idle_turns.1, share(of.idle_cycles)]);
    table.row(["rest".into(), dash(), dash(), dash(), dash(), share(of.rest_cycles)]);
    format!(
        "{} lcore {}: {} turns in {}.{:03} s\n{}",
        of.device,
        of.lcore,
        of.turns,
        of.time_us / 1_000_000,
        of.time_us / 1000 % 1000,
        table.text()
    )
}

/// Returns the rounded ratio of two counts; a dash if the second one is 0.
fn ratio(of: u64, by: u64) -> String {
    match by {
        0 => "-".to_owned(),
        by => (of.saturating_add(by / 2) / by).to_string(),
    }
}

fn share(of: u64, all: u64) -> String {
    match all {
        0 => "-".to_owned(),
        all => format!("{:.1} %", of as f64 / all as f64 * 100.0),
    }
}

/// Returns the text of a scrape, which only `uroce export` requests.
pub(super) fn scraped(of: &Scraped) -> String {
    counters(&of.counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lcores_time_is_divided_between_its_stages_idle_and_rest() {
        let stage = |stage: &str, calls, packets, cycles| StageRuntime {
            stage: stage.into(),
            calls,
            packets,
            cycles,
        };
        let lcore = LcoreRuntime {
            device: "uroce0".into(),
            lcore: 1,
            time_us: 1_002_003,
            cycles: 2000,
            turns: 17,
            idle_turns: 10,
            idle_cycles: 500,
            rest_cycles: 1,
            stages: vec![stage("receive", 5, 20, 999), stage("timers", 0, 0, 500)],
        };
        let golden = "\
uroce0 lcore 1: 17 turns in 1.002 s
Stage    Calls  Packets  Cycles/packet  Cycles/call  Share
receive  5      20       50             200          50.0 %
timers   0      0        -              -            25.0 %
idle     10     -        -              50           25.0 %
rest     -      -        -              -            0.1 %
";
        assert_eq!(runtime(&lcore), golden);
        let nothing = LcoreRuntime { stages: lcore.stages, ..LcoreRuntime::default() };
        assert!(
            runtime(&nothing).contains("rest     -      -        -              -            -")
        );
    }

    #[test]
    fn counters_of_objects_name_them() {
        let counter = |object: &str| Counter {
            device: "uroce0".into(),
            object: object.into(),
            name: "tx_bytes".into(),
            value: 7,
            meaning: "Bytes.".into(),
        };
        let golden = "\
Device           Counter   Value  Meaning
uroce0           tx_bytes  7      Bytes.
uroce0 QP 0x011  tx_bytes  7      Bytes.
";
        assert_eq!(counters(&[counter(""), counter("QP 0x011")]), golden);
    }
}
