//! The engine: lcores over ports, and the calls that any thread may make.
//!
//! Starting returns two handles. [`Engine`] is for all threads: memory regions, completion queues,
//! counters, adoption; it is cheap to clone. [`Control`] is for one thread, the control plane's:
//! QPs, addresses, frames that are not RoCEv2.
//!
//! Invariants
//! - [`Control`] owns the lcores: when it is dropped they stop, and everything they hold is freed.
//!   Calls of remaining engines then fail with an error, and none hangs.
//!
//! Not here: verbs objects, and their lifetimes.

use crate::control::Control;
use crate::control::config::EngineConfig;
use crate::counters::{CounterBlock, Counters};
use crate::distribution::RoundTripDistribution;
use crate::dpdk::eal::Eal;
use crate::lane::binding::PortBinding;
use crate::lane::bottleneck::BottleneckError;
use crate::lcore::Lcore;
use crate::lcore::profile::ProfileBlock;
use crate::lcore::thread::ThreadError;
use crate::lcore::{AdoptError, LcoreGuard, LcoreProfile};
use crate::limits::{MAX_GIDS, MAX_LCORES, MAX_MRS, MAX_PORTS, MAX_QPS};
use crate::port::QueueError;
use crate::qp::tables::Tables;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use uroce_shared::memory::mr_table::MrTable;
use uroce_shared::queue::cq::CqParts;
use uroce_shared::queue::places::Places;
use uroce_shared::queue::xrc::{XrcDomain, XrcName, Xrcd};
use uroce_shared::queue::{
    CompletionChannel, CompletionQueue, CqError, SharedReceiveQueue, SrqError,
};
use uroce_shared::seat::Seat;
use uroce_shared::seat::idle::{Driver, IdlePolicy};
use uroce_shared::sync::{AtomicU32, Ordering};
use uroce_shared::table::ah_table::{AhError, MAX_AHS};
use uroce_shared::wake::bed::Bed;
use uroce_shared::wake::bell::Bell;
use uroce_shared::wake::events::{EventChannel, EventGuard, Subject};
use uroce_transport::{Ah, Pd, StaticRate};
use uroce_wire::Encap;

/// The reason why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No lcore, or more than [`MAX_LCORES`].
    #[error("{0} lcores are not in 1..={MAX_LCORES}")]
    Lcores(usize),
    /// No port, or more than [`MAX_PORTS`].
    #[error("{0} ports are not in 1..={MAX_PORTS}")]
    Ports(usize),
    /// `max_qps` is 0 or above [`MAX_QPS`].
    #[error("{0} QPs are not in 1..={MAX_QPS}")]
    Qps(u32),
    /// `max_ahs` is 0 or above [`MAX_AHS`].
    #[error("{0} address handles are not in 1..={MAX_AHS}")]
    Ahs(u32),
    /// The process has no file descriptor left for asynchronous events.
    #[error("no channel for asynchronous events: {0}")]
    Events(std::io::Error),
    /// `max_mrs` is 0 or above [`MAX_MRS`].
    #[error("{0} memory regions are not in 1..={MAX_MRS}")]
    Mrs(u32),
    /// A queue pair of a port, counted from 1, is taken, or the port has none.
    #[error("port {port}: {error}")]
    Queue {
        /// The port.
        port: usize,
        /// The reason.
        error: QueueError,
    },
    /// A port, counted from 1, has too many addresses or a VLAN that does not exist.
    #[error("port {0}: more than {MAX_GIDS} addresses, or no such VLAN")]
    Addresses(usize),
    /// A port, counted from 1, has a probability of loss outside 0 to 1.
    #[error("port {0}: a share of loss is not in 0.0..=1.0")]
    Loss(usize),
    /// A port, counted from 1, has a bottleneck that cannot be.
    #[error("port {port}: bottleneck.{}: {error}", .error.field())]
    Bottleneck {
        /// The port.
        port: usize,
        /// The reason.
        error: BottleneckError,
    },
    /// EAL does not run.
    #[error("EAL does not run")]
    NoEal,
    /// The system gives no random numbers for keys.
    #[error("no randomness: {0}")]
    Random(getrandom::Error),
    /// An lcore's thread did not start.
    #[error("lcore {lcore}: {error}")]
    Thread {
        /// The lcore.
        lcore: usize,
        /// The reason.
        error: ThreadError,
    },
}

