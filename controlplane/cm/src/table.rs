//! All connections, their deadlines, and an index for each way in which a message names a
//! connection.
//!
//! Invariants
//! - Every index entry leads to an existing connection, and every connection has an entry for each
//!   of its keys. The first connection to use a key keeps it. Only [`Table::update`] changes the
//!   keys of a connection.

use std::collections::{BTreeMap, BTreeSet};

use uroce_transport::Instant;
use uroce_wire::cm::{CaGuid, CommId, ServiceId};
use uroce_wire::{Gid, Qpn};

use crate::ConnId;
use crate::conn::{Conn, End};
use crate::state::State;

/// Purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The answer to the last message, the end of an MRA's time, or the end of TimeWait.
    Response,
    /// The answer to a LAP.
    Lap,
}

/// Limit and number of a listener's requests that wait for its consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    pub(crate) backlog: usize,
    pub(crate) pending: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    conns: BTreeMap<ConnId, Conn>,
    by_comm: BTreeMap<CommId, ConnId>,
    by_remote_comm: BTreeMap<(CaGuid, CommId), ConnId>,
    by_remote_end: BTreeMap<(CaGuid, End), ConnId>,
    /// By our queue pair or EE context: their numbers are of one range.
    by_qpn: BTreeMap<Qpn, ConnId>,
    /// Connections that depend on the channel of an EE context of ours.
    users: BTreeSet<(Qpn, ConnId)>,
    by_question: BTreeMap<(Gid, CommId), ConnId>,
    peers: BTreeSet<(ServiceId, Gid, ConnId)>,
    timers: BTreeSet<(Instant, ConnId, Timer)>,
    half_open: BTreeSet<ConnId>,
    /// Half-open connections that wait for the answer to a repeated REP.
    silent: BTreeSet<ConnId>,
    pub(crate) listeners: BTreeMap<ServiceId, Listener>,
    next: u64,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(&id)
    }

    /// Adds a listener. Requests of an earlier listener for the same service may still wait.
    pub(crate) fn listen(&mut self, service_id: ServiceId, backlog: usize) {
        let waits = |id: &&ConnId| {
            let conn = self.conns.get(id);
            conn.is_some_and(|conn| conn.listener == Some(service_id) && conn.state.is_in_backlog())
        };
        let pending = self.half_open.iter().filter(waits).count();
        self.listeners.insert(service_id, Listener { backlog, pending });
    }

    pub(crate) fn insert(&mut self, mut conn: Conn) -> ConnId {
        self.next += 1;
        let id = ConnId(self.next);
        conn.id = id;
        self.index(id, &conn);
        self.conns.insert(id, conn);
        id
    }

    /// Changes a connection and updates its index entries. Removes it if it is released.
    pub(crate) fn update<R>(
        &mut self,
        id: ConnId,
        change: impl FnOnce(&mut Conn) -> R,
    ) -> Option<R> {
        let mut conn = self.conns.remove(&id)?;
        self.unindex(id, &conn);
        let result = change(&mut conn);
        if !conn.is_released {
            self.index(id, &conn);
            self.conns.insert(id, conn);
        }
        Some(result)
    }

    pub(crate) fn by_comm(&self, comm: CommId) -> Option<ConnId> {
        self.by_comm.get(&comm).copied()
    }

    pub(crate) fn by_remote_comm(&self, guid: CaGuid, comm: CommId) -> Option<ConnId> {
        self.by_remote_comm.get(&(guid, comm)).copied()
    }

    pub(crate) fn by_remote_end(&self, guid: CaGuid, end: End) -> Option<ConnId> {
        self.by_remote_end.get(&(guid, end)).copied()
    }

    pub(crate) fn by_qpn(&self, qpn: Qpn) -> Option<ConnId> {
        self.by_qpn.get(&qpn).copied()
    }

    /// Returns the connections that depend on the channel of EE context `eecn`.
    pub(crate) fn users(&self, eecn: Qpn) -> Vec<ConnId> {
        let all = (eecn, ConnId(0))..=(eecn, ConnId(u64::MAX));
        self.users.range(all).map(|&(_, id)| id).collect()
    }

    pub(crate) fn by_question(&self, src: Gid, request: CommId) -> Option<ConnId> {
        self.by_question.get(&(src, request)).copied()
    }

    /// Returns the pending peer-to-peer requests of this manager for a service at GID `remote`.
    pub(crate) fn peers(
        &self,
        service_id: ServiceId,
        remote: Gid,
    ) -> impl Iterator<Item = ConnId> + '_ {
        let all = (service_id, remote, ConnId(0))..=(service_id, remote, ConnId(u64::MAX));
        self.peers.range(all).map(|&(_, _, id)| id)
    }

    pub(crate) fn half_open(&self) -> &BTreeSet<ConnId> {
        &self.half_open
    }

    pub(crate) fn oldest_silent(&self) -> Option<ConnId> {
        self.silent.first().copied()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, ..)| at)
    }

    /// Returns the first deadline that has passed. It stays until the connection is updated.
    pub(crate) fn due(&self, now: Instant) -> Option<(ConnId, Timer)> {
        self.timers.first().filter(|&&(at, ..)| at <= now).map(|&(_, id, timer)| (id, timer))
    }

    fn index(&mut self, id: ConnId, conn: &Conn) {
        self.each_index(conn, &mut |table, entry| entry.put(table, id));
        let timers = [(conn.deadline, Timer::Response), (conn.lap_deadline, Timer::Lap)];
        let set = timers.into_iter().filter_map(|(at, timer)| Some((at?, id, timer)));
        self.timers.extend(set);
        // In peer-to-peer mode our own consumer sent a REQ, too: an unknown sender alone cannot
        // take up this room.
        if conn.state.is_half_open() && !conn.peer_to_peer {
            self.half_open.insert(id);
            if conn.is_silent() {
                self.silent.insert(id);
            }
        }
        if let Some(listener) = self.waiting_at(conn) {
            listener.pending += 1;
        }
    }

    fn unindex(&mut self, id: ConnId, conn: &Conn) {
        self.each_index(conn, &mut |table, entry| entry.take(table, id));
        for (at, timer) in [(conn.deadline, Timer::Response), (conn.lap_deadline, Timer::Lap)] {
            if let Some(at) = at {
                self.timers.remove(&(at, id, timer));
            }
        }
        self.half_open.remove(&id);
        self.silent.remove(&id);
        if let Some(listener) = self.waiting_at(conn) {
            listener.pending = listener.pending.saturating_sub(1);
        }
    }

    fn waiting_at(&mut self, conn: &Conn) -> Option<&mut Listener> {
        let listener = conn.listener.filter(|_| conn.state.is_in_backlog())?;
        self.listeners.get_mut(&listener)
    }

    fn each_index(&mut self, conn: &Conn, visit: &mut impl FnMut(&mut Table, Entry)) {
        visit(self, Entry::Comm(conn.local_comm));
        if let Some(number) = conn.held_number() {
            visit(self, Entry::Qpn(number));
        }
        if let Some(eecn) = conn.used_channel() {
            visit(self, Entry::User(eecn));
        }
        match (conn.remote_comm, conn.remote_qpn) {
            (Some(comm), Some(_)) => {
                visit(self, Entry::RemoteComm(conn.remote_guid, comm));
                if let Some(end) = conn.remote_end() {
                    visit(self, Entry::RemoteEnd(conn.remote_guid, end));
                }
            }
            (Some(comm), None) => visit(self, Entry::Question(conn.addr.dst, comm)),
            _ => {}
        }
        if conn.peer_to_peer && conn.state == State::ReqSent {
            visit(self, Entry::Peer(conn.service_id, conn.primary.remote));
        }
    }
}

