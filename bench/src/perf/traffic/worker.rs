//! Resources of a session: queue pairs, their memory, and the other end's.
//!
//! A worker is a queue pair with its part of the memory. Its `local` slots are used by its own work
//! requests, its `target` slots are read, written or filled by the peer's. Measurements use one
//! slot of each kind, verification several, so that many messages can be in flight.

use super::watch::Watch;
use super::{Connected, PATIENCE, Peer, Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node, PORT};
use crate::perf::plan::{Measure, Operation, Plan, Service};
use crate::pin::Side;
use crate::rendezvous::{Link, pause};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use uroce::{
    AccessFlags, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Endpoint, GRH_LEN,
    Gid, MemoryRegion, MemorySlice, PathMtu, ProtectionDomain, Psn, Qkey, QpCaps, QpInit, Qpn,
    QueuePair, RecvWr, RemoteBuffer, Rkey, SendWr, Va, WorkCompletion,
};
use uroce_engine::clock::Clock;

/// Largest number of slots of a verified worker.
const SLOTS_MAX: u32 = 64;
/// Largest number of bytes of a verified worker's local slots; there is at least one slot.
const SLOT_BYTES_MAX: usize = 32 << 20;
/// Largest number of bytes of all memory regions together.
const MEMORY_MAX: usize = 4 << 30;
/// Alignment of slots: whole pages.
const SLOT_ALIGN: usize = 4096;
/// Largest number of work requests outstanding in a latency test. Unsignaled ones take places in
/// the send queue until a later one completes.
pub(super) const LATENCY_DEPTH: u32 = 128;
/// Q_Key of datagrams, the same as perftest's.
const QKEY: Qkey = Qkey(0x1111_1111);
/// Completions polled at once.
pub(super) const POLL_BATCH: usize = 64;

/// One end of a queue pair's connection, with the memory for the peer's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// GID.
    pub(crate) gid: [u8; 16],
    /// Queue pair number.
    pub(crate) qpn: u32,
    /// PSN of the first packet that it sends.
    pub(crate) psn: u32,
    /// Virtual address of the memory.
    pub(crate) va: u64,
    /// R_Key of the memory.
    pub(crate) rkey: u32,
    /// Length of the memory in bytes.
    pub(crate) len: u64,
}

impl End {
    fn of(
        node: &Node,
        qp: &QueuePair,
        region: &MemoryRegion,
        layout: &Layout,
    ) -> Result<Self, BenchError> {
        let endpoint = qp.endpoint(PORT, node.gid_index).step("our address")?;
        let memory = region.remote();
        let targets = layout.targets() as u64;
        Ok(Self {
            gid: endpoint.gid.0,
            qpn: endpoint.qpn.value(),
            psn: endpoint.psn.value(),
            va: memory.va.0 + targets,
            rkey: memory.rkey.0,
            len: memory.len - targets,
        })
    }

    fn remote(&self) -> RemoteBuffer {
        RemoteBuffer { va: Va(self.va), rkey: Rkey(self.rkey), len: self.len }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { gid: Gid(self.gid), qpn: Qpn::new(self.qpn), psn: Psn::new(self.psn) }
    }
}

/// Places of a worker's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of slots of each kind.
    pub(super) slots: u32,
    stride: usize,
    /// Bytes in front of a received message: for a datagram the place of its GRH.
    head: usize,
}

impl Layout {
    /// Creates a layout with slots of at least `least` bytes.
    fn new(plan: &Plan, least: u32) -> Self {
        let head = if plan.service == Service::Ud { GRH_LEN } else { 0 };
        let stride = (plan.size_max().max(least) as usize + head).next_multiple_of(SLOT_ALIGN);
        let fit = u32::try_from(SLOT_BYTES_MAX / stride).unwrap_or(u32::MAX);
        // Receive requests for all SENDs of a round are posted before the round.
        let received = if plan.operation == Operation::Send { plan.rx_depth } else { u32::MAX };
        let wanted = plan.tx_depth.max(16).min(received);
        let slots = if plan.verify { fit.min(wanted).clamp(1, SLOTS_MAX) } else { 1 };
        Self { slots, stride, head }
    }

    fn bytes(&self) -> usize {
        2 * self.slots as usize * self.stride
    }

    /// Returns the offset of the target slots.
    fn targets(&self) -> usize {
        self.slots as usize * self.stride
    }

    /// Returns local slot `index`, for our work requests.
    pub(super) fn local(&self, index: u32, size: u32) -> Range<usize> {
        let start = (index % self.slots) as usize * self.stride;
        start..start + size as usize
    }

    /// Returns target slot `index`, for the peer's requests.
    pub(super) fn target(&self, index: u32, size: u32) -> Range<usize> {
        let start = self.targets() + (index % self.slots) as usize * self.stride + self.head;
        start..start + size as usize
    }

    /// Returns target slot `index` with the bytes in front of a received message.
    pub(super) fn receive(&self, index: u32, size: u32) -> Range<usize> {
        let Range { start, end } = self.target(index, size);
        start - self.head..end
    }

    /// Returns the length in the completion of a received message with `size` bytes.
    pub(super) fn byte_len(&self, size: u32) -> u32 {
        size + self.head as u32
    }
}

