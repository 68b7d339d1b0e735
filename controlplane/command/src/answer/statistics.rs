//! Answers about lcores' turns, and about everything that `uroce export` reports.

use serde::{Deserialize, Serialize};

use super::{Core, Counter, DropCount, ObjectCount, PortInfo, PortStats};

/// Totals of the measured turns of an lcore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LcoreRuntime {
    /// RoCE device.
    pub device: String,
    /// Number of the lcore at that device, from 0.
    pub lcore: u32,
    /// Measured time in microseconds.
    pub time_us: u64,
    /// Cycles in the measured time.
    pub cycles: u64,
    /// Number of turns in the measured time.
    pub turns: u64,
    /// Number of turns that found nothing to do.
    pub idle_turns: u64,
    /// Cycles of turns that found nothing to do.
    pub idle_cycles: u64,
    /// Cycles between turns, in which the lcore rested or its driver did something else.
    pub rest_cycles: u64,
    /// The stages of turns with work, in the order of a turn.
    pub stages: Vec<StageRuntime>,
}

/// Totals of a stage over measured turns with work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRuntime {
    /// Name of the stage.
    pub stage: String,
    /// Number of turns in which the stage found something to do.
    pub calls: u64,
    /// Frames that the stage received or sent.
    pub packets: u64,
    /// Cycles that the stage took.
    pub cycles: u64,
}

/// Everything that `uroce export` reports about a device. Clearing has no effect on these counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scraped {
    /// RoCE device.
    pub device: String,
    /// Ports.
    pub ports: Vec<PortInfo>,
    /// Counters of the ports.
    pub port_stats: Vec<PortStats>,
    /// Counters of the device.
    pub counters: Vec<Counter>,
    /// Frames dropped, by reason.
    pub errors: Vec<DropCount>,
    /// Lcores.
    pub cores: Vec<Core>,
    /// The measured turns of the lcores.
    pub runtime: Vec<LcoreRuntime>,
    /// Numbers of other objects.
    pub objects: Vec<ObjectCount>,
    /// Numbers of QPs by service and state.
    pub qps: Vec<QpGroup>,
    /// QPs with the most bytes, in descending order.
    pub top: Vec<QpTraffic>,
    /// Round trips of requests; `None` from an earlier release.
    #[serde(default)]
    pub round_trips: Option<super::Distribution>,
}

/// Number of QPs of a service in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpGroup {
    /// Service: RC, UC, UD.
    pub service: String,
    /// State: RESET to ERR.
    pub state: String,
    /// Number of QPs.
    pub count: u32,
}

/// Traffic of a QP since it was created. Bytes are those of whole frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpTraffic {
    /// Number of the QP.
    pub qpn: u32,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
}

impl QpTraffic {
    /// Returns the sum of the bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.tx_bytes.saturating_add(self.rx_bytes)
    }
}
