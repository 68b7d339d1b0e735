//! The state of this process: its identity, its locks and its engine.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uroce::config::DeviceConfig;
use uroce::{Config, Context, Gid, OpenError, PortAttr};

use super::claim::{Kind, Lock};
use super::config::{self, Identity};
use super::hold::{Hold, Taken, Wish};
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

/// How long a forked child waits for the number in the local fabric that its parent has: a daemon's
/// parent ends at once.
const INHERITING: Duration = Duration::from_millis(50);

/// Interval between attempts to take the parent's number.
const INHERIT_RETRY: Duration = Duration::from_millis(5);

/// A function that is called with each device that starts. See [`super::on_start`].
type Hook = fn(&'static Device, &Context);

/// The state of the process. There is one.
pub(super) struct Process {
    identities: Vec<Identity>,
    /// The identity that provides the addresses. `None` until something depends on it.
    chosen: Option<Chosen>,
    /// Whether the identity was inherited from a parent process.
    inherited: bool,
    /// Whether a parent or a child process may have the same identity.
    shared: bool,
    /// Whether the processes that have all identities were listed.
    has_listed: bool,
    /// The lock for running the identity's engine.
    engine: Option<Lock>,
    contexts: Vec<Option<Context>>,
    /// Progress of the thread that starts a device. One device is started at a time.
    starting: Starting,
    /// The errno of a failed start. There is no second attempt, as DPDK does not start twice.
    failed: Option<Errno>,
    hooks: Vec<Hook>,
}

/// The identity of the process.
struct Chosen {
    /// Its index.
    at: usize,
    /// Its configuration, with the numbers of members of the local fabric.
    config: Config,
    /// `None` if all identities are taken; then no engine can start.
    hold: Option<Hold>,
}

impl Chosen {
    /// Whether this process has what was taken for the identity, or nothing was.
    fn is_settled(&self) -> bool {
        self.hold.as_ref().is_none_or(Hold::is_whole)
    }
}

/// Progress of a thread that starts a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starting {
    /// There is no such thread.
    Nothing,
    /// The thread takes what the device needs, or waits for it. A forked child may start the device
    /// itself.
    Prepares,
    /// The thread opens the device.
    Opens,
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
    try_lock()
        .is_some_and(|process| process.contexts().is_empty() && process.starting != Starting::Opens)
}

/// The next step of a start.
enum Step {
    /// Others hold the locks; they may be about to end.
    Wait,
    /// The device is to be opened with this configuration.
    Open(Config),
    /// The device runs.
    Done(Context),
}

/// The right to start a device, until it is dropped. One thread has it.
struct Turn;

/// Signalled when [`Turn`] is given back.
static TURN_ENDED: Condvar = Condvar::new();