/// Numbers of the objects of an engine that any thread may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Protection domains.
    pub pds: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Memory regions and windows together.
    pub mrs: u32,
    /// Memory windows.
    pub mws: u32,
    /// Address handles.
    pub ahs: u32,
}

/// State that all clones of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) seats: Vec<Arc<Seat<Lcore>>>,
    pub(crate) regions: Arc<MrTable>,
    pub(crate) counters: Vec<Arc<CounterBlock>>,
    pub(crate) profiles: Vec<Arc<ProfileBlock>>,
    pub(crate) tables: Tables,
    pub(crate) events: Arc<EventChannel>,
    pub(crate) places: Arc<Places>,
    pub(crate) next_pd: AtomicU32,
    /// Protection domains that are in use.
    pub(crate) pds: AtomicU32,
    /// Memory windows that exist.
    pub(crate) windows: AtomicU32,
    /// The next number of a CQ or SRQ, for its events, or of an XRC or RD domain.
    next_queue: AtomicU32,
    /// RD domains to which a home was given in turn.
    pub(crate) rd_domains: AtomicU32,
    pub(crate) driver: Driver,
    /// Number of processors that the process had when the engine started.
    pub(crate) processors: u32,
}

/// A running engine. Clones are handles of the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Starts lcores over ports. All memory that the data path needs is allocated here or with each
    /// QP.
    ///
    /// # Errors
    /// [`EngineError`]; nothing runs then, and the ports are closed.
    pub fn start(
        config: EngineConfig,
        ports: Vec<PortBinding>,
    ) -> Result<(Engine, Control), EngineError> {
        check(&config, &ports)?;
        let eal = Eal::running().ok_or(EngineError::NoEal)?;
        crate::control::signals::install();
        let parts = crate::control::assemble::assemble(&config, ports)?;
        let shared = Arc::new(Shared {
            seats: parts.lcores.into_iter().map(|parts| seat(parts, config.idle)).collect(),
            regions: parts.regions,
            counters: parts.counters,
            profiles: parts.profiles,
            tables: parts.tables,
            events: parts.events,
            places: Arc::new(Places::new(config.max_qps)),
            next_pd: AtomicU32::new(1),
            pds: AtomicU32::new(0),
            windows: AtomicU32::new(0),
            next_queue: AtomicU32::new(1),
            rd_domains: AtomicU32::new(0),
            driver: config.driver,
            processors: crate::control::crowd::processors(),
        });
        let mut control = Control::new(Arc::clone(&shared), parts.control);
        // From here on dropping `control` stops the threads.
        for (lcore, (seat, &cpu)) in shared.seats.iter().zip(&config.lcores).enumerate() {
            let thread =
                crate::lcore::thread::start(lcore, cpu, eal, seat, (config.idle, config.driver));
            control.threads.push(thread.map_err(|error| EngineError::Thread { lcore, error })?);
        }
        Ok((Engine { shared }, control))
    }

    /// Returns the number of lcores.
    pub fn lcores(&self) -> usize {
        self.shared.seats.len()
    }

    /// Makes a protection domain. Keys of one domain are refused in every other. The domain counts
    /// as in use until [`dealloc_pd`](Engine::dealloc_pd).
    pub fn alloc_pd(&self) -> Pd {
        self.shared.pds.fetch_add(1, Ordering::Relaxed);
        Pd(self.shared.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a protection domain as no longer in use. To be called once for each domain, when all
    /// its objects have gone. Its number is not given again.
    pub fn dealloc_pd(&self, _pd: Pd) {
        self.shared.pds.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a completion queue for `depth` entries. Its events, if it is armed, go to `channel`.
    ///
    /// # Errors
    /// [`CqError`].
    pub fn create_cq(
        &self,
        depth: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue>, CqError> {
        let events = self.admit(Subject::Cq).ok_or(CqError::NoneLeft)?;
        let turns = Arc::clone(self.shared.regions.turns());
        let places = Arc::clone(&self.shared.places);
        let parts = CqParts { events: Some(events), turns: Some(turns), places: Some(places) };
        CompletionQueue::within(parts, depth, channel)
    }

    /// Called when the application lets go a completion queue, of which it has no other reference:
    /// the queue gives no event from now on, also if completions of XRC targets still come.
    pub fn retire_cq(&self, cq: &Arc<CompletionQueue>) {
        cq.retire();
        self.shared.tables.xrc.let_go(cq);
    }

    /// Makes a shared receive queue for `depth` receives of `max_sge` scatter elements.
    ///
    /// # Errors
    /// [`SrqError`].
    pub fn create_srq(
        &self,
        pd: Pd,
        depth: u32,
        max_sge: u32,
    ) -> Result<Arc<SharedReceiveQueue>, SrqError> {
        let events = self.admit(Subject::Srq).ok_or(SrqError::NoneLeft)?;
        SharedReceiveQueue::new(pd, depth, max_sge, events).map(Arc::new)
    }

    /// Makes an XRC domain.
    pub fn open_xrc_domain(&self) -> Arc<XrcDomain> {
        // The numbers begin with 1.
        let number = self.next_number();
        Arc::new(XrcDomain::new(Xrcd(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX))))
    }

    /// Makes a shared receive queue one that requests to the XRC targets of a domain can name. Its
    /// receives complete in `cq`.
    ///
    /// # Errors
    /// [`SrqError::NoneLeft`].
    pub fn name_srq(
        &self,
        domain: &Arc<XrcDomain>,
        srq: &Arc<SharedReceiveQueue>,
        cq: &Arc<CompletionQueue>,
    ) -> Result<XrcName, SrqError> {
        let name = self.shared.tables.xrc.name(domain, srq, cq)?;
        // Targets on any lcore may complete there.
        (0..self.lcores()).for_each(|lcore| cq.add_lcore(lcore));
        Ok(name)
    }

    /// Makes an address handle: datagrams of UD QPs of that domain at `port`, counted from 1, are
    /// sent with these headers. All datagrams of the handle together are sent no faster than
    /// `rate`.
    ///
    /// # Errors
    /// [`AhError::TableFull`].
    pub fn create_ah(
        &self,
        pd: Pd,
        port: u8,
        encap: &Encap,
        rate: StaticRate,
    ) -> Result<Ah, AhError> {
        self.shared.tables.handles.create(pd, usize::from(port).wrapping_sub(1), encap, rate)
    }

    /// Destroys an address handle. Datagrams already posted are still sent with it, unless as many
    /// handles as the engine has free places are created before; then they complete with an error.
    ///
    /// # Errors
    /// [`AhError::Unknown`].
    pub fn destroy_ah(&self, ah: Ah) -> Result<(), AhError> {
        self.shared.tables.handles.destroy(ah)
    }

    /// Returns the channel of asynchronous events of QPs, CQs, SRQs, ports and the device.
    pub fn events(&self) -> &Arc<EventChannel> {
        &self.shared.events
    }

    /// Returns a number that no other queue or domain has.
    pub(super) fn next_number(&self) -> u32 {
        self.shared.next_queue.fetch_add(1, Ordering::Relaxed)
    }

    fn admit(&self, subject: impl FnOnce(u32) -> Subject) -> Option<EventGuard> {
        let number = self.next_number();
        self.shared.events.admit(subject(number))
    }

    /// Returns all counters, summed over the lcores.
    pub fn counters(&self) -> Counters {
        Counters::read(self.shared.counters.iter().map(|block| &**block))
    }

    /// Returns the round trips of all QPs, also of those that are destroyed.
    pub fn round_trips(&self) -> RoundTripDistribution {
        let blocks = self.shared.counters.iter().map(|block| &block.round_trips);
        RoundTripDistribution::read(blocks)
    }

    /// Returns the counters of one lcore.
    pub fn lcore_counters(&self, lcore: usize) -> Option<Counters> {
        let block = self.shared.counters.get(lcore)?;
        Some(Counters::read([&**block]))
    }

    /// Has all lcores measure the stages of their turns from now on for `time`. A measured turn
    /// takes some hundred cycles more.
    pub fn measure(&self, time: Duration) {
        self.shared.profiles.iter().for_each(|profile| profile.ask(time));
    }

    /// Returns what the measured turns of an lcore have taken since the start.
    pub fn profile(&self, lcore: usize) -> Option<LcoreProfile> {
        self.shared.profiles.get(lcore).map(|profile| profile.read())
    }

    /// Returns how many objects there are. Locks tables for a moment, so it is not for lcores.
    pub fn objects(&self) -> ObjectCounts {
        let (cqs, srqs) = self.shared.events.queues();
        let (mrs, ahs) = (self.shared.regions.count(), self.shared.tables.handles.count());
        let [pds, mws] =
            [&self.shared.pds, &self.shared.windows].map(|count| count.load(Ordering::Relaxed));
        ObjectCounts { pds, cqs, srqs, mrs, mws, ahs }
    }

    /// Returns a number that grows while the lcore runs, by two per turn.
    pub fn heartbeat(&self, lcore: usize) -> Option<u64> {
        (lcore < self.lcores()).then(|| self.shared.regions.heartbeat(lcore))
    }

    /// Gives an lcore to the calling thread, which has to turn it from now on: run to completion,
    /// for applications that would otherwise share a core with the lcore they wait for.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub fn adopt(&self, lcore: usize) -> Result<LcoreGuard, AdoptError> {
        let seat = self.shared.seats.get(lcore).ok_or(AdoptError::NoSuchLcore(lcore))?;
        crate::control::signals::unblock();
        let guard = LcoreGuard::adopt(seat, lcore)?;
        // Wakes the control plane, which serves the lcore from now on when its adopter does not.
        self.shared.tables.notices.wake();
        Ok(guard)
    }

    /// Returns the bytes that an idle QP takes without its queues: its state on its lcore, the
    /// state shared with the application, and its place in each table of an engine with one lcore
    /// and one port.
    ///
    /// The queues are those of send and receive work requests, on their way to the lcore and in the
    /// QP, and that of the READ and ATOMIC requests that the QP has accepted.
    pub const fn qp_state_bytes() -> usize {
        crate::qp::context::STATE_BYTES
            + crate::qp::shard::BYTES_PER_QP
            + uroce_shared::table::qp_table::BYTES_PER_QP
            + uroce_shared::wake::doorbell::BYTES_PER_QP
            + crate::control::BYTES_PER_QP
            + uroce_shared::wake::notices::BYTES_PER_QP
            + uroce_shared::queue::places::BYTES_PER_QP
    }

    /// Returns whether all lcores run: false after a shutdown, or if one has panicked.
    pub fn is_running(&self) -> bool {
        self.shared.seats.iter().all(|seat| !seat.is_dead())
    }
}

/// Makes an lcore's seat. An lcore that is to sleep naps instead if something cannot wake it.
fn seat((mut lcore, bell): (Lcore, Arc<Bell>), idle: IdlePolicy) -> Arc<Seat<Lcore>> {
    let bed = (idle == IdlePolicy::Sleep).then(|| Bed::new(&bell).ok()).flatten();
    let bed = bed.filter(|bed| lcore.listen(bed).is_ok());
    Arc::new(Seat::new(lcore, bell, bed))
}

fn check(config: &EngineConfig, ports: &[PortBinding]) -> Result<(), EngineError> {
    let lcores = config.lcores.len();
    if lcores == 0 || lcores > MAX_LCORES {
        return Err(EngineError::Lcores(lcores));
    }
    if ports.is_empty() || ports.len() > MAX_PORTS {
        return Err(EngineError::Ports(ports.len()));
    }
    if config.max_qps == 0 || config.max_qps > MAX_QPS {
        return Err(EngineError::Qps(config.max_qps));
    }
    if config.max_ahs == 0 || config.max_ahs > MAX_AHS {
        return Err(EngineError::Ahs(config.max_ahs));
    }
    if config.max_mrs == 0 || config.max_mrs > MAX_MRS {
        return Err(EngineError::Mrs(config.max_mrs));
    }
    for (binding, port) in ports.iter().zip(1..) {
        if !binding.addresses.is_valid() {
            return Err(EngineError::Addresses(port));
        }
        if !binding.loss.is_valid() {
            return Err(EngineError::Loss(port));
        }
        if let Some(Err(error)) = binding.bottleneck.map(|bottleneck| bottleneck.check()) {
            return Err(EngineError::Bottleneck { port, error });
        }
    }
    Ok(())
}

// The state of a million QPs must fit into a common machine's memory.
const _: () = assert!(Engine::qp_state_bytes() <= 1152);
