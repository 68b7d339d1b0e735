//! The page: one HTML file with its plots, their figures and the machine; nothing comes from a
//! network.

use super::figures::{
    BARE, CORES, CYCLES, FAILOVER, Figure, LATENCY, LITTLE_LOSS, LOSS, OVER_LOAD, PROCESSES, QPS,
    REGIONS, STACKS, THROUGHPUT, ZERO_LOSS, figures, list, share_of,
};
use super::results::Results;
use crate::error::BenchError;
use crate::ndr::statistics::BoxStats;
use crate::plot::{Axis, Curve, Plot};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Names of the file, and of the folder of plots.
const FILE: &str = "index.html";
const PLOTS: &str = "plots";

/// Style of the page: light and dark, on a screen and on paper.
const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fffffe; --ink: #1a1a1b; --line: #ddd }
@media (prefers-color-scheme: dark) { :root { --paper: #181818; --ink: #e6e6e6; --line: #444 } }
body { background: var(--paper); color: var(--ink); font: 16px/1.45 sans-serif; margin: 0 auto;
  max-width: 60rem; padding: 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem }
figure { margin: 0; overflow-x: auto } figcaption { display: none; font-size: .85rem }
@media (max-width: 42rem) { figcaption { display: block } }
svg { max-width: 100%; min-width: 40rem; height: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem }
th, td { border-bottom: 1px solid var(--line); padding: .15rem .6rem; text-align: right }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2), td.text { text-align: left }
details { margin: .3rem 0; overflow-x: auto }
@media print { body { max-width: none; font-size: 11px } section { break-inside: avoid }
  details > *:not(summary) { display: none } }
";

/// Writes the page, and each of its plots as a file beside it. Returns the page's path.
pub(super) fn write(results: &Results, folder: &Path) -> Result<PathBuf, BenchError> {
    let plots = folder.join(PLOTS);
    std::fs::create_dir_all(&plots)
        .map_err(|error| BenchError::io(format_args!("making {}", plots.display()), error))?;
    let path = folder.join(FILE);
    save(&path, &html(results, &plots)?)?;
    Ok(path)
}

fn save(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text)
        .map_err(|error| BenchError::io(format_args!("writing {}", path.display()), error))
}

fn html(results: &Results, plots: &Path) -> Result<String, BenchError> {
    let all = figures(&results.entries);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>uroce: measurements</title>\n<style>{STYLE}</style></head>\n<body>\n\
         <h1>Measurements of uroce</h1>\n"
    );
    page += &about(results);
    for section in sections(results, &all) {
        page += &section.html(&all, plots)?;
    }
    page += &missing(results);
    page += "</body></html>\n";
    Ok(page)
}

/// What was measured, where, and how to read it.
fn about(results: &Results) -> String {
    let mut rows = String::new();
    if let Some(machine) = results.machine.as_object() {
        for (key, value) in machine {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            row(&mut rows, &[key, &value]);
        }
    }
    let plan = toml::to_string(&results.plan).unwrap_or_default();
    format!(
        "<p>Medians of up to {} rounds, in which each point was measured once. Bars go from the \
         least value to the greatest. Broken lines are limits.</p>\n\
         <table>{rows}</table>\n<details><summary>Plan</summary><pre>{}</pre></details>\n",
        results.plan.rounds,
        escaped(&plan)
    )
}

