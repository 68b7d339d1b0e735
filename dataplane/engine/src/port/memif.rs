//! memif links: what DPDK's driver lacks to survive its peer.
//!
//! The driver talks to its peer over a Unix socket and unmaps the shared memory as soon as that
//! socket closes, on EAL's interrupt thread, while a queue may be copying from it: a peer that is
//! killed under load takes us along. A client fails to start without a server and never connects
//! again; a server cannot bind a path that a dead process left. So we stand between the two:
//!
//! ```text
//!   peer ──outer socket──► link thread ──inner socket──► driver
//!                              └── gate ──► queue pairs
//! ```
//!
//! The link thread passes the handshake's messages and file descriptors on. When the peer goes, it
//! closes the [`Gate`], so that no queue is in the driver; then tells the driver; and opens the
//! gate when the driver has closed its end, which it does after unmapping. (Where a child process
//! of the application keeps that end open, the link's state and some patience have to do.) A client is then
//! restarted, so that it connects again.
//!
//! A peer that has gone may come back: its process may have taken the link down. That the process
//! itself has ended, or has left its place to another, is told once ([`Link::take_peer_ended`]).
//!
//! Invariants
//! - While a connection is up the driver hears nothing from the peer but acknowledgements, so it
//!   disconnects only when we make it, behind the gate.
//! - Nothing of this runs while the link is up: the cost is a store and a load per burst.
//!
//! Not here: the shared memory's contents. A memif peer is trusted as far as the driver trusts it.
//! Ports made by `EalConfig::vdevs` have no link thread.

mod channel;
mod device;
mod gate;
mod interrupt;
mod peer;
mod place;

pub(super) use gate::Gate;
pub(super) use interrupt::Interrupts;

use super::{PortError, link};
use crate::eal::lock;
use crate::eventfd::EventFd;
use crate::sync::{AtomicBool, Ordering};
use channel::{Call, Event, Message, Pair};
use device::Device;
use interrupt::Offer;
use peer::Peer;
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

pub(super) use device::is_memif;

/// How long a client may take for the handshake before the next one is heard.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// How long the driver may take to close its end; it needs microseconds.
const GRACE: Duration = Duration::from_millis(200);
/// How often a client looks for its server.
const RETRY: Duration = Duration::from_millis(50);

/// A memif port's connection to its peer.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    /// What the thread will own, until `attach`.
    listener: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Sockets in the file system that go with the link.
    files: Vec<PathBuf>,
    /// Where the driver's is.
    _place: Arc<Place>,
}

#[derive(Debug)]
struct Shared {
    device: Device,
    /// The driver's socket, or ours that it connects to.
    inner: PathBuf,
    /// The driver's socket, found when it was made: the path may be out of reach later.
    found: OnceLock<OwnedFd>,
    gate: Arc<Gate>,
    /// What wakes lcores that sleep.
    interrupts: Arc<Interrupts>,
    /// The handshake is done, and neither side has hung up.
    connected: AtomicBool,
    /// The link was taken down: whoever is connected is hung up on, and nobody is served.
    is_down: AtomicBool,
    /// The process that was connected has ended, and nobody has been told yet.
    peer_ended: AtomicBool,
    /// The peer's socket while somebody is connected, to hang up on it.
    outer: Mutex<Option<OwnedFd>>,
    /// The port while it may be stopped and started; held while a connection is torn down.
    port: Mutex<Option<u16>>,
    /// Readable when the thread is to end.
    end: EventFd,
}

