//! The measurements of a plan, and their names.
//!
//! Not here: how they are made ([`super::make`]).

use super::plan::{Counts, Other, Plan};
use serde::{Deserialize, Serialize};

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Work {
    /// Zero-loss rate of a service at a size: a length of frames, `imix`, or `msg` and a number.
    Rates { service: String, size: String },
    /// Latency of single messages.
    Latency { size: u32, messages: u32 },
    /// Rate on this number of queue pairs.
    Qps(u32),
    /// Rate of WRITEs to this number of regions.
    Regions(u32),
    /// Rate of this number of pairs of cores.
    Cores(u32),
    /// Rate of this number of pairs of processes in the local fabric.
    Processes(u32),
    /// Goodput with loss.
    Loss,
    /// Failover of this number of queue pairs.
    Failover(u32),
    /// Throughput of uroce, beside that of others.
    Uroce,
    /// Throughput of another stack.
    Other(Other),
}

/// Returns the measurements of a round.
pub(super) fn of_plan(plan: &Plan) -> Vec<Work> {
    let mut all = Vec::new();
    if let Some(rates) = &plan.rates {
        let sizes = rates.frames.iter().map(ToString::to_string);
        let sizes: Vec<String> =
            sizes.chain(rates.sizes.iter().map(|size| format!("msg {size}"))).collect();
        for service in &rates.services {
            let one = |size: &String| Work::Rates { service: service.clone(), size: size.clone() };
            all.extend(sizes.iter().map(one));
        }
    }
    if let Some(latency) = &plan.latency {
        let messages = latency.messages;
        all.extend(latency.sizes.iter().map(|&size| Work::Latency { size, messages }));
    }
    let counts = |counts: &Option<Counts>, work: fn(u32) -> Work| {
        let counts = counts.as_ref().map_or(Vec::new(), |counts| counts.counts.clone());
        counts.into_iter().map(work).collect::<Vec<Work>>()
    };
    all.extend(counts(&plan.qps, Work::Qps));
    all.extend(counts(&plan.regions, Work::Regions));
    all.extend(counts(&plan.cores, Work::Cores));
    all.extend(counts(&plan.processes, Work::Processes));
    all.extend(plan.loss.as_ref().map(|_| Work::Loss));
    all.extend(counts(&plan.failover, Work::Failover));
    if !plan.beside.is_empty() {
        all.push(Work::Uroce);
    }
    all.extend(plan.beside.iter().copied().map(Work::Other));
    all
}

impl Work {
    /// Returns the name, for progress and for what is missing.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Rates { service, size } => format!("zero-loss rate, {service} {size}"),
            Self::Latency { size, .. } => format!("latency, {size} B"),
            Self::Qps(count) => format!("{count} queue pairs"),
            Self::Regions(count) => format!("{count} memory regions"),
            Self::Cores(pairs) => format!("{pairs} pair(s) of cores"),
            Self::Processes(pairs) => format!("{pairs} pair(s) of processes"),
            Self::Loss => "goodput with loss".to_owned(),
            Self::Failover(qps) => format!("failover of {qps} queue pair(s)"),
            Self::Uroce | Self::Other(_) => format!("throughput of {}", self.stack()),
        }
    }

    /// Returns the name of the stack.
    pub(super) fn stack(&self) -> &'static str {
        match self {
            Self::Other(Other::Tcp) => "TCP of the kernel, iperf3",
            Self::Other(Other::UcxTcp) => "UCX over TCP",
            Self::Other(Other::SoftRoce) => "Soft-RoCE of the kernel",
            Self::Other(Other::SoftRoceUml) => "Soft-RoCE in user-mode Linux",
            _ => "uroce, WRITE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_every_point_of_the_plan_once() {
        let plan = Plan::read("full").expect("the full plan");
        let all = of_plan(&plan);
        let names: std::collections::BTreeSet<String> = all.iter().map(Work::name).collect();
        assert_eq!(names.len(), all.len(), "names differ");
        assert_eq!(all.len(), 3 * 13 + 9 + 8 + 5 + 6 + 6 + 1 + 2 + 1 + 4);
    }
}
