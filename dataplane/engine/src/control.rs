//! Control: the control plane's interface to the engine, for QPs, addresses and non-RoCEv2 frames.
//!
//! A call that concerns a QP sends a command to its lcore and waits for the reply. The control
//! plane never touches a QP that an lcore owns.
//!
//! Invariants
//! - There is one owner: `Control` is neither `Clone` nor `Sync`, and each call takes it mutably.
//! - A call ends. An lcore answers within a turn; the caller turns an lcore that is adopted and
//!   idle; an lcore that has panicked gives an error.
//!
//! Not here: resolving GIDs; connections.

use crate::control::engine::Shared;
use crate::dpdk::mbuf::{Mbuf, PoolEmpty};
use crate::lane::binding::{PortAddresses, PortBinding, PortSet, path_mtu_of};
use crate::lane::bottleneck::BottleneckError;
use crate::lane::bottleneck::backlog::Backlog;
use crate::lcore::Fatal;
use crate::lcore::command::{
    AdoptAlternate, ClearRoundTrips, CommandSender, DestroyQp, MigratePort, Modified, ModifyQp,
    Nudge, Queried, QueryQp, SetAddresses,
};
use crate::lcore::thread::LcoreThread;
use crate::port::{Feature, Port};
use crate::qp::context::{Migrated, PathLoader, QpTraffic};
use crate::rx::{Exits, SlowFrame};
use links::Links;
use rd::RdDomain;
use records::{Record, Records};
use rtrb::Producer;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use steering::Steering;
use uroce_shared::queue::xrc::XrcDomain;
use uroce_shared::queue::{CompletionQueue, RecvQueueEnd, SendQueueEnd, SharedReceiveQueue};
use uroce_shared::seat::Turn;
use uroce_shared::table::flows::{FlowBook, FlowError};
use uroce_shared::table::key::{Numbers, Slots};
use uroce_shared::table::mcast::{GroupBook, GroupError};
use uroce_shared::wake::doorbell::Doorbell;
use uroce_shared::wake::events::{EventGuard, EventKind};
use uroce_transport::{
    AltPath, Congestion, MigrationStats, ModifyError, Notification, PathMigState, Pd, QpAttr,
    QpCaps, QpChange, QpState, QpType, RoundTripStats, SelectiveRepeat,
};
use uroce_wire::{PathMtu, Qpn};

pub(crate) mod assemble;
pub(crate) mod config;
mod create;
pub(crate) mod crowd;
mod devices;
mod drain;
pub(crate) mod engine;
mod flows;
mod frames;
mod groups;
mod links;
pub(crate) mod memory;
mod notify;
pub(crate) mod poller;
pub(crate) mod rd;
mod records;
mod resize;
pub(crate) mod signals;
mod steering;
mod taps;
mod wait;

pub use devices::DeviceError;
pub use frames::SendFrameError;

/// The parameters of a new QP.
#[derive(Clone, Debug)]
pub struct QpSpec {
    /// Transport service.
    pub qp_type: QpType,
    /// The protection domain of the keys that the QP may use.
    pub pd: Pd,
    /// Sizes of its queues.
    pub caps: QpCaps,
    /// Gets the completions of its send queue.
    pub send_cq: Arc<CompletionQueue>,
    /// Gets the completions of its receive queue; may be the same as `send_cq`.
    pub recv_cq: Arc<CompletionQueue>,
    /// The source of its receives; `None` for a queue of its own. With a shared queue,
    /// `caps.max_recv_wr` and `caps.max_recv_sge` are ignored.
    pub srq: Option<Arc<SharedReceiveQueue>>,
    /// XRC targets: the domain of the shared receive queues that requests may name, which must not
    /// be dropped before the QP is destroyed. `None` for all other types.
    pub xrcd: Option<Arc<XrcDomain>>,
    /// RD QPs and EECs: their domain, on the home lcore of which they are. `None` for all other
    /// types. An EEC has no queues: `caps` and the completion queues are not used.
    pub rdd: Option<Arc<RdDomain>>,
    /// The lcore that will own it; `None` for the one with the fewest QPs. RD QPs and EECs have
    /// that of their domain.
    pub lcore: Option<usize>,
    /// Whether the control plane gets notices of its events ([`Control::next_notice`]), besides the
    /// application.
    pub notices: bool,
    /// Its congestion control; `None` for that of the engine's configuration.
    pub congestion: Option<Congestion>,
}

