//! memif links: keep a port working when its peer ends, which DPDK's driver alone does not.
//!
//! The driver talks to its peer over a Unix socket. When that socket closes, it unmaps the shared
//! memory on EAL's interrupt thread, even while a queue copies from it: a peer that is killed under
//! load crashes this process too. A client fails to start without a server and never connects
//! again; a server cannot bind a path that a dead process left. So a thread stands between peer and
//! driver:
//!
//! ```text
//!   peer ──outer socket──► link thread ──inner socket──► driver
//!                              └── gate ──► queue pairs
//! ```
//!
//! The link thread forwards the messages and file descriptors of the handshake. When the peer
//! leaves, it closes the [`Gate`], so that no queue is inside the driver; then it closes the
//! driver's connection; and it opens the gate when the driver has closed its end, which it does
//! after unmapping. (If a child process of the application keeps that end open, the link's state is
//! used instead, after `GRACE`.) A client is then restarted, so that it connects again.
//!
//! A peer that has left may come back: its process may have taken the link down. That the process
//! itself has ended, or that another process has taken its place, is reported once
//! ([`Link::take_peer_ended`]).
//!
//! Invariants
//! - While a connection is up, the driver receives nothing from the peer but acknowledgements, so
//!   it disconnects only when the link thread makes it, behind the gate.
//! - The driver's connection has ended before its port is closed ([`Link::detach`]): closing and
//!   the interrupt thread free the same memory.
//! - The link thread does nothing while the link is up: the cost is one store and one load per
//!   burst.
//!
//! Not here: the contents of the shared memory. A memif peer is trusted as far as the driver trusts
//! it. Ports made by `EalConfig::vdevs` have no link thread, so that nothing of the above holds.

mod channel;
mod device;
mod gate;
mod interrupt;
mod place;

pub(super) use gate::Gate;
pub(super) use interrupt::Interrupts;

use super::{PortError, link};
use crate::dpdk::eal::lock;
use channel::{Call, Event, Message, Pair};
use device::Device;
use interrupt::Offer;
use place::Place;
use rustix::event::EventfdFlags;
use rustix::fs::{self, Mode, OFlags};
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::sync::peer::Peer;
use uroce_shared::sync::{AtomicBool, Ordering};

pub(super) use device::is_memif;

/// Longest time for the handshake with one client; after it the next client is served.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// Time within which the driver closes its end; it needs microseconds.
const GRACE: Duration = Duration::from_millis(200);
/// Interval at which a client tries to reach its server.
const RETRY: Duration = Duration::from_millis(50);

/// A memif port's connection to its peer.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    /// Kept open until the port is closed: closing it would end a connection that waits in it.
    listener: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Paths of the link's sockets in the file system.
    files: Vec<PathBuf>,
    /// The directory of the driver's socket.
    _place: Arc<Place>,
}

#[derive(Debug)]
struct Shared {
    device: Device,
    /// Path of the driver's socket, or of ours to which the driver connects.
    inner: PathBuf,
    /// The driver's socket, opened when it was made: the path may be out of reach later.
    found: OnceLock<OwnedFd>,
    gate: Arc<Gate>,
    /// Wakes sleeping lcores.
    interrupts: Arc<Interrupts>,
    /// The handshake is done, and neither side has closed the connection.
    connected: AtomicBool,
    /// The link was taken down: the connection is closed, and no peer is served.
    is_down: AtomicBool,
    /// The process that was connected has ended, and this has not been reported yet.
    peer_ended: AtomicBool,
    /// The peer's socket while a peer is connected, for closing the connection from another thread.
    outer: Mutex<Option<OwnedFd>>,
    /// The port while it may be stopped and started; locked while a connection is torn down.
    port: Mutex<Option<u16>>,
    /// Readable when the thread is to end.
    end: EventFd,
}

impl Link {
    /// Listens in place of the driver. Returns the link and the device string to give to the
    /// driver.
    pub(super) fn prepare(devargs: &str, queue_pairs: u16) -> Result<(Self, String), PortError> {
        let device = Device::parse(devargs).map_err(|reason| PortError::Memif {
            reason,
            error: io::ErrorKind::InvalidInput.into(),
        })?;
        let place = Place::shared().map_err(|error| PortError::Memif {
            reason: "no directory for the driver's socket in XDG_RUNTIME_DIR, /run or /tmp",
            error,
        })?;
        let inner = place.socket(&device.name);
        // A closed port of that name has left the socket.
        let _ = std::fs::remove_file(&inner);
        let mut files = vec![inner.clone()];
        let listener = if device.server {
            files.extend(device.socket.file().map(Path::to_owned));
            channel::listen(&device.socket)
        } else {
            channel::listen(&channel::Address::File(inner.clone()))
        };
        let listener = listener.map_err(|error| PortError::Memif {
            reason: "its socket cannot be listened on",
            error,
        })?;
        let end = EventFd::new(EventfdFlags::empty())
            .map_err(|error| PortError::Memif { reason: "no eventfd for its thread", error })?;
        let rewritten = device.with_socket(&inner);
        let gate = Arc::new(Gate::new(queue_pairs));
        let shared = Arc::new(Shared {
            device,
            inner,
            found: OnceLock::new(),
            gate,
            interrupts: Arc::new(Interrupts::new(queue_pairs)),
            connected: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            peer_ended: AtomicBool::new(false),
            outer: Mutex::new(None),
            port: Mutex::new(None),
            end,
        });
        let (listener, thread) = (Arc::new(listener), Mutex::default());
        Ok((Self { shared, listener, thread, files, _place: place }, rewritten))
    }

