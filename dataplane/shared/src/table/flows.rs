//! Flows: which frames raw QPs receive, as the control plane sets it and lcores read it.
//!
//! ```text
//!   frame ─▶ rules by priority ─▶ what the host itself needs ─▶ default flows ─▶ dropped
//!      └───▶ sniffers, a copy each
//! ```
//!
//! Invariants
//! - Lcores see one whole state of all flows; it never changes while they read it.
//! - The first rule that matches takes the frame. Rules of one priority have the order of their
//!   creation. Equal rules of equal priority share the frame: each of their QPs receives it.
//! - A sniffer takes nothing away.
//! - A frame that a QP of the port sends is for other domains' flows only, as if its own domain had
//!   none. So a program that forwards frames does not hear itself.
//!
//! Not here: what a rule compares ([`uroce_wire::flow`]); which frames are RoCE of the host's own,
//! which no flow but a sniffer sees (the engine's `rx`).

use crate::table::published::Published;
use crate::table::qp_table::Place;
use crate::table::qsbr::{InTurn, Turns};
use std::sync::Arc;
use uroce_transport::Pd;
use uroce_wire::Qpn;
use uroce_wire::flow::{FlowFields, FlowMatch};

/// Largest number of flows of an engine.
pub const MAX_FLOWS: usize = 1024;
/// Largest priority of a rule.
pub const MAX_FLOW_PRIORITY: u16 = 15;

/// What a flow takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowKind {
    /// Frames that match; a lower number is a higher priority.
    Rule(FlowMatch, u16),
    /// Those of the frames that match which no rule takes and the host does not need.
    Default(FlowMatch),
    /// Copies of all frames that the port receives and sends.
    Sniffer,
}

/// The number of a flow, by which it is destroyed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u64);

/// A flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// What it takes.
    pub kind: FlowKind,
    /// The port, counted from 0.
    pub port: usize,
    /// Number of the QP that receives the frames.
    pub qpn: Qpn,
    /// Protection domain of the QP.
    pub pd: Pd,
    /// Lcore and slot of the QP.
    pub place: Place,
}

impl Flow {
    /// Returns whether this is a rule that names what makes the host need a frame: ARP, or the
    /// protocol of the IP header.
    pub fn names_kind_of(&self, fields: &FlowFields) -> bool {
        matches!(self.kind, FlowKind::Rule(rule, _) if rule.names_kind_of(fields))
    }
}

/// The reason why a flow was not made or not destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Only raw QPs have flows.
    #[error("only raw queue pairs can have flows")]
    NotRaw,
    /// The QP is at another port, which this is, counted from 1.
    #[error("the queue pair is at port {0}, and gets no frame of another one")]
    OtherPort(u8),
    /// The engine has [`MAX_FLOWS`] flows.
    #[error("there are {MAX_FLOWS} flows")]
    Full,
    /// The priority is above [`MAX_FLOW_PRIORITY`].
    #[error("priority {0} is above {MAX_FLOW_PRIORITY}")]
    Priority(u16),
    /// No flow has this number.
    #[error("no such flow")]
    Unknown,
}

/// Flows in the order in which they are tried.
#[derive(Debug, Default)]
pub struct Flows {
    rules: Vec<Flow>,
    defaults: Vec<Flow>,
    sniffers: Vec<Flow>,
}

