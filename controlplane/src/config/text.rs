//! Text forms of values that TOML does not have, and the defaults.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use uroce_wire::Mac;

use super::{Driver, Lcores, LogLevel, LossConfig};
use crate::path::prefix::{IpNetwork, IpPrefix};
use crate::path::route::StaticRoute;

impl<'de> Deserialize<'de> for IpPrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        IpPrefix::from_str(&text).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for StaticRoute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            to: String,
            via: IpAddr,
        }
        let Keys { to, via } = Keys::deserialize(deserializer)?;
        Ok(StaticRoute { to: IpNetwork::from_str(&to).map_err(D::Error::custom)?, via })
    }
}

/// Returns the interface of a DPDK device that shares one with the kernel.
pub(super) fn iface_of(devargs: &str) -> Option<&str> {
    let shares = ["net_af_packet", "eth_af_packet", "net_af_xdp"];
    let shared = shares.iter().any(|driver| devargs.starts_with(driver));
    let mut arguments = devargs.split(',').filter(|_| shared);
    arguments.find_map(|argument| argument.strip_prefix("iface="))
}

pub(super) fn mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mac>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Mac::from_str(&text).map(Some).map_err(D::Error::custom)
}

pub(super) fn log_level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogLevel, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "quiet" => Ok(LogLevel::Quiet),
        "warning" => Ok(LogLevel::Warning),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        _ => Err(D::Error::unknown_variant(&text, &["quiet", "warning", "info", "debug"])),
    }
}

pub(super) fn driver<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Driver, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "lcore" => Ok(Driver::Lcore),
        "poller" => Ok(Driver::Poller),
        _ => Err(D::Error::unknown_variant(&text, &["lcore", "poller"])),
    }
}

pub(super) fn loss<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LossConfig, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Keys {
        rx: f64,
        tx: f64,
        seed: u64,
    }
    let Keys { rx, tx, seed } = Keys::deserialize(deserializer)?;
    Ok(LossConfig { rx, tx, seed })
}

/// Reads a table of DSCPs: its keys are texts in TOML.
pub(super) fn dscp_prio<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u8, u8>, D::Error> {
    let keys = BTreeMap::<String, u8>::deserialize(deserializer)?;
    let number = |key: &String| {
        key.parse().map_err(|_| D::Error::custom(format!("{key:?} is no DSCP from 0 to 63")))
    };
    keys.iter().map(|(key, prio)| Ok((number(key)?, *prio))).collect()
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn one_lcore() -> Lcores {
    Lcores::Count(1)
}

pub(super) fn one_source_port() -> u8 {
    1
}

pub(super) fn default_max_qps() -> u32 {
    65536
}

pub(super) fn default_max_mrs() -> u32 {
    1 << 20
}

pub(super) fn default_max_ahs() -> u32 {
    65536
}

pub(super) fn default_mtu() -> u16 {
    1500
}

pub(super) fn default_rx_descriptors() -> u16 {
    1024
}

pub(super) fn default_tx_descriptors() -> u16 {
    512
}
