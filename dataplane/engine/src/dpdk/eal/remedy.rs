//! Explains messages of DPDK, with remedies.
//!
//! DPDK logs the step that failed. The table below gives the causes that users meet, by words in
//! the logs of DPDK 21.11 to 25.11.

/// Words that must all be in the text, and the cause with its remedy.
type Row = (&'static [&'static str], &'static str);

const HUGEPAGES: &str = "It needs hugepages: reserve some (echo 512 > /proc/sys/vm/nr_hugepages) and \
    use them as root (uroce-run --huge; huge = true under [eal]), or bind the NIC to vfio-pci \
    behind an IOMMU.";
const NO_HUGEPAGES: &str = "There are too few free hugepages: reserve some (echo 512 > \
    /proc/sys/vm/nr_hugepages; for a Pod resources.limits.hugepages-2Mi), or do without (no \
    --huge; huge = false under [eal]).";
const MEMPOLICY: &str = "DPDK places hugepages by system calls that the container's seccomp profile \
    refuses: grant CAP_SYS_NICE, with which container engines allow them (in a Pod \
    securityContext.capabilities.add: [SYS_NICE] and runAsUser: 0), or do without hugepages (no \
    --huge; huge = false under [eal]).";
const NO_HUGETLBFS: &str = "No hugepages are reserved, or no hugetlbfs is mounted for those that are: \
    echo 512 > /proc/sys/vm/nr_hugepages; mount -t hugetlbfs none /dev/hugepages.";
const MEMLOCK: &str = "The user may lock too little memory: raise the limit (ulimit -l unlimited, \
    memlock in limits.conf, LimitMEMLOCK of systemd), or grant CAP_IPC_LOCK (in a Pod \
    securityContext.capabilities.add: [IPC_LOCK] and runAsUser: 0).";
const GROUP: &str = "Other devices of the NIC's IOMMU group are still bound to drivers of the kernel's: \
    bind all of the group to vfio-pci.";
const BUSY: &str = "Another process uses the NIC: end it first.";
const VFIO_PERMISSION: &str = "This user may not use the NIC: give /dev/vfio/GROUP to the user, or run as \
    root (in a Pod securityContext.runAsUser: 0, or device_ownership_from_security_context = true \
    of the container runtime).";
const INTERFACE: &str = "A packet socket needs CAP_NET_RAW, which this process does not have: run it as \
    root, or grant it (setpriv, --cap-add; in a Pod securityContext.capabilities.add: [NET_RAW] \
    and runAsUser: 0).";
const READ_ONLY: &str = "The directory is on a read-only file system: give the container a volume \
    there (--volume, --tmpfs; in a Pod volumeMounts of an emptyDir, such as /run/uroce).";

const NO_DIRECTORY: &str = "This user cannot make the directory: give the container a volume there that \
    the user may write to (--volume, --tmpfs; in a Pod volumeMounts, such as /run/uroce).";
const NETDEV: &str = "In a Pod it is mostly eth0, which the cluster's network plugin makes and gives an \
    address; with spec.hostNetwork the Pod has the node's interfaces instead.";
const ONE_PROGRAM: &str = "The containers of a Pod share its addresses: give each program that opens a \
    port a Pod of its own, or let one container have it (spec.containers).";
const SWITCH: &str = "In a Pod the directory is a volume of the node's (spec.volumes.hostPath and \
    volumeMounts).";
const AF_XDP_ARGUMENT: &str = "net_af_xdp does not know one of its arguments; use_pinned_map needs \
    DPDK 24.07 or newer, and without it the container needs CAP_NET_ADMIN and CAP_BPF.";
const SECCOMP: &str = "A seccomp profile may refuse a system call of this: run the container with \
    the engine's default one (in a Pod securityContext.seccompProfile.type: RuntimeDefault), or \
    with one that allows the call.";

