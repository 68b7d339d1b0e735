//! A device: an engine, its ports and the control-plane thread.
//!
//! [`Device`] is the face for application threads. Each request goes to the control-plane thread
//! as a message and waits for the answer; nothing here touches a QP.
//!
//! Invariants
//! - A request ends: with an answer, with [`RequestError::Gone`] when the thread is gone, and in any
//!   case within a minute.
//! - When a [`Device`] has been dropped its lcores and its thread have ended and its ports are
//!   closed.
//!
//! Not here: posting and polling, which go to the engine directly.

mod connect;
mod open;
mod preview;
pub mod ring;

pub use open::OpenError;
pub use preview::preview;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use uroce_engine::{Engine, QpHandle, QpInfo, QpSpec, RecvQueueEnd, SendQueueEnd};
use uroce_transport::{Ah, Pd, QpCaps, QpChange};
use uroce_wire::{Gid, Mac, Psn, Qpn};

use crate::config::{Config, DeviceConfig, LossConfig};
use crate::connect::Driver;
use crate::gsi::Gsi;
use crate::netdev::Watch;
use crate::path::{AddressVector, AlternateVector};
use crate::port_watch::{PortAttr, PortTable};
use crate::request::{
    Count, Membership, ModifyQp, PortStatus, Reply, Request, RequestError, Requests,
};
use crate::thread::{self, Parts};
use ring::RingLease;

/// Longer than a resolution and a stalled lcore together.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open device. Dropping it closes it.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    engine: Engine,
    ports: PortTable,
    requests: Requests,
    /// Follows the netdevs behind ports; ends before the thread that it tells.
    netdevs: Option<Watch>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Given back when the thread has closed the ports.
    leases: Vec<RingLease>,
}

