//! NICs that Kubernetes gives a container, by environment variables.
//!
//! The SR-IOV network device plugin sets `PCIDEVICE_RESOURCE` to the PCI addresses of one resource,
//! separated by commas, and `PCIDEVICE_RESOURCE_INFO` to more about them. The DRA driver for SR-IOV
//! sets `SRIOVNETWORK_PCI_ADDRESSES` to those of all claims of the Pod, separated by commas.

use super::{Config, ConfigError, Ethdev};

/// PCI address that stands for a given NIC of any resource. Ports with it take, in their order, the
/// NICs that are left in the order of the variables' names.
const AUTO: &str = "auto";
/// Begin of an address that stands for a given NIC of one resource: `auto:intel.com/sriov_vfio`.
const AUTO_OF: &str = "auto:";
const PREFIX: &str = "PCIDEVICE_";
const INFO: &str = "_INFO";
const CLAIMED: &str = "SRIOVNETWORK_PCI_ADDRESSES";

/// Tells whether a PCI address stands for a given NIC.
pub(super) fn is_auto(address: &str) -> bool {
    address == AUTO || resource(address).is_some_and(|name| !name.is_empty())
}

/// Returns the resource that an address names.
fn resource(address: &str) -> Option<&str> {
    address.strip_prefix(AUTO_OF)
}

/// Returns the name of the variable with the NICs of a resource, as the device plugin makes it, but
/// for dashes, which the plugin keeps and some programs that start others replace.
fn variable(resource: &str) -> String {
    format!("{PREFIX}{}", legal(resource))
}

/// Returns a text as the name of a variable in which no character is special.
fn legal(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    text.chars().map(legal).collect()
}

/// Replaces the addresses that stand for given NICs by the NICs in these environment variables.
/// Ports that name a resource choose first, so that no other port takes their NIC.
///
/// # Errors
///
/// [`ConfigError::Value`] for a port for which no NIC is left.
pub(super) fn resolve(
    config: &mut Config,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(), ConfigError> {
    let mut nics = given(variables);
    for names_resource in [true, false] {
        for device in &mut config.devices {
            for (port, number) in device.ports.iter_mut().zip(1..) {
                let Ethdev::Pci(address) = &mut port.ethdev else { continue };
                if !is_auto(address) || resource(address).is_some() != names_resource {
                    continue;
                }
                let wanted = resource(address).map(variable);
                let suits =
                    |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == legal(name));
                *address = match nics.iter().position(|(name, _)| suits(name)) {
                    Some(at) => nics.remove(at).1,
                    None => return Err(missing(&device.name, number, address)),
                };
            }
        }
    }
    Ok(())
}

/// Returns the given NICs, each with its variable, in the order of the variables' names.
fn given(variables: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let is_given = |(name, _): &(String, String)| {
        name == CLAIMED || name.starts_with(PREFIX) && !name.ends_with(INFO)
    };
    let mut given: Vec<(String, String)> = variables.filter(is_given).collect();
    given.sort();
    let mut nics = Vec::new();
    for (name, addresses) in given {
        let addresses = addresses.split(',').map(str::trim).filter(|address| !address.is_empty());
        nics.extend(addresses.map(|address| (name.clone(), address.to_owned())));
    }
    nics
}

fn missing(device: &str, port: usize, address: &str) -> ConfigError {
    let (name, example) = match resource(address) {
        Some(resource) => (variable(resource), resource),
        None => (format!("{PREFIX}… or {CLAIMED}"), "intel.com/sriov_vfio"),
    };
    ConfigError::Value {
        field: format!("device.{device}.port.{port}.ethdev"),
        reason: format!(
            "\"{address}\" is a NIC that Kubernetes gives, and no NIC is left in the environment \
             ({name}): ask for it in the Pod (resources.limits of the container, such as \
             {example}: 1, or resources.claims), or name its PCI address"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DeviceConfig, PortConfig};

    fn config(one: &str, other: &str) -> Config {
        let device = |name, address: &str| {
            DeviceConfig::new(name)
                .port(PortConfig::pci(address))
                .port(PortConfig::pci("0000:09:00.0"))
        };
        Config::new().device(device("a", one)).device(device("b", other))
    }

    fn resolved(variables: &[(&str, &str)]) -> Result<Vec<String>, ConfigError> {
        resolved_by(config(AUTO, AUTO), variables)
    }

    fn resolved_by(
        mut config: Config,
        variables: &[(&str, &str)],
    ) -> Result<Vec<String>, ConfigError> {
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
        assert!(
            one.starts_with("device.b.port.1.ethdev: ") && one.contains("no NIC is left"),
            "{one}"
        );
    }

    #[test]
    fn a_port_that_names_a_resource_takes_its_nic_and_no_other() {
        let variables = [
            ("PCIDEVICE_INTEL_COM_FAST_0", "0000:02:00.1"),
            ("PCIDEVICE_NVIDIA_COM_CX6", "0000:03:00.1,0000:03:00.2"),
        ];
        let found = |one, other| resolved_by(config(one, other), &variables);
        let two = |one, other| {
            [one, "0000:09:00.0", other, "0000:09:00.0"].map(|nic| format!("Pci({nic:?})"))
        };
        let named = found("auto:nvidia.com/cx6", "auto:intel.com/fast-0").unwrap();
        assert_eq!(named, two("0000:03:00.1", "0000:02:00.1"));
        // A port without a resource leaves the NIC to the port that names it.
        let mixed = found("auto", "auto:intel.com/fast-0").unwrap();
        assert_eq!(mixed, two("0000:03:00.1", "0000:02:00.1"));
        let none = found("auto:intel.com/fast-0", "auto:intel.com/fast-0").unwrap_err().to_string();
        assert!(none.starts_with("device.b.port.1.ethdev: "), "{none}");
        assert!(none.contains("PCIDEVICE_INTEL_COM_FAST_0"), "{none}");
        assert!(none.contains("intel.com/fast-0: 1"), "{none}");
        // The plugin keeps the dash.
        let kept = [("PCIDEVICE_INTEL_COM_FAST-0", "0000:02:00.1,0000:02:00.2")];
        let found = resolved_by(config("auto:intel.com/fast-0", "auto"), &kept).unwrap();
        assert_eq!(found, two("0000:02:00.1", "0000:02:00.2"));
    }

    #[test]
    fn a_resource_has_a_name() {
        assert!(is_auto("auto") && is_auto("auto:intel.com/fast"));
        assert!(!is_auto("auto:") && !is_auto("automatic") && !is_auto("0000:09:00.0"));
    }
}
