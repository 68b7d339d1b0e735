//! Resources of a session: queue pairs, their memory, and the other end's.
//!
//! A worker is a queue pair with its part of the memory. If both ends send over XRC, it has another
//! queue pair, for the peer's requests. Over RD the connections are beside the queue pairs
//! ([`super::ee_contexts`]).

use super::ee_contexts::EeContexts;
use super::end::End;
use super::flow::Flow;
use super::layout::Layout;
use super::memory::Memory;
use super::qp::Qp;
use super::receives::Receives;
use super::request::{POLL_BATCH, QKEY, Way, poll};
use super::rest::Rest;
use super::watch::Watch;
use super::{Connected, PATIENCE, Peer, Word, group, out_of_step};
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node, PORT};
use crate::perf::plan::{Measure, Plan, Service};
use crate::perf::report::Counts;
use crate::pin::Side;
use crate::rendezvous::{Link, pause};
use std::time::Duration;
use uroce::{
    AddressVector, CompletionQueue, ConnectOptions, Gid, PathMtu, ProtectionDomain, QpCaps, QpInit,
    Qpn, RecvWr, RemoteBuffer, SharedReceiveQueue, Srqn, WorkCompletion,
};
use uroce_engine::clock::Clock;

/// Largest number of bytes of all memory regions together.
const MEMORY_MAX: usize = 4 << 30;
/// Time between two messages to the other end while this one is at work alone.
const AT_WORK: Duration = Duration::from_secs(1);
/// Largest number of work requests outstanding in a latency test. Unsignaled ones take places in
/// the send queue until a later one completes.
pub(super) const LATENCY_DEPTH: u32 = 128;

/// Queue pairs and memory of a session before they are connected.
pub(super) struct Workers {
    /// One of each worker.
    qps: Vec<Qp>,
    /// XRC targets beside them, where `qps` are initiators and the peer has initiators too.
    targets: Vec<Qp>,
    /// RD's connections.
    eecs: Option<EeContexts>,
    memory: Memory,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    rest: Option<Rest>,
    layout: Layout,
    /// Parameters of the queue pairs and their memory, for the other end.
    pub(super) ends: Vec<End>,
    pd: ProtectionDomain,
    ways: Vec<Way>,
}

impl Workers {
    /// Creates this end's queue pairs and memory, with slots of at least `least` bytes.
    pub(super) fn create(node: &Node, plan: &Plan, least: u32) -> Result<Self, BenchError> {
        let context = &node.context;
        let layout = Layout::new(plan, least);
        let workers = plan.qps as usize;
        if layout.bytes().saturating_mul(workers) > MEMORY_MAX {
            return Err(BenchError::usage("the messages of all queue pairs take over 4 GiB"));
        }
        let depth = match plan.measure {
            Measure::Bandwidth => plan.tx_depth,
            Measure::Latency => LATENCY_DEPTH,
        };
        let pd = context.allocate_pd();
        let rest = plan.local.events.then(|| Rest::new(context)).transpose()?;
        let create_cq = |capacity| match &rest {
            Some(rest) => rest.create_cq(context, capacity),
            None => context.create_cq(capacity).step("creating a CQ"),
        };
        let send_cq = create_cq(depth * plan.qps)?;
        let recv_cq = create_cq(plan.rx_depth * plan.qps)?;
        let domain = (plan.service == Service::Xrc).then(|| context.open_xrc_domain());
        let domain = domain.transpose().step("opening an XRC domain")?;
        let srq = match &domain {
            Some(domain) => Some(pd.create_xrc_srq(domain, &recv_cq, plan.rx_depth, 1)),
            None => plan.local.srq.then(|| pd.create_srq(plan.rx_depth, 1)),
        };
        let srq = srq.transpose().step("creating an SRQ")?;
        let eecs = EeContexts::create(node, plan)?;
        let caps = QpCaps {
            max_send_wr: depth,
            max_recv_wr: if srq.is_some() { 1 } else { plan.rx_depth },
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: plan.inline,
        };
        let memory = Memory::allocate(&pd, workers, layout.bytes(), plan.local.region_per_qp)?;
        let (mut qps, mut ends) = (Vec::new(), Vec::new());
        let init = QpInit { recv_cq: &recv_cq, caps, ..QpInit::new(&send_cq) };
        let init = init.qp_type(plan.service.qp_type());
        // XRC requests name the queue of the peer, so that no queue pair has one.
        let init = QpInit { srq: srq.as_ref().filter(|_| domain.is_none()), ..init };
        for index in 0..plan.queue_pairs() as usize {
            let memory = memory.remote(index % workers, layout.targets());
            if let Some(eecs) = &eecs {
                let (qp, end) = eecs.create_qp(node, index, &pd, &init, memory)?;
                ends.push(end);
                qps.push(qp);
                continue;
            }
            let qp = match &domain {
                Some(domain) if is_target(plan, node.side, index) => domain.create_target(),
                _ => pd.create_qp(&init),
            };
            let qp = qp.step("creating a QP")?;
            let mut end = End::of(node, &qp, memory, srq.as_ref())?;
            if plan.multicast && group::is_receiver(plan, node.side) {
                group::join(&qp, plan, &mut end)?;
            }
            ends.push(end);
            qps.push(Qp::Plain(qp));
        }
        let targets = qps.split_off(workers);
        let ways = Vec::new();
        Ok(Self { qps, targets, eecs, memory, send_cq, recv_cq, srq, rest, layout, ends, pd, ways })
    }

