//! Mempools: the memory of mbufs.

use super::{Mbuf, MbufBatch};
use crate::dpdk::eal::{Eal, c_string, errnos_of, lock, take_log};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use uroce_shared::sync::{AtomicU32, Ordering};

/// The configuration of a mempool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Name that DPDK's tools show; at most 20 bytes are used, and a number is added.
    pub name: String,
    /// Number of mbufs; 2^n − 1 wastes the least memory.
    pub count: u32,
    /// Largest number of mbufs in the cache of each registered thread, 0 to 512 and at most two
    /// thirds of `count`.
    pub cache: u32,
    /// Data bytes of an mbuf without headroom: a whole frame must fit.
    pub room: u16,
    /// Whether the mbufs may lie outside of EAL's memory, because no device reads or writes them
    /// and no driver shares them. If EAL has no hugepages, they then have memory of their own: all
    /// such mempools together at most as much as EAL's. The kernel is asked for transparent
    /// hugepages there, since mbufs in small pages miss the TLB.
    pub apart: bool,
    /// Mbufs that the queues of ports may hold at once, besides the caches; more can be
    /// [reserved](Mempool::reserve) later.
    pub reserved: u32,
}

impl Default for PoolConfig {
    /// Makes a configuration of 8191 mbufs for frames of up to 9216 bytes: about 100 MB without
    /// hugepages.
    fn default() -> Self {
        Self {
            name: "uroce".into(),
            count: 8191,
            cache: 256,
            room: 9216,
            apart: false,
            reserved: 0,
        }
    }
}

/// The reason why a mempool was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// EAL has too little memory.
    #[error("no memory for {count} mbufs of {room} bytes: {log}")]
    NoMemory {
        /// Requested mbufs.
        count: u32,
        /// Data bytes of each.
        room: u16,
        /// DPDK's log of the attempt.
        log: String,
    },
    /// The cache is too large, or the room does not fit into an mbuf's 16-bit length.
    #[error("no such mempool can be: {0:?}")]
    Invalid(PoolConfig),
    /// Another error.
    #[error("mempool: {error}: {log}")]
    Other {
        /// DPDK's errno.
        error: io::Error,
        /// DPDK's log of the attempt.
        log: String,
    },
}

impl PoolError {
    /// The errnos behind the error, of the operating system or named in DPDK's log.
    pub fn errnos(&self) -> Vec<i32> {
        match self {
            Self::NoMemory { log, .. } => {
                let mut errnos = errnos_of(None, log);
                errnos.push(libc::ENOMEM);
                errnos
            }
            Self::Other { error, log } => errnos_of(Some(error), log),
            Self::Invalid(_) => Vec::new(),
        }
    }
}

/// The mempool has fewer mbufs left than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mempool is empty")]
pub struct PoolEmpty;

/// Mempools without handles, for the next request with their geometry.
#[derive(Debug, Default)]
pub(crate) struct RetiredPools {
    pools: Vec<Pool>,
    /// Counts the mempools made, for unique names.
    made: u32,
}

/// A mempool. Clones are handles of the same mempool.
#[derive(Clone, Debug)]
pub struct Mempool(Arc<Owner>);

/// Keeps the mempool in use; dropping the last handle retires it.
#[derive(Debug)]
struct Owner {
    eal: &'static Eal,
    pool: Pool,
    /// Mbufs that the queues of ports may hold at once.
    reserved: AtomicU32,
}

#[derive(Clone, Debug)]
struct Pool {
    raw: NonNull<dpdk_sys::rte_mempool>,
    config: PoolConfig,
}

// SAFETY: the mempool is never freed, and DPDK's mempool operations are thread-safe: the pool has
// neither the single-producer nor the single-consumer flag.
unsafe impl Send for Pool {}
// SAFETY: DPDK's mempool operations are thread-safe, and the mempool is never freed.
unsafe impl Sync for Pool {}

impl Mempool {
    /// Makes a mempool on the NUMA node where EAL runs, or reuses a retired one.
    ///
    /// # Errors
    ///
    /// [`PoolError`].
    pub fn create(eal: &'static Eal, config: &PoolConfig) -> Result<Self, PoolError> {
        let mut retired = lock(&eal.retired_pools);
        if let Some(pool) = retired.take(config) {
            return Ok(Self::owned(eal, pool));
        }
        if config.cache > dpdk_sys::CACHE_MAX || config.cache > config.count / 3 * 2 {
            return Err(PoolError::Invalid(config.clone()));
        }
        let name: String = config.name.chars().filter(char::is_ascii).take(20).collect();
        let name = c_string(&format!("{name}-{}", retired.made));
        retired.made += 1;
        let &PoolConfig { count, cache, room, apart, .. } = config;
        let mut error = 0;
        take_log();
        // SAFETY: `eal` proves that EAL runs; `name` is NUL-terminated and copied by DPDK; pools
        // are made one at a time, under the lock of `retired_pools`.
        let raw = unsafe {
            let apart = apart.into();
            dpdk_sys::uroce_pool_create(name.as_ptr(), count, cache, room, -1, apart, &mut error)
        };
        let raw = NonNull::new(raw).ok_or_else(|| explain(-error, config))?;
        let pool = Pool { raw, config: config.clone() };
        Ok(Self::owned(eal, pool))
    }

    fn owned(eal: &'static Eal, pool: Pool) -> Self {
        let reserved = AtomicU32::new(pool.config.reserved);
        Self(Arc::new(Owner { eal, pool, reserved }))
    }