    /// Starts the link thread. Called once, when the port is started.
    pub(super) fn attach(&self, port: u16) -> Result<(), PortError> {
        *lock(&self.shared.port) = Some(port);
        self.shared.find_driver();
        let (shared, listener) = (Arc::clone(&self.shared), Arc::clone(&self.listener));
        let thread = std::thread::Builder::new()
            .name("uroce-memif".into())
            .spawn(move || shared.serve(&listener))
            .map_err(|error| PortError::Memif { reason: "no thread for its link", error })?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Called before the port is closed: ends the link thread, which ends the driver's connection.
    ///
    /// The driver closes its port on the caller's thread. If EAL's interrupt thread were still in a
    /// handshake, or at its end, both would free the same memory.
    pub(super) fn detach(&self) {
        // If the program has closed the eventfd, nothing can end the thread: it is not joined.
        if self.shared.end.signal()
            && let Some(thread) = lock(&self.thread).take()
        {
            let _ = thread.join();
        }
        *lock(&self.shared.port) = None;
    }

    /// Takes the link down, which closes the connection to the peer, or up again.
    pub(super) fn set(&self, up: bool) {
        self.shared.is_down.store(!up, Ordering::Release);
        if let (false, Some(outer)) = (up, &*lock(&self.shared.outer)) {
            // This fails if the connection is closed already, which is the same result.
            let _ = rustix::net::shutdown(outer, rustix::net::Shutdown::Both);
        }
    }

    /// Returns whether a peer is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.shared.connected.load(Ordering::Acquire)
    }

    /// Returns whether the process at the other end has ended since the last call. All that it sent
    /// has been received.
    pub(super) fn take_peer_ended(&self) -> bool {
        let peer_ended = &self.shared.peer_ended;
        peer_ended.load(Ordering::Relaxed) && peer_ended.swap(false, Ordering::AcqRel)
    }

    pub(super) fn interrupts(&self) -> Arc<Interrupts> {
        Arc::clone(&self.shared.interrupts)
    }

