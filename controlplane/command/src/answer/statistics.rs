//! Answers about lcores' turns, and all that `uroce export` tells.

use serde::{Deserialize, Serialize};

use super::{Core, Counter, DropCount, ObjectCount, PortInfo, PortStats};

/// What the measured turns of an lcore have taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LcoreRuntime {
    /// RoCE device.
    pub device: String,
    /// Number of the lcore at that device, from 0.
    pub lcore: u32,
    /// Measured time in microseconds.
    pub time_us: u64,
    /// Cycles of that time.
    pub cycles: u64,
    /// Turns in it.
    pub turns: u64,
    /// Turns that found nothing to do.
    pub idle_turns: u64,
    /// Cycles of these.
    pub idle_cycles: u64,
    /// Cycles between turns, in which the lcore rested or its driver did something else.
    pub rest_cycles: u64,
    /// Stages of the turns with work, in their order.
    pub stages: Vec<StageRuntime>,
}

/// What a stage has taken in measured turns with work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRuntime {
    /// Name.
    pub stage: String,
    /// Turns in which it found something to do.
    pub calls: u64,
    /// Frames that it received or sent.
    pub packets: u64,
    /// Cycles.
    pub cycles: u64,
}

/// All that `uroce export` tells of a device. What was cleared counts on.
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
    /// Their measured turns.
    pub runtime: Vec<LcoreRuntime>,
    /// Numbers of other objects.
    pub objects: Vec<ObjectCount>,
    /// Numbers of QPs by service and state.
    pub qps: Vec<QpGroup>,
    /// QPs with the most bytes, that with most first.
    pub top: Vec<QpTraffic>,
}

/// Number of QPs of a service in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpGroup {
    /// Service: RC, UC, UD.
    pub service: String,
    /// State: RESET to ERR.
    pub state: String,
    /// How many.
    pub count: u32,
}

/// Packets of a QP since it was created, and the bytes of their frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpTraffic {
    /// Number of the QP.
    pub qpn: u32,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes of these.
    pub tx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of these.
    pub rx_bytes: u64,
}

impl QpTraffic {
    /// Returns the bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.tx_bytes.saturating_add(self.rx_bytes)
    }
}