/// What has no result, with the reason.
fn missing(results: &Results) -> String {
    let mut reasons: Vec<(String, &str, usize)> = Vec::new();
    let without_result = results.entries.iter().flat_map(|entry| {
        let all: Vec<&str> = match &entry.outcome {
            Err(reason) => vec![reason],
            Ok(value) => {
                let points = list(&value["points"]).iter();
                points.filter_map(|point| point["impossible"].as_str()).collect()
            }
        };
        all.into_iter().map(|reason| (entry.work.name(), reason))
    });
    for (name, reason) in without_result {
        match reasons.iter_mut().find(|one| one.0 == name && one.1 == reason) {
            Some(known) => known.2 += 1,
            None => reasons.push((name, reason, 1)),
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut rows = "<tr><th>measurement</th><th>reason</th><th>rounds</th></tr>".to_owned();
    for (name, reason, count) in reasons {
        row(&mut rows, &[&name, reason, &count.to_string()]);
    }
    format!("<section><h2>Not measured</h2><table>{rows}</table></section>\n")
}

fn row(rows: &mut String, cells: &[&str]) {
    let cells = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
    // Writing to a string cannot fail.
    let _ = writeln!(rows, "<tr>{}</tr>", cells.collect::<String>());
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A plot with its figures.
struct Section {
    /// The part of which it shows the figures.
    part: String,
    title: String,
    across: &'static str,
    up: String,
    is_log: bool,
    /// Limits: name, and value at each place; `None` where it has none.
    limits: Vec<(String, Limit)>,
}

/// A limit that is drawn.
#[derive(Clone, Copy)]
enum Limit {
    /// One value at all places.
    Level(f64),
    /// A value in proportion to the place, through the first one measured.
    Linear,
}

fn section(part: &str, title: &str, across: &'static str, up: &str) -> Section {
    let (part, title, up) = (part.to_owned(), title.to_owned(), up.to_owned());
    Section { part, title, across, up, is_log: false, limits: Vec::new() }
}

/// Returns the sections that the figures have something for.
fn sections(results: &Results, all: &[Figure]) -> Vec<Section> {
    let mut list = of_rates(results);
    list.extend(of_latency(all));
    list.extend(of_cycles(all));
    list.extend(of_the_rest());
    list.retain(|section| all.iter().any(|figure| figure.part == section.part));
    list
}

/// What stands below a plot over frames of one size, of mixed sizes, and of long messages.
const FRAME: &str = "frame, bytes (msg: message)";

/// Zero-loss rates against the size.
fn of_rates(results: &Results) -> Vec<Section> {
    let mut list = Vec::new();
    let mut throughput = section(
        THROUGHPUT,
        "Throughput without loss against the frame; limits are the bare port and wires",
        FRAME,
        "frames, Gb/s",
    );
    // The bare port's rate of short frames is far above, and that of long ones further.
    throughput.is_log = true;
    let wires = results.plan.link.iter();
    let level = |gbps: &u32| (format!("{gbps} Gb/s wire"), Limit::Level(f64::from(*gbps)));
    throughput.limits = wires.map(level).collect();
    list.push(throughput);
    for &link in &results.plan.link {
        let part = share_of(link.into());
        let title = format!("Share of a {link} Gb/s wire that is filled without loss");
        let mut share = section(&part, &title, FRAME, "share, %");
        share.limits = vec![("a full wire".to_owned(), Limit::Level(100.0))];
        list.push(share);
    }
    list.push(section(ZERO_LOSS, "Highest message rate without loss", FRAME, "messages, M/s"));
    list.push(section(
        LITTLE_LOSS,
        "Highest message rate that loses at most 0.5 %",
        FRAME,
        "messages, M/s",
    ));
    list
}

/// Latency against the size, and over load.
fn of_latency(all: &[Figure]) -> Vec<Section> {
    let log = |section| Section { is_log: true, ..section };
    let mut list = vec![log(section(
        LATENCY,
        "Latency of one message at a time: half a round trip of SEND",
        "message, bytes",
        "latency, µs",
    ))];
    for part in parts(all, OVER_LOAD) {
        let point = part.rsplit(", ").next().unwrap_or_default();
        let title = format!("Latency over load, {point}: from when a message was due");
        list.push(log(section(&part, &title, "share of the zero-loss rate", "latency, µs")));
    }
    list
}

/// Cycles of an lcore by stage, for each end and service.
fn of_cycles(all: &[Figure]) -> Vec<Section> {
    let list = parts(all, CYCLES).into_iter().map(|part| {
        let (end, service) = part.rsplit_once(", ").unwrap_or_default();
        let end = end.rsplit(", ").next().unwrap_or_default();
        let title = format!("{service}: cycles of the {end}'s lcore for a message, by stage");
        let cycles = section(&part, &title, FRAME, "cycles, in a closed loop");
        Section { is_log: true, ..cycles }
    });
    list.collect()
}

/// Scaling, losses, failover, and other stacks.
fn of_the_rest() -> Vec<Section> {
    let linear = vec![("linear".to_owned(), Limit::Linear)];
    let cores = "Throughput against pairs of cores";
    let cores = section(CORES, cores, "pairs of cores", "payload, Gb/s");
    vec![
        section(
            QPS,
            "Rate of small messages against the number of queue pairs",
            "queue pairs",
            "messages, M/s",
        ),
        section(
            REGIONS,
            "Rate of small messages against the number of memory regions that they go to",
            "memory regions",
            "messages, M/s",
        ),
        Section { limits: linear, ..cores },
        section(
            PROCESSES,
            "Throughput of all pairs of processes together, in the local fabric",
            "pairs of processes at the same time",
            "payload, Gb/s",
        ),
        section(
            LOSS,
            "Goodput against the probability of loss each way",
            "probability of loss",
            "goodput, Gb/s",
        ),
        section(
            FAILOVER,
            "Gap when a link is cut, until the other link carries on",
            "queue pairs on the link",
            "gap, ms",
        ),
        section(
            STACKS,
            "Throughput beside other stacks, messages of 64 KiB, one connection",
            "stack",
            "payload, Gb/s",
        ),
    ]
}

/// Returns the parts with this beginning, in their order.
fn parts(all: &[Figure], beginning: &str) -> Vec<String> {
    unique(all.iter().filter(|figure| figure.part.starts_with(beginning)).map(|one| &one.part))
}

/// Returns each text once, in the order of the first ones.
fn unique<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for text in texts {
        if !list.contains(text) {
            list.push(text.clone());
        }
    }
    list
}

/// Points of a curve and their spreads.
type Drawn = (Vec<(f64, f64)>, Vec<(f64, f64)>);

impl Section {
    fn html(&self, all: &[Figure], plots: &Path) -> Result<String, BenchError> {
        let mine: Vec<&Figure> = all.iter().filter(|figure| figure.part == self.part).collect();
        let svg = self.svg(&mine)?;
        let letters = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let name: String = self.part.replace(", ", "-").chars().map(letters).collect();
        save(&plots.join(name).with_extension("svg"), &svg)?;
        Ok(format!(
            "<section><h2>{}</h2>\n<figure><figcaption>Scroll sideways for the rest of the plot.\
             </figcaption>{}</figure>\n\
             <details><summary>Figures</summary><table>{}</table></details></section>\n",
            escaped(&self.title),
            svg,
            self.rows(&mine)
        ))
    }

    fn svg(&self, mine: &[&Figure]) -> Result<String, BenchError> {
        let places = unique(mine.iter().map(|figure| &figure.place));
        let mut series = unique(mine.iter().map(|figure| &figure.series));
        // Limits stand behind what was measured.
        series.sort_by_key(|name| name == BARE);
        let of_series = |name: &String| -> Drawn {
            let points = places.iter().enumerate().filter_map(|(at, place)| {
                let figure = mine.iter().find(|one| one.series == *name && one.place == *place)?;
                let stats = BoxStats::of(&figure.values);
                Some(((at as f64, stats.median), (stats.min, stats.max)))
            });
            points.unzip()
        };
        let mut names = series.clone();
        let mut drawn: Vec<Drawn> = series.iter().map(of_series).collect();
        let measured = drawn.len();
        for (name, limit) in &self.limits {
            let number = |place: &String| place.parse::<f64>().unwrap_or(1.0);
            let first = drawn.first().and_then(|(points, _)| points.first());
            let each = first.map_or(0.0, |(at, value)| value / number(&places[*at as usize]));
            let points = places.iter().enumerate().map(|(at, place)| match limit {
                Limit::Level(level) => (at as f64, *level),
                Limit::Linear => (at as f64, each * number(place)),
            });
            names.push(name.clone());
            drawn.push((points.collect(), Vec::new()));
        }
        let curves: Vec<Curve<'_>> = names
            .iter()
            .zip(&drawn)
            .enumerate()
            .map(|(at, (name, (points, spreads)))| {
                let is_limit = at >= measured || name == BARE;
                Curve { name, points, spreads: if is_limit { &[] } else { spreads }, is_limit }
            })
            .collect();
        let Self { across: title, is_log, .. } = *self;
        let (across, up) = (Axis::Values { title, names: &places }, self.up.as_str());
        Plot { title: "", across, up, is_log, curves: &curves, marks: &[] }.svg()
    }

    fn rows(&self, mine: &[&Figure]) -> String {
        let mut rows = "<tr><th>curve</th><th>at</th><th>least</th><th>q1</th><th>median</th>\
                        <th>q3</th><th>most</th><th>rounds</th><th>unit</th></tr>"
            .to_owned();
        for figure in mine {
            let BoxStats { min, q1, median, q3, max } = BoxStats::of(&figure.values);
            let number = |value: f64| format!("{value:.4}");
            let cells = [min, q1, median, q3, max].map(number);
            let count = figure.values.len().to_string();
            let [min, q1, median, q3, max] = cells.each_ref().map(String::as_str);
            let unit = figure.unit;
            row(
                &mut rows,
                &[&figure.series, &figure.place, min, q1, median, q3, max, &count, unit],
            );
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::quickstart::Folder;
    use crate::report::plan::Plan;
    use crate::report::results::Entry;
    use crate::report::work::Work;
    use serde_json::json;

    #[test]
    fn a_page_stands_alone_and_has_what_was_measured_and_what_was_not() {
        let folder = Folder::new().expect("a folder");
        let plan = Plan::read("minute").expect("a plan");
        let mut results = Results::open(folder.path(), &plan).expect("a report");
        for round in 0..2 {
            let value = json!({ "points": [{ "messages_per_s": 1.5e6 }] });
            results.add(Entry { work: Work::Qps(16), round, outcome: Ok(value) }).expect("kept");
            let outcome = Err("failed: the other end is gone <&>".to_owned());
            results.add(Entry { work: Work::Loss, round, outcome }).expect("kept");
            let work = Work::Rates { service: "UD".to_owned(), size: "9000".to_owned() };
            let value = json!({ "points": [{ "impossible": "longer than the path MTU" }] });
            results.add(Entry { work, round, outcome: Ok(value) }).expect("kept");
            for pairs in [2, 4] {
                let value = json!({ "gbps": 10.0 });
                results
                    .add(Entry { work: Work::Cores(pairs), round, outcome: Ok(value) })
                    .expect("kept");
            }
        }
        let path = write(&results, folder.path()).expect("a page");
        let page = std::fs::read_to_string(path).expect("text");
        assert!(folder.path().join("plots/queue-pairs.svg").is_file());
        for part in ["Rate of small messages against", "<svg ", "1.5000", "dpdk", "rounds = 2"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains("the other end is gone &lt;&amp;&gt;</td><td>2</td>"), "{page}");
        assert!(page.contains("UD 9000</td><td>longer than the path MTU</td><td>2"), "{page}");
        // Two pairs reach 10 Gb/s: in proportion four are 20, and the axis goes beyond.
        assert!(page.contains("\n20\n</text>"), "{page}");
        // The only addresses are names of what is in the page.
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
        assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("@import"));
    }
}