/// The first row that matches is used.
const TABLE: &[Row] = &[
    (&["Expecting 'PA' IOVA mode"], HUGEPAGES),
    (&["physical addresses are not available"], HUGEPAGES),
    (&["not viable"], GROUP),
    (&["/dev/vfio/", "Device or resource busy"], BUSY),
    (&["VFIO group", "Device or resource busy"], BUSY),
    (&["/dev/vfio/", "ermission denied"], VFIO_PERMISSION),
    (&["DMA remapping", "Cannot allocate memory"], MEMLOCK),
    (&["ailed to map DMA"], MEMLOCK),
    (&["mmap failed on AF_PACKET", "Resource temporarily unavailable"], MEMLOCK),
    (&["mmap failed on AF_PACKET", "Operation not permitted"], MEMLOCK),
    (&["open AF_PACKET socket", "Operation not permitted"], INTERFACE),
    (&["Read-only file system"], READ_ONLY),
    (&["the directory cannot be made", "ermission denied"], NO_DIRECTORY),
    (&["failed to bind to", "ermission denied"], NO_DIRECTORY),
    (&["its directory is missing"], SWITCH),
    (&["there is no network interface"], NETDEV),
    (&["has no IP address"], NETDEV),
    (&["UDP port 4791", "is taken"], ONE_PROGRAM),
    (&["rte_pmd_af_xdp_probe", "Invalid kvargs key"], AF_XDP_ARGUMENT),
    (&["mempolicy", "Operation not permitted", "Cannot init memory"], MEMPOLICY),
    (&["no mounted hugetlbfs"], NO_HUGETLBFS),
    (&["Cannot get hugepage information"], NO_HUGETLBFS),
    (&["No free", "hugepages"], NO_HUGEPAGES),
    (&["No available", "hugepages"], NO_HUGEPAGES),
    (&["not enough memory", "hugepage"], NO_HUGEPAGES),
];

const QUEUES: &str = "The driver refuses the number or the length of its queues, or has no memory for \
    them: compare its arguments with its page at https://doc.dpdk.org/guides/nics/, and use fewer \
    lcores, which have a queue pair each, or more memory (memory_mb under [eal]).";
const HALF_WAY: &str = "The driver has given up half way, and its device is closed again: \
    log = \"debug\" under [eal] shows its own reason; one lcore, and the default MTU, ask least of \
    it.";
const ARGUMENTS: &str = "The driver refuses a value, lacks an argument that it needs, or finds no such \
    interface: compare them with its page at https://doc.dpdk.org/guides/nics/.";
const NO_DRIVER: &str = "No driver of this DPDK has the name: a virtual device is named by its driver \
    and a number, such as net_tap0, and a NIC by its PCI address (dpdk-devbind.py --status lists \
    NICs).";

/// Rows for errors of which only the step is known, used where nothing else matches.
const BY_STEP: &[Row] = &[
    (&["choosing numbers of descriptors failed"], QUEUES),
    (&["setting up a", "queue failed"], QUEUES),
    (&["asking for its limits failed"], HALF_WAY),
    (&["resetting it failed"], HALF_WAY),
    (&["configuring it failed"], HALF_WAY),
    (&["starting it failed"], HALF_WAY),
    (&["Driver cannot attach the device (net_"], ARGUMENTS),
    (&["failed to parse device \"net_"], NO_DRIVER),
];

/// Returns the text of an error, which includes DPDK's log, with the remedy at the end of its first
/// line, if one is known: the first line of a container's log then has both.
pub fn explained(text: &str) -> Option<String> {
    let own = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let cause = remedy(text, TABLE).or_else(|| refused(text, &own()));
    let remedy = cause.or_else(|| remedy(text, BY_STEP))?;
    let (first, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
    Some(format!("{}. {remedy}{rest}", first.trim_end_matches(['.', ':', ' '])))
}

/// Returns the remedy of the first row that matches the text of an error.
fn remedy(text: &str, table: &[Row]) -> Option<&'static str> {
    let fits = |(words, _): &&Row| words.iter().all(|word| text.contains(word));
    table.iter().find(fits).map(|(_, remedy)| *remedy)
}

/// Returns the remedy for an error that a filter of system calls may have caused. `status` is what
/// the kernel tells of the process, in `/proc/self/status`.
fn refused(text: &str, status: &str) -> Option<&'static str> {
    let is_refused =
        ["Operation not permitted", "lacks a permission"].iter().any(|words| text.contains(words));
    let is_filtered = status.lines().any(|line| line == "Seccomp:\t2");
    (is_refused && is_filtered).then_some(SECCOMP)
}

#[cfg(test)]
mod tests {
    use super::{BY_STEP, TABLE, explained, refused, remedy};

