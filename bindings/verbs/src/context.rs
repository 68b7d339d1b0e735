//! Context: an open device.

use std::sync::Arc;
use std::time::Duration;

use uroce_controlplane::config::{DeviceConfig, LossConfig};
use uroce_controlplane::{
    self as controlplane, Config, Count, Device, OpenError, PortAttr, PortStatus, RequestError,
};
use uroce_engine::{
    AdoptError, CqError, MAX_CQ_DEPTH, MAX_GROUP_QPS, MAX_GROUPS, MAX_SGE, MAX_SRQ_DEPTH, MAX_WR,
    Turn,
};
use uroce_transport::{MAX_INIT_RD_ATOMIC, MAX_INLINE_DATA, MAX_MESSAGE_LEN, MAX_RD_ATOMIC};
use uroce_wire::Mac;

use crate::channel::CompletionChannel;
use crate::cq::CompletionQueue;
use crate::pd::ProtectionDomain;
use crate::{AddressVector, ChannelError};

/// An open device. Clones are handles of the same one; it closes when the last of them and of the
/// objects made with it is dropped.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) device: Arc<Device>,
}

/// A device's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Queue pairs at a time.
    pub max_qps: u32,
    /// Memory regions and windows at a time.
    pub max_mrs: u32,
    /// Work requests of a queue.
    pub max_wr: u32,
    /// Receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Bytes of inline data of a send.
    pub max_inline_data: u32,
    /// Address handles at a time.
    pub max_ahs: u32,
    /// Multicast groups at a time.
    pub max_groups: usize,
    /// Queue pairs of a multicast group.
    pub max_group_qps: usize,
    /// Scatter/gather elements of a work request.
    pub max_sge: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Bytes of a message.
    pub max_message_len: u32,
    /// READ and ATOMIC requests of the peer's that may be outstanding on a QP.
    pub max_rd_atomic: u8,
    /// READ and ATOMIC requests of ours that may be outstanding on a QP.
    pub max_init_rd_atomic: u8,
    /// Lcores.
    pub lcores: usize,
}

impl DeviceAttr {
    /// The limits that a device of this configuration has, open or not.
    pub fn of(config: &DeviceConfig) -> DeviceAttr {
        DeviceAttr {
            max_qps: config.max_qps,
            max_mrs: config.max_mrs,
            max_wr: MAX_WR,
            max_srq_wr: MAX_SRQ_DEPTH,
            max_inline_data: MAX_INLINE_DATA,
            max_ahs: config.max_ahs,
            max_groups: MAX_GROUPS,
            max_group_qps: MAX_GROUP_QPS,
            max_sge: MAX_SGE,
            max_cqe: MAX_CQ_DEPTH,
            max_message_len: MAX_MESSAGE_LEN,
            max_rd_atomic: MAX_RD_ATOMIC,
            max_init_rd_atomic: MAX_INIT_RD_ATOMIC,
            lcores: config.lcores.count(),
        }
    }
}

impl Context {
    /// Opens the device of that name: EAL if it does not run yet, the device's ports and lcores,
    /// and its control-plane thread. The caller's CPUs and signals stay as they are.
    ///
    /// All devices of a process are opened from configurations whose `eal` parts are the same. The
    /// devices that can be opened are [`Config::devices`](uroce_controlplane::Config::devices).
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing is left open.
    pub fn open(config: &Config, name: &str) -> Result<Context, OpenError> {
        Ok(Context { device: Arc::new(Device::open(config, name)?) })
    }

