//! The control plane's face of the engine: QPs, addresses, frames that are not RoCEv2.
//!
//! A call that concerns a QP becomes a command to its lcore, and waits for the reply. The control
//! plane never touches a QP that an lcore has.
//!
//! Invariants
//! - One owner: `Control` is neither `Clone` nor `Sync`, and every call takes it mutably.
//! - A call ends. An lcore answers within a turn; one that is adopted and idle is turned by the
//!   caller; one that has panicked is an error.
//!
//! Not here: what a GID resolves to, who connects to whom.

use crate::command::{Command, CommandSender, Reply};
use crate::config::{PortAddresses, PortBinding, path_mtu_of};
use crate::doorbell::Doorbell;
use crate::engine::Shared;
use crate::events::{EventGuard, EventKind};
use crate::key::{Numbers, Slots};
use crate::mbuf::{Mbuf, PoolEmpty};
use crate::mcast::{GroupBook, GroupError};
use crate::port::Port;
use crate::queue::{CompletionQueue, RecvQueueEnd, SendQueueEnd, SharedReceiveQueue};
use crate::rx::{Exits, SlowFrame};
use crate::slot::Turn;
use crate::thread::LcoreThread;
use links::Links;
use records::{Record, Records};
use rtrb::Producer;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uroce_transport::{
    MigrationStats, ModifyError, PathMigState, Pd, QpAttr, QpCaps, QpChange, QpState, QpType,
};
use uroce_wire::{PathMtu, Qpn};

mod create;
mod drain;
mod frames;
mod groups;
mod links;
mod notify;
mod records;
mod resize;
mod wait;

pub use frames::SendFrameError;

/// What a QP is created with.
#[derive(Clone, Debug)]
pub struct QpSpec {
    /// Transport service.
    pub qp_type: QpType,
    /// The protection domain whose keys it may use.
    pub pd: Pd,
    /// How large its queues are.
    pub caps: QpCaps,
    /// Where completions of its send queue go.
    pub send_cq: Arc<CompletionQueue>,
    /// Where completions of its receive queue go; may be the same.
    pub recv_cq: Arc<CompletionQueue>,
    /// Where its receives come from; a queue of its own if `None`. With one `caps.max_recv_wr` and
    /// `max_recv_sge` are of no meaning.
    pub srq: Option<Arc<SharedReceiveQueue>>,
    /// The lcore that is to own it; the one with the fewest QPs if none is named.
    pub lcore: Option<usize>,
    /// The control plane is to learn what happens to it ([`Control::next_notice`]), besides the
    /// application.
    pub notices: bool,
}

/// A new QP, in RESET.
#[derive(Debug)]
pub struct QpHandle {
    /// Its number, by which all other calls name it.
    pub qpn: Qpn,
    /// Its owner.
    pub lcore: usize,
    /// Where sends are posted.
    pub sq: SendQueueEnd,
    /// Where receives are posted.
    pub rq: RecvQueueEnd,
    /// Its events are given as long as this exists.
    pub events: EventGuard,
}

/// Query QP's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInfo {
    /// All attributes.
    pub attr: QpAttr,
    /// How large its queues are.
    pub caps: QpCaps,
    /// Transport service.
    pub qp_type: QpType,
    /// Its receives come from a shared receive queue.
    pub has_srq: bool,
    /// The QP is in SQD and messages that were begun are not all acknowledged.
    pub sq_draining: bool,
    /// Sends that were posted and have neither completed nor been discarded, polled or not.
    pub sends: u32,
    /// What its migrations have come to.
    pub migration: MigrationStats,
    /// Its owner.
    pub lcore: usize,
}

/// Why a call was refused. It changed nothing then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// As many QPs exist as the engine was started for.
    #[error("no QP is left")]
    NoQpLeft,
    /// A number of work requests, SGEs or inline bytes that a queue cannot have.
    #[error("no queue can have {0:?}")]
    Caps(QpCaps),
    /// A QP of a type that the engine does not run: QP 1 is the control plane's own, which gets its
    /// packets by [`Control::recv_mad`].
    #[error("the engine runs no QP of type {0}")]
    QpType(QpType),
    /// Work requests are in a queue that is to be resized.
    #[error("work requests are outstanding")]
    Outstanding,
    /// As many objects that give asynchronous events exist as the engine can have.
    #[error("no source of asynchronous events is left")]
    NoEventsLeft,
    /// A multicast group cannot have the QP, or does not have it.
    #[error(transparent)]
    Group(#[from] GroupError),
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
        /// What was asked for.
        path_mtu: PathMtu,
        /// The port's largest Ethernet payload, bytes.
        mtu: u16,
    },
    /// More addresses than a port can have, or no such VLAN.
    #[error("too many addresses, or no such VLAN")]
    Addresses,
    /// A port is to lose less than nothing or more than everything.
    #[error("a share of loss is not in 0.0..=1.0")]
    Loss,
    /// Modify QP's rules forbid it.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The lcore has panicked; its QPs are lost.
    #[error("lcore {0} does not run any more")]
    LcoreDied(usize),
    /// The lcore did not answer within ten seconds: something keeps it from running.
    #[error("lcore {0} does not answer")]
    LcoreStalled(usize),
}

