//! How many queue pairs can be open, and what each takes besides its queues.
//!
//! What a queue pair takes is measured, not asked: the process's resident memory grows by so much
//! while thousands of them are opened. That is done at two depths, and what grows with the depth is
//! the queues' and subtracted; the rest, whatever table or heap it lies in, is the state.

use crate::error::{BenchError, Step};
use serde::{Deserialize, Serialize};
use uroce::config::{Config, DeviceConfig, Idle, PortConfig};
use uroce::{
    CompletionQueue, ConnectOptions, Context, ProtectionDomain, QpCaps, QpInit, QueuePair,
};

/// Queue pairs that are aimed at.
const AIM: u32 = 65_536;
/// Queue pairs opened for each of the two measurements.
const SAMPLE: u32 = 2048;
/// Entries of send and receive queue in the two measurements.
const DEPTHS: [u32; 2] = [64, 128];
/// Bytes of a page, the unit of `statm`.
const PAGE: u64 = 4096;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Capacity {
    /// Queue pairs that were open at once.
    pub(super) max_open_qps: u32,
    /// Bytes of a queue pair besides its queues.
    pub(super) qp_state_bytes: u64,
}

/// Opens queue pairs until there are as many as are aimed at, or no more.
pub(super) fn measure() -> Result<Capacity, BenchError> {
    let port = PortConfig::ring("capacity").ip("198.18.0.1/24").step("an address")?;
    let mut device = DeviceConfig::new("capacity").idle(Idle::Sleep).port(port);
    device.max_qps = AIM;
    let context = Context::open(&Config::new().device(device), "capacity").step("the device")?;
    let opener =
        Opener { cq: context.create_cq(1).step("creating a CQ")?, pd: context.allocate_pd() };
    let mut qps = Vec::with_capacity(AIM as usize);
    // The first of them also touch what all share.
    opener.open(&mut qps, 64, DEPTHS[0], true)?;
    let mut grown = [0; 2];
    for (grown, depth) in grown.iter_mut().zip(DEPTHS) {
        let before = resident()?;
        opener.open(&mut qps, SAMPLE, depth, true)?;
        *grown = (resident()? - before) / u64::from(SAMPLE);
    }
    // The rest; that there is no more room is what is to be found out.
    while qps.len() < AIM as usize && opener.open(&mut qps, 1, 1, false).is_ok() {}
    let max_open_qps = u32::try_from(qps.len()).unwrap_or(u32::MAX);
    // This process ends now; destroying them one by one would only take time.
    std::mem::forget((qps, opener, context));
    Ok(Capacity { max_open_qps, qp_state_bytes: state(grown, DEPTHS) })
}

/// What opening takes.
struct Opener {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Opener {
    /// Opens `count` queue pairs of that depth, and takes them to INIT if asked.
    fn open(
        &self,
        qps: &mut Vec<QueuePair>,
        count: u32,
        depth: u32,
        to_init: bool,
    ) -> Result<(), BenchError> {
        let mut init = QpInit::new(&self.cq);
        init.caps = QpCaps {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            ..init.caps
        };
        for _ in 0..count {
            let mut qp = self.pd.create_qp(&init).step("creating a QP")?;
            if to_init {
                qp.init(&ConnectOptions::default()).step("taking a QP to INIT")?;
            }
            qps.push(qp);
        }
        Ok(())
    }
}

/// The part of what a queue pair takes at two depths that does not grow with the depth.
fn state([shallow, deep]: [u64; 2], [low, high]: [u32; 2]) -> u64 {
    let per_entry = deep.saturating_sub(shallow) as f64 / f64::from(high - low);
    (shallow as f64 - per_entry * f64::from(low)).max(0.0).round() as u64
}

/// Bytes of this process in memory.
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
    fn what_grows_with_the_depth_is_the_queues() {
        assert_eq!(state([700 + 16 * 40, 700 + 32 * 40], [16, 32]), 700);
        assert_eq!(state([640, 1280], [16, 32]), 0);
        assert_eq!(state([900, 900], [16, 32]), 900);
    }

    #[test]
    fn this_process_is_resident() {
        let before = resident().expect("statm");
        let memory = vec![1u8; 64 << 20];
        let grown = resident().expect("statm") - before;
        assert!(grown > 60 << 20, "{grown}");
        drop(memory);
    }
}
