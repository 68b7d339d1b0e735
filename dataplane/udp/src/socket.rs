//! A UDP socket at port 4791 of one IP address.

use crate::OpenError;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt::{self, SetBool},
};
use nix::{libc, setsockopt_impl};
use rustix::net::sockopt as plain;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use uroce_wire::udp::Udp;

/// Size in bytes of a socket's receive buffer and of its send buffer, as far as the system allows.
const BUFFER: usize = 16 << 20;
/// Size in bytes of the buffer for the control messages of a receipt.
const CONTROL: usize = 256;

/// Option of an IPv6 socket to receive datagrams without a UDP checksum (RFC 6935), as Soft-RoCE
/// sends them; the invariant CRC covers their addresses and bytes.
#[derive(Clone, Copy, Debug)]
struct TakesNoChecksum;

setsockopt_impl!(TakesNoChecksum, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, bool, SetBool);

/// A UDP socket at one address. No call blocks.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    address: SocketAddr,
}

/// What the kernel reports with a received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// The sender's address and port.
    pub(crate) from: SocketAddr,
    /// Bytes of the message.
    pub(crate) len: usize,
    /// Bytes of each datagram in the message; the last one may be shorter.
    pub(crate) segment: usize,
    /// DSCP and ECN, as one byte.
    pub(crate) traffic_class: u8,
    /// Number of datagrams that found the socket full since it was opened; `None` if the kernel
    /// does not report it.
    pub(crate) overflow: Option<u32>,
}

/// Destination and header fields of a message that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The receiver's address.
    pub(crate) to: IpAddr,
    /// DSCP and ECN, as one byte.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit.
    pub(crate) hop_limit: u8,
    /// Bytes of each datagram but the last; `None` if the message is one datagram.
    pub(crate) segment: Option<u16>,
}

/// Buffer for the control messages of a receipt, aligned for them.
#[derive(Debug)]
#[repr(align(16))]
pub(crate) struct Control([u8; CONTROL]);

impl Default for Control {
    fn default() -> Control {
        Control([0; CONTROL])
    }
}

impl Socket {
    /// Opens a socket at an address. If `is_shared`, it joins those of this user that are shared
    /// there, and others may join.
    pub(crate) fn open(address: SocketAddr, is_shared: bool) -> Result<Socket, OpenError> {
        let ip = address.ip();
        let system = |call, errno| refused(ip, call, errno);
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
            .map_err(|errno| system("socket", errno))?;
        if is_shared {
            share(&fd, ip)?;
        }
        // Packets are never fragmented: one that is too long is refused. The kernel then gives an
        // IPv4 packet its number in the message as identification.
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
                setsockopt(&fd, TakesNoChecksum, &true).map_err(|errno| {
                    let errno = rustix::io::Errno::from_raw_os_error(errno as i32);
                    system("UDP_NO_CHECK6_RX", errno)
                })?;
            }
        }
        rustix::net::bind(&fd, &address).map_err(|errno| system("bind", errno))?;
        // What follows is optional: it makes the socket faster where the system has and allows it.
        // A buffer beyond the system's limit needs CAP_NET_ADMIN.
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

    /// Lets other sockets of this user be opened at the address.
    pub(crate) fn share(&self) -> Result<(), OpenError> {
        share(&self.fd, self.ip())
    }

    /// Returns the socket's IP address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a message without blocking.
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

    /// Returns the socket address of the peer with this IP address.
    fn place_of(&self, ip: IpAddr) -> SocketAddr {
        match (ip, self.address) {
            (IpAddr::V6(ip), SocketAddr::V6(own)) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, Udp::ROCE_PORT, 0, own.scope_id()).into()
            }
            (ip, _) => SocketAddr::new(ip, Udp::ROCE_PORT),
        }
    }

    /// Receives one message without blocking. `Ok(None)` if the call gave no datagram of a known
    /// sender although others may wait.
    ///
    /// # Errors
    /// `EAGAIN` if no message waits; another one if the control messages cannot be read.
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
            // The network has reported this error for a datagram that was sent before.
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

fn share(fd: &OwnedFd, ip: IpAddr) -> Result<(), OpenError> {
    plain::set_socket_reuseport(fd, true).map_err(|errno| refused(ip, "SO_REUSEPORT", errno))
}

/// Returns the error for a system call that failed.
fn refused(address: IpAddr, call: &'static str, errno: rustix::io::Errno) -> OpenError {
    match errno {
        rustix::io::Errno::ADDRINUSE => OpenError::Taken(address),
        rustix::io::Errno::ADDRNOTAVAIL => OpenError::NoSuchAddress(address),
        errno => OpenError::System { address, call, error: errno.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, UdpSocket};

    #[derive(Clone, Copy)]
    struct SendsNoChecksum;

    setsockopt_impl!(SendsNoChecksum, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, bool, SetBool);

    #[test]
    fn a_datagram_without_a_udp_checksum_is_received() {
        let at = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0);
        let socket = Socket::open(at, false).expect("opens");
        let to = nix::sys::socket::getsockname::<SockaddrStorage>(socket.fd.as_raw_fd())
            .expect("has an address");
        let port = to.as_sockaddr_in6().expect("IPv6").port();
        let sender = UdpSocket::bind(at).expect("binds");
        setsockopt(&sender, SendsNoChecksum, &true).expect("Linux has it");
        sender.send_to(b"no sum", (Ipv6Addr::LOCALHOST, port)).expect("sends");
        let (mut buffer, mut control) = ([0; 64], Control::default());
        let receipt = socket.receive(&mut buffer, &mut control).expect("has come").expect("is one");
        assert_eq!(&buffer[..receipt.len], b"no sum");
    }
}
