//! The fuzz driver: runs the corpus, then mutations of it and of inputs that reached something new.

use crate::{Input, Target};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Length of the longest mutated input, in bytes.
const MAX_LEN: usize = 4096;
/// Length of an exploration, unless another is asked for.
const MOMENT: Duration = Duration::from_secs(1);
/// Number of attempts to make a failing input smaller.
const ATTEMPTS: u32 = 4000;

/// An input for which a target panicked.
#[derive(Debug)]
pub struct Finding {
    /// The input, minimized, as a line for the corpus.
    pub line: String,
    /// Text of the panic.
    pub message: String,
}

/// Runs a target as a test: its corpus, and a short exploration with a seed of its own. Panics if
/// an input is found that fails.
///
/// `UROCE_FUZZ_SECONDS` sets the length of the exploration, `UROCE_FUZZ_SEED` repeats one. Inputs
/// that reach something new are appended to files in the folder `UROCE_FUZZ_KEEP`.
pub fn fuzz(target: &Target) {
    let name = target.name;
    let seed = number("UROCE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let time = number("UROCE_FUZZ_SECONDS").map_or(MOMENT, Duration::from_secs);
    let fail = |Finding { line, message }: Finding| -> ! {
        panic!("{name}, UROCE_FUZZ_SEED={seed}: {message}\nfor corpus/{name}.txt: {line}")
    };
    let replayed = replay(target).unwrap_or_else(|finding| fail(finding));
    let (runs, kept) = explore(target, seed, time).unwrap_or_else(|finding| fail(finding));
    println!("{name}: {replayed} inputs replayed, {runs} explored, {} reached new", kept.len());
    if let Ok(folder) = std::env::var("UROCE_FUZZ_KEEP") {
        let lines = kept.iter().map(|input| to_hex(input) + "\n").collect::<String>();
        std::fs::write(format!("{folder}/{name}.txt"), lines).expect("a folder to keep inputs in");
    }
    assert!(replayed > 0, "an empty corpus shows nothing");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs all inputs of the corpus and the target's own seeds, and returns their number.
///
/// # Errors
/// The first finding.
pub fn replay(target: &Target) -> Result<usize, Finding> {
    let inputs = inputs(target);
    for input in &inputs {
        run(target, input).map_err(|message| finding(target, input, message))?;
    }
    Ok(inputs.len())
}

/// Runs random inputs for `time`. Returns their number, and the inputs that reached something new.
///
/// # Errors
/// The first finding.
pub fn explore(target: &Target, seed: u64, time: Duration) -> Result<(u64, Vec<Vec<u8>>), Finding> {
    let mut rng = Rng::with_seed(seed);
    let mut pool = inputs(target);
    let mut reached = BTreeSet::new();
    for input in &pool {
        reached.extend(run(target, input).unwrap_or_default());
    }
    let begin = Instant::now();
    let (mut runs, mut kept) = (0, Vec::new());
    while begin.elapsed() < time {
        let input = mutate(&mut rng, &pool);
        let new = run(target, &input).map_err(|message| finding(target, &input, message))?;
        runs += 1;
        let before = reached.len();
        reached.extend(new);
        if reached.len() > before {
            pool.push(input.clone());
            kept.push(input);
        }
    }
    Ok((runs, kept))
}

/// All inputs of the corpus and of the target's seeds.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let path = PathBuf::from(target.corpus).join(target.name);
    let text = std::fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut inputs: Vec<Vec<u8>> = lines.filter(|line| !line.is_empty()).map(from_hex).collect();
    inputs.extend((target.seeds)());
    inputs
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.map(|pair| byte(pair).unwrap_or_else(|| panic!("not hexadecimal: {text}"))).collect()
}

/// A corpus line for these bytes.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Runs an input. Returns what it reached, or the text of the panic.
fn run(target: &Target, bytes: &[u8]) -> Result<BTreeSet<u64>, String> {
    let mut input = Input::new(bytes);
    let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&mut input)));
    result.map(|()| input.reached()).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

/// Minimizes a failing input: leaves bytes out, then sets bytes to zero, as long as it still fails.
fn finding(target: &Target, bytes: &[u8], message: String) -> Finding {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let mut input = bytes.to_vec();
    let mut attempts = ATTEMPTS;
    let mut fails = |input: &[u8]| {
        attempts = attempts.saturating_sub(1);
        attempts > 0 && run(target, input).is_err()
    };
    let mut len = input.len().next_power_of_two();
    while len > 0 {
        let mut at = 0;
        while at < input.len() {
            let mut shorter = input.clone();
            shorter.drain(at..input.len().min(at + len));
            if fails(&shorter) { input = shorter } else { at += len }
        }
        len /= 2;
    }
    for at in 0..input.len() {
        let mut plainer = input.clone();
        plainer[at] = 0;
        if plainer != input && fails(&plainer) {
            input = plainer;
        }
    }
    panic::set_hook(hook);
    Finding { line: to_hex(&input), message }
}

/// An input of the pool changed in a few places, or a random one.
fn mutate(rng: &mut Rng, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut input = match rng.choice(pool) {
        Some(input) if rng.u8(..16) > 0 => input.clone(),
        _ => (0..rng.usize(..200)).map(|_| rng.u8(..)).collect(),
    };
    for _ in 0..1 << rng.u8(..4) {
        change(rng, &mut input, pool);
    }
    input.truncate(MAX_LEN);
    input
}

fn change(rng: &mut Rng, input: &mut Vec<u8>, pool: &[Vec<u8>]) {
    let len = input.len();
    if len == 0 {
        input.push(rng.u8(..));
        return;
    }
    let at = rng.usize(..len);
    match rng.u8(..8) {
        0 => input[at] ^= 1 << rng.u8(..8),
        1 => input[at] = rng.u8(..),
        2 => input[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap_or(&0),
        3 => input[at] = input[at].wrapping_add(rng.u8(..16)).wrapping_sub(8),
        4 => drop(input.drain(at..len.min(at + rng.usize(1..16)))),
        5 => drop(input.splice(at..at, (0..rng.usize(1..16)).map(|_| rng.u8(..)))),
        6 => input.truncate(at),
        _ => {
            // Replaces the rest by the end of another input.
            let Some(other) = rng.choice(pool).filter(|other| !other.is_empty()) else { return };
            let from = rng.usize(..other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
