//! The devices of this process: their configuration, the identity that the process has, and the
//! engine, which starts when an object needs it.
//!
//! ```text
//!   devices ─> identity: locks, a number ──> engine: EAL, ports, lcores ─> exit: drained, stopped
//!    names       at the first question           at the first object
//!                about addresses                 that needs one
//! ```
//!
//! Invariants
//! - One engine device for each configured device, shared by all contexts that are opened on it.
//! - A process has one identity at a time. No other process has the same one, except children that
//!   it forked. The identity does not change after an engine has started.
//! - Nothing that a process leaves behind keeps the next one from starting, however the process
//!   ends.
//!
//! Not here: the engine's events. A hook registered with [`on_start`] passes them on.

mod claim;
mod config;
mod counting;
mod exit;
mod fork;
mod hold;
mod keep;
mod place;
pub(crate) mod ports;
mod problem;
mod process;
mod refusal;
mod right;
mod say;
mod shim;
mod signal;
mod speed;
mod start;
mod tree;

pub(crate) use config::is_local;
pub(crate) use config::{gid_table_len, lid, lid_source};
pub(crate) use exit::hold_up;
pub(crate) use keep::opened;
pub(crate) use right::check_raw;
pub(crate) use say::say;
pub(crate) use speed::codes as speed_codes;
pub(crate) use start::spawn;
pub(crate) use tree::PORT_CAPS;
pub(crate) use uroce_command::run_dir::is_privileged;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use uroce::cm::raw::PortSpace;
use uroce::config::DeviceConfig;
use uroce::{Context, PortAttr};

use crate::errno::Errno;
use crate::quota::Quota;
use ports::{Binding, Notice, Reached};
use process::Process;

/// Longest wait until a process that has bound a port listens there. Some programs tell their
/// client the port before they listen.
const LISTENING: Duration = Duration::from_millis(500);
const LISTEN_RETRY: Duration = Duration::from_millis(1);

/// A device of the configuration. It exists for the life of the process.
pub(crate) struct Device {
    name: String,
    index: usize,
    pub(crate) quotas: Quotas,
}

/// Counts of a device's objects, for the kinds that the engine does not limit.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) pds: Quota,
    pub(crate) cqs: Quota,
    pub(crate) srqs: Quota,
}

/// Locks the state of this process. The configuration is read at the first call.
///
/// # Errors
///
/// The configuration cannot be read or used. The message is on stderr.
fn process() -> Result<MutexGuard<'static, Process>, Errno> {
    process::lock(fork::watch)
}

/// The devices of the configuration.
///
/// # Errors
///
/// The configuration cannot be read or used. The message is on stderr.
pub(crate) fn devices() -> Result<&'static [Device], Errno> {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    let names = process()?.names();
    let device = |(index, name)| Device { name, index, quotas: Quotas::default() };
    Ok(DEVICES.get_or_init(|| names.into_iter().enumerate().map(device).collect()))
}

/// Chooses the identity of this process if it may still change: one with the address `prefer`, or
/// one without the address `avoid`. If this is never called, the process takes the first free
/// identity at the first call that depends on it.
///
/// # Errors
///
/// EADDRINUSE if another process has the identity with the address `prefer`, and the errors of
/// [`devices`].
pub(crate) fn pick(prefer: Option<IpAddr>, avoid: Option<IpAddr>) -> Result<(), Errno> {
    process()?.pick(prefer, avoid)
}

