//! The socket to the kernel, and the thread that reads it.
//!
//! Invariants
//! - The initial state and every change arrive on one socket, so that no change between them is
//!   missed. When the kernel had to drop messages, the whole state is requested again.
//! - The thread ends when its [`Watch`] is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto,
    socket_with,
};
use uroce_engine::EventFd;
use uroce_engine::eal::block_signals;

use super::message::{Dump, Message, dump, messages};
use super::{Netdev, NetdevState};

/// Multicast groups for changes of links, IPv4 and IPv6 addresses (`RTMGRP_*`).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// Buffer size, larger than the kernel's datagrams of up to 32 KiB.
const DATAGRAM: usize = 1 << 16;
/// Attempts at a dump that changes interrupt.
const TRIES: u32 = 16;

/// A socket with the state of some interfaces, ready to watch for changes.
#[derive(Debug)]
pub(crate) struct Watcher {
    socket: OwnedFd,
    netdevs: Vec<Netdev>,
    buffer: Vec<u8>,
    sequence: u32,
}

/// A thread that reports changes until this value is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// Result of reading the socket.
enum Heard {
    /// A datagram of this length.
    Datagram(usize),
    /// Messages were lost.
    Lost,
    /// Nothing to read at the moment.
    Nothing,
}

impl Watcher {
    /// Opens the socket and reads the state of the named interfaces. An interface that does not
    /// exist is down and has no attributes.
    ///
    /// # Errors
    ///
    /// A system call on the socket has failed, or the interfaces keep changing.
    pub(crate) fn open(names: &[&str]) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        let netdevs = names.iter().map(|name| Netdev::new((*name).to_owned())).collect();
        let mut watcher = Self { socket, netdevs, buffer: vec![0; DATAGRAM], sequence: 0 };
        watcher.refresh()?;
        Ok(watcher)
    }

    /// Returns the interfaces' states, in the order of their names.
    pub(crate) fn states(&self) -> impl Iterator<Item = &NetdevState> {
        self.netdevs.iter().map(|netdev| &netdev.state)
    }

    /// Tells whether the interface at place `at` of the names exists.
    pub(crate) fn exists(&self, at: usize) -> bool {
        self.netdevs.get(at).is_some_and(|netdev| netdev.index.is_some())
    }

    /// Starts the thread. `tell` is called with the place of a changed interface and its new state.
    ///
    /// # Errors
    ///
    /// If the process may not have another thread or file descriptor.
    pub(crate) fn watch(
        mut self,
        mut tell: impl FnMut(usize, NetdevState) + Send + 'static,
    ) -> io::Result<Watch> {
        let stop = Arc::new(EventFd::new(EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let body = move || {
            block_signals();
            while self.wait(&stopped) {
                self.follow(&mut tell);
            }
        };
        let thread = std::thread::Builder::new().name("uroce-netdev".into()).spawn(body)?;
        Ok(Watch { stop, thread: Some(thread) })
    }

    /// Blocks until the socket is readable; false when the thread has to end.
    fn wait(&self, stopped: &EventFd) -> bool {
        let mut fds =
            [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => fds[1].revents().is_empty(),
            Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Reads all datagrams and reports the interfaces that have changed.
    fn follow(&mut self, tell: &mut impl FnMut(usize, NetdevState)) {
        let before: Vec<NetdevState> = self.states().cloned().collect();
        loop {
            match self.hear() {
                Heard::Datagram(len) => {
                    for message in messages(&self.buffer[..len]) {
                        self.netdevs.iter_mut().for_each(|netdev| netdev.apply(&message));
                    }
                }
                // If this fails, the state is updated by the next change.
                Heard::Lost => drop(self.refresh()),
                Heard::Nothing => break,
            }
        }
        for (at, (before, now)) in before.iter().zip(self.states()).enumerate() {
            if before != now {
                tell(at, now.clone());
            }
        }
    }

    /// Requests the whole state and replaces the present one.
    fn refresh(&mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            let names = self.netdevs.iter().map(|netdev| Netdev::new(netdev.name.clone()));
            let mut fresh: Vec<Netdev> = names.collect();
            if self.ask(Dump::Links, &mut fresh)? && self.ask(Dump::Addresses, &mut fresh)? {
                self.netdevs = fresh;
                return Ok(());
            }
        }
        Err(io::Error::other("the network interfaces keep changing"))
    }

    /// Does one dump and applies changes that arrive meanwhile; false if it has to be repeated.
    fn ask(&mut self, what: Dump, netdevs: &mut [Netdev]) -> io::Result<bool> {
        self.sequence += 1;
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &dump(what, self.sequence), SendFlags::empty(), &kernel)?;
        let mut whole = true;
        loop {
            match self.hear() {
                Heard::Datagram(len) => {
                    for message in messages(&self.buffer[..len]) {
                        match message {
                            Message::Done(sequence) if sequence == self.sequence => {
                                return Ok(whole);
                            }
                            Message::Broken(sequence) if sequence == self.sequence => whole = false,
                            _ => netdevs.iter_mut().for_each(|netdev| netdev.apply(&message)),
                        }
                    }
                }
                Heard::Lost => return Ok(false),
                Heard::Nothing => {
                    poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None)?;
                }
            }
        }
    }

    fn hear(&mut self) -> Heard {
        match recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC) {
            Ok((_, len, from)) => {
                let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                match from {
                    Some(from) if from.pid() == 0 && len <= DATAGRAM => Heard::Datagram(len),
                    Some(from) if from.pid() == 0 => Heard::Lost,
                    // Datagrams from other processes are ignored.
                    _ => Heard::Datagram(0),
                }
            }
            Err(Errno::AGAIN) => Heard::Nothing,
            Err(Errno::INTR) => Heard::Datagram(0),
            Err(_) => Heard::Lost,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // If the program has closed the eventfd's descriptor, the thread cannot be stopped.
        if self.stop.signal()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