    pub(super) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.shared.gate)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A port that could not be started has not been detached.
        self.detach();
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Shared {
    /// Opens the socket on which the driver listens, and lets any user connect to it: the process
    /// may change its user later. The socket's directory, which only this user can enter, keeps
    /// other users out.
    fn find_driver(&self) {
        let found = match self.device.server {
            true => fs::open(&self.inner, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok(),
            false => None,
        };
        if let Some(found) = found
            && fs::chmod(&self.inner, Mode::from_raw_mode(0o777)).is_ok()
        {
            // This is called once, so the cell is empty.
            let _ = self.found.set(found);
        }
    }

    /// Connects to the driver's socket.
    fn connect_driver(&self) -> Option<OwnedFd> {
        let path = self.found.get().map(|found| format!("/proc/self/fd/{}", found.as_raw_fd()));
        let by_descriptor = path.map(|path| channel::Address::File(path.into()));
        let by_path = channel::Address::File(self.inner.clone());
        let mut ways = by_descriptor.into_iter().chain([by_path]);
        ways.find_map(|address| channel::connect(&address).ok())
    }

    /// The body of the link thread: serves one connection after the other.
    fn serve(&self, listener: &OwnedFd) {
        crate::dpdk::eal::block_signals();
        // The program may change its root directory, which would put the sockets out of reach.
        // SAFETY: the call only separates this thread's own root and working directory.
        let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) };
        let mut peer: Option<Peer> = None;
        loop {
            match channel::wait(listener, &self.end, peer.as_ref().map(Peer::descriptor)) {
                Call::End => return,
                Call::PeerEnded => {
                    peer = None;
                    self.tell_peer_ended();
                    continue;
                }
                Call::Connection => {}
            }
            if self.is_down.load(Ordering::Acquire) {
                channel::ended(&self.end, RETRY);
                continue;
            }
            let Ok(accepted) = channel::accept(listener) else {
                // The connecting peer waits: the process may have no descriptor left.
                channel::ended(&self.end, RETRY);
                continue;
            };
            let pair = if self.device.server {
                // If a client cannot be served, its connection is closed, and it tries again.
                let Some(inner) = self.connect_driver() else { continue };
                Pair { outer: accepted, inner }
            } else {
                let Some(outer) = self.find_server(&mut peer) else {
                    self.leave(accepted);
                    return;
                };
                Pair { outer, inner: accepted }
            };
            self.meet(&mut peer, Peer::of(&pair.outer));
            self.set_outer(pair.outer.try_clone().ok());
            // The link may have been taken down before there was a connection to close.
            if !self.is_down.load(Ordering::Acquire) {
                self.relay(&pair, peer.as_ref());
            }
            self.disconnect(pair);
        }
    }

    /// Tries to connect to the server until it is there or the link ends.
    fn find_server(&self, former: &mut Option<Peer>) -> Option<OwnedFd> {
        loop {
            if former.take_if(|former| former.has_ended()).is_some() {
                self.tell_peer_ended();
            }
            if !self.is_down.load(Ordering::Acquire)
                && let Ok(outer) = channel::connect(&self.device.socket)
            {
                return Some(outer);
            }
            if channel::ended(&self.end, RETRY) {
                return None;
            }
        }
    }

    /// Called when a process has connected. `peer` is the process that was connected before.
    fn meet(&self, peer: &mut Option<Peer>, new: Option<Peer>) {
        if let (Some(former), Some(new)) = (&*peer, &new)
            && former.is_replaced_by(new)
        {
            self.tell_peer_ended();
        }
        *peer = new;
    }

    /// Forwards messages until the peer or the driver ends the connection.
    fn relay(&self, pair: &Pair, peer: Option<&Peer>) {
        let mut connected = false;
        let mut offer = Offer::default();
        loop {
            let patience = (self.device.server && !connected).then_some(HANDSHAKE);
            match pair.next(&self.end, peer.map(Peer::descriptor), patience) {
                Event::FromPeer(message) => {
                    offer.note(&message);
                    let kind = message.kind();
                    let expected = kind == Message::ACK || !connected;
                    if kind == Message::DISCONNECT || !expected || pair.to_driver(&message).is_err()
                    {
                        return;
                    }
                    // From this message on the driver counts as connected.
                    if matches!(kind, Message::CONNECT | Message::CONNECTED) {
                        connected = true;
                        self.tell_connected(std::mem::take(&mut offer));
                    }
                }
                Event::FromDriver(message) => {
                    offer.note(&message);
                    if pair.to_peer(&message).is_err() {
                        return;
                    }
                }
                Event::Over => return,
            }
        }
    }

    /// Called after the driver has received the message that connects it. Reports the link as up
    /// once the driver, which handles the message on another thread, has done so.
    fn tell_connected(&self, offer: Offer) {
        let deadline = Instant::now() + GRACE;
        while lock(&self.port).is_some_and(|id| !super::link(id).up) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
        // The driver has masked the interrupts by now.
        self.interrupts.connect(offer, self.device.server);
        self.connected.store(true, Ordering::Release);
        self.tell();
    }

    /// Reports that the connected process has ended, and waits until that was read, so that its
    /// connections are not taken for those of the next process.
    fn tell_peer_ended(&self) {
        self.peer_ended.store(true, Ordering::Release);
        self.tell();
        let deadline = Instant::now() + GRACE;
        let waits = || self.peer_ended.load(Ordering::Acquire) && Instant::now() < deadline;
        while waits() && !channel::ended(&self.end, Duration::from_micros(50)) {}
    }

    fn tell(&self) {
        let port = *lock(&self.port);
        port.into_iter().for_each(link::tell);
    }

    fn set_outer(&self, outer: Option<OwnedFd>) {
        *lock(&self.outer) = outer;
    }

    /// Ends the driver's connection while no queue is inside the driver.
    fn disconnect(&self, pair: Pair) {
        if !self.end.is_ours() {
            // The program has closed our descriptors and may have files of its own by these
            // numbers. The rings go on without a connection.
            std::mem::forget((pair, lock(&self.outer).take()));
            return;
        }
        let Pair { outer, inner } = pair;
        self.set_outer(None);
        drop(outer);
        self.interrupts.disconnect();
        // If the peer ended right after its last frames, these are still in the rings. A port that
        // is being closed has no queue pair to receive them.
        if self.connected.load(Ordering::Acquire) {
            let deadline = Instant::now() + GRACE;
            self.gate.wait_dry(|| Instant::now() > deadline || self.is_ending());
        }
        self.connected.store(false, Ordering::Release);
        self.tell();
        let port = lock(&self.port);
        let Some(id) = *port else {
            // Our descriptors have been closed since, and the port is closed, which disconnects.
            std::mem::forget(inner);
            return;
        };
        self.gate.close();
        self.interrupts.end();
        if !channel::hang_up(&inner, GRACE) {
            // The driver marks the link down before it unmaps; `GRACE` is long enough for both.
            while super::link(id).up && !channel::ended(&self.end, RETRY) {}
        }
        drop(port);
        if self.device.server || self.restart() {
            self.gate.open();
        }
    }

    /// Ends the driver's connection at the end of the thread, without a peer.
    fn leave(&self, inner: OwnedFd) {
        match self.end.is_ours() {
            true => _ = channel::hang_up(&inner, GRACE),
            // The program has closed our descriptors: this number may be a file of its own.
            false => std::mem::forget(inner),
        }
    }

    /// Returns whether the thread is to end.
    fn is_ending(&self) -> bool {
        channel::ended(&self.end, Duration::ZERO)
    }

    /// Restarts a client's port, so that its driver connects again. This fails while the process
    /// has no descriptor left, and is tried until it works. A stopped port has no queues, so the
    /// gate stays closed meanwhile. Returns false if the port is closed before.
    fn restart(&self) -> bool {
        let mut pause = Duration::ZERO;
        while !channel::ended(&self.end, pause) {
            match *lock(&self.port) {
                None => return false,
                Some(id) if super::restart(id) => return true,
                // The lock is released between tries, for a thread that closes the port.
                Some(_) => pause = RETRY,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::eal::{Eal, EalConfig};
    use crate::dpdk::mbuf::{Mempool, PoolConfig};
    use crate::dpdk::port::vdev::{MemifRole, memif};
    use crate::dpdk::port::{Ethdev, PortConfig};

    fn port(number: u16, role: MemifRole, socket: &Path, pool: &Mempool) -> Ethdev {
        let config = PortConfig::new(memif(number, role, socket, 1500, 64));
        let eal = Eal::running().expect("the pool is there");
        Ethdev::open(eal, &config, pool).expect("memif needs no privilege")
    }

    /// Starts EAL and makes a mempool and the path of a socket.
    fn lab(name: &str) -> (Mempool, PathBuf) {
        let eal = Eal::init(&EalConfig::default()).expect("EAL starts");
        let pool = Mempool::create(eal, &PoolConfig::default()).expect("mempool");
        let file = format!("uroce-{name}-{}.sock", std::process::id());
        (pool, std::env::temp_dir().join(file))
    }

    fn wait_up(port: &Ethdev) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !port.link().up {
            assert!(Instant::now() < deadline, "no link");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn ports_are_closed_at_any_time_of_their_handshake() {
        let (pool, socket) = lab("early");
        // The handshake takes about a millisecond.
        let slow = (0..200).filter(|round| {
            let begin = Instant::now();
            let server = port(0, MemifRole::Server, &socket, &pool);
            let client = port(1, MemifRole::Client, &socket, &pool);
            std::thread::sleep(Duration::from_micros(round * 10));
            match round % 2 {
                0 => drop((client, server)),
                _ => drop((server, client)),
            }
            begin.elapsed() > GRACE
        });
        assert!(slow.count() < 10, "no patience runs out where nobody can answer");
    }

    #[test]
    fn clients_of_a_server_that_accepts_nobody_are_closed() {
        let (pool, socket) = lab("full");
        let server = port(0, MemifRole::Server, &socket, &pool);
        server.set_link(false);
        // Each leaves a connection in the server's queue, which is full after 17.
        for _ in 0..20 {
            let client = port(1, MemifRole::Client, &socket, &pool);
            std::thread::sleep(Duration::from_millis(10));
            drop(client);
        }
        server.set_link(true);
        let client = port(1, MemifRole::Client, &socket, &pool);
        wait_up(&client);
    }

    #[test]
    fn a_memif_client_is_restarted_until_its_driver_starts_again() {
        let (pool, socket) = lab("again");
        let server = port(0, MemifRole::Server, &socket, &pool);
        let client = port(1, MemifRole::Client, &socket, &pool);
        wait_up(&client);
        // Without the socket the driver fails in the same way as without a descriptor.
        let inner = Place::shared().expect("ours").socket("net_memif1");
        let away = inner.with_extension("away");
        std::fs::rename(&inner, &away).expect("it is there");
        drop(server);
        while client.link().up {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(3 * GRACE);
        std::fs::rename(&away, &inner).expect("ours");
        let server = port(0, MemifRole::Server, &socket, &pool);
        wait_up(&client);
        wait_up(&server);
    }
}
