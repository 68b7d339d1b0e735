//! Parser of rtnetlink's messages on network interfaces and addresses.
//!
//! Written by hand, because a port needs only seven attributes of two messages. All other
//! attributes and messages are skipped by their length.
//!
//! Invariants
//! - No input causes a panic, and every step consumes at least one byte.

use std::net::IpAddr;

use uroce_wire::Mac;

use crate::path::prefix::IpPrefix;

/// Bytes of `nlmsghdr`, `ifinfomsg`, `ifaddrmsg` and `rtattr`.
const HEADER: usize = 16;
const IF_INFO: usize = 16;
const IF_ADDR: usize = 8;
const ATTRIBUTE: usize = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// The upper bits of an attribute's type are flags.
const TYPE_MASK: u16 = 0x3fff;

const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const IFA_F_DADFAILED: u32 = 8;
const IFA_F_TENTATIVE: u32 = 0x40;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Kind of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dump {
    Links,
    Addresses,
}

/// Builds the request for a dump. The answers carry `sequence`.
pub(super) fn dump(what: Dump, sequence: u32) -> Vec<u8> {
    let (kind, body) = match what {
        Dump::Links => (RTM_GETLINK, IF_INFO),
        Dump::Addresses => (RTM_GETADDR, IF_ADDR),
    };
    let mut bytes = ((HEADER + body) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // Zero means any sender, family and interface.
    bytes.resize(HEADER + body, 0);
    bytes
}

/// A message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An interface was added or changed, or is part of a dump.
    Link(Link),
    /// The interface with this index was removed.
    LinkGone(u32),
    /// The interface with this index has this address and may use it.
    Address(u32, IpPrefix),
    /// The interface with this index does not have the address, or may not use it yet.
    AddressGone(u32, IpAddr),
    /// The dump with this sequence number is complete.
    Done(u32),
    /// The dump with this sequence number failed or was interrupted by a change, and must be
    /// repeated.
    Broken(u32),
}

/// State of an interface in a message. `None`: the message does not contain the attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    /// The interface is switched on and has a carrier.
    pub(super) up: bool,
    pub(super) name: Option<String>,
    pub(super) mac: Option<Mac>,
    pub(super) mtu: Option<u32>,
}

/// Returns the relevant messages in a datagram.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> {
    let next = move || {
        let len = u32_at(bytes, 0)? as usize;
        let message = bytes.get(..len).filter(|message| message.len() >= HEADER)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    };
    std::iter::from_fn(next).flat_map(|message| {
        let flags = u16_at(message, 6).unwrap_or(0);
        let sequence = u32_at(message, 8).unwrap_or(0);
        let interrupted = flags & NLM_F_DUMP_INTR != 0;
        [interrupted.then_some(Message::Broken(sequence)), parse(message)].into_iter().flatten()
    })
}

fn parse(message: &[u8]) -> Option<Message> {
    let kind = u16_at(message, 4)?;
    let sequence = u32_at(message, 8)?;
    let body = &message[HEADER..];
    match kind {
        NLMSG_DONE => Some(Message::Done(sequence)),
        NLMSG_ERROR => Some(Message::Broken(sequence)),
        RTM_NEWLINK => link(body).map(Message::Link),
        RTM_DELLINK => link(body).map(|link| Message::LinkGone(link.index)),
        RTM_NEWADDR => address(body),
        RTM_DELADDR => match address(body)? {
            Message::Address(index, own) => Some(Message::AddressGone(index, own.address())),
            gone => Some(gone),
        },
        _ => None,
    }
}

fn link(body: &[u8]) -> Option<Link> {
    let flags = u32_at(body, 8)?;
    let running = IFF_UP | IFF_LOWER_UP;
    let up = flags & running == running;
    let mut link = Link { index: u32_at(body, 4)?, up, ..Link::default() };
    for (kind, value) in attributes(body.get(IF_INFO..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(Mac),
            IFLA_MTU => link.mtu = u32_at(value, 0),
            _ => {}
        }
    }
    Some(link)
}

fn address(body: &[u8]) -> Option<Message> {
    let (family, len, flags) = (*body.first()?, *body.get(1)?, *body.get(2)?);
    let index = u32_at(body, 4)?;
    let (mut peer, mut local, mut flags) = (None, None, u32::from(flags));
    for (kind, value) in attributes(body.get(IF_ADDR..)?) {
        match kind {
            IFA_ADDRESS => peer = ip(family, value),
            IFA_LOCAL => local = ip(family, value),
            IFA_FLAGS => flags = u32_at(value, 0).unwrap_or(flags),
            _ => {}
        }
    }
    // If both are present, the other one belongs to the far end of a point-to-point link.
    let address = local.or(peer)?;
    if flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0 {
        return Some(Message::AddressGone(index, address));
    }
    Some(Message::Address(index, IpPrefix::new(address, len).ok()?))
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

fn text(value: &[u8]) -> Option<String> {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    String::from_utf8(value.to_vec()).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
