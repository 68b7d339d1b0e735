//! An endpoint: its addresses, and the queues that can be taken from it.

use crate::counters::Counters;
use crate::peers::Peers;
use crate::queue::{Queue, Taken};
use crate::socket::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, PoisonError};
use uroce_wire::Mac;
use uroce_wire::udp::Udp;

/// Largest number of queues of an endpoint.
pub const QUEUES_MAX: u16 = 16;

/// The configuration of [`Endpoint::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Network interface, for the scope of link-local addresses.
    pub interface: String,
    /// IP addresses of the machine at which the endpoint receives and from which it sends, at least
    /// one.
    pub addresses: Vec<IpAddr>,
    /// Destination Ethernet address in the headers of received frames.
    pub mac: Mac,
    /// Number of queues, 1 to [`QUEUES_MAX`].
    pub queues: u16,
    /// Largest Ethernet payload in bytes. Longer received datagrams are dropped and counted.
    pub mtu: u16,
}

/// The reason why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another socket is bound to UDP port 4791 of this address.
    #[error(
        "UDP port 4791 of {0} is taken: by another process with this port (`ss -ulpn sport = 4791` \
         names it) or by Soft-RoCE (`rdma link delete NAME` removes it); one program has an address"
    )]
    Taken(IpAddr),
    /// The machine, or the network namespace, does not have this address.
    #[error("{0} is no address of this machine or network namespace: use one that `ip addr` shows")]
    NoSuchAddress(IpAddr),
    /// The configuration has no address for this interface.
    #[error("{0} has no IP address: give it one (`ip addr add`)")]
    NoAddress(String),
    /// The number of queues is out of range.
    #[error("{0} queues: there can be 1 to {QUEUES_MAX}")]
    Queues(u16),
    /// A system call failed for another reason.
    #[error("UDP socket at {address}: {call}: {error}")]
    System {
        /// Address of the socket.
        address: IpAddr,
        /// The call that failed.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl OpenError {
    /// Returns the system's errno behind the error, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            OpenError::Taken(_) => Some(rustix::io::Errno::ADDRINUSE.raw_os_error()),
            OpenError::NoSuchAddress(_) | OpenError::NoAddress(_) => {
                Some(rustix::io::Errno::ADDRNOTAVAIL.raw_os_error())
            }
            OpenError::Queues(_) => Some(rustix::io::Errno::INVAL.raw_os_error()),
            OpenError::System { error, .. } => error.raw_os_error(),
        }
    }
}

/// The reason why a queue could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The endpoint has no queue with this number.
    #[error("queue {index} is not one of {queues}")]
    OutOfRange {
        /// The number that was asked for, counted from 0.
        index: u16,
        /// Number of queues of the endpoint.
        queues: u16,
    },
    /// The queue is taken already.
    #[error("queue {index} is taken")]
    Taken {
        /// The number that was asked for, counted from 0.
        index: u16,
    },
}

/// The UDP sockets of a process: for each queue, one at each address.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    /// For each queue, its sockets: one at each address.
    sockets: Vec<Arc<[Socket]>>,
    taken: Arc<Taken>,
    counters: Arc<Counters>,
    peers: Arc<Peers>,
}

impl Endpoint {
    /// Opens the sockets of all queues at all addresses.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; then no socket is left open.
    pub fn open(config: EndpointConfig) -> Result<Endpoint, OpenError> {
        if !(1..=QUEUES_MAX).contains(&config.queues) {
            return Err(OpenError::Queues(config.queues));
        }
        if config.addresses.is_empty() {
            return Err(OpenError::NoAddress(config.interface));
        }
        let scope = nix::net::if_::if_nametoindex(config.interface.as_str()).unwrap_or(0);
        let at = |ip: &IpAddr| match ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddr::V6(SocketAddrV6::new(*ip, Udp::ROCE_PORT, 0, scope))
            }
            ip => SocketAddr::new(*ip, Udp::ROCE_PORT),
        };
        let places: Vec<SocketAddr> = config.addresses.iter().map(at).collect();
        // The sockets of the first queue are bound without sharing, which fails beside those of
        // another process. They are shared with the other queues once they are bound.
        let open = |queue| -> Result<Arc<[Socket]>, OpenError> {
            places.iter().map(|place| Socket::open(*place, queue > 0)).collect()
        };
        let mut sockets = vec![open(0)?];
        if config.queues > 1 {
            sockets[0].iter().try_for_each(Socket::share)?;
        }
        for queue in 1..config.queues {
            sockets.push(open(queue)?);
        }
        let taken = Arc::new(Mutex::new(vec![false; usize::from(config.queues)]));
        let (counters, peers) = Default::default();
        Ok(Endpoint { config, sockets, taken, counters, peers })
    }

    /// Takes queue `index`, counted from 0. It can be taken again once the returned queue is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`QueueError`], if the endpoint has no such queue or the queue is taken.
    pub fn queue(&self, index: u16) -> Result<Queue, QueueError> {
        let place = usize::from(index);
        let queues = self.config.queues;
        let sockets = self.sockets.get(place).ok_or(QueueError::OutOfRange { index, queues })?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut taken[place], true) {
            return Err(QueueError::Taken { index });
        }
        let (sockets, taken) = (Arc::clone(sockets), Arc::clone(&self.taken));
        Ok(Queue::new(index, sockets, &self.config, &self.counters, &self.peers, taken))
    }

    /// Returns the counters of all queues together.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the configuration with which the endpoint was opened.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }
}
