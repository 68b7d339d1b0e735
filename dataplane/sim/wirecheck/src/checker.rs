//! The checker: the state of each queue pair, and the rules that apply to every packet.

use crate::datagrams::Datagrams;
use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{CNP, Kind, SELECTIVE_ACK, Seen, Shape, bitmap_of, read};
use crate::migration::{Migration, Route, TimedRoute};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::unreliable::Sender;

/// Transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connected.
    Reliable,
    /// Unreliable connected.
    Unreliable,
    /// Unreliable datagram.
    Datagram,
    /// Extended reliable connected, the end that sends requests.
    Initiator,
    /// Extended reliable connected, the end that answers them.
    Target,
    /// Reliable datagram: an end-to-end context, with the requests and responses of all its queue
    /// pairs.
    Context,
}

/// Parameters of a queue pair, as its owner has set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Transport service.
    pub service: Service,
    /// QPN of the queue pair.
    pub qpn: u32,
    /// IP address of the queue pair; IPv4 as the mapped IPv6 address.
    pub addr: [u8; 16],
    /// QPN of its peer, for an end-to-end context the number of its peer; not used for datagrams.
    pub dest_qpn: u32,
    /// IP address of its peer; not used for datagrams.
    pub dest_addr: [u8; 16],
    /// P_Key of its packets.
    pub pkey: u16,
    /// Payload of a full packet, in bytes.
    pub mtu: u32,
    /// PSN of its first packet.
    pub first_psn: u32,
    /// PSN of its peer's first packet.
    pub expected_psn: u32,
    /// READ and ATOMIC requests that it may have outstanding.
    pub max_reads: u32,
    /// Timer code of its RNR NAKs.
    pub rnr_timer: u8,
    /// ACK timeout in nanoseconds, if it has one.
    pub timeout_ns: Option<u64>,
    /// Least time between two CNPs, in nanoseconds.
    pub cnp_gap_ns: u64,
    /// Both ends have agreed on selective repeat.
    pub selective_repeat: bool,
    /// Silence of its peer after which it may send a keepalive, in nanoseconds; `None` means never.
    pub keepalive_ns: Option<u64>,
}

/// Identifier of a queue pair in a [`Checker`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Watched(usize);

/// Counts of what a queue pair has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Request packets that were sent again.
    pub repeated: u64,
    /// Times that the requester went back to an earlier PSN.
    pub rewinds: u64,
    /// Sequence NAKs sent.
    pub naks: u64,
    /// RNR NAKs sent.
    pub rnr_naks: u64,
}

#[derive(Debug)]
enum Roles {
    Reliable(Box<(Requester, Responder)>),
    Sender(Sender),
}

#[derive(Debug)]
struct Watch {
    peer: Peer,
    roles: Roles,
    migration: Migration,
    has_ended: bool,
    /// While the send queue is being drained: number of messages that may still begin.
    held: Option<u8>,
    /// Packets with a mark that have come since the last CNP.
    marks: u64,
    /// Time of the last CNP.
    cnp_at: Option<u64>,
}

impl Watch {
    fn new(peer: Peer) -> Watch {
        let roles = match peer.service {
            Service::Reliable | Service::Initiator | Service::Target | Service::Context => {
                let mut requester =
                    Requester::new(peer.mtu, peer.first_psn, peer.max_reads, peer.timeout_ns);
                let mut responder = Responder::new(peer.mtu, peer.expected_psn, peer.rnr_timer);
                requester.keepalive_ns = peer.keepalive_ns;
                if peer.service == Service::Context {
                    requester.take_turns();
                    responder.datagrams = Some(Datagrams::default());
                }
                if peer.selective_repeat {
                    requester.repeat_selectively();
                    responder.hold_early();
                }
                Roles::Reliable(Box::new((requester, responder)))
            }
            _ => Roles::Sender(Sender::new(peer.mtu, peer.first_psn)),
        };
        let Peer { addr, dest_addr, pkey, .. } = peer;
        let migration = Migration::new(Route { addr, dest_addr, pkey });
        Watch { peer, roles, migration, has_ended: false, held: None, marks: 0, cnp_at: None }
    }

    /// Checks a CNP. Where it goes is the connection's peer, or the source of a datagram.
    fn check_cnp(&mut self, now_ns: u64, seen: &Seen) -> Result<(), Flaw> {
        let peer = &self.peer;
        if peer.service != Service::Datagram {
            ensure(seen.dest_qpn == peer.dest_qpn, Rule::QpNumber, seen.dest_qpn, peer.dest_qpn)?;
        }
        ensure(self.marks > 0, Rule::CnpWithoutMark, 0_u8, 1_u8)?;
        let since = self.cnp_at.map_or(u64::MAX, |at| now_ns - at);
        ensure(since >= peer.cnp_gap_ns, Rule::CnpTooSoon, since, peer.cnp_gap_ns)?;
        (self.marks, self.cnp_at) = (0, Some(now_ns));
        Ok(())
    }

