//! DPDK's own descriptions of its memory, rings and threads.

use std::ffi::CStr;

use super::Eal;

/// What DPDK describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Mempools: sizes, flags, free objects.
    Mempools,
    /// Memory zones: addresses and lengths.
    Memzones,
    /// Memory segments with their addresses.
    Physmem,
    /// Rings: sizes and what is in them.
    Rings,
    /// Threads that DPDK knows, with their CPUs.
    Lcores,
    /// Kinds of log messages and their levels.
    LogTypes,
    /// Heaps of each NUMA node: size, free, used.
    SocketMemory,
}

impl Eal {
    /// Returns DPDK's text about `what`; `None` if memory is short.
    ///
    /// It is for people. Counts of what other threads use meanwhile may be of different moments.
    pub fn dump(&self, what: Dump) -> Option<String> {
        let what = match what {
            Dump::Mempools => dpdk_sys::UROCE_DUMP_MEMPOOL,
            Dump::Memzones => dpdk_sys::UROCE_DUMP_MEMZONE,
            Dump::Physmem => dpdk_sys::UROCE_DUMP_PHYSMEM,
            Dump::Rings => dpdk_sys::UROCE_DUMP_RING,
            Dump::Lcores => dpdk_sys::UROCE_DUMP_LCORES,
            Dump::LogTypes => dpdk_sys::UROCE_DUMP_LOG_TYPES,
            Dump::SocketMemory => dpdk_sys::UROCE_DUMP_SOCKET_MEM,
        };
        // SAFETY: `self` proves that EAL runs; DPDK locks the lists that it walks.
        let text = unsafe { dpdk_sys::uroce_dump(what.cast_signed()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: not NULL, so it is terminated text, which stays until it is freed below.
        let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: the text is of `uroce_dump`, and is not used afterwards.
        unsafe { dpdk_sys::uroce_dump_free(text) };
        Some(copy)
    }
}
