//! Command that runs the simulator: random work under random faults until a number of packets is
//! sent.
//!
//! The exit code is 0 if the oracle found nothing, 1 if it did, 2 for wrong arguments. After a
//! failure the command prints the seed, the violation and the last lines of the trace, and writes a
//! pcapng of the failing run.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use uroce_sim::{Campaign, Outcome, Rates, Record, Summary};

const USAGE: &str = "\
uroce-sim [--apm] [--packets N] [--messages N] [--seed S] [--qps Q] [--faults F] [--pcap FILE]

  --apm        two paths for each connection, which are cut and mended while QPs migrate, are
               re-armed, drained, resumed, paced and modified
  --packets N  number of packets to send, in one or more runs (default 1000000)
  --messages N number of messages to complete, with any number of packets
  --seed S     seed of the first run (default: the time); --packets 1 repeats that run only
  --qps Q      connections of each run (default: random, 1 to 16)
  --faults F   none, or a list of loss, burst, dup, reorder, corrupt, truncate and delay such as
               loss=0.01,dup=0.1
               (default: random for each direction and fault, 0 to 0.1)
  --pcap FILE  file for the packets of a failing run (default: uroce-sim-SEED.pcapng in the
               directory for temporary files)
";

/// Number of frames of a failing run that are kept, the last ones.
const FRAMES_KEPT: usize = 200_000;

/// Number of lines of the trace that are printed.
const LINES_SHOWN: usize = 60;

struct Arguments {
    campaign: Campaign,
    pcap: Option<PathBuf>,
    /// The options that determine a run, as they were given.
    shape: String,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("uroce-sim: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let begin = Instant::now();
    let mut shown = begin;
    let (summary, failure) = arguments.campaign.run(FRAMES_KEPT, |sum| {
        if io::stderr().is_terminal() && shown.elapsed().as_millis() > 200 {
            shown = Instant::now();
            let _ = write!(io::stderr(), "\r{} packets", sum.packets);
        }
    });
    if io::stderr().is_terminal() {
        eprint!("\r");
    }
    let line = line(&summary, failure.is_some(), begin.elapsed().as_secs_f64());
    println!("first seed {} {line}", arguments.campaign.seed);
    match failure {
        None => ExitCode::SUCCESS,
        Some(outcome) => {
            report(&outcome, &arguments);
            ExitCode::FAILURE
        }
    }
}

fn line(sum: &Summary, has_failed: bool, seconds: f64) -> String {
    let faults = &sum.faults;
    format!(
        "packets {} seeds {} faults {} (lost {} duplicated {} delayed {} corrupted {} \
         truncated {} full {} troubles {}) \
         messages {} (RD {} XRC {}) verified {} MB dead connections {}{} violations {} \
         in {seconds:.1} s, {:.0} packets/s",
        sum.packets,
        sum.seeds,
        faults.total(),
        faults.lost,
        faults.duplicated,
        faults.delayed,
        faults.corrupted,
        faults.truncated,
        faults.refused,
        faults.troubles,
        sum.messages,
        sum.rd_messages,
        sum.xrc_messages,
        sum.bytes / 1_000_000,
        sum.dead,
        match sum.operations {
            0 => String::new(),
            count => format!(" migrations {} of {count} operations", sum.migrations),
        },
        u8::from(has_failed),
        sum.packets as f64 / seconds,
    )
}

fn report(outcome: &Outcome, arguments: &Arguments) {
    let (Some(violation), Some(record)) = (&outcome.violation, &outcome.record) else {
        println!("VIOLATION that was not reproduced when its seed was run again");
        return;
    };
    for line in record.tail(LINES_SHOWN) {
        println!("{line}");
    }
    println!("VIOLATION {violation}");
    let path = arguments.pcap.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("uroce-sim-{}.pcapng", violation.seed))
    });
    match write_pcap(&path, record) {
        Ok(()) => println!("packets: {}", path.display()),
        Err(error) => println!("packets: {} could not be written: {error}", path.display()),
    }
    println!("again: uroce-sim --seed {} --packets 1{}", violation.seed, arguments.shape);
}

fn write_pcap(path: &PathBuf, record: &Record) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    record.write_pcapng(&mut out)?;
    out.flush()
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let campaign = Campaign { seed: time.as_nanos() as u64, ..Campaign::default() };
    let mut arguments = Arguments { campaign, pcap: None, shape: String::new() };
    while let Some(word) = words.next() {
        if word == "-h" || word == "--help" {
            return Ok(None);
        }
        if word == "--apm" {
            arguments.campaign.has_control = true;
            arguments.shape += " --apm";
            continue;
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        if matches!(word.as_str(), "--qps" | "--faults") {
            arguments.shape += &format!(" {word} {value}");
        }
        let campaign = &mut arguments.campaign;
        match word.as_str() {
            "--packets" => campaign.packets = number(&word, &value)?,
            "--messages" => {
                campaign.messages = number(&word, &value)?;
                campaign.packets = 0;
            }
            "--seed" => campaign.seed = number(&word, &value)?,
            "--qps" => campaign.connections = Some(connections(&value)?),
            "--faults" => campaign.rates = Some(faults(&value)?),
            "--pcap" => arguments.pcap = Some(value.into()),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(Some(arguments))
}

fn number(word: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|error| format!("{word} {value}: {error}"))
}

fn connections(value: &str) -> Result<usize, String> {
    match number("--qps", value)? {
        count @ 1..=100 => Ok(count as usize),
        _ => Err(format!("--qps {value}: 1 to 100 are possible")),
    }
}

fn faults(value: &str) -> Result<Rates, String> {
    let mut rates = Rates::NONE;
    if value == "none" {
        return Ok(rates);
    }
    for part in value.split(',') {
        let (name, rate) = part.split_once('=').ok_or(format!("--faults {part}: no rate"))?;
        let field = match name {
            "loss" => &mut rates.loss,
            "burst" => &mut rates.burst,
            "dup" => &mut rates.duplicate,
            "reorder" => &mut rates.reorder,
            "corrupt" => &mut rates.corrupt,
            "truncate" => &mut rates.truncate,
            "delay" => &mut rates.delay,
            _ => return Err(format!("--faults {part}: no such fault")),
        };
        match rate.parse() {
            Ok(rate) if (0.0..=0.1).contains(&rate) => *field = rate,
            _ => return Err(format!("--faults {part}: a rate is 0 to 0.1")),
        }
    }
    Ok(rates)
}