    /// Connects the queue pairs with the other end's.
    pub(super) fn connect(
        &mut self,
        node: &Node,
        plan: &Plan,
        connected: &Connected,
    ) -> Result<(), BenchError> {
        let fields = &plan.local.fields;
        let sends = plan.measure == Measure::Latency || Flow::of(plan, node.side).sends;
        let options = ConnectOptions {
            sgid_index: node.gid_index,
            traffic_class: fields.traffic_class,
            hop_limit: fields.hop_limit,
            service_level: fields.service_level,
            path_mtu: PathMtu::from_bytes(connected.mtu),
            timeout: plan.qp_timeout,
            retry_cnt: plan.retry_count,
            max_rd_atomic: connected.reads.min(plan.outstanding()),
            max_dest_rd_atomic: plan.outstanding(),
            static_rate: plan.rate.of_the_path(),
            rate_limit: plan.rate.of_the_queue_pair(),
            selective_repeat: plan.selective_repeat.then_some(true),
            ..ConnectOptions::default()
        };
        if let Some(eecs) = &self.eecs {
            return eecs.connect(&mut self.qps, connected, fields, &options);
        }
        let workers = self.qps.len();
        for (index, qp) in self.qps.iter_mut().chain(&mut self.targets).enumerate() {
            let Qp::Plain(qp) = qp else { continue };
            let end = &connected.remote[plan.partner(index)];
            let flow_label = fields.flow_label(index % workers);
            let options = ConnectOptions { flow_label, ..options };
            if plan.service == Service::Xrc && !is_target(plan, node.side, index) {
                self.ways.push(Way::Queue(Srqn::new(end.srqn)));
            }
            if plan.service != Service::Ud {
                qp.connect(&end.endpoint(), &options).step("connecting")?;
                continue;
            }
            qp.start_datagrams(QKEY, &options).step("starting")?;
            // An end that only receives needs no path to the other.
            if !sends {
                continue;
            }
            let path = AddressVector {
                sgid_index: node.gid_index,
                traffic_class: fields.traffic_class,
                flow_label,
                hop_limit: fields.hop_limit,
                service_level: fields.service_level,
                static_rate: plan.rate.of_the_path(),
                ..AddressVector::to(Gid(end.gid))
            };
            let handle = self.pd.create_ah(PORT, &path).step("making an address handle")?;
            self.ways.push(Way::Datagram { handle, qpn: Qpn::new(end.qpn) });
        }
        Ok(())
    }
}

/// Tells whether one of an end's XRC queue pairs serves requests, or else sends them.
fn is_target(plan: &Plan, side: Side, index: usize) -> bool {
    if plan.has_pairs() { index >= plan.qps as usize } else { side == Side::Server }
}