impl Link {
    /// Takes the place of the driver's socket; gives the arguments for the driver.
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
        // A port of that name that was closed has left it.
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
        let listener = Some(listener);
        Ok((Self { shared, listener, thread: None, files, _place: place }, rewritten))
    }

    /// Starts serving, once the port is started.
    pub(super) fn attach(&mut self, port: u16) -> Result<(), PortError> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        *lock(&self.shared.port) = Some(port);
        self.shared.find_driver();
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("uroce-memif".into())
            .spawn(move || shared.serve(&listener))
            .map_err(|error| PortError::Memif { reason: "no thread for its link", error })?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Leaves the driver alone from now on: the port is about to be closed.
    pub(super) fn detach(&self) {
        *lock(&self.shared.port) = None;
    }

    /// Hangs up on the peer and serves nobody, or serves again.
    pub(super) fn set(&self, up: bool) {
        self.shared.is_down.store(!up, Ordering::Release);
        if let (false, Some(outer)) = (up, &*lock(&self.shared.outer)) {
            // A connection that is gone already is at its end as well.
            let _ = rustix::net::shutdown(outer, rustix::net::Shutdown::Both);
        }
    }

    /// Is somebody connected?
    pub(super) fn is_connected(&self) -> bool {
        self.shared.connected.load(Ordering::Acquire)
    }

    /// Has the process at the other end come to its end since the last call, with all that it
    /// sent received?
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
        // The driver has closed its end by now, so what the thread drops harms nobody.
        // Where the program has closed the descriptor nothing tells the thread to end.
        if self.shared.end.signal()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Shared {
    /// Finds the socket that the driver listens on, and lets any user connect: the program may become
    /// another one. Its directory, which is this user's alone, keeps others away from it.
    fn find_driver(&self) {
        let found = match self.device.server {
            true => fs::open(&self.inner, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok(),
            false => None,
        };
        if let Some(found) = found
            && fs::chmod(&self.inner, Mode::from_raw_mode(0o777)).is_ok()
        {
            // It is looked for once.
            let _ = self.found.set(found);
        }
    }

    /// A connection to the driver's socket.
    fn connect_driver(&self) -> Option<OwnedFd> {
        let path = self.found.get().map(|found| format!("/proc/self/fd/{}", found.as_raw_fd()));
        let by_descriptor = path.map(|path| channel::Address::File(path.into()));
        let by_path = channel::Address::File(self.inner.clone());
        let mut ways = by_descriptor.into_iter().chain([by_path]);
        ways.find_map(|address| channel::connect(&address).ok())
    }

    /// The link thread: one connection after the other.
    fn serve(&self, listener: &OwnedFd) {
        crate::eal::block_signals();
        // The program may change its root directory, and leave the sockets outside.
        // SAFETY: nothing but this thread's own root and working directory is concerned.
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
                // Who connects waits on: the process may have no descriptor left.
                channel::ended(&self.end, RETRY);
                continue;
            };
            let pair = if self.device.server {
                self.connect_driver().map(|inner| Pair { outer: accepted, inner })
            } else {
                self.find_server(&mut peer).map(|outer| Pair { outer, inner: accepted })
            };
            // A client that cannot be served is hung up on, and tries again.
            let Some(pair) = pair else { continue };
            self.meet(&mut peer, Peer::of(&pair.outer));
            self.set_outer(pair.outer.try_clone().ok());
            // Taken down meanwhile: whoever did found nobody to hang up on.
            if !self.is_down.load(Ordering::Acquire) {
                self.relay(&pair, peer.as_ref());
            }
            self.disconnect(pair);
        }
    }

    /// Tries until the server is there, or the link ends.
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

    /// A process is connected; `peer` is the last one that was.
    fn meet(&self, peer: &mut Option<Peer>, new: Option<Peer>) {
        if let (Some(former), Some(new)) = (&*peer, &new)
            && former.is_replaced_by(new)
        {
            self.tell_peer_ended();
        }
        *peer = new;
    }

    /// Passes messages until the peer or the driver ends the connection.
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
                    // From here on the driver counts as connected.
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

    /// The driver has been told that it is connected: tells of the link once the driver has
    /// understood, which it does on a thread of its own.
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

    /// The process that was connected has ended: waits until somebody has taken note, so that its
    /// connections are not taken for those of the next.
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

    /// Ends the driver's connection with no queue inside the driver.
    fn disconnect(&self, pair: Pair) {
        let Pair { outer, inner } = pair;
        self.set_outer(None);
        drop(outer);
        self.interrupts.disconnect();
        // A peer that ends at once after its last message has left that in the rings.
        if self.connected.load(Ordering::Acquire) {
            self.gate.wait_dry(GRACE);
        }
        self.connected.store(false, Ordering::Release);
        self.tell();
        let port = lock(&self.port);
        let Some(id) = *port else {
            // The port is being closed, which disconnects: wait for the end with `inner` open, so
            // that the driver's interrupt thread has nothing to do.
            drop(port);
            while !channel::ended(&self.end, Duration::from_secs(1)) {}
            return;
        };
        self.gate.close();
        self.interrupts.end();
        if !channel::hang_up(&inner, &self.end, GRACE) {
            // The driver marks the link down before it unmaps, and long before `GRACE` is over.
            while super::link(id).up && !channel::ended(&self.end, RETRY) {}
        }
        drop(port);
        if self.device.server || self.restart() {
            self.gate.open();
        }
    }

    /// Has a client's driver connect again, which fails while the process has no descriptor left:
    /// tries until it does. A port that is stopped has no queues, so the gate is closed meanwhile.
    /// False if the port is closed before.
    fn restart(&self) -> bool {
        loop {
            match *lock(&self.port) {
                None => return false,
                Some(id) if super::restart(id) => return true,
                // Who closes the port waits for the lock, and not for the next try.
                Some(_) => {}
            }
            if channel::ended(&self.end, RETRY) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eal::{Eal, EalConfig};
    use crate::mbuf::{Mempool, PoolConfig};
    use crate::port::vdev::{MemifRole, memif};
    use crate::port::{Port, PortConfig};

    fn port(number: u16, role: MemifRole, socket: &Path, pool: &Mempool) -> Port {
        let config = PortConfig::new(memif(number, role, socket, 1500, 64));
        let eal = Eal::running().expect("the pool is there");
        Port::open(eal, &config, pool).expect("memif needs no privilege")
    }

    fn wait_up(port: &Port) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !port.link().up {
            assert!(Instant::now() < deadline, "no link");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_client_whose_driver_does_not_start_again_is_restarted_until_it_does() {
        let eal = Eal::init(&EalConfig::default()).expect("EAL starts");
        let pool = Mempool::create(eal, &PoolConfig::default()).expect("mempool");
        let socket = std::env::temp_dir().join(format!("uroce-again-{}.sock", std::process::id()));
        let server = port(0, MemifRole::Server, &socket, &pool);
        let client = port(1, MemifRole::Client, &socket, &pool);
        wait_up(&client);
        // Without it the driver fails as it does without a descriptor.
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
