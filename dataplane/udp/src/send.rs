//! Sends frames: consecutive ones of one path and length are one message, which the kernel cuts
//! into datagrams.

use crate::counters::Counters;
use crate::fields::Fields;
use crate::peers::Peers;
use crate::socket::{Manner, Socket};
use nix::errno::Errno;
use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::Arc;
use uroce_wire::ipv4::Ipv4;
use uroce_wire::ipv6::Ipv6;
use uroce_wire::udp::Udp;
use uroce_wire::{Datagram, Frame, ICRC_LEN};

/// Largest number of datagrams in a message: Linux's limit.
const SEGMENTS_MAX: usize = 64;
/// Largest number of bytes in a message: an IPv4 packet has no room for more.
const BYTES_MAX: usize = u16::MAX as usize - Ipv4::LEN - Udp::LEN;

/// The sending half of a queue.
#[derive(Debug)]
pub(crate) struct Sending {
    sockets: Arc<[Socket]>,
    /// For each socket, whether the kernel cuts long messages into datagrams.
    can_segment: Vec<bool>,
    counters: Arc<Counters>,
    peers: Arc<Peers>,
    fields: KernelFields,
}

/// The header fields that the kernel sets and the invariant CRC covers.
#[derive(Debug, Default)]
struct KernelFields {
    /// The identification of IPv4 packets.
    identifications: Fields,
    /// The UDP source port.
    ports: Fields,
}

/// What all datagrams of a message have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Path {
    /// Index of the socket.
    socket: usize,
    to: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
}

/// The datagrams of one message. All have one length, but the last may be shorter.
struct Run<'a> {
    path: Path,
    /// Each datagram from BTH to the end of the pad, and its CRC.
    datagrams: [(&'a [u8], [u8; ICRC_LEN]); SEGMENTS_MAX],
    count: usize,
    bytes: usize,
}

impl Sending {
    pub(crate) fn new(
        sockets: Arc<[Socket]>,
        counters: Arc<Counters>,
        peers: Arc<Peers>,
    ) -> Sending {
        let can_segment = vec![true; sockets.len()];
        Sending { sockets, can_segment, counters, peers, fields: KernelFields::default() }
    }

    /// Carries out [`Queue::send`](crate::Queue::send).
    pub(crate) fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
        let (mut taken, mut rest) = (0, frames);
        loop {
            let Some(first) = rest.clone().next() else { return taken };
            let count = match self.gather(first, rest.clone().skip(1)) {
                Some(run) => self.send_run(&run),
                None => {
                    self.counters.tx_unsendable.add(1);
                    1
                }
            };
            let Some(last) = count.checked_sub(1) else { return taken };
            taken += count;
            rest.nth(last);
        }
    }

    /// Returns the longest run that begins with frame `first`. `None` if `first` is not a RoCEv2
    /// packet from an address of this endpoint.
    fn gather<'a>(
        &mut self,
        first: &'a [u8],
        others: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Run<'a>> {
        let (path, datagram) = self.path_of(first)?;
        let segment = datagram.transport.len();
        let crc = self.fields.crc_of(&datagram, 0);
        let mut run =
            Run { path, datagrams: [(&[], [0; ICRC_LEN]); SEGMENTS_MAX], count: 1, bytes: 0 };
        run.datagrams[0] = (datagram.transport, crc);
        run.bytes = segment + ICRC_LEN;
        let is_cut = self.can_segment[path.socket] && self.peers.takes_messages(path.to);
        let most = if is_cut { SEGMENTS_MAX } else { 1 };
        for frame in others.take(most - 1) {
            let Some((other, datagram)) = self.path_of(frame) else { break };
            let len = datagram.transport.len();
            if other != path || len > segment || run.bytes + len + ICRC_LEN > BYTES_MAX {
                break;
            }
            let crc = self.fields.crc_of(&datagram, run.count as u16);
            run.datagrams[run.count] = (datagram.transport, crc);
            run.count += 1;
            run.bytes += len + ICRC_LEN;
            if len < segment {
                break;
            }
        }
        Some(run)
    }

    fn path_of<'a>(&self, frame: &'a [u8]) -> Option<(Path, Datagram<'a>)> {
        let Ok(Frame::Roce(datagram)) = Frame::parse(frame) else { return None };
        let (from, to) = (datagram.src.to_ip(), datagram.dst.to_ip());
        let socket = self.sockets.iter().position(|socket| socket.ip() == from)?;
        let Datagram { traffic_class, hop_limit, .. } = datagram;
        (from.is_ipv4() == to.is_ipv4())
            .then_some((Path { socket, to, traffic_class, hop_limit }, datagram))
    }

    /// Sends a run as one message. If the kernel does not cut messages, sends the first datagram
    /// alone. Returns how many datagrams were taken; 0 if the kernel has no room now.
    fn send_run(&mut self, run: &Run<'_>) -> usize {
        let mut parts = [IoSlice::new(&[]); 2 * SEGMENTS_MAX];
        for (pair, (transport, crc)) in parts.chunks_exact_mut(2).zip(&run.datagrams) {
            pair[0] = IoSlice::new(transport);
            pair[1] = IoSlice::new(crc);
        }
        let Path { socket, to, traffic_class, hop_limit } = run.path;
        let mut count = run.count;
        let segment = run.datagrams[0].0.len() + ICRC_LEN;
        loop {
            let segment = (count > 1).then_some(segment as u16);
            let manner = Manner { to, traffic_class, hop_limit, segment };
            match self.sockets[socket].send(&parts[..2 * count], &manner) {
                Ok(()) => {
                    let sent = run.datagrams[..count].iter();
                    let bytes: usize = sent.map(|(transport, _)| transport.len() + ICRC_LEN).sum();
                    self.counters.tx_datagrams.add(count as u64);
                    self.counters.tx_bytes.add(bytes as u64);
                    return count;
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return 0,
                Err(errno) if count > 1 => {
                    // `EIO`: an interface without checksum offload cannot cut messages. Any other
                    // error is about this message alone.
                    self.can_segment[socket] &= errno != Errno::EIO;
                    count = 1;
                }
                Err(Errno::EMSGSIZE) => {
                    self.counters.tx_too_long.add(1);
                    return 1;
                }
                Err(_) => {
                    self.counters.tx_unreachable.add(1);
                    return 1;
                }
            }
        }
    }
}