/// Registers `hook`. It is called once for each device when its engine starts, before the context
/// is returned to any caller, and at once for devices that run already. The lock of this module is
/// held meanwhile, so the hook must not call functions of this module.
pub(crate) fn on_start(hook: fn(&'static Device, &Context)) -> Result<(), Errno> {
    let devices = devices()?;
    process()?.add_hook(hook, devices);
    Ok(())
}

/// Set in a child that was forked after its parent had started an engine.
static ORPHANED: AtomicBool = AtomicBool::new(false);

/// Whether the objects of this process cannot be used. Unlike [`usable`] it prints nothing.
#[inline]
pub(crate) fn is_orphaned() -> bool {
    ORPHANED.load(Ordering::Relaxed)
}

/// Checks that the objects of this process can be used. They cannot in a child that was forked
/// after its parent had started an engine, because the engine's threads exist in the parent only.
/// Costs one load in any other process.
///
/// # Errors
///
/// EOPNOTSUPP in such a child. A message on stderr says what to do.
#[inline]
pub(crate) fn usable() -> Result<(), Errno> {
    if is_orphaned() { refuse() } else { Ok(()) }
}

#[cold]
fn refuse() -> Result<(), Errno> {
    process()?.usable()
}

/// Says, once, that other processes do not see an id.
fn unseen(at: SocketAddr, problem: &problem::Problem) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        say(&format!("other processes do not see that {at} is in use: {problem}"));
    });
}

/// Publishes to the other processes of the local fabric whether the id with these notices listens.
///
/// # Errors
///
/// EADDRINUSE or EADDRNOTAVAIL, as on Linux, if an id of another process has the address. Then
/// nothing has changed.
pub(crate) fn set_listening(notices: &mut [Notice], listens: bool) -> Result<(), Errno> {
    for at in 0..notices.len() {
        match notices[at].set_listening(listens) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let (begun, _) = notices.split_at_mut(at);
                begun.iter_mut().for_each(|notice| {
                    let _ = notice.set_listening(!listens);
                });
                return Err(error);
            }
            Err(problem) => unseen(notices[at].at(), &problem),
        }
    }
    Ok(())
}

/// Publishes to the other processes that a listening id receives requests.
pub(crate) fn announce(notices: &mut [Notice]) {
    for notice in notices {
        if let Err(problem) = notice.announce() {
            unseen(notice.at(), &problem);
        }
    }
}

/// Drops an object of the engine. In a child that was forked after the engine had started, the
/// value is leaked instead: dropping it would wait for threads that the child does not have.
pub(crate) fn dispose<T>(value: T) {
    match usable() {
        Ok(()) => drop(value),
        Err(_) => std::mem::forget(value),
    }
}

impl Device {
    /// The device's name, for example `uroce0`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The device's index in [`devices`].
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The kernel interface to show for port `number` (1 is the first): the interface behind the
    /// port, or for ports without one the one that `UROCE_NETDEV` names, or the loopback interface.
    /// `None` if there is no such port.
    ///
    /// # Errors
    ///
    /// The errors of [`devices`].
    pub(crate) fn netdev(&self, number: u8) -> Result<Option<String>, Errno> {
        let config = self.config()?;
        let port = usize::from(number).checked_sub(1).and_then(|at| config.ports.get(at));
        Ok(port.map(|port| tree::netdev_of(port, tree::named_netdev().as_deref())))
    }

    /// The device's configuration.
    ///
    /// # Errors
    ///
    /// The errors of [`devices`].
    pub(crate) fn config(&self) -> Result<DeviceConfig, Errno> {
        Ok(process()?.device(self.index).clone())
    }

    /// The device's GUID, in host byte order. It stays the same when the engine starts.
    ///
    /// # Errors
    ///
    /// The errors of [`ports`](Device::ports).
    pub(crate) fn guid(&self) -> Result<u64, Errno> {
        process()?.guid(self.index)
    }

    /// The device's ports in their present state. Starts the engine only if the ports cannot be
    /// derived from the configuration. The Ethernet address is zero while only the port itself
    /// could give it.
    ///
    /// # Errors
    ///
    /// The errors of [`context`](Device::context).
    pub(crate) fn ports(&'static self) -> Result<Vec<PortAttr>, Errno> {
        // A statement of its own, so that the lock is free when `context` takes it.
        let known = process()?.ports(self.index)?;
        match known {
            Some(ports) => Ok(ports),
            None => Ok(self.context()?.ports()),
        }
    }

