//! The process's devices: what is configured, which of it this process is, and the engine behind it,
//! which starts when it is needed.
//!
//! ```text
//!   devices ──> identity: a claim on a file ──> engine: EAL, ports, lcores ──> exit: drained, stopped
//!    names        at the first question            at the first object
//!                 about addresses                  that needs one
//! ```
//!
//! Invariants
//! - One engine device per configured device, shared by all that open it.
//! - A process is one identity at a time, and no other process is it, except children that it forked.
//!   Once an engine has started it stays the same.
//! - Nothing that a process leaves behind, however it ends, is in the way of the next.
//!
//! Not here: events of the engine, which somebody else hands on ([`on_start`]).

mod claim;
mod config;
mod counting;
mod exit;
mod fork;
mod keep;
mod place;
mod problem;
mod process;
mod say;
mod shim;
mod speed;
mod start;
mod tree;

pub(crate) use config::{gid_table_len, lid, lid_source};
pub(crate) use exit::hold_up;
pub(crate) use keep::opened;
pub(crate) use place::is_privileged;
pub(crate) use say::say;
pub(crate) use speed::codes as speed_codes;
pub(crate) use start::spawn;
pub(crate) use tree::PORT_CAPS;

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use uroce::config::DeviceConfig;
use uroce::{Context, PortAttr};

use crate::errno::Errno;
use crate::quota::Quota;

/// A device of the configuration; it stays for the life of the process.
pub(crate) struct Device {
    name: String,
    index: usize,
    pub(crate) quotas: Quotas,
}

/// What a program has of a device, by kinds whose number the engine does not limit.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) pds: Quota,
    pub(crate) cqs: Quota,
    pub(crate) srqs: Quota,
}

/// The devices of the configuration.
///
/// # Errors
///
/// Those of a configuration that cannot be used; what is wrong with it is on stderr.
pub(crate) fn devices() -> Result<&'static [Device], Errno> {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    let names = process::lock()?.names();
    let device = |(index, name)| Device { name, index, quotas: Quotas::default() };
    Ok(DEVICES.get_or_init(|| names.into_iter().enumerate().map(device).collect()))
}

/// Chooses which identity this process is, if that is still open: the one that has the address
/// `prefer`, or one that has not the address `avoid`. Without a wish the first is taken that is
/// free, when something is asked that depends on it.
///
/// # Errors
///
/// EADDRINUSE if another process is the one that has `prefer`, and those of the configuration.
pub(crate) fn pick(prefer: Option<IpAddr>, avoid: Option<IpAddr>) -> Result<(), Errno> {
    process::lock()?.pick(prefer, avoid)
}

/// Calls `hook` with each device whose engine has started or will, once for each, before anybody
/// else gets its context. It must not call anything of this module.
pub(crate) fn on_start(hook: fn(&'static Device, &Context)) -> Result<(), Errno> {
    let devices = devices()?;
    process::lock()?.add_hook(hook, devices);
    Ok(())
}

/// This process is a child that was forked after its parent had started an engine.
static ORPHANED: AtomicBool = AtomicBool::new(false);

/// Whether what this process has cannot be used; as [`usable`], without a word.
#[inline]
pub(crate) fn is_orphaned() -> bool {
    ORPHANED.load(Ordering::Relaxed)
}

/// Whether what this process has can be used: not so in a child that was forked after its parent
/// had started an engine, whose threads are not the child's. One load where it can.
///
/// # Errors
///
/// EOPNOTSUPP in such a child; what can be done is on stderr.
#[inline]
pub(crate) fn usable() -> Result<(), Errno> {
    if is_orphaned() { refuse() } else { Ok(()) }
}

#[cold]
fn refuse() -> Result<(), Errno> {
    process::lock()?.usable()
}

/// Drops what stands for something of the engine's. In a child whose parent has started it, that is
/// the parent's: the child's copy is left alone, as its threads would be waited for in vain.
pub(crate) fn dispose<T>(value: T) {
    match usable() {
        Ok(()) => drop(value),
        Err(_) => std::mem::forget(value),
    }
}

impl Device {
    /// Its name, as `uroce0`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its place in the list.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The kernel's interface that a port is shown with, if there is one: the one behind it, or the one
    /// that the program's user has named for ports that have none.
    ///
    /// # Errors
    ///
    /// Those of the configuration.
    pub(crate) fn netdev(&self, number: u8) -> Result<Option<String>, Errno> {
        let config = self.config()?;
        let port = usize::from(number).checked_sub(1).and_then(|at| config.ports.get(at));
        Ok(port.and_then(|port| tree::netdev_of(port, tree::named_netdev().as_deref())))
    }

    /// What it is configured with.
    ///
    /// # Errors
    ///
    /// Those of the configuration.
    pub(crate) fn config(&self) -> Result<DeviceConfig, Errno> {
        Ok(process::lock()?.device(self.index).clone())
    }

    /// Its GUID, in host order. It does not change when the device starts.
    ///
    /// # Errors
    ///
    /// Those of [`ports`](Device::ports).
    pub(crate) fn guid(&self) -> Result<u64, Errno> {
        process::lock()?.guid(self.index)
    }

    /// Its ports, as they are now; it is started only if the configuration does not tell them. The
    /// Ethernet address is zero as long as only the port itself would know it.
    ///
    /// # Errors
    ///
    /// Those of starting it.
    pub(crate) fn ports(&'static self) -> Result<Vec<PortAttr>, Errno> {
        // A separate statement, as starting takes the lock again.
        let known = process::lock()?.ports(self.index)?;
        match known {
            Some(ports) => Ok(ports),
            None => Ok(self.context()?.ports()),
        }
    }

    /// The address of the other end of this device's link, of the IP version of `like`, if another
    /// process runs it: where both ends of a memif link are alternatives of one configuration, as
    /// of the built-in one.
    ///
    /// # Errors
    ///
    /// Those of looking at that process's lock.
    pub(crate) fn other_end(&self, like: IpAddr) -> Result<Option<IpAddr>, Errno> {
        process::lock()?.other_end(self.index, like)
    }

    /// Whether its engine runs.
    pub(crate) fn is_started(&self) -> bool {
        process::lock().is_ok_and(|process| process.context(self.index).is_some())
    }

    /// The device, open; starts it if it is not started yet.
    ///
    /// # Errors
    ///
    /// Why it does not start is on stderr; the number says how.
    pub(crate) fn context(&'static self) -> Result<Context, Errno> {
        let mut process = process::lock()?;
        process.usable()?;
        match process.context(self.index) {
            Some(context) => Ok(context),
            None => process.start(self),
        }
    }
}