impl Device {
    /// Opens the device of that name: starts EAL if it does not run, then ports, lcores and the
    /// control-plane thread.
    ///
    /// The calling thread's CPUs and signals stay as they are.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(config: &Config, name: &str) -> Result<Self, OpenError> {
        config.check()?;
        let device = config.find(name)?;
        let opened = open::open(config, device)?;
        let (requests, inbox) = Requests::new(opened.control.waker().clone());
        let cpu = thread::choose_cpu(config, device);
        let ports = opened.ports.table.clone();
        let seed = random_seed().map_err(OpenError::NoRandomness)?;
        let parts = Parts {
            gsi: Gsi::new(opened.control.ports(), random_psn().map_err(OpenError::NoRandomness)?)
                .map_err(OpenError::Gsi)?,
            driver: Driver::new(ca_guid(&ports.all()), seed),
            control: opened.control,
            ports: opened.ports,
        };
        let thread = thread::start(parts, inbox, cpu).map_err(OpenError::Thread)?;
        let mut device = Self {
            config: device.clone(),
            engine: opened.engine,
            ports,
            requests,
            netdevs: None,
            thread: Mutex::new(Some(thread)),
            leases: opened.leases,
        };
        if let Some(netdevs) = opened.netdevs {
            let watch = netdevs.watch(device.requests.clone()).map_err(OpenError::Netdevs)?;
            device.netdevs = Some(watch);
        }
        Ok(device)
    }

    /// What it was configured with.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// The engine, for what needs no control plane: memory regions, completion queues, lcores.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The ports as they are now, number 1 first.
    pub fn ports(&self) -> Vec<PortAttr> {
        self.ports.all()
    }

    /// The port of that number, counted from 1, as it is now.
    pub fn port(&self, number: u8) -> Option<PortAttr> {
        self.ports.port(number)
    }

    /// Create QP.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_qp(&self, spec: QpSpec) -> Result<QpHandle, RequestError> {
        self.ask(|reply| Request::CreateQp { spec: Box::new(spec), reply })
    }

    /// Modify QP. Paths are resolved first, which may take a few seconds if a neighbour does not
    /// answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
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
        let (change, vector, alternate) = (Box::new(*change), path.copied(), alternate.copied());
        self.ask(|reply| Request::ModifyQp(ModifyQp { qpn, change, vector, alternate, reply }))
    }

    /// Query QP.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpInfo, RequestError> {
        self.ask(|reply| Request::QueryQp { qpn, reply })
    }

    /// Gives a QP queues of other sizes, where both are empty. The new ends take the place of the old
    /// ones, to which nobody may be posting meanwhile.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP has its old queues then.
    pub fn resize_qp(
        &self,
        qpn: Qpn,
        caps: QpCaps,
    ) -> Result<(SendQueueEnd, RecvQueueEnd), RequestError> {
        self.ask(|reply| Request::ResizeQp { qpn, caps, reply })
    }

    /// Destroy QP. When this returns nothing of it runs.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), RequestError> {
        self.ask(|reply| Request::DestroyQp { qpn, reply })
    }

    /// The Ethernet address of the next hop towards a peer, from a port counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; no answer is known after about three seconds.
    pub fn resolve(&self, port: u8, vector: &AddressVector) -> Result<Mac, RequestError> {
        self.ask(|reply| Request::Resolve { port, vector: *vector, reply })
    }

    /// An address handle: where datagrams of UD QPs of that domain at `port`, counted from 1, go.
    /// A multicast address is a group's.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; no answer is known after about three seconds.
    pub fn create_ah(&self, pd: Pd, port: u8, vector: &AddressVector) -> Result<Ah, RequestError> {
        let path = self.ask(|reply| Request::ResolveHandle { port, vector: *vector, reply })?;
        Ok(self.engine.create_ah(pd, port, &path.encap, path.rate)?)
    }

    /// Has a UD QP get a copy of each datagram to the group that its port receives.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn attach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), RequestError> {
        let membership = Membership::Attach;
        self.ask(|reply| Request::Multicast { qpn, group, membership, reply })
    }

    /// Takes a QP out of a group.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn detach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), RequestError> {
        let membership = Membership::Detach;
        self.ask(|reply| Request::Multicast { qpn, group, membership, reply })
    }

    /// Link and counters of a port, counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn port_status(&self, port: u8) -> Result<PortStatus, RequestError> {
        self.ask(|reply| Request::PortStatus { port, reply })
    }

    /// Has a port, counted from 1, lose another share of its RoCEv2 frames from now on. When this
    /// returns every lcore does.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_loss(&self, port: u8, loss: LossConfig) -> Result<(), RequestError> {
        self.ask(|reply| Request::SetLoss { port, loss, reply })
    }

    /// Takes a port's link, counted from 1, down or lets it up again, as an administrator does. The
    /// other end of a ring or memif link sees it too; other peers see silence.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn set_link(&self, port: u8, up: bool) -> Result<(), RequestError> {
        self.ask(|reply| Request::SetLink { port, up, reply })
    }

    /// What the engine and the control plane have counted. Each name appears once.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn counts(&self) -> Result<Vec<Count>, RequestError> {
        let mut counts: Vec<Count> = self.engine.counters().iter().collect();
        counts.extend(self.ask(|reply| Request::Counts { reply })?);
        Ok(counts)
    }

    /// Closes the device while others still hold it: connections are ended, what was posted and is
    /// due is sent, for `patience` at most, then lcores and ports stop. Every later request is
    /// refused with [`RequestError::Gone`].
    pub fn shut_down(&self, patience: Duration) {
        // If the thread is gone already, so is what it would shut down.
        let _ = self.requests.send(Request::Shutdown { patience });
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, RequestError> {
        let (reply, answer) = channel();
        self.requests.send(request(reply))?;
        match answer.recv_timeout(PATIENCE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(RequestError::Gone),
            Err(RecvTimeoutError::Timeout) => Err(RequestError::Stalled),
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

/// The seed of ids that strangers must not guess.
fn random_seed() -> Result<[u8; 16], getrandom::Error> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed)?;
    Ok(seed)
}

/// The EUI-64 of a device: that of its first port's Ethernet address.
fn ca_guid(ports: &[PortAttr]) -> u64 {
    let mac = ports.first().map_or([0; 6], |port| port.mac.0);
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A start PSN that a stranger cannot guess.
///
/// # Errors
///
/// The system has no randomness.
pub fn random_psn() -> Result<Psn, getrandom::Error> {
    getrandom::u32().map(Psn::new)
}