    /// Returns the number of free mbufs, including those in per-thread caches. If it equals
    /// [`count`](Self::count), all are back. Slow: for tests and reports.
    pub fn available(&self) -> u32 {
        // SAFETY: the mempool is live; the function reads atomics and cache lengths only.
        unsafe { dpdk_sys::uroce_pool_available(self.raw()) }
    }

    /// Returns whether so few mbufs are free that what can do without should take none: an eighth,
    /// not counting the threads' caches.
    pub(crate) fn is_short(&self) -> bool {
        // SAFETY: the mempool is live; the function reads atomics only.
        let free = unsafe { dpdk_sys::uroce_pool_common(self.raw()) };
        free < self.count() / 8
    }

    /// Returns whether an mbuf is of this mempool.
    pub(crate) fn owns(&self, mbuf: &Mbuf) -> bool {
        std::ptr::eq(mbuf.header().pool, self.raw())
    }

    /// Returns the total number of mbufs.
    pub fn count(&self) -> u32 {
        self.0.pool.config.count
    }

    /// Returns the size of each thread's cache, in mbufs.
    pub(crate) fn cache(&self) -> u32 {
        self.0.pool.config.cache
    }

    /// Returns how many mbufs the queues of ports may hold at once.
    pub(crate) fn reserved(&self) -> u32 {
        self.0.reserved.load(Ordering::Relaxed)
    }

    /// Reserves at least `count` mbufs for the queues of ports. To be called before an engine is
    /// started with a port that holds more than the mempool was made for.
    pub fn reserve(&self, count: u32) {
        self.0.reserved.fetch_max(count, Ordering::Relaxed);
    }

    /// Returns the data bytes of an mbuf without its headroom: the longest frame.
    pub fn room(&self) -> u16 {
        self.0.pool.config.room
    }

    /// Appends `count` empty mbufs to the batch, or as many as it has room for: all of them or
    /// none.
    ///
    /// Returns how many were appended.
    ///
    /// # Errors
    ///
    /// [`PoolEmpty`]; the batch is unchanged. Mbufs that are freed later can be allocated again.
    #[inline]
    pub fn alloc_burst(&self, batch: &mut MbufBatch, count: usize) -> Result<usize, PoolEmpty> {
        let count = count.min(batch.room());
        // SAFETY: the mempool is live, and `spare` has room for `room() ≥ count` pointers; `count ≤
        // 64` fits.
        let code = unsafe { dpdk_sys::uroce_mbuf_alloc(self.raw(), batch.spare(), count as u16) };
        if code != 0 {
            return Err(PoolEmpty);
        }
        // SAFETY: DPDK has written `count ≤ room()` mbufs there and gives up their ownership. They
        // are reset: one segment, reference count 1, length 0, data behind the headroom.
        unsafe { batch.grow(count) };
        Ok(count)
    }

    /// Appends `count` mbufs as their last user left them, or as many as there is room for: all of
    /// them or none. [`Mbuf::reset`] makes them empty. Does not access their memory, which may be
    /// in another core's cache.
    #[inline]
    pub(crate) fn take_burst(
        &self,
        batch: &mut MbufBatch,
        count: usize,
    ) -> Result<usize, PoolEmpty> {
        let count = count.min(batch.room());
        // SAFETY: the mempool is live, and `spare` has room for `room() ≥ count` pointers; `count ≤
        // 64` fits.
        let code = unsafe { dpdk_sys::uroce_mbuf_take(self.raw(), batch.spare(), count as u16) };
        if code != 0 {
            return Err(PoolEmpty);
        }
        // SAFETY: DPDK has written `count ≤ room()` mbufs there and gives up their ownership. An
        // mbuf in a mempool has one segment, reference count 1, and offset and length within its
        // buffer.
        unsafe { batch.grow(count) };
        Ok(count)
    }

    /// Allocates one empty mbuf.
    ///
    /// # Errors
    ///
    /// [`PoolEmpty`].
    #[inline]
    pub fn alloc(&self) -> Result<Mbuf, PoolEmpty> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the mempool is live, and `raw` has room for one pointer.
        let code = unsafe { dpdk_sys::uroce_mbuf_alloc(self.raw(), &mut raw, 1) };
        let raw = NonNull::new(raw).filter(|_| code == 0).ok_or(PoolEmpty)?;
        // SAFETY: DPDK has given us a live mbuf, reset: one segment, reference count 1, length 0.
        Ok(unsafe { Mbuf::from_raw(raw) })
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut dpdk_sys::rte_mempool {
        self.0.pool.raw.as_ptr()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        lock(&self.eal.retired_pools).pools.push(self.pool.clone());
    }
}

impl RetiredPools {
    /// Takes a retired pool of this geometry, in the same memory, to which all mbufs have returned.
    fn take(&mut self, config: &PoolConfig) -> Option<Pool> {
        let place = self.pools.iter().position(|pool| {
            // SAFETY: a retired mempool is live, since none is ever freed.
            let available = unsafe { dpdk_sys::uroce_pool_available(pool.raw.as_ptr()) };
            let of = |&PoolConfig { count, cache, room, apart, .. }: &PoolConfig| {
                (count, cache, room, apart)
            };
            of(&pool.config) == of(config) && available == config.count
        })?;
        let raw = self.pools.swap_remove(place).raw;
        Some(Pool { raw, config: config.clone() })
    }
}

fn explain(errno: i32, config: &PoolConfig) -> PoolError {
    let log = take_log();
    match rustix::io::Errno::from_raw_os_error(errno) {
        rustix::io::Errno::NOMEM => {
            PoolError::NoMemory { count: config.count, room: config.room, log }
        }
        rustix::io::Errno::INVAL => PoolError::Invalid(config.clone()),
        _ => PoolError::Other { error: io::Error::from_raw_os_error(errno), log },
    }
}
