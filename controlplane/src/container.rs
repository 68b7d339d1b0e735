//! Limits of the process's control groups, which containers and services of systemd have.
//!
//! The kernel kills a process that exceeds its memory, and stops one that has used its share of the
//! CPUs until the next period; neither leaves a message. So a configuration is compared with the
//! limits before its device opens.
//!
//! Invariants
//! - Where control groups cannot be read there is no limit, and no error.
//!
//! Not here: CPU sets. The kernel refuses to bind a thread to a CPU outside of them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use uroce_engine::eal::{Memory, sets_memory};

use crate::config::{DEFAULT_MEMORY_MB, EalConfig, Idle, LEAST_MEMORY_MB};

/// Megabytes of a process besides those of DPDK: its code, stacks and tables.
const OWN_MB: u64 = 32;
/// Limits from here on mean that there is none: version 1 has the largest number of pages.
const NO_LIMIT: u64 = 1 << 60;
/// Sizes of hugepages as in the names of control groups' files.
const HUGEPAGES: [&str; 2] = ["2MB", "1GB"];

/// Reason for which the memory of a configuration does not fit into the container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The limit of the container's memory is too low.
    #[error(
        "the container has {limit_mb} MB of memory, and eal.memory_mb = {memory_mb} needs {} MB: \
         raise the limit (a Pod's resources.limits.memory; --memory; MemoryMax= of systemd){}",
        u64::from(*memory_mb) + OWN_MB,
        smaller(limit_mb.saturating_sub(OWN_MB))
    )]
    Memory {
        /// The limit in megabytes.
        limit_mb: u64,
        /// Megabytes of DPDK: those of the configuration, or the least that it may have.
        memory_mb: u32,
    },
    /// The limit of the container's hugepages is too low.
    #[error(
        "the container has {limit_mb} MB of hugepages, and eal.memory_mb = {memory_mb} needs as \
         many: raise the limit (a Pod's resources.limits.hugepages-2Mi or hugepages-1Gi), or do \
         without (no --huge; huge = false under [eal]){}",
        smaller(*limit_mb)
    )]
    Hugepages {
        /// The limit in megabytes.
        limit_mb: u64,
        /// Megabytes of DPDK: those of the configuration, or the least that it may have.
        memory_mb: u32,
    },
}

/// Returns the advice to configure this much memory at most. Empty if no configuration may have so
/// little.
fn smaller(most_mb: u64) -> String {
    match most_mb >= u64::from(LEAST_MEMORY_MB) {
        true => format!(", or set memory_mb = {most_mb} or less under [eal]"),
        false => String::new(),
    }
}

/// The limits that apply to this process. `None` for a limit that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory_mb: Option<u64>,
    pub(crate) hugepages_mb: Option<u64>,
    /// Thousandths of a CPU.
    pub(crate) cpu_millis: Option<u64>,
}

impl Limits {
    /// Reads the limits of this process.
    pub(crate) fn of_process() -> Limits {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Limits::read(Path::new("/sys/fs/cgroup"), &membership)
    }

    /// Reads the limits of a process with this text in `/proc/PID/cgroup`, below a mount point.
    fn read(root: &Path, membership: &str) -> Limits {
        let megabytes = |bytes: u64| bytes >> 20;
        let memory = folders(root, membership, "memory");
        let memory = least(&memory, &["memory.max", "memory.limit_in_bytes"], parse_bytes);
        let hugetlb = folders(root, membership, "hugetlb");
        // There are no files for a size that the processor lacks.
        let of_size = |size: &&str| {
            let files = [format!("hugetlb.{size}.max"), format!("hugetlb.{size}.limit_in_bytes")];
            let files = [&*files[0], &*files[1]];
            exists(&hugetlb, &files).then(|| least(&hugetlb, &files, parse_bytes))
        };
        let sizes: Vec<Option<u64>> = HUGEPAGES.iter().filter_map(of_size).collect();
        let has_sizes = !sizes.is_empty();
        // One size without a limit is enough for there to be none.
        let hugepages: Option<u64> = sizes.into_iter().sum();
        let cpu = folders(root, membership, "cpu");
        let quotas = cpu.iter().filter_map(|folder| quota(folder));
        Limits {
            memory_mb: memory.map(megabytes),
            hugepages_mb: hugepages.filter(|_| has_sizes).map(megabytes),
            cpu_millis: quotas.min(),
        }
    }