/// A new QP, in RESET.
#[derive(Debug)]
pub struct QpHandle {
    /// The QP's number, which all other calls use.
    pub qpn: Qpn,
    /// The lcore that owns it.
    pub lcore: usize,
    /// The end for posting sends.
    pub sq: SendQueueEnd,
    /// The end for posting receives.
    pub rq: RecvQueueEnd,
    /// The source of its asynchronous events, which are given as long as this exists.
    pub events: EventGuard,
}

/// The result of Query QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInfo {
    /// All attributes.
    pub attr: QpAttr,
    /// Sizes of its queues.
    pub caps: QpCaps,
    /// Transport service.
    pub qp_type: QpType,
    /// Whether it uses a shared receive queue.
    pub has_srq: bool,
    /// Whether the QP is in SQD and messages that were begun are not all acknowledged.
    pub sq_draining: bool,
    /// Sends that were posted and have neither completed nor been discarded, whether or not their
    /// completions were polled.
    pub sends: u32,
    /// Counts of its path migrations.
    pub migration: MigrationStats,
    /// Packets that it has sent and received.
    pub traffic: QpTraffic,
    /// Round trips of its requests, if any was measured.
    pub round_trips: Option<RoundTripStats>,
    /// The lcore that owns it.
    pub lcore: usize,
    /// The side that has loaded an alternate path into it last.
    pub loader: PathLoader,
}