    /// Checks the path of a packet and its MigReq. The path of a datagram is its address handle's.
    fn check_path(&mut self, seen: &Seen) -> Result<(), Flaw> {
        if self.peer.service == Service::Datagram {
            let peer = &self.peer;
            ensure(seen.src == peer.addr, Rule::Address, seen.src[15], peer.addr[15])?;
            ensure(seen.pkey == peer.pkey, Rule::Pkey, seen.pkey, peer.pkey)?;
            return ensure(seen.mig_req, Rule::MigReq, 0_u8, 1_u8);
        }
        if let Some(taken) = self.migration.sent(seen)?
            && let Roles::Reliable(roles) = &mut self.roles
        {
            roles.0.takes_other_path(taken.timeout_ns);
        }
        Ok(())
    }
}

/// Checks the packets of queue pairs.
#[derive(Debug, Default)]
pub struct Checker {
    watches: Vec<Watch>,
    slack_ns: u64,
}

impl Checker {
    /// A checker without any queue pairs.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Begins to check a queue pair that has sent and received nothing.
    pub fn watch(&mut self, peer: Peer) -> Watched {
        self.watches.push(Watch::new(peer));
        Watched(self.watches.len() - 1)
    }

    /// Begins a new use of the queue pair with these parameters.
    pub fn begin_again(&mut self, qp: Watched, peer: Peer) {
        self.watches[qp.0] = Watch::new(peer);
    }

    /// Notes that the queue pair must send nothing from now on.
    pub fn end(&mut self, qp: Watched) {
        self.watches[qp.0].has_ended = true;
    }

    /// Notes that the queue pair's owner has loaded an alternate path and re-armed it.
    pub fn rearm(&mut self, qp: Watched, primary: TimedRoute, alternate: TimedRoute) {
        let watch = &mut self.watches[qp.0];
        watch.migration.rearm(primary.route, alternate);
        if let Roles::Reliable(roles) = &mut watch.roles {
            roles.0.timeout = primary.timeout_ns;
        }
    }

    /// Notes that the queue pair's owner has loaded another alternate path, in any state.
    pub fn load_alternate(&mut self, qp: Watched, alternate: TimedRoute) {
        self.watches[qp.0].migration.load(alternate);
    }

