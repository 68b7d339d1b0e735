//! Keys of a port's bottleneck, with rates and lengths in words such as `10G` and `1MB`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::BottleneckConfig;

/// Reads the keys. The ranges of their values are checked with those of all other fields.
pub(super) fn from_keys<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BottleneckConfig>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        rate: String,
        queue: String,
        kmin: Option<String>,
        kmax: Option<String>,
        pmax: Option<f64>,
        #[serde(default)]
        seed: u64,
    }
    let Keys { rate, queue, kmin, kmax, pmax, seed } = Keys::deserialize(deserializer)?;
    if pmax.is_some() && kmin.is_none() && kmax.is_none() {
        return Err(D::Error::custom("pmax has no effect without kmin or kmax; add one of them"));
    }
    let length = |text: &Option<String>| text.as_deref().map(bytes).transpose();
    let none = BottleneckConfig::new(
        mbps(&rate).map_err(D::Error::custom)?,
        bytes(&queue).map_err(D::Error::custom)?,
    );
    let kmax = length(&kmax).map_err(D::Error::custom)?.unwrap_or(none.queue);
    let kmin = length(&kmin).map_err(D::Error::custom)?.unwrap_or(kmax);
    Ok(Some(BottleneckConfig { kmin, kmax, pmax: pmax.unwrap_or(none.pmax), seed, ..none }))
}

/// Writes the keys.
pub(super) fn to_keys<S: Serializer>(
    config: &Option<BottleneckConfig>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Keys {
        rate: String,
        queue: String,
        kmin: String,
        kmax: String,
        pmax: f64,
        seed: u64,
    }
    let Some(BottleneckConfig { rate_mbps, queue, kmin, kmax, pmax, seed }) = *config else {
        return serializer.serialize_none();
    };
    let bytes = |length: u32| format!("{length}B");
    let (queue, kmin, kmax) = (bytes(queue), bytes(kmin), bytes(kmax));
    Keys { rate: format!("{rate_mbps}M"), queue, kmin, kmax, pmax, seed }.serialize(serializer)
}

/// Reads a rate in Mb/s.
fn mbps(text: &str) -> Result<u32, String> {
    scaled(text, &[("G", 1e3), ("M", 1.0)]).ok_or_else(|| {
        format!("rate: {text:?} is not a rate such as \"10G\" or \"100M\", in bit/s")
    })
}

/// Reads a length in bytes.
fn bytes(text: &str) -> Result<u32, String> {
    scaled(text, &[("MB", 1e6), ("KB", 1e3), ("B", 1.0)])
        .ok_or_else(|| format!("{text:?} is not a length such as \"1MB\", \"100KB\" or \"1500B\""))
}

/// Returns a number times the factor of its unit, rounded to a whole one.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u32> {
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let value = (number.trim_end().parse::<f64>().ok()? * factor).round();
    (0.0..=f64::from(u32::MAX)).contains(&value).then_some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_lengths_have_units() {
        assert_eq!(["10G", "2.5G", "100M", "1 M"].map(mbps), [10_000, 2500, 100, 1].map(Ok));
        assert_eq!(["1MB", "1.5KB", "60B", "0B"].map(bytes), [1_000_000, 1500, 60, 0].map(Ok));
        for text in ["", "10", "G", "-1G", "nanM", "10K", "9999999G"] {
            assert!(mbps(text).unwrap_err().contains("\"10G\" or \"100M\""), "{text}");
        }
        for text in ["", "1", "MB", "1GB", "-1B", "infB"] {
            assert!(bytes(text).unwrap_err().contains("\"1MB\""), "{text}");
        }
    }
}
