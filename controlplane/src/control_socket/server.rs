//! The server thread: waits for clients and serves each when it is ready.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uroce_command::peer::peer;
use uroce_engine::eal::block_signals;

use super::answer::Kept;
use super::client::Client;
use super::console;
use super::own::Own;
use super::{Served, Shared};

/// Largest number of clients. A further one replaces the one that has been silent longest.
const CLIENTS: usize = 16;
/// Time for which no connection is accepted after the process has run out of descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest sleep. If the program has closed the descriptor that wakes the thread, the thread
/// notices after this time that the last device has closed.
const LOOK: Duration = Duration::from_secs(60);

/// Starts the thread, on CPU `cpu` if it is given. The thread ends when no device is left.
///
/// When this returns, the thread takes no signals of the application any more.
///
/// # Errors
///
/// The process cannot start another thread.
pub(super) fn start(
    shared: Arc<Shared>,
    listener: UnixListener,
    cpu: Option<usize>,
) -> io::Result<()> {
    let listener = Own::new(listener)?;
    let (ready, is_ready) = channel();
    let body = move || {
        block_signals();
        if let Some(id) = cpu {
            // If the CPU has become unavailable, the thread runs on another one.
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        // The thread that starts this one waits for this.
        let _ = ready.send(());
        let mut server = Server {
            kept: Kept::new(Arc::clone(&shared)),
            shared,
            listener,
            clients: Vec::new(),
            deaf_until: None,
        };
        while server.turn() {}
    };
    std::thread::Builder::new().name("uroce-socket".into()).spawn(body)?;
    // An error means that the thread has ended without serving.
    is_ready.recv().map_err(io::Error::other)
}

struct Server {
    shared: Arc<Shared>,
    listener: Own<UnixListener>,
    clients: Vec<Client>,
    kept: Kept,
    /// Time until which no connection is accepted.
    deaf_until: Option<Instant>,
}

impl Server {
    /// Waits, and serves the clients that are ready. Returns false when the thread has to end.
    fn turn(&mut self) -> bool {
        self.deaf_until = self.deaf_until.filter(|until| *until > Instant::now());
        let ready = self.wait();
        if ready.is_woken {
            // This comes before the devices are read, so that no later change is missed.
            self.shared.wake.drain();
        }
        let devices: Vec<Arc<Served>> = {
            let devices = self.shared.devices();
            devices.clone()
        };
        // The thread is woken when the last device has gone. Before the first one is registered,
        // only a client wakes it.
        if devices.is_empty() && ready.is_woken {
            return false;
        }
        let Self { clients, kept, .. } = self;
        kept.keep(&devices);
        kept.take_events(&devices);
        let (now, mut at) = (Instant::now(), 0);
        clients.retain_mut(|client| {
            let is_ready = ready.clients.get(at).is_some_and(|is_ready| *is_ready);
            at += 1;
            match (client.is_waiting(), is_ready) {
                // The client has disconnected, so its command ends.
                (true, true) => false,
                (true, false) => client.answer(&devices, kept),
                (false, _) => !is_ready || client.serve(now, &devices, kept),
            }
        });
        if ready.has_connection {
            self.accept(now);
        }
        // The listener is gone if the program has closed our descriptors.
        self.listener.get().is_some()
    }

    fn wait(&mut self) -> Ready {
        let wake = Some(&self.shared.wake).filter(|wake| wake.is_ours());
        let mut fds = Vec::with_capacity(2 + self.clients.len());
        if let Some(wake) = wake {
            fds.push(PollFd::new(wake, PollFlags::IN));
        }
        let is_deaf = self.deaf_until.is_some();
        let listener = self.listener.get().filter(|_| !is_deaf);
        if let Some(listener) = listener {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        let first = fds.len();
        let waits = self.clients.iter().filter_map(Client::waits_for);
        fds.extend(waits.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        let pause = match self.clients.iter().any(Client::is_waiting) {
            true => console::LOOK,
            false if is_deaf => PAUSE,
            false => LOOK,
        };
        let timeout = Timespec::try_from(pause).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ready::default(),
            // The program may now allow fewer open files than are polled. The thread must not spin.
            Err(_) => {
                std::thread::sleep(PAUSE);
                return Ready { is_woken: true, ..Ready::default() };
            }
        }
        let happened = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let at_listener = usize::from(wake.is_some());
        Ready {
            is_woken: wake.is_none() || happened(0),
            has_connection: listener.is_some() && happened(at_listener),
            clients: (first..fds.len()).map(happened).collect(),
        }
    }

    fn accept(&mut self, now: Instant) {
        let Some(listener) = self.listener.get() else { return };
        match listener.accept() {
            Ok((stream, _)) => {
                let user = rustix::process::geteuid().as_raw();
                let is_allowed = peer(&stream).is_ok_and(|peer| [user, 0].contains(&peer.uid));
                if !is_allowed {
                    return;
                }
                if self.clients.len() >= CLIENTS {
                    let silent = self.clients.iter().enumerate().min_by_key(|(_, of)| of.active);
                    let silent = silent.map_or(0, |(at, _)| at);
                    self.clients.remove(silent);
                }
                self.clients.extend(Client::new(stream, now).ok());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.deaf_until = Some(now + PAUSE),
        }
    }
}

/// What has happened during a wait.
#[derive(Debug, Default)]
struct Ready {
    is_woken: bool,
    has_connection: bool,
    /// For each client, whether something has happened at its connection.
    clients: Vec<bool>,
}
