//! Histograms of latencies in the standard log format of HdrHistogram, version 1.3, for its tools
//! and plotters.
//!
//! Each interval is one run, tagged with its point. Values are nanoseconds; the largest of an
//! interval is written in milliseconds, as the tools expect it.

use crate::error::{BenchError, Step};
use crate::perf::measure::Latency;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;

/// Runs of a log, in their order.
#[derive(Debug, Default)]
pub(crate) struct Log {
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    tag: String,
    begin: SystemTime,
    time: Duration,
    latency: Latency,
}

impl Log {
    /// Adds a run that began at `begin` and has taken `time`.
    pub(crate) fn add(&mut self, tag: &str, begin: SystemTime, time: Duration, latency: Latency) {
        // Blanks and commas have a meaning in the format.
        let tag = tag.replace([' ', ','], "-");
        self.runs.push(Run { tag, begin, time, latency });
    }

    /// Writes the file.
    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        let bytes = self.bytes()?;
        std::fs::write(file, bytes)
            .map_err(|error| BenchError::io(format_args!("writing {}", file.display()), error))
    }

    fn bytes(&self) -> Result<Vec<u8>, BenchError> {
        let mut bytes = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let start = self.runs.first().map_or(UNIX_EPOCH, |run| run.begin);
        let mut builder = IntervalLogWriterBuilder::new();
        builder
            .add_comment("[Logged with uroce-perf; latencies in ns]")
            .add_comment("[Histogram log format version 1.3]")
            .with_start_time(start)
            .with_base_time(UNIX_EPOCH)
            .with_max_value_divisor(MS);
        let mut writer =
            builder.begin_log_with(&mut bytes, &mut serializer).step("writing a log")?;
        for Run { tag, begin, time, latency } in &self.runs {
            let since = begin.duration_since(UNIX_EPOCH).unwrap_or_default();
            let histogram = latency.histogram();
            let tag = Tag::new(tag);
            writer.write_histogram(histogram, since, *time, tag).step("writing a log")?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn a_log_has_each_run_with_its_tag_and_all_of_its_latencies() {
        let mut log = Log::default();
        for (tag, ns) in [("RC 64, 10 %", 1000), ("RC-64-90%", 2000)] {
            let mut latency = Latency::new();
            (0..100).for_each(|at| latency.record(ns + at));
            let begin = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            log.add(tag, begin, Duration::from_secs(2), latency);
        }
        let bytes = log.bytes().expect("a log");
        let text = String::from_utf8(bytes.clone()).expect("text");
        assert!(text.starts_with("#[Logged with uroce-perf"), "{text}");
        let mut runs = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            let Ok(LogEntry::Interval(interval)) = entry else { continue };
            let tag = interval.tag().expect("a tag").as_str().to_owned();
            assert_eq!(interval.start_timestamp(), Duration::from_secs(1_700_000_000));
            assert_eq!(interval.duration(), Duration::from_secs(2));
            let encoded = interval.encoded_histogram().to_owned();
            runs.push((tag, encoded));
        }
        let tags: Vec<&str> = runs.iter().map(|(tag, _)| tag.as_str()).collect();
        assert_eq!(tags, ["RC-64--10-%", "RC-64-90%"]);
        let raw = BASE64_STANDARD.decode(&runs[1].1).expect("base64");
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut raw.as_slice()).expect("a histogram");
        assert_eq!(histogram.len(), 100);
        assert!(histogram.value_at_quantile(0.5).abs_diff(2050) <= 2);
    }
}
