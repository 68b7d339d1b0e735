//! Context: an open device.

use std::sync::Arc;
use std::time::Duration;

use uroce_controlplane::config::BUILT_IN_DEVICE;
use uroce_controlplane::config::{BottleneckConfig, LossConfig};
use uroce_controlplane::limits::DeviceAttr;
use uroce_controlplane::{
    self as controlplane, Config, Count, Device, OpenError, PortAttr, PortStatus, RequestError,
};
use uroce_engine::{AdoptError, LcoreProfile, Turn};
use uroce_wire::Mac;

use crate::AddressVector;

/// An open device. Clones are handles of the same device. It closes when the last handle and the
/// last object made with it have been dropped.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) device: Arc<Device>,
}

impl Context {
    /// Opens the device with this name: starts EAL if it does not run yet, the device's ports and
    /// lcores, and its control-plane thread. The calling thread's CPU affinity and signal mask do
    /// not change.
    ///
    /// The `eal` parts of all configurations that a process uses must be equal.
    /// [`Config::devices`](uroce_controlplane::Config::devices) has the names of the devices.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing stays open.
    pub fn open(config: &Config, name: &str) -> Result<Context, OpenError> {
        Ok(Context { device: Arc::new(Device::open(config, name)?) })
    }

    /// Opens the device of [`Config::built_in`]: a port to all other processes of this user on this
    /// machine. It needs no configuration, no privilege and no daemon.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing stays open.
    pub fn open_default() -> Result<Context, OpenError> {
        Context::open(&Config::built_in()?, BUILT_IN_DEVICE)
    }

    /// The ports of a device as they would be after opening it, without opening it. The Ethernet
    /// address is zero if only the device itself can give it. `None` if the port's addresses depend
    /// on an interface that opening the device creates.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn preview(config: &Config, name: &str) -> Result<Option<Vec<PortAttr>>, OpenError> {
        controlplane::preview(config, name)
    }

    /// Closes the device while handles of it still exist, for the end of a process: ends
    /// connections, sends what was posted and is due for at most `patience`, then stops lcores and
    /// ports. Later calls on the device fail.
    pub fn shut_down(&self, patience: Duration) {
        self.device.shut_down(patience);
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.device.config().name
    }

    /// The device's limits.
    pub fn attr(&self) -> DeviceAttr {
        let mut attr = DeviceAttr::of(self.device.config());
        attr.lcores = self.device.engine().lcores();
        attr
    }

    /// The device's ports with their present GIDs. Port numbers start at 1. The addresses can
    /// change if a kernel interface is behind the port.
    pub fn ports(&self) -> Vec<PortAttr> {
        self.device.ports()
    }

    /// The link state and frame counters of a port. Port numbers start at 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn port_status(&self, port: u8) -> Result<PortStatus, RequestError> {
        self.device.port_status(port)
    }

    /// Changes the share of RoCEv2 packets that a port discards on purpose, for tests with loss.
    /// Discarding all of them has the effect of a cut link that does not report itself down. Port
    /// numbers start at 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_loss(&self, port: u8, loss: LossConfig) -> Result<(), RequestError> {
        self.device.set_loss(port, loss)
    }

    /// Puts a bottleneck before a port, or takes it away, for tests of congestion: frames leave at
    /// a given rate from a queue of given length, which marks and drops. Frames that waited in the
    /// former one are dropped. Port numbers start at 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_bottleneck(
        &self,
        port: u8,
        bottleneck: Option<BottleneckConfig>,
    ) -> Result<(), RequestError> {
        self.device.set_bottleneck(port, bottleneck)
    }

    /// Sets a port's link down or up, as an administrator would. While it is down, the other
    /// end of a ring or memif link is down too; other peers only get no packets. Port numbers start
    /// at 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_link(&self, port: u8, up: bool) -> Result<(), RequestError> {
        self.device.set_link(port, up)
    }

    /// Resolves the Ethernet address of the next hop from a port towards a peer. Connecting does
    /// this by itself. Port numbers start at 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. If the next hop does not answer, the call fails after about three
    /// seconds.
    pub fn resolve(&self, port: u8, peer: &AddressVector) -> Result<Mac, RequestError> {
        self.device.resolve(port, peer)
    }

    /// All counters since the device was opened, each with its name, description and value.
    /// Counters never decrease.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn counters(&self) -> Result<Vec<Count>, RequestError> {
        self.device.counts()
    }

    /// Those of the [`counters`](Self::counters) that an lcore has counted itself. What it has
    /// received came by its own receive queue of each port. `None` if there is no such lcore.
    pub fn lcore_counters(&self, lcore: usize) -> Option<Vec<Count>> {
        self.device.lcore_counts(lcore)
    }

    /// Has all lcores measure what the stages of their turns take, from now on for `time`. A
    /// measured turn takes some hundred cycles more.
    pub fn measure_stages(&self, time: Duration) {
        self.device.engine().measure(time);
    }

    /// What the stages of an lcore's measured turns have taken since the device was opened. `None`
    /// if there is no such lcore.
    pub fn stages(&self, lcore: usize) -> Option<LcoreProfile> {
        self.device.engine().profile(lcore)
    }

    /// Gives an lcore to the calling thread, which from then on drives it with
    /// [`LcoreGuard::turn`]. For an application that would otherwise share its CPU with the lcore
    /// it waits for.
    ///
    /// # Errors
    ///
    /// See [`AdoptError`].
    pub fn adopt_lcore(&self, lcore: usize) -> Result<LcoreGuard, AdoptError> {
        let guard = self.device.engine().adopt(lcore)?;
        Ok(LcoreGuard { guard, _device: Arc::clone(&self.device) })
    }
}

/// An lcore that was adopted by the current thread. The lcore's own thread resumes when the guard
/// is dropped.
///
/// An adopted lcore makes progress only in [`turn`](LcoreGuard::turn), except that the control
/// plane also turns it about once a millisecond, so that peers are answered and requests are
/// served ([`set_exclusive`](LcoreGuard::set_exclusive) changes that).
///
/// The guard cannot move to another thread:
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
    /// Runs one turn of the lcore: takes commands, posted requests and received frames, sends, and
    /// completes.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.guard.turn()
    }

    /// Sets whether the control plane stops turning the lcore about once a millisecond. At first it
    /// does not. With `true` the lcore makes progress only in [`turn`](LcoreGuard::turn) and in
    /// requests to the control plane. What the lcore does is then repeatable, but peers get no
    /// answer while the thread is busy with something else.
    pub fn set_exclusive(&self, exclusive: bool) {
        self.guard.set_exclusive(exclusive);
    }
}
