//! A device: an engine, its ports and the control-plane thread.
//!
//! [`Device`] is the interface for application threads. Each call sends a job to the control-plane
//! thread and waits for the reply; no function here accesses a QP.
//!
//! Invariants
//! - A call gives the reply, [`RequestError::Gone`] if the thread has ended, or
//!   [`RequestError::Stalled`] after a minute.
//! - When a [`Device`] has been dropped, its lcores and its thread have ended and its ports are
//!   closed.
//!
//! Not here: posting and polling, which use the engine directly.

mod open;
mod pool;
mod preview;
mod rdma_cm;
pub mod ring;

pub use open::{OpenError, dpdk_parameters};
pub use pool::PoolSpent;
pub use preview::preview;

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use uroce_engine::{
    Engine, FlowId, FlowKind, QpHandle, QpInfo, QpSpec, RecvQueueEnd, SendQueueEnd,
};
use uroce_transport::{Ah, Pd, QpCaps, QpChange};
use uroce_wire::{Gid, Mac, Psn, Qpn};

use crate::call::{Calls, Count, PortStatus, RequestError};
use crate::config::{self, BottleneckConfig, Config, DeviceConfig, LossConfig};
use crate::control_socket::{self, Registration};
use crate::failover::Failover;
use crate::gsi::Gsi;
use crate::log;
use crate::netdev::Watch;
use crate::path::{AddressVector, AlternateVector};
use crate::port_watch::{PortAttr, PortTable};
use crate::rdma_cm::Service;
use crate::thread::{self, ModifyQp, Parts};
use ring::RingLease;

/// An open device. Dropping it closes it.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    engine: Engine,
    ports: PortTable,
    calls: Calls,
    /// Watch of the ports' netdevs. It reports to the thread, so it is dropped before the thread
    /// ends.
    netdevs: Option<Watch>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Answers commands of `uroce` about the device.
    served: Mutex<Option<Registration>>,
    /// Ends of ring links. They are given back after the thread has closed the ports.
    leases: Vec<RingLease>,
}