    /// Returns DPDK's memory: as configured, or, without that, what the limits leave, at most
    /// [`DEFAULT_MEMORY_MB`]. `running` is that of a DPDK which runs already; its memory stays as
    /// it is, whatever the limits have become since.
    ///
    /// # Errors
    ///
    /// The configured memory, or the least that a configuration may have, does not fit.
    pub(crate) fn memory(
        &self,
        eal: &EalConfig,
        running: Option<Memory>,
    ) -> Result<Memory, ContainerError> {
        let of = |mb| if eal.huge { Memory::Huge { mb } } else { Memory::NoHuge { mb } };
        if sets_memory(&eal.args) {
            // `memory_mb` has no effect then.
            return Ok(of(eal.memory_mb.unwrap_or(DEFAULT_MEMORY_MB)));
        }
        let is_same_kind = |memory: &Memory| matches!(memory, Memory::Huge { .. }) == eal.huge;
        if let (None, Some(memory)) = (eal.memory_mb, running.filter(is_same_kind)) {
            return Ok(memory);
        }
        let (limit, own) = match eal.huge {
            true => (self.hugepages_mb, 0),
            false => (self.memory_mb, OWN_MB),
        };
        let Some(limit_mb) = limit else {
            return Ok(of(eal.memory_mb.unwrap_or(DEFAULT_MEMORY_MB)));
        };
        let fits = u32::try_from(limit_mb.saturating_sub(own)).unwrap_or(u32::MAX);
        let by_default = DEFAULT_MEMORY_MB.min(fits).max(LEAST_MEMORY_MB);
        match eal.memory_mb.unwrap_or(by_default) {
            mb if mb <= fits => Ok(of(mb)),
            memory_mb if eal.huge => Err(ContainerError::Hugepages { limit_mb, memory_mb }),
            memory_mb => Err(ContainerError::Memory { limit_mb, memory_mb }),
        }
    }

    /// Returns the megabytes of hugepages that the process may use, of so many.
    pub(crate) fn hugepages_up_to(&self, mb: u32) -> u32 {
        self.hugepages_mb.map_or(mb, |limit| u32::try_from(limit).map_or(mb, |limit| mb.min(limit)))
    }

    /// Returns the action of idle lcores, and a warning if it wastes the CPUs' quota. One CPU more
    /// than there are lcores is enough: for the control plane and the program.
    pub(crate) fn idle(&self, wish: Idle, lcores: usize) -> (Idle, Option<String>) {
        let enough = (lcores as u64 + 1) * 1000;
        let Some(quota) = self.cpu_millis.filter(|quota| *quota < enough) else {
            return (wish, None);
        };
        let name = match wish {
            Idle::Auto => return (Idle::Sleep, None),
            Idle::Sleep => return (Idle::Sleep, None),
            Idle::Poll => "poll",
            Idle::Yield => "yield",
        };
        let cpus = format!("{}.{:03}", quota / 1000, quota % 1000);
        let cpus = cpus.trim_end_matches('0').trim_end_matches('.');
        let warning = format!(
            "idle = \"{name}\" uses up the container's quota of {cpus} CPUs, and all of its threads \
             then stop until the next period: set idle = \"sleep\", or remove the quota (a Pod's \
             resources.limits.cpu; --cpus; CPUQuota= of systemd)"
        );
        (wish, Some(warning))
    }
}

/// Returns the folders of a controller that limit the process: its own group's, and those above.
/// A container may see only its own, in the place of the uppermost.
fn folders(root: &Path, membership: &str, controller: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let base = match controllers {
            "" => root.to_owned(),
            _ if controllers.split(',').any(|name| name == controller) => root.join(controller),
            _ => continue,
        };
        found.push(base.clone());
        let mut folder = base;
        for part in Path::new(path).components() {
            if let Component::Normal(name) = part {
                folder.push(name);
                found.push(folder.clone());
            }
        }
    }
    found
}