/// One key of a connection.
enum Entry {
    Comm(CommId),
    Qpn(Qpn),
    RemoteComm(CaGuid, CommId),
    RemoteEnd(CaGuid, End),
    User(Qpn),
    Question(Gid, CommId),
    Peer(ServiceId, Gid),
}

impl Entry {
    /// Adds a key, unless another connection has it. Keys of peers and of users are not exclusive.
    fn put(self, table: &mut Table, id: ConnId) {
        fn put<K: Ord>(map: &mut BTreeMap<K, ConnId>, key: K, id: ConnId) {
            map.entry(key).or_insert(id);
        }
        match self {
            Entry::Comm(comm) => put(&mut table.by_comm, comm, id),
            Entry::Qpn(qpn) => put(&mut table.by_qpn, qpn, id),
            Entry::RemoteComm(guid, comm) => put(&mut table.by_remote_comm, (guid, comm), id),
            Entry::RemoteEnd(guid, end) => put(&mut table.by_remote_end, (guid, end), id),
            Entry::User(eecn) => {
                table.users.insert((eecn, id));
            }
            Entry::Question(src, comm) => put(&mut table.by_question, (src, comm), id),
            Entry::Peer(service, gid) => {
                table.peers.insert((service, gid, id));
            }
        }
    }

    fn take(self, table: &mut Table, id: ConnId) {
        fn take<K: Ord>(map: &mut BTreeMap<K, ConnId>, key: &K, id: ConnId) {
            if map.get(key) == Some(&id) {
                map.remove(key);
            }
        }
        match self {
            Entry::Comm(comm) => take(&mut table.by_comm, &comm, id),
            Entry::Qpn(qpn) => take(&mut table.by_qpn, &qpn, id),
            Entry::RemoteComm(guid, comm) => take(&mut table.by_remote_comm, &(guid, comm), id),
            Entry::RemoteEnd(guid, end) => take(&mut table.by_remote_end, &(guid, end), id),
            Entry::User(eecn) => {
                table.users.remove(&(eecn, id));
            }
            Entry::Question(src, comm) => take(&mut table.by_question, &(src, comm), id),
            Entry::Peer(service, gid) => {
                table.peers.remove(&(service, gid, id));
            }
        }
    }
}
