//! Messages of one kind over one or many queue pairs, driven by one thread.

use super::valgrind::start_instrumentation;
use super::{CostCase, measured, nodes, while_parked};
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node, PORT};
use uroce::{
    AccessFlags, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Endpoint, GRH_LEN,
    MemoryRegion, ProtectionDomain, Qkey, QpCaps, QpInit, QpType, Qpn, QueuePair, RecvWr,
    RemoteBuffer, SendWr, WcStatus, WorkCompletion,
};

/// Payload bytes of a packet: the ports carry this path MTU.
const PATH_MTU: u32 = 4096;
/// Bytes between two places in memory: one message each, on pages of their own.
const STRIDE: usize = 64 << 10;
/// Local ACK timeout of 17 s (4.096 µs · 2^22): the timer is set as usual, and does not expire
/// however slow the simulated processor is.
const TIMEOUT: u8 = 22;
/// Turns without a completion after which a round has failed.
pub(super) const TURNS_MAX: u32 = 1_000_000;
/// Completions taken by one poll.
const POLL_BATCH: usize = 64;
const QKEY: Qkey = Qkey(0x1111_1111);

/// Runs a case with one number of messages, then with three times as many.
pub(super) fn run(case: CostCase, qps: u32) -> Result<(), BenchError> {
    if !(1..=4096).contains(&qps) {
        return Err(BenchError::usage("-q must be 1 to 4096"));
    }
    let shape = Shape::of(case, qps);
    let mut ends = Ends::open(shape, qps)?;
    let fewest = if qps == 1 { 8 } else { 1 };
    start_instrumentation();
    ends.rounds(shape, fewest)?;
    for rounds in [fewest, 3 * fewest] {
        let messages = u64::from(shape.depth * qps * rounds);
        let units = messages * u64::from(shape.size.div_ceil(PATH_MTU));
        measured(case, qps, units, &mut || ends.rounds(shape, rounds))?;
    }
    Ok(())
}

/// What a message is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    case: CostCase,
    size: u32,
    /// Messages of a queue pair in a round.
    pub(super) depth: u32,
}

impl Shape {
    pub(super) fn of(case: CostCase, qps: u32) -> Self {
        let (size, depth) = match case {
            CostCase::Write64k | CostCase::Read64k if qps == 1 => (65536, 8),
            CostCase::Write64k | CostCase::Read64k => (65536, 1),
            CostCase::Ud64 => (64, 128),
            _ if qps == 1 => (8, 128),
            _ => (8, 16),
        };
        Self { case, size, depth }
    }

    fn qp_type(self) -> QpType {
        if self.case == CostCase::Ud64 { QpType::Ud } else { QpType::Rc }
    }

    /// Whether each message takes a receive of the other end's.
    fn receives(self) -> bool {
        use CostCase::{AtomicWrite8, Read64k, Write8, Write64k};
        !matches!(self.case, Write8 | Write64k | Read64k | AtomicWrite8)
    }
}

/// One end's queue pairs and the memory that they have in common, a place for each.
pub(super) struct End {
    pub(super) qps: Vec<QueuePair>,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    pub(super) memory: MemoryRegion,
    pd: ProtectionDomain,
}

