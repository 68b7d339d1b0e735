//! One UDP socket at port 4791 of an address.

use crate::OpenError;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use rustix::net::sockopt as plain;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use uroce_wire::udp::Udp;

/// Bytes that a socket may hold in each direction, as far as the system allows.
const BUFFER: usize = 16 << 20;
/// Room for the control messages of a receipt.
const CONTROL: usize = 256;

/// A socket at an address.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    address: SocketAddr,
}

/// The kernel's words on what was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// Sender.
    pub(crate) from: SocketAddr,
    /// Bytes in all.
    pub(crate) len: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub(crate) segment: usize,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    /// Datagrams that found the socket full since it was opened; `None` if not told.
    pub(crate) overflow: Option<u32>,
}

/// How the datagrams of a message leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Receiver.
    pub(crate) to: IpAddr,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit.
    pub(crate) hop_limit: u8,
    /// Bytes of each datagram but the last, if there are several.
    pub(crate) segment: Option<u16>,
}

/// Room for the control messages of a receipt, aligned for them.
#[derive(Debug)]
#[repr(align(16))]
pub(crate) struct Control([u8; CONTROL]);

impl Default for Control {
    fn default() -> Control {
        Control([0; CONTROL])
    }
}

impl Socket {
    /// Opens a socket at an address; `is_shared` lets others of this user have it too.
    pub(crate) fn open(address: SocketAddr, is_shared: bool) -> Result<Socket, OpenError> {
        let ip = address.ip();
        let system = |call, errno: rustix::io::Errno| match errno {
            rustix::io::Errno::ADDRINUSE => OpenError::Taken(ip),
            rustix::io::Errno::ADDRNOTAVAIL => OpenError::NoSuchAddress(ip),
            errno => OpenError::System { address: ip, call, error: errno.into() },
        };
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
            .map_err(|errno| system("socket", errno))?;
        if is_shared {
            plain::set_socket_reuseport(&fd, true)
                .map_err(|errno| system("SO_REUSEPORT", errno))?;
        }
        // No fragments: a packet that is too long is refused. With that, the kernel's
        // identification of an IPv4 packet is its number in a message.
        match ip {
            IpAddr::V4(_) => {
                plain::set_ip_mtu_discover(&fd, plain::Ipv4PathMtuDiscovery::PROBE)
                    .map_err(|errno| system("IP_MTU_DISCOVER", errno))?;
                plain::set_ip_recvtos(&fd, true).map_err(|errno| system("IP_RECVTOS", errno))?;
            }
            IpAddr::V6(_) => {
                plain::set_ipv6_v6only(&fd, true).map_err(|errno| system("IPV6_V6ONLY", errno))?;
                plain::set_ipv6_mtu_discover(&fd, plain::Ipv6PathMtuDiscovery::PROBE)
                    .map_err(|errno| system("IPV6_MTU_DISCOVER", errno))?;
                plain::set_ipv6_recvtclass(&fd, true)
                    .map_err(|errno| system("IPV6_RECVTCLASS", errno))?;
            }
        }
        rustix::net::bind(&fd, &address).map_err(|errno| system("bind", errno))?;
        // The rest is better if the system has and allows it. Beyond its limit a buffer takes
        // CAP_NET_ADMIN.
        let _ = setsockopt(&fd, sockopt::UdpGroSegment, &true);
        let _ = setsockopt(&fd, sockopt::RxqOvfl, &1);
        if plain::set_socket_recv_buffer_size_force(&fd, BUFFER).is_err() {
            let _ = plain::set_socket_recv_buffer_size(&fd, BUFFER);
        }
        if setsockopt(&fd, sockopt::SndBufForce, &BUFFER).is_err() {
            let _ = plain::set_socket_send_buffer_size(&fd, BUFFER);
        }
        Ok(Socket { fd, address })
    }

    /// Returns the socket's address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a message.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>], manner: &Manner) -> Result<(), Errno> {
        let &Manner { to, traffic_class, hop_limit, segment } = manner;
        let to = SockaddrStorage::from(self.place_of(to));
        let (hops, class) = (i32::from(hop_limit), i32::from(traffic_class));
        let mut control = [ControlMessage::Ipv4Ttl(&hops); 3];
        [control[0], control[1]] = match self.address {
            SocketAddr::V4(_) => {
                [ControlMessage::Ipv4Ttl(&hops), ControlMessage::Ipv4Tos(&traffic_class)]
            }
            SocketAddr::V6(_) => {
                [ControlMessage::Ipv6HopLimit(&hops), ControlMessage::Ipv6TClass(&class)]
            }
        };
        let mut count = 2;
        if let Some(segment) = &segment {
            control[2] = ControlMessage::UdpGsoSegments(segment);
            count = 3;
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            match sendmsg(self.fd.as_raw_fd(), parts, &control[..count], flags, Some(&to)) {
                Err(Errno::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Returns the socket address of a peer.
    fn place_of(&self, ip: IpAddr) -> SocketAddr {
        match (ip, self.address) {
            (IpAddr::V6(ip), SocketAddr::V6(own)) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, Udp::ROCE_PORT, 0, own.scope_id()).into()
            }
            (ip, _) => SocketAddr::new(ip, Udp::ROCE_PORT),
        }
    }

    /// Receives what has come in one piece. `None` if there is nothing, or it was no datagram of a
    /// host.
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        control: &mut Control,
    ) -> Result<Option<Receipt>, Errno> {
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let fd = self.fd.as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control.0), flags)
        {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Err(Errno::EAGAIN),
            Err(Errno::EINTR) => return Ok(None),
            // An error that a network has reported for a datagram of before.
            Err(_) => return Ok(None),
        };
        let len = message.bytes;
        let from = message.address.and_then(|of| {
            let v4 = of.as_sockaddr_in().map(|of| SocketAddr::new(of.ip().into(), of.port()));
            v4.or_else(|| of.as_sockaddr_in6().map(|of| SocketAddr::new(of.ip().into(), of.port())))
        });
        let Some(from) = from else { return Ok(None) };
        let mut receipt = Receipt { from, len, segment: len, traffic_class: 0, overflow: None };
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::UdpGroSegments(bytes) => {
                    receipt.segment = usize::try_from(bytes).unwrap_or(len);
                }
                ControlMessageOwned::Ipv4Tos(class) => receipt.traffic_class = class,
                ControlMessageOwned::Ipv6TClass(class) => receipt.traffic_class = class as u8,
                ControlMessageOwned::RxqOvfl(count) => receipt.overflow = Some(count),
                _ => {}
            }
        }
        Ok(Some(receipt))
    }
}