/// A connected session.
pub(super) struct Bench<'a, P> {
    // Dropped first, so that the lcore's own thread serves the requests of the other fields' drops.
    pub(super) drive: Drive,
    pub(super) qps: Vec<Qp>,
    /// They serve the peer's requests without our help.
    _targets: Vec<Qp>,
    _eecs: Option<EeContexts>,
    pub(super) memory: Memory,
    pub(super) remotes: Vec<RemoteBuffer>,
    /// Destinations of datagrams and of XRC requests, one per queue pair; empty for RC, UC and RD.
    pub(super) ways: Vec<Way>,
    /// Messages of the last size that did not arrive.
    pub(super) messages_lost: u64,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    pub(super) receives: Receives,
    /// Sleep on completion events, if the thread does not poll.
    pub(super) rest: Option<Rest>,
    pub(super) layout: Layout,
    /// Longest time without progress.
    pub(super) patience: Duration,
    pub(super) clock: Clock,
    pub(super) link: &'a mut P,
    pub(super) plan: &'a Plan,
    pub(super) side: Side,
    pub(super) connected: Connected,
}

impl<'a> Bench<'a, Link> {
    /// Creates this end's queue pairs and memory and connects them with the other end's.
    pub(super) fn connect(
        node: &Node,
        link: &'a mut Link,
        plan: &'a Plan,
    ) -> Result<Self, BenchError> {
        let mut workers = Workers::create(node, plan, 0)?;
        let connected = exchange(node, link, plan, &workers.ends)?;
        workers.connect(node, plan, &connected)?;
        Self::new(node, link, plan, workers, connected)
    }

    /// Waits until the other end has reached the same point.
    pub(super) fn barrier(&mut self) -> Result<(), BenchError> {
        self.link.send(&Word::Ready)?;
        loop {
            match self.hear("waiting for the other end to get ready")? {
                Word::Busy => (),
                Word::Ready => return Ok(()),
                _ => return Err(out_of_step()),
            }
        }
    }

    /// Waits until the other end has reached the same point, and prepares the CPUs for a
    /// measurement.
    pub(super) fn start(&mut self) -> Result<(), BenchError> {
        self.barrier()?;
        self.link.wake_each_other(self.side)
    }

    /// Waits for the other end's next message and drives the lcore meanwhile.
    pub(super) fn hear(&mut self, waiting: &'static str) -> Result<Word, BenchError> {
        let Self { link, drive, .. } = self;
        link.receive(waiting, || drive.wait())
    }

    /// Exchanges the last messages. Returns the number of packets that the other end retransmitted.
    pub(super) fn close(mut self, retransmissions: u64) -> Result<u64, BenchError> {
        self.link.send(&Word::Closing { retransmissions })?;
        match self.hear("waiting for the other end's report")? {
            Word::Closing { retransmissions } => Ok(retransmissions),
            _ => Err(out_of_step()),
        }
    }
}

impl<'a, P: Peer> Bench<'a, P> {
    /// Creates a session over connected queue pairs. The calling thread drives the lcore.
    pub(super) fn new(
        node: &Node,
        peer: &'a mut P,
        plan: &'a Plan,
        workers: Workers,
        connected: Connected,
    ) -> Result<Self, BenchError> {
        let Workers {
            qps, targets, eecs, memory, send_cq, recv_cq, srq, rest, layout, ways, ..
        } = workers;
        let remote = |worker| connected.remote[plan.partner(worker)].remote();
        let silence = plan.silence().max(connected.silence);
        Ok(Self {
            drive: node.drive()?,
            remotes: (0..qps.len()).map(remote).collect(),
            receives: Receives::new(srq, qps.len(), plan.rx_depth),
            patience: PATIENCE.saturating_add(silence),
            rest,
            ways,
            messages_lost: 0,
            qps,
            _targets: targets,
            _eecs: eecs,
            memory,
            send_cq,
            recv_cq,
            layout,
            clock: Clock::new(),
            link: peer,
            plan,
            side: node.side,
            connected,
        })
    }

    /// Checks at intervals for the number of messages that the other end has sent in all.
    #[inline]
    pub(super) fn look(
        &mut self,
        watch: &mut Watch,
        progress: u64,
    ) -> Result<Option<u64>, BenchError> {
        watch.turn(progress, || self.link.sent())
    }