/// The way to one lcore.
#[derive(Debug)]
pub(crate) struct LcoreLink {
    pub(crate) rings: CommandSender,
    pub(crate) doorbell: Arc<Doorbell>,
    /// QPs that it owns.
    pub(crate) qps: u32,
    /// It has not answered the last command in time. Until it has, a reply would be taken for that
    /// of a later command.
    pub(crate) owes_reply: bool,
}

/// What the control plane gets of a new engine.
#[derive(Debug)]
pub(crate) struct ControlParts {
    pub(crate) ports: Vec<PortBinding>,
    pub(crate) lcores: Vec<LcoreLink>,
    pub(crate) numbers: Numbers,
    pub(crate) max_qps: u32,
    pub(crate) groups: GroupBook,
    pub(crate) exits: Arc<Exits>,
    pub(crate) inject: Vec<Producer<Mbuf>>,
    pub(crate) port_events: Vec<EventGuard>,
}

/// What each QP takes of it.
pub(crate) const BYTES_PER_QP: usize = records::BYTES_PER_QP;

/// The single owner of the lcores' command rings. Dropping it shuts the engine down.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    pub(crate) threads: Vec<LcoreThread>,
    lcores: Vec<LcoreLink>,
    slots: Slots,
    qps: Records,
    /// Numbers that no new QP gets.
    held: HashSet<Qpn>,
    groups: GroupBook,
    exits: Arc<Exits>,
    /// Notices taken from the lcores and not yet given.
    noticed: VecDeque<(Qpn, EventKind)>,
    /// Of each port, where its events come from.
    port_events: Vec<EventGuard>,
    links: Links,
    /// Of each port, where its frames wait for the lcore.
    inject: Vec<Producer<Mbuf>>,
    /// The heartbeats that [`serve_adopted`](Control::serve_adopted) saw last.
    heartbeats: Vec<u64>,
    /// Last: the lcores' queue pairs go before their ports.
    ports: Vec<PortBinding>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, parts: ControlParts) -> Control {
        let ControlParts { ports, lcores, numbers, max_qps, groups, exits, inject, port_events } =
            parts;
        ports.iter().for_each(|binding| binding.port.set_waker(Some(Arc::clone(&exits.waker))));
        Control {
            heartbeats: vec![0; shared.slots.len()],
            shared,
            threads: Vec::new(),
            lcores,
            slots: Slots::new(max_qps),
            qps: Records::new(max_qps, numbers),
            held: HashSet::new(),
            groups,
            exits,
            noticed: VecDeque::new(),
            port_events,
            links: Links::new(ports.len()),
            inject,
            ports,
        }
    }

    /// Modify QP.
    ///
    /// When it returns the QP's lcore behaves accordingly, and who posts sees the new state.
    ///
    /// # Errors
    /// See [`ControlError`]; nothing has changed.
    pub fn modify_qp(&mut self, qpn: Qpn, change: &QpChange) -> Result<(), ControlError> {
        let record = self.change_record(qpn, change)?;
        let command = Command::ModifyQp { index: record.index, change: *change };
        match self.call(usize::from(record.lcore), command)? {
            Reply::Modified(result) => result?,
            _ => return Err(ControlError::UnknownQp(qpn)),
        }
        self.qps.put(record);
        Ok(())
    }

    /// The record of a QP as it is after a change, if its ports can carry it.
    fn change_record(&self, qpn: Qpn, change: &QpChange) -> Result<Record, ControlError> {
        let record = self.record(qpn)?;
        if change.state == Some(QpState::Reset) {
            return Ok(record.reset());
        }
        // Datagrams have the port's own, which is some one at least.
        let is_datagram = record.qp_type.is_datagram();
        let least = if is_datagram { PathMtu::B256 } else { record.path_mtu };
        let path_mtu = change.path_mtu.unwrap_or(least);
        let port = change.port.unwrap_or(record.port);
        if change.port.is_some() || change.path_mtu.is_some() || is_datagram {
            self.check_mtu(port, path_mtu)?;
        }
        let alt_port = change.alt_path.map(|alt| alt.port).or(record.alt_port);
        if change.alt_path.is_some() || change.path_mtu.is_some() {
            // Whichever of the two paths the QP is on, it may go over to the other.
            alt_port.map_or(Ok(()), |port| self.check_mtu(port, path_mtu))?;
        }
        let migrates = match change.path_mig_state {
            Some(PathMigState::Rearm) => true,
            Some(_) => false,
            None => record.migrates,
        };
        Ok(Record { path_mtu, port, alt_port, migrates, ..record })
    }

    fn check_mtu(&self, port: u8, path_mtu: PathMtu) -> Result<(), ControlError> {
        let mtu = self.binding(port)?.port.mtu();
        let largest = path_mtu_of(mtu).map_or(0, PathMtu::bytes);
        let fits = path_mtu.bytes() <= largest;
        if fits { Ok(()) } else { Err(ControlError::PathMtu { path_mtu, mtu }) }
    }

    /// Query QP.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn query_qp(&mut self, qpn: Qpn) -> Result<QpInfo, ControlError> {
        let record = self.record(qpn)?;
        let Record { index, lcore, caps, qp_type, has_srq, .. } = record;
        let lcore = usize::from(lcore);
        match self.call(lcore, Command::QueryQp { index })? {
            Reply::Queried { attr, migration, draining, sends } => {
                let sq_draining = draining;
                if attr.path_mig_state == PathMigState::Migrated {
                    self.qps.put(Record { migrates: false, ..record });
                }
                let info =
                    QpInfo { attr, caps, qp_type, has_srq, sq_draining, sends, migration, lcore };
                Ok(info)
            }
            _ => Err(ControlError::UnknownQp(qpn)),
        }
    }

    /// Has each armed QP that leaves by that port, counted from 1, migrate at once, unless its
    /// alternate path leaves by the same port: one command for each lcore. Says how many did.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], and that of an lcore that does not answer.
    pub fn migrate_port(&mut self, port: u8) -> Result<u32, ControlError> {
        self.binding(port)?;
        let mut all = 0;
        for lcore in 0..self.lcores.len() {
            match self.call(lcore, Command::MigratePort { port: usize::from(port) - 1 })? {
                Reply::Migrated(count) => all += count,
                _ => return Err(ControlError::NoSuchPort(port)),
            }
        }
        Ok(all)
    }

    /// Destroy QP. Nothing of it runs afterwards; posts to its queues are refused.
    ///
    /// Completions that are in the queues already stay there.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ControlError> {
        let Record { index, lcore, .. } = self.record(qpn)?;
        let lcore = usize::from(lcore);
        self.groups.forget(qpn);
        if let Reply::Destroyed(context) = self.call(lcore, Command::DestroyQp { index })? {
            drop(context);
        }
        // Otherwise it was in a reply that came too late.
        self.drop_notices(qpn);
        self.qps.forget(index);
        self.shared.places.end(index);
        self.lcores[lcore].qps -= 1;
        self.slots.give_back(index);
        Ok(())
    }

    /// QPs that exist.
    pub fn qps(&self) -> impl Iterator<Item = Qpn> + '_ {
        self.qps.iter().map(|record| record.qpn)
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// A port, counted from 1.
    pub fn port(&self, port: u8) -> Option<&Port> {
        self.binding(port).ok().map(|binding| &binding.port)
    }

    /// A port's addresses, counted from 1.
    pub fn addresses(&self, port: u8) -> Option<&PortAddresses> {
        self.binding(port).ok().map(|binding| &binding.addresses)
    }

    /// Gives a port, counted from 1, other addresses. Packets to those it loses are not for us any
    /// more.
    ///
    /// # Errors
    /// See [`ControlError`].
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
            let command = Command::SetAddresses { port: at, addresses: addresses.clone().into() };
            match self.call(lcore, command)? {
                Reply::Addresses(replaced) => drop(replaced),
                _ => return Err(ControlError::NoSuchPort(port)),
            }
        }
        self.ports[at].addresses = addresses;
        Ok(())
    }

    /// Turns each lcore once that is adopted, not exclusively, and that its adopter does not turn right
    /// now. Says whether there was anything to do.
    ///
    /// To be called now and then, about once per millisecond: it is what keeps answering peers when
    /// an adopter is busy with something else. An lcore that has turned since the last call is left
    /// alone: this thread, preempted in a turn, would keep a busy adopter from its next one.
    pub fn serve_adopted(&mut self) -> bool {
        let mut any = false;
        for (number, slot) in self.shared.slots.iter().enumerate() {
            let heartbeat = self.shared.regions.heartbeat(number);
            if slot.is_served() && heartbeat == self.heartbeats[number] {
                any |= slot.try_turn() == Turn::Busy;
            }
            self.heartbeats[number] = self.shared.regions.heartbeat(number);
        }
        any
    }

    /// Is any lcore adopted, so that [`serve_adopted`](Control::serve_adopted) has something to look at?
    /// An adoption wakes the thread that sleeps in [`sleep`](Control::sleep).
    pub fn has_adopted(&self) -> bool {
        self.shared.slots.iter().any(|slot| slot.is_adopted())
    }

    /// Stops the lcores and frees everything they hold. The same as dropping it.
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
        self.shared.slots.iter().for_each(|slot| slot.stop());
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
        for slot in &self.shared.slots {
            drop(slot.take());
        }
        self.ports.iter().for_each(|binding| binding.port.set_waker(None));
        while self.exits.slow_path.pop().is_some() {}
        while self.exits.gsi.pop().is_some() {}
    }
}