impl Turn {
    /// Waits until no other thread has the right. The right is recorded in [`Process::starting`].
    /// It is not a lock: a child that is forked meanwhile could not release a lock.
    ///
    /// # Errors
    ///
    /// The process cannot use its devices, as [`Process::usable`] says.
    fn take() -> Result<Turn, Errno> {
        let mut process = lock_existing().ok_or(Errno::ENODEV)?;
        loop {
            process.usable()?;
            if process.starting == Starting::Nothing {
                process.starting = Starting::Prepares;
                return Ok(Turn);
            }
            process = TURN_ENDED.wait(process).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(mut process) = lock_existing() {
            process.starting = Starting::Nothing;
        }
        TURN_ENDED.notify_one();
    }
}

/// Starts the engine of a device and calls the hooks. The process's lock is free while this waits
/// for other processes, and while the device opens: a switch may take seconds to connect.
///
/// # Errors
///
/// The errno of the failed start. The reason is on stderr.
pub(super) fn start(device: &'static Device) -> Result<Context, Errno> {
    let existing = || lock_existing().ok_or(Errno::ENODEV);
    let _turn = Turn::take()?;
    let end = Instant::now() + PATIENCE;
    let config = loop {
        let is_last = Instant::now() >= end;
        // A statement of its own, so that the lock is free during the sleep.
        let step = existing()?.prepare(device, is_last)?;
        match step {
            Step::Done(context) => return Ok(context),
            Step::Open(config) => break config,
            Step::Wait => thread::sleep(RETRY),
        }
    };
    let opened = start::open(&config, device.name());
    existing()?.finish(device, opened)
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
            inherited: false,
            shared: false,
            has_listed: false,
            engine: None,
            contexts,
            starting: Starting::Nothing,
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
        self.chosen.as_ref().map_or(&self.identities[0].config, |chosen| &chosen.config)
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
        if let Some(address) = prefer {
            let wanted = self.all_with(address);
            if !wanted.is_empty() {
                return self.become_one_of(address, &wanted);
            }
        }
        let is_open = self.chosen.is_none() || self.inherited;
        let others = avoid.map_or(Vec::new(), |address| self.all_with(address));
        if let Some(&(other, avoided)) = others.first().filter(|_| is_open) {
            let others = match avoided {
                None => self.all_but(other),
                Some(_) => (0..self.identities.len()).collect(),
            };
            for at in others {
                if self.try_claim(at, Wish { avoided, ..Wish::default() })?.is_ok() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn become_one_of(
        &mut self,
        address: IpAddr,
        wanted: &[(usize, Option<u8>)],
    ) -> Result<(), Errno> {
        let is_it = |chosen: &Chosen| {
            chosen.hold.as_ref().is_some_and(Hold::is_whole) && has(&chosen.config, address)
        };
        if self.chosen.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let mut taken = Vec::new();
        for &(at, number) in wanted {
            match self.try_claim(at, Wish { number, ..Wish::default() })? {
                Ok(()) => return Ok(()),
                Err(others) => taken.extend(others),
            }
        }
        let address = taken.first().map_or(String::new(), |first| first.what.clone());
        let holders: Vec<_> = taken.into_iter().map(|taken| taken.holder).collect();
        let holders = holders.join(", ");
        // A program that tries its addresses in turn continues with another one. The message is for
        // a program that ends without an engine.
        let text = format!("{address} is the address of {holders}; this process has another.");
        exit::say_if(has_no_engine, text);
        Err(Errno::EADDRINUSE)
    }

    /// The identities that can have this address, with the number of the member that has it.
    /// Several can, if alternatives share addresses.
    fn all_with(&self, address: IpAddr) -> Vec<(usize, Option<u8>)> {
        let all = self.identities.iter().enumerate();
        let with = all.filter_map(|(at, identity)| {
            let number = config::member_at(&identity.config, address);
            (number.is_some() || has(&identity.config, address)).then_some((at, number))
        });
        with.collect()
    }

    /// Chooses the identity that provides the addresses: the first free one.
    ///
    /// # Errors
    ///
    /// EBUSY if other processes are all members of the local fabric that this one could be. They
    /// are listed on stderr, once.
    fn choose(&mut self) -> Result<(), Errno> {
        match self.try_choose()? {
            Ok(()) => Ok(()),
            Err(taken) => Err(self.list(&taken)),
        }
    }

    /// Chooses as [`choose`](Process::choose) does. The inner error has the holders. Where no
    /// identity is any member of the local fabric, the first one is chosen although it is taken, so
    /// that programs that only query addresses still work.
    fn try_choose(&mut self) -> Result<Result<(), Vec<Taken>>, Errno> {
        let is_running = self.engine.is_some() || is_orphaned();
        if is_running || self.chosen.as_ref().is_some_and(Chosen::is_settled) {
            return Ok(Ok(()));
        }
        if self.renew()? {
            return Ok(Ok(()));
        }
        let mut taken = Vec::new();
        for at in 0..self.identities.len() {
            match self.try_claim(at, Wish::default())? {
                Ok(()) => return Ok(Ok(())),
                Err(others) => taken.extend(others),
            }
        }
        if self.identities.iter().any(|identity| config::is_open(&identity.config)) {
            return Ok(Err(taken));
        }
        self.chosen = Some(Chosen { at: 0, config: self.identities[0].config.clone(), hold: None });
        Ok(Ok(()))
    }

    /// Takes the numbers of a forked child in the local fabric: its parent's, if it ends about now,
    /// or any others. Returns whether the process has its identity then.
    fn renew(&mut self) -> Result<bool, Errno> {
        let Some(Chosen { at, config, hold: Some(hold) }) = &mut self.chosen else {
            return Ok(false);
        };
        let identity = &self.identities[*at];
        let mut ports = config.devices.iter().flat_map(|device| &device.ports);
        let number = ports.find(|port| config::is_local(port)).and_then(|port| port.member);
        let end = Instant::now() + INHERITING;
        let renewed = loop {
            let is_over = Instant::now() >= end;
            let number = number.filter(|_| !is_over);
            let renewed = hold.renew(identity, Wish { number, ..Wish::default() });
            let renewed = renewed.map_err(reported)?;
            if renewed.is_ok() || is_over {
                break renewed;
            }
            thread::sleep(INHERIT_RETRY);
        };
        let Ok(renewed) = renewed else { return Ok(false) };
        *config = renewed;
        self.show();
        Ok(true)
    }

    /// Lists the processes that have all identities.
    fn list(&mut self, taken: &[Taken]) -> Errno {
        let lines: Vec<String> = taken.iter().map(Taken::to_string).collect();
        let problem = Problem::Taken { holders: lines.join("\n") };
        if !self.has_listed {
            say(&problem.to_string());
        }
        self.has_listed = true;
        problem.errno().into()
    }

    /// Takes the identity with this index, unless another process has it.
    fn try_claim(&mut self, at: usize, wish: Wish) -> Result<Result<(), Vec<Taken>>, Errno> {
        match Hold::take(&self.identities[at], wish).map_err(reported)? {
            Ok((config, hold)) => {
                // Dropping the former hold releases it.
                self.chosen = Some(Chosen { at, config, hold: Some(hold) });
                (self.inherited, self.shared) = (false, false);
                self.show();
                Ok(Ok(()))
            }
            Err(taken) => Ok(Err(taken)),
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

    /// Takes the locks that an engine needs. Returns whether that was possible; if it is not, and
    /// `is_last`, prints the holders.
    fn settle(&mut self, is_last: bool) -> Result<bool, Errno> {
        if let Err(taken) = self.try_choose()? {
            return if is_last { Err(self.list(&taken)) } else { Ok(false) };
        }
        let chosen = self.chosen.as_ref().map_or(0, |chosen| chosen.at);
        // Another process of this family may run the engine of the inherited identity. Then any
        // other free identity is taken.
        let (mut candidates, mut others) = (vec![chosen], self.all_but(chosen));
        if self.shared {
            candidates.append(&mut others);
        }
        let mut taken = match self.try_engines(&candidates)? {
            Ok(()) => return Ok(true),
            Err(_) if !is_last => return Ok(false),
            Err(taken) => taken,
        };
        for at in others {
            let held = Hold::take(&self.identities[at], Wish::default()).map_err(reported)?;
            taken.extend(held.err().into_iter().flatten());
        }
        Err(self.list(&taken))
    }

    /// Takes the first of these identities with a free engine lock. The inner error has the
    /// holders.
    fn try_engines(&mut self, candidates: &[usize]) -> Result<Result<(), Vec<Taken>>, Errno> {
        let mut taken = Vec::new();
        for &at in candidates {
            let is_it = |chosen: &Chosen| chosen.at == at && chosen.hold.is_some();
            if !self.chosen.as_ref().is_some_and(is_it)
                && let Err(others) = self.try_claim(at, Wish::default())?
            {
                taken.extend(others);
                continue;
            }
            let resources = config::resources(&self.identities[at].config);
            match claim::take(Kind::Engine, &resources).map_err(reported)? {
                Ok(engine) => {
                    self.engine = Some(engine);
                    return Ok(Ok(()));
                }
                Err(holder) => {
                    let what = config::title(&self.identities[at]);
                    taken.push(Taken { what, holder: holder.to_string() });
                }
            }
        }
        Ok(Err(taken))
    }

    /// The address of the other end of a device's memif link, if another process runs its engine.
    pub(super) fn other_end(&self, index: usize, like: IpAddr) -> Result<Option<IpAddr>, Errno> {
        let Some(Chosen { at: chosen, .. }) = self.chosen else { return Ok(None) };
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
            if claim::look(Kind::Engine, &resources).map_err(reported)?.is_some() {
                return Ok(Some(ip));
            }
        }
        Ok(None)
    }

    fn all_but(&self, one: usize) -> Vec<usize> {
        (0..self.identities.len()).filter(|at| *at != one).collect()
    }

    /// Takes what a device needs before it opens.
    fn prepare(&mut self, device: &Device, is_last: bool) -> Result<Step, Errno> {
        if let Some(context) = self.context(device.index()) {
            return Ok(Step::Done(context));
        }
        if let Some(errno) = self.failed {
            return Err(errno);
        }
        if self.engine.is_none() && !self.settle(is_last)? {
            return Ok(Step::Wait);
        }
        start::check_room().map_err(|error| cannot(&error))?;
        exit::watch(running).map_err(|error| cannot(&error))?;
        self.starting = Starting::Opens;
        Ok(Step::Open(self.config().clone()))
    }

    /// Keeps a device that has opened, and calls the hooks.
    fn finish(
        &mut self,
        device: &'static Device,
        opened: io::Result<Result<Context, OpenError>>,
    ) -> Result<Context, Errno> {
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

    /// Called in the parent after a fork: the child shares the locks.
    pub(super) fn has_forked(&mut self) {
        self.shared |= self.has_hold();
    }

    fn has_hold(&self) -> bool {
        self.chosen.as_ref().is_some_and(|chosen| chosen.hold.is_some())
    }

    /// Called in a child after it was forked. It has no thread but the calling one.
    pub(super) fn is_forked(&mut self) {
        self.has_forked();
        // The contexts belong to the parent, and so do the threads behind them and the thread that
        // opens a device.
        let is_begun =
            self.starting == Starting::Opens || self.contexts.iter().any(Option::is_some);
        ORPHANED.fetch_or(is_begun, Ordering::Relaxed);
        // The thread that waits is the parent's.
        self.starting = Starting::Nothing;
        self.inherited = self.has_hold();
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

/// Whether a device of the configuration has this address.
fn has(config: &Config, address: IpAddr) -> bool {
    let gid = Gid::from(address);
    let preview = |device: &DeviceConfig| Context::preview(config, &device.name).ok().flatten();
    config
        .devices
        .iter()
        .filter_map(preview)
        .flatten()
        .flat_map(|port| port.gids)
        .any(|own| own == gid)
}