impl KernelFields {
    /// Returns the CRC of a datagram that is sent as number `at` of a message, counted from 0: the
    /// CRC for the field values that the kernel will set.
    fn crc_of(&mut self, datagram: &Datagram<'_>, at: u16) -> [u8; ICRC_LEN] {
        let l3 = datagram.l3;
        let covered = l3.len() - ICRC_LEN;
        let is_v4 = datagram.src.to_ipv4().is_some();
        let port = if is_v4 { Ipv4::LEN } else { Ipv6::LEN };
        let by = datagram.src_port ^ Udp::ROCE_PORT;
        let mut change = self.ports.before(covered - port - 2).change(by);
        if is_v4 {
            let by = u16::from_be_bytes([l3[4], l3[5]]) ^ at;
            change ^= self.identifications.before(covered - 6).change(by);
        }
        (u32::from_le_bytes(datagram.icrc) ^ change).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use uroce_wire::{Bth, Encap, seal};

    /// Returns a packet without a payload.
    fn packet(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let (src, dst) = (IpAddr::from(from).into(), IpAddr::from(to).into());
        let template = Encap { src, dst, hop_limit: 64, ..Encap::default() }.template();
        let mut frame = vec![0; usize::from(template.len) + Bth::LEN + ICRC_LEN];
        template.emit(&mut frame, Bth::LEN + ICRC_LEN);
        seal(&mut frame[usize::from(template.l3_offset)..]).expect("a packet");
        frame
    }

    #[test]
    fn a_run_without_a_way_does_not_end_the_cutting_of_others() {
        let own = Ipv4Addr::LOCALHOST;
        let socket = Socket::open(SocketAddr::new(own.into(), 0), false).expect("opens");
        let counters = Arc::<Counters>::default();
        let peers = Arc::<Peers>::default();
        for peer in [Ipv4Addr::BROADCAST, own] {
            peers.note(SocketAddr::new(peer.into(), Udp::ROCE_PORT));
        }
        let mut sending = Sending::new([socket].into(), Arc::clone(&counters), peers);
        let to = |to| vec![packet(own, to); 2];
        for frames in [to(Ipv4Addr::BROADCAST), to(own)] {
            assert_eq!(sending.send(frames.iter().map(Vec::as_slice)), 2);
        }
        assert_eq!((counters.tx_unreachable.get(), counters.tx_datagrams.get()), (2, 2));
        assert_eq!(sending.can_segment, [true]);
    }
}
