//! `uroce-perf report`: a plan becomes a page, can be stopped and goes on, and is compared.

use super::common::{Run, run};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder for a plan and its report, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str, plan: &str) -> Self {
        let place = std::env::temp_dir().join(format!("uroce-{name}-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a new folder");
        std::fs::write(place.join("plan.toml"), plan).expect("a plan");
        Self(place)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    fn entries(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join("out/results.jsonl")).unwrap_or_default();
        text.lines().skip(1).map(str::to_owned).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn report<'a>(plan: &'a str, out: &'a str) -> [&'a str; 5] {
    ["report", "--plan", plan, "-o", out]
}

#[test]
fn the_plan_of_a_minute_becomes_a_page_with_every_plot() {
    let place = Place::new("report-minute", "");
    let out = place.path("out");
    run(&report("minute", &out)).succeeded();
    let page = std::fs::read_to_string(Path::new(&out).join("index.html")).expect("the page");
    for title in [
        "Throughput without loss",
        "Share of a 100 Gb/s wire",
        "Highest message rate without loss",
        "Latency of one message at a time",
        "Latency over load, RC 1518",
        "RC: cycles of the sender's lcore",
        "number of queue pairs",
        "number of memory regions",
        "pairs of cores",
        "pairs of processes",
        "probability of loss",
        "Gap when a link is cut",
        "beside other stacks",
    ] {
        assert!(page.contains(title), "{title}: {page}");
    }
    let missing: Vec<String> =
        place.entries().into_iter().filter(|line| line.contains("failed: ")).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let same = run(&["report", "--compare", &out, &out]).succeeded();
    assert!(same.stdout.contains("no difference"), "{same:?}");
}

#[test]
fn a_report_that_was_stopped_goes_on_and_measures_nothing_twice() {
    let plan = "rounds = 3\n[latency]\nsizes = [2, 64]\n[qps]\ncounts = [1]\n";
    let place = Place::new("report-stopped", plan);
    let (plan, out) = (place.path("plan.toml"), place.path("out"));
    let mut first = Run::start(&report(&plan, &out));
    let deadline = Instant::now() + Duration::from_secs(60);
    while place.entries().len() < 2 {
        assert!(Instant::now() < deadline, "it measures nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill();
    drop(first);
    let before = place.entries();
    run(&report(&plan, &out)).succeeded();
    let after = place.entries();
    assert_eq!(after.len(), 9, "{after:?}");
    let whole = before.iter().filter(|line| line.ends_with("}}")).count();
    assert_eq!(after[..whole], before[..whole]);
    let again = run(&report(&plan, &out)).succeeded();
    assert!(again.stdout.contains("9 results, 0 missing"), "{again:?}");
    assert_eq!(place.entries(), after);
}

/// Latency of 64 KiB through a bottleneck, so that its rate decides nearly all of the latency.
fn with_a_bottleneck(name: &str, mbps: u32) -> Place {
    let place = Place::new(name, "");
    let device = |name: &str, address: &str, more: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nidle = \"sleep\"\n[[device.port]]\nethdev = {{ ring = \"delayed\" }}\n\
             ip = [\"{address}\"]\nmtu = 4200\n{more}\n"
        )
    };
    let limit = format!("bottleneck = {{ rate = \"{mbps}M\", queue = \"1MB\" }}");
    let config =
        device("server", "198.18.0.1/24", &limit) + &device("client", "198.18.0.2/24", &limit);
    let file = place.path("devices.toml");
    std::fs::write(&file, config).expect("a configuration");
    let plan = format!(
        "rounds = 6\noptions = [\"--config\", \"{file}\"]\n[latency]\nsizes = [65536]\n\
         messages = 200\n"
    );
    std::fs::write(place.path("plan.toml"), plan).expect("a plan");
    place
}

#[test]
fn five_percent_more_delay_is_named_and_fails_the_comparison() {
    // Most of a message's 1.3 ms is its time in a bottleneck of 400 Mb/s.
    let outs = [("report-before", 400), ("report-after", 380)].map(|(name, mbps)| {
        let place = with_a_bottleneck(name, mbps);
        run(&report(&place.path("plan.toml"), &place.path("out"))).succeeded();
        place
    });
    let [before, after] = outs.each_ref().map(|place| place.path("out"));
    let worse = run(&["report", "--compare", &before, &after]);
    assert_eq!(worse.code, Some(1), "{worse:?}");
    let line = worse.stdout.lines().find(|line| line.ends_with("latency: 50 %, 65536"));
    let change = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    assert!(change.is_some_and(|percent| (3.5..7.0).contains(&percent)), "{worse:?}");
    let same = run(&["report", "--compare", &before, &before]).succeeded();
    assert!(same.stdout.contains("no difference"), "{same:?}");
}

#[test]
fn a_plan_with_an_unknown_key_is_one_clear_line_and_measures_nothing() {
    let place = Place::new("report-wrong", "rounds = 1\nsize = [8]\n");
    let (plan, out) = (place.path("plan.toml"), place.path("out"));
    let output = run(&report(&plan, &out));
    assert_eq!((output.code, output.stderr.lines().count()), (Some(2), 1), "{output:?}");
    assert!(output.stderr.contains("line 2: unknown field `size`"), "{output:?}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_report_without_any_result_has_failed() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 128) {
        return eprintln!("SKIP: this machine has CPUs for 64 pairs of cores");
    }
    let place = Place::new("report-nothing", "rounds = 1\n[cores]\ncounts = [64]\n");
    let (plan, out) = (place.path("plan.toml"), place.path("out"));
    let output = run(&report(&plan, &out));
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("none of the 1 measurements has a result"), "{output:?}");
    assert!(output.stderr.contains("CPUs are needed"), "{output:?}");
    assert!(Path::new(&out).join("index.html").exists());
}

#[test]
fn two_processes_of_the_local_fabric_are_measured_too() {
    let plan = "rounds = 1\nends = \"local\"\n[latency]\nsizes = [2]\n";
    let place = Place::new("report-local", plan);
    let (plan, out) = (place.path("plan.toml"), place.path("out"));
    let output = run(&report(&plan, &out)).succeeded();
    assert!(output.stdout.contains("1 results, 0 missing"), "{output:?}: {:?}", place.entries());
}
