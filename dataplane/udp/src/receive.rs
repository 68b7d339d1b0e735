//! Receives datagrams: messages of the kernel are cut into frames, with headers as on the wire.

use crate::counters::Counters;
use crate::endpoint::EndpointConfig;
use crate::fields::Fields;
use crate::mac_of;
use crate::peers::Peers;
use crate::socket::{Control, Receipt, Socket};
use nix::errno::Errno;
use std::sync::Arc;
use uroce_wire::ipv4::Ipv4;
use uroce_wire::udp::Udp;
use uroce_wire::{Bth, Encap, Gid, HeaderTemplate, ICRC_LEN, Icrc, Mac};

/// Length in bytes of the longest message.
const MESSAGE: usize = 1 << 16;
/// One of so many looks for a message is at all sockets. The others are at the socket of the last
/// message only: a look at an empty socket costs a system call.
const LOOKS: u8 = 8;
/// Number of reads without a frame after which [`Receiving::look`] gives up.
const NOTHINGS_MAX: usize = 64;
/// TTL or hop limit in received frames. The real one is not read: the CRC does not cover it.
const HOP_LIMIT: u8 = 64;
/// Length in bytes of the longest headers, up to the end of BTH.
const HEAD: usize = HeaderTemplate::MAX_LEN + Bth::LEN;

/// The receiving half of a queue.
#[derive(Debug)]
pub(crate) struct Receiving {
    sockets: Arc<[Socket]>,
    /// Destination Ethernet address in the headers of frames.
    mac: Mac,
    /// Largest Ethernet payload in bytes of a frame.
    mtu: usize,
    counters: Arc<Counters>,
    peers: Arc<Peers>,
    buffer: Box<[u8]>,
    control: Control,
    /// Datagrams in `buffer` that were not passed on yet.
    rest: Option<Rest>,
    /// Index of the socket that was not empty last.
    last: usize,
    /// Whether the message before the last one came by another socket.
    is_alone: bool,
    /// Looks for a message since the last one at all sockets, in it 0.
    looks: u8,
    /// The identification of IPv4 packets, as a field of the CRC.
    identifications: Fields,
    /// For each socket, the number of datagrams that it had no room for since it was opened.
    overflows: Vec<u32>,
}

/// What a look at sockets has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// A message, which is the rest now.
    Message,
    /// The sockets that were looked at are empty.
    Nothing,
    /// Too many reads gave no frame; there may be messages behind them.
    GivenUp,
}

/// The datagrams of one message.
#[derive(Clone, Copy, Debug)]
struct Rest {
    receipt: Receipt,
    /// Headers of each datagram, without their length fields.
    template: HeaderTemplate,
    /// Number of bytes of the message that were passed on.
    done: usize,
}

/// A received frame, in two parts: the headers that were made for it, and the datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    headers: &'a [u8],
    transport: &'a [u8],
    has_good_icrc: bool,
}

impl Received<'_> {
    /// Returns the frame's length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.headers.len() + self.transport.len()
    }

    /// Returns whether the invariant CRC was computed and is right. It is not computed over IPv6.
    pub fn has_good_icrc(&self) -> bool {
        self.has_good_icrc
    }

    /// Copies the frame to the beginning of `out`.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than the frame.
    pub fn copy_to(&self, out: &mut [u8]) {
        let (headers, rest) = out.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        rest[..self.transport.len()].copy_from_slice(self.transport);
    }
}

impl Receiving {
    pub(crate) fn new(
        sockets: Arc<[Socket]>,
        config: &EndpointConfig,
        counters: Arc<Counters>,
        peers: Arc<Peers>,
    ) -> Receiving {
        Receiving {
            overflows: vec![0; sockets.len()],
            sockets,
            mac: config.mac,
            mtu: config.mtu.into(),
            counters,
            peers,
            buffer: vec![0; MESSAGE].into_boxed_slice(),
            control: Control::default(),
            rest: None,
            last: 0,
            is_alone: false,
            looks: 0,
            identifications: Fields::default(),
        }
    }

    /// Carries out [`Queue::has_frames`](crate::Queue::has_frames).
    pub(crate) fn has_frames(&mut self) -> bool {
        self.rest.is_some() || self.look(true) != Look::Nothing
    }

