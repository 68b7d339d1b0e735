//! Checks whether the NICs of a configuration can be used, from what the system shows of them.
//!
//! DPDK skips a NIC that is bound to a driver of the kernel, hardly reports it, and cannot start
//! again in the process. So each NIC is checked before.
//!
//! Not here: obstacles that only DPDK detects ([`explained`](super::explained())).

use super::{EalConfig, EalError, Memory};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Kernel drivers that share their NICs with DPDK.
const SHARING: &[&str] = &["mlx4_core", "mlx5_core", "mana"];
/// Drivers that give a NIC to DPDK without an IOMMU; it must then use physical addresses.
const WITHOUT_IOMMU: &[&str] = &["uio_pci_generic", "igb_uio"];

/// The directories in which the system shows its devices.
struct Tree {
    sys: PathBuf,
    dev: PathBuf,
}

/// The directory in which the kernel shows its reserved hugepages, by size.
const HUGEPAGES: &str = "/sys/kernel/mm/hugepages";

/// Returns the megabytes of free hugepages if some of these NICs can only be used with hugepages,
/// because there is no IOMMU between it and the memory. `None` if all can do without, or if there
/// are no hugepages: then [`check`] names the remedy.
pub fn hugepages_for(pci_allow: &[String]) -> Option<u32> {
    let needs = pci_allow.iter().any(|nic| {
        let address = full(nic.split(',').next().unwrap_or_default());
        Tree::of_system().is_without_iommu(&address)
    });
    Some(free_mb(Path::new(HUGEPAGES))).filter(|&mb| needs && mb > 0)
}

/// Returns the megabytes of free hugepages of all sizes.
fn free_mb(folder: &Path) -> u32 {
    let sizes = fs::read_dir(folder).into_iter().flatten().flatten();
    let megabytes = sizes.filter_map(|size| {
        // `hugepages-2048kB`.
        let name = size.file_name().into_string().ok()?;
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        Some(kilobytes / 1024 * free.trim().parse::<u64>().ok()?)
    });
    u32::try_from(megabytes.sum::<u64>()).unwrap_or(u32::MAX)
}

/// Checks each NIC of the configuration.
///
/// # Errors
///
/// [`EalError::Nic`] for the first that cannot be used.
pub(super) fn check(config: &EalConfig) -> Result<(), EalError> {
    let tree = Tree::of_system();
    for nic in &config.pci_allow {
        let address = full(nic.split(',').next().unwrap_or_default());
        tree.check(&address, config.memory).map_err(|reason| EalError::Nic { address, reason })?;
    }
    Ok(())
}

/// Returns the address with its domain, as the system shows it.
fn full(address: &str) -> String {
    let has_domain = address.matches(':').count() > 1;
    if has_domain { address.to_lowercase() } else { format!("0000:{}", address.to_lowercase()) }
}

impl Tree {
    fn of_system() -> Tree {
        Tree { sys: "/sys/bus/pci/devices".into(), dev: "/dev/vfio".into() }
    }

    /// Returns whether the NIC is given to DPDK without an IOMMU.
    fn is_without_iommu(&self, address: &str) -> bool {
        let nic = self.sys.join(address);
        let group = || target(&nic.join("iommu_group")).unwrap_or_default();
        match target(&nic.join("driver")).as_deref() {
            Some("vfio-pci") => self.dev.join(format!("noiommu-{}", group())).exists(),
            Some(driver) => WITHOUT_IOMMU.contains(&driver),
            None => false,
        }
    }

    /// Returns the obstacle to using this NIC as an error.
    fn check(&self, address: &str, memory: Memory) -> Result<(), String> {
        if !self.sys.is_dir() {
            // Without the directory DPDK reports what it finds.
            return Ok(());
        }
        let nic = self.sys.join(address);
        if !nic.is_dir() {
            return Err("does not exist. dpdk-devbind.py --status tells which there are.".into());
        }
        let bind = format!("bind it to vfio-pci (dpdk-devbind.py -b vfio-pci {address})");
        match target(&nic.join("driver")).as_deref() {
            None => Err(format!("has no driver: {bind}.")),
            Some("vfio-pci") => {
                target(&nic.join("iommu_group")).map_or(Ok(()), |group| self.check_group(&group))
            }
            Some(driver) if WITHOUT_IOMMU.contains(&driver) => match memory {
                Memory::Huge { .. } => Ok(()),
                Memory::NoHuge { .. } => Err(format!(
                    "is bound to {driver} and needs hugepages, and none are free: reserve some as \
                     root (echo 512 > /proc/sys/vm/nr_hugepages); they are then used without an \
                     option. Or {bind} behind an IOMMU."
                )),
            },
            Some(driver) if SHARING.contains(&driver) => Ok(()),
            Some(driver) => Err(format!(
                "is bound to the kernel's driver {driver}: {bind}, which takes it from the kernel{}.",
                beside(&nic)
            )),
        }
    }

