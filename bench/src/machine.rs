//! Machine and versions of a measurement.

use serde::Serialize;

/// Description of the machine and the versions, part of every JSON report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// Commit of uroce.
    pub(crate) commit: &'static str,
    /// Version of uroce.
    pub(crate) version: &'static str,
    /// Release of DPDK.
    pub(crate) dpdk: &'static str,
    /// Name of the processor.
    pub(crate) cpu: String,
    /// Number of CPUs that this process may use.
    pub(crate) cpus: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn this() -> Self {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            commit: env!("UROCE_COMMIT"),
            version: env!("CARGO_PKG_VERSION"),
            dpdk: uroce_engine::eal::Eal::dpdk_version(),
            cpu: cpu_name(&read("/proc/cpuinfo")),
            cpus: crate::pin::cpus().len(),
            kernel: release.trim().to_owned(),
        }
    }
}

fn cpu_name(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_or_else_its_architecture() {
        assert_eq!(cpu_name("processor\t: 0\nmodel name\t: A Xeon\nflags: x\n"), "A Xeon");
        assert_eq!(cpu_name(""), std::env::consts::ARCH);
    }
}
