//! NICs that Kubernetes gives a container, by environment variables.
//!
//! The SR-IOV network device plugin sets `PCIDEVICE_RESOURCE` to the PCI addresses of one resource,
//! separated by commas, and `PCIDEVICE_RESOURCE_INFO` to more about them. The DRA driver for SR-IOV
//! sets `SRIOVNETWORK_PCI_ADDRESSES` to those of all claims of the Pod, separated by commas.

use super::{Config, ConfigError, Ethdev};

/// PCI address that stands for a given NIC: the first port with it has the first NIC, in the order
/// of the variables' names.
pub(super) const AUTO: &str = "auto";
const PREFIX: &str = "PCIDEVICE_";
const INFO: &str = "_INFO";
const CLAIMED: &str = "SRIOVNETWORK_PCI_ADDRESSES";

/// Replaces [`AUTO`] by the NICs in these environment variables.
///
/// # Errors
///
/// [`ConfigError::Value`] for a port for which no NIC is left.
pub(super) fn resolve(
    config: &mut Config,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(), ConfigError> {
    let is_given = |(name, _): &(String, String)| {
        name == CLAIMED || name.starts_with(PREFIX) && !name.ends_with(INFO)
    };
    let mut given: Vec<(String, String)> = variables.filter(is_given).collect();
    given.sort();
    let all = given.iter().flat_map(|(_, addresses)| addresses.split(','));
    let mut nics = all.map(str::trim).filter(|address| !address.is_empty());
    let mut count = 0;
    for device in &mut config.devices {
        for (port, number) in device.ports.iter_mut().zip(1..) {
            let Ethdev::Pci(address) = &mut port.ethdev else { continue };
            if address != AUTO {
                continue;
            }
            *address = match nics.next() {
                Some(nic) => nic.to_owned(),
                None => return Err(missing(&device.name, number, count)),
            };
            count += 1;
        }
    }
    Ok(())
}

fn missing(device: &str, port: usize, count: usize) -> ConfigError {
    let found = match count {
        0 => format!("no environment variable PCIDEVICE_… or {CLAIMED} names a NIC"),
        _ => format!("the environment variables PCIDEVICE_… and {CLAIMED} name {count} NICs"),
    };
    ConfigError::Value {
        field: format!("device.{device}.port.{port}.ethdev"),
        reason: format!(
            "\"auto\" is a NIC that Kubernetes gives, and {found}: ask for it in the Pod \
             (resources.limits of the container, such as intel.com/sriov_vfio: 1, or \
             resources.claims), or name its PCI address"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DeviceConfig, PortConfig};

    fn config() -> Config {
        let device = |name| {
            DeviceConfig::new(name)
                .port(PortConfig::pci(AUTO))
                .port(PortConfig::pci("0000:09:00.0"))
        };
        Config::new().device(device("a")).device(device("b"))
    }

    fn resolved(variables: &[(&str, &str)]) -> Result<Vec<String>, ConfigError> {
        let mut config = config();
        let owned = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        resolve(&mut config, owned)?;
        let ports = config.devices.iter().flat_map(|device| &device.ports);
        Ok(ports.map(|port| format!("{:?}", port.ethdev)).collect())
    }

    #[test]
    fn ports_take_the_given_nics_in_order() {
        let found = resolved(&[
            ("PCIDEVICE_Z", "0000:03:00.1"),
            ("PCIDEVICE_A_INFO", "{}"),
            ("PCIDEVICE_A", "0000:02:00.1, 0000:02:00.2"),
            ("PATH", "/usr/bin"),
        ]);
        let expected = ["0000:02:00.1", "0000:09:00.0", "0000:02:00.2", "0000:09:00.0"]
            .map(|nic| format!("Pci({nic:?})"));
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn nics_of_claims_come_after_those_of_device_plugins() {
        let found = resolved(&[
            ("SRIOVNETWORK_PCI_ADDRESSES", "0000:02:00.3,0000:02:00.4"),
            ("SRIOVNETWORK_PCI_ADDRESSES_OTHER", "0000:02:00.5"),
            ("PCIDEVICE_A", "0000:02:00.1"),
        ]);
        let expected = ["0000:02:00.1", "0000:09:00.0", "0000:02:00.3", "0000:09:00.0"]
            .map(|nic| format!("Pci({nic:?})"));
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn a_missing_nic_is_named_with_the_field_of_the_pod() {
        let none = resolved(&[("PCIDEVICE_A", "")]).unwrap_err().to_string();
        assert!(none.starts_with("device.a.port.1.ethdev: "), "{none}");
        assert!(none.contains("resources.limits"), "{none}");
        let one = resolved(&[("PCIDEVICE_A", "0000:02:00.1")]).unwrap_err().to_string();
        assert!(one.starts_with("device.b.port.1.ethdev: ") && one.contains("1 NICs"), "{one}");
    }
}