impl Flows {
    /// Returns the flows that take a frame of a port. `is_needed` is whether the host needs the
    /// frame, so that only a rule takes it. `sender` is the domain of the QP that sends the frame;
    /// `None` for a received one. Of frames that are sent a default flow takes multicast ones only.
    //= check W10 — rules by priority, then the host, then default flows
    //= check W13 — the sender's domain is left out before the order counts
    pub fn takers<'f>(
        &'f self,
        port: usize,
        fields: &FlowFields,
        is_needed: bool,
        sender: Option<Pd>,
    ) -> impl Iterator<Item = &'f Flow> + use<'f> {
        let is_asked = move |flow: &&Flow| flow.port == port && Some(flow.pd) != sender;
        let matches = |flow: &&Flow| match flow.kind {
            FlowKind::Rule(rule, _) => is_asked(flow) && rule.accepts(fields),
            _ => false,
        };
        let first = self.rules.iter().find(matches).map(|flow| flow.kind);
        let is_left = first.is_none() && !is_needed;
        let is_for_defaults = is_left && (sender.is_none() || fields.dst.is_multicast());
        let defaults = if is_for_defaults { &self.defaults[..] } else { &[] };
        let fields = *fields;
        let takes_rest = move |flow: &&Flow| match flow.kind {
            FlowKind::Default(rule) => is_asked(flow) && rule.accepts(&fields),
            _ => false,
        };
        let is_first = move |flow: &&Flow| is_asked(flow) && Some(flow.kind) == first;
        let rules = if first.is_some() { &self.rules[..] } else { &[] };
        rules.iter().filter(is_first).chain(defaults.iter().filter(takes_rest))
    }

    /// Returns the sniffers of a port.
    //= check W12 — a sniffer takes nothing away
    pub fn sniffers(&self, port: usize) -> impl Iterator<Item = &Flow> {
        self.sniffers.iter().filter(move |flow| flow.port == port)
    }
}

/// The flows as lcores see them.
#[derive(Debug)]
pub struct FlowTable {
    /// One place with all flows; empty if there are none.
    flows: Published<Flows>,
}

impl FlowTable {
    /// Makes a table without flows, read in these turns.
    pub fn new(turns: Arc<Turns>) -> FlowTable {
        FlowTable { flows: Published::new(1, turns) }
    }

    /// Returns the flows; `None` if there are none.
    pub fn get<'t>(&'t self, turn: &'t InTurn<'_>) -> Option<&'t Flows> {
        self.flows.get(0, turn)
    }
}

/// The control plane's flows.
#[derive(Debug)]
pub struct FlowBook {
    table: Arc<FlowTable>,
    /// In the order of their creation.
    flows: Vec<(FlowId, Flow)>,
    next: u64,
}

impl FlowBook {
    /// Makes the book of a table that has no flows.
    pub fn new(table: Arc<FlowTable>) -> FlowBook {
        FlowBook { table, flows: Vec::new(), next: 1 }
    }

    /// Makes a flow. When this returns, lcores see it.
    ///
    /// # Errors
    /// [`FlowError::Full`], [`FlowError::Priority`].
    pub fn add(&mut self, flow: Flow) -> Result<FlowId, FlowError> {
        if let FlowKind::Rule(_, priority) = flow.kind
            && priority > MAX_FLOW_PRIORITY
        {
            return Err(FlowError::Priority(priority));
        }
        if self.flows.len() >= MAX_FLOWS {
            return Err(FlowError::Full);
        }
        let id = FlowId(self.next);
        self.next += 1;
        self.flows.push((id, flow));
        self.publish();
        Ok(id)
    }

    /// Destroys a flow. When this returns, no lcore gives its QP another frame. Returns the flow.
    ///
    /// # Errors
    /// [`FlowError::Unknown`].
    pub fn remove(&mut self, id: FlowId) -> Result<Flow, FlowError> {
        let at = self.flows.iter().position(|(own, _)| *own == id).ok_or(FlowError::Unknown)?;
        let (_, flow) = self.flows.remove(at);
        self.publish();
        Ok(flow)
    }

    /// Destroys all flows of a QP, and returns the ports, counted from 0, that had a sniffer of it.
    pub fn forget(&mut self, qpn: Qpn) -> Vec<usize> {
        let of_qp = |flow: &Flow| flow.qpn == qpn;
        let gone: Vec<Flow> =
            self.flows.iter().map(|(_, flow)| *flow).filter(|flow| of_qp(flow)).collect();
        if !gone.is_empty() {
            self.flows.retain(|(_, flow)| !of_qp(flow));
            self.publish();
        }
        let sniffers = gone.iter().filter(|flow| flow.kind == FlowKind::Sniffer);
        sniffers.map(|flow| flow.port).collect()
    }

    /// Returns the port, counted from 0, of a flow of this QP at another port than this one.
    pub fn elsewhere(&self, qpn: Qpn, port: usize) -> Option<usize> {
        let is_elsewhere = |flow: &&Flow| flow.qpn == qpn && flow.port != port;
        self.flows.iter().map(|(_, flow)| flow).find(is_elsewhere).map(|flow| flow.port)
    }