    /// Opens the group's file, as DPDK will.
    fn check_group(&self, group: &str) -> Result<(), String> {
        let names = [group.to_owned(), format!("noiommu-{group}")];
        let Some(path) = names.map(|name| self.dev.join(name)).into_iter().find(|p| p.exists())
        else {
            return Err(format!(
                "is bound to vfio-pci, and there is no {}: load the module vfio_iommu_type1; a \
                 container must be given the file (--device; a Pod gets it with the device \
                 plugin's resource in resources.limits).",
                self.dev.join(group).display()
            ));
        };
        let opened = File::options().read(true).write(true).open(&path);
        opened.map(drop).map_err(|error| refused(&path, &error))
    }
}

/// Returns why a group's file cannot be opened, and the remedy.
fn refused(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => format!("is in use: {path} is open in another process. End it."),
        Some(Errno::ACCESS | Errno::PERM) => format!(
            "is not this user's: {path} has the host's owner and mode. Give it to the user, or run \
             as root; in a Pod, securityContext.runAsUser: 0, or any runAsUser where the container \
             runtime has device_ownership_from_security_context = true."
        ),
        _ => format!("cannot be had: {path}: {error}"),
    }
}

/// Returns the last part of a link's target.
fn target(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Returns another way to use a NIC that the kernel has.
fn beside(nic: &Path) -> String {
    let interface = fs::read_dir(nic.join("net")).ok().and_then(|mut all| all.next()?.ok());
    interface.map_or_else(String::new, |entry| {
        let name = entry.file_name();
        format!("; or share it with --vdev net_af_packet0,iface={}", name.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const NO_HUGE: Memory = Memory::NoHuge { mb: 64 };

    #[test]
    fn a_nic_that_cannot_be_had_is_named_with_what_to_do() {
        let base = PathBuf::from(format!("/tmp/uroce-nic-{}", std::process::id()));
        let tree = Tree { sys: base.join("sys"), dev: base.join("dev") };
        fs::create_dir_all(&tree.dev).unwrap();
        assert_eq!(tree.check("0000:01:00.0", NO_HUGE), Ok(()), "nothing is known of any");
        let nic = |address: &str, driver: Option<&str>| {
            let path = tree.sys.join(address);
            fs::create_dir_all(path.join("net/eth7")).unwrap();
            let _ =
                driver.map(|driver| symlink(format!("../drivers/{driver}"), path.join("driver")));
            symlink("../../kernel/iommu_groups/12", path.join("iommu_group")).unwrap();
        };
        nic("0000:01:00.0", Some("e1000e"));
        nic("0000:02:00.0", Some("uio_pci_generic"));
        nic("0000:03:00.0", Some("vfio-pci"));
        nic("0000:04:00.0", None);
        nic("0000:05:00.0", Some("mlx5_core"));
        let said = |address: &str| tree.check(address, NO_HUGE).err().unwrap_or_default();
        let kernels = said("0000:01:00.0");
        assert!(kernels.contains("e1000e") && kernels.contains("-b vfio-pci 0000:01:00.0"));
        assert!(kernels.contains("iface=eth7"), "{kernels}");
        assert!(said("0000:02:00.0").contains("needs hugepages"));
        assert!(tree.is_without_iommu("0000:02:00.0"));
        let with_iommu = ["0000:01:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"];
        assert!(!with_iommu.into_iter().any(|nic| tree.is_without_iommu(nic)));
        assert_eq!(tree.check("0000:02:00.0", Memory::Huge { mb: 64 }), Ok(()));
        assert!(said("0000:03:00.0").contains("vfio_iommu_type1"));
        fs::write(tree.dev.join("12"), "").unwrap();
        assert_eq!(said("0000:03:00.0"), "");
        fs::write(tree.dev.join("noiommu-12"), "").unwrap();
        assert!(tree.is_without_iommu("0000:03:00.0"));
        assert!(said("0000:04:00.0").contains("no driver"));
        assert_eq!(said("0000:05:00.0"), "");
        assert!(said("0000:09:00.0").contains("does not exist"));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn free_hugepages_of_all_sizes_are_added() {
        let base = PathBuf::from(format!("/tmp/uroce-hugepages-{}", std::process::id()));
        for (size, free) in [("hugepages-2048kB", "128\n"), ("hugepages-1048576kB", "1\n")] {
            fs::create_dir_all(base.join(size)).unwrap();
            fs::write(base.join(size).join("free_hugepages"), free).unwrap();
        }
        assert_eq!(free_mb(&base), 256 + 1024);
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(free_mb(&base), 0);
    }

    #[test]
    fn a_device_node_of_another_user_is_named_with_the_fields_that_help() {
        let said = |errno| refused(Path::new("/dev/vfio/7"), &io::Error::from_raw_os_error(errno));
        for errno in [libc::EACCES, libc::EPERM] {
            let denied = said(errno);
            let fields = ["/dev/vfio/7", "runAsUser: 0", "device_ownership_from_security_context"];
            assert!(fields.iter().all(|field| denied.contains(field)), "{denied}");
        }
        assert!(said(libc::EBUSY).contains("in use"));
        assert!(said(libc::ENXIO).contains("cannot be had"));
    }

    #[test]
    fn addresses_have_a_domain() {
        assert_eq!((&*full("AF:00.1"), &*full("0001:02:03.4")), ("0000:af:00.1", "0001:02:03.4"));
    }
}