/// Queue pairs and memory of a session before they are connected.
pub(super) struct Workers {
    qps: Vec<QueuePair>,
    regions: Vec<MemoryRegion>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    layout: Layout,
    /// Parameters of the queue pairs and their memory, for the other end.
    pub(super) ends: Vec<End>,
    pd: ProtectionDomain,
    ways: Vec<Way>,
}

/// Destination of a worker's datagrams.
pub(super) struct Way {
    handle: AddressHandle,
    qpn: Qpn,
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
        let send_cq = context.create_cq(depth * plan.qps).step("creating a CQ")?;
        let recv_cq = context.create_cq(plan.rx_depth * plan.qps).step("creating a CQ")?;
        let caps = QpCaps {
            max_send_wr: depth,
            max_recv_wr: plan.rx_depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: plan.inline,
        };
        let (mut qps, mut regions, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..workers {
            let init = QpInit { recv_cq: &recv_cq, caps, ..QpInit::new(&send_cq) };
            let init = init.qp_type(plan.service.qp_type());
            let qp = pd.create_qp(&init).step("creating a QP")?;
            let region = pd.allocate(layout.bytes(), AccessFlags::all());
            let region = region.step("registering memory")?;
            ends.push(End::of(node, &qp, &region, &layout)?);
            qps.push(qp);
            regions.push(region);
        }
        Ok(Self { qps, regions, send_cq, recv_cq, layout, ends, pd, ways: Vec::new() })
    }

    /// Connects the queue pairs with the other end's.
    pub(super) fn connect(
        &mut self,
        node: &Node,
        plan: &Plan,
        connected: &Connected,
    ) -> Result<(), BenchError> {
        let options = ConnectOptions {
            sgid_index: node.gid_index,
            path_mtu: PathMtu::from_bytes(connected.mtu),
            timeout: plan.qp_timeout,
            retry_cnt: plan.retry_count,
            max_rd_atomic: connected.reads.min(plan.outstanding),
            max_dest_rd_atomic: plan.outstanding,
            static_rate: plan.rate.of_the_path(),
            rate_limit: plan.rate.of_the_queue_pair(),
            selective_repeat: plan.selective_repeat.then_some(true),
            ..ConnectOptions::default()
        };
        for (qp, end) in self.qps.iter_mut().zip(&connected.remote) {
            if plan.service != Service::Ud {
                qp.connect(&end.endpoint(), &options).step("connecting")?;
                continue;
            }
            qp.start_datagrams(QKEY, &options).step("starting")?;
            let sgid_index = node.gid_index;
            let static_rate = plan.rate.of_the_path();
            let path = AddressVector { sgid_index, static_rate, ..AddressVector::to(Gid(end.gid)) };
            let handle = self.pd.create_ah(PORT, &path).step("making an address handle")?;
            self.ways.push(Way { handle, qpn: Qpn::new(end.qpn) });
        }
        Ok(())
    }
}

