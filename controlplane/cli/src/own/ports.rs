//! Ports and lcores from EAL options.

use uroce::Config;
use uroce::config::{DeviceConfig, Lcores, PortConfig};

/// Highest CPU number.
const CPU_MAX: usize = 1023;

/// Returns the configuration of one device with the ports that EAL options name.
///
/// # Errors
///
/// The mistake in the options.
pub(super) fn configuration(
    eal: &[String],
    addresses: &[String],
    mtu: Option<u16>,
) -> Result<Config, String> {
    let Devices { mut ports, cpus, rest } = devices(eal)?;
    if ports.is_empty() {
        return Err("no port: name a device by --vdev or -a before --, or a file by --config \
                    after it"
            .to_owned());
    }
    for port in &mut ports {
        port.mtu = mtu.unwrap_or(port.mtu);
    }
    for address in addresses {
        let wrong = |why: &str| format!("--ip={address}: {why}; expected PORT,ADDRESS/LEN");
        let (port, prefix) = address.split_once(',').ok_or_else(|| wrong("no comma"))?;
        let port = port.parse::<usize>().ok().and_then(|number| ports.get_mut(number));
        let port = port.ok_or_else(|| wrong("no such port"))?;
        port.ip.push(prefix.parse().map_err(|error| wrong(&format!("{error}")))?);
    }
    let mut device = DeviceConfig::new("uroce0");
    for mut port in ports {
        port.link_local = port.ip.is_empty();
        device = device.port(port);
    }
    if let Some((first, others)) = cpus.split_first() {
        device.control_cpu = Some(*first);
        let lcores = if others.is_empty() { &cpus } else { others };
        device.lcores = Lcores::Cpus(lcores.to_vec());
    }
    let mut config = Config::new().device(device);
    config.eal.args = rest;
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

/// EAL options, divided.
#[derive(Debug, Default)]
struct Devices {
    ports: Vec<PortConfig>,
    /// CPUs of `-l`.
    cpus: Vec<usize>,
    /// Options for DPDK.
    rest: Vec<String>,
}

fn devices(eal: &[String]) -> Result<Devices, String> {
    let mut all = Devices::default();
    let mut words = eal.iter();
    while let Some(word) = words.next() {
        let name = ["--vdev", "--allow", "-a", "-l"].into_iter().find(|name| {
            let after = word.strip_prefix(name);
            // A long option has its value after `=` or in the next word.
            after.is_some_and(|after| after.is_empty() || after.starts_with('=') || name.len() == 2)
        });
        let Some(name) = name else {
            all.rest.push(word.clone());
            continue;
        };
        let value = match word[name.len()..].strip_prefix('=').unwrap_or(&word[name.len()..]) {
            "" => words.next().ok_or_else(|| format!("{name} needs a value"))?,
            value => value,
        };
        match name {
            "--vdev" => all.ports.push(PortConfig::vdev(value)),
            "-l" => all.cpus = cpus(value).ok_or_else(|| format!("-l {value}: no list of CPUs"))?,
            _ => all.ports.push(PortConfig::pci(value)),
        }
    }
    Ok(all)
}

/// Parses a list of CPUs such as `0,2-4`.
fn cpus(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce::config::Ethdev;

    fn of(eal: &str, addresses: &[&str]) -> Result<Config, String> {
        let words: Vec<String> = eal.split_whitespace().map(str::to_owned).collect();
        let addresses: Vec<String> = addresses.iter().map(|text| (*text).to_owned()).collect();
        configuration(&words, &addresses, None)
    }

    #[test]
    fn devices_become_ports_and_the_rest_is_dpdks() {
        let eal =
            "-l 1,3-4 --vdev=net_null0 --vdev net_tap0,iface=x -a 0000:01:00.0 --no-huge -m 64";
        let config = of(eal, &["1,192.0.2.1/24", "1,2001:db8::1/64"]).unwrap();
        let device = &config.devices[0];
        let ethdevs: Vec<_> = device.ports.iter().map(|port| port.ethdev.clone()).collect();
        let vdev = |name: &str| Ethdev::Vdev(name.to_owned());
        let pci = Ethdev::Pci("0000:01:00.0".to_owned());
        assert_eq!(ethdevs, [vdev("net_null0"), vdev("net_tap0,iface=x"), pci]);
        assert_eq!((device.control_cpu, &device.lcores), (Some(1), &Lcores::Cpus(vec![3, 4])));
        assert_eq!(config.eal.args, ["--no-huge", "-m", "64"]);
        assert_eq!(device.ports[1].ip.len(), 2);
        let link_local: Vec<bool> = device.ports.iter().map(|port| port.link_local).collect();
        assert_eq!(link_local, [true, false, true]);
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |eal: &str, addresses: &[&str]| of(eal, addresses).unwrap_err();
        assert!(wrong("--no-huge", &[]).starts_with("no port: "));
        assert_eq!(wrong("--vdev", &[]), "--vdev needs a value");
        assert_eq!(wrong("-l 3-1 --vdev=net_null0", &[]), "-l 3-1: no list of CPUs");
        assert_eq!(wrong("-l 0-99999999999 --vdev=x", &[]), "-l 0-99999999999: no list of CPUs");
        for address in ["192.0.2.1/24", "1,192.0.2.1/24", "0,192.0.2.1/99", "x,::1/1"] {
            let error = wrong("--vdev=net_null0", &[address]);
            assert!(error.starts_with(&format!("--ip={address}: ")), "{error}");
        }
    }
}
