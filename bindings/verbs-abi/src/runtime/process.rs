//! The state of this process: its identity, its locks and its engine.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uroce::cm::raw::PortSpace;
use uroce::config::DeviceConfig;
use uroce::{Config, Context, Gid, PortAttr};

use super::claim::{Kind, Lock};
use super::config::{self, Identity};
use super::listeners::{self, Listener};
use super::problem::Problem;
use super::refusal::{cannot, failed};
use super::say::say;
use super::{Device, ORPHANED, claim, counting, exit, is_orphaned, shim, start, tree};
use crate::errno::Errno;

/// How long a start waits for locks. A process that was just killed holds its locks until the
/// kernel has removed it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval between attempts to take the locks.
const RETRY: Duration = Duration::from_millis(20);

/// A function that is called with each device that starts. See [`super::on_start`].
type Hook = fn(&'static Device, &Context);

/// The state of the process. There is one.
pub(super) struct Process {
    identities: Vec<Identity>,
    /// Index of the identity that provides the addresses. `None` until something depends on it.
    chosen: Option<usize>,
    /// The claim of the chosen identity. `None` if all identities are taken; then no engine can
    /// start.
    claim: Option<Lock>,
    /// The claim was inherited from a parent process.
    inherited: bool,
    /// A parent or a child process may hold the same claim.
    shared: bool,
    /// The lock for running the identity's engine.
    engine: Option<Lock>,
    contexts: Vec<Option<Context>>,
    /// The errno of a failed start. There is no second attempt, as DPDK does not start twice.
    failed: Option<Errno>,
    hooks: Vec<Hook>,
}

static PROCESS: OnceLock<Result<Mutex<Process>, Errno>> = OnceLock::new();

/// Locks the process's state. At the first call the configuration is read, and `at_first` is
/// called.
///
/// # Errors
///
/// The configuration cannot be read or used. The message is on stderr.
pub(super) fn lock(at_first: fn()) -> Result<MutexGuard<'static, Process>, Errno> {
    let process = PROCESS.get_or_init(|| {
        let identities = config::identities().map_err(reported)?;
        at_first();
        Ok(Mutex::new(Process::new(identities)))
    });
    let process = process.as_ref().map_err(|error| *error)?;
    Ok(process.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Locks the process's state, if [`lock`] was called before.
pub(super) fn lock_existing() -> Option<MutexGuard<'static, Process>> {
    let process = PROCESS.get()?.as_ref().ok()?;
    Some(process.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Locks the process's state, if it exists and its lock is free.
fn try_lock() -> Option<MutexGuard<'static, Process>> {
    PROCESS.get()?.as_ref().ok()?.try_lock().ok()
}

/// The contexts of all devices that run, for the exit. Empty while an engine starts: it has sent
/// nothing yet.
fn running() -> Vec<Context> {
    try_lock().map_or(Vec::new(), |process| process.contexts())
}

/// Whether no device runs, for the exit. False while an engine starts.
fn has_no_engine() -> bool {
    try_lock().is_some_and(|process| process.contexts().is_empty())
}

fn reported(problem: Problem) -> Errno {
    say(&problem.to_string());
    problem.errno().into()
}

impl Process {
    fn new(identities: Vec<Identity>) -> Self {
        let contexts = identities[0].config.devices.iter().map(|_| None).collect();
        Self {
            identities,
            chosen: None,
            claim: None,
            inherited: false,
            shared: false,
            engine: None,
            contexts,
            failed: None,
            hooks: Vec::new(),
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let devices = self.identities[0].config.devices.iter();
        devices.map(|device| device.name.clone()).collect()
    }

    pub(super) fn context(&self, index: usize) -> Option<Context> {
        self.contexts.get(index)?.clone()
    }

    /// The contexts of all devices that run. Empty in a child that was forked after the engine had
    /// started.
    fn contexts(&self) -> Vec<Context> {
        if is_orphaned() { Vec::new() } else { self.contexts.iter().flatten().cloned().collect() }
    }

    pub(super) fn usable(&self) -> Result<(), Errno> {
        if !is_orphaned() {
            return Ok(());
        }
        say("this process was forked after its parent had begun to use RDMA; it cannot use it. \
             Fork before the first completion queue, queue pair or bound rdma_cm_id, or call exec \
             in the child.");
        Err(Errno::EOPNOTSUPP)
    }

    pub(super) fn add_hook(&mut self, hook: Hook, devices: &'static [Device]) {
        for (device, context) in devices.iter().zip(&self.contexts) {
            if let Some(context) = context {
                hook(device, context);
            }
        }
        self.hooks.push(hook);
    }

    pub(super) fn ports(&mut self, index: usize) -> Result<Option<Vec<PortAttr>>, Errno> {
        if let Some(context) = &self.contexts[index] {
            return Ok(Some(context.ports()));
        }
        self.choose()?;
        let device = self.device(index);
        let preview = Context::preview(self.config(), &device.name);
        preview.map_err(|error| failed(&device.name, &error))
    }

    pub(super) fn guid(&mut self, index: usize) -> Result<u64, Errno> {
        self.choose()?;
        let device = self.device(index);
        // Always uses what is known without the engine, so that the GUID does not change when it
        // starts.
        let preview = Context::preview(self.config(), &device.name);
        let ports = preview.map_err(|error| failed(&device.name, &error))?.unwrap_or_default();
        let mac = ports.first().map_or(uroce::Mac::default(), |port| port.mac);
        Ok(config::guid(mac, device))
    }

    fn config(&self) -> &Config {
        &self.identities[self.chosen.unwrap_or(0)].config
    }

    pub(super) fn device(&self, index: usize) -> &DeviceConfig {
        &self.config().devices[index]
    }

    /// Implements [`super::pick`].
    pub(super) fn pick(
        &mut self,
        prefer: Option<IpAddr>,
        avoid: Option<IpAddr>,
    ) -> Result<(), Errno> {
        if self.engine.is_some() || is_orphaned() {
            return Ok(());
        }
        let wanted = prefer.map_or(Vec::new(), |address| self.all_with(address));
        if !wanted.is_empty() {
            return self.become_one_of(&wanted);
        }
        let is_open = self.chosen.is_none() || self.inherited;
        let others = avoid.map_or(Vec::new(), |address| self.all_with(address));
        if let Some(&other) = others.first().filter(|_| is_open) {
            for at in self.all_but(other) {
                if self.try_claim(at)?.is_ok() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn become_one_of(&mut self, wanted: &[usize]) -> Result<(), Errno> {
        let is_wanted = self.chosen.is_some_and(|chosen| wanted.contains(&chosen));
        if is_wanted && self.claim.is_some() {
            return Ok(());
        }
        let mut holders = Vec::new();
        for &at in wanted {
            match self.try_claim(at)? {
                Ok(()) => return Ok(()),
                Err(holder) => holders.push(holder.to_string()),
            }
        }
        let (address, holders) = (self.addresses(wanted[0]), holders.join(", "));
        // A program that tries its addresses in turn continues with another one. The message is for
        // a program that ends without an engine.
        let text = format!("{address} is the address of {holders}; this process has another.");
        exit::say_if(has_no_engine, text);
        Err(Errno::EADDRINUSE)
    }

    /// The identities that have this address. Several can, if alternatives share addresses.
    fn all_with(&self, address: IpAddr) -> Vec<usize> {
        let gid = Gid::from(address);
        let has_it = |identity: &Identity| {
            let devices = identity.config.devices.iter();
            let preview = |device: &DeviceConfig| Context::preview(&identity.config, &device.name);
            let ports = devices.filter_map(|device| preview(device).ok().flatten()).flatten();
            ports.flat_map(|port| port.gids).any(|own| own == gid)
        };
        (0..self.identities.len()).filter(|&at| has_it(&self.identities[at])).collect()
    }

    /// Chooses the identity that provides the addresses: the first free one. If all are taken, the
    /// first one without a claim, so that programs that only query addresses still work.
    fn choose(&mut self) -> Result<(), Errno> {
        if self.chosen.is_some() {
            return Ok(());
        }
        for at in 0..self.identities.len() {
            if self.try_claim(at)?.is_ok() {
                return Ok(());
            }
        }
        self.chosen = Some(0);
        Ok(())
    }

    /// Takes the identity with this index, unless another process has it.
    fn try_claim(&mut self, at: usize) -> Result<Result<(), claim::Holder>, Errno> {
        let resources = config::resources(&self.identities[at].config);
        match claim::take(Kind::Claim, &resources).map_err(reported)? {
            Ok(claim) => {
                // Dropping the former claim releases it.
                self.claim = Some(claim);
                self.chosen = Some(at);
                (self.inherited, self.shared) = (false, false);
                self.show();
                Ok(Ok(()))
            }
            Err(holder) => Ok(Err(holder)),
        }
    }

    /// Writes the tree of the present identity and makes the path shim show it, if the shim is
    /// loaded.
    fn show(&self) {
        let config = self.config();
        let ports = |index: usize| match &self.contexts[index] {
            Some(context) => seen(context),
            None => tree::preview(config, index),
        };
        if let Some(shim) = shim::find() {
            match tree::write(config, ports, tree::named_netdev().as_deref()) {
                Ok(tree) => {
                    shim.show(&tree);
                    counting::show(&tree);
                }
                Err(problem) => say(&problem.to_string()),
            }
        }
    }

    /// Takes the locks that an engine needs. If they are held by others, prints the holders.
    fn settle(&mut self) -> Result<(), Errno> {
        self.choose()?;
        let chosen = self.chosen.unwrap_or(0);
        // Another process of this family may run the engine of the inherited identity. Then any
        // other free identity is taken.
        let (mut candidates, mut others) = (vec![chosen], self.all_but(chosen));
        if self.shared {
            candidates.append(&mut others);
        }
        let end = Instant::now() + PATIENCE;
        let mut holders = loop {
            match self.try_engines(&candidates)? {
                Ok(()) => return Ok(()),
                Err(holders) if Instant::now() >= end => break holders,
                Err(_) => thread::sleep(RETRY),
            }
        };
        for at in others {
            if let Err(holder) = self.holder_of(at)? {
                note(&mut holders, &self.addresses(at), &holder);
            }
        }
        Err(reported(Problem::Taken { holders }))
    }

    /// Takes the first of these identities with a free engine lock. The inner error lists the
    /// holders for the message.
    fn try_engines(&mut self, candidates: &[usize]) -> Result<Result<(), String>, Errno> {
        let mut holders = String::new();
        for &at in candidates {
            let is_ours = self.chosen == Some(at) && self.claim.is_some();
            if !is_ours && let Err(holder) = self.try_claim(at)? {
                note(&mut holders, &self.addresses(at), &holder);
                continue;
            }
            let resources = config::resources(&self.identities[at].config);
            match claim::take(Kind::Engine, &resources).map_err(reported)? {
                Ok(engine) => {
                    self.engine = Some(engine);
                    return Ok(Ok(()));
                }
                Err(holder) => note(&mut holders, &self.addresses(at), &holder),
            }
        }
        Ok(Err(holders))
    }

    /// Implements [`Device::elsewhere`].
    pub(super) fn elsewhere(
        &self,
        index: usize,
        space: PortSpace,
        at: SocketAddr,
    ) -> Result<Option<IpAddr>, Errno> {
        let ports = &self.device(index).ports;
        if ports.iter().any(config::is_local) {
            return Ok(ports.iter().find_map(|port| listeners::find(port, space, at)));
        }
        self.other_end(index, at.ip())
    }

    /// Implements [`Device::announce`].
    pub(super) fn announce(
        &self,
        index: usize,
        space: PortSpace,
        at: SocketAddr,
        one_version: bool,
    ) -> Vec<Listener> {
        let mut all = Vec::new();
        for port in &self.device(index).ports {
            match listeners::announce(port, space, at, one_version) {
                Ok(listener) => all.extend(listener),
                Err(problem) => say(&format!(
                    "other processes do not find the listener at {at} by localhost: {problem}"
                )),
            }
        }
        all
    }

    /// The address of the other end of a device's memif link, if another process runs its engine.
    fn other_end(&self, index: usize, like: IpAddr) -> Result<Option<IpAddr>, Errno> {
        let Some(chosen) = self.chosen else { return Ok(None) };
        let own = self.device(index);
        let is_other = |ip: &IpAddr| {
            let is_own = own.ports.iter().flat_map(|port| &port.ip).any(|own| own.address() == *ip);
            ip.is_ipv4() == like.is_ipv4() && !is_own
        };
        for at in self.all_but(chosen) {
            let identity = &self.identities[at];
            let ports = &identity.config.devices[index].ports;
            let joined =
                ports.iter().find(|port| own.ports.iter().any(|o| config::are_joined(o, port)));
            let ip = joined.and_then(|port| port.ip.iter().map(|ip| ip.address()).find(is_other));
            let Some(ip) = ip else { continue };
            let resources = config::resources(&identity.config);
            if claim::take(Kind::Engine, &resources).map_err(reported)?.is_err() {
                return Ok(Some(ip));
            }
        }
        Ok(None)
    }

    fn all_but(&self, one: usize) -> Vec<usize> {
        (0..self.identities.len()).filter(|at| *at != one).collect()
    }

    /// The process that has the identity with this index, if any. The claim is released at once if
    /// it was free.
    fn holder_of(&self, at: usize) -> Result<Result<(), claim::Holder>, Errno> {
        let resources = config::resources(&self.identities[at].config);
        Ok(claim::take(Kind::Claim, &resources).map_err(reported)?.map(drop))
    }

    /// An identity's addresses as text for messages, or its source if it has none.
    fn addresses(&self, at: usize) -> String {
        let ports = self.identities[at].config.devices.iter().flat_map(|device| &device.ports);
        let ip: Vec<String> =
            ports.flat_map(|port| &port.ip).map(|own| own.address().to_string()).collect();
        if ip.is_empty() { self.identities[at].source.display().to_string() } else { ip.join(", ") }
    }

    /// Starts the engine of a device and calls the hooks.
    pub(super) fn start(&mut self, device: &'static Device) -> Result<Context, Errno> {
        if let Some(errno) = self.failed {
            return Err(errno);
        }
        if self.engine.is_none() {
            self.settle()?;
        }
        start::check_room().map_err(|error| cannot(&error))?;
        exit::watch(running).map_err(|error| cannot(&error))?;
        let opened = start::open(self.config(), device.name());
        let context = match opened.map_err(|error| cannot(&error))? {
            Ok(context) => context,
            Err(error) => {
                let errno = failed(device.name(), &error);
                self.failed = Some(errno);
                return Err(errno);
            }
        };
        self.contexts[device.index()] = Some(context.clone());
        self.show();
        counting::keep(device.name(), context.clone());
        for hook in &self.hooks {
            hook(device, &context);
        }
        Ok(context)
    }

    /// Called in the parent after a fork: the child shares the claim.
    pub(super) fn has_forked(&mut self) {
        self.shared |= self.claim.is_some();
    }

    /// Called in a child after it was forked. It has no thread but the calling one.
    pub(super) fn is_forked(&mut self) {
        self.has_forked();
        // The contexts belong to the parent, and so do the threads behind them.
        ORPHANED.fetch_or(self.contexts.iter().any(Option::is_some), Ordering::Relaxed);
        self.inherited = self.claim.is_some();
        // The parent keeps holding the engine lock.
        self.engine = None;
    }
}

/// The ports of a device that runs, with their rates.
fn seen(context: &Context) -> Vec<tree::Port> {
    let speed = |number| context.port_status(number).ok().and_then(|port| port.link.speed_mbps);
    let ports = context.ports().into_iter();
    ports.map(|attr| tree::Port { mbps: speed(attr.number), attr }).collect()
}

fn note(holders: &mut String, addresses: &str, holder: &claim::Holder) {
    holders.push_str(&format!("  {addresses}: {holder}\n"));
}