/// The reason why a call was refused. A refused call has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The engine has as many QPs as it was started for.
    #[error("no QP is left")]
    NoQpLeft,
    /// A number of work requests, SGEs or inline bytes that a queue cannot have.
    #[error("no queue can have {0:?}")]
    Caps(QpCaps),
    /// The engine runs no QP of this type. QP 1 belongs to the control plane, which gets its
    /// packets by [`Control::recv_mad`].
    #[error("the engine runs no QP of type {0}")]
    QpType(QpType),
    /// An XRC target without an XRC domain, another QP with one, or an XRC QP with a shared receive
    /// queue of its own.
    #[error(
        "an XRC target has an XRC domain; no other QP has one, or an SRQ of one, and no XRC QP has \
         an SRQ"
    )]
    XrcDomain,
    /// An RD QP or EEC without an RD domain, another QP with one, or an EEC with a shared receive
    /// queue.
    #[error("an RD QP or EEC has an RD domain; no other QP has one, and no EEC has an SRQ")]
    RdDomain,
    /// The queues of an RD QP or EEC cannot be resized.
    #[error(
        "the queues of an RD QP cannot be resized, and an EEC has none: make another RD QP with \
         queues of the sizes that it needs"
    )]
    RdResize,
    /// The queue that is to be resized has work requests.
    #[error("work requests are outstanding")]
    Outstanding,
    /// The engine has as many objects with asynchronous events as it can have.
    #[error("no source of asynchronous events is left")]
    NoEventsLeft,
    /// The multicast group cannot take the QP, or does not have it.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The flow cannot be made, or is not there.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// A raw QP on a device with a port of the kernel's UDP sockets.
    #[error(
        "a port of kind udp carries no frames: raw queue pairs need a port with an Ethernet link"
    )]
    NoFrames,
    /// The engine has fewer lcores.
    #[error("no lcore {0}")]
    NoSuchLcore(usize),
    /// No QP has this number (any more).
    #[error("no QP {0:?}")]
    UnknownQp(Qpn),
    /// The engine has no port of this number; ports count from 1.
    #[error("no port {0}")]
    NoSuchPort(u8),
    /// The port's MTU is too small for packets of this path MTU.
    #[error("path MTU {} does not fit the port's MTU {mtu}", .path_mtu.bytes())]
    PathMtu {
        /// The requested path MTU.
        path_mtu: PathMtu,
        /// The port's largest Ethernet payload in bytes.
        mtu: u16,
    },
    /// More addresses than a port can have, or an invalid VLAN.
    #[error("too many addresses, or no such VLAN")]
    Addresses,
    /// A probability of loss outside 0 to 1.
    #[error("a share of loss is not in 0.0..=1.0")]
    Loss,
    /// A fault that cannot be: a share that is not from 0.0 to 1.0, or a delay of more than a
    /// second.
    #[error("fault {0} is out of range: shares are from 0 to 1, delays up to a second")]
    Fault(&'static str),
    /// A bottleneck that cannot be.
    #[error("bottleneck.{}: {}", .0.field(), .0)]
    Bottleneck(#[from] BottleneckError),
    /// The rules of Modify QP forbid the change.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The lcore has panicked; its QPs are lost.
    #[error("lcore {0} does not run any more")]
    LcoreDied(usize),
    /// The lcore did not answer within ten seconds: something keeps it from running.
    #[error("lcore {0} does not answer")]
    LcoreStalled(usize),
}

/// The connection to one lcore.
#[derive(Debug)]
pub(crate) struct LcoreLink {
    pub(crate) rings: CommandSender,
    pub(crate) doorbell: Arc<Doorbell>,
    /// The number of QPs that it owns.
    pub(crate) qps: u32,
    /// Whether the lcore has not answered the last command in time. Until it has, its reply would
    /// be taken for that of a later command.
    pub(crate) owes_reply: bool,
}

/// The parts of a new engine that the control plane owns.
#[derive(Debug)]
pub(crate) struct ControlParts {
    pub(crate) ports: Vec<PortBinding>,
    /// For each port, the queue of its bottleneck, whether or not it has one.
    pub(crate) backlogs: Vec<Arc<Backlog>>,
    pub(crate) lcores: Vec<LcoreLink>,
    pub(crate) numbers: Numbers,
    pub(crate) max_qps: u32,
    pub(crate) groups: GroupBook,
    pub(crate) exits: Arc<Exits>,
    pub(crate) inject: Vec<Producer<Mbuf>>,
    pub(crate) port_events: Vec<EventGuard>,
    pub(crate) fatal: Option<Fatal>,
    pub(crate) congestion: Congestion,
    pub(crate) udp_source_ports: u8,
    pub(crate) notification: Notification,
}

/// Bytes of the control plane per QP.
pub(crate) const BYTES_PER_QP: usize = records::BYTES_PER_QP;

/// The single owner of the lcores' command rings. Dropping it shuts the engine down.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    pub(crate) threads: Vec<LcoreThread>,
    lcores: Vec<LcoreLink>,
    slots: Slots,
    qps: Records,
    /// QPNs that no new QP gets.
    held: HashSet<Qpn>,
    /// QPNs of QPs that were destroyed without their owners.
    abandoned: HashSet<Qpn>,
    groups: GroupBook,
    flows: FlowBook,
    exits: Arc<Exits>,
    /// Notices that were taken from the lcores and not yet returned.
    noticed: VecDeque<(Qpn, EventKind)>,
    /// For each port, the source of its events.
    port_events: Vec<EventGuard>,
    /// The source of the device's fatal event.
    fatal: Option<Fatal>,
    /// The congestion control of QPs that choose none themselves.
    congestion: Congestion,
    /// UDP source ports of QPs with selective repeat that choose none themselves.
    udp_source_ports: u8,
    notification: Notification,
    links: Links,
    steering: Steering,
    /// For each port, the ring of its frames to the lcore.
    inject: Vec<Producer<Mbuf>>,
    /// The lcores' heartbeats at the last call of [`serve_adopted`](Control::serve_adopted).
    heartbeats: Vec<u64>,
    /// Last: the lcores' queue pairs must be dropped before their ports.
    ports: Vec<PortBinding>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, parts: ControlParts) -> Control {
        let ControlParts {
            ports, backlogs, lcores, numbers, max_qps, groups, exits, inject, ..
        } = parts;
        ports.iter().for_each(|binding| binding.port.set_waker(Some(Arc::clone(&exits.waker))));
        Control {
            heartbeats: vec![0; shared.seats.len()],
            flows: FlowBook::new(Arc::clone(&shared.tables.flows)),
            shared,
            threads: Vec::new(),
            lcores,
            slots: Slots::new(max_qps),
            qps: Records::new(max_qps, numbers),
            held: HashSet::new(),
            abandoned: HashSet::new(),
            groups,
            exits,
            noticed: VecDeque::new(),
            port_events: parts.port_events,
            fatal: parts.fatal,
            congestion: parts.congestion,
            udp_source_ports: parts.udp_source_ports,
            notification: parts.notification,
            links: Links::new(backlogs, &ports),
            steering: Steering::new(&ports),
            inject,
            ports,
        }
    }

    /// Modifies a QP.
    ///
    /// When this returns, the QP's lcore behaves accordingly, and posting threads read the new
    /// state.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn modify_qp(&mut self, qpn: Qpn, change: &QpChange) -> Result<(), ControlError> {
        let record = self.change_record(qpn, change)?;
        let is_selective = change.selective_repeat == Some(true);
        let memory = is_selective.then(SelectiveRepeat::default);
        let own_ports =
            (is_selective && self.udp_source_ports > 1).then_some(self.udp_source_ports);
        let udp_source_ports = change.udp_source_ports.or(own_ports);
        let change = QpChange { udp_source_ports, ..*change };
        let command = ModifyQp { index: record.index, change, memory };
        let Modified { result, rest } = self.call(usize::from(record.lcore), command)?;
        drop(rest);
        result.ok_or(ControlError::UnknownQp(qpn))??;
        self.qps.put(record);
        self.steer(&record, &change);
        Ok(())
    }

    /// Returns the QP's record after a change, if its ports can carry it.
    fn change_record(&self, qpn: Qpn, change: &QpChange) -> Result<Record, ControlError> {
        let record = self.record(qpn)?;
        if change.state == Some(QpState::Reset) {
            return Ok(record.reset());
        }
        let path_mtu = change.path_mtu.or(record.path_mtu);
        // Datagrams use the port's own path MTU, so the port must fit the smallest. Frames have
        // none, and a connection that has none yet is checked when it gets one.
        let is_datagram = record.qp_type.is_datagram();
        let least = if is_datagram { Some(PathMtu::B256) } else { path_mtu };
        let port = change.port.unwrap_or(record.port);
        if change.port.is_some() || change.path_mtu.is_some() || is_datagram {
            self.check_mtu(port, least)?;
        }
        let alt_port = change.alt_path.map(|alt| alt.port).or(record.alt_port);
        if change.alt_path.is_some() || change.path_mtu.is_some() {
            // The QP may change to its other path, so both must fit.
            alt_port.map_or(Ok(()), |port| self.check_mtu(port, path_mtu))?;
        }
        if change.port.is_some()
            && let Some(other) = self.flows.elsewhere(qpn, usize::from(port) - 1)
        {
            return Err(FlowError::OtherPort(other as u8 + 1).into());
        }
        let has_port = record.has_port || change.port.is_some();
        let migrates = match change.path_mig_state {
            Some(PathMigState::Rearm) => true,
            Some(_) => false,
            None => record.migrates,
        };
        Ok(Record { path_mtu, port, has_port, alt_port, migrates, ..record })
    }

    /// Steers the packets of a QP after a change.
    fn steer(&mut self, record: &Record, change: &QpChange) {
        let Record { qpn, lcore, port, .. } = *record;
        if change.state == Some(QpState::Reset) {
            self.steering.forget(qpn, &self.ports);
        } else if let Some(path) = &change.path
            && let Some(at) = usize::from(port).checked_sub(1)
            && at < self.ports.len()
        {
            self.steering.steer(qpn, lcore, at, &self.ports, &path.encap);
        }
    }

    /// Checks that there is such a port, and that it fits a path MTU if there is one.
    fn check_mtu(&self, port: u8, path_mtu: Option<PathMtu>) -> Result<(), ControlError> {
        let mtu = self.binding(port)?.port.mtu();
        let Some(path_mtu) = path_mtu else { return Ok(()) };
        let largest = path_mtu_of(mtu).map_or(0, PathMtu::bytes);
        let fits = path_mtu.bytes() <= largest;
        if fits { Ok(()) } else { Err(ControlError::PathMtu { path_mtu, mtu }) }
    }

    /// Queries a QP.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn query_qp(&mut self, qpn: Qpn) -> Result<QpInfo, ControlError> {
        let record = self.record(qpn)?;
        let Record { index, lcore, caps, qp_type, has_srq, .. } = record;
        let lcore = usize::from(lcore);
        let queried = self.call(lcore, QueryQp { index })?;
        let queried = queried.ok_or(ControlError::UnknownQp(qpn))?;
        let Queried { attr, migration, sends, traffic, round_trips, loader, .. } = queried;
        if attr.path_mig_state == PathMigState::Migrated {
            self.qps.put(Record { migrates: false, ..record });
        }
        Ok(QpInfo {
            attr,
            caps,
            qp_type,
            // An initiator has no receives at all.
            has_srq: has_srq && qp_type != QpType::XrcSend,
            sq_draining: queried.draining,
            sends,
            migration,
            traffic,
            round_trips,
            lcore,
            loader,
        })
    }

    /// Loads an alternate path of the control plane into a connected QP, and arms it if it is not
    /// armed. The application then gets no events of path migration until it loads a path itself;
    /// the control plane has notices of them in any case. Returns false if the application has
    /// loaded a path since the QP's RESET, or the QP is in a state in which it handles no packets.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn adopt_alternate(&mut self, qpn: Qpn, alternate: AltPath) -> Result<bool, ControlError> {
        let record = self.record(qpn)?;
        self.check_mtu(alternate.port, record.path_mtu)?;
        let command = AdoptAlternate { index: record.index, alternate };
        let is_taken = self.call(usize::from(record.lcore), command)?;
        let is_taken = is_taken.ok_or(ControlError::UnknownQp(qpn))?;
        if is_taken {
            let alt_port = Some(alternate.port);
            self.qps.put(Record { migrates: true, alt_port, ..record });
        }
        Ok(is_taken)
    }

    /// Has an idle RC QP in RTS send one packet without effect, by which both ends learn each
    /// other's state of path migration. Nothing waits for the answer. Returns whether it was sent.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn nudge(&mut self, qpn: Qpn) -> Result<bool, ControlError> {
        let Record { index, lcore, .. } = self.record(qpn)?;
        let was_sent = self.call(usize::from(lcore), Nudge { index })?;
        was_sent.ok_or(ControlError::UnknownQp(qpn))
    }

    /// Forgets the round trips that a QP has measured.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn clear_round_trips(&mut self, qpn: Qpn) -> Result<(), ControlError> {
        let Record { index, lcore, .. } = self.record(qpn)?;
        let done = self.call(usize::from(lcore), ClearRoundTrips { index })?;
        done.ok_or(ControlError::UnknownQp(qpn))
    }

    /// Migrates, at once, each armed QP that sends through that port, counted from 1, and has an
    /// alternate path through another one that is up. Sends one command to each lcore.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], or the error of an lcore that does not answer.
    pub fn migrate_port(
        &mut self,
        port: u8,
        is_up: impl Fn(u8) -> bool,
    ) -> Result<Migrated, ControlError> {
        self.binding(port)?;
        let others = (1u8..).take(self.ports.len()).filter(|other| *other != port);
        let to: PortSet = others.filter(|other| is_up(*other)).collect();
        let mut all = Migrated::default();
        for lcore in 0..self.lcores.len() {
            all.add(self.call(lcore, MigratePort { port: usize::from(port) - 1, to })?);
        }
        Ok(all)
    }

    /// Destroys a QP. Nothing of it runs afterwards, and posts to its queues are refused.
    ///
    /// Completions that are already in completion queues stay there. For an
    /// [abandoned](Control::abandon_qpn) QP this only frees its number.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ControlError> {
        if self.abandoned.remove(&qpn) {
            return Ok(());
        }
        let Record { index, lcore, qp_type, .. } = self.record(qpn)?;
        let lcore = usize::from(lcore);
        self.groups.forget(qpn);
        self.forget_flows(qpn);
        drop(self.call(lcore, DestroyQp { index })?);
        // If the reply comes too late, the context is freed with that reply.
        if qp_type == QpType::XrcRecv {
            self.shared.tables.xrc.sweep();
        }
        self.drop_notices(qpn);
        self.qps.forget(index);
        self.steering.forget(qpn, &self.ports);
        self.shared.places.end(index);
        self.lcores[lcore].qps -= 1;
        self.slots.give_back(index);
        Ok(())
    }

    /// Returns the numbers of all QPs.
    pub fn qps(&self) -> impl Iterator<Item = Qpn> + '_ {
        self.qps.iter().map(|record| record.qpn)
    }

    /// Returns the numbers of QPs in order of their slots, with the slots, from slot `from` on.
    pub fn qps_from(&self, from: u32) -> impl Iterator<Item = (u32, Qpn)> + '_ {
        self.qps.iter_from(from).map(|record| (record.index, record.qpn))
    }

    /// Returns the number of QPs of each lcore.
    pub fn qps_of_lcores(&self) -> impl Iterator<Item = u32> + '_ {
        self.lcores.iter().map(|lcore| lcore.qps)
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Returns a port, counted from 1.
    pub fn port(&self, port: u8) -> Option<&Port> {
        self.binding(port).ok().map(|binding| &binding.port)
    }

    /// Returns what the device of a port, counted from 1, may take over, and whether it does.
    pub fn features(&self, port: u8) -> Option<Vec<Feature>> {
        let at = usize::from(port).checked_sub(1)?;
        Some(self.ports.get(at)?.port.features_with(self.steering.is_on(at)))
    }

    /// Returns the addresses of a port, counted from 1.
    pub fn addresses(&self, port: u8) -> Option<&PortAddresses> {
        self.binding(port).ok().map(|binding| &binding.addresses)
    }

    /// Sets the addresses of a port, counted from 1. Packets to addresses that it loses are dropped
    /// from then on.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn set_addresses(
        &mut self,
        port: u8,
        addresses: PortAddresses,
    ) -> Result<(), ControlError> {
        self.binding(port)?;
        if !addresses.is_valid() {
            return Err(ControlError::Addresses);
        }
        let at = usize::from(port) - 1;
        for lcore in 0..self.lcores.len() {
            let command = SetAddresses { port: at, addresses: addresses.clone().into() };
            drop(self.call(lcore, command)?.ok_or(ControlError::NoSuchPort(port))?);
        }
        self.ports[at].addresses = addresses;
        Ok(())
    }

    /// Turns each adopted lcore once, unless its adopter is turning it or has taken it exclusively.
    /// Returns whether there was anything to do.
    ///
    /// To be called about once per millisecond, so that peers are answered while an adopter is busy
    /// with something else. An lcore that has turned since the last call is left alone: if this
    /// thread were preempted in a turn, a busy adopter could not make its next one.
    pub fn serve_adopted(&mut self) -> bool {
        let mut any = false;
        for (number, seat) in self.shared.seats.iter().enumerate() {
            let heartbeat = self.shared.regions.heartbeat(number);
            if seat.is_served() && heartbeat == self.heartbeats[number] {
                any |= matches!(seat.try_turn(), Turn::Busy | Turn::Blocked);
            }
            self.heartbeats[number] = self.shared.regions.heartbeat(number);
        }
        any
    }

    /// Returns whether any lcore is adopted, so that [`serve_adopted`](Control::serve_adopted) is
    /// needed. An adoption wakes the thread that sleeps in [`sleep`](Control::sleep).
    pub fn has_adopted(&self) -> bool {
        self.shared.seats.iter().any(|seat| seat.is_adopted())
    }

    /// Stops the lcores and frees everything that they hold, as dropping `Control` does.
    pub fn shutdown(self) {}

    fn record(&self, qpn: Qpn) -> Result<Record, ControlError> {
        self.qps.get(qpn).copied().ok_or(ControlError::UnknownQp(qpn))
    }

    fn binding(&self, port: u8) -> Result<&PortBinding, ControlError> {
        let at = usize::from(port).checked_sub(1);
        at.and_then(|at| self.ports.get(at)).ok_or(ControlError::NoSuchPort(port))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.seats.iter().for_each(|seat| seat.stop());
        for thread in self.threads.drain(..) {
            // A thread that has panicked has reported that already.
            let _ = thread.join();
        }
        for seat in &self.shared.seats {
            drop(seat.take());
        }
        self.ports.iter().for_each(|binding| binding.port.set_waker(None));
        while self.exits.slow_path.pop().is_some() {}
        while self.exits.gsi.pop().is_some() {}
    }
}
