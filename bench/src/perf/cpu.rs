//! Share of the machine's CPU time that is not idle (`--cpu_util`).

/// Ticks of all CPUs together since the machine's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    /// Reads the ticks; `None` where there is no `/proc`.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the line of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal. Later
    /// numbers are part of the first two.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        let all = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        Some(Self { busy: all - idle, all })
    }

    /// Returns the busy share of the time since `before`, in per cent.
    pub(crate) fn percent_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        self.busy.saturating_sub(before.busy) as f64 * 100.0 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_waiting_is_busy() {
        let of = |line: &str| Ticks::parse(line).expect("a line of all CPUs");
        let before = of("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3 4\n");
        let after = of("cpu  150 0 120 720 110 0 0 0 90 0\n");
        assert_eq!(after.percent_since(&before), 70.0);
        assert_eq!(before.percent_since(&before), 0.0);
        assert_eq!(Ticks::parse("cpu0 1 2 3 4\n"), None);
        assert_eq!(Ticks::parse("cpu  1 2 3\n"), None);
        assert!(Ticks::now().is_some());
    }
}