    /// Runs one turn of the lcore before a poll, unless the thread sleeps on events.
    #[inline]
    pub(super) fn turn(&mut self) {
        if self.rest.is_none() {
            self.drive.turn();
        }
    }

    /// Called after a poll that has found nothing: sleeps with `-e`.
    #[inline]
    pub(super) fn rest(&mut self, watch: &mut Watch) -> Result<(), BenchError> {
        let Some(rest) = &mut self.rest else { return Ok(()) };
        watch.hurry();
        rest.idle([&self.send_cq, &self.recv_cq])
    }

    /// Posts a receive request to a worker's queue, or to the one that all share.
    pub(super) fn post_receive(
        &mut self,
        worker: usize,
        range: std::ops::Range<usize>,
        id: u64,
    ) -> Result<(), BenchError> {
        let target = [self.memory.slice(worker, range)?];
        self.receives.post(worker, &mut self.qps, &[RecvWr::new(&target).id(id)])
    }

    /// Posts receive requests for whole slots up to the depth of each queue.
    pub(super) fn post_receives(&mut self) -> Result<(), BenchError> {
        let range = self.layout.receive(0, self.plan.size_max());
        for queue in 0..self.receives.queues() {
            let target = [self.memory.slice(queue, range.clone())?];
            let request = RecvWr::new(&target).id(queue as u64);
            self.receives.fill(queue, &mut self.qps, request, self.plan.receive_list())?;
        }
        Ok(())
    }

    /// Polls completions of the send queues until there were `count`, and leaves later ones in the
    /// queue. Meanwhile the other end is told now and then that this one is at work.
    pub(super) fn await_sends(&mut self, count: u64) -> Result<(), BenchError> {
        let mut done = 0;
        let mut completions = [WorkCompletion::default(); POLL_BATCH];
        let mut watch = Watch::new(self.clock, self.patience);
        let mut told = self.clock.now();
        while done < count {
            self.drive.turn();
            let left =
                usize::try_from(count - done).map_or(POLL_BATCH, |left| left.min(POLL_BATCH));
            let polled = poll(&self.send_cq, &mut completions[..left], self.plan.operation)?;
            done += polled.len() as u64;
            watch.turn(done, || {
                let now = self.clock.now();
                if now - told > AT_WORK.as_nanos() as u64 {
                    told = now;
                    self.link.tell_busy()?;
                }
                Ok(None::<()>)
            })?;
        }
        Ok(())
    }

    /// Returns what this end has counted beside the figures.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            receive_posts: self.receives.posts,
            events: self.rest.as_ref().map_or(0, |rest| rest.events),
        }
    }
}

/// Exchanges path MTU, queue pairs and memory with the other end.
fn exchange(
    node: &Node,
    link: &mut Link,
    plan: &Plan,
    ends: &[End],
) -> Result<Connected, BenchError> {
    let (largest, local) = (largest_mtu(node, plan.mtu)?, ends.to_vec());
    link.send(&Word::Setup { mtu: largest, ends: local.clone(), silence: plan.silence() })?;
    match link.receive("waiting for the other end's queue pairs", pause)? {
        Word::Setup { mtu, ends, silence }
            if ends.len() == local.len() && PathMtu::from_bytes(mtu).is_some() =>
        {
            let reads = plan.outstanding();
            Ok(Connected { mtu: mtu.min(largest), reads, local, remote: ends, silence })
        }
        _ => Err(out_of_step()),
    }
}

/// Returns the requested path MTU, or the port's largest if none is requested. An error if it does
/// not fit.
pub(super) fn largest_mtu(node: &Node, wanted: Option<u32>) -> Result<u32, BenchError> {
    let port = node.context.ports().into_iter().next();
    let largest = port.and_then(|port| port.max_path_mtu).map_or(0, PathMtu::bytes);
    match wanted.unwrap_or(largest) {
        mtu if (1..=largest).contains(&mtu) => Ok(mtu),
        mtu => Err(BenchError::usage(format!(
            "a path MTU of {mtu} does not fit the port, which carries {largest}: see --port-mtu"
        ))),
    }
}