    /// Notes that the queue pair has reported a migration, which no packet may show yet.
    pub fn migrated(&mut self, qp: Watched) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.0.migrated();
        }
    }

    /// Notes that the queue pair's owner has begun to drain the send queue, or has ended that. One
    /// message may already have begun without a packet sent.
    pub fn hold(&mut self, qp: Watched, is_held: bool) {
        self.watches[qp.0].held = is_held.then_some(1);
    }

    /// Notes that the queue pair's RNR NAKs carry another timer code from now on.
    pub fn set_rnr_timer(&mut self, qp: Watched, code: u8) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.1.set_rnr_timer(code);
        }
    }

    /// Sets the silence of its peer after which the queue pair may send a keepalive, in
    /// nanoseconds; `None` means never.
    pub fn set_keepalive(&mut self, qp: Watched, keepalive_ns: Option<u64>) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.0.keepalive_ns = keepalive_ns;
        }
    }

    /// Returns whether everything that the queue pair has sent is acknowledged, and no message is
    /// in progress.
    pub fn is_quiet(&self, qp: Watched) -> bool {
        match &self.watches[qp.0].roles {
            Roles::Reliable(roles) => roles.0.is_quiet(),
            Roles::Sender(sender) => sender.is_quiet(),
        }
    }

    /// Notes that the queue pair has refused a request for a reason other than its PSN, so that it
    /// may expect an earlier PSN than the packets received suggest.
    pub fn refused(&mut self, qp: Watched) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.1.is_exact = false;
        }
    }

    /// Sets the time by which timeouts may be late for reasons outside of the protocol.
    pub fn set_slack_ns(&mut self, slack_ns: u64) {
        self.slack_ns = slack_ns;
    }

    /// Notes that a packet with the mark of a congested switch is given to the queue pair.
    pub fn marked(&mut self, qp: Watched) {
        self.watches[qp.0].marks += 1;
    }

    /// Checks a frame that queue pair `qp` sends, as it is before the link can change it.
    ///
    /// # Errors
    /// The first rule that the frame breaks.
    pub fn sent(&mut self, qp: Watched, now_ns: u64, frame: &[u8]) -> Result<Seen, Flaw> {
        let seen = read(frame)?;
        let watch = &mut self.watches[qp.0];
        ensure(!watch.has_ended, Rule::SentAfterEnd, seen.psn, 0_u8)?;
        if seen.opcode == CNP {
            watch.check_cnp(now_ns, &seen)?;
            return Ok(seen);
        }
        let shape = shape_of(&seen)?;
        check_headers(&watch.peer, &seen)?;
        watch.check_path(&seen)?;
        let begins = shape.is_request() && shape.is_first && shape.kind != Kind::Resync;
        match &mut watch.roles {
            Roles::Reliable(roles) if shape.is_request() => {
                ensure(!roles.1.is_over, Rule::SentAfterEnd, seen.psn, 0_u8)?;
                let is_new = roles.0.sent(now_ns, self.slack_ns, &seen, &shape)?;
                if begins && is_new {
                    begin(&mut watch.held, &seen)?;
                }
            }
            Roles::Reliable(roles) => {
                roles.1.sent(now_ns, &seen, &shape, bitmap_of(frame, &seen))?;
            }
            Roles::Sender(sender) => {
                if begins {
                    begin(&mut watch.held, &seen)?;
                }
                sender.sent(&seen, &shape)?;
            }
        }
        Ok(seen)
    }

    /// Notes that `frame`, for which [`sent`](Checker::sent) returned `seen`, arrives undamaged at
    /// queue pair `qp`.
    pub fn arrived(&mut self, qp: Watched, now_ns: u64, seen: &Seen, frame: &[u8]) {
        let watch = &mut self.watches[qp.0];
        if seen.opcode == CNP {
            return;
        }
        watch.migration.arrived(seen);
        let Roles::Reliable(roles) = &mut watch.roles else { return };
        let Some(shape) = Shape::of(seen.opcode) else { return };
        roles.0.heard(now_ns);
        if shape.is_request() {
            roles.1.arrived(now_ns, seen, &shape);
        } else {
            roles.0.arrived(now_ns, seen, &shape, bitmap_of(frame, seen));
        }
    }

    /// Time of the last progress of the queue pair's requester, in nanoseconds; 0 means never.
    pub fn last_progress_ns(&self, qp: Watched) -> u64 {
        match &self.watches[qp.0].roles {
            Roles::Reliable(roles) => roles.0.last_progress,
            Roles::Sender(_) => 0,
        }
    }

    /// Counts of what the queue pair has sent in its current use.
    pub fn tally(&self, qp: Watched) -> Tally {
        match &self.watches[qp.0].roles {
            Roles::Reliable(roles) => Tally {
                repeated: roles.0.repeated,
                rewinds: roles.0.rewinds,
                naks: roles.1.naks,
                rnr_naks: roles.1.rnr_naks,
            },
            Roles::Sender(_) => Tally::default(),
        }
    }
}

/// Checks that a message may begin.
fn begin(held: &mut Option<u8>, seen: &Seen) -> Result<(), Flaw> {
    let Some(left) = held else { return Ok(()) };
    ensure(*left > 0, Rule::StartedInSqd, seen.psn, 0_u8)?;
    *left -= 1;
    Ok(())
}

fn shape_of(seen: &Seen) -> Result<Shape, Flaw> {
    Shape::of(seen.opcode).ok_or(Flaw::new(Rule::UnknownOpcode, seen.opcode, 0_u8))
}

/// Checks the header fields that all packets of a queue pair have in common.
fn check_headers(peer: &Peer, seen: &Seen) -> Result<(), Flaw> {
    let service = match peer.service {
        Service::Reliable => 0,
        Service::Unreliable => 1,
        Service::Context => 2,
        Service::Datagram => 3_u8,
        Service::Initiator | Service::Target => 5,
    };
    let is_agreed = peer.selective_repeat && seen.opcode == SELECTIVE_ACK;
    let is_of_service = is_agreed || seen.opcode >> 5 == service;
    ensure(is_of_service, Rule::Service, seen.opcode, service)?;
    let asks = shape_of(seen)?.is_request();
    let is_half = match peer.service {
        Service::Initiator => asks,
        Service::Target => !asks,
        _ => true,
    };
    ensure(is_half, Rule::HalfOnly, seen.opcode, service)?;
    if peer.service == Service::Datagram {
        return ensure(seen.src_qpn == peer.qpn, Rule::SourceQp, seen.src_qpn, peer.qpn);
    }
    if peer.service == Service::Context {
        return ensure(seen.eecn == peer.dest_qpn, Rule::OtherContext, seen.eecn, peer.dest_qpn);
    }
    ensure(seen.dest_qpn == peer.dest_qpn, Rule::QpNumber, seen.dest_qpn, peer.dest_qpn)
}
