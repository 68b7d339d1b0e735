//! Packet buffers of a port: how many, and whether a NIC leaves enough of them to send.
//!
//! ```text
//!   create: receive queues + [transmit queues + caches + in flight + bottleneck]
//!   check:  what the NIC's receive queues really hold + [the same] ≤ all of them
//! ```
//!
//! A driver may hold more than the receive descriptors that it was asked for: vmxnet3 has two rings
//! for each queue. Most drivers free what was sent only once a transmit queue is nearly full, so
//! that an lcore waits for ever if there are fewer packet buffers than that.
//!
//! Invariants
//! - Only the first start of a port can fail for its packet buffers. A device that is reset or
//!   attached later gets the ones that are there.

use uroce_engine::eal::Eal;
use uroce_engine::mbuf::{BATCH, Mempool, PoolConfig, PoolError};
use uroce_engine::port::{self, FRAME_OVERHEAD, Port};

use crate::config::{DeviceConfig, Ethdev, PortConfig};

/// Packet buffers in a thread's cache. As long as the cache suffices, a thread allocates the
/// buffers that it freed last.
const CACHE: u32 = 256;
/// Packet buffers in a thread's cache on a ring link, where the sender of a buffer does not free
/// it. Buffers then come from the pool, which hands out the one that was freed first, so that all
/// of them pass through the processor's caches. Therefore a small number is better.
const RING_CACHE: u32 = 64;
/// Least bytes of a packet buffer, whatever the MTU: net_af_packet accepts no buffer smaller than
/// the frames of its own ring, which are 8 KiB for jumbo frames.
const ROOM: u16 = 9216;
/// Packet buffers that an lcore and the control plane use besides those in queues and caches.
const IN_FLIGHT: u32 = 256;
/// Rings that a driver has for a receive queue, at most.
const RINGS: u32 = 2;

/// A NIC's receive queues leave fewer packet buffers than are needed to send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the receive queues of {device} hold {held} of the {count} packet buffers: set `mbufs` to \
     {enough} or more, or `rx_descriptors` lower"
)]
pub struct PoolSpent {
    /// DPDK's name of the NIC.
    pub device: String,
    /// Packet buffers of the port.
    pub count: u32,
    /// Those that the receive queues hold.
    pub held: u32,
    /// The number that is enough.
    pub enough: u32,
}

/// Makes the packet buffers of a port.
pub(super) fn create(
    eal: &'static Eal,
    device: &DeviceConfig,
    port: &PortConfig,
) -> Result<Mempool, PoolError> {
    // Hardware keeps a buffer for each receive descriptor. So does net_tap, but the share of the
    // caches is enough for it. On rings, mbufs are only handed from thread to thread.
    let (received, cache, apart) = match &port.ethdev {
        Ethdev::Pci(_) => (port.rx_descriptors, CACHE, false),
        Ethdev::Vdev(device) => (port::vdev::mbufs_held(device), CACHE, port::vdev::copies(device)),
        Ethdev::Ring(_) => (0, RING_CACHE, true),
        // The frames are copied, so the mbufs go back to the cache that they came from.
        Ethdev::Local(_) | Ethdev::Udp(_) => (0, CACHE, true),
    };
    let only = match &port.ethdev {
        Ethdev::Vdev(device) => port::vdev::mbuf_room(device),
        Ethdev::Pci(_) | Ethdev::Ring(_) | Ethdev::Local(_) | Ethdev::Udp(_) => None,
    };
    let lcores = device.lcores.count() as u32;
    let sending = sending(lcores, port);
    let received = lcores * u32::from(received);
    let enough = (received + sending + beside(lcores, cache)).next_power_of_two() - 1;
    let config = PoolConfig {
        name: device.name.clone(),
        count: port.mbufs.unwrap_or(enough),
        cache,
        room: only.unwrap_or(ROOM.max((port.mtu + FRAME_OVERHEAD).next_multiple_of(64))),
        apart,
        // Hardware keeps what is sent until it has sent it; other ports copy it or hand it on.
        reserved: if received > 0 { received + sending } else { queued(port) },
    };
    Mempool::create(eal, &config)
}