    /// Carries out [`Queue::receive`](crate::Queue::receive).
    pub(crate) fn receive(
        &mut self,
        max: usize,
        mut take: impl FnMut(&Received<'_>) -> bool,
    ) -> usize {
        let (mut taken, mut bytes) = (0, 0);
        // Datagrams that are too long count too, so that a flood of them ends the call.
        let mut too_long = 0;
        while taken + too_long < max {
            if self.rest.is_none() && self.refill() != Look::Message {
                break;
            }
            let Receiving { buffer, rest, identifications, mtu, .. } = self;
            let Some(of) = rest else { break };
            let left = &buffer[of.done..of.receipt.len];
            let transport = &left[..left.len().min(of.receipt.segment)];
            let l3_headers = usize::from(of.template.len - of.template.l3_offset);
            if l3_headers + transport.len() > *mtu {
                pass_over(rest, transport.len());
                too_long += 1;
                continue;
            }
            let mut head = [0; HEAD];
            let len = of.template.emit(&mut head, transport.len());
            let has_good_icrc = identify(&mut head, &of.template, transport, identifications);
            if !take(&Received { headers: &head[..len], transport, has_good_icrc }) {
                break;
            }
            taken += 1;
            bytes += transport.len();
            pass_over(rest, transport.len());
        }
        if too_long > 0 {
            self.counters.rx_too_long.add(too_long as u64);
        }
        if taken > 0 {
            self.counters.rx_datagrams.add(taken as u64);
            self.counters.rx_bytes.add(bytes as u64);
        }
        taken
    }

    /// Looks for a message: each eighth time at all sockets, otherwise at the one of the last
    /// message. While that was a single message, each look that finds nothing is followed by one at
    /// all sockets.
    fn refill(&mut self) -> Look {
        self.looks = (self.looks + 1) % LOOKS;
        let is_whole = self.looks == 0;
        let look = self.look(is_whole);
        if look == Look::Nothing && self.is_alone && !is_whole {
            self.looks = LOOKS - 1;
        }
        look
    }

    /// Reads a message from a socket: if the look is whole, from the next one that has a message,
    /// otherwise from the same as last time.
    fn look(&mut self, is_whole: bool) -> Look {
        let Receiving {
            sockets,
            mac,
            counters,
            peers,
            buffer,
            control,
            rest,
            last,
            is_alone,
            overflows,
            ..
        } = self;
        let count = if is_whole { sockets.len() } else { sockets.len().min(1) };
        let (mut idle, mut nothings) = (0, 0);
        while idle < count {
            let at = (*last + usize::from(is_whole) + idle) % sockets.len();
            let socket = &sockets[at];
            match socket.receive(buffer, control) {
                Ok(Some(receipt)) if receipt.len > 0 && receipt.segment > 0 => {
                    if let Some(total) = receipt.overflow {
                        let more = total.wrapping_sub(overflows[at]);
                        overflows[at] = total;
                        counters.rx_no_room.add(more.into());
                    }
                    peers.note(receipt.from);
                    let template = headers(&receipt, socket.ip().into(), *mac);
                    *rest = Some(Rest { receipt, template, done: 0 });
                    *is_alone = std::mem::replace(last, at) != at;
                    return Look::Message;
                }
                Err(Errno::EAGAIN) => idle += 1,
                // An empty datagram, or an error. A datagram may wait behind it, and no descriptor
                // would report that again.
                nothing => {
                    counters.rx_errors.add(u64::from(nothing.is_err()));
                    (idle, nothings, *last) = (0, nothings + 1, at);
                    if nothings == NOTHINGS_MAX {
                        return Look::GivenUp;
                    }
                }
            }
        }
        Look::Nothing
    }
}

/// Takes a datagram of this length from the front of the rest of a message.
fn pass_over(rest: &mut Option<Rest>, len: usize) {
    *rest = rest.map(|of| Rest { done: of.done + len, ..of }).filter(|of| of.done < of.receipt.len);
}

/// Returns the headers for the datagrams of a message.
fn headers(receipt: &Receipt, dst: Gid, dst_mac: Mac) -> HeaderTemplate {
    let from = receipt.from.ip();
    let encap = Encap {
        src_mac: mac_of(from),
        dst_mac,
        vlan: None,
        src: from.into(),
        dst,
        traffic_class: receipt.traffic_class,
        flow_label: 0,
        hop_limit: HOP_LIMIT,
        src_port: receipt.from.port(),
    };
    encap.template()
}

/// Writes the identification of an IPv4 packet to its headers: the one for which the packet's CRC
/// is right. Returns whether the CRC is right for any. For an IPv6 packet it writes nothing and
/// returns false.
fn identify(
    head: &mut [u8; HEAD],
    template: &HeaderTemplate,
    transport: &[u8],
    identifications: &mut Fields,
) -> bool {
    let (len, l3) = (usize::from(template.len), usize::from(template.l3_offset));
    let Some((covered, crc)) = transport.split_last_chunk::<ICRC_LEN>() else { return false };
    let Some((bth, rest)) = covered.split_at_checked(Bth::LEN) else { return false };
    if len - l3 != Ipv4::LEN + Udp::LEN {
        return false;
    }
    head[len..len + Bth::LEN].copy_from_slice(bth);
    let Some(sum) = Icrc::of(&head[l3..len + Bth::LEN]) else { return false };
    let change = sum.and(rest).0 ^ u32::from_le_bytes(*crc);
    if change == 0 {
        return true;
    }
    let after = len - l3 - 6 + covered.len();
    let Some(identification) = identifications.before(after).find(change) else { return false };
    head[l3 + 4..l3 + 6].copy_from_slice(&identification.to_be_bytes());
    let sum = u16::from_be_bytes([head[l3 + 10], head[l3 + 11]]);
    // RFC 1624, equation 3; the old value of the field is 0.
    let (sum, carry) = (!sum).overflowing_add(identification);
    let sum = !(sum + u16::from(carry));
    head[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    true
}