    #[test]
    fn what_dpdk_says_is_explained() {
        let cases = [
            (
                "EAL:   Expecting 'PA' IOVA mode but current mode is 'VA', not initializing\n\
                 EAL: Requested device 0000:00:03.0 cannot be used",
                "--huge",
            ),
            (
                "EAL: FATAL: Cannot use IOVA as 'PA' since physical addresses are not available",
                "hugepages",
            ),
            ("EAL: FATAL: Cannot get hugepage information.", "hugetlbfs"),
            ("EAL: No free 2048 kB hugepages reported on node 0", "nr_hugepages"),
            (
                "EAL: No free 1048576 kB hugepages reported on node 0\n\
                 EAL: Failed to get current mempolicy: Operation not permitted.\n\
                 EAL: Cannot init memory",
                "SYS_NICE",
            ),
            ("EAL: 0000:01:00.0 VFIO group is not viable! Not all", "IOMMU group"),
            ("EAL: Cannot open /dev/vfio/7: Device or resource busy", "Another process"),
            ("EAL: Cannot open /dev/vfio/7: Permission denied", "/dev/vfio"),
            ("EAL: Cannot set up DMA remapping, error 12 (Cannot allocate memory)", "ulimit -l"),
            (
                "pmd(): net_af_packet0: call to mmap failed on AF_PACKET socket for eth0:\
                 Resource temporarily unavailable",
                "ulimit -l",
            ),
            ("net_af_packet0: could not open AF_PACKET socket:Operation not permitted", "NET_RAW"),
            ("/run/uroce/fabric: making it: Read-only file system (os error 30)", "emptyDir"),
            (
                "/run/a: the directory cannot be made: Permission denied (os error 13)",
                "volumeMounts",
            ),
            ("failed to bind to /run/vhost/p0: Permission denied; remove it", "volumeMounts"),
            ("no switch at /run/v/p1: its directory is missing: No such file", "hostPath"),
            ("port 1: there is no network interface \"eth0\": use one", "hostNetwork"),
            ("eth0 has no IP address: give it one (`ip addr add`)", "network plugin"),
            ("UDP port 4791 of 192.0.2.1 is taken: by another process", "spec.containers"),
            ("rte_pmd_af_xdp_probe(): Invalid kvargs key", "one of its arguments; use_pinned_map"),
        ];
        for (said, expected) in cases {
            let help = remedy(said, TABLE).unwrap_or_default();
            assert!(help.contains(expected), "{said}: {help}");
        }
        assert_eq!(remedy("EAL: something else", TABLE), None);
    }

    #[test]
    fn a_driver_that_fails_half_way_is_explained_by_its_step() {
        for (said, expected) in [
            ("setting up a receive queue failed: Cannot allocate memory", "fewer lcores"),
            ("setting up a transmit queue failed: Invalid argument (os error 22)", "fewer lcores"),
            ("choosing numbers of descriptors failed: Invalid argument", "fewer lcores"),
            ("configuring it failed: Invalid argument (os error 22): ", "log = \"debug\""),
            ("starting it failed: Input/output error (os error 5): a driver's log", "half way"),
            ("EAL: Driver cannot attach the device (net_null0)", "doc.dpdk.org/guides/nics"),
            ("EAL: failed to parse device \"net_nonesuch0\"", "dpdk-devbind.py --status"),
        ] {
            assert_eq!(remedy(said, TABLE), None);
            let help = remedy(said, BY_STEP).unwrap_or_default();
            assert!(help.contains(expected), "{said}: {help}");
        }
        let said = explained("port 1: starting it failed: Input/output error: \nmore").unwrap();
        assert!(said.starts_with("port 1: starting it failed: Input/output error. The driver"));
        assert!(said.ends_with("\nmore"), "{said}");
        assert_eq!(remedy("EAL: Driver cannot attach the device (0000:01:00.0)", BY_STEP), None);
    }

    #[test]
    fn a_refused_call_of_a_filtered_process_is_explained() {
        let (filtered, free) = ("Name:\ta\nSeccomp:\t2\n", "Name:\ta\nSeccomp:\t0\n");
        for text in ["no eventfd: Operation not permitted", "EAL lacks a permission: no alarm"] {
            let help = refused(text, filtered).unwrap_or_default();
            assert!(help.contains("securityContext.seccompProfile"), "{text}: {help}");
            assert_eq!(refused(text, free), None);
        }
        assert_eq!(refused("no eventfd: Too many open files", filtered), None);
    }

    #[test]
    fn the_remedy_is_in_the_first_line_of_a_log() {
        let log = "no device: net_af_packet0: open AF_PACKET socket:Operation not permitted\nmore";
        let said = explained(log).unwrap();
        let (first, rest) = said.split_once('\n').unwrap();
        assert!(first.starts_with("no device") && first.contains("permitted. A packet"), "{first}");
        assert!(first.contains("securityContext.capabilities.add") && rest == "more", "{said}");
        assert!(explained("a: Read-only file system").unwrap().contains("system. The directory"));
        assert_eq!(explained("EAL: something else"), None);
    }
}
