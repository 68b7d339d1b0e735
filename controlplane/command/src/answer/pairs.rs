//! Pairs of names and values. In JSON they are an object with the names in the same order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes pairs as a JSON object.
pub(super) fn serialize<V: Serialize, S: Serializer>(
    pairs: &[(String, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Reads a JSON object as pairs, in the same order.
pub(super) fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, V)>, D::Error> {
    deserializer.deserialize_map(Pairs(PhantomData))
}

struct Pairs<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
    type Value = Vec<(String, V)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("names with values")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PortXstats, Settings};

    #[test]
    fn names_are_keys_in_their_order() {
        let xstats = vec![("b".to_owned(), 1), ("a".to_owned(), u64::MAX)];
        let stats = PortXstats { port: 3, xstats };
        let text = serde_json::to_string(&stats).unwrap();
        assert_eq!(text, r#"{"port":3,"xstats":{"b":1,"a":18446744073709551615}}"#);
        assert_eq!(serde_json::from_str::<PortXstats>(&text).unwrap(), stats);
        let list = r#"{"device":"d","settings":[["a","b"]]}"#;
        let error = serde_json::from_str::<Settings>(list).unwrap_err().to_string();
        assert!(error.contains("expected names with values"), "{error}");
    }
}