/// Tells whether one of the folders has a file of one of these names.
fn exists(folders: &[PathBuf], names: &[&str]) -> bool {
    folders.iter().any(|folder| names.iter().any(|name| folder.join(name).exists()))
}

/// Returns the least value in files of these names in the folders.
fn least(folders: &[PathBuf], names: &[&str], parse: fn(&str) -> Option<u64>) -> Option<u64> {
    let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    files.filter_map(|file| parse(fs::read_to_string(file).ok()?.trim())).min()
}

fn parse_bytes(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes < NO_LIMIT)
}

/// Returns the quota in a folder, in thousandths of a CPU.
fn quota(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(both) => both.trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()))?,
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // Without a quota there is "max", or -1 in version 1.
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
    Some(quota.saturating_mul(1000) / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount point of control groups with these files, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let root = std::env::temp_dir().join(format!("uroce-{name}-{}", std::process::id()));
            for (file, text) in files {
                let file = root.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Tree(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const NONE: Limits = Limits { memory_mb: None, hugepages_mb: None, cpu_millis: None };

    #[test]
    fn the_least_limit_of_all_groups_above_the_process_counts() {
        let tree = Tree::new(
            "groups-v2",
            &[
                ("pod/memory.max", "268435456\n"),
                ("pod/cpu.max", "max 100000\n"),
                ("pod/hugetlb.2MB.max", "67108864\n"),
                ("pod/hugetlb.1GB.max", "0\n"),
                ("pod/main/memory.max", "max\n"),
                ("pod/main/cpu.max", "50000 100000\n"),
                ("pod/other/memory.max", "1048576\n"),
            ],
        );
        let limits = Limits::read(&tree.0, "0::/pod/main\n");
        let expected =
            Limits { memory_mb: Some(256), hugepages_mb: Some(64), cpu_millis: Some(500) };
        assert_eq!(limits, expected);
        assert_eq!(Limits::read(&tree.0, "0::/elsewhere\n"), NONE);
        assert_eq!(Limits::read(&tree.0, "nonsense\n0::\n:::\n\n"), NONE);
    }

    #[test]
    fn a_container_sees_its_own_group_of_version_1_as_the_uppermost() {
        let tree = Tree::new(
            "groups-v1",
            &[
                ("memory/memory.limit_in_bytes", "134217728\n"),
                ("cpu/cpu.cfs_quota_us", "150000\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
                ("memory.max", "1\n"),
            ],
        );
        let membership = "5:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n";
        let limits = Limits::read(&tree.0, membership);
        assert_eq!(limits, Limits { memory_mb: Some(128), cpu_millis: Some(1500), ..NONE });
    }

    #[test]
    fn version_1_without_limits_has_none() {
        let tree = Tree::new(
            "groups-none",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "0\n"),
            ],
        );
        assert_eq!(Limits::read(&tree.0, "5:memory:/\n4:cpu:/\n"), NONE);
    }

    /// Both limits, of memory and of hugepages.
    fn both(memory_mb: u64, hugepages_mb: u64) -> Limits {
        Limits { memory_mb: Some(memory_mb), hugepages_mb: Some(hugepages_mb), ..NONE }
    }

    fn eal(huge: bool, memory_mb: Option<u32>) -> EalConfig {
        EalConfig { huge, memory_mb, ..EalConfig::default() }
    }

    #[test]
    fn a_size_of_hugepages_that_the_machine_lacks_counts_nothing_beside_another() {
        let limit = |name, files: &[(&str, &str)]| {
            let tree = Tree::new(name, files);
            Limits::read(&tree.0, "0::/pod\n").hugepages_mb
        };
        let two = ("pod/hugetlb.2MB.max", "67108864\n");
        assert_eq!(limit("huge-one", &[two]), Some(64));
        assert_eq!(limit("huge-none", &[("pod/hugetlb.2MB.max", "0\n")]), Some(0));
        assert_eq!(limit("huge-max", &[two, ("pod/hugetlb.1GB.max", "max\n")]), None);
        assert_eq!(limit("huge-missing", &[("pod/memory.max", "1048576\n")]), None);
    }

    #[test]
    fn memory_that_does_not_fit_is_refused_with_the_fields_that_help() {
        let refused = |limits: Limits, eal: &EalConfig, words: &[&str]| {
            let said = limits.memory(eal, None).unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
            said
        };
        let limits = both(159, 64);
        let words = ["resources.limits.memory", "needs 160 MB", "memory_mb = 127 or less"];
        refused(limits, &eal(false, Some(128)), &words);
        assert_eq!(limits.memory(&eal(false, Some(127)), None), Ok(Memory::NoHuge { mb: 127 }));
        refused(limits, &eal(true, Some(65)), &["hugepages-2Mi", "memory_mb = 64 or less"]);
        assert_eq!(limits.memory(&eal(true, Some(64)), None), Ok(Memory::Huge { mb: 64 }));
        let most = 1 << 20;
        assert_eq!(NONE.memory(&eal(false, Some(most)), None), Ok(Memory::NoHuge { mb: most }));
        // No configuration may have so little.
        let said = refused(both(95, 63), &eal(false, Some(64)), &["needs 96 MB"]);
        assert!(!said.contains("or less"), "{said}");
    }

    #[test]
    fn memory_that_is_not_configured_is_what_the_limit_leaves() {
        let limits = both(512, 256);
        assert_eq!(limits.memory(&eal(false, None), None), Ok(Memory::NoHuge { mb: 480 }));
        assert_eq!(limits.memory(&eal(true, None), None), Ok(Memory::Huge { mb: 256 }));
        let roomy = both(1 << 50, 1 << 50);
        assert_eq!(roomy.memory(&eal(false, None), None), Ok(Memory::NoHuge { mb: 512 }));
        assert_eq!(NONE.memory(&eal(true, None), None), Ok(Memory::Huge { mb: 512 }));
        assert_eq!(both(96, 0).memory(&eal(false, None), None), Ok(Memory::NoHuge { mb: 64 }));
        for (huge, field) in [(false, "resources.limits.memory"), (true, "hugepages-2Mi")] {
            let said = both(95, 63).memory(&eal(huge, None), None).unwrap_err().to_string();
            assert!(said.contains(field) && said.contains("memory_mb = 64 needs"), "{said}");
            assert!(!said.contains("or less"), "{said}");
        }
    }

    #[test]
    fn memory_in_the_arguments_of_eal_is_not_checked() {
        for args in [["-m", "64"], ["--socket-mem=64", "--no-huge"]] {
            let args = args.map(str::to_owned).to_vec();
            let eal = EalConfig { args, ..eal(false, Some(1024)) };
            assert_eq!(both(100, 0).memory(&eal, None), Ok(Memory::NoHuge { mb: 1024 }));
        }
    }

    #[test]
    fn a_limit_that_changes_does_not_change_the_memory_of_a_dpdk_that_runs() {
        let running = Some(Memory::NoHuge { mb: 480 });
        let lowered = both(90, 256);
        assert_eq!(lowered.memory(&eal(false, None), running), Ok(Memory::NoHuge { mb: 480 }));
        assert_eq!(lowered.memory(&eal(true, None), running), Ok(Memory::Huge { mb: 256 }));
        assert!(lowered.memory(&eal(false, Some(128)), running).is_err());
    }

    #[test]
    fn lcores_with_less_than_a_cpu_more_than_they_need_sleep() {
        let limits = Limits { cpu_millis: Some(1500), ..NONE };
        assert_eq!(limits.idle(Idle::Auto, 1), (Idle::Sleep, None));
        let (idle, warning) = limits.idle(Idle::Poll, 1);
        assert_eq!(idle, Idle::Poll);
        let warning = warning.unwrap();
        assert!(warning.contains("1.5 CPUs") && warning.contains("limits.cpu"), "{warning}");
        let enough = Limits { cpu_millis: Some(2000), ..NONE };
        assert_eq!(enough.idle(Idle::Poll, 1), (Idle::Poll, None));
        assert_eq!(enough.idle(Idle::Auto, 2), (Idle::Sleep, None));
        assert_eq!(NONE.idle(Idle::Auto, 16), (Idle::Auto, None));
    }
}