impl Device {
    /// Opens the device `name` of a configuration: starts EAL if it is not running, then ports,
    /// lcores and the control-plane thread.
    ///
    /// The calling thread keeps its CPU affinity and its signal mask.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(config: &Config, name: &str) -> Result<Self, OpenError> {
        log::start();
        config.check()?;
        let config = &config.clone().with_given_nics()?;
        let device = config.find(name)?;
        let opened = open::open(config, device)?;
        let (calls, inbox) = Calls::new(opened.control.waker().clone());
        let cpu = thread::choose_cpu(config, device);
        let ports = opened.ports.table.clone();
        let guid = ca_guid(&ports.all());
        let seed = random_seed().map_err(OpenError::NoRandomness)?;
        let psn = random_psn().map_err(OpenError::NoRandomness)?;
        let is_auto = device.failover == config::Failover::Auto;
        let failover = is_auto.then(|| Failover::new(device.failback));
        let parts = Parts {
            gsi: Gsi::new(opened.control.ports(), psn, failover.is_some())
                .map_err(OpenError::Gsi)?,
            failover,
            service: Service::new(guid, seed),
            control: opened.control,
            ports: opened.ports,
            selective_repeat: device.selective_repeat,
            keepalive_ms: device.keepalive_ms,
        };
        let thread = thread::start(parts, inbox, cpu).map_err(OpenError::Thread)?;
        let mut device = Self {
            config: device.clone(),
            engine: opened.engine,
            ports,
            calls,
            netdevs: None,
            thread: Mutex::new(Some(thread)),
            served: Mutex::new(None),
            leases: opened.leases,
        };
        if let Some(netdevs) = opened.netdevs {
            let watch = netdevs.watch(device.calls.clone()).map_err(OpenError::Netdevs)?;
            device.netdevs = Some(watch);
        }
        let eal = &config.eal;
        let Self { config, engine, ports, calls, .. } = &device;
        let served = control_socket::serve(config, eal, cpu, guid, engine, ports, calls);
        device.served = Mutex::new(served);
        let (ports, lcores) = (device.config.ports.len(), &device.config.lcores);
        tracing::info!(device = name, ports, ?lcores, "device opened");
        Ok(device)
    }

    /// Returns the configuration of the device.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Returns the engine, for memory regions, completion queues and lcores.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the present attributes of all ports, port 1 first.
    pub fn ports(&self) -> Vec<PortAttr> {
        self.ports.all()
    }

    /// Returns the present attributes of a port, counted from 1.
    pub fn port(&self, number: u8) -> Option<PortAttr> {
        self.ports.port(number)
    }

    /// Creates a QP in RESET.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_qp(&self, spec: QpSpec) -> Result<QpHandle, RequestError> {
        self.calls.begin(move |thread, reply| thread.create_qp(spec, reply))
    }

    /// Executes a Modify QP. Its paths are resolved first, which may take a few seconds if a
    /// neighbour does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn modify_qp(
        &self,
        qpn: Qpn,
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>,
    ) -> Result<(), RequestError> {
        if change.path.is_some() || change.alt_path.is_some() {
            return Err(RequestError::RawPath);
        }
        let (vector, alternate) = (path.copied(), alternate.copied());
        let modify = Box::new(ModifyQp { qpn, change: *change, vector, alternate });
        self.calls.begin(move |thread, reply| thread.modify(modify, reply))
    }

    /// Returns the attributes of a QP.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpInfo, RequestError> {
        self.calls.call(move |thread| thread.query_qp(qpn))
    }

    /// Replaces a QP's queues, which must be empty, by queues of other sizes. The returned ends
    /// replace the old ones. No thread may post to the old ends during the call.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP keeps its old queues.
    pub fn resize_qp(
        &self,
        qpn: Qpn,
        caps: QpCaps,
    ) -> Result<(SendQueueEnd, RecvQueueEnd), RequestError> {
        self.calls.call(move |thread| thread.resize_qp(qpn, caps))
    }

    /// Destroys a QP. When this returns, no lcore works on the QP any more.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.destroy_qp(qpn))
    }

    /// Returns the Ethernet address of the next hop to a peer, from a port counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. A next hop that does not answer is an error after about three seconds.
    pub fn resolve(&self, port: u8, vector: &AddressVector) -> Result<Mac, RequestError> {
        let vector = *vector;
        self.calls.begin(move |thread, reply| thread.resolve(port, &vector, reply))
    }

    /// Creates an address handle for UD QPs of protection domain `pd`. Datagrams leave through
    /// `port`, counted from 1. The destination may be a multicast group.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. A next hop that does not answer is an error after about three seconds.
    pub fn create_ah(&self, pd: Pd, port: u8, vector: &AddressVector) -> Result<Ah, RequestError> {
        let vector = *vector;
        let path =
            self.calls.begin(move |thread, reply| thread.resolve_handle(port, &vector, reply))?;
        Ok(self.engine.create_ah(pd, port, &path.encap, path.rate)?)
    }

    /// Attaches a UD QP to a multicast group: it gets a copy of each datagram to the group that its
    /// port receives.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn attach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.attach_multicast(qpn, group))
    }

    /// Detaches a QP from a multicast group.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn detach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.detach_multicast(qpn, group))
    }

    /// Makes a flow: a raw QP of domain `pd` gets the frames that it takes at a port, counted from
    /// 1. A destroyed QP has no flows.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_flow(
        &self,
        qpn: Qpn,
        pd: Pd,
        port: u8,
        kind: FlowKind,
    ) -> Result<FlowId, RequestError> {
        self.calls.call(move |thread| thread.create_flow(qpn, pd, port, kind))
    }

    /// Destroys a flow.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn destroy_flow(&self, flow: FlowId) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.destroy_flow(flow))
    }

    /// Returns link state and counters of a port, counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn port_status(&self, port: u8) -> Result<PortStatus, RequestError> {
        self.calls.call(move |thread| thread.port_status(port))
    }

    /// Sets the share of RoCEv2 frames that a port, counted from 1, drops. When this returns, every
    /// lcore applies it.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_loss(&self, port: u8, loss: LossConfig) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.set_loss(port, loss))
    }

    /// Puts a bottleneck before a port, counted from 1, or takes it away. When this returns, every
    /// lcore applies it; frames that waited in the former one are dropped.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_bottleneck(
        &self,
        port: u8,
        bottleneck: Option<BottleneckConfig>,
    ) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.set_bottleneck(port, bottleneck))
    }

    /// Takes the link of a port, counted from 1, down, or up again, as an administrator would. The
    /// other end of a ring or memif link sees the change. Other peers get no answers while the link
    /// is down.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_link(&self, port: u8, up: bool) -> Result<(), RequestError> {
        self.calls.call(move |thread| thread.set_link(port, up))
    }

    /// Returns all counters of the engine and the control plane. Each name appears once.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn counts(&self) -> Result<Vec<Count>, RequestError> {
        let counters = self.engine.counters();
        let count = |(name, text, value)| Count::new(name, text, value);
        let mut counts: Vec<Count> = counters.iter().map(count).collect();
        counts.extend(self.calls.call(|thread| Ok(thread.count()))?);
        Ok(counts)
    }

    /// Returns the counters that one lcore has counted itself. `None` if there is no such lcore.
    pub fn lcore_counts(&self, lcore: usize) -> Option<Vec<Count>> {
        let counters = self.engine.lcore_counters(lcore)?;
        Some(counters.iter().map(|(name, text, value)| Count::new(name, text, value)).collect())
    }

    /// Closes the device while other threads still hold it. Connections are ended, and posted work
    /// is sent for at most `patience`; then lcores and ports stop. Every later request is refused
    /// with [`RequestError::Gone`].
    pub fn shut_down(&self, patience: Duration) {
        drop(self.served.lock().unwrap_or_else(PoisonError::into_inner).take());
        // An error means that the thread has ended already, and with it lcores and ports.
        let _ = self.calls.send(move |thread| thread.shut_down(patience));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
            tracing::info!(device = self.config.name, "device closed");
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.netdevs = None;
        self.shut_down(Duration::ZERO);
        self.leases.clear();
    }
}

/// Draws the secret seed of communication IDs and PSNs.
fn random_seed() -> Result<[u8; 16], getrandom::Error> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed)?;
    Ok(seed)
}

/// Returns the CA GUID of a device: the EUI-64 of its first port's Ethernet address.
fn ca_guid(ports: &[PortAttr]) -> u64 {
    let mac = ports.first().map_or([0; 6], |port| port.mac.0);
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Draws a starting PSN that an attacker cannot guess.
///
/// # Errors
///
/// If the system has no random numbers.
pub fn random_psn() -> Result<Psn, getrandom::Error> {
    getrandom::u32().map(Psn::new)
}
