//! Texts of round trips.

use super::table::Table;
use crate::answer::{Distribution, Latency, Times};

/// What is measured. Stands below the table.
const MEANING: &str = "Microseconds from sending a request to its acknowledgement, with the peer's \
                       own time.\nRC measures the first request that asks for one, and one in 16 \
                       after it.\n";

/// Returns one line for each QP.
pub(super) fn list(qps: &[Latency]) -> String {
    let mut table = Table::new(&["Device", "QPN", "Type", "Samples", "Min", "Mean", "Max", "Last"]);
    for of in qps {
        let samples = if of.samples == 0 { "none".to_owned() } else { of.samples.to_string() };
        let [min, mean, max, last] = of.times.map_or([(); 4].map(|()| "-".to_owned()), micros_of);
        let qpn = format!("{:#08x}", of.qpn);
        let (device, service) = (of.device.clone(), of.service.clone());
        table.row([device, qpn, service, samples, min, mean, max, last]);
    }
    let mut text = table.text() + MEANING;
    if let [Latency { device, qpn, service, samples: 0, .. }] = qps {
        let reason = match service.as_str() {
            "RC" => "the peer has acknowledged nothing since RESET or `clear latency`",
            _ => "its service has no acknowledgements",
        };
        text.push_str(&format!("QP {qpn:#08x} of {device} has no sample: {reason}\n"));
    }
    text
}

/// Returns one line for each device.
pub(super) fn distributions(devices: &[Distribution]) -> String {
    let head = ["Device", "Samples", "Mean", "50 %", "90 %", "99 %", "99.9 %", "Max"];
    let mut table = Table::new(&head);
    for of in devices {
        let samples = of.samples();
        let [mean, median, most, p99, p999, max] = [
            of.sum_ns.checked_div(samples),
            of.percentile(0.5),
            of.percentile(0.9),
            of.percentile(0.99),
            of.percentile(0.999),
            of.percentile(1.0),
        ]
        .map(|nanos| nanos.map_or("-".to_owned(), micros));
        let samples = if samples == 0 { "none".to_owned() } else { samples.to_string() };
        table.row([of.device.clone(), samples, mean, median, most, p99, p999, max]);
    }
    format!(
        "{}{MEANING}Percentiles and Max are upper bounds: at most 25 % too high above 0.26 microseconds.\n",
        table.text()
    )
}

fn micros(nanos: u64) -> String {
    format!("{}.{:02}", nanos / 1000, nanos % 1000 / 10)
}

fn micros_of(times: Times) -> [String; 4] {
    let Times { min_ns, mean_ns, max_ns, last_ns } = times;
    [min_ns, mean_ns, max_ns, last_ns].map(|nanos| micros(nanos.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Bucket;

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let buckets = [(1024, 90), (2048, 9), (1 << 32, 1)];
        let buckets = buckets.map(|(le_ns, count)| Bucket { le_ns, count }).to_vec();
        let of = Distribution { device: "a".into(), sum_ns: 200_000, buckets };
        let none = Distribution { device: "b".into(), sum_ns: 0, buckets: Vec::new() };
        let golden = "\
Device  Samples  Mean  50 %  90 %  99 %  99.9 %      Max
a       100      2.00  1.02  1.02  2.04  4294967.29  4294967.29
b       none     -     -     -     -     -           -
";
        let text = distributions(&[of, none]);
        assert!(text.starts_with(golden), "{text}");
        let hostile = [(1, u64::MAX), (2, u64::MAX)];
        let buckets = hostile.map(|(le_ns, count)| Bucket { le_ns, count }).to_vec();
        distributions(&[Distribution { device: "c".into(), sum_ns: u64::MAX, buckets }]);
    }

    #[test]
    fn times_are_microseconds_and_a_qp_without_a_sample_says_so() {
        let times = Times { min_ns: 1990, mean_ns: 3000, max_ns: 1_000_000, last_ns: 10_050 };
        let of = |service: &str, samples, times| Latency {
            device: "a".into(),
            qpn: 17,
            service: service.into(),
            samples,
            times,
        };
        let golden = "\
Device  QPN       Type  Samples  Min   Mean  Max      Last
a       0x000011  RC    12       1.99  3.00  1000.00  10.05
a       0x000011  RC    none     -     -     -        -
";
        let text = list(&[of("RC", 12, Some(times)), of("RC", 0, None)]);
        assert_eq!(text, format!("{golden}{MEANING}"));
        let none = list(&[of("RC", 0, None)]);
        assert!(none.contains("QP 0x000011 of a has no sample: the peer has ack"), "{none}");
        assert!(list(&[of("UD", 0, None)]).contains("no sample: its service has no"));
    }
}
