//! The configuration of EAL, and the argument vector made from it.
//!
//! The defaults are those of a library inside an application: no hugepages, no PCI scan, no
//! telemetry socket, no files, no output. EAL's files are for DPDK's secondary processes. EAL maps
//! them, and a full file system then ends the process. They are made only if a file prefix is
//! given. EAL makes a directory for them in any case, if it can. With `--telemetry` the socket is
//! in it.
//!
//! Invariants
//! - An argument of the caller has precedence: a default of the same family is left out.
//!
//! Not here: checks of values. EAL makes them and logs what it refuses.

use std::io;

/// Options that set DPDK's memory.
const MEMORY: &[&str] =
    &["-m", "--socket-mem", "--no-huge", "--in-memory", "--huge-dir", "--legacy-mem"];

/// The memory of mbufs and of DPDK's own structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Ordinary pages, all reserved (not yet touched) at the start. Needs no privilege and no
    /// set-up. The limit is hard.
    NoHuge {
        /// Megabytes.
        mb: u32,
    },
    /// Hugepages, allocated as needed and given back.
    Huge {
        /// Megabytes to allocate at the start; 0 allocates all on demand.
        mb: u32,
    },
}

/// The part of DPDK's log that is printed to stderr. What explains an error is kept in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Prints nothing.
    #[default]
    Quiet,
    /// Prints errors and warnings.
    Warning,
    /// Prints notices and information too.
    Info,
    /// Prints everything that all libraries and drivers log.
    Debug,
}

/// The configuration of [`Eal::init`](super::Eal::init).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// Memory; by default 512 MB without hugepages.
    pub memory: Memory,
    /// Virtual devices to create at the start, in the form of `--vdev`. Ports can also be created
    /// later, by [`Port::open`](crate::port::Port::open).
    pub vdevs: Vec<String>,
    /// PCI addresses that EAL may use. If empty, PCI is not scanned.
    pub pci_allow: Vec<String>,
    /// CPUs for EAL's own threads (interrupts, multi-process channel), away from the data path. If
    /// empty, those that the calling thread may run on.
    pub control_cpus: Vec<usize>,
    /// Prefix of run-time files, by which DPDK's own tools attach to the process; must be unique
    /// among running processes. `None` for no files.
    pub file_prefix: Option<String>,
    /// The part of DPDK's log to print.
    pub log: LogLevel,
    /// Further EAL arguments, for example from a command line before `--`.
    pub args: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            memory: Memory::NoHuge { mb: 512 },
            vdevs: Vec::new(),
            pci_allow: Vec::new(),
            control_cpus: Vec::new(),
            file_prefix: None,
            log: LogLevel::Quiet,
            args: Vec::new(),
        }
    }
}

impl EalConfig {
    /// Returns the configured control CPUs, or those that the calling thread may run on.
    pub(super) fn allowed_cpus(&self) -> io::Result<Vec<usize>> {
        if !self.control_cpus.is_empty() {
            return Ok(self.control_cpus.clone());
        }
        let set = rustix::thread::sched_getaffinity(None)?;
        Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
    }

