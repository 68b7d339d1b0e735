//! The text of a configuration: the file that would be read to the same value.
//!
//! Invariants
//! - Every field of the file's format is written: the keys are those that are read, by serde's
//!   derive on the same types. A value that is the default is left out.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use toml::{Table, Value};
use uroce_wire::Mac;

use super::{
    Config, ConfigError, DeviceConfig, Driver, EalConfig, LogLevel, LossConfig, PortConfig,
};
use crate::path::prefix::IpPrefix;
use crate::path::route::StaticRoute;

/// Returns the text of a configuration.
pub(super) fn file(config: &Config) -> Result<String, ConfigError> {
    let mut text = String::new();
    let eal = changed(&config.eal, &EalConfig::default())?;
    if !eal.is_empty() {
        section(&mut text, "[eal]", &eal);
    }
    for device in &config.devices {
        // No device has an empty name, so that the name is written.
        let mut keys = changed(device, &DeviceConfig::new(""))?;
        keys.remove("port");
        section(&mut text, "[[device]]", &keys);
        for port in &device.ports {
            // Neither does any ring.
            section(&mut text, "[[device.port]]", &changed(port, &PortConfig::ring(""))?);
        }
    }
    Ok(text)
}

/// Appends a section. Values that are tables stand in one line.
fn section(text: &mut String, title: &str, keys: &Table) {
    if !text.is_empty() {
        text.push('\n');
    }
    let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
    text.push_str(&format!("{title}\n{}", lines.collect::<String>()));
}

/// Returns the keys of a value that are not those of the default.
fn changed<T: Serialize>(value: &T, default: &T) -> Result<Table, ConfigError> {
    let table = |value: &T| {
        Table::try_from(value).map_err(|error| ConfigError::Unwritable(error.to_string()))
    };
    let mut keys = table(value)?;
    prune(&mut keys, &table(default)?);
    Ok(keys)
}

/// Removes the keys with the values of the default, in tables within the table too.
fn prune(keys: &mut Table, default: &Table) {
    keys.retain(|key, value| match (value, default.get(key)) {
        (value, Some(default)) if value == default => false,
        (Value::Table(value), Some(Value::Table(default))) => {
            prune(value, default);
            true
        }
        _ => true,
    });
}

impl Serialize for IpPrefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for StaticRoute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Keys {
            to: String,
            via: std::net::IpAddr,
        }
        Keys { to: self.to.to_string(), via: self.via }.serialize(serializer)
    }
}

pub(super) fn mac<S: Serializer>(mac: &Option<Mac>, serializer: S) -> Result<S::Ok, S::Error> {
    match mac {
        Some(mac) => serializer.collect_str(mac),
        None => serializer.serialize_none(),
    }
}

pub(super) fn dscp_prio<S: Serializer>(
    dscp_prio: &BTreeMap<u8, u8>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(dscp_prio.iter().map(|(dscp, prio)| (dscp.to_string(), prio)))
}

pub(super) fn log_level<S: Serializer>(level: &LogLevel, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match level {
        LogLevel::Quiet => "quiet",
        LogLevel::Warning => "warning",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
    })
}

pub(super) fn driver<S: Serializer>(driver: &Driver, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match driver {
        Driver::Lcore => "lcore",
        Driver::Poller => "poller",
    })
}

pub(super) fn loss<S: Serializer>(loss: &LossConfig, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Keys {
        rx: f64,
        tx: f64,
        seed: u64,
    }
    let LossConfig { rx, tx, seed } = *loss;
    Keys { rx, tx, seed }.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Ethdev, Idle, Lcores};

    fn again(config: &Config) -> Config {
        let text = config.to_toml().expect("it can be written");
        Config::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_text_has_what_is_not_the_default() {
        let port = PortConfig::ring("link").mtu(4200).ip("192.0.2.1/24").unwrap();
        let config = Config::new().device(DeviceConfig::new("a").port(port));
        let text = "[[device]]\nname = \"a\"\n\n[[device.port]]\nethdev = { ring = \"link\" }\n\
                    ip = [\"192.0.2.1/24\"]\nmtu = 4200\n";
        assert_eq!(config.to_toml().unwrap(), text);
        assert_eq!(again(&config), config);
    }

    #[test]
    fn names_and_paths_are_quoted() {
        let mut config = Config::new().device(
            DeviceConfig::new("a")
                .port(PortConfig::local("/tmp/a \"b\"\n\u{1b}ü"))
                .port(PortConfig::vdev("net_null0,a='b\\c'"))
                .port(PortConfig::udp("eth\"0"))
                .lcores(Lcores::Cpus(vec![3, 1])),
        );
        config.eal.args = vec!["--x='\"'".to_owned()];
        assert_eq!(again(&config), config);
    }

    #[test]
    fn what_a_file_cannot_have_is_an_error() {
        let mut config = Config::new().device(DeviceConfig::new("a").port(PortConfig::ring("b")));
        config.devices[0].ports[0].loss.seed = u64::MAX;
        let error = config.to_toml().unwrap_err();
        assert!(error.to_string().starts_with("the configuration cannot be written: "), "{error}");
        config.devices[0].ports[0].loss.seed = i64::MAX as u64;
        assert_eq!(again(&config), config);
        let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"/\xff");
        config.devices[0].ports[0].ethdev = Ethdev::Local(path.into());
        assert!(config.to_toml().is_err());
    }

    #[test]
    fn idle_forwarding_is_not_in_the_file() {
        let device = DeviceConfig::new("a").port(PortConfig::ring("b")).idle(Idle::Sleep);
        let config = Config::new().device(DeviceConfig { forwards: true, ..device.clone() });
        assert_eq!(again(&config), Config::new().device(device));
    }
}
