//! Number of queue pairs that can be open, and the memory of each.
//!
//! The size of a queue pair's state is computed by the engine from all its parts. Its total memory
//! is measured as the growth of the process's resident memory per queue pair, with the shortest
//! queues and including the rounding of every allocator.

use crate::error::{BenchError, Step};
use serde::{Deserialize, Serialize};
use uroce::config::{Config, DeviceConfig, Idle, PortConfig};
use uroce::{Context, QpCaps, QpInit};
use uroce_engine::Engine;

/// Number of queue pairs to open.
const AIM: u32 = 65_536;
/// Bytes of a page, the unit of `statm`.
const PAGE: u64 = 4096;

/// Results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Capacity {
    /// Queue pairs that were open at the same time.
    pub(super) max_open_qps: u32,
    /// Bytes of a queue pair's state without its queues.
    pub(super) qp_state_bytes: u64,
    /// Bytes of resident memory per queue pair, with queues of one entry.
    pub(super) open_qp_bytes: u64,
}

/// Opens [`AIM`] queue pairs, or as many as possible.
pub(super) fn measure() -> Result<Capacity, BenchError> {
    let port = PortConfig::ring("capacity").ip("198.18.0.1/24").step("an address")?;
    let mut device = DeviceConfig::new("capacity").idle(Idle::Sleep).port(port);
    device.max_qps = AIM;
    let context = Context::open(&Config::new().device(device), "capacity").step("the device")?;
    let cq = context.create_cq(1).step("creating a CQ")?;
    let pd = context.allocate_pd();
    let mut init = QpInit::new(&cq);
    init.caps =
        QpCaps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, ..init.caps };
    let mut qps = Vec::with_capacity(AIM as usize);
    let before = resident()?;
    // An error means that no further queue pair can be opened, which is a result.
    while qps.len() < AIM as usize
        && let Ok(qp) = pd.create_qp(&init)
    {
        qps.push(qp);
    }
    let grown = resident()?.saturating_sub(before);
    let max_open_qps = u32::try_from(qps.len()).unwrap_or(u32::MAX);
    let open_qp_bytes = grown.checked_div(u64::from(max_open_qps)).unwrap_or(0);
    let qp_state_bytes = Engine::qp_state_bytes() as u64;
    // The process ends soon; destroying the queue pairs one by one would only take time.
    std::mem::forget((qps, cq, pd, context));
    Ok(Capacity { max_open_qps, qp_state_bytes, open_qp_bytes })
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<u64, BenchError> {
    let what = |error| BenchError::io("reading /proc/self/statm", error);
    let text = std::fs::read_to_string("/proc/self/statm").map_err(what)?;
    let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    pages.map(|pages| pages * PAGE).ok_or_else(|| what(std::io::ErrorKind::InvalidData.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_resident() {
        let before = resident().expect("statm");
        let memory = vec![1u8; 64 << 20];
        let grown = resident().expect("statm") - before;
        assert!(grown > 60 << 20, "{grown}");
        drop(memory);
    }
}