/// Returns the packet buffers that wait to be sent at most, with that number of transmit queues.
fn sending(queues: u32, port: &PortConfig) -> u32 {
    queued(port) + queues * u32::from(port.tx_descriptors)
}

/// Returns the packet buffers in a bottleneck's queue that is full of the port's longest frames,
/// twice: shorter frames need more.
fn queued(port: &PortConfig) -> u32 {
    port.bottleneck.map_or(0, |slow| slow.queue / u32::from(port.mtu) * 2)
}

/// Returns the packet buffers of lcores besides those in queues.
fn beside(lcores: u32, cache: u32) -> u32 {
    // The caches of two threads. Each may hold one and a half times its size.
    lcores * (3 * cache + IN_FLIGHT)
}

/// Checks that a NIC, which has filled its receive queues, has left enough packet buffers to send,
/// and reserves those that its queues hold. Returns what to warn of: a NIC that has left fewer
/// than could be in use at once may still do with them.
///
/// # Errors
/// [`PoolSpent`]: not even a batch for each lcore is left.
pub(super) fn check(
    device: &DeviceConfig,
    config: &PortConfig,
    port: &Port,
    pool: &Mempool,
) -> Result<Option<PoolSpent>, PoolSpent> {
    let left = pool.available();
    let (lcores, queues) = (device.lcores.count() as u32, u32::from(port.queue_pairs()));
    let supply = Supply {
        lcores,
        left,
        held: pool.count().saturating_sub(left),
        received: queues * u32::from(config.rx_descriptors),
        // A full queue has one descriptor that is empty.
        used: sending(queues, config) - queues + beside(lcores, CACHE),
    };
    pool.reserve(supply.held + sending(lcores, config));
    supply.check(&port.capabilities().name)
}

/// The packet buffers of a NIC that was started.
#[derive(Clone, Copy, Debug)]
struct Supply {
    lcores: u32,
    /// Those that the receive queues have left.
    left: u32,
    /// Those that the receive queues hold.
    held: u32,
    /// Receive descriptors of all queues.
    received: u32,
    /// Those that may be in use besides.
    used: u32,
}

impl Supply {
    fn check(self, device: &str) -> Result<Option<PoolSpent>, PoolSpent> {
        let Supply { lcores, left, held, received, used } = self;
        if left >= used {
            return Ok(None);
        }
        let is_spent = left < lcores * BATCH as u32;
        // A driver that has found none left may have wanted more.
        let wanted = if is_spent { held.max(RINGS * received) } else { held };
        let (device, count, enough) = (device.to_owned(), held + left, wanted + used);
        let spent = PoolSpent { device, count, held, enough };
        if is_spent { Err(spent) } else { Ok(Some(spent)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lcores with 1024 descriptors each way, at a NIC that takes `wanted` of `count`.
    fn two_lcores(count: u32, wanted: u32) -> Result<Option<PoolSpent>, PoolSpent> {
        let held = wanted.min(count);
        let used = 2 * (1024 - 1) + beside(2, CACHE);
        Supply { lcores: 2, left: count - held, held, received: 2048, used }.check("0000:01:00.0")
    }

    #[test]
    fn the_default_number_is_enough_for_two_rings_for_each_queue() {
        assert_eq!(two_lcores(8191, 2048), Ok(None));
        assert_eq!(two_lcores(8191, 4096), Ok(None));
    }

    #[test]
    fn a_nic_that_leaves_less_than_may_be_in_use_is_warned_of_and_starts() {
        let spent = two_lcores(4095, 2048).expect("starts").expect("a warning");
        assert_eq!(two_lcores(spent.enough, 2048), Ok(None), "the number works");
        assert!(two_lcores(spent.enough - 1, 2048).expect("starts").is_some());
    }

    #[test]
    fn a_nic_that_leaves_nothing_to_send_is_an_error_with_the_number_that_works() {
        for count in [1023, 3000, 4095] {
            let spent = two_lcores(count, 4092).expect_err("no start");
            assert_eq!(two_lcores(spent.enough, 4096), Ok(None), "{count}: the number works");
        }
        let text = two_lcores(4095, 4092).expect_err("no start").to_string();
        assert!(text.contains("hold 4092 of the 4095 packet buffers"), "{text}");
        assert!(text.contains("set `mbufs` to 8190 or more"), "{text}");
    }
}
