//! Measurements beside the prompt: `bench`.

use clap::{Args, Subcommand, value_parser};

/// Objects of `bench`: perftest's tests, and what becomes of one.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Bench {
    /// Measure the bandwidth of RDMA WRITE, by `uroce-perf` beside the prompt, on its own device
    #[command(name = "write_bw")]
    WriteBw(Test),
    /// Measure the bandwidth of RDMA READ
    #[command(name = "read_bw")]
    ReadBw(Test),
    /// Measure the bandwidth of SEND
    #[command(name = "send_bw")]
    SendBw(Test),
    /// Measure the rate of ATOMIC operations
    #[command(name = "atomic_bw")]
    AtomicBw(Test),
    /// Measure the latency of RDMA WRITE: half of a round trip
    #[command(name = "write_lat")]
    WriteLat(Test),
    /// Measure the latency of RDMA READ: a round trip
    #[command(name = "read_lat")]
    ReadLat(Test),
    /// Measure the latency of SEND: half of a round trip
    #[command(name = "send_lat")]
    SendLat(Test),
    /// Measure the latency of ATOMIC operations: a round trip
    #[command(name = "atomic_lat")]
    AtomicLat(Test),
    /// Show the measurement that runs, or the last one: its state and its table as far as it is
    Show,
    /// Wait for the end of the measurement, and show its table
    Wait {
        /// Longest wait in milliseconds, up to a day; without it, there is no limit
        #[arg(long, value_name = "MS", value_parser = value_parser!(u32).range(..=86_400_000))]
        timeout: Option<u32>,
    },
    /// End the measurement that runs
    Stop,
}

/// The words after the name of a test.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Test {
    /// perftest's options, those of `uroce-perf` for its device, and the server; without a server
    /// it is the server, with `--in-process` both ends. `uroce-perf TEST --help` has all of them
    #[arg(value_name = "OPTIONS SERVER", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

impl Bench {
    /// Returns perftest's name of the test and the words after it; `None` for what is not a test.
    pub fn test(&self) -> Option<(&'static str, &[String])> {
        let (name, test) = match self {
            Bench::WriteBw(test) => ("write_bw", test),
            Bench::ReadBw(test) => ("read_bw", test),
            Bench::SendBw(test) => ("send_bw", test),
            Bench::AtomicBw(test) => ("atomic_bw", test),
            Bench::WriteLat(test) => ("write_lat", test),
            Bench::ReadLat(test) => ("read_lat", test),
            Bench::SendLat(test) => ("send_lat", test),
            Bench::AtomicLat(test) => ("atomic_lat", test),
            Bench::Show | Bench::Wait { .. } | Bench::Stop => return None,
        };
        Some((name, &test.words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Line, complete, help, parse};

    fn bench(line: &str) -> Bench {
        match parse(line).unwrap() {
            Some(Line::Bench(bench)) => bench,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn words_of_a_test_are_perftests() {
        let line =
            "bench write_bw -s 65536 -n 100 --report_gbits \"a b\" -- --in-process 192.0.2.1";
        let (name, words) = bench(line).test().map(|(name, words)| (name, words.to_vec())).unwrap();
        assert_eq!(name, "write_bw");
        let all = [
            "-s",
            "65536",
            "-n",
            "100",
            "--report_gbits",
            "a b",
            "--",
            "--in-process",
            "192.0.2.1",
        ];
        assert_eq!(words, all);
        assert_eq!(bench("be atomic_l -h").test().unwrap(), ("atomic_lat", &["-h".to_owned()][..]));
        assert_eq!(bench("bench send_lat").test().unwrap(), ("send_lat", &[][..]));
        assert_eq!(bench("bench show").test(), None);
        assert_eq!(bench("bench wa timeout 5"), Bench::Wait { timeout: Some(5) });
        for wrong in ["bench", "bench write", "bench show all", "bench stop -f", "bench dance"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_and_completion_leave_the_words_to_uroce_perf() {
        let words = ["bench", "write_bw"].map(str::to_owned);
        assert!(help(&words).unwrap().starts_with("bench write_bw [OPTIONS SERVER]\n"));
        assert!(complete("bench write_bw -s ").words.is_empty());
        let tests = complete("bench write_").words;
        assert_eq!(
            tests.iter().map(|of| of.word.as_str()).collect::<Vec<_>>(),
            ["write_bw", "write_lat"]
        );
    }
}
