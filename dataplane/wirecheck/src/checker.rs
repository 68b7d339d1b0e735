//! The checker: one entry for each queue pair, and the rules that hold for every packet.

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Seen, Shape, read};
use crate::migration::{Migration, Route, TimedRoute};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::unreliable::Sender;

/// The service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connected.
    Reliable,
    /// Unreliable connected.
    Unreliable,
    /// Unreliable datagram.
    Datagram,
}

/// A queue pair as its owner has set it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its service.
    pub service: Service,
    /// Its number.
    pub qpn: u32,
    /// Its address.
    pub addr: [u8; 16],
    /// The number of its peer; not for datagrams.
    pub dest_qpn: u32,
    /// The address of its peer; not for datagrams.
    pub dest_addr: [u8; 16],
    /// Its P_Key.
    pub pkey: u16,
    /// Payload of a full packet.
    pub mtu: u32,
    /// PSN of its first packet.
    pub first_psn: u32,
    /// PSN of its peer's first packet.
    pub expected_psn: u32,
    /// READ and ATOMIC requests it may have outstanding.
    pub max_reads: u32,
    /// Timer code in its RNR NAKs.
    pub rnr_timer: u8,
    /// Its ACK timeout, if it has one.
    pub timeout_ns: Option<u64>,
}

/// The number of a queue pair in a [`Checker`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Watched(usize);

/// What a queue pair has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Request packets sent again.
    pub repeated: u64,
    /// Times that sending went back.
    pub rewinds: u64,
    /// Sequence NAKs.
    pub naks: u64,
    /// RNR NAKs.
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
    /// So many messages may still begin, if the send queue is drained.
    held: Option<u8>,
}

impl Watch {
    fn new(peer: Peer) -> Watch {
        let roles = match peer.service {
            Service::Reliable => Roles::Reliable(Box::new((
                Requester::new(peer.mtu, peer.first_psn, peer.max_reads, peer.timeout_ns),
                Responder::new(peer.mtu, peer.expected_psn, peer.rnr_timer),
            ))),
            _ => Roles::Sender(Sender::new(peer.mtu, peer.first_psn)),
        };
        let Peer { addr, dest_addr, pkey, .. } = peer;
        let migration = Migration::new(Route { addr, dest_addr, pkey });
        Watch { peer, roles, migration, has_ended: false, held: None }
    }

    /// The path that a packet takes, and its MigReq; those of a datagram are its handle's.
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

/// Watches the packets of queue pairs.
#[derive(Debug, Default)]
pub struct Checker {
    watches: Vec<Watch>,
    slack_ns: u64,
}

impl Checker {
    /// One that watches nothing yet.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Begins to watch a queue pair that has sent and received nothing.
    pub fn watch(&mut self, peer: Peer) -> Watched {
        self.watches.push(Watch::new(peer));
        Watched(self.watches.len() - 1)
    }

    /// The queue pair begins a new life under these terms.
    pub fn begin_again(&mut self, qp: Watched, peer: Peer) {
        self.watches[qp.0] = Watch::new(peer);
    }

    /// The queue pair must send nothing from now on.
    pub fn end(&mut self, qp: Watched) {
        self.watches[qp.0].has_ended = true;
    }

    /// The queue pair's owner has loaded an alternate path and re-armed it.
    pub fn rearm(&mut self, qp: Watched, primary: TimedRoute, alternate: TimedRoute) {
        let watch = &mut self.watches[qp.0];
        watch.migration.rearm(primary.route, alternate);
        if let Roles::Reliable(roles) = &mut watch.roles {
            roles.0.timeout = primary.timeout_ns;
        }
    }

    /// The queue pair's owner has loaded another alternate path, in whatever state.
    pub fn load_alternate(&mut self, qp: Watched, alternate: TimedRoute) {
        self.watches[qp.0].migration.load(alternate);
    }