    /// Returns the address of the process of this machine that a connection to `to`, an address of
    /// the machine, reaches. `None` if there is no such process.
    ///
    /// In the local fabric, it is a process that listens at the address, perhaps this one. A
    /// process that has only bound the port gets half a second to listen. Without the local fabric,
    /// it is this process if it listens. Otherwise it is the process at the other end of the
    /// device's memif link, if both ends are alternatives of one configuration.
    ///
    /// `own` is the device's own address; `is_heard` tells whether an id of this process listens at
    /// it and the port.
    ///
    /// # Errors
    ///
    /// The other identity's lock cannot be tested.
    pub(crate) fn listener(
        &self,
        space: PortSpace,
        to: SocketAddr,
        own: IpAddr,
        is_heard: bool,
    ) -> Result<Option<IpAddr>, Errno> {
        // The lock is free while files are read.
        let config = self.config()?;
        if config.ports.iter().any(config::is_local) {
            let end = Instant::now() + LISTENING;
            return Ok(config.ports.iter().find_map(|port| {
                loop {
                    match ports::find(port, space, to, is_heard) {
                        Reached::Soon(_) if Instant::now() < end => thread::sleep(LISTEN_RETRY),
                        Reached::Soon(ip) | Reached::Listener(ip) => return Some(ip),
                        Reached::Free => return None,
                    }
                }
            }));
        }
        if is_heard { Ok(Some(own)) } else { process()?.other_end(self.index, to.ip()) }
    }

    /// Waits until the member of the local fabric with the address `to` receives requests at the
    /// port of `to`, at most half a second. Returns at once if the member has not bound the port.
    ///
    /// # Errors
    ///
    /// The device's configuration cannot be read.
    pub(crate) fn await_listener(&self, space: PortSpace, to: SocketAddr) -> Result<(), Errno> {
        let config = self.config()?;
        let end = Instant::now() + LISTENING;
        while Instant::now() < end
            && config.ports.iter().any(|port| ports::is_coming(port, space, to))
        {
            thread::sleep(LISTEN_RETRY);
        }
        Ok(())
    }

    /// Returns the address to which the sender of a request is bound in the local fabric: one of
    /// the machine or of a member. `from` is the source of the request. `None` if the address is
    /// not known or is a wildcard.
    pub(crate) fn bound_at(&self, space: PortSpace, from: SocketAddr) -> Option<IpAddr> {
        let config = self.config().ok()?;
        config.ports.iter().find_map(|port| ports::bound_at(port, space, from))
    }

    /// Binds an id of this process, and publishes the binding to the processes of the local fabric.
    /// If the fabric's directory cannot be written to, the others do not see the id; a message on
    /// stderr says so, once.
    ///
    /// # Errors
    ///
    /// EADDRINUSE or EADDRNOTAVAIL, as on Linux, if an id of another process has the address.
    pub(crate) fn take_port(&self, binding: &Binding) -> Result<Vec<Notice>, Errno> {
        let mut all = Vec::new();
        for port in &self.config()?.ports {
            match ports::take(port, binding.clone()) {
                Ok(notice) => all.extend(notice?),
                Err(problem) => unseen(binding.at, &problem),
            }
        }
        Ok(all)
    }

    /// Whether the device's engine has started.
    pub(crate) fn is_started(&self) -> bool {
        process().is_ok_and(|process| process.context(self.index).is_some())
    }

    /// A context of the device. Starts the engine if it does not run yet.
    ///
    /// # Errors
    ///
    /// The errno of the failed start. The reason is on stderr.
    pub(crate) fn context(&'static self) -> Result<Context, Errno> {
        // A statement of its own, so that the lock is free when `start` takes it.
        let running = process().and_then(|process| {
            process.usable()?;
            Ok(process.context(self.index))
        })?;
        running.map_or_else(|| process::start(self), Ok)
    }
}