    /// Returns the argument vector of `rte_eal_init`, program name first.
    pub(super) fn arguments(&self, cpus: &[usize]) -> Vec<String> {
        let mut args = vec!["uroce".to_owned()];
        let mut default = |family: &[&str], values: &[String]| {
            if !self.args.iter().any(|arg| belongs(arg, family)) {
                args.extend_from_slice(values);
            }
        };
        // One EAL lcore that may run on all these CPUs; a number alone would pin it to one.
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let lcore = format!("0@({})", list.join(","));
        default(&["-l", "-c", "-s", "-S", "--lcores", "--main-lcore"], &["--lcores".into(), lcore]);
        default(MEMORY, &self.memory_arguments());
        default(
            &["-a", "--allow", "-b", "--block", "--no-pci"],
            &match self.pci_allow.is_empty() {
                true => vec!["--no-pci".into()],
                false => self.pci_allow.iter().flat_map(|pci| ["-a".into(), pci.clone()]).collect(),
            },
        );
        default(
            &["--file-prefix", "--in-memory", "--no-shconf", "--huge-dir", "--huge-unlink"],
            &self.file_arguments(),
        );
        default(&["--telemetry", "--no-telemetry"], &["--no-telemetry".into()]);
        default(&["--log-level"], &self.log_arguments());
        args.extend(self.vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
        args.extend(self.args.iter().cloned());
        args
    }

    fn memory_arguments(&self) -> Vec<String> {
        match self.memory {
            // Without hugepages there are no usable physical addresses.
            Memory::NoHuge { mb } => {
                vec!["--no-huge".into(), "-m".into(), mb.to_string(), "--iova-mode=va".into()]
            }
            Memory::Huge { mb: 0 } => Vec::new(),
            Memory::Huge { mb } => vec!["-m".into(), mb.to_string()],
        }
    }

    fn file_arguments(&self) -> Vec<String> {
        match (&self.file_prefix, self.memory) {
            (Some(prefix), _) => vec!["--file-prefix".into(), prefix.clone()],
            // EAL makes a directory of that name, if it can, and leaves it empty.
            (None, Memory::NoHuge { .. }) => {
                vec!["--no-shconf".into(), "--file-prefix".into(), "uroce".into()]
            }
            // With this argument hugepages can be used without a mounted hugetlbfs.
            (None, Memory::Huge { .. }) => vec!["--in-memory".into()],
        }
    }

    fn log_arguments(&self) -> Vec<String> {
        // DPDK's levels are syslog's plus one.
        match self.log {
            LogLevel::Quiet | LogLevel::Warning => vec!["--log-level=5".into()],
            LogLevel::Info => vec!["--log-level=7".into()],
            LogLevel::Debug => vec!["--log-level=8".into(), "--log-level=*:8".into()],
        }
    }
}

/// Returns whether EAL arguments of the caller set the memory, so that [`EalConfig::memory`] has no
/// effect.
pub fn sets_memory(args: &[String]) -> bool {
    args.iter().any(|arg| belongs(arg, MEMORY))
}

/// Returns whether `arg` is one of the options: alone, with `=value`, or a short one with its
/// value.
fn belongs(arg: &str, options: &[&str]) -> bool {
    options.iter().any(|&option| match arg.strip_prefix(option) {
        Some("") => true,
        Some(rest) => rest.starts_with('=') || !option.starts_with("--"),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_ask_for_no_privilege() {
        let args = EalConfig::default().arguments(&[0, 3]);
        let expected = "uroce --lcores 0@(0,3) --no-huge -m 512 --iova-mode=va --no-pci \
                        --no-shconf --file-prefix uroce --no-telemetry --log-level=5";
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn a_callers_argument_replaces_the_default_of_its_family() {
        let config = EalConfig {
            args: ["-l1", "--socket-mem=64", "-a", "0000:01:00.0"].map(str::to_owned).to_vec(),
            ..EalConfig::default()
        };
        let args = config.arguments(&[0]);
        let expected = "uroce --no-shconf --file-prefix uroce --no-telemetry --log-level=5 -l1 \
                        --socket-mem=64 -a 0000:01:00.0";
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn files_are_made_only_with_a_prefix() {
        let huge = EalConfig { memory: Memory::Huge { mb: 64 }, ..EalConfig::default() };
        let args = huge.arguments(&[0]).join(" ");
        assert!(args.contains("-m 64 --no-pci --in-memory --no-telemetry"), "{args}");
        let named = EalConfig { file_prefix: Some("p".into()), ..EalConfig::default() };
        let args = named.arguments(&[0]).join(" ");
        assert!(args.contains("--file-prefix p") && !args.contains("--no-shconf"), "{args}");
    }

    #[test]
    fn a_longer_option_is_not_taken_for_its_prefix() {
        assert!(belongs("-m64", &["-m"]));
        assert!(!belongs("--main-lcore", &["--main"]));
        assert!(!belongs("--mbuf-pool-ops-name=x", &["-m"]));
    }
}