    /// Returns whether a port, counted from 0, has a sniffer.
    pub fn is_sniffed(&self, port: usize) -> bool {
        self.flows.iter().any(|(_, flow)| flow.port == port && flow.kind == FlowKind::Sniffer)
    }

    fn publish(&self) {
        let mut flows = Flows::default();
        for (_, flow) in &self.flows {
            match flow.kind {
                FlowKind::Rule(..) => flows.rules.push(*flow),
                FlowKind::Default(_) => flows.defaults.push(*flow),
                FlowKind::Sniffer => flows.sniffers.push(*flow),
            }
        }
        // The sort keeps the order of creation within a priority.
        flows.rules.sort_by_key(|flow| match flow.kind {
            FlowKind::Rule(_, priority) => priority,
            _ => u16::MAX,
        });
        let flows = (!self.flows.is_empty()).then(|| Box::new(flows));
        drop(self.table.flows.replace(0, flows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::Mac;
    use uroce_wire::flow::FlowSpec;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn flow(qpn: u32, kind: FlowKind) -> Flow {
        let place = Place { index: qpn, owner: 0 };
        Flow { kind, port: 0, qpn: Qpn::new(qpn), pd: Pd(qpn), place }
    }

    fn to(mac: Mac, priority: u16) -> FlowKind {
        FlowKind::Rule(FlowMatch::new(&[FlowSpec::to_mac(mac)]).expect("a rule"), priority)
    }

    /// The QPs that receive a frame to `dst` of EtherType ARP.
    fn takers(table: &FlowTable, turns: &Turns, port: usize, dst: Mac, needed: bool) -> Vec<u32> {
        let mut frame = dst.0.to_vec();
        frame.extend([2, 0, 0, 0, 0, 9, 8, 6]);
        let fields = FlowFields::parse(&frame).expect("a header");
        let turn = turns.enter(0);
        let Some(flows) = table.get(&turn) else { return Vec::new() };
        flows.takers(port, &fields, needed, None).map(|flow| flow.qpn.value()).collect()
    }

    #[test] //= check W10 test
    fn the_best_priority_takes_the_frame_and_equal_rules_share_it() {
        let turns = Arc::new(Turns::new(1));
        let table = Arc::new(FlowTable::new(Arc::clone(&turns)));
        let mut book = FlowBook::new(Arc::clone(&table));
        let found = |dst, needed| takers(&table, &turns, 0, dst, needed);
        let group = Mac([1, 0, 0x5e, 1, 2, 3]);
        assert!(found(OWN, false).is_empty());
        let all = FlowMatch::new(&[]).unwrap();
        let groups = FlowMatch::new(&[FlowSpec::multicast()]).unwrap();
        book.add(flow(1, FlowKind::Default(all))).unwrap();
        book.add(flow(2, FlowKind::Default(groups))).unwrap();
        assert_eq!((found(OWN, false), found(group, false)), (vec![1], vec![1, 2]));
        assert!(found(OWN, true).is_empty(), "what the host needs is not left over");
        let low = book.add(flow(3, to(OWN, 5))).unwrap();
        assert_eq!(found(OWN, true), [3], "a rule takes it from the host");
        let high = book.add(flow(4, FlowKind::Rule(all, 1))).unwrap();
        assert_eq!(found(OWN, false), [4]);
        book.remove(high).unwrap();
        book.add(flow(5, FlowKind::Rule(all, 5))).unwrap();
        assert_eq!(found(OWN, false), [3], "the older one");
        assert_eq!(found(group, false), [5]);
        book.add(flow(6, to(OWN, 5))).unwrap();
        assert_eq!(found(OWN, false), [3, 6]);
        book.remove(low).unwrap();
        assert_eq!(found(OWN, false), [5], "the other rule of this priority is older now");
        assert!(takers(&table, &turns, 1, OWN, false).is_empty(), "another port");
        assert_eq!(book.remove(low), Err(FlowError::Unknown));
        [1, 2, 5, 6].into_iter().for_each(|qpn| drop(book.forget(Qpn::new(qpn))));
        assert!(table.get(&turns.enter(0)).is_none());
    }

    #[test] //= check W12 test
    fn a_sniffer_takes_nothing_away() {
        let turns = Arc::new(Turns::new(1));
        let table = Arc::new(FlowTable::new(Arc::clone(&turns)));
        let mut book = FlowBook::new(Arc::clone(&table));
        book.add(flow(1, FlowKind::Sniffer)).unwrap();
        book.add(flow(2, FlowKind::Sniffer)).unwrap();
        assert!(takers(&table, &turns, 0, OWN, false).is_empty());
        {
            let turn = turns.enter(0);
            let flows = table.get(&turn).expect("flows");
            assert_eq!((flows.sniffers(0).count(), flows.sniffers(1).count()), (2, 0));
        }
        assert_eq!(book.forget(Qpn::new(1)), [0]);
        assert!(book.is_sniffed(0) && !book.is_sniffed(1));
        assert!(book.forget(Qpn::new(1)).is_empty());
    }

    #[test] //= check W13 test
    fn a_sent_frame_is_heard_by_other_domains_only() {
        const FAR: Mac = Mac([2, 9, 9, 9, 9, 9]);
        let all = FlowMatch::new(&[]).unwrap();
        let rule = |priority| FlowKind::Rule(all, priority);
        let default = FlowKind::Default(all);
        /// Flows of QPs 1, 2 … in the domains 1, 2 …; destination, whether the host needs it, the
        /// sender's domain, and the QPs that hear it.
        type Row<'a> = (&'a [FlowKind], Mac, bool, u32, &'a [u32]);
        let rows: &[Row<'_>] = &[
            (&[to(FAR, 1)], FAR, false, 2, &[1]),
            (&[to(FAR, 1)], FAR, false, 1, &[]),
            (&[to(FAR, 1)], Mac::BROADCAST, false, 2, &[]),
            (&[default], Mac::BROADCAST, false, 2, &[1]),
            (&[default], Mac::BROADCAST, false, 1, &[]),
            (&[default], FAR, false, 2, &[]),
            (&[FlowKind::Sniffer], Mac::BROADCAST, false, 2, &[]),
            // The own domain's rule is first for received frames, whatever its priority.
            (&[rule(0), rule(5)], FAR, false, 1, &[2]),
            (&[rule(0), rule(5)], FAR, false, 2, &[1]),
            (&[rule(0), rule(5)], FAR, false, 3, &[1]),
            (&[rule(3), rule(3)], FAR, false, 1, &[2]),
            (&[rule(3), rule(3), rule(3)], FAR, false, 2, &[1, 3]),
            (&[rule(0), default], Mac::BROADCAST, false, 1, &[2]),
            (&[rule(0), default], FAR, false, 1, &[]),
            // What the host needs is for no default flow.
            (&[default], Mac::BROADCAST, true, 2, &[]),
            (&[default, rule(0)], Mac::BROADCAST, true, 3, &[2]),
        ];
        for &(kinds, dst, is_needed, sender, expected) in rows {
            let turns = Arc::new(Turns::new(1));
            let table = Arc::new(FlowTable::new(Arc::clone(&turns)));
            let mut book = FlowBook::new(Arc::clone(&table));
            for (qpn, kind) in (1..).zip(kinds) {
                book.add(flow(qpn, *kind)).unwrap();
            }
            let frame = [&dst.0[..], &[2, 0, 0, 0, 0, 9, 8, 6]].concat();
            let fields = FlowFields::parse(&frame).expect("a header");
            let turn = turns.enter(0);
            let flows = table.get(&turn).expect("flows");
            let heard = flows.takers(0, &fields, is_needed, Some(Pd(sender)));
            let heard: Vec<u32> = heard.map(|flow| flow.qpn.value()).collect();
            assert_eq!(heard, expected, "{kinds:?} {dst} {is_needed} {sender}");
        }
    }

    #[test]
    fn flows_are_bounded() {
        let table = Arc::new(FlowTable::new(Arc::new(Turns::new(1))));
        let mut book = FlowBook::new(table);
        let high = to(OWN, MAX_FLOW_PRIORITY + 1);
        assert_eq!(book.add(flow(1, high)), Err(FlowError::Priority(MAX_FLOW_PRIORITY + 1)));
        for _ in 0..MAX_FLOWS {
            book.add(flow(1, to(OWN, MAX_FLOW_PRIORITY))).unwrap();
        }
        assert_eq!(book.add(flow(1, FlowKind::Sniffer)), Err(FlowError::Full));
    }
}