/// A connected session.
pub(super) struct Bench<'a, P> {
    // Dropped first, so that the lcore's own thread serves the requests of the other fields' drops.
    pub(super) drive: Drive,
    pub(super) qps: Vec<QueuePair>,
    pub(super) regions: Vec<MemoryRegion>,
    pub(super) remotes: Vec<RemoteBuffer>,
    /// Destinations of datagrams, one per queue pair; empty for other services.
    pub(super) ways: Vec<Way>,
    /// Messages of the last size that did not arrive.
    pub(super) messages_lost: u64,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    pub(super) layout: Layout,
    /// Number of posted receive requests per queue pair.
    pub(super) receives_posted: Vec<u32>,
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
        match self.hear("waiting for the other end to get ready")? {
            Word::Ready => Ok(()),
            _ => Err(out_of_step()),
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
        let Workers { qps, regions, send_cq, recv_cq, layout, ways, .. } = workers;
        Ok(Self {
            drive: node.drive()?,
            remotes: connected.remote.iter().map(End::remote).collect(),
            receives_posted: vec![0; qps.len()],
            ways,
            messages_lost: 0,
            qps,
            regions,
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

    /// Fills all memory with an arbitrary value.
    pub(super) fn fill(&self) -> Result<(), BenchError> {
        for region in &self.regions {
            region.fill(.., 0xa5).step("filling memory")?;
        }
        Ok(())
    }

    /// Posts receive requests for whole slots up to the depth of each queue pair.
    pub(super) fn post_receives(&mut self) -> Result<(), BenchError> {
        let range = self.layout.receive(0, self.plan.size_max());
        let workers = self.qps.iter_mut().zip(&self.regions).zip(&mut self.receives_posted);
        for (worker, ((qp, region), posted)) in workers.enumerate() {
            let target = [region.slice(range.clone()).step("a slice of memory")?];
            let request = RecvWr::new(&target).id(worker as u64);
            while *posted < self.plan.rx_depth {
                qp.post_recv(&request).step("posting a receive request")?;
                *posted += 1;
            }
        }
        Ok(())
    }

    /// Polls completions of the send queues until there were `count`, and leaves later ones in the
    /// queue.
    pub(super) fn await_sends(&mut self, count: u64) -> Result<(), BenchError> {
        let mut done = 0;
        let mut completions = [WorkCompletion::default(); POLL_BATCH];
        let deadline = self.clock.now() + PATIENCE.as_nanos() as u64;
        while done < count {
            self.drive.turn();
            let left =
                usize::try_from(count - done).map_or(POLL_BATCH, |left| left.min(POLL_BATCH));
            let polled = poll(&self.send_cq, &mut completions[..left], self.plan.operation)?;
            done += polled.len() as u64;
            if self.clock.now() > deadline {
                let waiting = "waiting for completions";
                return Err(BenchError::TimedOut { waiting, limit: PATIENCE });
            }
        }
        Ok(())
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
    link.send(&Word::Setup { mtu: largest, ends: local.clone() })?;
    match link.receive("waiting for the other end's queue pairs", pause)? {
        Word::Setup { mtu, ends } if ends.len() == local.len() => {
            let reads = plan.outstanding;
            Ok(Connected { mtu: mtu.min(largest), reads, local, remote: ends })
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

/// Operands of an atomic operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Operands {
    /// Value at which CMP_SWAP swaps.
    pub(super) compare: u64,
    /// Value that FETCH_ADD adds, or CMP_SWAP writes.
    pub(super) value: u64,
}

/// Builds the work request of a plan's operation. Only atomic operations use `operands`, only
/// datagrams `way`.
#[inline]
pub(super) fn work_request<'a>(
    plan: &Plan,
    local: &'a [MemorySlice<'a>; 1],
    remote: RemoteBuffer,
    way: Option<&'a Way>,
    operands: Operands,
) -> SendWr<'a> {
    let Operands { compare, value } = operands;
    let request = match (plan.operation, way) {
        (Operation::Write, _) => SendWr::write(local, remote),
        (Operation::Read, _) => SendWr::read(local, remote),
        (Operation::Send, None) => SendWr::send(local),
        (Operation::Send, Some(way)) => SendWr::send_to(local, &way.handle, way.qpn, QKEY),
        (Operation::FetchAdd, _) => SendWr::fetch_add(local, remote, value),
        (Operation::CompareSwap, _) => SendWr::compare_swap(local, remote, compare, value),
    };
    let copied = local[0].len() <= plan.inline as usize;
    match plan.operation {
        Operation::Write | Operation::Send if copied && plan.inline > 0 => request.inline(),
        _ => request,
    }
}

/// Polls completions. The first with an error is returned as the error.
#[inline]
pub(super) fn poll<'a>(
    cq: &CompletionQueue,
    completions: &'a mut [WorkCompletion],
    operation: Operation,
) -> Result<&'a [WorkCompletion], BenchError> {
    let count = cq.poll(completions).step("polling a CQ")?;
    let polled = &completions[..count];
    for completion in polled {
        if let Err(status) = completion.ok() {
            return Err(BenchError::Completion { operation: operation.name(), status });
        }
    }
    Ok(polled)
}

/// Returns the part of the peer's memory with its target slot `index`.
pub(super) fn remote_slot(
    layout: &Layout,
    remote: &RemoteBuffer,
    index: u32,
    size: u32,
) -> Result<RemoteBuffer, BenchError> {
    let start = layout.receive(index, size).start - layout.targets();
    remote.slice(start as u64, u64::from(size)).step("the peer's memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Measure;

    #[test]
    fn slots_do_not_overlap() {
        let plan = Plan { verify: true, ..Plan::new(Operation::Write, Measure::Bandwidth) };
        let layout = Layout::new(&plan, 0);
        let mut ranges: Vec<_> = (0..layout.slots)
            .flat_map(|slot| [layout.local(slot, 65536), layout.target(slot, 65536)])
            .collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert_eq!(ranges.last().map(|range| range.end), Some(layout.bytes()));
        assert_eq!(layout.local(0, 1), layout.local(layout.slots, 1));
    }

    #[test]
    fn only_verification_has_many_slots_and_few_large_ones() {
        let plan = Plan::new(Operation::Write, Measure::Bandwidth);
        assert_eq!(Layout::new(&plan, 0).slots, 1);
        let large = Plan { verify: true, sizes: vec![16 << 20], ..plan.clone() };
        assert_eq!(Layout::new(&large, 0).slots, 2);
        let huge = Plan { verify: true, sizes: vec![512 << 20], ..plan };
        assert_eq!(Layout::new(&huge, 0).slots, 1);
        let send = Plan::new(Operation::Send, Measure::Bandwidth);
        let few = Plan { verify: true, rx_depth: 3, ..send };
        assert_eq!(Layout::new(&few, 0).slots, 3);
    }

    #[test]
    fn a_slot_holds_the_buffer_that_perftests_programs_go_round_in() {
        let plan = Plan { sizes: vec![64], ..Plan::new(Operation::Write, Measure::Bandwidth) };
        assert_eq!(Layout::new(&plan, 0).bytes(), 2 * 4096);
        assert_eq!(Layout::new(&plan, 65536).bytes(), 2 * 65536);
    }
}