    /// The queue pair has told its owner of a migration, of which the wire may show nothing yet.
    pub fn migrated(&mut self, qp: Watched) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.0.has_cause = true;
        }
    }

    /// The queue pair's owner has begun to drain the send queue, or lets it go on. One message may
    /// have been begun of which nothing could leave yet.
    pub fn hold(&mut self, qp: Watched, is_held: bool) {
        self.watches[qp.0].held = is_held.then_some(1);
    }

    /// The queue pair's RNR NAKs carry another timer code from now on.
    pub fn set_rnr_timer(&mut self, qp: Watched, code: u8) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.1.set_rnr_timer(code);
        }
    }

    /// Is everything acknowledged that the queue pair has sent, and no message in the middle?
    pub fn is_quiet(&self, qp: Watched) -> bool {
        match &self.watches[qp.0].roles {
            Roles::Reliable(roles) => roles.0.is_quiet(),
            Roles::Sender(sender) => sender.is_quiet(),
        }
    }

    /// The queue pair has refused a request for another reason than its PSN, so it may expect less
    /// than what has arrived.
    pub fn refused(&mut self, qp: Watched) {
        if let Roles::Reliable(roles) = &mut self.watches[qp.0].roles {
            roles.1.is_exact = false;
        }
    }

    /// Timeouts may be late by this much for reasons outside of the protocol.
    pub fn set_slack_ns(&mut self, slack_ns: u64) {
        self.slack_ns = slack_ns;
    }

    /// A frame leaves queue pair `qp`, as it stands before anything can happen to it.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn sent(&mut self, qp: Watched, now_ns: u64, frame: &[u8]) -> Result<Seen, Flaw> {
        let seen = read(frame)?;
        let watch = &mut self.watches[qp.0];
        ensure(!watch.has_ended, Rule::SentAfterEnd, seen.psn, 0_u8)?;
        let shape = shape_of(&seen)?;
        check_headers(&watch.peer, &seen)?;
        watch.check_path(&seen)?;
        let begins = shape.is_request() && shape.is_first;
        match &mut watch.roles {
            Roles::Reliable(roles) if shape.is_request() => {
                ensure(!roles.1.is_over, Rule::SentAfterEnd, seen.psn, 0_u8)?;
                let is_new = roles.0.sent(now_ns, self.slack_ns, &seen, &shape)?;
                if begins && is_new {
                    begin(&mut watch.held, &seen)?;
                }
            }
            Roles::Reliable(roles) => roles.1.sent(&seen, &shape)?,
            Roles::Sender(sender) => {
                if begins {
                    begin(&mut watch.held, &seen)?;
                }
                sender.sent(&seen, &shape)?;
            }
        }
        Ok(seen)
    }

    /// A frame of which [`sent`](Checker::sent) gave `seen` arrives at queue pair `qp` undamaged.
    pub fn arrived(&mut self, qp: Watched, now_ns: u64, seen: &Seen) {
        let watch = &mut self.watches[qp.0];
        watch.migration.arrived(seen);
        let Roles::Reliable(roles) = &mut watch.roles else { return };
        let Some(shape) = Shape::of(seen.opcode) else { return };
        if shape.is_request() {
            roles.1.arrived(seen, &shape);
        } else {
            roles.0.arrived(now_ns, seen, &shape);
        }
    }

    /// When the queue pair's requester has last come forward, in nanoseconds; 0: never.
    pub fn last_progress_ns(&self, qp: Watched) -> u64 {
        match &self.watches[qp.0].roles {
            Roles::Reliable(roles) => roles.0.last_progress,
            Roles::Sender(_) => 0,
        }
    }

    /// What the queue pair has sent in this life.
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

/// A message begins.
fn begin(held: &mut Option<u8>, seen: &Seen) -> Result<(), Flaw> {
    let Some(left) = held else { return Ok(()) };
    ensure(*left > 0, Rule::StartedInSqd, seen.psn, 0_u8)?;
    *left -= 1;
    Ok(())
}

fn shape_of(seen: &Seen) -> Result<Shape, Flaw> {
    Shape::of(seen.opcode).ok_or(Flaw::new(Rule::UnknownOpcode, seen.opcode, 0_u8))
}

/// What every packet of a queue pair has in common.
fn check_headers(peer: &Peer, seen: &Seen) -> Result<(), Flaw> {
    let service = match peer.service {
        Service::Reliable => 0,
        Service::Unreliable => 1,
        Service::Datagram => 3_u8,
    };
    ensure(seen.opcode >> 5 == service, Rule::Service, seen.opcode, service)?;
    if peer.service == Service::Datagram {
        return ensure(seen.src_qpn == peer.qpn, Rule::SourceQp, seen.src_qpn, peer.qpn);
    }
    ensure(seen.dest_qpn == peer.dest_qpn, Rule::QpNumber, seen.dest_qpn, peer.dest_qpn)
}