impl End {
    fn create(node: &Node, shape: Shape, qps: u32) -> Result<Self, BenchError> {
        let pd = node.context.allocate_pd();
        let memory = pd.allocate(STRIDE * qps as usize, AccessFlags::all());
        let memory = memory.step("registering memory")?;
        memory.fill(.., 0xa5).step("filling memory")?;
        let create_cq = || node.context.create_cq(shape.depth * qps).step("creating a CQ");
        let (send_cq, recv_cq) = (create_cq()?, create_cq()?);
        let caps = QpCaps {
            max_send_wr: shape.depth,
            max_recv_wr: shape.depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit { recv_cq: &recv_cq, caps, ..QpInit::new(&send_cq) };
        let init = init.qp_type(shape.qp_type());
        let create = |_| pd.create_qp(&init).step("creating a QP");
        let qps = (0..qps).map(create).collect::<Result<_, _>>()?;
        Ok(Self { qps, send_cq, recv_cq, memory, pd })
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, BenchError> {
        self.qps.iter().map(|qp| qp.endpoint(PORT, 0).step("our address")).collect()
    }

    pub(super) fn post_receives(&mut self, shape: Shape) -> Result<(), BenchError> {
        let len = shape.size as usize + if shape.qp_type() == QpType::Ud { GRH_LEN } else { 0 };
        for (index, qp) in self.qps.iter_mut().enumerate() {
            let start = index * STRIDE;
            let place = [self.memory.slice(start..start + len).step("a slice of memory")?];
            for _ in 0..shape.depth {
                qp.post_recv(&RecvWr::new(&place)).step("posting a receive")?;
            }
        }
        Ok(())
    }
}

/// Takes what has completed; gives its number.
pub(super) fn poll(cq: &CompletionQueue) -> Result<u32, BenchError> {
    let mut completions = [WorkCompletion::default(); POLL_BATCH];
    let count = cq.poll(&mut completions).step("polling a CQ")?;
    let failed = |status: WcStatus| BenchError::Completion { operation: "the case", status };
    completions[..count].iter().try_for_each(|completion| completion.ok().map_err(failed))?;
    Ok(count as u32)
}

/// Brings all queue pairs to RTS, each with its counterpart; gives the ways of UD.
fn connect(source: &End, target: &End, shape: Shape) -> Result<Vec<Way>, BenchError> {
    let options = ConnectOptions { timeout: TIMEOUT, ..ConnectOptions::default() };
    let (here, there) = (source.endpoints()?, target.endpoints()?);
    let mut ways = Vec::new();
    for (index, (here, there)) in here.iter().zip(&there).enumerate() {
        let (ours, theirs) = (&source.qps[index], &target.qps[index]);
        if shape.qp_type() == QpType::Rc {
            theirs.control().connect(here, &options).step("connecting")?;
            ours.control().connect(there, &options).step("connecting")?;
            continue;
        }
        theirs.control().start_datagrams(QKEY, &options).step("starting")?;
        ours.control().start_datagrams(QKEY, &options).step("starting")?;
        let handle = source.pd.create_ah(PORT, &AddressVector::to(there.gid));
        ways.push(Way { handle: handle.step("an address handle")?, qpn: there.qpn });
    }
    Ok(ways)
}

/// Where a queue pair's datagrams go.
struct Way {
    handle: AddressHandle,
    qpn: Qpn,
}

/// Both connected ends, and the thread's hold on their lcores. These are given back first: the
/// lcores' own threads then serve what the rest asks for on its way out.
pub(super) struct Ends {
    pub(super) drives: [Drive; 2],
    pub(super) source: End,
    pub(super) target: End,
    ways: Vec<Way>,
}

impl Ends {
    /// Opens both ends, joined by rings, and connects their queue pairs.
    pub(super) fn open(shape: Shape, qps: u32) -> Result<Self, BenchError> {
        let [server, client] = nodes()?;
        let drives = [client.drive()?, server.drive()?];
        let made = while_parked(|| {
            let target = End::create(&server, shape, qps)?;
            let source = End::create(&client, shape, qps)?;
            let ways = connect(&source, &target, shape)?;
            Ok((source, target, ways))
        });
        let (source, target, ways) = made?;
        // From here on this thread alone does all the work that is counted.
        drives.iter().for_each(Drive::set_exclusive);
        Ok(Self { drives, source, target, ways })
    }

    fn rounds(&mut self, shape: Shape, rounds: u32) -> Result<(), BenchError> {
        for _ in 0..rounds {
            if shape.receives() {
                self.target.post_receives(shape)?;
            }
            self.post(shape)?;
            self.complete(shape)?;
        }
        Ok(())
    }

    fn post(&mut self, shape: Shape) -> Result<(), BenchError> {
        let remote = self.target.memory.remote();
        for (index, qp) in self.source.qps.iter_mut().enumerate() {
            let start = index * STRIDE;
            let place = start..start + shape.size as usize;
            let local = [self.source.memory.slice(place).step("a slice of memory")?];
            let remote: RemoteBuffer =
                remote.slice(start as u64, u64::from(shape.size)).step("the peer's memory")?;
            let request = match shape.case {
                CostCase::Write8 | CostCase::Write64k => SendWr::write(&local, remote),
                CostCase::Read64k => SendWr::read(&local, remote),
                CostCase::AtomicWrite8 => SendWr::atomic_write(&local, remote),
                CostCase::Ud64 => {
                    let Way { handle, qpn } = &self.ways[index];
                    SendWr::send_to(&local, handle, *qpn, QKEY)
                }
                _ => SendWr::send(&local),
            };
            let request = request.signaled();
            for _ in 0..shape.depth {
                qp.post_send(&request).step("posting")?;
            }
        }
        Ok(())
    }

    /// Makes turns until a round's messages are complete at both ends.
    fn complete(&mut self, shape: Shape) -> Result<(), BenchError> {
        let mut sends = shape.depth * self.source.qps.len() as u32;
        let mut receives = if shape.receives() { sends } else { 0 };
        for _ in 0..TURNS_MAX {
            self.drives.iter_mut().for_each(Drive::turn);
            sends -= poll(&self.source.send_cq)?;
            receives -= poll(&self.target.recv_cq)?;
            if sends == 0 && receives == 0 {
                return Ok(());
            }
        }
        Err(BenchError::usage(format!("{sends} sends and {receives} receives did not complete")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_case_completes_with_one_and_with_several_queue_pairs() {
        for case in [
            CostCase::Send8,
            CostCase::Write8,
            CostCase::Write64k,
            CostCase::Read64k,
            CostCase::AtomicWrite8,
            CostCase::Ud64,
        ] {
            run(case, 1).expect("one queue pair");
            run(case, 3).expect("several");
        }
    }
}
