//! Configuration of an engine.

use uroce_shared::seat::idle::{Driver, IdlePolicy};
use uroce_transport::{Congestion, Notification};

/// The configuration of [`Engine::start`](crate::Engine::start).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// One lcore per entry, 1 to [`MAX_LCORES`](crate::MAX_LCORES): the CPU its thread is pinned
    /// to, if any.
    pub lcores: Vec<Option<usize>>,
    /// Largest number of QPs at a time, 1 to [`MAX_QPS`](crate::MAX_QPS). Each costs about 40 bytes
    /// of address space per lcore, and 60 in all, even if it is never created.
    pub max_qps: u32,
    /// Largest number of memory regions and windows at a time, 1 to [`MAX_MRS`](crate::MAX_MRS).
    /// Each costs 8 bytes even if it is never registered.
    pub max_mrs: u32,
    /// Largest number of address handles at a time, 1 to [`MAX_AHS`](crate::MAX_AHS). Each costs 8
    /// bytes even if it is never created.
    pub max_ahs: u32,
    /// The policy of an lcore without work.
    pub idle: IdlePolicy,
    /// The threads that run the lcores' turns.
    pub driver: Driver,
    /// The congestion control of QPs that choose none themselves.
    pub congestion: Congestion,
    /// UDP source ports of QPs with selective repeat that choose none themselves: 1, 2, 4, 8 or 16;
    /// see [`uroce_transport::QpAttr::udp_source_ports`].
    pub udp_source_ports: u8,
    /// The CNPs of all QPs.
    pub notification: Notification,
}

impl Default for EngineConfig {
    /// Makes a configuration with one unpinned lcore that polls, 4096 QPs, 2^20 memory regions,
    /// 4096 address handles, and no congestion control.
    fn default() -> EngineConfig {
        EngineConfig {
            lcores: vec![None],
            max_qps: 4096,
            max_mrs: 1 << 20,
            max_ahs: 4096,
            idle: IdlePolicy::default(),
            driver: Driver::default(),
            congestion: Congestion::None,
            udp_source_ports: 1,
            notification: Notification::default(),
        }
    }
}
