//! Texts of round trips.

use super::table::Table;
use crate::answer::{Latency, Times};

/// What is measured. Stands below the table.
const MEANING: &str = "Microseconds from sending a request to its acknowledgement, with the peer's \
                       own time.\nRC measures the first request that asks for one, and one in 16 \
                       after it.\n";

/// Returns one line for each QP.
pub(super) fn list(qps: &[Latency]) -> String {
    let mut table = Table::new(&["Device", "QPN", "Type", "Samples", "Min", "Mean", "Max", "Last"]);
    for of in qps {
        let samples = if of.samples == 0 { "none".to_owned() } else { of.samples.to_string() };
        let [min, mean, max, last] = of.times.map_or([(); 4].map(|()| "-".to_owned()), micros);
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

fn micros(times: Times) -> [String; 4] {
    let Times { min_ns, mean_ns, max_ns, last_ns } = times;
    [min_ns, mean_ns, max_ns, last_ns]
        .map(|nanos| format!("{}.{:02}", nanos / 1000, nanos % 1000 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

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
