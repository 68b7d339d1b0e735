//! Where and with what it was measured: a figure without this is worth little.

use serde::Serialize;

/// Goes with every JSON report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// uroce's commit.
    pub(crate) commit: &'static str,
    /// uroce's version.
    pub(crate) version: &'static str,
    /// DPDK's release.
    pub(crate) dpdk: &'static str,
    /// The processor's name.
    pub(crate) cpu: String,
    /// CPUs this process may use.
    pub(crate) cpus: usize,
    /// The kernel's release.
    pub(crate) kernel: String,
}

impl Machine {
    /// This one.
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
