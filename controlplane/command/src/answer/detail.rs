//! Answers about all capabilities and limits of a device.

use serde::{Deserialize, Serialize};

use super::pairs;

/// Capabilities and limits of a device, by the names that `ibv_devinfo -v` has for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDetail {
    /// Names and values of the device.
    #[serde(with = "pairs")]
    pub attributes: Vec<(String, String)>,
    /// The ports.
    pub ports: Vec<PortDetail>,
}

/// Capabilities and limits of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDetail {
    /// Number of the port at the device, from 1.
    pub number: u8,
    /// Names and values.
    #[serde(with = "pairs")]
    pub attributes: Vec<(String, String)>,
}