    /// The ports of a device as they would be if it were opened now, as far as that is known before:
    /// the Ethernet address is zero where only the device knows it, and there is nothing to tell
    /// where addresses depend on what opening makes.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn preview(config: &Config, name: &str) -> Result<Option<Vec<PortAttr>>, OpenError> {
        controlplane::preview(config, name)
    }

    /// Closes the device though it and what was made with it are still held, as at the end of a
    /// process: connections are ended, what was posted and is due is sent, for `patience` at most,
    /// then lcores and ports stop. Whatever is asked of the device later is refused.
    pub fn shut_down(&self, patience: Duration) {
        self.device.shut_down(patience);
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.device.config().name
    }

    /// Its limits.
    pub fn attr(&self) -> DeviceAttr {
        DeviceAttr { lcores: self.device.engine().lcores(), ..DeviceAttr::of(self.device.config()) }
    }

    /// Its ports with their GIDs, as they are now; number 1 is the first. Where a kernel netdev stands
    /// behind a port its addresses may change.
    pub fn ports(&self) -> Vec<PortAttr> {
        self.device.ports()
    }

    /// Link and frame counters of a port, counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn port_status(&self, port: u8) -> Result<PortStatus, RequestError> {
        self.device.port_status(port)
    }

    /// Has a port, counted from 1, lose another share of its RoCEv2 packets from now on: to see what
    /// loss does, and with all of them, what a link does that is cut and does not tell.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_loss(&self, port: u8, loss: LossConfig) -> Result<(), RequestError> {
        self.device.set_loss(port, loss)
    }

    /// Takes a port's link, counted from 1, down or lets it up again, as an administrator does. The
    /// other end of a ring or memif link sees it too; other peers see silence.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_link(&self, port: u8, up: bool) -> Result<(), RequestError> {
        self.device.set_link(port, up)
    }

    /// Finds the Ethernet address of the next hop towards a peer, from a port counted from 1.
    /// Connecting does this by itself.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; a peer that does not answer is given up after about three seconds.
    pub fn resolve(&self, port: u8, peer: &AddressVector) -> Result<Mac, RequestError> {
        self.device.resolve(port, peer)
    }

    /// Everything counted since the device was opened: name, description, value. It only grows.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn counters(&self) -> Result<Vec<Count>, RequestError> {
        self.device.counts()
    }

    /// A protection domain: memory regions and queue pairs that may work with each other.
    pub fn allocate_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(self)
    }

    /// A completion queue for `capacity` entries.
    ///
    /// # Errors
    ///
    /// [`CqError::Depth`] if it is 0 or too large.
    pub fn create_cq(&self, capacity: u32) -> Result<CompletionQueue, CqError> {
        CompletionQueue::new(self, capacity, None)
    }

    /// A completion queue whose events go to `channel`, once it is armed.
    ///
    /// # Errors
    ///
    /// As [`create_cq`](Context::create_cq), and [`CqError::ChannelFull`].
    pub fn create_cq_on(
        &self,
        capacity: u32,
        channel: &CompletionChannel,
    ) -> Result<CompletionQueue, CqError> {
        CompletionQueue::new(self, capacity, Some(channel))
    }

    /// A completion channel, on which a thread can sleep until a completion queue has something.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub fn create_channel(&self) -> Result<CompletionChannel, ChannelError> {
        CompletionChannel::new()
    }

    /// Hands an lcore to the calling thread, which drives it from now on with
    /// [`LcoreGuard::turn`]: run to completion, for an application that would otherwise share a CPU
    /// with the lcore it waits for.
    ///
    /// # Errors
    ///
    /// See [`AdoptError`].
    pub fn adopt_lcore(&self, lcore: usize) -> Result<LcoreGuard, AdoptError> {
        let guard = self.device.engine().adopt(lcore)?;
        Ok(LcoreGuard { guard, _device: Arc::clone(&self.device) })
    }
}

/// An lcore that the thread drives which adopted it. Its own thread goes on when this is dropped.
///
/// While it is adopted nothing moves on it but by [`turn`](LcoreGuard::turn), except that the
/// control plane turns it about once a millisecond, so that peers are answered and requests served.
///
/// It cannot leave its thread:
///
/// ```compile_fail,E0277
/// # fn f(context: uroce::Context) -> Result<(), Box<dyn std::error::Error>> {
/// let mut guard = context.adopt_lcore(0)?;
/// std::thread::spawn(move || guard.turn());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LcoreGuard {
    guard: uroce_engine::LcoreGuard,
    _device: Arc<Device>,
}

impl LcoreGuard {
    /// Runs the lcore once: takes what was posted and received, sends, completes.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.guard.turn()
    }
}
